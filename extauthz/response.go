package extauthz

import (
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
)

// Headers of a request that passes.
const (
	headerSource    = "x-sidehook-source"
	headerEventID   = "x-sidehook-event-id"
	headerEventType = "x-sidehook-event-type"
	headerTenant    = "x-sidehook-tenant"
	headerReport    = "x-sidehook-report"
	// headerSeenIDs names the events of a request that the app has already, for one that has others too.
	headerSeenIDs = "x-sidehook-seen-ids"
)

// response makes the CheckResponse of d, which answer has completed. Code 0 means to Envoy: to the app, whatever else
// the message says; every answer of ours therefore has code 7, the 200s included, and a denied_response with a status,
// never an error_response, which a filter that fails open takes for a pass.
func (d *decision) response() *authv3.CheckResponse {
	if d.pass() {
		return d.okResponse()
	}
	denied := &authv3.DeniedHttpResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(d.status)},
		Body:   d.body,
	}
	for name, value := range d.answerHeaders() {
		denied.Headers = append(denied.Headers, overwrite(name, value))
	}
	return &authv3.CheckResponse{
		Status:       &statuspb.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: denied},
	}
}

func (d *decision) okResponse() *authv3.CheckResponse {
	ok := &authv3.OkHttpResponse{HeadersToRemove: d.remove}
	for _, h := range d.set {
		if h.name != "" {
			ok.Headers = append(ok.Headers, overwrite(h.name, h.value))
		}
	}
	response := &authv3.CheckResponse{
		Status:       &statuspb.Status{Code: int32(codes.OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok},
	}
	if d.ref != "" {
		response.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{metadataKey: structpb.NewStringValue(d.ref)}}
	}
	return response
}

// answerHeaders yields the headers of an answer, in their order.
func (d *decision) answerHeaders() func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		if !yield("content-type", d.contentType) {
			return
		}
		if d.nosniff && !yield("x-content-type-options", "nosniff") {
			return
		}
		for _, h := range d.set {
			if h.name != "" && !yield(h.name, h.value) {
				return
			}
		}
		if d.retry > 0 {
			yield("retry-after", retryAfter(d.retry))
		}
	}
}

// overwrite replaces every value that a header has; Envoy 1.40 reads value here, not raw_value.
func overwrite(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// retryAfter is d in whole seconds, rounded up: a sender that comes a moment early meets the same answer again.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// headerText is s as our headers carry it: percent-encoded, or its hash where that is longer than 256 bytes.
func headerText(s string) string {
	if len(s) <= maxIDLen {
		if e := percentEncode(s); len(e) <= maxIDLen {
			return e
		}
	}
	return hashed(s)
}

// percentEncode writes "%" and all outside printable ASCII as percent escapes; blanks at the ends too, which HTTP
// would strip.
func percentEncode(s string) string {
	const hexDigits = "0123456789ABCDEF"
	plain := func(i int) bool {
		c := s[i]
		return c > ' ' && c < 0x7f && c != '%' || c == ' ' && i > 0 && i < len(s)-1
	}
	i := 0
	for i < len(s) && plain(i) {
		i++
	}
	if i == len(s) {
		return s
	}
	b := append(make([]byte, 0, len(s)+16), s[:i]...)
	for ; i < len(s); i++ {
		if plain(i) {
			b = append(b, s[i])
			continue
		}
		b = append(b, '%', hexDigits[s[i]>>4], hexDigits[s[i]&15])
	}
	return string(b)
}
