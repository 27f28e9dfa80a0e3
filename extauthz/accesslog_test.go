package extauthz

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// serveTest runs a gate's listener in memory until the test ends, and dials it.
func serveTest(t testing.TB, c *Confirm, check func(context.Context, *request) decision, options ...grpc.DialOption) (*GRPCServer, *grpc.ClientConn) {
	t.Helper()
	if check == nil {
		check = func(context.Context, *request) decision { return decision{} }
	}
	g := newGRPCServer(GRPCConfig{Confirm: c, MaxBodyBytes: DefaultMaxBodyBytes}, check)
	l := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///gate", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		g.Stop(ctx)
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return g, conn
}

// metadataOf is dynamic metadata as ext_authz leaves it, with ref as ours unless it is empty.
func metadataOf(ref string) *corev3.Metadata {
	fields := map[string]*structpb.Value{"ext_authz_duration": structpb.NewNumberValue(2)}
	if ref != "" {
		fields[metadataKey] = structpb.NewStringValue(ref)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		metadataNamespace:              {Fields: fields},
		"envoy.filters.http.jwt_authn": {Fields: map[string]*structpb.Value{metadataKey: structpb.NewStringValue("not this one")}},
	}}
}

// entryOf is an entry as Envoy 1.40 writes it at the end of a request.
func entryOf(ref string, r report) *accesslogdatav3.HTTPAccessLogEntry {
	e := &accesslogdatav3.HTTPAccessLogEntry{
		CommonProperties: &accesslogdatav3.AccessLogCommon{
			UpstreamCluster:             "app",
			Metadata:                    metadataOf(ref),
			UpstreamRequestAttemptCount: r.attempts,
			StreamId:                    "b6185384-baee-4259-970a-45950566d54c",
			AccessLogType:               accesslogdatav3.AccessLogType_DownstreamEnd,
		},
		ProtocolVersion: accesslogdatav3.HTTPAccessLogEntry_HTTP11,
		Request: &accesslogdatav3.HTTPRequestProperties{
			RequestMethod: corev3.RequestMethod_POST, Scheme: "http", Authority: "127.0.0.1:10080", Path: "/webhooks/stripe",
			UserAgent: "Stripe/1.0 (+https://stripe.com/docs/webhooks)", RequestHeadersBytes: 345, RequestBodyBytes: 1024,
		},
		Response: &accesslogdatav3.HTTPResponseProperties{ResponseCodeDetails: r.details, ResponseHeadersBytes: 121},
	}
	if r.code != 0 {
		e.Response.ResponseCode = wrapperspb.UInt32(r.code)
	}
	return e
}

func batchOf(entries ...*accesslogdatav3.HTTPAccessLogEntry) *accesslogv3.StreamAccessLogsMessage {
	return &accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
		HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: entries}}}
}

var appDone = report{code: 200, details: detailsUpstream, attempts: 1}

// Each row is one message on a real stream.
func TestAccessLogStream(t *testing.T) {
	t.Parallel()
	kind := func(k accesslogdatav3.AccessLogType) *accesslogdatav3.HTTPAccessLogEntry {
		e := entryOf(testRef("evt_1"), appDone)
		e.CommonProperties.AccessLogType = k
		return e
	}
	intermediate := entryOf(testRef("evt_1"), appDone)
	//lint:ignore SA1019 Envoy still sets the field
	intermediate.CommonProperties.IntermediateLogEntry = true
	foreign := entryOf("", appDone)
	foreign.CommonProperties.Metadata.FilterMetadata[metadataNamespace].Fields[metadataKey] = structpb.NewNumberValue(7)
	for _, row := range []struct {
		name    string
		message *accesslogv3.StreamAccessLogsMessage
		want    []settled
	}{
		{"done", batchOf(entryOf(testRef("evt_1"), appDone)), []settled{{"evt_1", EndDone, false}}},
		{"app refuses", batchOf(entryOf(testRef("evt_1"), report{422, detailsUpstream, 1})), []settled{{"evt_1", EndReleased, false}}},
		{"sender hung up", batchOf(entryOf(testRef("evt_1"), report{0, "downstream_remote_disconnect", 1})), []settled{{"evt_1", EndUnknown, false}}},
		{"a batch", batchOf(
			entryOf(testRef("evt_1"), appDone),
			entryOf("", appDone),
			entryOf(testRef("evt_2"), report{500, detailsUpstream, 3}),
			entryOf(testRef("evt_3"), report{504, "response_timeout", 1}),
			entryOf(testRef("evt_1"), appDone),
		), []settled{{"evt_1", EndDone, false}, {"evt_2", EndReleased, false}, {"evt_3", EndUnknown, false}, {"evt_1", EndDone, false}}},
		{"our own answer", batchOf(entryOf(testRef("evt_1"), report{200, "ext_authz_denied", 0})), nil},
		{"not ours in the same place", batchOf(foreign), nil},
		{"start of the request", batchOf(kind(accesslogdatav3.AccessLogType_DownstreamStart)), nil},
		{"in between", batchOf(kind(accesslogdatav3.AccessLogType_DownstreamPeriodic)), nil},
		{"end of one attempt", batchOf(kind(accesslogdatav3.AccessLogType_UpstreamEnd)), nil},
		{"kind not told", batchOf(kind(accesslogdatav3.AccessLogType_NotSet)), nil},
		{"marked as intermediate", batchOf(intermediate), nil},
		{"nothing in it", &accesslogv3.StreamAccessLogsMessage{}, nil},
		{"entry without anything", batchOf(&accesslogdatav3.HTTPAccessLogEntry{}), nil},
		{"TCP", &accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_TcpLogs{
			TcpLogs: &accesslogv3.StreamAccessLogsMessage_TCPAccessLogEntries{LogEntry: []*accesslogdatav3.TCPAccessLogEntry{
				{CommonProperties: entryOf(testRef("evt_1"), appDone).GetCommonProperties()}}}}}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var inbox settleRecorder
			_, conn := serveTest(t, newTestConfirm(t, &inbox, nil), nil)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			stream, err := accesslogv3.NewAccessLogServiceClient(conn).StreamAccessLogs(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(row.message); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.CloseAndRecv(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(inbox.all(), row.want); diff != "" {
				t.Errorf("settled (-got +want):\n%s", diff)
			}
		})
	}
}

// rawCodec sends and receives bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (rawCodec) Name() string { return "proto" }

// An entry that cannot be read costs neither the others of its message nor those of the next.
func TestAccessLogMalformed(t *testing.T) {
	t.Parallel()
	entry := func(id string) []byte { return mustMarshal(t, entryOf(testRef(id), appDone)) }
	message := func(entries ...[]byte) []byte {
		var list []byte
		for _, e := range entries {
			list = protowire.AppendBytes(protowire.AppendTag(list, 1, protowire.BytesType), e)
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), list)
	}
	notUTF8 := entryOf(testRef("evt_utf8"), appDone)
	notUTF8.Request.UserAgent = "x"
	badAgent := []byte(string(mustMarshal(t, notUTF8)))
	for i := range badAgent {
		if string(badAgent[i:min(i+3, len(badAgent))]) == "\x32\x01x" { // user_agent = 6
			badAgent[i+2] = 0xff
		}
	}
	if proto.Unmarshal(badAgent, &accesslogdatav3.HTTPAccessLogEntry{}) == nil {
		t.Fatal("the entry with a bad header is good")
	}
	good := entry("evt_good")
	var inbox settleRecorder
	c := newTestConfirm(t, &inbox, nil)
	_, conn := serveTest(t, c, nil, grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, accesslogv3.AccessLogService_StreamAccessLogs_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range [][]byte{
		message(entry("evt_1"), good[:len(good)-7], []byte{0xff}, entry("evt_2")),
		[]byte("\xff\xff\xff"),
		append(message(entry("evt_3")), 0x12, 0x7f), // cut after the first part
		message(badAgent),
		{},
		message(entry("evt_4")),
	} {
		if err := stream.SendMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var answer []byte
	if err := stream.RecvMsg(&answer); err != nil {
		t.Fatal(err)
	}
	want := []settled{{"evt_1", EndDone, false}, {"evt_2", EndDone, false}, {"evt_3", EndDone, false}, {"evt_utf8", EndDone, false}, {"evt_4", EndDone, false}}
	if diff := cmp.Diff(inbox.all(), want); diff != "" {
		t.Errorf("settled (-got +want):\n%s", diff)
	}
}

// A message that Envoy 1.40 sent, seven requests in it.
func TestAccessLogCaptured(t *testing.T) {
	t.Parallel()
	msg, err := os.ReadFile("testdata/accesslog-envoy-1.40.bin")
	if err != nil {
		t.Fatal(err)
	}
	want := []logEntry{
		{"ref-2-/500", report{500, "via_upstream", 1}, true},
		{"ref-3-/302", report{302, "via_upstream", 1}, true},
		{"ref-4-/denied", report{403, "ext_authz_denied", 0}, true},
		{"ref-5-/close", report{503, "upstream_reset_before_response_started{connection_termination}", 1}, true},
		{"ref-6-/half", report{200, "upstream_reset_after_response_started{protocol_error}", 1}, true},
		{"ref-7-/slow", report{0, "downstream_remote_disconnect", 1}, true},
		{"ref-9-/none", report{503, "no_healthy_upstream", 1}, true},
	}
	var got logBatch
	got.decode(msg)
	if diff := cmp.Diff(got.entries, want, cmp.AllowUnexported(logEntry{}, report{})); diff != "" || got.malformed != 0 {
		t.Errorf("%d malformed, entries (-got +want):\n%s", got.malformed, diff)
	}
}

// What has arrived is settled even if Envoy dies at that moment; and a store that fails costs only its own entries.
func TestAccessLogOutlivesStream(t *testing.T) {
	t.Parallel()
	var alive []error
	inbox := settleRecorder{
		errs:  []error{ErrUnavailable},
		fresh: func(ctx context.Context) { alive = append(alive, ctx.Err()) },
	}
	c := newTestConfirm(t, &inbox, nil)
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("connection lost"))
	c.settleBatch(gone, &logBatch{entries: []logEntry{
		{testRef("evt_1"), appDone, true}, {testRef("evt_2"), appDone, true},
	}})
	want := []settled{{"evt_1", EndDone, false}, {"evt_2", EndDone, false}}
	if diff := cmp.Diff(inbox.all(), want); diff != "" {
		t.Errorf("settled (-got +want):\n%s", diff)
	}
	if errors.Join(alive...) != nil {
		t.Errorf("contexts ended: %v", alive)
	}
}

func mustMarshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
