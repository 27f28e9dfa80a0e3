package egress

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// appEndpoint is one whose hold is that of an app beside us.
func appEndpoint(inFlight int) *Endpoint {
	e := dispatchEndpoint("app", inFlight)
	e.Policy.FirstHold, e.Policy.LongestHold, e.Policy.HoldOnlyUnreached = time.Second, 30*time.Second, true
	e.Policy.DisableAfter = 0
	return e
}

// TestDispatchHoldOfPolicy: the first probe and the longest wait are those of the policy.
func TestDispatchHoldOfPolicy(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, appEndpoint(1))
		var up atomic.Bool
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if !up.Load() {
				return Result{Outcome: OutcomeConnectRefused}
			}
			return dispatchTake(0)(ctx, e, ev, n)
		}
		r.start()
		defer r.finish()
		r.outbox.accept("app", 100)
		time.Sleep(2*time.Minute + 20*time.Second)
		var got []time.Duration
		for _, s := range r.sender.to("app") {
			got = append(got, s.at/time.Second)
		}
		// 1s, 2s, 4s, 8s, 16s after each other, then 30s.
		if want := []time.Duration{0, 1, 3, 7, 15, 31, 61, 91, 121}; !slices.Equal(got, want) {
			t.Errorf("attempts at the seconds %d, want %d", got, want)
		}
		up.Store(true)
		time.Sleep(30 * time.Second)
		// What the probes were of is due again later.
		if n := r.outbox.count("app", StateDelivered); n < 90 {
			t.Errorf("%d delivered of 100 within 30s of its return", n)
		}
	})
}

// TestDispatchProbesAnother: a probe is never of the delivery that the one before was of, unless there is no other.
func TestDispatchProbesAnother(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		for _, events := range []int{1, 2, 3, 300} {
			r := newDispatchRig(t, appEndpoint(1))
			r.sender.send = func(context.Context, *Endpoint, *Event, int) Result { return Result{Outcome: OutcomeConnectRefused} }
			r.start()
			r.outbox.accept("app", events)
			time.Sleep(4 * time.Hour)
			sent := r.sender.to("app")
			if len(sent) < 4*60 {
				t.Errorf("%d events: %d attempts in four hours", events, len(sent))
			}
			for i := 1; i < len(sent); i++ {
				if again := sent[i].id == sent[i-1].id; again != (events == 1) {
					t.Errorf("%d events: probe %d at %v is of the one before: %v", events, i, sent[i].at, again)
					break
				}
			}
			r.finish()
		}
	})
}

// TestDispatchHoldOnlyUnreached: what an app answers holds nothing but its event, which comes again not before the time that
// the app asked for; only where nobody answers everything is held.
func TestDispatchHoldOnlyUnreached(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result Result
		others bool          // are delivered meanwhile
		again  time.Duration // the first retry is not before
	}{
		{"429", Result{Outcome: OutcomeThrottled, Status: 429, RetryAfter: time.Minute}, true, time.Minute},
		{"502", Result{Outcome: OutcomeUnavailable, Status: 502}, true, 4 * time.Second},
		{"503", Result{Outcome: OutcomeUnavailable, Status: 503, RetryAfter: 10 * time.Minute}, true, 10 * time.Minute},
		{"504", Result{Outcome: OutcomeUnavailable, Status: 504}, true, 4 * time.Second},
		{"500", Result{Outcome: OutcomeServerError, Status: 500}, true, 4 * time.Second},
		{"a reset under the request", Result{Outcome: OutcomeConnectionReset}, true, 4 * time.Second},
		{"refused", Result{Outcome: OutcomeConnectRefused}, false, 0},
		{"no connection in time", Result{Outcome: OutcomeConnectTimeout}, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dispatchBubble(t, func(t *testing.T) {
				r := newDispatchRig(t, appEndpoint(1))
				var bad uint64
				r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
					if ev.Seq == bad && n == 1 {
						return tt.result
					}
					return dispatchTake(0)(ctx, e, ev, n)
				}
				ids := r.outbox.fill("app", 50, time.Now(), 0)
				bad = ids[0].Event
				r.start()
				defer r.finish()
				time.Sleep(500 * time.Millisecond)
				if n := r.outbox.count("app", StateDelivered); (n == 49) != tt.others {
					t.Errorf("%d delivered beside it, want all: %v", n, tt.others)
				}
				if h, _ := r.d.HealthOf("app"); h.Held() == tt.others {
					t.Errorf("held: %v", h.Held())
				}
				time.Sleep(15 * time.Minute)
				if n := r.outbox.count("app", StateDelivered); n != 50 {
					t.Errorf("%d delivered in the end", n)
				}
				for _, s := range r.sender.to("app") {
					if s.id == bad && s.attempt == 2 && s.at < tt.again {
						t.Errorf("it came again after %v", s.at)
					}
				}
			})
		})
	}
}

// TestDispatchAnswerEndsHold: once the app answers at all, it is there, and everything is tried, though nothing is taken.
func TestDispatchAnswerEndsHold(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, appEndpoint(4))
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			switch at := time.Since(r.sender.start); {
			case at < 6*time.Second:
				return Result{Outcome: OutcomeConnectRefused}
			case at < 10*time.Second:
				return Result{Outcome: OutcomeServerError, Status: 500}
			}
			return dispatchTake(0)(ctx, e, ev, n)
		}
		r.start()
		defer r.finish()
		r.outbox.accept("app", 50)
		time.Sleep(8 * time.Second) // the third probe, at 7s, is answered
		synctest.Wait()
		if h, _ := r.d.HealthOf("app"); h.Held() {
			t.Error("held after an answer")
		}
		if n := len(r.sender.to("app")); n < 50 {
			t.Errorf("%d attempts, want one of each event at least", n)
		}
	})
}

// TestDispatchProbesAppAtStart: an app that was away when we stopped is probed when we start, and not where the hold had got to.
func TestDispatchProbesAppAtStart(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		e := appEndpoint(1)
		r := newDispatchRig(t, e)
		up := false
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if !up {
				return Result{Outcome: OutcomeConnectRefused}
			}
			return dispatchTake(0)(ctx, e, ev, n)
		}
		r.start()
		r.outbox.accept("app", 20)
		time.Sleep(10*time.Minute + time.Second) // the next probe is 30s after the last
		r.finish()
		up = true
		r.make()
		r.run()
		defer r.finish()
		time.Sleep(time.Second)
		if n := r.outbox.count("app", StateDelivered); n != 20 {
			t.Errorf("%d delivered of 20 a second after the start", n)
		}
	})
}
