package extauthz

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listingKeeper remembers the events that were written, as id, type, order and body.
type listingKeeper struct {
	*fakeKeeper
	mu     sync.Mutex
	events []string
}

func (k *listingKeeper) Prepare(e *StoredEvent) (Keeping, error) {
	line := fmt.Sprintf("%s %s %s %s", e.Shown, e.Type, e.Order, e.Body)
	return &listingKeeping{fakeKeeping: fakeKeeping{k: k.fakeKeeper}, list: k, line: line}, nil
}

func (k *listingKeeper) take() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	taken := k.events
	k.events = nil
	return taken
}

type listingKeeping struct {
	fakeKeeping
	list *listingKeeper
	line string
}

func (p *listingKeeping) Done(err error) {
	p.fakeKeeping.Done(err)
	if err == nil {
		p.list.mu.Lock()
		defer p.list.mu.Unlock()
		p.list.events = append(p.list.events, p.line)
	}
}

// newSplitGate is a gate with a source that keeps each event of a request by itself.
func newSplitGate(t *testing.T, change ...func(*Source)) (*gate, *listingKeeper) {
	t.Helper()
	store := func(s *Source) {
		s.Mode, s.Split = ModeStore, true
		s.OrderBy.JSON = at(t, "events.0.links.mandate")
	}
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments", append([]func(*Source){batches(t), store}, change...)...)}))
	k := &listingKeeper{fakeKeeper: newFakeKeeper()}
	g.inbox.keeper = k
	return g, k
}

func linked(id, kind, mandate string) string {
	return fmt.Sprintf(`{ "id":%q, "resource_type":%q,"action":"created","links":{"mandate":%q} }`, id, kind, mandate)
}

func TestSplitAtTheGate(t *testing.T) {
	t.Parallel()
	g, k := newSplitGate(t)
	one, two, three := linked("EV1", "mandates", "MD1"), linked("EV2", "payments", "MD2"), linked("EV3", "refunds", "")
	kept := func(id, kind, order, element string) string {
		return id + " " + kind + ".created " + order + ` {"meta":{"webhook_id":"WB1"},"events":[` + element + `]}`
	}
	for range 2 { // the second time nothing is new
		if a := g.ask(batchHook("WB1", one, two)); a.pass || a.status != 200 {
			t.Fatalf("got %+v, want 200", a)
		}
	}
	if diff := cmp.Diff([]string{kept("EV1", "mandates", "MD1", one), kept("EV2", "payments", "MD2", two)}, k.take()); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	again := batchHook("WB1", two, three)
	again.id = "WB2"
	g.ask(again)
	if diff := cmp.Diff([]string{kept("EV3", "refunds", "", three)}, k.take()); diff != "" {
		t.Errorf("of a request of which one is known (-want +got):\n%s", diff)
	}
	if a := g.ask(batchHook("WB3", three, one)); a.body != saysDuplicate || len(k.take()) > 0 {
		t.Errorf("all known: %+v, want duplicate", a)
	}
	// Elements without ids go by the request's.
	for range 2 {
		g.ask(batchHook("WB4", `1`, `"]"`))
	}
	want := []string{`WB4#1   {"meta":{"webhook_id":"WB4"},"events":[1]}`, `WB4#2   {"meta":{"webhook_id":"WB4"},"events":["]"]}`}
	if diff := cmp.Diff(want, k.take()); diff != "" {
		t.Errorf("without ids (-want +got):\n%s", diff)
	}
	if r, err := g.inbox.Get(Key{Source: "payments", ID: "EV2"}); err != nil || r.State != StateStored || r.Type != "payments.created" {
		t.Errorf("an event is %+v, %v; want STORED", r, err)
	}
}

// Types, versions and modes are those of each event by itself.
func TestSplitJudgesEachEvent(t *testing.T) {
	t.Parallel()
	g, k := newSplitGate(t, func(s *Source) {
		s.Types = []string{"payments.*"}
		s.Version = VersionRule{Object: at(t, "events.0.links.payment"), At: at(t, "events.0.created_at"), Time: true}
	})
	event := func(id, kind, second string) string {
		return fmt.Sprintf(`{"id":%q,"resource_type":%q,"action":"created","links":{"payment":"PM1"},"created_at":"2026-01-02T03:04:%s.5Z"}`, id, kind, second)
	}
	g.ask(batchHook("WB1", event("EV1", "mandates", "09"), event("EV2", "payments", "06"), event("EV3", "payments", "05"), event("EV4", "payments", "06")))
	var ids []string
	for _, line := range k.take() {
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
	}
	if !slices.Equal(ids, []string{"EV2", "EV4"}) {
		t.Errorf("kept %q", ids)
	}
	for id, want := range map[string]State{"EV1": StateIgnored, "EV2": StateStored, "EV3": StateStale, "EV4": StateStored} {
		if r, err := g.inbox.Get(Key{Source: "payments", ID: id}); err != nil || r.State != want {
			t.Errorf("%s is %s, %v; want %s", id, r.State, err, want)
		}
	}
}

// What cannot be taken apart is kept as one.
func TestSplitIsBounded(t *testing.T) {
	t.Parallel()
	small := func(s *Source) { s.MaxBodyBytes = 4096 }
	around := strings.Repeat("x", 1000)
	grown := batchHook("WB", slices.Repeat([]string{linked("EV", "a", "")}, 20)...)
	grown.body = strings.Replace(grown.body, `"WB"`, `"`+around+`"`, 1)
	many := batchHook("WB", slices.Repeat([]string{"1"}, 1025)...)
	for name, h := range map[string]hook{
		"no events":           batchHook("WB"),
		"no array":            {id: "WB", secret: testSecret, target: "/hooks/payments", body: `{"events":{}}`},
		"too many":            many,
		"they grow too large": grown,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, k := newSplitGate(t, small)
			if a := g.ask(h); a.status != 200 {
				t.Fatalf("got %+v, want 200", a)
			}
			if got := k.take(); len(got) != 1 || !strings.HasPrefix(got[0], "WB ") || !strings.HasSuffix(got[0], h.body) {
				t.Errorf("kept %.80q, want the request", got)
			}
			if used := g.bodies.used.Load(); used != 0 {
				t.Errorf("%d bytes are not given back", used)
			}
		})
	}
}
