package egress

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// What goes to disk in the same commit as the removal of its endpoint, after it: an event is accepted, and cancelled like all
// that waits there; of an attempt nothing is left that would bring the endpoint back.
func TestRemovedInTheSameCommit(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoltOutbox(t, folder, 0, nil)
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- b.Run(ctx) }()
		b.mustAccept(t, boltEvent("before", "body"), "a")
		before := b.due(t, "a")[0]

		entered, goOn := b.faults.Hold()
		go func() { _, _ = b.Accept(context.Background(), boltEvent("busy", ""), nil) }()
		<-entered
		commits := b.commits.Load()
		answers := make(chan error, 3)
		go func() { answers <- b.SetEndpoints(context.Background(), []string{"b", "c"}) }()
		synctest.Wait()
		var id DeliveryID
		go func() {
			r, err := b.Accept(context.Background(), boltEvent("meanwhile", "body"), []Target{{Endpoint: "a"}, {Endpoint: "b"}})
			if err == nil {
				id = r.Deliveries[0].ID
			}
			answers <- err
		}()
		synctest.Wait()
		s := boltSettlement(before, StateWaiting)
		s.Health = &Health{HoldStep: 1, HeldUntil: s.Due}
		b.Settle(s, func(err error) { answers <- err })
		goOn()
		for range cap(answers) {
			if err := <-answers; err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := b.commits.Load() - commits; n > 2 {
			t.Fatalf("%d commits: they were not one", n) // beside that which was held
		}
		time.Sleep(time.Minute) // for Run to cancel

		for _, id := range []DeliveryID{before.ID, id} {
			if row := b.row(t, id); row.State != StateCancelled {
				t.Errorf("%s: %+v, want it cancelled", id, row)
			}
		}
		if got := b.attempts(t, before.ID); len(got) != 1 {
			t.Errorf("%d attempts are logged, want 1", len(got))
		}
		if healths, err := b.Healths(); err != nil || len(healths) != 2 {
			t.Errorf("the health of %v is kept, error %v; want b and c", healths, err)
		}
		if _, err := b.Accept(context.Background(), boltEvent("after", "body"), []Target{{Endpoint: "a"}}); !errors.Is(err, ErrNotFound) {
			t.Errorf("accept afterwards: %v, want ErrNotFound", err)
		}
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if err := b.end(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
	})
}
