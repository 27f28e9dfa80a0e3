package outboxtest

import (
	"context"
	"errors"
	"net/netip"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidehook/sidehook/egress"
)

// settlement is the end of the next attempt of d: delivered, dead, or due again in a minute.
func settlement(d egress.Delivery, state egress.State) *egress.Settlement {
	s := &egress.Settlement{
		Attempt: egress.Attempt{
			Delivery: d.ID, N: d.Tries + 1, At: time.Now().UTC(), Trigger: egress.TriggerSchedule, Outcome: egress.OutcomeServerError,
			Counted: true, Status: 500, Took: 3 * time.Millisecond, IP: netip.MustParseAddr("192.0.2.1"), RetryAfter: time.Second,
			Answer: []byte("no"), AnswerBytes: 2, Detail: "of its own",
		},
		Created: d.Created, State: state, Lane: egress.LaneRetry, Attempts: d.Attempts + 1,
	}
	switch state {
	case egress.StateDelivered:
		s.Attempt.Outcome, s.Attempt.Status = egress.OutcomeDelivered, 200
	case egress.StateWaiting:
		s.Due = time.Now().Add(time.Minute).UTC()
	case egress.StateDead:
		s.NotReached = true
	}
	return s
}

// settle settles, and waits until that is on disk.
func (b *bench) settle(s *egress.Settlement) {
	b.Helper()
	if err := b.trySettle(s); err != nil {
		b.Fatalf("settle %s: %v", s.Attempt.Delivery, err)
	}
}

func (b *bench) trySettle(s *egress.Settlement) error {
	done := make(chan error, 2)
	b.outbox.Settle(s, func(err error) { done <- err })
	err := <-done
	synctest.Wait()
	if len(done) > 0 {
		b.Error("done was called twice")
	}
	return err
}

func (b *bench) wantAttempts(id egress.DeliveryID, want ...egress.Attempt) {
	b.Helper()
	same := cmp.Comparer(func(x, y netip.Addr) bool { return x == y })
	if diff := cmp.Diff(want, b.attempts(id), cmpopts.EquateEmpty(), same); diff != "" {
		b.Errorf("attempts of %s (-want +got):\n%s", id, diff)
	}
}

func testDelivered(b *bench) {
	d := b.one()
	time.Sleep(time.Second)
	s := settlement(d, egress.StateDelivered)
	b.settle(s)
	b.wantDue("a")
	b.wantBody(d.ID, false)
	want := d
	want.State, want.Attempts, want.Tries, want.Reason = egress.StateDelivered, 1, 1, egress.OutcomeDelivered
	want.Lane, want.Ended = egress.LaneRetry, s.Attempt.At.Add(3*time.Millisecond)
	b.wantDelivery(want)
	b.wantAttempts(d.ID, s.Attempt)
}

func testFailed(b *bench) {
	d := b.one()
	s := settlement(d, egress.StateWaiting)
	b.settle(s)
	want := d
	want.Lane, want.Due, want.Attempts, want.Tries, want.Reason = egress.LaneRetry, s.Due, 1, 1, egress.OutcomeServerError
	b.wantDelivery(want)
	if diff := cmp.Diff([]egress.Delivery{want}, b.due("a", egress.LaneRetry)); diff != "" {
		b.Errorf("due (-want +got):\n%s", diff)
	}
	if ds := b.due("a", egress.LaneFirst); len(ds) != 0 {
		b.Errorf("still a first attempt: %v", ds)
	}
	// One that used up nothing.
	second := settlement(want, egress.StateWaiting)
	second.Attempts, second.Attempt.Counted, second.Attempt.Outcome = 1, false, egress.OutcomeProxyFailed
	b.settle(second)
	got := b.delivery(d.ID)
	if got.Attempts != 1 || got.Tries != 2 || got.Reason != egress.OutcomeProxyFailed {
		b.Errorf("%+v, want one attempt of two tries", got)
	}
	b.wantDue("a", d.ID)
	b.wantBody(d.ID, true)
	b.wantAttempts(d.ID, s.Attempt, second.Attempt)
}

func testDead(b *bench) {
	d := b.one()
	s := settlement(d, egress.StateDead)
	b.settle(s)
	b.wantDue("a")
	b.wantBody(d.ID, true)
	if got := b.delivery(d.ID); got.State != egress.StateDead || !got.NotReached || got.Ended.IsZero() {
		b.Errorf("%+v, want it dead, not reached", got)
	}
}

func testSharedBody(b *bench) {
	ends := []egress.State{egress.StateDelivered, egress.StateDead, egress.StateDelivered}
	r := b.accept(event("x", "body"), "a", "b", "c")
	for i, state := range ends {
		b.wantBody(r.Deliveries[i].ID, true)
		b.settle(settlement(b.delivery(r.Deliveries[i].ID), state))
	}
	b.wantBody(r.Deliveries[0].ID, true) // for the one that is dead
	if _, err := b.records.Discard(context.Background(), r.Deliveries[1].ID); err != nil {
		b.Fatal(err)
	}
	b.wantBody(r.Deliveries[0].ID, false)
}

func testSettleTwice(b *bench) {
	d := b.one()
	s := settlement(d, egress.StateWaiting)
	b.settle(s)
	b.settle(s)
	again := settlement(d, egress.StateDead) // another end of the same try
	b.settle(again)
	b.wantDue("a", d.ID)
	b.wantAttempts(d.ID, s.Attempt)
	if got := b.delivery(d.ID); got.Attempts != 1 || got.Tries != 1 || got.State != egress.StateWaiting {
		b.Errorf("%+v, want one attempt", got)
	}
	nobody := settlement(egress.Delivery{ID: egress.DeliveryID{Event: 1, Endpoint: 1}}, egress.StateDelivered)
	b.settle(nobody) // gone with all that is known of it
}

func testSettleInvalid(b *bench) {
	d := b.one()
	for name, change := range map[string]func(*egress.Settlement){
		"no state":     func(s *egress.Settlement) { s.State = 0 },
		"other state":  func(s *egress.Settlement) { s.State = egress.StateCancelled },
		"no outcome":   func(s *egress.Settlement) { s.Attempt.Outcome = 0 },
		"no trigger":   func(s *egress.Settlement) { s.Attempt.Trigger = 0 },
		"not numbered": func(s *egress.Settlement) { s.Attempt.N = 0 },
	} {
		s := settlement(d, egress.StateDelivered)
		change(s)
		if err := b.trySettle(s); err == nil {
			b.Errorf("%s: settled", name)
		}
	}
	b.wantDue("a", d.ID)
	b.wantAttempts(d.ID)
}

func testDiscarded(b *bench) {
	for _, tt := range []struct {
		name        string
		state, want egress.State
	}{
		{"failed", egress.StateWaiting, egress.StateDiscarded},
		{"out of attempts", egress.StateDead, egress.StateDiscarded},
		{"delivered", egress.StateDelivered, egress.StateDelivered},
	} {
		d := b.one()
		if _, err := b.records.Discard(context.Background(), d.ID); err != nil {
			b.Fatal(err)
		}
		s := settlement(d, tt.state)
		b.settle(s)
		if got := b.delivery(d.ID); got.State != tt.want || got.Reason != s.Attempt.Outcome {
			b.Errorf("%s: %+v, want state %v", tt.name, got, tt.want)
		}
		b.wantAttempts(d.ID, s.Attempt)
		b.wantDue("a")
		b.wantBody(d.ID, false)
	}
}

func testDeliveredStays(b *bench) {
	d := b.one()
	b.settle(settlement(d, egress.StateDelivered))
	ended := b.delivery(d.ID)
	for _, state := range []egress.State{egress.StateWaiting, egress.StateDead, egress.StateDelivered} {
		late := b.delivery(d.ID)
		b.settle(settlement(late, state))
		got := b.delivery(d.ID)
		if got.State != egress.StateDelivered || !got.Ended.Equal(ended.Ended) || got.Tries != late.Tries+1 {
			b.Errorf("after %v: %+v, want what was delivered, with another try logged", state, got)
		}
	}
	b.wantDue("a")
}

func testRedelivered(b *bench) {
	for _, tt := range []struct {
		name        string
		state, want egress.State
	}{
		{"failed", egress.StateWaiting, egress.StateWaiting},
		{"out of attempts", egress.StateDead, egress.StateWaiting},
		{"delivered", egress.StateDelivered, egress.StateDelivered},
	} {
		d := b.one()
		b.settle(settlement(d, egress.StateWaiting))
		d = b.delivery(d.ID) // as it is sent
		time.Sleep(10 * time.Second)
		if _, err := b.records.Redeliver(context.Background(), d.ID); err != nil {
			b.Fatal(err)
		}
		asked := b.delivery(d.ID)
		s := settlement(d, tt.state)
		b.settle(s)
		got := b.delivery(d.ID)
		if got.State != tt.want || got.Tries != 2 {
			b.Errorf("%s: %+v, want state %v after two tries", tt.name, got, tt.want)
		}
		if tt.want == egress.StateWaiting {
			if got.Attempts != 0 || !got.Due.Equal(asked.Due) || !got.Created.Equal(asked.Created) {
				b.Errorf("%s: %+v, want it as it was redelivered: %+v", tt.name, got, asked)
			}
			b.settle(settlement(got, egress.StateDelivered))
		}
		b.wantDue("a")
	}
}

func testInterrupted(b *bench) {
	d := b.one()
	failed := settlement(d, egress.StateWaiting)
	b.settle(failed)
	d = b.delivery(d.ID)
	ended := b.one() // discarded while it was under way
	time.Sleep(time.Minute)
	began := time.Now().UTC()
	b.outbox.Mark(&d, began, egress.TriggerProbe)
	b.outbox.Mark(&ended, began, egress.TriggerSchedule)
	time.Sleep(time.Second) // a mark rides with some later commit, or goes alone
	if _, err := b.records.Discard(context.Background(), ended.ID); err != nil {
		b.Fatal(err)
	}
	b.restart("a", "b", "c")
	cut := egress.Attempt{Delivery: d.ID, N: 2, At: began, Trigger: egress.TriggerProbe, Outcome: egress.OutcomeInterrupted}
	b.wantAttempts(d.ID, failed.Attempt, cut)
	want := d
	want.Tries, want.Reason = 2, egress.OutcomeInterrupted
	b.wantDelivery(want)
	b.wantDue("a", d.ID)
	if got := b.delivery(ended.ID); got.State != egress.StateDiscarded || got.Tries != 1 {
		b.Errorf("%+v, want it discarded, its attempt logged", got)
	}
	b.restart("a", "b", "c")
	b.wantAttempts(d.ID, failed.Attempt, cut) // once
}

func testMarkSettled(b *bench) {
	before, together := b.one(), b.one()
	b.outbox.Mark(&before, time.Now(), egress.TriggerSchedule)
	time.Sleep(time.Second)
	b.settle(settlement(before, egress.StateWaiting))
	// Marked and settled in one commit, in either order.
	b.outbox.Mark(&together, time.Now(), egress.TriggerSchedule)
	b.settle(settlement(together, egress.StateWaiting))
	late := b.one()
	b.settle(settlement(late, egress.StateWaiting))
	b.outbox.Mark(&late, time.Now(), egress.TriggerSchedule)
	time.Sleep(time.Second)
	b.restart("a", "b", "c")
	for name, d := range map[string]egress.Delivery{"before": before, "together": together, "late": late} {
		if as := b.attempts(d.ID); len(as) != 1 || as[0].Outcome == egress.OutcomeInterrupted {
			b.Errorf("%s: %+v, want the one attempt", name, as)
		}
	}
}

func testHealth(b *bench) {
	now := time.Now().UTC()
	h := egress.Health{
		Disabled: egress.DisabledGone, DisabledAt: now, HeldUntil: now.Add(time.Hour), HoldStep: 3, FailingSince: now.Add(-time.Hour),
		LastFailure: now.Add(-time.Minute), Warned: 50, LastSuccess: now.Add(-2 * time.Hour), LastAttempt: now,
	}
	if err := b.outbox.SetHealth(context.Background(), "a", h); err != nil {
		b.Fatal(err)
	}
	if err := b.outbox.SetHealth(context.Background(), "z", h); !errors.Is(err, egress.ErrNotFound) {
		b.Errorf("of an unknown endpoint: %v, want ErrNotFound", err)
	}
	s := settlement(b.delivery(b.accept(event("", "body"), "b").Deliveries[0].ID), egress.StateWaiting)
	s.Health = &egress.Health{HoldStep: 1, LastFailure: now}
	b.settle(s)
	want := map[string]egress.Health{"a": h, "b": *s.Health, "c": {}}
	for _, when := range []string{"before", "after"} {
		got, err := b.outbox.Healths()
		if err != nil {
			b.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			b.Errorf("%s a restart (-want +got):\n%s", when, diff)
		}
		b.restart("a", "b", "c")
	}
}

func testRemoved(b *bench) {
	gone := b.accept(event("shared", "body"), "a", "b")
	waits, sent := b.one(), b.one()
	b.settle(settlement(waits, egress.StateWaiting))
	b.setEndpoints("b", "c")
	b.wantDue("a")
	if _, err := b.outbox.Accept(context.Background(), event("", "body"), to("a")); !errors.Is(err, egress.ErrNotFound) {
		b.Errorf("accepted for a removed endpoint: %v", err)
	}
	if hs, err := b.outbox.Healths(); err != nil || len(hs) != 2 {
		b.Errorf("health %v, %v, want that of b and c", hs, err)
	}
	if err := b.outbox.CancelRemoved(context.Background()); err != nil {
		b.Fatal(err)
	}
	for _, id := range []egress.DeliveryID{gone.Deliveries[0].ID, waits.ID, sent.ID} {
		if got := b.delivery(id); got.State != egress.StateCancelled || got.Ended.IsZero() || got.Endpoint != "a" {
			b.Errorf("%+v, want it cancelled", got)
		}
	}
	b.wantBody(waits.ID, false)
	b.wantBody(gone.Deliveries[0].ID, true) // b's is open
	b.wantDue("b", gone.Deliveries[1].ID)
	// Its last attempt comes back.
	s := settlement(sent, egress.StateWaiting)
	s.Health = &egress.Health{HoldStep: 1}
	b.settle(s)
	if got := b.delivery(sent.ID); got.State != egress.StateCancelled || got.Tries != 1 {
		b.Errorf("%+v, want it cancelled, its attempt logged", got)
	}
	if hs, err := b.outbox.Healths(); err != nil || len(hs) != 2 {
		b.Errorf("health %v, %v: a removed endpoint has none", hs, err)
	}
}

func testComesAgain(b *bench) {
	old := b.one()
	if err := b.outbox.SetHealth(context.Background(), "a", egress.Health{Disabled: egress.DisabledPerson}); err != nil {
		b.Fatal(err)
	}
	b.setEndpoints("b")
	b.restart("a", "b")
	b.wantDue("a")
	if hs, err := b.outbox.Healths(); err != nil || hs["a"] != (egress.Health{}) {
		b.Errorf("health %+v, %v, want that of a new endpoint", hs["a"], err)
	}
	fresh := b.one()
	b.wantDue("a", fresh.ID)
	if err := b.outbox.CancelRemoved(context.Background()); err != nil {
		b.Fatal(err)
	}
	if got := b.delivery(old.ID); got.State != egress.StateCancelled {
		b.Errorf("%+v, want the old one cancelled", got)
	}
	b.wantDue("a", fresh.ID)
}

func testRestart(b *bench) {
	r := b.accept(event("x", "body"), "a", "b")
	failed, dead := b.one(), b.one()
	b.settle(settlement(failed, egress.StateWaiting))
	b.settle(settlement(dead, egress.StateDead))
	b.settle(settlement(b.delivery(r.Deliveries[1].ID), egress.StateDelivered))
	var before []egress.Delivery
	ids := []egress.DeliveryID{r.Deliveries[0].ID, r.Deliveries[1].ID, failed.ID, dead.ID}
	for _, id := range ids {
		before = append(before, b.delivery(id))
	}
	b.restart("a", "b", "c")
	for i, id := range ids {
		b.wantDelivery(before[i])
		b.wantBody(id, true)
	}
	b.wantDue("a", r.Deliveries[0].ID, failed.ID)
	b.wantDue("b")
}
