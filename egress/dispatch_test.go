package egress

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDispatchIdle: on an idle system an event is sent with no wait at all; there is no polling.
func TestDispatchIdle(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 8)).start()
		defer r.finish()
		for range 3 {
			time.Sleep(17 * time.Minute)
			accepted := time.Since(r.sender.start)
			id := r.outbox.accept("acme", 1)[0]
			synctest.Wait()
			sent := r.sender.to("acme")
			if last := sent[len(sent)-1]; last.id != id.Event || last.at != accepted || last.attempt != 1 {
				t.Errorf("sent %+v, accepted %v at %v", last, id.Event, accepted)
			}
			if d := r.outbox.row(id); d.State != StateDelivered || d.Attempts != 1 {
				t.Errorf("%+v, want it delivered", d)
			}
		}
		if r.outbox.dueReads() > 2 {
			t.Errorf("the outbox was read %d times, want once for each lane", r.outbox.dueReads())
		}
	})
}

// TestDispatchSchedule follows one delivery through its whole schedule, against a receiver that refuses it every time.
func TestDispatchSchedule(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tt := range []struct {
		jitter    int
		low, high time.Duration
	}{
		{0, 75*time.Hour + 35*time.Minute + 5*time.Second, 75*time.Hour + 35*time.Minute + 5*time.Second},
		{20, day * 252 / 100 / (1e7) * 1e7, day * 378 / 100},
	} {
		for run := range 5 {
			t.Run(fmt.Sprintf("jitter %d, run %d", tt.jitter, run), func(t *testing.T) {
				dispatchBubble(t, func(t *testing.T) {
					e := dispatchEndpoint("acme", 8)
					e.Policy.Schedule.JitterPercent = tt.jitter
					r := newDispatchRig(t, e)
					r.sender.send = func(context.Context, *Endpoint, *Event, int) Result {
						return Result{Outcome: OutcomeRejected, Status: 403}
					}
					r.start()
					defer r.finish()
					id := r.outbox.accept("acme", 1)[0]
					time.Sleep(30 * day)
					log := r.outbox.log(id)
					if len(log) != 10 {
						t.Fatalf("%d attempts, want 10", len(log))
					}
					for i, a := range log {
						if a.N != i+1 || !a.Counted || a.Outcome != OutcomeRejected || a.Status != 403 || a.Trigger != TriggerSchedule {
							t.Errorf("attempt %d is logged as %+v", i+1, a)
						}
					}
					// Due times are kept in milliseconds and never early, so each wait is rounded up by less than one.
					if took := log[9].At.Sub(log[0].At); took < tt.low || took > tt.high+10*time.Millisecond {
						t.Errorf("the schedule took %v, want %v to %v", took, tt.low, tt.high)
					}
					if d := r.outbox.row(id); d.State != StateDead || d.Attempts != 10 || d.NotReached {
						t.Errorf("%+v, want it dead", d)
					}
					if told := r.told(NoticeDead); len(told) != 1 || told[0].Owner != "acme@example.com" || told[0].DeliveryID != id || told[0].EventID == "" {
						t.Errorf("told %+v, want one dead letter", told)
					}
				})
			})
		}
	}
}

// TestDispatchConcurrent: deliveries to one endpoint run side by side, up to its limit, which is never passed.
func TestDispatchConcurrent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		events, limit   int
		all             int // in flight in all
		endpoints       int
		each, commit    time.Duration
		most            time.Duration
		mostOf, mostAll int
	}{
		{"100 events, 100 at once", 100, 100, 512, 1, time.Second, 0, 2500 * time.Millisecond, 100, 100},
		{"8 at once", 100, 8, 512, 1, time.Second, 0, 14 * time.Second, 8, 8},
		{"one at a time", 20, 1, 512, 1, time.Second, 0, 21 * time.Second, 1, 1},
		{"bounded in all", 50, 8, 20, 10, time.Second, 0, 30 * time.Second, 8, 20},
		{"in flight until on disk", 80, 8, 512, 1, 0, 100 * time.Millisecond, 1300 * time.Millisecond, 8, 8},
		{"10,000 due, 10 at once, no time-outs", 10000, 10, 512, 1, 100 * time.Millisecond, 0, 101 * time.Second, 10, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dispatchBubble(t, func(t *testing.T) {
				var endpoints []*Endpoint
				for i := range tt.endpoints {
					endpoints = append(endpoints, dispatchEndpoint(fmt.Sprint("e", i), tt.limit))
				}
				r := newDispatchRig(t, endpoints...)
				r.cfg.MaxInFlight, r.outbox.commit = tt.all, tt.commit
				r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, n int) Result {
					ctx, cancel := context.WithTimeout(ctx, e.Policy.Timeout)
					defer cancel()
					return dispatchTake(tt.each)(ctx, e, ev, n)
				}
				r.start()
				defer r.finish()
				start := time.Now()
				for _, e := range endpoints {
					r.outbox.accept(e.ID, tt.events)
				}
				for r.outbox.count("e0", StateDelivered) < tt.events && time.Since(start) < time.Hour {
					time.Sleep(50 * time.Millisecond)
				}
				if took := time.Since(start); took > tt.most {
					t.Errorf("took %v, want at most %v", took, tt.most)
				}
				time.Sleep(time.Minute)
				for _, e := range endpoints {
					if got := r.sender.mostTo(e.ID); got > tt.mostOf {
						t.Errorf("%d at once to %s, want at most %d", got, e.ID, tt.mostOf)
					}
					if sent := len(r.sender.to(e.ID)); sent != tt.events {
						t.Errorf("%d attempts to %s of %d events", sent, e.ID, tt.events)
					}
				}
				if r.sender.mostInAll() > tt.mostAll {
					t.Errorf("%d at once in all, want at most %d", r.sender.mostInAll(), tt.mostAll)
				}
			})
		})
	}
}

// TestDispatchFirstBeforeRetries: new events pass late retries, which are not starved by them.
func TestDispatchFirstBeforeRetries(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		e := dispatchEndpoint("acme", 1)
		r := newDispatchRig(t, e)
		r.sender.send = dispatchTake(10 * time.Millisecond)
		r.outbox.fill("acme", 1000, time.Now().Add(-time.Hour), 3)
		first := r.outbox.fill("acme", 1000, time.Now().Add(-time.Minute), 0)
		r.start()
		defer r.finish()
		time.Sleep(15 * time.Second)
		isFirst := make(map[uint64]bool)
		for _, id := range first {
			isFirst[id.Event] = true
		}
		sent := r.sender.to("acme")[:1000]
		var retries, gap int
		for _, s := range sent {
			gap++
			if !isFirst[s.id] {
				retries, gap = retries+1, 0
			}
			if gap > 8 {
				t.Fatalf("%d first attempts in a row while retries wait", gap)
			}
		}
		if retries != 125 {
			t.Errorf("%d retries among 1000 attempts, want each eighth", retries)
		}
		if !slices.IsSortedFunc(sent, func(a, b dispatchSent) int { return int(a.at - b.at) }) {
			t.Error("attempts are not in order")
		}
		time.Sleep(time.Hour)
		if n := r.outbox.count("acme", StateDelivered); n != 2000 {
			t.Errorf("%d delivered of 2000", n)
		}
	})
}

// TestDispatchOldestFirst: deliveries go out in the order in which they were accepted, also when there are more than a
// window holds and more come meanwhile.
func TestDispatchOldestFirst(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		r := newDispatchRig(t, dispatchEndpoint("acme", 1))
		r.sender.send = dispatchTake(time.Millisecond)
		want := r.outbox.fill("acme", 3*laneWindow+7, time.Now().Add(-time.Minute), 0)
		r.start()
		defer r.finish()
		for range 20 {
			time.Sleep(20 * time.Millisecond)
			want = append(want, r.outbox.accept("acme", 13)...)
		}
		time.Sleep(time.Minute)
		sent := r.sender.to("acme")
		if len(sent) != len(want) {
			t.Fatalf("%d sent, want %d", len(sent), len(want))
		}
		for i, s := range sent {
			if s.id != want[i].Event {
				t.Fatalf("attempt %d is of event %d, want %d", i, s.id, want[i].Event)
			}
		}
	})
}

// TestDispatchRate: an endpoint gets its rate, evenly and not more.
func TestDispatchRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.5, 10, 300, 2000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			dispatchBubble(t, func(t *testing.T) {
				e := dispatchEndpoint("acme", 8)
				e.Policy.Rate = rate
				r := newDispatchRig(t, e).start()
				defer r.finish()
				r.outbox.accept("acme", 5000)
				const seconds = 20
				time.Sleep(seconds*time.Second - time.Nanosecond)
				sent := r.sender.to("acme")
				want := min(5000, int(rate*seconds))
				// A timer may be late by 10 ms, and what that costs is made up for.
				if burst := int(rate / 100); len(sent) < want || len(sent) > want+1+burst {
					t.Errorf("%d attempts in %d s, want %d", len(sent), seconds, want)
				}
				for i := range sent {
					in := 0
					for _, s := range sent[i:] {
						if s.at-sent[i].at >= time.Second {
							break
						}
						in++
					}
					if most := max(1, int(rate*1.011)); in > most {
						t.Fatalf("%d attempts within a second, want at most %d", in, most)
					}
				}
			})
		})
	}
}

// TestDispatchStale: a kept connection that ended under a request costs no attempt and no time, once.
func TestDispatchStale(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		e := dispatchEndpoint("acme", 8)
		e.Policy.Schedule.JitterPercent = 0
		r := newDispatchRig(t, e)
		outcomes := []Result{
			{Outcome: OutcomeStaleConnection}, {Outcome: OutcomeStaleConnection}, {Outcome: OutcomeStaleConnection},
			{Outcome: OutcomeDelivered, Status: 200},
		}
		r.sender.send = func(_ context.Context, _ *Endpoint, _ *Event, n int) Result { return outcomes[n-1] }
		r.start()
		defer r.finish()
		id := r.outbox.accept("acme", 1)[0]
		time.Sleep(time.Hour)
		var at []time.Duration
		for _, s := range r.sender.to("acme") {
			at = append(at, s.at)
		}
		// The third in a row is no kept connection's fault either way; it counts as the second did.
		if want := []time.Duration{0, 0, 5 * time.Second, 5*time.Minute + 5*time.Second}; !slices.Equal(at, want) {
			t.Errorf("tried at %v, want %v", at, want)
		}
		var counted []bool
		for _, a := range r.outbox.log(id) {
			counted = append(counted, a.Counted)
		}
		if want := []bool{false, true, true, true}; !slices.Equal(counted, want) {
			t.Errorf("counted %v, want %v", counted, want)
		}
	})
}

// TestDispatchLog: one line an attempt, that says which, and neither URL nor answer.
func TestDispatchLog(t *testing.T) {
	dispatchBubble(t, func(t *testing.T) {
		e := dispatchEndpoint("acme", 8)
		e.Policy.StopOn = []int{422}
		e.Target.URL = "https://example.com/hook?token=SECRET"
		r := newDispatchRig(t, e)
		results := []Result{
			{Outcome: OutcomeServerError, Status: 500, Took: 120 * time.Millisecond, Answer: []byte("SECRET"), Detail: "status 500"},
			{Outcome: OutcomeDelivered, Status: 204, Took: 30 * time.Millisecond},
		}
		r.sender.send = func(_ context.Context, _ *Endpoint, ev *Event, n int) Result {
			if len(results) > 0 {
				first := results[0]
				results = results[1:]
				return first
			}
			return Result{Outcome: OutcomeRejected, Status: 422, Detail: "status 422"}
		}
		r.start()
		defer r.finish()
		id := r.outbox.accept("acme", 1)[0]
		time.Sleep(time.Minute)
		dead := r.outbox.accept("acme", 1)[0]
		synctest.Wait()
		lines := r.lines.of("attempt")
		eventID := func(id DeliveryID) string { return r.outbox.events[id.Event].ID }
		want := []struct {
			level slog.Level
			attrs map[string]string
		}{
			{slog.LevelInfo, map[string]string{"endpoint": "acme", "event_id": eventID(id), "delivery": id.String(), "attempt": "1",
				"outcome": "server_error", "status": "500", "duration_ms": "120", "state": "WAITING", "detail": "status 500"}},
			{slog.LevelDebug, map[string]string{"endpoint": "acme", "event_id": eventID(id), "delivery": id.String(), "attempt": "2",
				"outcome": "delivered", "status": "204", "duration_ms": "30"}},
			{slog.LevelWarn, map[string]string{"endpoint": "acme", "event_id": eventID(dead), "delivery": dead.String(), "attempt": "1",
				"outcome": "rejected", "status": "422", "duration_ms": "0", "state": "DEAD", "detail": "status 422"}},
		}
		if len(lines) != len(want) {
			t.Fatalf("%d lines, want %d: %+v", len(lines), len(want), lines)
		}
		for i, w := range want {
			if lines[i].level != w.level || fmt.Sprint(lines[i].attrs) != fmt.Sprint(w.attrs) {
				t.Errorf("line %d: %s %v\nwant %s %v", i, lines[i].level, lines[i].attrs, w.level, w.attrs)
			}
		}
	})
}
