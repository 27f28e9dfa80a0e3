package egress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

const day = 24 * time.Hour

// purgeBench is an outbox with a purger.
type purgeBench struct {
	*recordsBench
	purger           *Purger
	events, attempts atomic.Int64 // deleted so far
	wall             atomic.Int64 // nanoseconds by which the purger's wall clock is ahead
}

func openPurge(t testing.TB, folder string, limit int64, keep Keep) *purgeBench {
	t.Helper()
	b := &purgeBench{recordsBench: openRecords(t, folder, limit)}
	var err error
	b.purger, err = NewPurger(PurgerConfig{
		Outbox: b.BoltOutbox,
		Keep:   func() Keep { return keep },
		OnPurge: func(events, attempts int) {
			b.events.Add(int64(events))
			b.attempts.Add(int64(attempts))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.purger.wall = func() time.Time { return time.Now().Add(time.Duration(b.wall.Load())) }
	return b
}

// run purges until the function that it returns is called.
func (b *purgeBench) run(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.purger.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("purger: %v", err)
		}
	}
}

// mustPass makes one pass.
func (b *purgeBench) mustPass(t testing.TB) {
	t.Helper()
	if err := b.purger.pass(context.Background()); err != nil {
		t.Fatalf("pass: %v", err)
	}
}

// known reports which of the events of the tenant "" with these ids are there.
func (b *purgeBench) known(t testing.TB, ids ...string) (known []string) {
	t.Helper()
	for _, id := range ids {
		switch _, err := b.records.Event(context.Background(), "", id); {
		case err == nil:
			known = append(known, id)
		case !errors.Is(err, ErrNotFound):
			t.Fatal(err)
		}
	}
	return known
}

func TestPurgeByAge(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openPurge(t, folder, 0, Keep{Delivered: 2 * day, Dead: 4 * day, Log: 3 * day})
		stop := b.run(t)
		settle := func(r Receipt, ends ...State) {
			t.Helper()
			for i, s := range ends {
				if id := r.Deliveries[i].ID; s != 0 {
					b.mustSettle(t, boltSettlement(b.delivery(t, id), s))
				}
			}
		}
		settle(b.mustAccept(t, boltEvent("delivered", "1"), "a"), StateDelivered)
		settle(b.mustAccept(t, boltEvent("dead", "1"), "a"), StateDead)
		settle(b.mustAccept(t, boltEvent("both", "1"), "a", "b"), StateDelivered, StateDead)
		settle(b.mustAccept(t, boltEvent("half", "1"), "a", "b"), StateDelivered, 0)
		waits := b.mustAccept(t, boltEvent("waits", "1"), "a")
		settle(waits, StateWaiting)
		b.mustAccept(t, boltEvent("nobody", "1"))
		discarded := b.mustAccept(t, boltEvent("discarded", "1"), "a")
		if _, err := b.records.Discard(t.Context(), discarded.Deliveries[0].ID); err != nil {
			t.Fatal(err)
		}
		late := b.mustAccept(t, boltEvent("late", "1"), "a")
		made := boltEvent("", "1")
		settle(b.mustAccept(t, made, "a"), StateDelivered)
		all := []string{"delivered", "dead", "both", "half", "waits", "nobody", "discarded", "late", made.ID}

		start := time.Now()
		expect := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(time.Until(start.Add(after)))
			if got := b.known(t, all...); !slices.Equal(got, want) {
				t.Errorf("after %v there are %q, want %q", after, got, want)
			}
		}
		expect(day, all...)
		settle(late, StateDelivered) // a day late, and kept for a day more
		expect(2*day-time.Minute, all...)
		if again := b.mustAccept(t, boltEvent("delivered", "1"), "a"); !again.Repeat {
			t.Error("just before its end a repeat is not known as one")
		}
		expect(2*day+time.Hour, "dead", "both", "half", "waits", "discarded", "late")
		if again := b.mustAccept(t, boltEvent("delivered", "1"), "a"); again.Repeat {
			t.Error("after its end the same id is still a repeat")
		} else {
			settle(again, StateDelivered)
		}
		if n := len(b.logged(t, waits.Deliveries[0].ID)); n != 1 {
			t.Errorf("%d attempts of what waits, want 1", n)
		}
		expect(3*day+time.Hour, "delivered", "dead", "both", "half", "waits", "discarded")
		if n := len(b.logged(t, waits.Deliveries[0].ID)); n != 0 {
			t.Errorf("%d attempts of what waits are there after their time, want none", n)
		}
		expect(4*day-time.Minute, "delivered", "dead", "both", "half", "waits", "discarded")
		expect(4*day+time.Hour, "delivered", "half", "waits")
		expect(12*day, "half", "waits")
		// What waits goes on as if nothing had been.
		if d := b.delivery(t, waits.Deliveries[0].ID); d.Tries != 1 {
			t.Errorf("%d tries, want 1", d.Tries)
		}
		settle(waits, StateDelivered)
		if n := b.rows(t, bodyBucket); n != 1 {
			t.Errorf("%d bodies, want that of the one that waits", n)
		}
		stop()
		if got := b.events.Load(); got != 8 {
			t.Errorf("%d events deleted, want 8", got)
		}
		b.mustEnd(t)
	})
}

// logged reads a delivery's log as people see it.
func (b *purgeBench) logged(t testing.TB, id DeliveryID) []Attempt {
	t.Helper()
	attempts, err := b.records.Attempts(context.Background(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return attempts
}

// TestPurgeKeepsADay is case 46: ids are known for a day, whatever the configuration says.
func TestPurgeKeepsADay(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openPurge(t, folder, 0, Keep{Delivered: time.Second, Dead: time.Second, Log: time.Second})
		stop := b.run(t)
		first := b.mustAccept(t, boltEvent("1", "1"), "a")
		b.mustSettle(t, boltSettlement(b.due(t, "a")[0], StateDelivered))
		time.Sleep(day - time.Second)
		if again := b.mustAccept(t, boltEvent("1", "1"), "a"); !again.Repeat || again.Deliveries[0].ID != first.Deliveries[0].ID {
			t.Errorf("a second before a day: %+v, want the first receipt", again)
		}
		time.Sleep(DefaultPurgeInterval + 2*time.Minute)
		if again := b.mustAccept(t, boltEvent("1", "1"), "a"); again.Repeat {
			t.Error("after a day and a pass the same id is still a repeat")
		}
		stop()
		b.mustEnd(t)
	})
}

// TestPurgeByItsOwnTime: where the dead go before the delivered, neither takes the other with it.
func TestPurgeByItsOwnTime(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openPurge(t, folder, 0, Keep{Delivered: 4 * day, Dead: 2 * day})
		stop := b.run(t)
		for id, end := range map[string]State{"delivered": StateDelivered, "dead": StateDead} {
			r := b.mustAccept(t, boltEvent(id, "1"), "a")
			b.mustSettle(t, boltSettlement(b.delivery(t, r.Deliveries[0].ID), end))
		}
		b.mustAccept(t, boltEvent("nobody", "1"))
		time.Sleep(2*day + time.Hour)
		if got, want := b.known(t, "delivered", "dead", "nobody"), []string{"delivered", "nobody"}; !slices.Equal(got, want) {
			t.Errorf("after two days there are %q, want %q", got, want)
		}
		time.Sleep(2 * day)
		if got := b.known(t, "delivered", "dead", "nobody"); len(got) != 0 {
			t.Errorf("after four days there are %q, want none", got)
		}
		stop()
		b.mustEnd(t)
	})
}

// TestPurgeGoesOverManyRows: more than a step reads or deletes, beside an event with more attempts than a step deletes.
func TestPurgeGoesOverManyRows(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openPurge(t, folder, 0, Keep{})
		now := time.Now()
		b.write(t, recordsBulk{rows: 1, first: now.Add(-120 * day), endpoint: "a", state: StateDead, attempts: 3*stepChange + 1})
		b.write(t, recordsBulk{rows: stepScan + 10, first: now.Add(-110 * day), endpoint: "b", state: StateWaiting})
		b.write(t, recordsBulk{rows: 2*stepScan + 10, first: now.Add(-40 * day), endpoint: "a", state: StateDelivered, attempts: 1})
		b.write(t, recordsBulk{rows: 50, first: now.Add(-10 * day), endpoint: "a", state: StateDelivered, attempts: 1})
		most := int64(0)
		b.purger.onPurge = func(events, attempts int) {
			most = max(most, int64(events+attempts))
			b.events.Add(int64(events))
			b.attempts.Add(int64(attempts))
		}
		b.mustPass(t)
		if got := b.events.Load(); got != 1+2*stepScan+10 {
			t.Errorf("%d events deleted, want %d", got, 1+2*stepScan+10)
		}
		if got, want := b.attempts.Load(), int64(3*stepChange+1+2*stepScan+10); got != want {
			t.Errorf("%d attempts deleted, want %d", got, want)
		}
		if most > 2*stepChange {
			t.Errorf("a step deleted %d rows, at most %d are due", most, 2*stepChange)
		}
		for name, want := range map[string]int{
			string(eventBucket): stepScan + 60, string(deliveryBucket): stepScan + 60, string(bodyBucket): stepScan + 10,
			string(dueBucket): stepScan + 10, string(attemptBucket): 50, string(deadBucket): 0,
		} {
			if got := b.rows(t, []byte(name)); got != want {
				t.Errorf("%s has %d rows, want %d", name, got, want)
			}
		}
		b.mustEnd(t)
	})
}

// TestPurgeStopsEarly is case 48: what is not old enough is not even read.
func TestPurgeStopsEarly(t *testing.T) {
	t.Parallel()
	b := openPurge(t, t.TempDir(), 0, Keep{})
	now := time.Now()
	old := b.write(t, recordsBulk{rows: 10, first: now.Add(-100 * day), endpoint: "b", state: StateWaiting, attempts: 1})
	b.write(t, recordsBulk{rows: 3 * stepScan, first: now.Add(-20 * day), endpoint: "a", state: StateDelivered, attempts: 1})
	op := &purgeEventsOp{b: b.BoltOutbox}
	last, more, err := b.purger.scanEvents(op, 0)
	if err != nil || more || last != old[9].Event || len(op.events) != 0 {
		t.Errorf("events were read up to %d, more: %v, %v, want the ten old ones", last, more, err)
	}
	log := &purgeAttemptsOp{b: b.BoltOutbox}
	if _, more, err := b.purger.scanAttempts(log, nil, false); err != nil || more || len(log.keys) != 10 {
		t.Errorf("%d attempts to delete, more: %v, %v, want those of the ten", len(log.keys), more, err)
	}
	b.mustEnd(t)
}

// TestPurgeDeletesOnlyWhatItRead: between reading and deleting a dead letter is redelivered.
func TestPurgeDeletesOnlyWhatItRead(t *testing.T) {
	t.Parallel()
	b := openPurge(t, t.TempDir(), 0, Keep{})
	ids := b.write(t, recordsBulk{rows: 2, first: time.Now().Add(-100 * day), endpoint: "a", state: StateDead})
	op := &purgeEventsOp{b: b.BoltOutbox, done: make(chan error, 1)}
	if _, _, err := b.purger.scanEvents(op, 0); err != nil || len(op.events) != 2 {
		t.Fatalf("%d events to delete, %v, want 2", len(op.events), err)
	}
	if changed, err := b.records.Redeliver(t.Context(), ids[0]); err != nil || changed[0].Err != nil {
		t.Fatal(err, changed)
	}
	if err := b.store.Submit(op, store.Lazy); err != nil {
		t.Fatal(err)
	}
	if err := <-op.done; err != nil {
		t.Fatal(err)
	}
	b.mustHave(t, StateWaiting, ids[0])
	if _, err := b.records.Delivery(t.Context(), ids[1]); !errors.Is(err, ErrNotFound) {
		t.Errorf("the other: %v, want ErrNotFound", err)
	}
	if op.purged != 1 {
		t.Errorf("%d events deleted, want 1", op.purged)
	}
	b.mustEnd(t)
}

// TestPurgeStandsStill lets the wall clock jump under a running purger: a jump ahead would make every event old at once.
func TestPurgeStandsStill(t *testing.T) {
	for _, tt := range []struct {
		name string
		jump time.Duration
	}{
		{"a year ahead", 365 * day},
		{"a day and a bit back", -day - time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := openPurge(t, folder, 0, Keep{})
				b.write(t, recordsBulk{rows: 10, first: time.Now().Add(-DefaultKeepDelivered - time.Hour), endpoint: "a", state: StateDelivered, attempts: 1})
				stop := b.run(t)
				b.wall.Store(int64(tt.jump))
				time.Sleep(23 * time.Hour)
				if b.events.Load() != 0 || b.attempts.Load() != 0 || b.purger.StandsStill() == "" {
					t.Errorf("%d events and %d attempts deleted, stands still: %q", b.events.Load(), b.attempts.Load(), b.purger.StandsStill())
				}
				time.Sleep(3 * day)
				if b.events.Load() != 10 || b.purger.StandsStill() != "" {
					t.Errorf("later: %d events deleted, stands still: %q", b.events.Load(), b.purger.StandsStill())
				}
				stop()
				b.mustEnd(t)
			})
		})
	}
}

// TestPurgeBesideDeliveries: events come, are settled and redelivered while old ones are purged, on a disk that fails now
// and then. The check of the file at the end tells whether bodies, counters and indexes are right.
func TestPurgeBesideDeliveries(t *testing.T) {
	t.Parallel()
	b := openPurge(t, t.TempDir(), 0, Keep{})
	old := time.Now().Add(-100 * day)
	delivered := b.write(t, recordsBulk{rows: 3000, first: old, endpoint: "a", state: StateDelivered, attempts: 1})
	gone := func() bool {
		_, err := b.records.Delivery(context.Background(), delivered[len(delivered)-1])
		return errors.Is(err, ErrNotFound)
	}
	dead := b.write(t, recordsBulk{rows: 300, first: old.Add(day), endpoint: "b", state: StateDead, attempts: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var accepted atomic.Int64
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				r, err := b.Accept(context.Background(), boltEvent(fmt.Sprintf("%d-%d", i, n), "1"), []Target{{Endpoint: "a"}, {Endpoint: "c"}})
				if err != nil {
					continue // the disk failed
				}
				accepted.Add(1)
				d := b.delivery(t, r.Deliveries[0].ID)
				if err := b.settle(boltSettlement(d, []State{StateDelivered, StateDead, StateWaiting}[n%3])); err != nil {
					t.Errorf("settle: %v", err)
				}
			}
		})
	}
	wg.Go(func() {
		for _, id := range dead {
			if _, err := b.records.Redeliver(context.Background(), id); err != nil && !errors.Is(err, ErrFull) {
				t.Errorf("redeliver: %v", err)
			}
		}
	})
	for i := 0; i < 10 || i < 1000 && (!gone() || accepted.Load() < 100); i++ {
		if i < 10 {
			b.faults.Next(storetest.Fault{Err: storetest.DiskFull, Written: i%2 == 0})
		}
		if err := b.purger.pass(ctx); err != nil && !errors.Is(err, store.ErrWrite) {
			t.Errorf("pass: %v", err)
		}
	}
	cancel()
	wg.Wait()
	b.mustPass(t)
	left := 0
	for _, id := range dead {
		if _, err := b.records.Delivery(context.Background(), id); err == nil {
			b.mustHave(t, StateWaiting, id)
			left++
		}
	}
	if n := b.rows(t, eventBucket); accepted.Load() == 0 || n < int(accepted.Load())+left {
		t.Errorf("%d events, of which %d were accepted meanwhile and %d redelivered", n, accepted.Load(), left)
	}
	b.mustEnd(t)
}
