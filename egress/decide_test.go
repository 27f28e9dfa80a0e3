package egress

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// decideNow is the moment of the tests' attempts.
var decideNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// decidePolicy is the default one without jitter, so that waits are exact.
func decidePolicy() *Policy {
	return &Policy{
		Schedule: Schedule{Waits: DefaultWaits()}, RespectRetryAfter: true, OnGone: GoneDisables, MaxInFlight: 8, DisableAfter: 5 * 24 * time.Hour,
	}
}

// decideDelivery is one that was accepted a minute ago and is due.
func decideDelivery(attempts int) *Delivery {
	return &Delivery{
		State: StateWaiting, Due: decideNow.Add(-time.Minute), Created: decideNow.Add(-time.Minute), Attempts: attempts, Tries: attempts,
	}
}

func decideOccasion() Occasion {
	return Occasion{Now: decideNow, Open: decideNow.Add(-30 * 24 * time.Hour)}
}

// TestDecideDelivery is the table of what becomes of a delivery.
func TestDecideDelivery(t *testing.T) {
	t.Parallel()
	const unchanged = -time.Minute // due as it was
	type want struct {
		state    State
		lane     Lane
		due      time.Duration // after the attempt's end; of a waiting one
		attempts int
		counted  bool
	}
	retry := func(due time.Duration, attempts int) want { return want{StateWaiting, LaneRetry, due, attempts, true} }
	dead := func(attempts int) want { return want{state: StateDead, attempts: attempts, counted: true} }
	delivered := want{state: StateDelivered, attempts: 1, counted: true}
	for _, tt := range []struct {
		name   string
		policy func(*Policy)
		before func(*Delivery)
		result Result
		probe  bool
		early  time.Duration // due only so long after the attempt
		want   want
	}{
		{name: "200", result: Result{Outcome: OutcomeDelivered, Status: 200}, want: delivered},
		{name: "299", result: Result{Outcome: OutcomeDelivered, Status: 299}, want: delivered},
		{name: "Retry-After on 200", result: Result{Outcome: OutcomeDelivered, Status: 200, RetryAfter: time.Hour}, want: delivered},
		{name: "200 that asks to be disabled", result: Result{Outcome: OutcomeDisableAsked, Status: 200}, want: delivered},
		{name: "204 that asks to abort", result: Result{Outcome: OutcomeAbortAsked, Status: 204}, want: delivered},

		{name: "302", result: Result{Outcome: OutcomeRedirect, Status: 302}, want: retry(5*time.Second, 1)},
		{name: "401", result: Result{Outcome: OutcomeRejected, Status: 401}, want: retry(5*time.Second, 1)},
		{name: "410, the queue is parked", result: Result{Outcome: OutcomeGone, Status: 410}, want: retry(5*time.Second, 1)},
		{name: "429", result: Result{Outcome: OutcomeThrottled, Status: 429}, want: retry(5*time.Second, 1)},
		{name: "500", result: Result{Outcome: OutcomeServerError, Status: 500}, want: retry(5*time.Second, 1)},
		{name: "connection refused", result: Result{Outcome: OutcomeConnectRefused}, want: retry(5*time.Second, 1)},
		{name: "NXDOMAIN is the endpoint's own", result: Result{Outcome: OutcomeNoSuchHost}, want: retry(5*time.Second, 1)},
		{name: "a refused address is the endpoint's own", result: Result{Outcome: OutcomeAddressRefused}, want: retry(5*time.Second, 1)},
		{name: "third attempt", before: func(d *Delivery) { *d = *decideDelivery(2) },
			result: Result{Outcome: OutcomeServerError, Status: 500}, want: retry(30*time.Minute, 3)},
		{name: "ninth attempt", before: func(d *Delivery) { *d = *decideDelivery(8) },
			result: Result{Outcome: OutcomeServerError, Status: 500}, want: retry(24*time.Hour, 9)},
		{name: "tenth attempt", before: func(d *Delivery) { *d = *decideDelivery(9) },
			result: Result{Outcome: OutcomeServerError, Status: 500}, want: dead(10)},
		{name: "tenth attempt, delivered", before: func(d *Delivery) { *d = *decideDelivery(9) },
			result: Result{Outcome: OutcomeDelivered, Status: 200}, want: want{state: StateDelivered, attempts: 10, counted: true}},
		{name: "more attempts than a shorter schedule has", before: func(d *Delivery) { *d = *decideDelivery(7) },
			policy: func(p *Policy) { p.Schedule.Waits = p.Schedule.Waits[:2] },
			result: Result{Outcome: OutcomeServerError, Status: 500}, want: dead(8)},
		{name: "schedule of one attempt", policy: func(p *Policy) { p.Schedule.Waits = nil },
			result: Result{Outcome: OutcomeServerError, Status: 500}, want: dead(1)},

		{name: "Retry-After above the schedule", result: Result{Outcome: OutcomeThrottled, Status: 429, RetryAfter: 10 * time.Minute},
			want: retry(10*time.Minute, 1)},
		{name: "Retry-After below the schedule", before: func(d *Delivery) { *d = *decideDelivery(2) },
			result: Result{Outcome: OutcomeThrottled, Status: 429, RetryAfter: 10 * time.Minute}, want: retry(30*time.Minute, 3)},
		{name: "Retry-After on any failing answer", result: Result{Outcome: OutcomeRejected, Status: 404, RetryAfter: time.Hour},
			want: retry(time.Hour, 1)},
		{name: "Retry-After over a day", result: Result{Outcome: OutcomeServerError, Status: 500, RetryAfter: 1000 * time.Hour},
			want: retry(24*time.Hour, 1)},
		{name: "negative Retry-After", result: Result{Outcome: OutcomeServerError, Status: 500, RetryAfter: -time.Hour},
			want: retry(5*time.Second, 1)},
		{name: "Retry-After that is not respected", policy: func(p *Policy) { p.RespectRetryAfter = false },
			result: Result{Outcome: OutcomeThrottled, Status: 429, RetryAfter: time.Hour}, want: retry(5*time.Second, 1)},
		{name: "Retry-After after the last attempt", before: func(d *Delivery) { *d = *decideDelivery(9) },
			result: Result{Outcome: OutcomeThrottled, Status: 429, RetryAfter: time.Hour}, want: dead(10)},

		{name: "a code to stop on", policy: func(p *Policy) { p.StopOn = []int{400, 413} },
			result: Result{Outcome: OutcomeRejected, Status: 413}, want: dead(1)},
		{name: "another code than that", policy: func(p *Policy) { p.StopOn = []int{400, 413} },
			result: Result{Outcome: OutcomeRejected, Status: 401}, want: retry(5*time.Second, 1)},
		{name: "no answer is no code", policy: func(p *Policy) { p.StopOn = []int{0} },
			result: Result{Outcome: OutcomeConnectRefused}, want: retry(5*time.Second, 1)},
		{name: "abort asked", result: Result{Outcome: OutcomeAbortAsked, Status: 422}, want: dead(1)},
		{name: "disable asked, the queue is parked", result: Result{Outcome: OutcomeDisableAsked, Status: 403}, want: retry(5*time.Second, 1)},
		{name: "410 as any 4xx", policy: func(p *Policy) { p.OnGone = GoneRetries },
			result: Result{Outcome: OutcomeGone, Status: 410}, want: retry(5*time.Second, 1)},

		{name: "interrupted", result: Result{Outcome: OutcomeInterrupted}, want: want{state: StateWaiting, due: unchanged}},
		{name: "interrupted at the tenth attempt", before: func(d *Delivery) { *d = *decideDelivery(9); d.Lane = LaneRetry },
			result: Result{Outcome: OutcomeInterrupted}, want: want{state: StateWaiting, lane: LaneRetry, due: unchanged, attempts: 9}},
		{name: "stale connection", result: Result{Outcome: OutcomeStaleConnection}, want: want{state: StateWaiting, due: unchanged}},
		{name: "stale connection twice", before: func(d *Delivery) { d.Tries, d.Reason = 1, OutcomeStaleConnection },
			result: Result{Outcome: OutcomeStaleConnection}, want: retry(5*time.Second, 1)},
		{name: "stale connection again after a failure", before: func(d *Delivery) { *d = *decideDelivery(1); d.Reason = OutcomeServerError },
			result: Result{Outcome: OutcomeStaleConnection}, want: want{state: StateWaiting, due: unchanged, attempts: 1}},

		{name: "a probe of what was due", probe: true, result: Result{Outcome: OutcomeConnectRefused}, want: retry(5*time.Second, 1)},
		{name: "a probe of what was not", probe: true, early: time.Hour, before: func(d *Delivery) { *d = *decideDelivery(3); d.Lane = LaneRetry },
			result: Result{Outcome: OutcomeConnectRefused}, want: want{state: StateWaiting, lane: LaneRetry, due: time.Hour, attempts: 3}},
		{name: "such a probe, asked to come later", probe: true, early: time.Hour, before: func(d *Delivery) { *d = *decideDelivery(3) },
			result: Result{Outcome: OutcomeUnavailable, Status: 503, RetryAfter: 3 * time.Hour},
			want:   want{state: StateWaiting, lane: LaneRetry, due: 3 * time.Hour, attempts: 3}},
		{name: "such a probe, at the last attempt", probe: true, early: time.Hour, before: func(d *Delivery) { *d = *decideDelivery(9); d.Lane = LaneRetry },
			result: Result{Outcome: OutcomeServerError, Status: 500}, want: want{state: StateWaiting, lane: LaneRetry, due: time.Hour, attempts: 9}},
		{name: "such a probe, delivered", probe: true, early: time.Hour,
			result: Result{Outcome: OutcomeDelivered, Status: 200}, want: delivered},
		{name: "such a probe, told to abort", probe: true, early: time.Hour,
			result: Result{Outcome: OutcomeAbortAsked, Status: 400}, want: want{state: StateDead}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, d, o := decidePolicy(), decideDelivery(0), decideOccasion()
			if tt.policy != nil {
				tt.policy(p)
			}
			if tt.before != nil {
				tt.before(d)
			}
			h := Health{}
			if tt.probe {
				h.HoldStep, h.HeldUntil, o.Probe = 1, decideNow, true
			}
			if tt.early > 0 {
				o.Early, d.Due = true, decideNow.Add(tt.early)
			}
			x := Decide(p, d, h, &tt.result, o, scheduleRand(1))
			if x.NotReached {
				t.Error("not reached")
			}
			got := want{state: x.State, attempts: x.Attempts, counted: x.Counted}
			if x.State == StateWaiting {
				got.lane, got.due = x.Lane, x.Due.Sub(decideNow)
			}
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if told := slices.ContainsFunc(x.Notices, func(n Notice) bool { return n.Kind == NoticeDead }); told != (x.State == StateDead) {
				t.Errorf("the owner was told of a dead letter: %v; it is %s", told, x.State)
			}
		})
	}
}

// TestDecideJitter: Retry-After is a bound from below, and what was asked back at one time does not come at one.
func TestDecideJitter(t *testing.T) {
	t.Parallel()
	p := decidePolicy()
	p.Schedule.JitterPercent = 20
	rnd := scheduleRand(3)
	seen := make(map[time.Duration]bool)
	for range 1000 {
		x := Decide(p, decideDelivery(0), Health{}, &Result{Outcome: OutcomeThrottled, Status: 429, RetryAfter: 10 * time.Minute}, decideOccasion(), rnd)
		wait := x.Due.Sub(decideNow)
		if wait < 10*time.Minute || wait > 12*time.Minute {
			t.Fatalf("wait %v, want 10 min and at most 20%% more", wait)
		}
		seen[wait.Truncate(time.Second)] = true
	}
	if len(seen) < 100 {
		t.Errorf("1000 deliveries come back in %d different seconds of 120", len(seen))
	}
}

// TestDecideUnreached: faults before the receiver use no attempt, at most for the length of the schedule.
func TestDecideUnreached(t *testing.T) {
	t.Parallel()
	const hour, length = time.Hour, 75*time.Hour + 35*time.Minute + 5*time.Second
	for _, tt := range []struct {
		name     string
		outcome  Outcome
		attempts int
		tries    int
		age      time.Duration // of the delivery
		open     time.Duration // so long ago the process began
		dead     bool
		low      time.Duration // of the wait
		high     time.Duration
	}{
		{"resolver, at once", OutcomeResolverFailed, 0, 0, 0, 999 * hour, false, 4 * time.Second, 6 * time.Second},
		{"proxy, after 40 s", OutcomeProxyFailed, 0, 3, 40 * time.Second, 999 * hour, false, 32 * time.Second, 48 * time.Second},
		{"mesh, after an hour", OutcomeMeshReset, 0, 20, hour, 999 * hour, false, 4 * time.Minute, 6 * time.Minute},
		{"a fault of ours, after an hour", OutcomeInternal, 0, 20, hour, 999 * hour, false, 4 * time.Minute, 6 * time.Minute},
		{"just before the end", OutcomeResolverFailed, 0, 900, length - time.Second, 999 * hour, false, 4 * time.Minute, 6 * time.Minute},
		{"at the end", OutcomeResolverFailed, 0, 900, length, 999 * hour, true, 0, 0},
		{"a fault of ours at the end", OutcomeInternal, 0, 900, length, 999 * hour, true, 0, 0},
		{"interrupted at the end", OutcomeInterrupted, 0, 900, 2 * length, 999 * hour, false, -time.Minute, -time.Minute},
		{"attempts reached it meanwhile", OutcomeResolverFailed, 8, 9, length, 999 * hour, false, 4 * time.Minute, 6 * time.Minute},
		{"attempts reached it, long ago", OutcomeResolverFailed, 8, 9, 2 * length, 999 * hour, true, 0, 0},
		{"the process was down for a week", OutcomeResolverFailed, 0, 0, 168 * hour, time.Second, false, 4 * time.Second, 6 * time.Second},
		{"it has run for the length since", OutcomeResolverFailed, 0, 800, 300 * hour, length, true, 0, 0},
		{"it is started every day", OutcomeInternal, 0, 1814, 200 * hour, 23 * hour, true, 0, 0},
		{"it is started every day, at first", OutcomeInternal, 0, 600, 100 * hour, 23 * hour, false, 4 * time.Minute, 6 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := decideDelivery(tt.attempts)
			d.Tries, d.Created = tt.tries, decideNow.Add(-tt.age)
			o := Occasion{Now: decideNow, Open: decideNow.Add(-tt.open)}
			x := Decide(decidePolicy(), d, Health{}, &Result{Outcome: tt.outcome}, o, scheduleRand(4))
			if x.Counted || x.Attempts != tt.attempts {
				t.Errorf("%d attempts, were %d", x.Attempts, tt.attempts)
			}
			if x.NotReached != tt.dead || (x.State == StateDead) != tt.dead {
				t.Fatalf("%s, not reached %v; want dead %v", x.State, x.NotReached, tt.dead)
			}
			if wait := x.Due.Sub(decideNow); !tt.dead && (wait < tt.low || wait > tt.high) {
				t.Errorf("wait %v, want %v to %v", wait, tt.low, tt.high)
			}
			if !x.Health.FailingSince.IsZero() || x.Health.Disabled != NotDisabled {
				t.Errorf("the endpoint is held responsible: %+v", x.Health)
			}
		})
	}
	t.Run("schedule of one attempt", func(t *testing.T) {
		t.Parallel()
		p := decidePolicy()
		p.Schedule.Waits = nil
		if x := Decide(p, decideDelivery(0), Health{}, &Result{Outcome: OutcomeResolverFailed}, decideOccasion(), scheduleRand(4)); x.State != StateWaiting {
			t.Errorf("%s after a minute, want WAITING", x.State)
		}
	})
}

// TestDecideProperties holds Decide to what must be true of every decision.
func TestDecideProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := decidePolicy()
		p.Schedule.JitterPercent = rapid.IntRange(0, 100).Draw(t, "jitter")
		p.RespectRetryAfter = rapid.Bool().Draw(t, "respect")
		p.OnGone = rapid.SampledFrom([]OnGone{GoneDisables, GoneRetries}).Draw(t, "gone")
		attempts := rapid.IntRange(0, 12).Draw(t, "attempts")
		d := decideDelivery(attempts)
		d.Tries += rapid.IntRange(0, 3000).Draw(t, "faults")
		d.Created = decideNow.Add(-time.Duration(rapid.Int64Range(0, int64(400*time.Hour)).Draw(t, "age")))
		d.Reason = rapid.SampledFrom(append(Outcomes(), 0)).Draw(t, "reason")
		ago := func(name string) time.Time {
			return decideNow.Add(-time.Duration(rapid.Int64Range(-int64(time.Hour), int64(200*time.Hour)).Draw(t, name)))
		}
		h := Health{HoldStep: rapid.IntRange(0, 40).Draw(t, "step"), FailingSince: ago("since"), LastFailure: ago("failure"), Warned: rapid.SampledFrom([]int{0, 50, 90, 100}).Draw(t, "warned")}
		if h.Held() {
			h.HeldUntil = ago("held")
		}
		r := Result{
			Outcome: rapid.SampledFrom(Outcomes()).Draw(t, "outcome"), Status: rapid.SampledFrom([]int{0, 200, 410, 503}).Draw(t, "status"),
			RetryAfter: time.Duration(rapid.Int64().Draw(t, "retryAfter")),
		}
		o := Occasion{Now: decideNow, Probe: h.Held() && rapid.Bool().Draw(t, "probe"), Open: d.Created}
		if o.Probe && rapid.Bool().Draw(t, "early") {
			o.Early, d.Due = true, decideNow.Add(time.Hour)
		}
		x := Decide(p, d, h, &r, o, scheduleRand(rapid.Uint64().Draw(t, "seed")))

		wantAttempts := attempts
		if x.Counted {
			wantAttempts++
		}
		switch {
		case x.State != StateWaiting && x.State != StateDelivered && x.State != StateDead:
			t.Fatalf("state %s", x.State)
		case x.Attempts != wantAttempts:
			t.Fatalf("%d attempts, were %d, counted %v", x.Attempts, attempts, x.Counted)
		case x.State == StateWaiting && x.Counted && x.Attempts >= p.Schedule.Attempts():
			t.Fatalf("attempt %d of %d is followed by another", x.Attempts, p.Schedule.Attempts())
		case x.State == StateWaiting && x.Due.Before(d.Due):
			t.Fatalf("due %v before it was", d.Due.Sub(x.Due))
		case x.State == StateWaiting && x.Lane == LaneRetry && !x.Due.After(decideNow):
			t.Fatalf("a retry that is due at once")
		case x.State == StateWaiting && x.Due.Sub(decideNow) > 2*MaxRetryAfter:
			t.Fatalf("due only in %v", x.Due.Sub(decideNow))
		case x.NotReached && (x.State != StateDead || r.Outcome.rule().Counts):
			t.Fatalf("%s after %s counts as not reached", x.State, r.Outcome)
		case x.State == StateDead && r.delivered():
			t.Fatal("a success is dead")
		case x.Health.Held() == x.Health.HeldUntil.IsZero():
			t.Fatalf("held %v until %v", x.Health.Held(), x.Health.HeldUntil)
		case x.Health.HeldUntil.After(decideNow.Add(MaxRetryAfter)) && x.Health.HeldUntil != h.HeldUntil:
			t.Fatalf("held for %v", x.Health.HeldUntil.Sub(decideNow))
		}
		if counts := r.Outcome.rule().Counts; !counts && r.Outcome != OutcomeStaleConnection && !r.delivered() && x.Counted {
			t.Fatalf("%s used an attempt", r.Outcome)
		}
	})
}
