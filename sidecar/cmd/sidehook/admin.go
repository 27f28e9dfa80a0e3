package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/internal/secret"
	"github.com/sidehook/sidehook/pb/sidehook/egress/v1/egressv1connect"
	"github.com/sidehook/sidehook/pb/sidehook/inbox/v1/inboxv1connect"
)

// Bounds of one call to the admin API, which is in the same pod.
const (
	adminDialTimeout = 3 * time.Second
	adminCallTimeout = 30 * time.Second
	adminAnswerBytes = 80 << 20 // an event with the largest max_body, 64 MiB; a page of 1000 with the longest ids is below 4 MiB
)

// adminFlags say which running sidehook a command speaks to.
type adminFlags struct {
	config    configFlag
	addr      string
	tokenFile string
}

// register adds -c, --admin and --token-file to c.
func (f *adminFlags) register(c *cobra.Command) {
	f.config.register(c)
	c.Flags().StringVar(&f.addr, "admin", "", "`ADDR` of the admin API, host:port or unix:PATH (default admin.listen of the configuration, which is not read otherwise)")
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "`FILE` with the admin API's token (default admin.token of the configuration)")
}

// adminClient is the admin API of one running sidehook.
type adminClient struct {
	inboxv1connect.InboxServiceClient
	// long is for calls without a time limit of their own.
	long inboxv1connect.InboxServiceClient
	// egress is the outbound half. Where it is not configured its calls are unimplemented.
	egress egressv1connect.EgressServiceClient
	addr   string // as the user knows it, for errors
}

// connect finds the admin API and returns a client of it. Nothing is dialled yet.
func (f *adminFlags) connect() (*adminClient, error) {
	addr, token := f.addr, []byte(nil)
	if addr == "" {
		var err error
		if addr, token, err = f.config.admin(); err != nil {
			return nil, err
		}
	}
	if f.tokenFile != "" {
		var err error
		if token, err = loadToken(secret.Source{File: f.tokenFile}); err != nil {
			return nil, err
		}
	}
	base, transport, err := adminTransport(addr)
	if err != nil {
		return nil, err
	}
	opts := []connect.ClientOption{connect.WithReadMaxBytes(adminAnswerBytes)}
	if len(token) > 0 {
		opts = append(opts, connect.WithInterceptors(bearer(token)))
	}
	client := func(limit time.Duration) *http.Client {
		return &http.Client{
			Transport:     transport,
			Timeout:       limit,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &adminClient{
		InboxServiceClient: inboxv1connect.NewInboxServiceClient(client(adminCallTimeout), base, opts...),
		long:               inboxv1connect.NewInboxServiceClient(client(0), base, opts...),
		egress:             egressv1connect.NewEgressServiceClient(client(adminCallTimeout), base, opts...),
		addr:               addr,
	}, nil
}

// adminTransport returns the base URL and the transport for addr: "unix:PATH", or "host:port" whose empty or
// unspecified host is the loopback one, since a listener on all addresses is on that one as well.
func adminTransport(addr string) (base string, t *http.Transport, err error) {
	dialer := &net.Dialer{Timeout: adminDialTimeout}
	t = &http.Transport{ // no proxy from the environment: the API is in this pod
		DialContext:            dialer.DialContext,
		MaxIdleConns:           1,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		if path == "" {
			return "", nil, usagef("admin address %q: the path of the socket is missing", addr)
		}
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		return "http://localhost", t, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return "", nil, usagef("admin address %q: want host:port or unix:PATH", addr)
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port), t, nil
}

// bearer puts itself, a token, on every call.
type bearer []byte

// WrapUnary implements connect.Interceptor.
func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Authorization", "Bearer "+string(b))
		return next(ctx, req)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", "Bearer "+string(b))
		return conn
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// call makes one call; see explain for its errors.
func call[Req, Res any](ctx context.Context, c *adminClient, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	res, err := method(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, c.explain(err)
	}
	return res.Msg, nil
}

// explain translates an error of the API for a person: what was not found or is not possible is an answer (exit 1), what
// the API took for nonsense is wrong usage (2), everything else means that we did not get through (3).
func (c *adminClient) explain(err error) error {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return fmt.Errorf("admin API at %s: %w", c.addr, err)
	}
	switch ce.Code() {
	case connect.CodeNotFound, connect.CodeFailedPrecondition, connect.CodeAlreadyExists, connect.CodeResourceExhausted:
		return no(errors.New(ce.Message()))
	case connect.CodeInvalidArgument:
		return usagef("%s", ce.Message())
	case connect.CodeUnauthenticated:
		return fmt.Errorf("admin API at %s: %s\ngive it with --token-file", c.addr, ce.Message())
	case connect.CodeUnimplemented:
		return fmt.Errorf("admin API at %s: %s\nis this another program, an older sidehook, or one whose configuration has no egress?", c.addr, ce.Message())
	}
	if unreachable(err) {
		return &unreachableError{addr: c.addr, err: ce}
	}
	return fmt.Errorf("admin API at %s: %s", c.addr, ce.Message())
}

// unreachableError says that nobody answers at the address.
type unreachableError struct {
	addr string
	err  *connect.Error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("admin API at %s: %s\nis sidehook running, and is this its admin.listen?", e.addr, e.err.Message())
}

func (e *unreachableError) Unwrap() error { return e.err }

// unreachable reports whether err means that nobody listens there: a call that may have arrived is not meant.
func unreachable(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
