package main

import (
	"context"
	"fmt"
	"io"
	"net"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// appAnswer is all that the app ever says.
var appAnswer = []byte("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

// refusal is what a receiver says to what it refuses.
var refusal = []byte("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\nno")

// appMain is the app child: it answers 200 to every request, and says its address first. It ends with its stdin.
func appMain(_ []string, stdin io.Reader, stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		l.Close()
	}()
	fmt.Fprintln(stdout, l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return nil
		}
		go func() {
			defer c.Close()
			for r := newReader(c); ; {
				if _, _, err := r.message(); err != nil {
					return
				}
				if _, err := c.Write(appAnswer); err != nil {
					return
				}
			}
		}()
	}
}

// allowAllMain is the yardstick child: an ext_authz service in grpc-go as it comes, which allows everything, and an
// access log service that drops what it gets. It says its address first and ends with its stdin.
func allowAllMain(_ []string, stdin io.Reader, stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	auth.RegisterAuthorizationServer(server, allowAll{})
	accesslog.RegisterAccessLogServiceServer(server, dropLog{})
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		server.Stop()
	}()
	fmt.Fprintln(stdout, l.Addr())
	return server.Serve(l)
}

type allowAll struct{}

func (allowAll) Check(context.Context, *auth.CheckRequest) (*auth.CheckResponse, error) {
	return &auth.CheckResponse{Status: &status.Status{Code: int32(codes.OK)}}, nil
}

type dropLog struct{}

func (dropLog) StreamAccessLogs(stream accesslog.AccessLogService_StreamAccessLogsServer) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}
