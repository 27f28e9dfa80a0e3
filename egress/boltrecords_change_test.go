package egress

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

// TestChangeByState does to a delivery in each state what a person may ask for.
func TestChangeByState(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// shared: the event goes to b too, and waits there, so that its body stays.
		shared    bool
		state     State
		redeliver string // the error's end; empty: it waits then
		discard   string // the same; empty: it is DISCARDED then
	}{
		{"waits", false, StateWaiting, "", ""},
		{"dead", false, StateDead, "", ""},
		{"delivered", false, StateDelivered, "the event's body is gone", "it is DELIVERED"},
		{"discarded", false, StateDiscarded, "the event's body is gone", "it is DISCARDED"},
		{"waits, shared", true, StateWaiting, "", ""},
		{"dead, shared", true, StateDead, "", ""},
		{"delivered, shared: the body is still there", true, StateDelivered, "", "it is DELIVERED"},
		{"discarded, shared: the body is still there", true, StateDiscarded, "", "it is DISCARDED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := openRecords(t, t.TempDir(), 0)
			endpoints := []string{"a", "b"}[:1]
			if tt.shared {
				endpoints = []string{"a", "b"}
			}
			ids := make(map[string]DeliveryID)
			for _, ask := range []string{"redeliver", "discard"} {
				id := b.mustAccept(t, boltEvent(ask, ask), endpoints...).Deliveries[0].ID
				ids[ask] = id
				if tt.state == StateDiscarded {
					if _, err := b.records.Discard(t.Context(), id); err != nil {
						t.Fatal(err)
					}
					continue
				}
				b.mustSettle(t, boltSettlement(b.delivery(t, id), tt.state))
			}
			b.heard.take()
			check := func(ask, problem string, then State, changed []Changed, err error) {
				t.Helper()
				want := Changed{ID: ids[ask], Was: tt.state, Now: then}
				if problem != "" {
					want.Now = tt.state
				}
				if err != nil || len(changed) != 1 {
					t.Fatalf("%s: %d changes, %v", ask, len(changed), err)
				}
				why := changed[0].Err
				changed[0].Err = nil
				if diff := cmp.Diff(want, changed[0]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", ask, diff)
				}
				if problem == "" && why != nil || problem != "" && (!errors.Is(why, ErrState) || !strings.HasSuffix(why.Error(), problem)) {
					t.Errorf("%s: %v, want %q", ask, why, problem)
				}
				b.mustHave(t, want.Now, ids[ask])
				_, heard := b.heard.take()
				if wantHeard := problem == ""; slices.Contains(heard, "a") != wantHeard {
					t.Errorf("%s: the dispatcher heard of %q, want a: %v", ask, heard, wantHeard)
				}
			}
			before := time.Now().Truncate(time.Millisecond)
			changed, err := b.records.Redeliver(t.Context(), ids["redeliver"])
			check("redeliver", tt.redeliver, StateWaiting, changed, err)
			changed, err = b.records.Discard(t.Context(), ids["discard"])
			check("discard", tt.discard, StateDiscarded, changed, err)

			if r := b.delivery(t, ids["redeliver"]); tt.redeliver == "" {
				if r.Due.Before(before) || r.Created.Before(before) || r.Due.After(time.Now()) {
					t.Errorf("redelivered: due %v, created %v, want both now", r.Due, r.Created)
				}
				if r.Attempts != 0 || !r.Redelivered || r.NotReached || !r.Ended.IsZero() || r.Lane != LaneRetry {
					t.Errorf("redelivered: %+v, want a new schedule among the retries", r)
				}
			}
			b.mustEnd(t) // which checks that bodies are there as long as needed
		})
	}
}

// TestChangeMany: more than one commit takes, and what is unknown among them.
func TestChangeMany(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	ids := b.write(t, recordsBulk{rows: MaxChanges - 1, first: time.Now().Add(-time.Hour), endpoint: "a", state: StateDead})
	ids = slices.Insert(ids, 300, DeliveryID{1, 1})
	changed, err := b.records.Redeliver(t.Context(), ids...)
	if err != nil || len(changed) != len(ids) {
		t.Fatalf("%d changes, %v, want %d", len(changed), err, len(ids))
	}
	for i, c := range changed {
		if c.ID != ids[i] || (c.Err != nil) != (i == 300) || i == 300 && !errors.Is(c.Err, ErrNotFound) {
			t.Errorf("change %d: %+v", i, c)
		}
	}
	if n := len(b.due(t, "a")); n != MaxChanges-1 {
		t.Errorf("%d deliveries wait, want %d", n, MaxChanges-1)
	}
	for _, ask := range []func() ([]Changed, error){
		func() ([]Changed, error) { return b.records.Redeliver(t.Context(), append(ids, ids[0])...) },
		func() ([]Changed, error) { return b.records.Discard(t.Context(), append(ids, ids[0])...) },
	} {
		if _, err := ask(); !errors.Is(err, ErrFilter) {
			t.Errorf("too many: %v, want ErrFilter", err)
		}
	}
	b.mustEnd(t)
}

// TestRedeliverTakesThePlaceOfARetry is case 80: never is there a second success.
func TestRedeliverTakesThePlaceOfARetry(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	id := b.mustAccept(t, boltEvent("1", "1"), "a").Deliveries[0].ID
	redeliver := func() {
		t.Helper()
		if changed, err := b.records.Redeliver(t.Context(), id); err != nil || changed[0].Err != nil {
			t.Fatal(err, changed)
		}
	}
	// What was never tried keeps its turn.
	first := b.due(t, "a")[0]
	redeliver()
	if d := b.due(t, "a")[0]; d.Lane != LaneFirst || !d.Due.Equal(first.Due) || !d.Redelivered {
		t.Errorf("never tried: %+v, want it where it was", d)
	}
	b.mustSettle(t, boltSettlement(b.due(t, "a")[0], StateWaiting))
	redeliver()
	due := b.due(t, "a")
	if len(due) != 1 || due[0].Due.After(time.Now()) || due[0].Attempts != 0 || due[0].Tries != 1 {
		t.Fatalf("%d wait, the first %+v, want one, due now, with a new schedule", len(due), due[0])
	}

	// Asked for again while under way: a failure does not touch it, a success is what was asked for.
	underWay := due[0]
	redeliver()
	b.mustSettle(t, boltSettlement(underWay, StateDead))
	due = b.due(t, "a")
	if len(due) != 1 || due[0].Attempts != 0 || due[0].Tries != 2 {
		t.Fatalf("after a failure %+v, want one that waits", due)
	}
	underWay = due[0]
	redeliver()
	b.mustSettle(t, boltSettlement(underWay, StateDelivered))
	if due = b.due(t, "a"); len(due) != 0 {
		t.Errorf("after a success %d wait, want none", len(due))
	}
	b.mustHave(t, StateDelivered, id)
	b.mustEnd(t)
}

// TestDiscardWhileSending: the attempt is not called back, and its success counts.
func TestDiscardWhileSending(t *testing.T) {
	t.Parallel()
	for end, want := range map[State]State{StateDelivered: StateDelivered, StateDead: StateDiscarded, StateWaiting: StateDiscarded} {
		b := openRecords(t, t.TempDir(), 0)
		id := b.mustAccept(t, boltEvent("1", "1"), "a").Deliveries[0].ID
		underWay := b.due(t, "a")[0]
		b.sending[id] = true
		if changed, err := b.records.Discard(t.Context(), id); err != nil || changed[0].Err != nil {
			t.Fatal(err, changed)
		}
		b.mustSettle(t, boltSettlement(underWay, end))
		b.mustHave(t, want, id)
		if n := len(b.attempts(t, id)); n != 1 {
			t.Errorf("%d attempts logged, want 1", n)
		}
		b.mustEnd(t)
	}
}

// TestRedeliverToARemovedEndpoint: its deliveries are kept as cancelled or dead, and there is nowhere to send them.
func TestRedeliverToARemovedEndpoint(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	dead := b.mustAccept(t, boltEvent("dead", "1"), "a").Deliveries[0].ID
	b.mustSettle(t, boltSettlement(b.due(t, "a")[0], StateDead))
	cancelled := b.mustAccept(t, boltEvent("cancelled", "1"), "a").Deliveries[0].ID
	if err := b.SetEndpoints(t.Context(), []string{"b"}); err != nil {
		t.Fatal(err)
	}
	if err := b.CancelRemoved(t.Context()); err != nil {
		t.Fatal(err)
	}
	changed, err := b.records.Redeliver(t.Context(), dead, cancelled)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changed {
		if !errors.Is(c.Err, ErrState) || !errors.Is(c.Err, errRemoved) || c.Was != c.Now {
			t.Errorf("%+v, want that the endpoint was removed", c)
		}
	}
	// The body of a dead letter of it goes with a discard.
	if changed, err := b.records.Discard(t.Context(), dead); err != nil || changed[0].Err != nil {
		t.Error(err, changed)
	}
	b.mustEnd(t)
}

func TestExpunge(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	e := boltEvent("1", "personal data")
	e.Tenant, e.Headers = "shop", []signature.Field{{Name: "ce-subject", Value: "a name"}}
	accepted := b.mustAccept(t, e, "a", "b", "c")
	settle := func(endpoint string, s State) {
		t.Helper()
		b.mustSettle(t, boltSettlement(b.due(t, endpoint)[0], s))
	}
	settle("a", StateDelivered)
	settle("b", StateDead)
	for range 2 {
		got, err := b.records.Expunge(t.Context(), "shop", "1")
		if err != nil {
			t.Fatal(err)
		}
		if got.Event.HasBody || len(got.Event.Headers) != 0 {
			t.Errorf("event %+v, want neither body nor headers", got.Event)
		}
		if got.Event.ID != "1" || got.Event.Content != e.Content || !got.Event.Accepted.Equal(e.Accepted) || got.Event.Bytes != len(e.Body) {
			t.Errorf("event %+v, want its id, hash, size and time", got.Event)
		}
		var states []State
		for _, d := range got.Deliveries {
			states = append(states, d.Delivery.State)
		}
		if want := []State{StateDelivered, StateDiscarded, StateDiscarded}; !slices.Equal(states, want) {
			t.Errorf("deliveries %v, want %v", states, want)
		}
	}
	if _, err := b.records.Body(t.Context(), e.Seq); !errors.Is(err, ErrState) {
		t.Errorf("body: %v, want ErrState", err)
	}
	// Its id is known still, and a repeat is one.
	if again := b.mustAccept(t, func() *Event { e := boltEvent("1", "personal data"); e.Tenant = "shop"; return e }(), "a"); !again.Repeat ||
		again.Deliveries[1].ID != accepted.Deliveries[1].ID {
		t.Errorf("posted again: %+v, want the first receipt", again)
	}
	b.mustEnd(t)
}

// TestChangesOnAFullDisk: the caller hears of it, nothing is half written, and the next try succeeds.
func TestChangesOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		b := openRecords(t, t.TempDir(), 0)
		id := b.mustAccept(t, boltEvent("1", "1"), "a", "b").Deliveries[0].ID
		b.mustSettle(t, boltSettlement(b.due(t, "a")[0], StateDead))
		fail := func() { b.faults.Next(storetest.Fault{Err: storetest.DiskFull, Written: written}) }
		fail()
		if _, err := b.records.Redeliver(t.Context(), id); !errors.Is(err, ErrFull) {
			t.Errorf("redeliver: %v, want ErrFull", err)
		}
		fail()
		if _, err := b.records.Discard(t.Context(), id); !errors.Is(err, ErrFull) {
			t.Errorf("discard: %v, want ErrFull", err)
		}
		fail()
		if _, err := b.records.Expunge(t.Context(), "", "1"); !errors.Is(err, ErrFull) {
			t.Errorf("expunge: %v, want ErrFull", err)
		}
		if written {
			b.mustHave(t, StateDiscarded, id)
		} else {
			b.mustHave(t, StateDead, id)
		}
		if got, err := b.records.Expunge(t.Context(), "", "1"); err != nil || got.Event.HasBody {
			t.Errorf("expunge: body there: %v, %v", got.Event.HasBody, err)
		}
		b.mustEnd(t)
	}
}
