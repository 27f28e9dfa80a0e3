package extauthz

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSourceWants(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		types     []string
		eventType string
		want      bool
	}{
		{nil, "invoice.paid", true},
		{nil, "", true},
		{[]string{}, "invoice.paid", true},
		{[]string{"push", "orders/*"}, "push", true},
		{[]string{"push", "orders/*"}, "orders/create", true},
		{[]string{"push", "orders/*"}, "pull_request", false},
		{[]string{"push", "orders/*"}, "", true},
		{[]string{"*"}, "", true},
	} {
		if got := (&Source{Types: tt.types}).wants(tt.eventType); got != tt.want {
			t.Errorf("types %q: wants(%q) = %t, want %t", tt.types, tt.eventType, got, tt.want)
		}
	}
}

// What types leave out is verified, answered 200 ignored and kept; the reply is the source's own where it has one. Where
// the types include it later, the next delivery passes (cases/receiving: skipped by a wrong setting is not processed).
func TestIgnoredTypes(t *testing.T) {
	t.Parallel()
	only := func(types ...string) func(*Source) { return func(s *Source) { s.Types = types } }
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments", only("charge.*"))}))
	ignored := hook{id: "evt_1", secret: testSecret, target: "/hooks/payments", body: `{"type":"invoice.paid"}`}
	for range 2 {
		if a := g.ask(ignored); a.pass || a.status != 200 || a.body != `{"status":"ignored"}` {
			t.Errorf("left out: %+v, want 200 ignored", a)
		}
	}
	forged := ignored
	forged.secret = "somebody else's secret, long enough"
	if a := g.ask(forged); a.status != 401 {
		t.Errorf("left out and forged: %+v, want 401", a)
	}
	if n := g.counter("sidehook_extauthz_checks_total", "source", "payments", "reason", "ignored"); n != 2 {
		t.Errorf("counted %v times as ignored, want 2", n)
	}
	r, err := g.inbox.Get(Key{Source: "payments", ID: "evt_1"})
	if err != nil || r.State != StateIgnored || r.Type != "invoice.paid" {
		t.Errorf("kept as %+v, %v; want IGNORED invoice.paid", r, err)
	}
	wanted := hook{id: "evt_2", secret: testSecret, target: "/hooks/payments", body: `{"type":"charge.refunded"}`}
	if a := g.ask(wanted); !a.pass {
		t.Errorf("of a type that is let through: %+v, want a pass", a)
	}

	g.Swap(mustSources(t, []*Source{signedSource(t, "payments", only("charge.*", "invoice.paid"))}))
	a := g.ask(ignored)
	if !a.pass {
		t.Fatalf("let through since: %+v, want a pass", a)
	}
	g.end(a, EndDone)
	if a := g.ask(ignored); a.body != saysDuplicate {
		t.Errorf("and again: %+v, want 200 duplicate", a)
	}

	g.Swap(mustSources(t, []*Source{signedSource(t, "payments", only("charge.*"), func(s *Source) {
		s.Reply = Reply{Status: 202, ContentType: "text/xml", Body: "<Response/>"}
	})}))
	ignored.id = "evt_3"
	if a := g.ask(ignored); a.status != 202 || a.body != "<Response/>" {
		t.Errorf("left out, with a reply: %+v, want that", a)
	}
}

// A release lets one delivery of an ignored id through, whatever the types say.
func TestIgnoredIsReleased(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) { s.Types = []string{"charge.*"} })}))
	ignored := hook{id: "evt_1", secret: testSecret, target: "/hooks/payments"} // an invoice.paid
	key := Key{Source: "payments", ID: "evt_1"}
	says := func(step, want string) answer {
		t.Helper()
		a := g.ask(ignored)
		if got := a.body; got != want || a.pass != (want == "") {
			t.Fatalf("%s: %+v, want %q", step, a, want)
		}
		return a
	}
	const saysIgnored = `{"status":"ignored"}`
	says("new", saysIgnored)
	if err := g.inbox.Release(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if r, err := g.inbox.Get(key); err != nil || r.State != StateReleased || r.OpenTokens != 0 {
		t.Errorf("released: %+v, %v; want it RELEASED", r, err)
	}
	a := says("released", "")
	says("with the app", saysInFlight)
	g.end(a, EndReleased)
	says("refused by the app", saysIgnored) // once is once
	if err := g.inbox.Release(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	g.end(says("released again", ""), EndDone)
	says("done", saysDuplicate)
}

func TestIgnoredIsReleasedAcrossARestart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	b := openBolt(t, folder, 0)
	ignoring := boltRequest("a")
	ignoring.Ignore = true
	b.mustClaim(t, ignoring, Ignored)
	if err := b.Release(t.Context(), ignoring.Key); err != nil {
		t.Fatal(err)
	}
	if err := b.end(); err != nil { // checks the store, too
		t.Fatal(err)
	}
	b = openBolt(t, folder, 0)
	b.mustClaim(t, ignoring, Claimed)
	if err := b.end(); err != nil {
		t.Fatal(err)
	}
}

// The time of an ignored delivery is not that of a claim, nor is a lease that ended open for ever.
func TestIgnoredTimes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBolt(t, folder, 0)
		ignoring := boltRequest("a")
		ignoring.Ignore = true
		b.mustClaim(t, ignoring, Ignored)
		time.Sleep(20 * 24 * time.Hour)
		b.mustClaim(t, boltRequest("a"), Claimed)
		claimed := time.Now()
		if r, err := b.Get(ignoring.Key); err != nil || r.First.Before(claimed.Add(-time.Second)) {
			t.Errorf("claimed after 20 days as ignored: %+v, %v; want First now, %v", r, err, claimed)
		}
		time.Sleep(2 * time.Hour)
		b.mustClaim(t, ignoring, Ignored)
		r, err := b.Get(ignoring.Key)
		if err != nil || r.State != StateReleased || r.Last.Before(time.Now().Add(-time.Second)) || r.OpenTokens != 1 {
			t.Errorf("ignored after its lease: %+v, %v; want RELEASED, seen now, with its token open", r, err)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// What is not known to be of a type that is left out reaches the app: here the type lies deeper than JSON is read.
func TestUnreadTypePasses(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) { s.Types = []string{"charge.*"} })}))
	for i, body := range []string{
		`{"data":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `,"type":"charge.paid"}`,
		`[{"type":"charge.paid"}]`, `{}`, `plain`,
	} {
		if a := g.ask(hook{id: fmt.Sprint("evt_", i), secret: testSecret, target: "/hooks/payments", body: body}); !a.pass {
			t.Errorf("body %.40s: %+v, want a pass", body, a)
		}
	}
}

// REPORT says what ENFORCE would do.
func TestTypesReported(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) {
		s.Types, s.Enforce = []string{"charge.*"}, EnforceReport
	})}))
	if a := g.ask(hook{secret: testSecret, target: "/hooks/payments"}); !a.pass {
		t.Errorf("left out, reported: %+v, want a pass", a)
	}
	if n := g.counter("sidehook_extauthz_reports_total", "source", "payments", "reason", "ignored"); n != 1 {
		t.Errorf("reported %v times as ignored, want 1", n)
	}
}

// An ignored id is forgotten like one that is done: after its retention, not before.
func TestIgnoredIsPurged(t *testing.T) {
	t.Parallel()
	b := openInbox(t, t.TempDir())
	r := boltRequest("a")
	p := &Purger{inbox: b}
	old := row{State: StateIgnored, First: 1, Last: 1}
	now := time.Now().UnixMilli()
	p.inbox.retention = func(string) (time.Duration, bool) { return time.Hour, true }
	if v, err := p.judgeDone(nil, appendKey(nil, r.Key), old.appendTo(nil), now); err != nil || v != toDelete {
		t.Errorf("an old ignored row: verdict %d, %v, want it deleted", v, err)
	}
	old.Last = now
	if v, err := p.judgeDone(nil, appendKey(nil, r.Key), old.appendTo(nil), now); err != nil || v != keep {
		t.Errorf("a new ignored row: verdict %d, %v, want it kept", v, err)
	}
}
