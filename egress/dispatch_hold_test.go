package egress

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDispatchHold: an endpoint that cannot be reached for two hours is probed, and what waits there uses no attempts.
func TestDispatchHold(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		const down = 2 * time.Hour
		e := dispatchEndpoint("acme", 8)
		e.Policy.Rate = 50
		r := newDispatchRig(t, e)
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if time.Since(r.sender.start) < down {
				return Result{Outcome: OutcomeConnectRefused}
			}
			return dispatchTake(10*time.Millisecond)(ctx, e, ev, n)
		}
		r.start()
		defer r.finish()
		ids := r.outbox.accept("acme", 1000)
		time.Sleep(down)
		sent := r.sender.to("acme")
		// Those that were in flight when the first came back, up to 8, and then probes alone, 5 min apart in the end.
		if n := len(sent); n < 1+24 || n > 8+31 {
			t.Errorf("%d attempts in two hours", n)
		}
		for i := 1; i < len(sent); i++ {
			if sent[i].at == 0 {
				continue
			}
			if gap := sent[i].at - sent[i-1].at; gap > 5*time.Minute+time.Second || gap < 5*time.Second {
				t.Errorf("probe %d came %v after the last", i, gap)
			}
		}
		spent := 0
		for _, id := range ids {
			spent += r.outbox.row(id).Attempts
		}
		if spent > len(sent) || r.outbox.count("acme", StateWaiting) != 1000 {
			t.Errorf("%d attempts are used up by %d tries, %d wait", spent, len(sent), r.outbox.count("acme", StateWaiting))
		}
		before := len(sent)
		time.Sleep(6 * time.Minute)
		sent = r.sender.to("acme")[before:]
		if len(sent) < 900 {
			t.Fatalf("%d attempts after it came back", len(sent))
		}
		if n := r.outbox.count("acme", StateDelivered); n != 1000 {
			t.Errorf("%d delivered of 1000", n)
		}
		dispatchWithin(t, sent, time.Second, 51)
		// Slowly at first: one, then two at once, and so on.
		if first, third := sent[0].at, sent[2].at; third-first < 20*time.Millisecond {
			t.Errorf("the third attempt came %v after the probe", third-first)
		}
	})
}

// dispatchWithin checks that no more than most attempts were made within any such time.
func dispatchWithin(t *testing.T, sent []dispatchSent, span time.Duration, most int) {
	t.Helper()
	from := 0
	for i := range sent {
		for sent[i].at-sent[from].at >= span {
			from++
		}
		if i-from+1 > most {
			t.Fatalf("%d attempts within %v at %v, want at most %d", i-from+1, span, sent[i].at, most)
		}
	}
}

// TestDispatchProbes: when they come, which deliveries they are of, and what they cost these.
func TestDispatchProbes(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		e := dispatchEndpoint("acme", 1)
		e.Policy.Schedule.JitterPercent = 0
		r := newDispatchRig(t, e)
		r.sender.send = func(context.Context, *Endpoint, *Event, int) Result {
			return Result{Outcome: OutcomeUnavailable, Status: 503}
		}
		r.start()
		defer r.finish()
		ids := r.outbox.accept("acme", 1)
		time.Sleep(14 * time.Minute)
		type try struct {
			at      time.Duration
			trigger Trigger
			counted bool
		}
		var got []try
		for _, a := range r.outbox.log(ids[0]) {
			got = append(got, try{a.At.Sub(r.sender.start.UTC().Truncate(0)), a.Trigger, a.Counted})
		}
		// Due at 5s, and then at 5s+5m. The hold begins at 0: probes at 5s, 15s, 35s, 75s, 155s, 315s, 615s.
		want := []try{
			{0, TriggerSchedule, true},
			{5 * time.Second, TriggerProbe, true},
			{15 * time.Second, TriggerProbe, false},
			{35 * time.Second, TriggerProbe, false},
			{75 * time.Second, TriggerProbe, false},
			{155 * time.Second, TriggerProbe, false},
			{315 * time.Second, TriggerProbe, true},
			{615 * time.Second, TriggerProbe, false},
		}
		if !slices.Equal(got, want) {
			t.Errorf("tries %v\nwant  %v", got, want)
		}
		if d := r.outbox.row(ids[0]); d.Attempts != 3 || d.Tries != 8 {
			t.Errorf("%d attempts, %d tries; want 3 and 8", d.Attempts, d.Tries)
		}
	})
}

// TestDispatchProbeOfTheLongestDue: each probe is of what has been due longest, so that none is tried again and again.
func TestDispatchProbeOfTheLongestDue(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 1))
		r.sender.send = func(context.Context, *Endpoint, *Event, int) Result { return Result{Outcome: OutcomeConnectRefused} }
		now := time.Now()
		newest := r.outbox.fill("acme", 1, now.Add(-time.Minute), 0)[0]
		oldest := r.outbox.fill("acme", 1, now.Add(-time.Hour), 2)[0]
		middle := r.outbox.fill("acme", 1, now.Add(-30*time.Minute), 2)[0]
		r.outbox.health["acme"] = Health{HoldStep: 3, HeldUntil: now.Add(20 * time.Second).UTC()}
		r.start()
		defer r.finish()
		time.Sleep(2*time.Minute + time.Second)
		var got []uint64
		for _, s := range r.sender.to("acme") {
			got = append(got, s.id)
		}
		// The hold is that of before the restart: at 20s, then 40s and 80s later.
		if want := []uint64{oldest.Event, middle.Event}; !slices.Equal(got, want) {
			t.Errorf("probed %v, want %v, and not %v", got, want, newest.Event)
		}
		if at := r.sender.to("acme")[0].at; at != 20*time.Second {
			t.Errorf("the first probe came at %v, want 20s", at)
		}
	})
}

// TestDispatchRetryAfterOfEndpoint: 429 with Retry-After keeps the whole endpoint back for so long.
func TestDispatchRetryAfterOfEndpoint(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 1))
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if time.Since(r.sender.start) < 10*time.Minute {
				return Result{Outcome: OutcomeThrottled, Status: 429, RetryAfter: 10 * time.Minute}
			}
			return dispatchTake(0)(ctx, e, ev, n)
		}
		r.start()
		defer r.finish()
		r.outbox.accept("acme", 50)
		time.Sleep(10*time.Minute - time.Millisecond)
		if n := len(r.sender.to("acme")); n != 1 {
			t.Errorf("%d attempts before the time that it asked for, want 1", n)
		}
		r.outbox.accept("acme", 50)
		time.Sleep(3 * time.Minute)
		if n := r.outbox.count("acme", StateDelivered); n != 100 {
			t.Errorf("%d delivered of 100", n)
		}
	})
}

// TestDispatchHoldOfOthers: a hold is of one endpoint.
func TestDispatchHoldOfOthers(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("down", 8), dispatchEndpoint("up", 8))
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if e.ID == "down" {
				return Result{Outcome: OutcomeConnectRefused}
			}
			return dispatchTake(0)(ctx, e, ev, n)
		}
		r.start()
		defer r.finish()
		for range 100 {
			r.outbox.accept("down", 10)
			r.outbox.accept("up", 1)
			synctest.Wait()
			if n := r.outbox.count("up", StateWaiting); n != 0 {
				t.Fatalf("%d wait at the endpoint that is up", n)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestDispatchResolverDown: while our own resolver is down for a day, no attempt is used, and all is delivered after it.
func TestDispatchResolverDown(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 8))
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if time.Since(r.sender.start) < 24*time.Hour {
				return Result{Outcome: OutcomeResolverFailed}
			}
			return dispatchTake(time.Millisecond)(ctx, e, ev, n)
		}
		r.start()
		defer r.finish()
		ids := r.outbox.accept("acme", 500)
		time.Sleep(24 * time.Hour)
		if n := len(r.sender.to("acme")); n > 310 {
			t.Errorf("%d attempts in a day, want one in 5 min", n)
		}
		time.Sleep(10 * time.Minute)
		for _, id := range ids {
			if d := r.outbox.row(id); d.State != StateDelivered || d.Attempts != 1 {
				t.Fatalf("%+v, want it delivered at the first attempt that counts", d)
			}
		}
	})
}

// TestDispatchNotReached: what met nothing but faults before the receiver for the length of its schedule is dead.
func TestDispatchNotReached(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 8))
		r.sender.send = func(context.Context, *Endpoint, *Event, int) Result { return Result{Outcome: OutcomeProxyFailed} }
		r.start()
		defer r.finish()
		id := r.outbox.accept("acme", 1)[0]
		time.Sleep(75 * time.Hour)
		if d := r.outbox.row(id); d.State != StateWaiting || d.Attempts != 0 {
			t.Errorf("%+v after 75 h, want it waiting", d)
		}
		time.Sleep(time.Hour)
		if d := r.outbox.row(id); d.State != StateDead || !d.NotReached || d.Attempts != 0 {
			t.Errorf("%+v after 76 h, want it dead, not reached", d)
		}
		if told := r.told(NoticeDead); len(told) != 1 || !told[0].NotReached {
			t.Errorf("told %+v", told)
		}
		if h, _ := r.d.HealthOf("acme"); !h.FailingSince.IsZero() {
			t.Errorf("the endpoint is failing since %v; the fault was the proxy's", h.FailingSince)
		}
	})
}
