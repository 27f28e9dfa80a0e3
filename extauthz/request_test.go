package extauthz

import (
	"context"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/metadata"

	"github.com/sidehook/sidehook/internal/signature"
)

// filled reads in as a Check that came with ctx.
func filled(ctx context.Context, in *authv3.CheckRequest) *request {
	var r request
	r.reset()
	r.fill(ctx, in)
	return &r
}

func TestFillShapes(t *testing.T) {
	t.Parallel()
	raw := filled(t.Context(), checkOf(true, "{}"))
	merged := filled(t.Context(), checkOf(false, "{}"))
	order := cmpopts.SortSlices(func(a, b signature.Field) bool { return a.Name < b.Name })
	if diff := cmp.Diff(raw, merged, cmp.AllowUnexported(request{}), order); diff != "" {
		t.Errorf("raw and merged headers read differently (-raw +merged):\n%s", diff)
	}
	if raw.id != "15098263211293837483" || raw.method != "POST" || raw.target != "/webhooks/stripe?x=1" || raw.host != "127.0.0.1:10080" ||
		string(raw.body) != "{}" || raw.text || raw.size != 2 || raw.contentLength != 1024 || !raw.buffered || raw.partial || raw.source() != "payments" {
		t.Errorf("filled %+v", raw)
	}
	if got := raw.get("stripe-signature"); got == "" {
		t.Error("the signature header is missing")
	}
	if got := raw.get(":path") + raw.get("x-sidehook-source") + raw.get("x-envoy-auth-partial-body"); got != "" {
		t.Errorf("headers that nobody signs are kept: %q", got)
	}
}

// Repeats and bytes that are no UTF-8 survive the raw shape, in order.
func TestFillRawKeepsRepeats(t *testing.T) {
	t.Parallel()
	in := checkOf(true, "{}")
	h := in.Attributes.Request.Http
	h.HeaderMap.Headers = []*corev3.HeaderValue{
		{Key: "webhook-id", RawValue: []byte("a\xff")},
		{Key: "webhook-id", RawValue: []byte("b")},
		{Key: "empty"},
		{Key: "old", Value: "v"},
	}
	want := []signature.Field{{Name: "webhook-id", Value: "a\xff"}, {Name: "webhook-id", Value: "b"}, {Name: "empty"}, {Name: "old", Value: "v"}}
	if diff := cmp.Diff(want, filled(t.Context(), in).header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestFillSource(t *testing.T) {
	t.Parallel()
	in := func(source string) *authv3.CheckRequest {
		return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{ContextExtensions: map[string]string{"source": source}}}
	}
	ctx := func(names ...string) context.Context {
		md := metadata.MD{}
		md.Append("X-Sidehook-Source", names...)
		return metadata.NewIncomingContext(t.Context(), md)
	}
	for _, tt := range []struct {
		name string
		r    *request
		want string
	}{
		{"nothing", filled(t.Context(), nil), ""},
		{"route", filled(t.Context(), in("a")), "a"},
		{"filter", filled(ctx("b"), in("")), "b"},
		{"route before filter", filled(ctx("b"), in("a")), "a"},
		// Two names are a mistake in Envoy's configuration, and must not pick one.
		{"filter twice", filled(ctx("b", "c"), in("")), "b,c"},
	} {
		if got := tt.r.source(); got != tt.want {
			t.Errorf("%s: source %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAddReserved(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"x-sidehook-source":   true,
		"x-sidehook-event-id": true,
		"x-sidehook-anything": true,
		"x-sidehook-":         true,
		"x_sidehook_source":   true,
		"x-sidehook_source":   true,
		"x_sidehook-event_id": true,
		"X-Sidehook-Source":   true,
		"x-sidehook":          false,
		"x-sidehooks-source":  false,
		"y-x-sidehook-source": false,
		"xsidehook-source":    false,
	} {
		var r request
		r.reset()
		r.add(name, "forged")
		if got := len(r.reserved) == 1 && len(r.header) == 0; got != want {
			t.Errorf("%q is ours: %v, want %v", name, got, want)
		}
	}
}

func TestAddContentLength(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values []string
		want   int64
	}{
		{nil, lengthAbsent},
		{[]string{"0"}, 0},
		{[]string{"12"}, 12},
		{[]string{"12", "12"}, 12},
		{[]string{"12", "13"}, lengthUnreadable},
		{[]string{"x", "13"}, lengthUnreadable},
		{[]string{"-1"}, lengthUnreadable},
		{[]string{"12,12"}, lengthUnreadable},
		{[]string{"9223372036854775808"}, lengthUnreadable},
		{[]string{""}, lengthUnreadable},
	} {
		var r request
		r.reset()
		for _, v := range tt.values {
			r.add("content-length", v)
		}
		if r.contentLength != tt.want {
			t.Errorf("content-length %q: %d, want %d", tt.values, r.contentLength, tt.want)
		}
	}
}

// Envoy's mark says false or true; a word that we do not know is not a whole body.
func TestAddPartialBody(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values []string
		want   bool
	}{
		{[]string{"false"}, false},
		{[]string{"true"}, true},
		{[]string{""}, true},
		{[]string{"TRUE"}, true},
		{[]string{"false", "true"}, true},
		{[]string{"true", "false"}, true},
	} {
		var r request
		r.reset()
		for _, v := range tt.values {
			r.add("x-envoy-auth-partial-body", v)
		}
		if r.partial != tt.want || !r.buffered {
			t.Errorf("%q: partial %v, buffered %v; want %v, true", tt.values, r.partial, r.buffered, tt.want)
		}
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	base := func() *request { return filled(t.Context(), checkOf(true, "body")) }
	for name, tt := range map[string]struct {
		change func(*request)
		want   bool
	}{
		"itself":          {func(*request) {}, true},
		"other id":        {func(r *request) { r.id = "2" }, true}, // the id is what brought them together
		"method":          {func(r *request) { r.method = "PUT" }, false},
		"target":          {func(r *request) { r.target += "x" }, false},
		"host":            {func(r *request) { r.host = "other" }, false},
		"source":          {func(r *request) { r.routeSource = "other" }, false},
		"body":            {func(r *request) { r.body = []byte("bodY") }, false},
		"a header more":   {func(r *request) { r.add("a", "b") }, false},
		"header's value":  {func(r *request) { r.header[0].Value += "x" }, false},
		"order of fields": {func(r *request) { r.header[0], r.header[1] = r.header[1], r.header[0] }, true},
		"one field twice": {func(r *request) { r.header[0] = r.header[1] }, false},
	} {
		r := base()
		tt.change(r)
		if got := r.same(base()); got != tt.want {
			t.Errorf("%s: same = %v, want %v", name, got, tt.want)
		}
	}
}
