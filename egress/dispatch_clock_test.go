package egress

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestDispatchClockJump: the wall clock jumps while deliveries wait; they neither stall nor storm.
func TestDispatchClockJump(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{-time.Hour, 25 * time.Hour, -25 * time.Hour, 1500 * time.Millisecond} {
		for _, waiting := range []int{20, 5 * laneWindow} { // in memory, and more than are kept there
			t.Run(fmt.Sprint(jump, waiting), func(t *testing.T) {
				dispatchBubble(t, func(t *testing.T) {
					e := dispatchEndpoint("acme", 64)
					e.Policy.Schedule = Schedule{Waits: []time.Duration{10 * time.Minute, 10 * time.Minute}}
					r := newDispatchRig(t, e)
					var offset atomic.Int64
					r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
						if n < 3 {
							return Result{Outcome: OutcomeServerError, Status: 500}
						}
						return dispatchTake(0)(ctx, e, ev, n)
					}
					r.make()
					r.d.clock.wall = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
					r.run()
					defer r.finish()
					r.outbox.accept("acme", waiting)
					time.Sleep(5 * time.Minute)
					if n := len(r.sender.to("acme")); n != waiting {
						t.Fatalf("%d first attempts of %d", n, waiting)
					}
					offset.Store(int64(jump))
					time.Sleep(time.Minute)
					r.d.Changed("acme") // what is in memory is read again
					time.Sleep(4*time.Minute - 10*time.Second)
					if n := len(r.sender.to("acme")); n != waiting {
						t.Errorf("%d retries before their time", n-waiting)
					}
					time.Sleep(20 * time.Second)
					if n := len(r.sender.to("acme")); n != 2*waiting {
						t.Errorf("%d of %d retries ten minutes after the first attempts", n-waiting, waiting)
					}
					time.Sleep(5 * time.Minute)
					offset.Store(0) // and back
					time.Sleep(5 * time.Minute)
					if n := r.outbox.count("acme", StateDelivered); n != waiting {
						t.Errorf("%d delivered of %d, twenty minutes after the first attempts", n, waiting)
					}
					// New events are sent at once under every clock.
					r.outbox.accept("acme", 1)
					synctest.Wait()
					if n := len(r.sender.to("acme")); n != 3*waiting+1 {
						t.Errorf("a new event was not sent at once")
					}
				})
			})
		}
	}
}

// TestDispatchClockRedelivered: what a person asks for after a jump is sent at once, also where retries wait by the old clock.
func TestDispatchClockRedelivered(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{-25 * time.Hour, 25 * time.Hour} {
		t.Run(fmt.Sprint(jump), func(t *testing.T) {
			dispatchBubble(t, func(t *testing.T) {
				const waiting = laneWindow - 1
				e := dispatchEndpoint("acme", 64)
				e.Policy.Schedule.Waits = []time.Duration{time.Hour}
				r := newDispatchRig(t, e)
				var offset atomic.Int64
				r.sender.send = func(context.Context, *Endpoint, *Event, int) Result {
					return Result{Outcome: OutcomeServerError, Status: 500}
				}
				r.make()
				r.d.clock.wall = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
				r.run()
				defer r.finish()
				ids := r.outbox.accept("acme", waiting)
				time.Sleep(time.Minute)
				offset.Store(int64(jump))
				r.outbox.change(ids[7], func(d *Delivery) {
					now := r.d.clock.now()
					d.Lane, d.Due, d.Created, d.Attempts, d.Redelivered = LaneRetry, now, now, 0, true
				})
				time.Sleep(time.Minute)
				sent := r.sender.to("acme")
				if len(sent) != waiting+1 || sent[waiting].id != ids[7].Event || sent[waiting].at != time.Minute {
					t.Errorf("%d attempts after it was asked for, want that one", len(sent)-waiting)
				}
			})
		})
	}
}

// TestDispatchClockWhileHeld: neither does a probe wait for the wall clock.
func TestDispatchClockWhileHeld(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{-25 * time.Hour, 25 * time.Hour} {
		t.Run(fmt.Sprint(jump), func(t *testing.T) {
			dispatchBubble(t, func(t *testing.T) {
				r := newDispatchRig(t, dispatchEndpoint("acme", 1))
				var offset atomic.Int64
				r.sender.send = func(context.Context, *Endpoint, *Event, int) Result { return Result{Outcome: OutcomeConnectRefused} }
				r.make()
				r.d.clock.wall = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
				r.run()
				defer r.finish()
				r.outbox.accept("acme", 10)
				time.Sleep(2 * time.Second)
				offset.Store(int64(jump))
				time.Sleep(34 * time.Second)
				var at []time.Duration
				for _, s := range r.sender.to("acme") {
					at = append(at, s.at.Round(time.Second))
				}
				if got, want := fmt.Sprint(at), "[0s 5s 15s 35s]"; got != want {
					t.Errorf("tried at %s, want %s", got, want)
				}
			})
		})
	}
}

// TestDispatchRestartClock: after a restart due times are those of the wall clock, but nothing waits for longer than its schedule.
func TestDispatchRestartClock(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		e := dispatchEndpoint("acme", 8)
		e.Policy.Schedule.JitterPercent = 0
		r := newDispatchRig(t, e)
		now := time.Now()
		soon := r.outbox.fill("acme", 1, now.Add(7*time.Minute), 2)[0]
		// The last process had a clock that was a year ahead.
		wrong := r.outbox.fill("acme", 1, now.Add(365*24*time.Hour), 2)[0]
		r.start()
		defer r.finish()
		time.Sleep(7*time.Minute - time.Millisecond)
		if n := len(r.sender.to("acme")); n != 0 {
			t.Errorf("%d attempts too early", n)
		}
		time.Sleep(time.Second)
		if d := r.outbox.row(soon); d.State != StateDelivered {
			t.Errorf("%+v, want it delivered when it was due", d)
		}
		time.Sleep(49 * time.Hour)
		if d := r.outbox.row(wrong); d.State != StateDelivered {
			t.Errorf("%+v, want it delivered after the longest wait that there is", d)
		}
	})
}

// TestDispatchRestart: a start with a backlog is quick and calm.
func TestDispatchRestart(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		e := dispatchEndpoint("acme", 32)
		e.Policy.Rate = 200
		r := newDispatchRig(t, e)
		r.sender.send = dispatchTake(50 * time.Millisecond)
		r.outbox.fill("acme", 20_000, time.Now().Add(-time.Hour), 0)
		r.start()
		defer r.finish()
		time.Sleep(49 * time.Millisecond)
		if n := len(r.sender.to("acme")); n != 1 {
			t.Errorf("%d attempts at first, want 1, at once", n)
		}
		time.Sleep(100 * time.Millisecond)
		if n := len(r.sender.to("acme")); n > 1+2+4 {
			t.Errorf("%d attempts after two rounds, want at most 7", n)
		}
		time.Sleep(2 * time.Minute)
		if n := r.outbox.count("acme", StateDelivered); n != 20_000 {
			t.Errorf("%d delivered", n)
		}
		dispatchWithin(t, r.sender.to("acme"), time.Second, 202)
		if reads := r.outbox.dueReads(); reads > 20_000/laneWindow+50 {
			t.Errorf("the outbox was read %d times", reads)
		}
	})
}

// TestDispatchSpread: deliveries that failed together do not come back together.
func TestDispatchSpread(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		const n = 10_000
		r := newDispatchRig(t, dispatchEndpoint("acme", 512))
		r.sender.send = func(context.Context, *Endpoint, *Event, int) Result {
			return Result{Outcome: OutcomeServerError, Status: 500}
		}
		ids := r.outbox.fill("acme", n, time.Now(), 1)
		r.start()
		time.Sleep(4 * time.Minute)
		r.finish()
		var buckets [12]int // of ten seconds each, from four to six minutes
		for _, id := range ids {
			d := r.outbox.row(id)
			wait := d.Due.Sub(r.outbox.log(id)[0].At)
			if d.Attempts != 2 || wait < 4*time.Minute || wait > 6*time.Minute+time.Millisecond {
				t.Fatalf("attempt %d is followed by a wait of %v", d.Attempts, wait)
			}
			buckets[min(11, (wait-4*time.Minute)/(10*time.Second))]++
		}
		for i, got := range buckets {
			if got < n/12*8/10 || got > n/12*12/10 {
				t.Errorf("%d of %d come back in the ten seconds number %d, want about %d", got, n, i, n/12)
			}
		}
	})
}

// TestDispatchSpreadOfProcesses: nor do those of two processes that failed together, as after a fault of what all share.
func TestDispatchSpreadOfProcesses(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		waits := func() (ws []time.Duration) {
			r := newDispatchRig(t, dispatchEndpoint("acme", 1))
			r.sender.send = func(context.Context, *Endpoint, *Event, int) Result {
				return Result{Outcome: OutcomeServerError, Status: 500}
			}
			ids := r.outbox.fill("acme", 20, time.Now(), 1)
			r.start()
			time.Sleep(time.Minute)
			r.finish()
			for _, id := range ids {
				ws = append(ws, r.outbox.row(id).Due.Sub(r.outbox.log(id)[0].At))
			}
			return ws
		}
		if a, b := waits(), waits(); slices.Equal(a, b) {
			t.Errorf("two processes wait alike: %v", a)
		}
	})
}
