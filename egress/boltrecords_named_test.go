package egress

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
)

func TestDeliveriesByID(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	first := b.mustAccept(t, boltEvent("1", "1"), "a", "b").Deliveries
	second := b.mustAccept(t, boltEvent("2", "2"), "a").Deliveries
	b.parked["b"] = true
	b.sending[second[0].ID] = true
	got, err := b.records.Deliveries(t.Context(), second[0].ID, DeliveryID{1, 1}, first[1].ID, first[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	type shown struct {
		ID      DeliveryID
		Event   string
		State   State
		Waiting string
	}
	var have []shown
	for _, d := range got {
		have = append(have, shown{d.ID, d.EventID, d.State, d.Endpoint})
		one, err := b.records.Delivery(t.Context(), d.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(one.Delivery, d); diff != "" {
			t.Errorf("%s (-alone +with others):\n%s", d.ID, diff)
		}
	}
	want := []shown{{second[0].ID, "2", StateSending, "a"}, {first[1].ID, "1", StateParked, "b"}, {first[0].ID, "1", StateWaiting, "a"}}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("in the order of the question, without what is not there (-want +got):\n%s", diff)
	}
	if _, err := b.records.Deliveries(t.Context(), make([]DeliveryID, MaxPageRows+1)...); !errors.Is(err, ErrFilter) {
		t.Errorf("too many: %v, want ErrFilter", err)
	}
	b.mustEnd(t)
}

// Of two events under one id, which is then no way to find either, the one that is named is expunged.
func TestExpungeOfAnUnindexedEvent(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	var events [2]*Event
	for i := range events {
		e := boltEvent("evt_1", "personal data")
		e.Unindexed, e.Headers = true, []signature.Field{{Name: "x-name", Value: "a name"}}
		b.mustAccept(t, e, "a")
		events[i] = e
	}
	for range 2 {
		left, err := b.records.ExpungeEvent(t.Context(), events[0].Seq)
		if err != nil {
			t.Fatal(err)
		}
		if left.Event.HasBody || len(left.Event.Headers) != 0 || left.Event.ID != "evt_1" || left.Event.Content != events[0].Content {
			t.Errorf("left %+v, want id and hash alone", left.Event)
		}
		if s := left.Deliveries[0].Delivery.State; s != StateDiscarded {
			t.Errorf("its delivery is %s, want DISCARDED", s)
		}
	}
	if body, err := b.records.Body(t.Context(), events[1].Seq); err != nil || string(body) != "personal data" {
		t.Errorf("the other one's body: %q, %v", body, err)
	}
	if _, err := b.records.ExpungeEvent(t.Context(), 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing: %v, want ErrNotFound", err)
	}
	b.mustEnd(t)
}
