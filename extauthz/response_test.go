package extauthz

import (
	"net/url"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestResponse(t *testing.T) {
	t.Parallel()
	header := func(name, value string) *corev3.HeaderValueOption {
		return &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: name, Value: value},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}
	}
	denied := func(status typev3.StatusCode, body string, headers ...*corev3.HeaderValueOption) *authv3.CheckResponse {
		return &authv3.CheckResponse{
			Status: &statuspb.Status{Code: 7},
			HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
				Status: &typev3.HttpStatus{Code: status}, Headers: headers, Body: body,
			}},
		}
	}
	for _, tt := range []struct {
		name string
		d    decision
		want *authv3.CheckResponse
	}{
		{
			name: "pass",
			d: decision{
				reason: ReasonPassed, ref: "AQ", remove: []string{"x_sidehook_source"},
				set: headerValues{{headerSource, "payments"}, {headerEventID, "evt_1"}},
			},
			want: &authv3.CheckResponse{
				Status: &statuspb.Status{},
				HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
					Headers:         []*corev3.HeaderValueOption{header("x-sidehook-source", "payments"), header("x-sidehook-event-id", "evt_1")},
					HeadersToRemove: []string{"x_sidehook_source"},
				}},
				DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{"sidehook": structpb.NewStringValue("AQ")}},
			},
		},
		{
			name: "open pass",
			d:    decision{reason: ReasonOpen},
			want: &authv3.CheckResponse{
				Status:       &statuspb.Status{},
				HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{}},
			},
		},
		{
			// A 200 of ours is a denial to Envoy: with code 0 the app would get the request.
			name: "duplicate",
			d:    decision{reason: ReasonDuplicate},
			want: denied(200, `{"status":"duplicate"}`, header("content-type", "application/json")),
		},
		{
			name: "unavailable",
			d:    decision{reason: ReasonUnavailable},
			want: denied(503, `{"status":"unavailable"}`, header("content-type", "application/json"), header("retry-after", "5")),
		},
		{
			name: "handshake",
			d:    textAnswer("chal"),
			want: denied(200, "chal", header("content-type", "text/plain"), header("x-content-type-options", "nosniff")),
		},
		{
			name: "no content",
			d:    decision{reason: ReasonDuplicate, status: 204, contentType: "text/plain", body: "x"},
			want: denied(204, "", header("content-type", "text/plain")),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.d.answer()
			if diff := cmp.Diff(tt.want, tt.d.response(), protocmp.Transform()); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHeaderText(t *testing.T) {
	t.Parallel()
	edge := strings.Repeat("x", maxIDLen)
	for _, tt := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"plain", "evt_1.a-b:c/d=", "evt_1.a-b:c/d="},
		{"percent", "100%", "100%25"},
		{"blank inside", "a b", "a b"},
		{"blanks that HTTP strips", " a ", "%20a%20"},
		{"blank alone", " ", "%20"},
		{"line end", "a\r\nx-admin: 1", "a%0D%0Ax-admin: 1"},
		{"tab", "a\tb", "a%09b"},
		{"NUL and DEL", "\x00\x7f", "%00%7F"},
		{"UTF-8", "é", "%C3%A9"},
		{"no UTF-8", "\xff", "%FF"},
		{"as long as can be", edge, edge},
		// printf 'x%.0s' $(seq 257) | sha256sum
		{"longer", edge + "x", "sha256:15eb95a462ee20bd91a415ae2d4aed341288186ddaa2b37908f7d592f0c3f85f"},
		// printf '\xff%.0s' $(seq 86) | sha256sum: 258 bytes when encoded.
		{"longer when encoded", strings.Repeat("\xff", 86), "sha256:22e23c5becd81be5bd0c975ba736221ba3bbad916f618e9b1b4c3d373a8e0385"},
		{"as long as can be when encoded", "x" + strings.Repeat("\xff", 85), "x" + strings.Repeat("%FF", 85)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := headerText(tt.in); got != tt.want {
				t.Errorf("headerText(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

// What a header carries reads back, and no text can end the header or grow it.
func FuzzHeaderText(f *testing.F) {
	for _, seed := range []string{"", "evt_1", "a b", "%", "\r\n", "é", " x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := headerText(s)
		if len(got) > maxIDLen || strings.TrimSpace(got) != got {
			t.Errorf("headerText(%q) = %q", s, got)
		}
		for i := range len(got) {
			if got[i] < ' ' || got[i] > '~' {
				t.Errorf("headerText(%q) = %q", s, got)
			}
		}
		if back, err := url.PathUnescape(got); !strings.HasPrefix(got, hashPrefix) && (err != nil || back != s) {
			t.Errorf("headerText(%q) = %q, which reads %q, %v", s, got, back, err)
		}
	})
}
