package egress

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestDispatchParked: what waits at an endpoint that is disabled, removed or paused is not sent; and goes out once it is enabled
// or resumed.
func TestDispatchParked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		park, resume func(*dispatchRig) error
	}{
		{"disabled",
			func(r *dispatchRig) error { return r.d.Disable(t.Context(), "acme", DisabledPerson) },
			func(r *dispatchRig) error { return r.d.Enable(t.Context(), "acme") }},
		{"paused",
			func(r *dispatchRig) error { r.d.SetPaused(true); return nil },
			func(r *dispatchRig) error { r.d.SetPaused(false); return nil }},
		{"unusable",
			func(r *dispatchRig) error {
				e := dispatchEndpoint("acme", 4)
				e.Unusable = "the secrets cannot be read"
				r.swap(e)
				return nil
			},
			func(r *dispatchRig) error { r.swap(dispatchEndpoint("acme", 4)); return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dispatchBubble(t, func(t *testing.T) {
				r := newDispatchRig(t, dispatchEndpoint("acme", 4))
				r.sender.send = dispatchTake(time.Second)
				r.start()
				defer r.finish()
				r.outbox.accept("acme", 100)
				time.Sleep(1500 * time.Millisecond)
				if err := tt.park(r); err != nil {
					t.Fatal(err)
				}
				before := len(r.sender.to("acme"))
				if before != 8 || !r.d.Parked("acme") {
					t.Errorf("%d attempts, parked %v; want 8, true", before, r.d.Parked("acme"))
				}
				time.Sleep(100 * time.Hour)
				r.outbox.accept("acme", 10)
				time.Sleep(time.Hour)
				if after := len(r.sender.to("acme")); after != before {
					t.Errorf("%d attempts after it was %s", after-before, tt.name)
				}
				// What was in flight has ended as it would have.
				if n := r.outbox.count("acme", StateDelivered); n != 8 {
					t.Errorf("%d delivered, want the 8 that had been begun", n)
				}
				if err := tt.resume(r); err != nil {
					t.Fatal(err)
				}
				if r.d.Parked("acme") {
					t.Error("parked after it was resumed")
				}
				time.Sleep(500 * time.Millisecond)
				if got := r.sender.atOnce("acme"); got != 1 {
					t.Errorf("%d at once at first, want 1", got)
				}
				time.Sleep(time.Minute)
				if n := r.outbox.count("acme", StateDelivered); n != 110 {
					t.Errorf("%d delivered of 110", n)
				}
			})
		})
	}
}

// TestDispatchDisabledOnDisk: what a person wished holds for the next process, too.
func TestDispatchDisabledOnDisk(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 4)).start()
		if err := r.d.Disable(t.Context(), "acme", DisabledPerson); err != nil {
			t.Fatal(err)
		}
		if err := r.d.Disable(t.Context(), "acme", DisabledGone); err != nil {
			t.Fatal(err)
		}
		r.finish()
		r.start()
		r.outbox.accept("acme", 1)
		time.Sleep(time.Hour)
		if h, ok := r.d.HealthOf("acme"); !ok || h.Disabled != DisabledPerson || !r.d.Parked("acme") || len(r.sender.to("acme")) != 0 {
			t.Errorf("health %+v, %d attempts", h, len(r.sender.to("acme")))
		}
		if err := r.d.Enable(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		r.finish()
		if h := r.outbox.healthOf("acme"); h.Disabled != NotDisabled || !h.DisabledAt.IsZero() {
			t.Errorf("%+v on disk after it was enabled", h)
		}
		if n := len(r.told(NoticeDisabled)); n != 0 {
			t.Errorf("told %d times of what a person did", n)
		}
	})
}

// TestDispatchHealthNotKept: a wish that cannot be kept on disk is not in force.
func TestDispatchHealthNotKept(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 4))
		r.cfg.Outbox = dispatchNoHealth{r.outbox}
		r.start()
		defer r.finish()
		if err := r.d.Disable(t.Context(), "acme", DisabledPerson); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		r.outbox.accept("acme", 1)
		synctest.Wait()
		if r.d.Parked("acme") || len(r.sender.to("acme")) != 1 {
			t.Error("the endpoint is disabled all the same")
		}
		if err := r.d.Enable(t.Context(), "acme"); err != nil {
			t.Errorf("enable what is not disabled: %v", err)
		}
		for _, err := range []error{r.d.Enable(t.Context(), "nobody"), r.d.Disable(t.Context(), "nobody", DisabledPerson)} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("%v, want ErrNotFound", err)
			}
		}
		if _, ok := r.d.HealthOf("nobody"); ok || r.d.Parked("nobody") {
			t.Error("an endpoint that is not there has health")
		}
	})
}

type dispatchNoHealth struct{ *dispatchOutbox }

func (dispatchNoHealth) SetHealth(context.Context, string, Health) error { return ErrUnavailable }

// TestDispatchRemoved: nothing more is sent to an endpoint that was removed; one of the same name begins anew.
func TestDispatchRemoved(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 4), dispatchEndpoint("other", 4))
		r.sender.send = dispatchTake(time.Second)
		r.start()
		defer r.finish()
		r.outbox.accept("acme", 100)
		time.Sleep(1500 * time.Millisecond)
		r.swap(dispatchEndpoint("other", 4))
		before := len(r.sender.to("acme"))
		r.outbox.accept("other", 4)
		time.Sleep(time.Hour)
		if after := len(r.sender.to("acme")); after != before || before != 8 {
			t.Errorf("%d attempts before it was removed, %d after", before, after-before)
		}
		if n := r.outbox.count("acme", StateDelivered); n != 8 {
			t.Errorf("%d delivered, want the 8 that had been begun", n)
		}
		if n := r.outbox.count("other", StateDelivered); n != 4 {
			t.Errorf("%d of 4 delivered to the one that stayed", n)
		}
		if _, ok := r.d.HealthOf("acme"); ok {
			t.Error("it has health still")
		}
		r.swap(dispatchEndpoint("other", 4), dispatchEndpoint("acme", 4), dispatchEndpoint("new", 4))
		r.outbox.accept("new", 4)
		time.Sleep(time.Minute)
		if n := r.outbox.count("new", StateDelivered); n != 4 {
			t.Errorf("%d of 4 delivered to a new endpoint", n)
		}
	})
}

// TestDispatchPolicy: a new policy is in force for the next attempt.
func TestDispatchPolicy(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 1))
		r.sender.send = dispatchTake(time.Second)
		r.start()
		defer r.finish()
		r.outbox.accept("acme", 100)
		time.Sleep(10*time.Second + time.Millisecond)
		if n := len(r.sender.to("acme")); n != 11 {
			t.Errorf("%d attempts in 10 s, want 11", n)
		}
		r.swap(dispatchEndpoint("acme", 20))
		synctest.Wait()
		if got := r.sender.atOnce("acme"); got != 20 {
			t.Errorf("%d at once, want 20", got)
		}
	})
}

// TestDispatchGone: 410 disables the endpoint at once and parks its queue; its owner is told once, whatever comes back after it.
func TestDispatchGone(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 8))
		var back atomic.Bool
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if !back.Load() {
				return dispatchAfter(ctx, time.Second, Result{Outcome: OutcomeGone, Status: 410})
			}
			return dispatchTake(0)(ctx, e, ev, n)
		}
		r.start()
		defer r.finish()
		ids := r.outbox.accept("acme", 100)
		time.Sleep(10 * 24 * time.Hour)
		if n := len(r.sender.to("acme")); n != 8 {
			t.Errorf("%d attempts, want the 8 that were in flight", n)
		}
		if n := r.outbox.count("acme", StateWaiting); n != 100 {
			t.Errorf("%d wait of 100", n)
		}
		told := r.told(NoticeDisabled)
		if len(told) != 1 || told[0].Disabled != DisabledGone || told[0].Endpoint != "acme" || told[0].Owner != "acme@example.com" || told[0].Outcome != OutcomeGone {
			t.Errorf("told %+v, want one notice", told)
		}
		if lines := r.lines.of("endpoint.disabled"); len(lines) != 1 || lines[0].level != slog.LevelWarn || lines[0].attrs[keyDisabled] != "gone" {
			t.Errorf("logged %+v, want one line", lines)
		}
		audit := r.lines.of("audit")
		if len(audit) != 1 {
			t.Fatalf("%d lines of the audit log, want one for the disabling", len(audit))
		}
		for _, want := range []string{"who=attempt dlv_", "what=endpoint disable", "endpoint=acme", "before=enabled", "after=disabled gone"} {
			if text := audit[0].attrs["audit"]; !strings.Contains(text, want) {
				t.Errorf("the audit log says %s, without %s", text, want)
			}
		}
		if h := r.outbox.healthOf("acme"); h.Disabled != DisabledGone || h.DisabledAt.IsZero() {
			t.Errorf("%+v on disk", h)
		}
		back.Store(true)
		if err := r.d.Enable(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := r.outbox.count("acme", StateDelivered); n != 100 {
			t.Errorf("%d delivered of 100", n)
		}
		if n := len(r.told(NoticeRecovered)); n != 1 {
			t.Errorf("told %d times of the recovery", n)
		}
		if d := r.outbox.row(ids[0]); d.Attempts != 2 {
			t.Errorf("the first was delivered with %d attempts, want 2", d.Attempts)
		}
	})
}

// TestDispatchFailingForDays: an endpoint that refuses everything for days is disabled after DisableAfter and not before; a
// delivery that ran out of attempts is dead meanwhile.
func TestDispatchFailingForDays(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 8))
		r.sender.send = func(context.Context, *Endpoint, *Event, int) Result {
			return Result{Outcome: OutcomeRejected, Status: 401}
		}
		r.start()
		defer r.finish()
		id := r.outbox.accept("acme", 1)[0]
		time.Sleep(4 * 24 * time.Hour)
		if d := r.outbox.row(id); d.State != StateDead || d.Attempts != 10 {
			t.Errorf("%+v after four days, want it dead", d)
		}
		if h, _ := r.d.HealthOf("acme"); h.Disabled != NotDisabled {
			t.Error("disabled after four days")
		}
		r.outbox.accept("acme", 1)
		time.Sleep(time.Minute)
		if h, _ := r.d.HealthOf("acme"); h.Disabled != NotDisabled {
			t.Error("disabled after four days by another event")
		}
		time.Sleep(50 * time.Hour)
		h, _ := r.d.HealthOf("acme")
		if h.Disabled != DisabledFailing || h.DisabledAt.Sub(r.sender.start) < 5*24*time.Hour {
			t.Errorf("%+v after more than five days", h)
		}
		var percents []int
		for _, n := range r.told(NoticeWarned) {
			percents = append(percents, n.Percent)
		}
		if len(percents) == 0 || percents[0] != 50 || len(r.told(NoticeDisabled)) != 1 {
			t.Errorf("warned at %v, told of disabling %d times", percents, len(r.told(NoticeDisabled)))
		}
	})
}

// TestDispatchRedeliver: a person's wish takes the place of a retry that waits; there are never two.
func TestDispatchRedeliver(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 8))
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if n == 1 {
				return Result{Outcome: OutcomeServerError, Status: 500}
			}
			return dispatchTake(2*time.Second)(ctx, e, ev, n)
		}
		r.start()
		defer r.finish()
		id := r.outbox.accept("acme", 1)[0]
		time.Sleep(3 * time.Second) // the retry is due in one second at the earliest
		redeliver := func(d *Delivery) {
			now := time.Now().UTC().Truncate(time.Millisecond)
			d.State, d.Lane, d.Due, d.Created, d.Attempts, d.Redelivered = StateWaiting, LaneFirst, now, now, 0, true
		}
		r.outbox.change(id, redeliver)
		synctest.Wait()
		if sent := r.sender.to("acme"); len(sent) != 2 || sent[1].at != 3*time.Second {
			t.Errorf("sent %+v, want the redelivery at once", sent)
		}
		if !r.d.InFlight(id) || r.d.InFlightTotal() != 1 {
			t.Error("it is not in flight")
		}
		time.Sleep(time.Hour)
		log := r.outbox.log(id)
		if len(log) != 2 || log[1].Trigger != TriggerRedelivery || log[1].N != 2 {
			t.Errorf("%+v, want one redelivery", log)
		}
		if d := r.outbox.row(id); d.State != StateDelivered || r.d.InFlight(id) {
			t.Errorf("%+v", d)
		}
	})
}

// TestDispatchChangedMeanwhile: what is discarded while it is in flight or waits in memory is not sent again.
func TestDispatchChangedMeanwhile(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 2))
		r.sender.send = func(ctx context.Context, _ *Endpoint, _ *Event, _ int) Result {
			return dispatchAfter(ctx, 10*time.Second, Result{Outcome: OutcomeServerError, Status: 500})
		}
		r.start()
		defer r.finish()
		ids := r.outbox.accept("acme", 4)
		time.Sleep(time.Second)
		for _, id := range ids {
			r.outbox.change(id, func(d *Delivery) { d.State = StateDiscarded })
		}
		time.Sleep(24 * time.Hour)
		if n := len(r.sender.to("acme")); n != 2 {
			t.Errorf("%d attempts, want the 2 that were in flight", n)
		}
		for i, id := range ids {
			if want := 1 - i/2; len(r.outbox.log(id)) != want || r.outbox.row(id).State != StateDiscarded {
				t.Errorf("%d attempts logged, want %d, of one that is %s", len(r.outbox.log(id)), want, r.outbox.row(id).State)
			}
		}
	})
}

// TestDispatchTold: whatever the outbox tells, and however often, a delivery is sent once.
func TestDispatchTold(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 2))
		r.sender.send = dispatchTake(time.Second)
		r.start()
		defer r.finish()
		ids := r.outbox.accept("acme", 6)
		for range 5 {
			var ds []Delivery
			for _, id := range ids {
				if d := r.outbox.row(id); d.State == StateWaiting {
					ds = append(ds, d)
				}
			}
			r.d.Accepted(ds)
			r.d.Accepted(append(ds, Delivery{ID: DeliveryID{1, 99}, Endpoint: "nobody"}))
			r.d.Changed("acme")
			r.d.Accepted(ds)
			r.d.Changed("")
			r.d.Changed("nobody")
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := len(r.sender.to("acme")); n != 6 {
			t.Errorf("%d attempts of 6 deliveries", n)
		}
	})
}

// TestDispatchFlood: more is accepted at one go than the dispatcher takes note of; all of it is sent.
func TestDispatchFlood(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 64), dispatchEndpoint("other", 64)).start()
		defer r.finish()
		r.outbox.accept("other", maxNews+1)
		r.outbox.accept("acme", maxNews/2+1)
		time.Sleep(time.Minute)
		if a, b := r.outbox.count("acme", StateDelivered), r.outbox.count("other", StateDelivered); a != maxNews/2+1 || b != maxNews+1 {
			t.Errorf("%d and %d delivered", a, b)
		}
	})
}

// TestDispatchMissedNews: more news than are kept may be of either lane, and both are looked at again.
func TestDispatchMissedNews(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 8)).start()
		defer r.finish()
		r.outbox.accept("acme", 1) // so that all is known of the endpoint
		synctest.Wait()
		for i, attempts := range []int{0, 1} {
			r.outbox.fill("acme", 10, time.Now().UTC(), attempts)
			r.d.Accepted(make([]Delivery, maxNews+1))
			synctest.Wait()
			if n := r.outbox.count("acme", StateDelivered); n != 1+10*(i+1) {
				t.Errorf("after %d attempts: %d delivered", attempts, n)
			}
		}
	})
}
