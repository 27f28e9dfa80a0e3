package egress

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// A delivery may be read from the disk and be on its way before the dispatcher hears that it was accepted.
func TestDispatchAcceptedWhileInFlight(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 4))
		r.sender.send = dispatchTake(time.Second)
		r.start()
		defer r.finish()
		id := r.outbox.fill("acme", 1, time.Now(), 0)[0]
		r.d.Changed("acme")
		synctest.Wait()
		if !r.d.InFlight(id) {
			t.Fatal("it is not in flight")
		}
		r.d.Accepted([]Delivery{r.outbox.row(id)})
		time.Sleep(time.Minute)
		if n := len(r.sender.to("acme")); n != 1 {
			t.Errorf("sent %d times", n)
		}
	})
}

// An answer that comes as the grace ends is an answer: what the receiver took is not sent again by the next process.
func TestDispatchAnswerAtTheCut(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 4))
		r.cfg.Grace = time.Second
		r.sender.send = func(ctx context.Context, _ *Endpoint, _ *Event, _ int) Result {
			<-ctx.Done()
			return Result{Outcome: OutcomeDelivered, Status: 200}
		}
		r.start()
		id := r.outbox.accept("acme", 1)[0]
		synctest.Wait()
		r.finish()
		if d := r.outbox.row(id); d.State != StateDelivered {
			t.Errorf("%+v, want it delivered", d)
		}
		r.start()
		time.Sleep(time.Hour)
		r.finish()
		if n := len(r.sender.to("acme")); n != 1 {
			t.Errorf("sent %d times", n)
		}
	})
}

// What has waited for days because nothing was sent is not at once a dead letter when that ends beside a resolver that is
// down: it has its whole time from then on.
func TestDispatchNotReachedAfterAWait(t *testing.T) {
	const id, days = "acme", 5 * 24 * time.Hour
	for _, tt := range []struct {
		name         string
		stop, resume func(*dispatchRig) error
	}{
		{"disabled",
			func(r *dispatchRig) error { return r.d.Disable(context.Background(), id, DisabledPerson) },
			func(r *dispatchRig) error { return r.d.Enable(context.Background(), id) }},
		{"paused",
			func(r *dispatchRig) error { r.d.SetPaused(true); return nil },
			func(r *dispatchRig) error { r.d.SetPaused(false); return nil }},
		{"unusable",
			func(r *dispatchRig) error {
				e := dispatchEndpoint(id, 4)
				e.Unusable, e.Keys = "its secrets cannot be read", []signature.Key{}
				r.swap(e)
				return nil
			},
			func(r *dispatchRig) error { r.swap(dispatchEndpoint(id, 4)); return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dispatchBubble(t, func(t *testing.T) {
				r := newDispatchRig(t, dispatchEndpoint(id, 4))
				r.sender.send = func(context.Context, *Endpoint, *Event, int) Result { return Result{Outcome: OutcomeResolverFailed} }
				r.start()
				defer r.finish()
				if err := tt.stop(r); err != nil {
					t.Fatal(err)
				}
				d := r.outbox.accept(id, 1)[0]
				time.Sleep(days)
				if n := len(r.sender.to(id)); n != 0 {
					t.Fatalf("sent %d times meanwhile", n)
				}
				if err := tt.resume(r); err != nil {
					t.Fatal(err)
				}
				time.Sleep(75 * time.Hour)
				if row := r.outbox.row(d); row.State != StateWaiting || len(r.sender.to(id)) == 0 {
					t.Errorf("%+v after 75 h and %d tries, want it waiting", row, len(r.sender.to(id)))
				}
				time.Sleep(time.Hour)
				if row := r.outbox.row(d); row.State != StateDead || !row.NotReached {
					t.Errorf("%+v after 76 h, want it dead, not reached", row)
				}
			})
		})
	}
}

// A hold that the last process wrote under a clock far ahead ends all the same.
func TestDispatchHeldByAWrongClock(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 4))
		r.outbox.fill("acme", 3, time.Now(), 1)
		r.outbox.health["acme"] = Health{HoldStep: 3, HeldUntil: time.Now().Add(365 * 24 * time.Hour)}
		r.start()
		defer r.finish()
		time.Sleep(MaxRetryAfter - time.Second)
		if n := len(r.sender.to("acme")); n != 0 {
			t.Errorf("%d attempts before the longest hold that there is", n)
		}
		time.Sleep(time.Minute)
		if n := r.outbox.count("acme", StateDelivered); n != 3 {
			t.Errorf("%d delivered after it, want 3", n)
		}
	})
}

// One that has nearly all slots gives way to one that comes: what it frees goes to that one until both have as many.
func TestDispatchGivesWay(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		first, second := dispatchEndpoint("first", 64), dispatchEndpoint("second", 64)
		first.Policy.Rate = 1 // so that its attempts end one after another
		r := newDispatchRig(t, first, second)
		r.cfg.MaxInFlight = 64
		r.start()
		defer r.finish()
		for _, e := range []*Endpoint{first, second} {
			r.outbox.accept(e.ID, 1) // once it has taken one, it may use more
		}
		time.Sleep(time.Minute)
		r.sender.mu.Lock()
		r.sender.send = dispatchTake(time.Minute)
		r.sender.mu.Unlock()
		r.outbox.accept(first.ID, 500)
		time.Sleep(100 * time.Second)
		if n := r.sender.atOnce(first.ID); n < 58 {
			t.Fatalf("the first has %d slots, want nearly all", n)
		}
		r.outbox.accept(second.ID, 500)
		time.Sleep(30 * time.Second)
		if a, b := r.sender.atOnce(first.ID), r.sender.atOnce(second.ID); b < 30 || a > 34 {
			t.Errorf("the first has %d slots after half a minute and the second %d, want both about 32", a, b)
		}
	})
}

// dispatchSlowRead is an outbox of which something happens while what is due is read.
type dispatchSlowRead struct {
	*dispatchOutbox
	meanwhile func()
}

func (o *dispatchSlowRead) Due(dst []Delivery, endpoint string, lane Lane, after *Delivery, n int) ([]Delivery, error) {
	if f := o.meanwhile; f != nil {
		o.meanwhile = nil
		f()
	}
	return o.dispatchOutbox.Due(dst, endpoint, lane, after, n)
}

// An endpoint is removed and another one of its id added while the disk is slow: what is for the second never goes to the
// first.
func TestDispatchReplacedDuringARead(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		before, after := dispatchEndpoint("acme", 4), dispatchEndpoint("acme", 4)
		r := newDispatchRig(t, before)
		slow := &dispatchSlowRead{dispatchOutbox: r.outbox}
		r.cfg.Outbox = slow
		var got []*Endpoint
		r.sender.send = func(_ context.Context, e *Endpoint, _ *Event, _ int) Result {
			got = append(got, e)
			return Result{Outcome: OutcomeDelivered, Status: 200}
		}
		r.start()
		defer r.finish()
		slow.meanwhile = func() {
			r.swap()
			r.swap(after)
			r.outbox.fill("acme", 1, time.Now(), 0)
		}
		r.d.Changed("acme")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(got) != 1 || got[0] != after {
			t.Errorf("sent %d times, to the endpoint that came: %v", len(got), len(got) > 0 && got[0] == after)
		}
	})
}

// An endpoint goes and comes back, or another one does under its id, while an attempt is in flight: what is to be tried again is
// tried again, by the endpoint in force.
func TestDispatchReplacedDuringAnAttempt(t *testing.T) {
	for name, replace := range map[string]func(r *dispatchRig, next *Endpoint){
		"at once": func(r *dispatchRig, next *Endpoint) {
			r.swap()
			r.swap(next)
		},
		"later": func(r *dispatchRig, next *Endpoint) {
			r.swap()
			time.Sleep(2 * time.Second)
			r.swap(next)
		},
		"after the attempt": func(r *dispatchRig, next *Endpoint) {
			r.swap()
			time.Sleep(20 * time.Second)
			r.swap(next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dispatchBubble(t, func(t *testing.T) {
				before, after := dispatchEndpoint("acme", 4), dispatchEndpoint("acme", 4)
				r := newDispatchRig(t, before)
				var by []*Endpoint
				r.sender.send = func(ctx context.Context, e *Endpoint, _ *Event, attempt int) Result {
					by = append(by, e)
					if attempt == 1 {
						return dispatchAfter(ctx, 10*time.Second, Result{Outcome: OutcomeServerError, Status: 500})
					}
					return Result{Outcome: OutcomeDelivered, Status: 200}
				}
				r.start()
				defer r.finish()
				id := r.outbox.accept("acme", 1)[0]
				synctest.Wait()
				replace(r, after)
				time.Sleep(time.Minute)
				synctest.Wait()
				if d := r.outbox.row(id); d.State != StateDelivered || len(by) != 2 || by[1] != after {
					t.Errorf("sent %d times, %+v, want it delivered by the endpoint that came", len(by), d)
				}
			})
		})
	}
}
