package extauthz

import (
	"context"
	"errors"
	"io"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
)

// accessLogDesc serves envoy.service.accesslog.v3.AccessLogService with messages of the type logBatch, of which
// wireCodec reads only what a confirm needs.
var accessLogDesc = grpc.ServiceDesc{
	ServiceName: accesslogv3.AccessLogService_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    "StreamAccessLogs",
		Handler:       func(srv any, stream grpc.ServerStream) error { return srv.(*Confirm).streamAccessLogs(stream) },
		ClientStreams: true,
	}},
	Metadata: accesslogv3.AccessLogService_ServiceDesc.Metadata,
}

// logEntry is what a confirm needs of an HTTPAccessLogEntry.
type logEntry struct {
	ref    string // our reference in the dynamic metadata; empty: none
	report report
	// final: the request has ended. Other entries of the same request (at its start, in intervals) say nothing.
	final bool
}

// logBatch is one StreamAccessLogsMessage. Of its entries it keeps those that bear a reference.
type logBatch struct {
	entries   []logEntry
	malformed int // entries, or the rest of a message, that could not be read
}

// streamAccessLogs settles what one Envoy worker reports until it hangs up or the server stops. Envoy awaits no answer.
func (c *Confirm) streamAccessLogs(stream grpc.ServerStream) error {
	var batch logBatch
	for {
		if err := stream.RecvMsg(&batch); err != nil {
			if errors.Is(err, io.EOF) {
				return stream.SendMsg(&accesslogv3.StreamAccessLogsResponse{})
			}
			return err
		}
		c.settleBatch(stream.Context(), &batch)
	}
}

// settleBatch hands the ends to the inbox. What arrived counts, even if the stream breaks meanwhile.
func (c *Confirm) settleBatch(ctx context.Context, batch *logBatch) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	c.malformed(ctx, channelAccessLog, batch.malformed)
	for i := range batch.entries {
		if e := &batch.entries[i]; e.final {
			// An error was counted and logged; the claim stays open and ends with its lease.
			_ = c.settle(ctx, channelAccessLog, e.ref, e.report, false)
		}
	}
}
