package egress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// TestDispatchStop: what is in flight at the end has the grace to end itself; the rest is cut off, and none of it counts.
func TestDispatchStop(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		const n, cut = 200, 50
		r := newDispatchRig(t, dispatchEndpoint("acme", n), dispatchEndpoint("slow", n))
		r.cfg.Grace = 10 * time.Second
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, attempt int) Result {
			if e.ID == "slow" {
				return dispatchTake(14*time.Second)(ctx, e, ev, attempt)
			}
			return dispatchTake(5*time.Second)(ctx, e, ev, attempt)
		}
		r.start()
		for _, id := range []string{"acme", "slow"} {
			r.outbox.accept(id, 1) // once it has taken one, it may use its whole limit
		}
		time.Sleep(time.Minute)
		r.outbox.accept("acme", n-cut)
		slow := r.outbox.accept("slow", cut)
		time.Sleep(time.Second)
		if got := r.sender.inFlight(); got != n {
			t.Fatalf("%d in flight, want %d", got, n)
		}
		began := time.Now()
		r.cancel()
		synctest.Wait()
		late := r.outbox.accept("acme", 10) // accepted while it stops: for the next process
		r.finish()
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("stopping took %v, want the grace", took)
		}
		if got := r.outbox.count("acme", StateDelivered); got != n-cut+1 {
			t.Errorf("%d delivered within the grace, want %d", got, n-cut+1)
		}
		for _, id := range slow {
			log := r.outbox.log(id)
			if len(log) != 1 || log[0].Outcome != OutcomeInterrupted || log[0].Counted || log[0].Detail == "" {
				t.Fatalf("logged %+v, want one attempt that was interrupted", log)
			}
			if d := r.outbox.row(id); d.State != StateWaiting || d.Attempts != 0 || d.Lane != LaneFirst {
				t.Fatalf("%+v, want it to wait as before", d)
			}
		}
		for _, id := range late {
			if len(r.outbox.log(id)) != 0 {
				t.Error("an attempt was begun after the stop")
			}
		}
		// The next process goes on where this one ended.
		r.start()
		time.Sleep(10 * time.Minute)
		r.finish()
		for _, id := range append(slow, late...) {
			if d := r.outbox.row(id); d.State != StateDelivered || d.Attempts != 1 {
				t.Fatalf("%+v after the next start, want it delivered at the first attempt", d)
			}
		}
		for _, s := range r.sender.to("slow")[1+cut:] {
			if s.attempt != 2 {
				t.Fatalf("the next try is number %d, want 2", s.attempt)
			}
		}
	})
}

// TestDispatchStopIdle: a stop takes no time when nothing is in flight, and Run runs once.
func TestDispatchStopIdle(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 1)).start()
		r.outbox.accept("acme", 3)
		time.Sleep(time.Second)
		began := time.Now()
		r.finish()
		if took := time.Since(began); took != 0 {
			t.Errorf("stopping took %v", took)
		}
		if err := r.d.Run(t.Context()); err == nil {
			t.Error("ran twice")
		}
	})
}

// TestDispatchMark: an attempt that takes long leaves a mark on disk, so that a kill is known; fast ones leave none.
func TestDispatchMark(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("fast", 8), dispatchEndpoint("slow", 8))
		marks := &dispatchMarks{dispatchOutbox: r.outbox}
		r.cfg.Outbox = marks
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
			if e.ID == "fast" {
				return dispatchTake(49*time.Millisecond)(ctx, e, ev, n)
			}
			return dispatchTake(3*time.Second)(ctx, e, ev, n)
		}
		r.start()
		defer r.finish()
		r.outbox.accept("fast", 100)
		start := time.Now()
		id := r.outbox.accept("slow", 1)[0]
		time.Sleep(time.Second)
		made := marks.all()
		if len(made) != 1 || made[0].id != id || made[0].trigger != TriggerSchedule {
			t.Fatalf("marked %+v, want the slow one once", made)
		}
		if m := made[0]; !m.began.Equal(start) || m.at != 50*time.Millisecond {
			t.Errorf("marked after %v that it began at %v, want 50ms and %v", m.at, m.began, start)
		}
		time.Sleep(time.Minute)
		if n := len(marks.all()); n != 1 {
			t.Errorf("%d marks", n)
		}
	})
}

type dispatchMarks struct {
	*dispatchOutbox
	made []dispatchMark
}

type dispatchMark struct {
	id      DeliveryID
	began   time.Time
	at      time.Duration
	trigger Trigger
}

func (m *dispatchMarks) Mark(d *Delivery, at time.Time, trigger Trigger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made = append(m.made, dispatchMark{d.ID, at, time.Since(at), trigger})
}

func (m *dispatchMarks) all() []dispatchMark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.made)
}

// TestDispatchUnkept: an attempt whose record is refused is not made again: it is recorded before anything else happens to
// the delivery.
func TestDispatchUnkept(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		e := dispatchEndpoint("acme", 8)
		e.Policy.Schedule.JitterPercent = 0
		r := newDispatchRig(t, e)
		r.sender.send = func(context.Context, *Endpoint, *Event, int) Result {
			return Result{Outcome: OutcomeRejected, Status: 403}
		}
		refused := make(map[int]int)
		r.outbox.refuse = func(s *Settlement) error {
			if refused[s.Attempt.N]++; refused[s.Attempt.N] <= 3 {
				return fmt.Errorf("record: %w", ErrUnavailable)
			}
			return nil
		}
		r.start()
		defer r.finish()
		id := r.outbox.accept("acme", 1)[0]
		time.Sleep(5 * 24 * time.Hour)
		if n := len(r.sender.to("acme")); n != 10 {
			t.Errorf("%d attempts, want 10", n)
		}
		if d := r.outbox.row(id); d.State != StateDead || d.Attempts != 10 || len(r.outbox.log(id)) != 10 {
			t.Errorf("%+v with %d attempts logged, want it dead after 10", d, len(r.outbox.log(id)))
		}
	})
}

// TestDispatchStoreEnds: what cannot be recorded must not be sent.
func TestDispatchStoreEnds(t *testing.T) {
	t.Parallel()
	for _, end := range []error{store.ErrSync, store.ErrCorrupt, store.ErrClosed} {
		for _, tt := range []struct {
			name   string
			broken func(*dispatchRig)
		}{
			{"a settlement", func(r *dispatchRig) { r.outbox.refuse = func(*Settlement) error { return end } }},
			{"an event", func(r *dispatchRig) { r.outbox.loadErr = fmt.Errorf("load: %w", end) }},
			{"what is due", func(r *dispatchRig) { r.cfg.Outbox = dispatchNoDue{r.outbox, end} }},
		} {
			t.Run(fmt.Sprint(tt.name, " ", end), func(t *testing.T) {
				dispatchBubble(t, func(t *testing.T) {
					r := newDispatchRig(t, dispatchEndpoint("acme", 1))
					tt.broken(r)
					r.start()
					go r.outbox.accept("acme", 5)
					time.Sleep(time.Minute)
					select {
					case err := <-r.ended:
						if !errors.Is(err, end) {
							t.Errorf("run ended with %v, want %v", err, end)
						}
					default:
						t.Error("it runs on")
						r.cancel()
						<-r.ended
					}
					r.cease()
					if n := len(r.sender.to("acme")); n > 1 {
						t.Errorf("%d attempts", n)
					}
				})
			})
		}
	}
}

type dispatchNoDue struct {
	*dispatchOutbox
	err error
}

func (d dispatchNoDue) Due([]Delivery, string, Lane, *Delivery, int) ([]Delivery, error) {
	return nil, d.err
}

// TestDispatchFaults: faults that are not for ever, and not the receiver's.
func TestDispatchFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before func(*dispatchRig)
		detail string
	}{
		{"the event is gone", func(r *dispatchRig) { r.outbox.loadErr = fmt.Errorf("load: %w", ErrNotFound) }, "the event is gone"},
		{"the event cannot be read", func(r *dispatchRig) { r.outbox.loadErr = errors.New("bad row") }, "the event cannot be read"},
		{"the sender panics", func(r *dispatchRig) {
			r.sender.send = func(context.Context, *Endpoint, *Event, int) Result { panic("at the sender") }
		}, "fault of sidehook, see its log"},
		{"the sender returns nothing", func(r *dispatchRig) {
			r.sender.send = func(context.Context, *Endpoint, *Event, int) Result { return Result{} }
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dispatchBubble(t, func(t *testing.T) {
				r := newDispatchRig(t, dispatchEndpoint("acme", 1))
				tt.before(r)
				r.start()
				id := r.outbox.accept("acme", 1)[0]
				time.Sleep(time.Second)
				log := r.outbox.log(id)
				if len(log) != 1 || log[0].Outcome != OutcomeInternal || log[0].Counted || log[0].Detail != tt.detail {
					t.Fatalf("logged %+v", log)
				}
				if d := r.outbox.row(id); d.State != StateWaiting || d.Attempts != 0 || !d.Due.After(time.Now()) {
					t.Errorf("%+v, want it to be tried later", d)
				}
				r.finish()
			})
		})
	}
}
