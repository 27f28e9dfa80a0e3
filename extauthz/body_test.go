package extauthz

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/sidehook/sidehook/internal/signature"
)

// Every way in which a mesh loses a body is told apart from a forgery and from the others, in both shapes.
func TestBodyNotForwarded(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{signedSource(t, "payments")})
	chunked := []string{"content-length"}
	unbuffered := []string{"content-length", "x-envoy-auth-partial-body"}
	for _, tt := range []struct {
		name    string
		h       hook
		setting string // empty: it is no such case
		status  int    // of what is none; 0: passes
	}{
		{name: "no body at all", h: hook{change: noBody}, setting: "with_request_body"},
		{name: "no body, and only Envoy's count tells", h: hook{drop: chunked, change: noBody}, setting: "with_request_body"},
		{name: "no body of a GET that announced one", h: hook{change: func(r *authv3.AttributeContext_HttpRequest) { noBody(r); r.Method = "GET" }}, setting: "with_request_body"},
		// Istio's default with websocket upgrades on: the Check is made at the headers.
		{name: "announced, and Envoy had received nothing", h: hook{change: func(r *authv3.AttributeContext_HttpRequest) { noBody(r); r.Size = 0 }}, setting: "with_request_body"},
		{name: "in chunks, and Envoy had received nothing", h: hook{drop: unbuffered, change: func(r *authv3.AttributeContext_HttpRequest) { noBody(r); r.Size = 0 }}, setting: "with_request_body"},
		{name: "text", h: hook{change: func(r *authv3.AttributeContext_HttpRequest) { r.Body, r.RawBody = string(r.RawBody), nil }}, setting: "pack_as_bytes"},
		// Envoy replaces a byte that is no UTF-8 by an exclamation mark: the length stays.
		{name: "text, cleaned", h: hook{body: "a\xffb", change: func(r *authv3.AttributeContext_HttpRequest) { r.Body, r.RawBody = "a!b", nil }}, setting: "pack_as_bytes"},
		{name: "partial", h: hook{drop: []string{"x-envoy-auth-partial-body"}, headers: [][2]string{{"x-envoy-auth-partial-body", "true"}}}, setting: "allow_partial_message"},
		{name: "partial, in chunks", h: hook{drop: unbuffered, headers: [][2]string{{"x-envoy-auth-partial-body", "true"}}, change: cut}, setting: "allow_partial_message"},
		{name: "shorter than said", h: hook{change: cut}, setting: "filter_order"},
		{name: "longer than said", h: hook{change: func(r *authv3.AttributeContext_HttpRequest) { r.RawBody = append(r.RawBody, ' ') }}, setting: "filter_order"},
		{name: "length that is none", h: hook{drop: chunked, headers: [][2]string{{"content-length", "many"}}}, setting: "filter_order"},
		// A decompressor in front takes content-length and content-encoding away; Envoy's count is of what came.
		{name: "unzipped before us", h: hook{drop: chunked, change: func(r *authv3.AttributeContext_HttpRequest) { r.Size = 31; r.RawBody = []byte("plain") }}, setting: "filter_order"},

		{name: "whole", h: hook{}},
		{name: "in chunks", h: hook{drop: chunked}},
		{name: "in chunks, size unknown", h: hook{drop: chunked, change: func(r *authv3.AttributeContext_HttpRequest) { r.Size = -1 }}},
		// Whoever unzips and signs over the plain body gets through: the bytes are what was signed.
		{name: "other count, signature good", h: hook{drop: chunked, change: func(r *authv3.AttributeContext_HttpRequest) { r.Size = 7 }}},
		{name: "forged, whole", h: hook{secret: "guess"}, status: 401},
		{name: "forged, in chunks", h: hook{secret: "guess", drop: chunked}, status: 401},
		{name: "forged, empty and said to be", h: hook{change: func(r *authv3.AttributeContext_HttpRequest) { noBody(r); r.Size = 0; setLength(r, "0") }}, status: 401},
		{name: "forged, empty GET", h: hook{drop: unbuffered, change: func(r *authv3.AttributeContext_HttpRequest) { noBody(r); r.Size = 0; r.Method = "GET" }}, status: 401},
		{name: "forged, empty, yet buffered", h: hook{drop: chunked, change: func(r *authv3.AttributeContext_HttpRequest) { noBody(r); r.Size = 0 }}, status: 401},
	} {
		for _, raw := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/raw=%v", tt.name, raw), func(t *testing.T) {
				t.Parallel()
				g := newGate(t, table)
				r, err := g.Check(t.Context(), tt.h.check(raw))
				a := readAnswer(t, r, err)
				if tt.setting == "" {
					if a.pass != (tt.status == 0) || a.status != tt.status {
						t.Errorf("answer %+v, want status %d", a, tt.status)
					}
					return
				}
				if a.pass || a.status != 500 || a.body != `{"status":"body_not_forwarded"}` {
					t.Errorf("answer %+v", a)
				}
				if n := g.counter("sidehook_extauthz_body_not_forwarded_total", "source", "payments", "setting", tt.setting); n != 1 {
					t.Errorf("counted %v times under %s", n, tt.setting)
				}
				if log := g.log.String(); !strings.Contains(log, `"level":"ERROR"`) || !strings.Contains(log, `"setting":"`+tt.setting+`"`) {
					t.Errorf("log does not name %s: %s", tt.setting, log)
				}
				if page, err := g.inbox.List(t.Context(), Filter{}, "", 10); err != nil || len(page.Records) != 0 {
					t.Errorf("inbox holds %+v, %v", page, err)
				}
			})
		}
	}
}

// cut is what is left of a body that was too long for Envoy's buffer.
func cut(r *authv3.AttributeContext_HttpRequest) { r.RawBody = r.RawBody[:3] }

// setLength announces another length.
func setLength(r *authv3.AttributeContext_HttpRequest, n string) {
	for _, f := range r.GetHeaderMap().GetHeaders() {
		if f.Key == "content-length" {
			f.RawValue = []byte(n)
		}
	}
	if _, ok := r.Headers["content-length"]; ok {
		r.Headers["content-length"] = n
	}
}

// A source whose bodies arrive has with_request_body: an empty request is then what a forger sent, and no alarm.
func TestBodyForwardedOnce(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}))
	empty := hook{drop: []string{"content-length", "x-envoy-auth-partial-body"}, change: func(r *authv3.AttributeContext_HttpRequest) { noBody(r); r.Size = 0 }}
	if a := g.ask(empty); a.status != 500 {
		t.Errorf("before any body was seen: %+v", a)
	}
	if a := g.ask(hook{}); !a.pass {
		t.Fatalf("a good one: %+v", a)
	}
	g.Swap(g.table.Load().sources)
	if a := g.ask(empty); a.status != 401 {
		t.Errorf("after a body was seen: %+v", a)
	}
}

// The error line comes at most once a minute for a source and setting, and says how many it stands for.
func TestBodyNotForwardedLogsSparsely(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGateIn(t, folder, mustSources(t, []*Source{signedSource(t, "payments"), signedSource(t, "other")}))
		lines := func() int { return strings.Count(g.log.String(), `"msg":"body not forwarded`) }
		for range 10 {
			g.ask(hook{change: noBody})
		}
		if n := lines(); n != 1 {
			t.Errorf("%d lines for one setting", n)
		}
		g.ask(hook{change: cut})
		g.ask(hook{target: "/hooks/other", change: noBody})
		if n := lines(); n != 3 {
			t.Errorf("%d lines, want one for each of setting and source", n)
		}
		time.Sleep(time.Minute)
		g.ask(hook{change: noBody})
		if n := lines(); n != 4 || !strings.Contains(g.log.String(), `"suppressed":9`) {
			t.Errorf("%d lines after a minute: %s", n, g.log.String())
		}
	})
}

// The 25 MB of GitHub, and a body beyond what all may hold together.
func TestBodiesInFlight(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) { s.MaxBodyBytes = 25 << 20 })}, Match{PathPrefix: "/api"})
	large := hook{body: `{"type":"push","x":"` + strings.Repeat("x", 24_900_000) + `"}`}
	g := newGate(t, table)
	if a := g.ask(large); !a.pass {
		t.Errorf("24.9 MB: %+v", a)
	}
	if n := g.counter("sidehook_extauthz_bodies_in_flight_bytes"); n != 0 {
		t.Errorf("%v bytes are in flight when all is answered", n)
	}
	g = newGate(t, table, func(c *Config) { c.MaxBodiesInFlight = 1 << 20 })
	a := g.ask(large)
	if a.pass || a.status != 503 || a.body != `{"status":"busy"}` || a.headers["retry-after"] != "1" {
		t.Errorf("beyond the limit: %+v", a)
	}
	if n := g.counter("sidehook_extauthz_checks_total", "source", "payments", "reason", "busy"); n != 1 {
		t.Errorf("counted %v times", n)
	}
	if a := g.ask(hook{}); !a.pass {
		t.Errorf("a small one afterwards: %+v", a)
	}
}

// A header list without any header that matters, and messages with parts left out, are refused and break nothing.
func TestCheckBareMessages(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}))
	for name, in := range map[string]*authv3.CheckRequest{
		"nil":           nil,
		"empty":         {},
		"no request":    {Attributes: &authv3.AttributeContext{}},
		"no http":       {Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{}}},
		"empty headers": {Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{HeaderMap: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{nil, {}}}}}}},
		"source only":   {Attributes: &authv3.AttributeContext{ContextExtensions: map[string]string{"source": "payments"}}},
	} {
		r, err := g.Check(t.Context(), in)
		if a := readAnswer(t, r, err); a.pass || a.status < 400 {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// gzipped is what a body of n zero bytes is zipped to.
func gzipped(t testing.TB, n int) string {
	t.Helper()
	return gzipOf(t, make([]byte, n))
}

func gzipOf(t testing.TB, plain []byte) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Class BODY, gzip: what was signed says the source's scheme; max_body holds for both forms, and what comes out of a
// zipped body counts among the bodies in flight, so that a thousand small ones are no large one.
func TestGzip(t *testing.T) {
	t.Parallel()
	decoded := testScheme
	decoded.Body = signature.Decoded
	little := func(s *Source) { s.MaxBodyBytes = 4096 }
	table := mustSources(t, []*Source{sourceOf(t, "wire", testScheme, little), sourceOf(t, "decoded", decoded, little)})
	send := func(source, body, plain string) hook {
		signed := hook{id: "evt_1", at: time.Now(), body: plain, secret: testSecret}
		return hook{target: "/hooks/" + source, id: signed.id, at: signed.at, body: body, drop: []string{"webhook-signature"},
			headers: [][2]string{{"webhook-signature", signed.sign()}, {"content-encoding", "gzip"}}}
	}
	full, over := string(make([]byte, 4096)), string(make([]byte, 4097))
	bomb := gzipped(t, 64<<20)
	for _, tt := range []struct {
		name   string
		h      hook
		room   int64 // in flight; 0: enough
		status int   // 0: passes
	}{
		{"wire, signed as it is", send("wire", gzipped(t, 100), gzipped(t, 100)), 0, 0},
		{"wire, signed before", send("wire", gzipped(t, 4096), full), 0, 401},
		{"wire, and nothing is unzipped", send("wire", gzipped(t, 4096), gzipped(t, 4096)), 4096, 0},
		{"decoded, signed before", send("decoded", gzipped(t, 4096), full), 0, 0},
		{"decoded, signed as it is", send("decoded", gzipped(t, 100), gzipped(t, 100)), 0, 401},
		{"decoded, one byte too many comes out", send("decoded", gzipped(t, 4097), over), 0, 413},
		{"decoded, a bomb", send("decoded", bomb[:4096], over), 0, 413},
		{"decoded, no room for what comes out", send("decoded", gzipped(t, 100), string(make([]byte, 100))), 4096, 503},
		{"decoded, room for just that", send("decoded", gzipped(t, 4096), full), 4096 + int64(len(gzipped(t, 4096))), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, table, func(c *Config) { c.MaxBodiesInFlight = tt.room })
			if a := g.ask(tt.h); a.status != tt.status {
				t.Errorf("answer %+v, want %d", a, tt.status)
			}
			if n := g.bodies.used.Load(); n != 0 {
				t.Errorf("%d bytes are in flight when all is answered", n)
			}
		})
	}
}
