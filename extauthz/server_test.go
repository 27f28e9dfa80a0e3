package extauthz

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
)

// TestCheck walks the gate's answers, row by row, in both shapes of headers and in both modes: in STORE what would pass as a new
// event is kept, and nothing else is.
func TestCheck(t *testing.T) {
	t.Parallel()
	jsonID := testScheme
	jsonID.Signed = "{timestamp}.{body}"
	jsonID.ID = &signature.IDSpec{ValueSpec: signature.ValueSpec{JSON: "id"}}
	noID := testScheme
	noID.Signed, noID.ID = "{timestamp}.{body}", &signature.IDSpec{None: true}
	tables := make(map[Mode]*Sources)
	for _, mode := range []Mode{ModePass, ModeStore} {
		in := func(s *Source) { s.Mode = mode }
		tables[mode] = mustSources(t, []*Source{
			signedSource(t, "payments", in),
			signedSource(t, "strict", in, func(s *Source) { s.RefusalStatus = 403 }),
			sourceOf(t, "byjson", jsonID, in),
			sourceOf(t, "noid", noID, in, func(s *Source) { s.RequireID = false }),
			openSource("anybody", Match{PathPrefix: "/hooks/anybody"}),
			signedSource(t, "named", in, func(s *Source) { s.Matches = nil }),
			signedSource(t, "trial", in, func(s *Source) { s.Enforce = EnforceReport }),
		}, Match{PathPrefix: "/api"})
	}

	passed := func(source string) map[string]string {
		return map[string]string{"x-sidehook-source": source, "x-sidehook-event-id": "evt_1", "x-sidehook-event-type": "invoice.paid"}
	}
	refused := func(status int, code string) answer {
		return answer{status: status, body: `{"status":"` + code + `"}`, headers: map[string]string{"content-type": "application/json"}}
	}
	old, young := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, tt := range []struct {
		name    string
		h       hook
		rawOnly bool // the merged shape reads otherwise, by Envoy's doing
		want    answer
		source  string // metric label
		reason  string
	}{
		{name: "valid and new", want: answer{pass: true, headers: passed("payments")}, source: "payments", reason: "passed"},
		{name: "second secret", h: hook{secret: otherSecret}, want: answer{pass: true, headers: passed("payments")}, source: "payments", reason: "passed"},
		{name: "neither secret", h: hook{secret: "guess"}, want: refused(401, "bad_signature"), source: "payments", reason: "bad_signature"},
		{name: "refusal status of the provider", h: hook{secret: "guess", target: "/hooks/strict"}, want: refused(403, "bad_signature"), source: "strict", reason: "bad_signature"},
		{name: "no signature", h: hook{drop: []string{"webhook-signature", "webhook-id", "webhook-timestamp"}}, want: refused(401, "missing_signature"), source: "payments", reason: "missing_signature"},
		{name: "signature of another form", h: hook{drop: []string{"webhook-signature"}, headers: [][2]string{{"webhook-signature", "v1,%"}}}, want: refused(401, "malformed_signature"), source: "payments", reason: "malformed_signature"},
		{name: "other scheme's header", h: hook{drop: []string{"webhook-signature", "webhook-id", "webhook-timestamp"}, headers: [][2]string{{"x-hub-signature", "sha1=00"}}}, want: refused(401, "wrong_scheme"), source: "payments", reason: "wrong_scheme"},
		{name: "an hour old", h: hook{at: old}, want: refused(401, "too_old"), source: "payments", reason: "too_old"},
		{name: "an hour ahead", h: hook{at: young}, want: refused(401, "too_new"), source: "payments", reason: "too_new"},
		{name: "no time", h: hook{drop: []string{"webhook-timestamp"}, headers: [][2]string{{"webhook-timestamp", "now"}}}, want: refused(401, "bad_timestamp"), source: "payments", reason: "bad_timestamp"},
		// Three readings of one request: Node refuses an array, Envoy joins, Go takes the first.
		{name: "signature twice, bad then good", h: hook{headers: [][2]string{{"webhook-signature", "v1,AAAA"}}}, want: refused(401, "malformed_signature"), source: "payments", reason: "malformed_signature"},
		{name: "id twice", h: hook{headers: [][2]string{{"webhook-id", "evt_2"}}}, want: refused(401, "malformed_signature"), source: "payments", reason: "malformed_signature"},
		{name: "id where the body promises one", h: hook{target: "/hooks/byjson", id: "", change: signOver(`{"type":"a"}`)}, want: refused(400, "missing_id"), source: "byjson", reason: "missing_id"},
		{name: "id in the body", h: hook{target: "/hooks/byjson", change: signOver(`{"id":"evt_1","type":"invoice.paid"}`)}, want: answer{pass: true, headers: passed("byjson")}, source: "byjson", reason: "passed"},
		{name: "scheme without ids", h: hook{target: "/hooks/noid", change: signOver(`{"type":"a"}`)}, want: answer{pass: true, headers: map[string]string{"x-sidehook-source": "noid", "x-sidehook-event-type": "a"}}, source: "noid", reason: "unclaimed"},
		{name: "no source takes it", h: hook{target: "/other"}, want: refused(403, "unmatched"), source: "unknown", reason: "unmatched"},
		{name: "path in other letters", h: hook{target: "/Hooks/payments"}, want: refused(400, "ambiguous_path"), source: "payments", reason: "ambiguous_path"},
		{name: "ambiguous goes before open", h: hook{target: "/api/..%2fhooks/payments"}, want: refused(400, "ambiguous_path"), source: "payments", reason: "ambiguous_path"},
		{name: "a query is no path", h: hook{target: "/api?next=/../hooks/payments"}, want: answer{pass: true}, source: "unknown", reason: "open"},
		{name: "source by the route", h: hook{target: "/anything", source: "named"}, want: answer{pass: true, headers: passed("named")}, source: "named", reason: "passed"},
		{name: "route before match", h: hook{source: "named"}, want: answer{pass: true, headers: passed("named")}, source: "named", reason: "passed"},
		{name: "route before open", h: hook{target: "/api", source: "named", secret: "guess"}, want: refused(401, "bad_signature"), source: "named", reason: "bad_signature"},
		{name: "source that nobody configured", h: hook{source: "gone"}, want: refused(500, "unknown_source"), source: "unknown", reason: "unknown_source"},
		{name: "open", h: hook{target: "/api/v1", secret: "guess"}, want: answer{pass: true}, source: "unknown", reason: "open"},
		{name: "nothing to verify", h: hook{target: "/hooks/anybody", secret: "guess"}, want: answer{pass: true}, source: "anybody", reason: "unverified"},
		{name: "upgrade", h: hook{headers: [][2]string{{"upgrade", "websocket"}}}, want: refused(400, "upgrade_refused"), source: "payments", reason: "upgrade_refused"},
		{name: "connect", h: hook{change: func(r *authv3.AttributeContext_HttpRequest) { r.Method = "CONNECT" }}, want: refused(400, "upgrade_refused"), source: "payments", reason: "upgrade_refused"},
		{name: "as large as may be", h: hook{body: strings.Repeat("x", 1<<20), target: "/hooks/payments"}, want: answer{pass: true, headers: map[string]string{"x-sidehook-source": "payments", "x-sidehook-event-id": "evt_1"}}, source: "payments", reason: "passed"},
		{name: "too large", h: hook{body: strings.Repeat("x", 1<<20+1)}, want: refused(413, "too_large"), source: "payments", reason: "too_large"},
		{name: "too large, in chunks", h: hook{body: strings.Repeat("x", 1<<20+1), drop: []string{"content-length"}}, want: refused(413, "too_large"), source: "payments", reason: "too_large"},
		{name: "said to be too large", h: hook{drop: []string{"content-length"}, headers: [][2]string{{"content-length", "1048577"}}}, want: refused(413, "too_large"), source: "payments", reason: "too_large"},
		{name: "bytes that are no text", h: hook{body: "\xff\xfe{\"a\":1}\r\n"}, want: answer{pass: true, headers: map[string]string{"x-sidehook-source": "payments", "x-sidehook-event-id": "evt_1"}}, source: "payments", reason: "passed"},
		{name: "one byte of the body changed", h: hook{change: func(r *authv3.AttributeContext_HttpRequest) { r.RawBody[0] = '[' }}, want: refused(401, "bad_signature"), source: "payments", reason: "bad_signature"},
		{name: "in chunks", h: hook{drop: []string{"content-length"}}, want: answer{pass: true, headers: passed("payments")}, source: "payments", reason: "passed"},
		{name: "id of any bytes", h: hook{id: "a%b é"}, rawOnly: true, want: answer{pass: true, headers: map[string]string{
			"x-sidehook-source": "payments", "x-sidehook-event-id": "a%25b %C3%A9", "x-sidehook-event-type": "invoice.paid"}}, source: "payments", reason: "passed"},

		{name: "report: good", h: hook{target: "/hooks/trial"}, want: answer{pass: true, headers: passed("trial")}, source: "trial", reason: "reported"},
		{name: "report: bad", h: hook{target: "/hooks/trial", secret: "guess"}, want: answer{pass: true, headers: map[string]string{"x-sidehook-report": "bad_signature"}}, source: "trial", reason: "reported"},
		{name: "report: upgrade", h: hook{target: "/hooks/trial", headers: [][2]string{{"upgrade", "websocket"}}}, want: answer{pass: true, headers: map[string]string{"x-sidehook-report": "upgrade_refused"}}, source: "trial", reason: "reported"},
		{name: "report: lost body", h: hook{target: "/hooks/trial", change: noBody}, want: answer{pass: true, headers: map[string]string{"x-sidehook-report": "body_not_forwarded"}}, source: "trial", reason: "reported"},
		{name: "report: other path", h: hook{target: "//hooks/trial"}, want: answer{pass: true, headers: map[string]string{"x-sidehook-report": "ambiguous_path"}}, source: "trial", reason: "reported"},
	} {
		for _, mode := range []Mode{ModePass, ModeStore} {
			for _, raw := range []bool{true, false} {
				if !raw && tt.rawOnly {
					continue
				}
				t.Run(fmt.Sprintf("%s/raw=%v/STORE=%v", tt.name, raw, mode == ModeStore), func(t *testing.T) {
					t.Parallel()
					g := newGate(t, tables[mode])
					g.inbox.keeper = newFakeKeeper()
					r, err := g.Check(t.Context(), tt.h.check(raw))
					got := readAnswer(t, r, err)
					claimed := got.ref != ""
					got.ref = ""
					want, reason := tt.want, tt.reason // shared by all forms of the row
					rows := reason == "passed"
					if mode == ModeStore && (reason == "passed" || reason == "unclaimed") {
						want, reason, rows = refused(200, "stored"), "stored", true
					}
					if want.headers == nil {
						want.headers = map[string]string{}
					}
					if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
						t.Errorf("answer (-want +got):\n%s", diff)
					}
					if claimed != (reason == "passed") {
						t.Errorf("claimed: %v", claimed)
					}
					if page, err := g.inbox.List(t.Context(), Filter{}, "", 10); err != nil || len(page.Records) == 1 != rows {
						t.Errorf("the inbox holds %+v, %v", page.Records, err)
					}
					if n := g.counter("sidehook_extauthz_checks_total", "source", tt.source, "reason", reason); n != 1 {
						t.Errorf("counted %v times as %s of %s", n, reason, tt.source)
					}
				})
			}
		}
	}
}

// noBody is what Envoy sends where it does not forward bodies.
func noBody(r *authv3.AttributeContext_HttpRequest) { r.RawBody = nil }

// signOver replaces the body and signs "TIMESTAMP.BODY".
func signOver(body string) func(*authv3.AttributeContext_HttpRequest) {
	return func(r *authv3.AttributeContext_HttpRequest) {
		now := fmt.Sprint(time.Now().Unix())
		sig := "v1," + base64.StdEncoding.EncodeToString(macOf(testSecret, now+"."+body))
		r.RawBody, r.Size = []byte(body), int64(len(body))
		set := map[string]string{"webhook-timestamp": now, "webhook-signature": sig, "content-length": fmt.Sprint(len(body))}
		for _, f := range r.GetHeaderMap().GetHeaders() {
			if v, ok := set[f.Key]; ok {
				f.RawValue = []byte(v)
			}
		}
		for name := range r.Headers {
			if v, ok := set[name]; ok {
				r.Headers[name] = v
			}
		}
	}
}

// What the client sent under our names never reaches the app, whoever takes the request.
func TestCheckStripsForged(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{
		signedSource(t, "payments"),
		openSource("anybody", Match{PathPrefix: "/hooks/anybody"}),
		signedSource(t, "trial", func(s *Source) { s.Enforce = EnforceReport }),
	}, Match{PathPrefix: "/api"})
	g := newGate(t, table)
	forged := [][2]string{
		{"x-sidehook-source", "forged"}, {"x-sidehook-event-id", "forged"}, {"x-sidehook-report", "forged"}, {"x-sidehook-other", "forged"},
		{"x_sidehook_source", "forged"}, {"x-sidehook_event-id", "forged"}, {"x-sidehook-source", "twice"},
		{"x-github-encoded-secret", "forged"}, // by GitHub itself; see headerGitHubSecret
	}
	for _, tt := range []struct {
		name string
		h    hook
		kept []string // names that our own value replaces
	}{
		{"verified", hook{}, []string{"x-sidehook-source", "x-sidehook-event-id"}},
		{"open", hook{target: "/api"}, nil},
		{"unverified", hook{target: "/hooks/anybody"}, nil},
		{"reported, good", hook{target: "/hooks/trial"}, []string{"x-sidehook-source", "x-sidehook-event-id"}},
		{"reported, bad", hook{target: "/hooks/trial", secret: "guess"}, []string{"x-sidehook-report"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.h.headers, tt.h.id = forged, "evt_"+strings.ReplaceAll(tt.name, ", ", "_")
			a := g.ask(tt.h)
			if !a.pass {
				t.Fatalf("refused: %+v", a)
			}
			for _, f := range forged {
				value, ours := a.headers[f[0]]
				if removed := slices.Contains(a.removed, f[0]); removed == ours || value == "forged" || ours != slices.Contains(tt.kept, f[0]) {
					t.Errorf("%s: removed %v, set to %q", f[0], removed, value)
				}
			}
		})
	}
}

func TestDuplicate(t *testing.T) {
	t.Parallel()
	twiml := Reply{Status: 200, ContentType: "text/xml", Body: "<Response/>"}
	table := mustSources(t, []*Source{
		signedSource(t, "payments"),
		signedSource(t, "calls", func(s *Source) { s.Reply = twiml }),
		signedSource(t, "silent", func(s *Source) { s.Reply = Reply{Status: http.StatusNoContent} }),
		signedSource(t, "renamed", func(s *Source) { s.Was = []string{"payments-old"} }),
	})
	for source, want := range map[string]answer{
		"payments": {status: 200, body: `{"status":"duplicate"}`, headers: map[string]string{"content-type": "application/json"}},
		"calls":    {status: 200, body: "<Response/>", headers: map[string]string{"content-type": "text/xml"}},
		"silent":   {status: 204, headers: map[string]string{"content-type": "text/plain"}},
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, table)
			h := hook{target: "/hooks/" + source}
			g.end(g.ask(h), EndDone)
			// A provider's retry is signed anew.
			h.at = time.Now().Add(2 * time.Second)
			if diff := cmp.Diff(want, g.ask(h), cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("duplicate (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("released", func(t *testing.T) {
		t.Parallel()
		g := newGate(t, table)
		g.end(g.ask(hook{}), EndReleased)
		if a := g.ask(hook{}); !a.pass {
			t.Errorf("after a refusal by the app: %+v", a)
		}
	})
	t.Run("other source, same id", func(t *testing.T) {
		t.Parallel()
		g := newGate(t, table)
		g.end(g.ask(hook{}), EndDone)
		if a := g.ask(hook{target: "/hooks/calls"}); !a.pass {
			t.Errorf("an id of another source: %+v", a)
		}
	})
	t.Run("earlier name", func(t *testing.T) {
		t.Parallel()
		before := mustSources(t, []*Source{signedSource(t, "payments-old")})
		g := newGate(t, before)
		g.end(g.ask(hook{target: "/hooks/payments-old"}), EndDone)
		g.Swap(table)
		if a := g.ask(hook{target: "/hooks/renamed"}); a.pass || a.status != 200 {
			t.Errorf("a source that was renamed: %+v", a)
		}
	})
	t.Run("long id", func(t *testing.T) {
		t.Parallel()
		g := newGate(t, table)
		h := hook{id: strings.Repeat("i", 3000)}
		first := g.ask(h)
		if id := first.headers["x-sidehook-event-id"]; !strings.HasPrefix(id, "sha256:") || len(id) != 71 {
			t.Errorf("x-sidehook-event-id: %q", id)
		}
		g.end(first, EndDone)
		if a := g.ask(h); a.pass || a.status != 200 {
			t.Errorf("second: %+v", a)
		}
		h.id += "j"
		if a := g.ask(h); !a.pass {
			t.Errorf("an id that differs after 3000 bytes: %+v", a)
		}
	})
}

// A replay under another id, where the signature does not cover the id: what was signed tells.
func TestDuplicateContent(t *testing.T) {
	t.Parallel()
	unsigned := testScheme
	unsigned.Signed, unsigned.Type = "{timestamp}.{body}", &signature.ValueSpec{Header: "x-event"}
	table := mustSources(t, []*Source{sourceOf(t, "payments", unsigned, func(s *Source) { s.ContentWindow = time.Hour })})
	g := newGate(t, table)
	body := `{"type":"a","n":1}`
	g.end(g.ask(hook{id: "evt_1", change: signOver(body)}), EndDone)
	if a := g.ask(hook{id: "evt_2", change: signOver(body)}); a.pass || a.status != 200 {
		t.Errorf("the same content under another id: %+v", a)
	}
	if a := g.ask(hook{id: "evt_2", change: signOver(`{"type":"a","n":2}`)}); !a.pass {
		t.Errorf("other content: %+v", a)
	}
	if a := g.ask(hook{id: "evt_3", headers: [][2]string{{"x-event", "other"}}, change: signOver(body)}); !a.pass {
		t.Errorf("the same content of another type: %+v", a)
	}
}

// 50 at once with one id: the app is called once.
func TestCheckConcurrent(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}))
	var wg sync.WaitGroup
	answers := make([]answer, 50)
	for i := range answers {
		wg.Go(func() {
			r, err := g.Check(t.Context(), hook{}.check(i%2 == 0))
			answers[i] = readAnswer(t, r, err)
		})
	}
	wg.Wait()
	passes := 0
	for _, a := range answers {
		switch {
		case a.pass:
			passes++
		case a.status != 503 || a.body != `{"status":"in_flight"}` || a.headers["retry-after"] == "":
			t.Errorf("while the first is with the app: %+v", a)
		}
	}
	if passes != 1 || len(g.passed) != 1 || g.passed[0] != "payments" {
		t.Errorf("%d passes, told of %q", passes, g.passed)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{
		signedSource(t, "payments"), openSource("anybody", Match{PathPrefix: "/hooks/anybody"}),
		signedSource(t, "trial", func(s *Source) { s.Enforce = EnforceReport }),
	}, Match{PathPrefix: "/api"}))
	names := []string{"payments", "anybody", "trial"}
	for _, name := range names {
		g.Pause(name)
		g.Pause(name)
		a := g.ask(hook{target: "/hooks/" + name})
		if a.pass || a.status != 503 || a.body != `{"status":"unavailable"}` || a.headers["retry-after"] != "60" || !g.Paused(name) {
			t.Errorf("%s paused: %+v", name, a)
		}
	}
	// What would be refused anyway is refused, and other routes do not mind.
	if a := g.ask(hook{secret: "guess"}); a.status != 401 {
		t.Errorf("forged, while paused: %+v", a)
	}
	if a := g.ask(hook{target: "/api"}); !a.pass {
		t.Errorf("open, while paused: %+v", a)
	}
	// A reload is no resume.
	g.Swap(g.table.Load().sources)
	if n := g.counter("sidehook_extauthz_paused_sources"); n != 3 || !g.Paused("payments") {
		t.Errorf("%v sources are paused after a reload", n)
	}
	// A source that is gone is nobody's to resume; when it comes back it is still paused.
	all := g.table.Load().sources
	g.Swap(mustSources(t, []*Source{signedSource(t, "payments")}))
	if n := g.counter("sidehook_extauthz_paused_sources"); n != 1 {
		t.Errorf("%v sources are paused where one is left", n)
	}
	g.Swap(all)
	if n := g.counter("sidehook_extauthz_paused_sources"); n != 3 || !g.Paused("trial") {
		t.Errorf("%v sources are paused when all are back", n)
	}
	for _, name := range names {
		g.Resume(name)
		g.Resume(name)
		if a := g.ask(hook{target: "/hooks/" + name}); !a.pass || g.Paused(name) {
			t.Errorf("%s resumed: %+v", name, a)
		}
	}
	if n := len(g.Configured()); n != 3 {
		t.Errorf("%d sources are configured", n)
	}
}

// A table that is swapped in holds for the next Check: rotation without a refusal while both secrets are listed.
func TestSwapUnderLoad(t *testing.T) {
	t.Parallel()
	only := func(n int) *Sources {
		return mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) { s.Keys = s.Keys[n : n+1] })})
	}
	both := mustSources(t, []*Source{signedSource(t, "payments")})
	g := newGate(t, both)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				g.Swap(both)
			}
		}
	})
	for worker := range 4 {
		for i := range 50 {
			secret := []string{testSecret, otherSecret}[i%2]
			if a := g.ask(hook{id: fmt.Sprintf("evt_%d_%d", worker, i), secret: secret}); !a.pass {
				t.Errorf("during a reload: %+v", a)
			}
		}
	}
	close(stop)
	wg.Wait()
	g.Swap(only(1))
	if a := g.ask(hook{id: "old"}); a.status != 401 {
		t.Errorf("a secret that was taken out: %+v", a)
	}
	if a := g.ask(hook{id: "new", secret: otherSecret}); !a.pass {
		t.Errorf("the secret that stayed: %+v", a)
	}
}
