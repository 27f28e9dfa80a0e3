package extauthz

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// DefaultSettleTimeout bounds how long an ext_proc answer waits for the disk. Our Envoy config sets message_timeout to
// two seconds; Envoy's own default is 200 ms.
const DefaultSettleTimeout = 1500 * time.Millisecond

// Attributes that the filter sends when its response_attributes ask for them, under extProcNamespace.
const (
	extProcNamespace  = "envoy.filters.http.ext_proc"
	attributeDetails  = "response.code_details"
	attributeAttempts = "upstream.request_attempt_count"
)

// extProcServer is envoy.service.ext_proc.v3.ExternalProcessor: it reads how the app answered and changes nothing.
type extProcServer struct {
	extprocv3.UnimplementedExternalProcessorServer
	confirm *Confirm
}

// Process follows one request. The answer to its response headers waits until the claim's end is on disk.
func (s extProcServer) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	x := exchange{confirm: s.confirm}
	err := x.run(stream)
	if !x.reported {
		// Envoy gave up before the app answered: the sender hung up, or Envoy died.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(stream.Context()), settleTimeout)
		defer cancel()
		_ = s.confirm.settle(ctx, channelExtProc, x.ref, report{attempts: 1}, false) // counted and logged there
	}
	return err
}

// exchange is what one stream has told so far.
type exchange struct {
	confirm  *Confirm
	ref      string // from whichever message bore it
	reported bool   // the response headers came
	// Modes in which Envoy has let go of the body and wants every piece back from us.
	requestMode, responseMode extprocfilterv3.ProcessingMode_BodySendMode
}

func (x *exchange) run(stream extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		msg, err := stream.Recv()
		if err != nil {
			// Envoy cancels the stream when the request is over; it is the usual end, like EOF.
			if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
				return nil
			}
			return err
		}
		answer, err := x.answer(stream.Context(), msg)
		if err != nil {
			return err
		}
		if answer == nil || msg.GetObservabilityMode() {
			continue
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// answer is nil where none is due. An error closes the stream: the filter's failure_mode_allow then decides.
func (x *exchange) answer(ctx context.Context, msg *extprocv3.ProcessingRequest) (*extprocv3.ProcessingResponse, error) {
	if ref := referenceOf(msg.GetMetadataContext()); ref != "" {
		x.ref = ref
	}
	if cfg := msg.GetProtocolConfig(); cfg != nil {
		x.requestMode, x.responseMode = cfg.GetRequestBodyMode(), cfg.GetResponseBodyMode()
	}
	switch m := msg.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return continueRequestHeaders, nil
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		if err := x.settle(ctx, reportOf(msg, m.ResponseHeaders)); err != nil {
			return nil, err
		}
		return continueResponseHeaders, nil
	case *extprocv3.ProcessingRequest_RequestBody:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
			RequestBody: sameBody(x.requestMode, m.RequestBody)}}, nil
	case *extprocv3.ProcessingRequest_ResponseBody:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
			ResponseBody: sameBody(x.responseMode, m.ResponseBody)}}, nil
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return continueRequestTrailers, nil
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return continueResponseTrailers, nil
	default:
		// A window update alone awaits nothing; a phase that we do not know cannot be answered.
		if msg.GetClientWindowUpdate() != nil {
			return nil, nil
		}
		x.confirm.malformed(ctx, channelExtProc, 1)
		return nil, status.Error(codes.Unimplemented, "phase not known")
	}
}

// settle waits until the claim's end is on disk: the sender sees no 2xx before.
func (x *exchange) settle(ctx context.Context, r report) error {
	if x.reported {
		return nil
	}
	x.reported = true
	end, _ := r.end()
	// The sender may hang up at this very moment; what the app answered stays true.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.confirm.settleTimeout)
	defer cancel()
	if err := x.confirm.settle(ctx, channelExtProc, x.ref, r, end == EndDone); err != nil && end == EndDone {
		return status.Error(codes.Unavailable, "inbox cannot write")
	}
	return nil
}

// reportOf reads the response phase. Without the details nobody can tell the app's answer from Envoy's own: that ends
// as unknown. Without the count of attempts one is assumed.
func reportOf(msg *extprocv3.ProcessingRequest, headers *extprocv3.HttpHeaders) report {
	fields := msg.GetAttributes()[extProcNamespace].GetFields()
	r := report{details: fields[attributeDetails].GetStringValue(), attempts: 1}
	if v, ok := fields[attributeAttempts].GetKind().(*structpb.Value_NumberValue); ok {
		r.attempts = uint32(max(0, min(v.NumberValue, 1<<31)))
	}
	for _, h := range headers.GetHeaders().GetHeaders() {
		if h.GetKey() != ":status" {
			continue
		}
		value := string(h.GetRawValue())
		if value == "" {
			value = h.GetValue()
		}
		if code, err := strconv.ParseUint(value, 10, 16); err == nil {
			r.code = uint32(code)
		}
	}
	return r
}

// referenceOf is our reference in the dynamic metadata, or empty.
func referenceOf(md *corev3.Metadata) string {
	return md.GetFilterMetadata()[metadataNamespace].GetFields()[metadataKey].GetStringValue()
}

// Answers that change nothing. They are shared and never written to.
var (
	continueRequestHeaders = &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}}
	continueResponseHeaders = &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}}
	continueRequestTrailers = &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}}
	continueResponseTrailers = &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}
)

// sameBody leaves a body as it is. In the two modes where Envoy has let go of it, we hand the piece back.
func sameBody(mode extprocfilterv3.ProcessingMode_BodySendMode, piece *extprocv3.HttpBody) *extprocv3.BodyResponse {
	if mode != extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED && mode != extprocfilterv3.ProcessingMode_GRPC {
		return &extprocv3.BodyResponse{}
	}
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{
			Body:                      piece.GetBody(),
			EndOfStream:               piece.GetEndOfStream(),
			EndOfStreamWithoutMessage: piece.GetEndOfStreamWithoutMessage(),
			GrpcMessageCompressed:     piece.GetGrpcMessageCompressed(),
		}},
	}}}
}
