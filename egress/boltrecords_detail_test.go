package egress

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidehook/sidehook/internal/signature"
)

func TestEventAndItsDeliveries(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	e := boltEvent("order-1", `{"n":1}`)
	e.Tenant, e.Headers = "shop", []signature.Field{{Name: "ce-id", Value: "order-1"}}
	ids := b.mustAccept(t, e, "a", "b").Deliveries
	failed := boltSettlement(b.due(t, "a")[0], StateWaiting)
	failed.Attempt.IP, failed.Attempt.RetryAfter = netip.MustParseAddr("192.0.2.7"), 3*time.Second
	b.mustSettle(t, failed)
	b.mustSettle(t, boltSettlement(b.due(t, "a")[0], StateDelivered))

	got, err := b.records.Event(t.Context(), "shop", "order-1")
	if err != nil {
		t.Fatal(err)
	}
	meta := EventMeta{Event: *e, Bytes: len(e.Body), HasBody: true}
	meta.Body = nil
	if diff := cmp.Diff(meta, got.Event); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	if len(got.Deliveries) != 2 || got.More {
		t.Fatalf("%d deliveries, more: %v, want 2 and not", len(got.Deliveries), got.More)
	}
	one, err := b.records.Delivery(t.Context(), ids[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if one.Delivery.State != StateDelivered || one.Delivery.Endpoint != "a" || one.Delivery.Tenant != "shop" {
		t.Errorf("delivery %+v, want DELIVERED to a", one.Delivery)
	}
	if diff := cmp.Diff(meta, one.Event); diff != "" {
		t.Errorf("event of the delivery (-want +got):\n%s", diff)
	}
	one.Event = EventMeta{}
	if diff := cmp.Diff(one, got.Deliveries[0], cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("delivery of the event (-alone +with it):\n%s", diff)
	}
	wantFirst := failed.Attempt
	wantFirst.At = wantFirst.At.UTC().Truncate(time.Millisecond)
	if len(one.Attempts) != 2 || one.Attempts[1].Outcome != OutcomeDelivered {
		t.Fatalf("attempts %+v, want one that failed and one that did not", one.Attempts)
	}
	if diff := cmp.Diff(wantFirst, one.Attempts[0], cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("first attempt (-want +got):\n%s", diff)
	}
	if body, err := b.records.Body(t.Context(), e.Seq); err != nil || string(body) != `{"n":1}` {
		t.Errorf("body %q, %v", body, err)
	}
	b.mustEnd(t)
}

// TestEventByID: which tenant and id finds which event.
func TestEventByID(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	made := boltEvent("", "made by us")
	made.Tenant = "shop"
	b.mustAccept(t, made, "a")
	given := boltEvent("given", "by the app")
	given.Tenant = "shop"
	b.mustAccept(t, given)
	posing := boltEvent(newEventID(made.Seq), "an id that holds the number of another event")
	b.mustAccept(t, posing)
	for _, tt := range []struct {
		name, tenant, id string
		want             uint64 // 0: not found
	}{
		{"made", "shop", made.ID, made.Seq},
		{"made, tenant not known", "", made.ID, made.Seq},
		{"given", "shop", "given", given.Seq},
		{"given, of another tenant", "", "given", 0},
		{"an id like ours", "", posing.ID, posing.Seq},
		{"an id like ours, of another tenant", "shop", posing.ID, 0},
		{"no id like ours", "", "evt_0", 0},
		{"nothing", "", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := b.records.Event(t.Context(), tt.tenant, tt.id)
			if errors.Is(err, ErrNotFound) != (tt.want == 0) || got.Event.Seq != tt.want {
				t.Errorf("event %d, %v, want %d", got.Event.Seq, err, tt.want)
			}
		})
	}
	b.mustEnd(t)
}

func TestRecordsNotFound(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	nowhere := DeliveryID{1, 1}
	_, err := b.records.Delivery(t.Context(), nowhere)
	_, errAttempts := b.records.Attempts(t.Context(), nowhere, 0)
	_, errBody := b.records.Body(t.Context(), 1)
	_, errExpunge := b.records.Expunge(t.Context(), "", "nothing")
	_, errJob := b.records.Job(t.Context(), 1)
	_, errCancel := b.records.CancelJob(t.Context(), 1)
	for what, err := range map[string]error{
		"delivery": err, "attempts": errAttempts, "body": errBody, "expunge": errExpunge, "job": errJob, "cancel": errCancel,
	} {
		if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v, want ErrNotFound alone", what, err)
		}
	}
	b.mustEnd(t)
}

// TestAttemptsByThePage: a delivery that was tried more often than one answer holds.
func TestAttemptsByThePage(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	const tries = MaxPageRows + 10
	id := b.write(t, recordsBulk{rows: 1, first: time.Now(), endpoint: "a", state: StateWaiting, attempts: tries})[0]
	// Neighbours, whose attempts are none of ours.
	b.write(t, recordsBulk{rows: 1, first: time.Now().Add(-time.Second), endpoint: "a", state: StateWaiting, attempts: 3})
	b.write(t, recordsBulk{rows: 1, first: time.Now().Add(time.Second), endpoint: "a", state: StateWaiting, attempts: 3})
	after := 0
	for _, want := range []int{MaxPageRows, 10, 0} {
		attempts, err := b.records.Attempts(t.Context(), id, after)
		if err != nil || len(attempts) != want {
			t.Fatalf("%d attempts after %d, %v, want %d", len(attempts), after, err, want)
		}
		for _, a := range attempts {
			if after++; a.N != after || a.Delivery != id {
				t.Fatalf("attempt %d of %s, want %d of %s", a.N, a.Delivery, after, id)
			}
		}
	}
	got, err := b.records.Delivery(t.Context(), id)
	if err != nil || len(got.Attempts) != MaxAttempts {
		t.Fatalf("%d attempts with the delivery, %v, want %d", len(got.Attempts), err, MaxAttempts)
	}
	if first, last := got.Attempts[0].N, got.Attempts[MaxAttempts-1].N; first != tries-MaxAttempts+1 || last != tries {
		t.Errorf("attempts %d to %d, want the last", first, last)
	}
	b.mustEnd(t)
}

// TestEventWithManyDeliveries: an answer is bounded, in deliveries and in attempts.
func TestEventWithManyDeliveries(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	var names []string
	for i := range MaxPageRows + 1 {
		names = append(names, "e"+DeliveryID{Event: uint64(i)}.String())
	}
	if err := b.SetEndpoints(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	b.mustAccept(t, boltEvent("many", "1"), names...)
	for range 2 {
		done := make(chan error, len(names))
		for _, name := range names {
			b.Settle(boltSettlement(b.due(t, name)[0], StateWaiting), func(err error) { done <- err })
		}
		for range names {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := b.records.Event(t.Context(), "", "many")
	if err != nil {
		t.Fatal(err)
	}
	attempts := 0
	for _, d := range got.Deliveries {
		attempts += len(d.Attempts)
	}
	if len(got.Deliveries) != MaxPageRows || !got.More || attempts != MaxPageRows {
		t.Errorf("%d deliveries with %d attempts, more: %v, want %d of each, and more", len(got.Deliveries), attempts, got.More, MaxPageRows)
	}
	b.mustEnd(t)
}
