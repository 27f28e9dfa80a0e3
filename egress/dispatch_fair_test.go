package egress

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// dispatchHang is a receiver that never answers.
func dispatchHang(ctx context.Context, e *Endpoint) Result {
	return dispatchAfter(ctx, e.Policy.Timeout, Result{Outcome: OutcomeTimeoutHeaders})
}

// TestDispatchHungEndpoint: one endpoint hangs with a backlog of 100,000, and may take all slots; the others do not notice,
// whether it ever worked or not.
func TestDispatchHungEndpoint(t *testing.T) {
	t.Parallel()
	late := func(t *testing.T, hung bool, works time.Duration) (worst time.Duration) {
		endpoints := []*Endpoint{dispatchEndpoint("hung", 512)}
		var names []string
		for c := 'b'; c <= 'z'; c++ {
			names = append(names, string(c))
			endpoints = append(endpoints, dispatchEndpoint(string(c), 8))
		}
		r := newDispatchRig(t, endpoints...)
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if e.ID == "hung" && time.Since(r.sender.start) >= works {
				return dispatchHang(ctx, e)
			}
			return dispatchTake(20*time.Millisecond)(ctx, e, ev, n)
		}
		if hung {
			r.outbox.fill("hung", 100_000, time.Now(), 0) // accepted by this process, so not sent slowly at first
		}
		r.start()
		defer r.finish()
		at := make(map[uint64]time.Duration)
		for range 600 { // a minute, each endpoint 10 events a second
			time.Sleep(100 * time.Millisecond)
			for _, name := range names {
				at[r.outbox.accept(name, 1)[0].Event] = time.Since(r.sender.start)
			}
		}
		time.Sleep(5 * time.Second)
		for _, name := range names {
			sent := r.sender.to(name)
			if len(sent) != 600 {
				t.Errorf("%s got %d of 600", name, len(sent))
			}
			for _, s := range sent {
				worst = max(worst, s.at-at[s.id])
			}
		}
		most := 512 - 32 // as long as it works, all but what is kept for others
		if works == 0 {
			most = 32
		}
		if got := r.sender.mostTo("hung"); got > most || hung && got < most {
			t.Errorf("%d at once to the hung endpoint, want %d", got, most)
		}
		return worst
	}
	for _, tt := range []struct {
		name  string
		hung  bool
		works time.Duration
	}{
		{"alone", false, 0},
		{"beside one that never worked", true, 0},
		{"beside one that worked for a second", true, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dispatchBubble(t, func(t *testing.T) {
				if worst := late(t, tt.hung, tt.works); worst > 0 {
					t.Errorf("an event waited for %v before it was sent", worst)
				}
			})
		})
	}
}

// TestDispatchScarceSlots: with more hung endpoints than there are slots, one that works still gets its turn.
func TestDispatchScarceSlots(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		endpoints := []*Endpoint{dispatchEndpoint("works", 8)}
		for i := range 600 {
			endpoints = append(endpoints, dispatchEndpoint(fmt.Sprint("hung", i), 8))
		}
		r := newDispatchRig(t, endpoints...)
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if e.ID != "works" {
				return dispatchHang(ctx, e)
			}
			return dispatchTake(20*time.Millisecond)(ctx, e, ev, n)
		}
		for _, e := range endpoints[1:] {
			r.outbox.fill(e.ID, 50, time.Now(), 0)
		}
		r.start()
		defer r.finish()
		// Before it is known that they hang they may take all; that is over after two time-outs, and then half is free.
		time.Sleep(31 * time.Second)
		for i := range 100 {
			accepted := time.Since(r.sender.start)
			r.outbox.accept("works", 1)
			time.Sleep(100 * time.Millisecond)
			sent := r.sender.to("works")
			if len(sent) != i+1 || sent[i].at != accepted {
				t.Fatalf("event %d was accepted at %v; sent %+v", i, accepted, sent)
			}
		}
		if r.sender.mostInAll() > DefaultMaxInFlight {
			t.Errorf("%d in flight at once", r.sender.mostInAll())
		}
		// Nor do the hung ones starve each other.
		time.Sleep(10 * time.Minute)
		for _, e := range endpoints[1:] {
			if len(r.sender.to(e.ID)) < 10 {
				t.Fatalf("%s was tried %d times in ten minutes", e.ID, len(r.sender.to(e.ID)))
			}
		}
	})
}

// TestDispatchShare: when slots are scarce, busy endpoints get equal shares, whatever they are allowed alone.
func TestDispatchShare(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		var endpoints []*Endpoint
		for i := range 10 {
			endpoints = append(endpoints, dispatchEndpoint(fmt.Sprint("e", i), 100))
		}
		r := newDispatchRig(t, endpoints...)
		r.cfg.MaxInFlight = 100
		r.sender.send = dispatchTake(time.Second)
		r.start()
		defer r.finish()
		// The first has the system to itself, then the others come.
		r.outbox.accept("e0", 2000)
		time.Sleep(5*time.Second + time.Millisecond)
		if got := r.sender.atOnce("e0"); got < 75 {
			t.Errorf("%d of 100 slots for one that is alone", got)
		}
		for _, e := range endpoints[1:] {
			r.outbox.accept(e.ID, 2000)
		}
		time.Sleep(10 * time.Second)
		for _, e := range endpoints {
			if got := r.sender.atOnce(e.ID); got < 7 || got > 14 {
				t.Errorf("%d slots for %s, want about 10", got, e.ID)
			}
		}
		time.Sleep(5 * time.Minute)
		var done []int
		for _, e := range endpoints {
			done = append(done, r.outbox.count(e.ID, StateDelivered))
		}
		if slices.Min(done) != 2000 {
			t.Errorf("delivered %v, want 2000 each", done)
		}
	})
}

// TestDispatchSlowEndpoint: time-outs take its slots from an endpoint down to one, and successes give them back.
func TestDispatchSlowEndpoint(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 16))
		var works atomic.Bool
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if !works.Load() {
				return dispatchHang(ctx, e)
			}
			return dispatchTake(100*time.Millisecond)(ctx, e, ev, n)
		}
		r.start()
		defer r.finish()
		r.outbox.accept("acme", 15_000)
		time.Sleep(time.Second + 50*time.Millisecond) // between two answers
		if got := r.sender.atOnce("acme"); got != 16 {
			t.Errorf("%d at once at first, want 16", got)
		}
		time.Sleep(2 * time.Minute)
		if got := r.sender.atOnce("acme"); got != 1 {
			t.Errorf("%d at once after two minutes of time-outs, want 1", got)
		}
		works.Store(true)
		time.Sleep(16 * time.Second)
		if got := r.sender.atOnce("acme"); got < 2 {
			t.Errorf("%d at once a second after the first success, want more than 1", got)
		}
		time.Sleep(time.Minute)
		if got := r.sender.atOnce("acme"); got != 16 {
			t.Errorf("%d at once after a minute of successes, want 16", got)
		}
	})
}

// TestDispatchLargeBodies: bodies in flight are in memory. All endpoints together have no more of them than may be, but for one
// each, so that an endpoint that is slow with large ones keeps no other waiting.
func TestDispatchLargeBodies(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("slow", 8), dispatchEndpoint("large", 8), dispatchEndpoint("small", 8))
		r.cfg.MaxBytes = 100
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if e.ID == "slow" {
				return dispatchTake(10*time.Second)(ctx, e, ev, n)
			}
			return dispatchTake(10*time.Millisecond)(ctx, e, ev, n)
		}
		r.outbox.bytes = 25
		r.outbox.fill("slow", 40, time.Now(), 0)
		r.start()
		defer r.finish()
		time.Sleep(time.Second)
		if got := r.sender.atOnce("slow"); got != 4 {
			t.Errorf("%d at once with a quarter of the bytes each, want 4", got)
		}
		accepted := time.Since(r.sender.start)
		r.outbox.accept("large", 3)
		r.outbox.bytes = 0
		r.outbox.accept("small", 3)
		time.Sleep(time.Second)
		for _, name := range []string{"large", "small"} {
			sent := r.sender.to(name)
			if len(sent) != 3 || r.sender.mostTo(name) != 1 || sent[2].at-accepted > 100*time.Millisecond {
				t.Errorf("%s was sent %+v, %d at once, since %v; want three, one after the other and at once", name, sent, r.sender.mostTo(name), accepted)
			}
		}
		time.Sleep(2 * time.Minute)
		if got := len(r.sender.to("slow")); got != 40 {
			t.Errorf("%d of 40 were sent", got)
		}
	})
}
