package extauthz

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
)

// requestHeaders is the first message of an exchange, as Envoy 1.40 sends it.
func requestHeaders(ref string) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{
			Headers: []*corev3.HeaderValue{{Key: ":path", RawValue: []byte("/webhooks/stripe")}, {Key: ":status", RawValue: []byte("200")}}}}},
		MetadataContext: metadataOf(ref),
		ProtocolConfig:  &extprocv3.ProtocolConfiguration{},
	}
}

// responseHeaders is the message of the response phase. Empty details: the filter's response_attributes are not set.
func responseHeaders(ref, code, details string, attempts float64) *extprocv3.ProcessingRequest {
	m := &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{
			Headers: []*corev3.HeaderValue{{Key: ":status", RawValue: []byte(code)}, {Key: "x-envoy-upstream-service-time", RawValue: []byte("0")}}}}},
		MetadataContext: metadataOf(ref),
	}
	if details != "" {
		m.Attributes = map[string]*structpb.Struct{extProcNamespace: {Fields: map[string]*structpb.Value{
			"response.code":                  structpb.NewNumberValue(200),
			"response.code_details":          structpb.NewStringValue(details),
			"response.flags":                 structpb.NewNumberValue(0),
			"upstream.request_attempt_count": structpb.NewNumberValue(attempts),
		}}}
	}
	return m
}

// Each row is one exchange: messages in, answers out, then Envoy closes its side.
func TestExtProc(t *testing.T) {
	t.Parallel()
	ref := testRef("evt_1")
	type messages = []*extprocv3.ProcessingRequest
	onlyCode := responseHeaders(ref, "200", "", 0)
	onlyDetails := responseHeaders(ref, "200", detailsUpstream, 0)
	delete(onlyDetails.Attributes[extProcNamespace].Fields, attributeAttempts)
	plainValue := responseHeaders(ref, "", detailsUpstream, 1)
	plainValue.GetResponseHeaders().Headers.Headers[0] = &corev3.HeaderValue{Key: ":status", Value: "200"}
	for _, row := range []struct {
		name string
		in   messages
		want []settled
	}{
		{"app answers 200", messages{requestHeaders(ref), responseHeaders(ref, "200", detailsUpstream, 1)}, []settled{{"evt_1", EndDone, true}}},
		{"app answers 200 to a retry", messages{requestHeaders(ref), responseHeaders(ref, "200", detailsUpstream, 3)}, []settled{{"evt_1", EndDone, true}}},
		{"request headers are not sent", messages{responseHeaders(ref, "202", detailsUpstream, 1)}, []settled{{"evt_1", EndDone, true}}},
		{"metadata in the request phase only", messages{requestHeaders(ref), responseHeaders("", "200", detailsUpstream, 1)}, []settled{{"evt_1", EndDone, true}}},
		{"status as text", messages{plainValue}, []settled{{"evt_1", EndDone, true}}},
		{"attempts not told", messages{onlyDetails}, []settled{{"evt_1", EndDone, true}}},
		{"app answers 404", messages{requestHeaders(ref), responseHeaders(ref, "404", detailsUpstream, 1)}, []settled{{"evt_1", EndReleased, false}}},
		{"app answers 500 to all retries", messages{requestHeaders(ref), responseHeaders(ref, "500", detailsUpstream, 3)}, []settled{{"evt_1", EndReleased, false}}},
		{"app closes", messages{requestHeaders(ref), responseHeaders(ref, "503", "upstream_reset_before_response_started{connection_termination}", 1)}, []settled{{"evt_1", EndUnknown, false}}},
		{"time limit", messages{requestHeaders(ref), responseHeaders(ref, "504", "response_timeout", 1)}, []settled{{"evt_1", EndUnknown, false}}},
		{"a later filter answers 200", messages{responseHeaders(ref, "200", "direct_response", 0)}, []settled{{"evt_1", EndReleased, false}}},
		{"attributes not configured", messages{onlyCode}, []settled{{"evt_1", EndUnknown, false}}},
		{"status unreadable", messages{responseHeaders(ref, "2oo", detailsUpstream, 1)}, []settled{{"evt_1", EndUnknown, false}}},
		{"our own answer", messages{responseHeaders(ref, "200", "ext_authz_denied", 0)}, nil},
		{"not a webhook", messages{requestHeaders(""), responseHeaders("", "200", detailsUpstream, 1)}, nil},
		{"sender hangs up before the app answers", messages{requestHeaders(ref)}, []settled{{"evt_1", EndUnknown, false}}},
		{"sender of something else hangs up", messages{requestHeaders("")}, nil},
		{"response phase twice", messages{responseHeaders(ref, "500", detailsUpstream, 1), responseHeaders(ref, "200", detailsUpstream, 1)}, []settled{{"evt_1", EndReleased, false}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var inbox settleRecorder
			_, conn := serveTest(t, newTestConfirm(t, &inbox, nil), nil)
			answers := talk(t, extprocv3.NewExternalProcessorClient(conn), row.in)
			for i, in := range row.in {
				want := continueResponseHeaders
				if in.GetRequestHeaders() != nil {
					want = continueRequestHeaders
				}
				if diff := cmp.Diff(answers[i], want, protocmp.Transform()); diff != "" {
					t.Errorf("answer %d (-got +want):\n%s", i, diff)
				}
			}
			if diff := cmp.Diff(inbox.all(), row.want); diff != "" {
				t.Errorf("settled (-got +want):\n%s", diff)
			}
		})
	}
}

// talk sends each message, waits for its answer, closes and waits for the end of the stream.
func talk(t *testing.T, client extprocv3.ExternalProcessorClient, in []*extprocv3.ProcessingRequest) []*extprocv3.ProcessingResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var answers []*extprocv3.ProcessingResponse
	for _, m := range in {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, answer)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("end of stream: %v", err)
	}
	return answers
}

// Phases that our configuration does not ask for are answered so that nothing changes.
func TestExtProcOtherPhases(t *testing.T) {
	t.Parallel()
	body := &extprocv3.HttpBody{Body: []byte("piece"), EndOfStream: true}
	config := func(request, response extprocfilterv3.ProcessingMode_BodySendMode) *extprocv3.ProcessingRequest {
		m := requestHeaders("")
		m.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: request, ResponseBodyMode: response}
		return m
	}
	requestBody := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: body}}
	responseBody := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: body}}
	kept := &extprocv3.BodyResponse{}
	back := &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{Body: []byte("piece"), EndOfStream: true}}}}}
	onRequest := func(b *extprocv3.BodyResponse) *extprocv3.ProcessingResponse {
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: b}}
	}
	onResponse := func(b *extprocv3.BodyResponse) *extprocv3.ProcessingResponse {
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: b}}
	}
	const (
		none     = extprocfilterv3.ProcessingMode_NONE
		buffered = extprocfilterv3.ProcessingMode_BUFFERED
		streamed = extprocfilterv3.ProcessingMode_STREAMED
		duplex   = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	)
	for _, row := range []struct {
		name  string
		setup *extprocv3.ProcessingRequest
		in    *extprocv3.ProcessingRequest
		want  *extprocv3.ProcessingResponse
	}{
		{"buffered request", config(buffered, none), requestBody, onRequest(kept)},
		{"streamed request", config(streamed, none), requestBody, onRequest(kept)},
		{"duplex request", config(duplex, none), requestBody, onRequest(back)},
		{"buffered response", config(none, buffered), responseBody, onResponse(kept)},
		{"duplex response", config(none, duplex), responseBody, onResponse(back)},
		{"duplex on the other side only", config(duplex, streamed), responseBody, onResponse(kept)},
		{"request trailers", config(none, none), &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{}}, continueRequestTrailers},
		{"response trailers", config(none, none), &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{}}, continueResponseTrailers},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, conn := serveTest(t, newTestConfirm(t, &settleRecorder{}, nil), nil)
			answers := talk(t, extprocv3.NewExternalProcessorClient(conn), []*extprocv3.ProcessingRequest{row.setup, row.in})
			if diff := cmp.Diff(answers[1], row.want, protocmp.Transform()); diff != "" {
				t.Errorf("answer (-got +want):\n%s", diff)
			}
		})
	}
}

// A phase of a later Envoy closes the stream; a window update alone awaits nothing.
func TestExtProcUnknownPhase(t *testing.T) {
	t.Parallel()
	x := exchange{confirm: newTestConfirm(t, &settleRecorder{}, nil)}
	if _, err := x.answer(t.Context(), &extprocv3.ProcessingRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("unknown phase: %v, want Unimplemented", err)
	}
	answer, err := x.answer(t.Context(), &extprocv3.ProcessingRequest{ClientWindowUpdate: &extprocv3.ProcessingRequest_ClientWindowUpdate{}})
	if answer != nil || err != nil {
		t.Errorf("window update: %v, %v, want no answer", answer, err)
	}
}

// In observability mode Envoy ignores answers; the claim ends all the same.
func TestExtProcObservability(t *testing.T) {
	t.Parallel()
	inbox := settleRecorder{seen: make(chan struct{}, 1)}
	_, conn := serveTest(t, newTestConfirm(t, &inbox, nil), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m := responseHeaders(testRef("evt_1"), "200", detailsUpstream, 1)
	m.ObservabilityMode = true
	if err := stream.Send(m); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if answer, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, %v, want the end", answer, err)
	}
	if diff := cmp.Diff(inbox.all(), []settled{{"evt_1", EndDone, true}}); diff != "" {
		t.Errorf("settled (-got +want):\n%s", diff)
	}
}

// The sender must not see 2xx before the claim is DONE on disk.
func TestExtProcWaitsForDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inbox := settleRecorder{block: make(chan struct{})}
		x := exchange{confirm: newTestConfirm(t, &inbox, nil)}
		answered := make(chan error, 1)
		go func() {
			_, err := x.answer(t.Context(), responseHeaders(testRef("evt_1"), "200", detailsUpstream, 1))
			answered <- err
		}()
		time.Sleep(DefaultSettleTimeout - time.Millisecond)
		synctest.Wait()
		select {
		case err := <-answered:
			t.Fatalf("answered %v while the disk was busy", err)
		default:
		}
		close(inbox.block)
		if err := <-answered; err != nil {
			t.Errorf("answer: %v", err)
		}
	})
}

// A disk that does not answer in time, or not at all, gets no CONTINUE: Envoy's failure_mode_allow decides.
func TestExtProcDiskFails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		code string
		fail func(*settleRecorder)
		want codes.Code
	}{
		{"too slow", "200", func(s *settleRecorder) { s.block = make(chan struct{}) }, codes.Unavailable},
		{"full", "200", func(s *settleRecorder) { s.errs = []error{ErrFull} }, codes.Unavailable},
		// A release that is lost costs the rest of the lease, nothing more: the sender gets the app's answer.
		{"full, and the app refuses", "500", func(s *settleRecorder) { s.errs = []error{ErrFull} }, codes.OK},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var inbox settleRecorder
				row.fail(&inbox)
				x := exchange{confirm: newTestConfirm(t, &inbox, func(cfg *ConfirmConfig) { cfg.SettleTimeout = 100 * time.Millisecond })}
				start := time.Now()
				_, err := x.answer(t.Context(), responseHeaders(testRef("evt_1"), row.code, detailsUpstream, 1))
				if status.Code(err) != row.want {
					t.Errorf("answer: %v, want %v", err, row.want)
				}
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// What the app answered stays true when the sender hangs up while we write it.
func TestExtProcOutlivesStream(t *testing.T) {
	t.Parallel()
	inbox := settleRecorder{fresh: func(ctx context.Context) {
		if ctx.Err() != nil {
			t.Errorf("the inbox gets a context that has ended: %v", ctx.Err())
		}
	}}
	x := exchange{confirm: newTestConfirm(t, &inbox, nil)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.answer(ctx, responseHeaders(testRef("evt_1"), "200", detailsUpstream, 1)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(inbox.all(), []settled{{"evt_1", EndDone, true}}); diff != "" {
		t.Errorf("settled (-got +want):\n%s", diff)
	}
}

// Envoy cancels the stream of a request that is over; before the response phase that means that nobody knows.
func TestExtProcCancelled(t *testing.T) {
	t.Parallel()
	inbox := settleRecorder{seen: make(chan struct{}, 1)}
	_, conn := serveTest(t, newTestConfirm(t, &inbox, nil), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(requestHeaders(testRef("evt_1"))); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-inbox.seen:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing settled")
	}
	if diff := cmp.Diff(inbox.all(), []settled{{"evt_1", EndUnknown, false}}); diff != "" {
		t.Errorf("settled (-got +want):\n%s", diff)
	}
}
