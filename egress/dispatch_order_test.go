package egress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDispatchOrder runs the dispatcher on the outbox as it is: an app that is down for forty minutes and then fails now and
// then gets 3,000 events of 30 keys, of each key one at a time and in the order in which they were accepted, with restarts
// in between. None is lost.
func TestDispatchOrder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const keys, events, down = 30, 3000, 40 * time.Minute
		e := appEndpoint(8)
		e.ID = "a"
		r := newDispatchRig(t, e)
		keyOf := make(map[uint64]int) // by Event.Seq; the test's goroutine writes it before anything is sent
		var queued [keys][]uint64     // by key, in their order, those that are not taken yet
		r.sender.send = func(ctx context.Context, _ *Endpoint, ev *Event, attempt int) Result {
			if time.Since(r.sender.start) < down {
				return Result{Outcome: OutcomeConnectRefused}
			}
			r.sender.mu.Lock()
			key := keyOf[ev.Seq]
			if len(queued[key]) == 0 || queued[key][0] != ev.Seq {
				t.Errorf("event %d of key %d is sent out of its turn", ev.Seq, key)
			}
			r.sender.mu.Unlock()
			rnd := rand.New(rand.NewPCG(ev.Seq, uint64(attempt)))
			if rnd.IntN(20) == 0 && attempt < 6 {
				return dispatchAfter(ctx, 10*time.Millisecond, Result{Outcome: OutcomeServerError, Status: 500})
			}
			res := dispatchAfter(ctx, time.Duration(1+rnd.IntN(20))*time.Millisecond, Result{Outcome: OutcomeDelivered, Status: 200})
			if res.delivered() {
				r.sender.mu.Lock()
				queued[key] = queued[key][1:]
				r.sender.mu.Unlock()
			}
			return res
		}
		var b *boltBench
		open := func() {
			b = openBoltOutbox(t, folder, 0, nil)
			r.cfg.Outbox = b
			r.make()
			b.SetChanges(r.d)
			r.run()
		}
		shut := func() {
			r.finish()
			if err := b.end(); err != nil {
				t.Fatal(err)
			}
		}
		open()
		for i := range events {
			ev := boltEvent("", "body")
			key := i * 7 % keys
			ev.Order = fmt.Sprint("repository ", key)
			b.mustAccept(t, ev, "a")
			r.sender.mu.Lock()
			keyOf[ev.Seq] = key
			queued[key] = append(queued[key], ev.Seq)
			r.sender.mu.Unlock()
			time.Sleep(500 * time.Millisecond)
			if i%1000 == 500 {
				shut()
				open()
			}
		}
		time.Sleep(down - time.Since(r.sender.start) + 30*time.Second)
		shut() // in the midst of it
		open()
		time.Sleep(24 * time.Hour)
		if got, want := b.totalsText(), []string{fmt.Sprintf("a %d %d/%d", StateDelivered, events, 4*events)}; !slices.Equal(got, want) {
			t.Errorf("in the end %v, want %v", got, want)
		}
		shut()
	})
}
