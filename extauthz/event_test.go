package extauthz

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
)

// at is a path that can be read.
func at(t testing.TB, path string) signature.Path {
	t.Helper()
	p, err := signature.ParsePath(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	saysStale   = `{"status":"stale"}`
	saysChange  = `{"status":"duplicate_change"}`
	saysIgnored = `{"status":"ignored"}`
)

// ordered is a source that compares versions as Stripe tells them.
func ordered(t testing.TB) func(*Source) {
	return func(s *Source) {
		s.Version = VersionRule{Object: at(t, "data.object.id"), At: at(t, "created"), Time: true}
	}
}

// TestStale is what laravel/cashier-stripe#1201 and others met: `updated`, made in second 66, comes before `created`, made in 65,
// which must not overwrite it. That the types differ changes nothing (a late update brings back what was deleted).
func TestStale(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments", ordered(t))}))
	event := func(id, eventType string, created any) hook {
		return hook{id: id, secret: testSecret, target: "/hooks/payments",
			body: fmt.Sprintf(`{"type":%q,"created":%v,"data":{"object":{"id":"sub_1"}}}`, eventType, created)}
	}
	updated := g.ask(event("evt_66", "customer.subscription.updated", 1614265366))
	if a := g.ask(event("evt_65", "customer.subscription.created", 1614265365)); a.body != saysInFlight || a.headers["retry-after"] != "60" {
		t.Errorf("older than what is with the app: %+v, want 503 for the lease", a)
	}
	g.end(updated, EndDone)
	for range 2 {
		if a := g.ask(event("evt_65", "customer.subscription.created", 1614265365)); a.pass || a.status != 200 || a.body != saysStale {
			t.Errorf("older: %+v, want 200 stale", a)
		}
	}
	r, err := g.inbox.Get(Key{Source: "payments", ID: "evt_65"})
	if err != nil || r.State != StateStale || r.Type != "customer.subscription.created" {
		t.Errorf("kept as %+v, %v; want STALE", r, err)
	}
	if n := g.counter("sidehook_extauthz_checks_total", "source", "payments", "reason", "stale"); n != 2 {
		t.Errorf("counted %v times as stale, want 2", n)
	}
	equal := g.ask(event("evt_66b", "invoice.paid", 1614265366))
	if !equal.pass {
		t.Fatalf("equal: %+v, want a pass", equal)
	}
	g.end(equal, EndDone)

	deleted := g.ask(event("evt_70", "customer.subscription.deleted", 1614265370))
	g.end(deleted, EndDone)
	if a := g.ask(event("evt_69", "customer.subscription.updated", 1614265369)); a.body != saysStale {
		t.Errorf("an update behind the deletion: %+v, want stale", a)
	}
	if err := g.inbox.Release(t.Context(), Key{Source: "payments", ID: "evt_69"}); err != nil {
		t.Fatal(err)
	}
	released := g.ask(event("evt_69", "customer.subscription.updated", 1614265369))
	if !released.pass {
		t.Fatalf("released by a person: %+v, want a pass", released)
	}
	g.end(released, EndDone)
	if a := g.ask(event("evt_68", "customer.subscription.updated", 1614265368)); a.body != saysStale {
		t.Errorf("behind it: %+v, want stale", a)
	}

	// What tells no version passes, and is told at debug.
	for i, created := range []string{`null`, `"soon"`, `{}`} {
		if a := g.ask(event(fmt.Sprintf("evt_x%d", i), "customer.subscription.updated", created)); !a.pass {
			t.Errorf("version %s: %+v, want a pass", created, a)
		}
	}
	if n := strings.Count(g.log.String(), `"unversioned":true`); n != 3 {
		t.Errorf("%d lines tell of events without a version, want 3", n)
	}
	forged := event("evt_f", "customer.subscription.updated", 2614265399)
	forged.secret = "somebody else's secret, long enough"
	g.ask(forged)
	if a := g.ask(event("evt_71", "customer.subscription.updated", 1614265371)); !a.pass {
		t.Errorf("a forged version moved the mark: %+v", a)
	}
}

func TestDuplicateChange(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) {
		s.Change = ChangeRule{Object: at(t, "data.object.id"), Types: []string{"invoice.paid", "invoice.payment_succeeded"}, Window: time.Hour}
	})}))
	event := func(id, eventType, object string) hook {
		return hook{id: id, secret: testSecret, target: "/hooks/payments",
			body: fmt.Sprintf(`{"type":%q,"data":{"object":{"id":%q}}}`, eventType, object)}
	}
	first := g.ask(event("evt_1", "invoice.paid", "in_1"))
	if a := g.ask(event("evt_2", "invoice.payment_succeeded", "in_1")); a.body != saysInFlight {
		t.Errorf("while the first is with the app: %+v, want 503", a)
	}
	g.end(first, EndReleased)
	second := g.ask(event("evt_2", "invoice.payment_succeeded", "in_1"))
	if !second.pass {
		t.Fatalf("the first was released: %+v, want a pass", second)
	}
	g.end(second, EndDone)
	if a := g.ask(event("evt_1", "invoice.paid", "in_1")); a.status != 200 || a.body != saysChange {
		t.Errorf("the change is known: %+v, want 200 duplicate_change", a)
	}
	if r, err := g.inbox.Get(Key{Source: "payments", ID: "evt_1"}); err != nil || r.State != StateDuplicateChange {
		t.Errorf("kept as %+v, %v; want DUPLICATE_CHANGE", r, err)
	}
	for name, h := range map[string]hook{
		"another object": event("evt_3", "invoice.paid", "in_2"),
		"another type":   event("evt_4", "invoice.voided", "in_1"),
		"no object":      event("evt_5", "invoice.paid", ""),
	} {
		if a := g.ask(h); !a.pass {
			t.Errorf("%s: %+v, want a pass", name, a)
		}
	}
}

// TestLiveOnly: endpoints that are live get events of the test mode too (dj-stripe#445 and others).
func TestLiveOnly(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) {
		s.Live, s.Types = LiveRule{JSON: at(t, "livemode"), Value: "true"}, []string{"invoice.*"}
	})}))
	for _, tt := range []struct {
		name, body string
		pass       bool
		reason     IgnoredFor
	}{
		{"live", `{"type":"invoice.paid","livemode":true}`, true, 0},
		{"test", `{"type":"invoice.paid","livemode":false}`, false, IgnoredForMode},
		{"test and of another type", `{"type":"charge.paid","livemode":false}`, false, IgnoredForMode},
		{"live and of another type", `{"type":"charge.paid","livemode":true}`, false, IgnoredForType},
		{"says nothing", `{"type":"invoice.paid"}`, true, 0},
	} {
		id := "evt " + tt.name
		a := g.ask(hook{id: id, secret: testSecret, target: "/hooks/payments", body: tt.body})
		if a.pass != tt.pass || !tt.pass && (a.status != 200 || a.body != saysIgnored) {
			t.Errorf("%s: %+v", tt.name, a)
			continue
		}
		r, err := g.inbox.Get(Key{Source: "payments", ID: id})
		if err != nil || !tt.pass && (r.State != StateIgnored || r.IgnoredFor != tt.reason) {
			t.Errorf("%s: kept as %+v, %v", tt.name, r, err)
		}
	}
}

// batches is a source whose requests carry events like GoCardless's.
func batches(t testing.TB) func(*Source) {
	return func(s *Source) {
		s.Events = &EventsRule{Array: at(t, "events"), ID: at(t, "id"), Type: at(t, "resource_type+action")}
	}
}

func batchHook(id string, events ...string) hook {
	return hook{id: id, secret: testSecret, target: "/hooks/payments", body: `{"meta":{"webhook_id":"` + id + `"},"events":[` + strings.Join(events, ",") + `]}`}
}

func eventOf(id, kind string) string {
	return fmt.Sprintf(`{"id":%q,"resource_type":%q,"action":"created"}`, id, kind)
}

// Of a request with several events those that the app has are named to it; one of which it has all is a duplicate.
func TestPartsOfARequest(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments", batches(t))}))
	first := g.ask(batchHook("WB1", eventOf("EV1", "mandates"), eventOf("EV,2 é", "payments")))
	if _, told := first.headers[headerSeenIDs]; !first.pass || told {
		t.Fatalf("new: %+v, want a pass without ids", first)
	}
	if a := g.ask(batchHook("WB2", eventOf("EV1", "mandates"), eventOf("EV3", "mandates"))); a.body != saysInFlight {
		t.Errorf("one is with the app: %+v, want 503", a)
	}
	g.end(first, EndDone)
	forged := batchHook("WB2", eventOf("EV3", "mandates"))
	forged.headers = [][2]string{{headerSeenIDs, "EV3"}}
	if a := g.ask(forged); a.headers[headerSeenIDs] != "" || !cmp.Equal(a.removed, []string{headerSeenIDs}) {
		t.Errorf("a header of the client's: %+v, want it removed", a)
	} else {
		g.end(a, EndReleased)
	}
	second := g.ask(batchHook("WB3", eventOf("EV1", "mandates"), eventOf("EV,2 é", "payments"), eventOf("EV3", "mandates")))
	if want := "EV1,EV%2C2 %C3%A9"; !second.pass || second.headers[headerSeenIDs] != want {
		t.Fatalf("two of three: %+v, want %q", second, want)
	}
	g.end(second, EndDone)
	if a := g.ask(batchHook("WB4", eventOf("EV3", "mandates"), eventOf("EV1", "mandates"))); a.body != saysDuplicate {
		t.Errorf("all: %+v, want duplicate", a)
	}
	if a := g.ask(batchHook("WB5", eventOf("EV3", "mandates"), `{"action":"created"}`)); !a.pass || a.headers[headerSeenIDs] != "EV3" {
		t.Errorf("one has no id: %+v, want a pass", a)
	}
}

// A request is left out only where the types leave out all of its events.
func TestTypesOfParts(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments", batches(t), func(s *Source) { s.Types = []string{"payments.*"} })}))
	for _, tt := range []struct {
		name   string
		events []string
		pass   bool
	}{
		{"the second is wanted", []string{eventOf("EV1", "mandates"), eventOf("EV2", "payments")}, true},
		{"none is", []string{eventOf("EV3", "mandates"), eventOf("EV4", "refunds")}, false},
		{"one has no type", []string{eventOf("EV5", "mandates"), `{"id":"EV6"}`}, true},
		{"there is none", nil, true},
	} {
		if a := g.ask(batchHook("WB "+tt.name, tt.events...)); a.pass != tt.pass || !tt.pass && a.body != saysIgnored {
			t.Errorf("%s: %+v", tt.name, a)
		}
	}
}

func TestSeenText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 255)
	var many, fitting []string
	for range 16 {
		fitting = append(fitting, long) // with their commas 4,095 bytes
	}
	many = append(fitting, "y")
	for _, tt := range []struct {
		name string
		ids  []string
		want string
	}{
		{"one", []string{"EV1"}, "EV1"},
		{"a comma", []string{"a,b", "c"}, "a%2Cb,c"},
		{"a percent sign", []string{"a%2Cb"}, "a%252Cb"},
		{"the mark itself", []string{"..."}, "%2E.."},
		{"as many as fit", fitting, strings.Join(fitting, ",")},
		{"one more", many, strings.Join(fitting[:15], ",") + ",..."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := seenText(tt.ids)
			if got != tt.want || len(got) > maxSeenBytes {
				t.Errorf("got %d bytes %.60q, want %d bytes %.60q", len(got), got, len(tt.want), tt.want)
			}
		})
	}
}

func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	rule := EventsRule{ID: at(t, "id")}
	for _, tt := range []struct {
		name  string
		doc   string
		parts int
		whole bool
	}{
		{"one id twice", `[{"id":"a"},{"id":"a"},{"id":"b"}]`, 2, true},
		{"none", `[]`, 0, false},
		{"one without", `[{"id":"a"},{"id":""}]`, 1, false},
		{"no objects", `["a",1]`, 0, false},
		{"more than is remembered", "[" + strings.TrimSuffix(func() (all string) {
			for i := range 300 {
				all += fmt.Sprintf(`{"id":"%0250d"},`, i)
			}
			return all
		}(), ",") + "]", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			events, ok := rule.Array.Elements([]byte(tt.doc))
			if !ok {
				t.Fatal("no array")
			}
			parts, whole := rule.parts(events)
			if len(parts) != tt.parts || whole != tt.whole {
				t.Errorf("%d parts, whole %v; want %d, %v", len(parts), whole, tt.parts, tt.whole)
			}
		})
	}
}
