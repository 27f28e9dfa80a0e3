package egress

import (
	"slices"
	"testing"
	"time"
)

// TestDecideHold follows an endpoint through a hold.
func TestDecideHold(t *testing.T) {
	t.Parallel()
	p := decidePolicy()
	var h Health
	now := decideNow
	probe := false
	step := func(r Result) Decision {
		t.Helper()
		d := decideDelivery(0)
		x := Decide(p, d, h, &r, Occasion{Now: now, Probe: probe, Open: now}, scheduleRand(5))
		if x.HealthChanged != (x.Health != h) {
			t.Errorf("health changed: %v, from %+v to %+v", x.HealthChanged, h, x.Health)
		}
		h = x.Health
		return x
	}
	for _, o := range []Outcome{OutcomeRejected, OutcomeServerError, OutcomeTimeoutHeaders, OutcomeConnectionReset, OutcomeGone - 1, OutcomeStaleConnection, OutcomeInternal, OutcomeInterrupted} {
		if step(Result{Outcome: o}); h.Held() || !h.HeldUntil.IsZero() {
			t.Fatalf("held after %s", o)
		}
	}
	step(Result{Outcome: OutcomeConnectRefused})
	for i, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300, 300} {
		want *= time.Second
		if !h.Held() || h.HeldUntil.Sub(now) != want {
			t.Fatalf("after %d probes held until %v from now, want %v", i, h.HeldUntil.Sub(now), want)
		}
		// What was under way, and neither a stop nor a kept connection's end, changes that.
		probe = false
		until := h.HeldUntil
		step(Result{Outcome: OutcomeConnectRefused})
		step(Result{Outcome: OutcomeServerError, RetryAfter: time.Hour}) // that is for its delivery
		probe = true
		step(Result{Outcome: OutcomeInterrupted})
		step(Result{Outcome: OutcomeStaleConnection})
		if h.HeldUntil != until {
			t.Fatalf("another attempt moved the probe to %v from now", h.HeldUntil.Sub(now))
		}
		now = h.HeldUntil
		// Any failure of a probe lengthens the hold, also one that would not begin one.
		step(Result{Outcome: []Outcome{OutcomeConnectRefused, OutcomeRejected, OutcomeInternal}[i%3]})
	}
	step(Result{Outcome: OutcomeThrottled, Status: 429, RetryAfter: time.Hour})
	if got := h.HeldUntil.Sub(now); got != time.Hour {
		t.Errorf("held for %v, want its Retry-After of 1h", got)
	}
	probe = false
	step(Result{Outcome: OutcomeUnavailable, Status: 503, RetryAfter: 2 * time.Hour})
	if got := h.HeldUntil.Sub(now); got != 2*time.Hour {
		t.Errorf("held for %v, want the longer Retry-After of another attempt", got)
	}
	if x := step(Result{Outcome: OutcomeDelivered, Status: 200}); !x.Resumed || h.Held() || !h.HeldUntil.IsZero() {
		t.Errorf("held after a success: %+v, resumed %v", h, x.Resumed)
	}
	if x := step(Result{Outcome: OutcomeDelivered, Status: 200}); x.Resumed {
		t.Error("resumed twice")
	}
	step(Result{Outcome: OutcomeThrottled, Status: 429})
	if got := h.HeldUntil.Sub(now); got != 5*time.Second {
		t.Errorf("a new hold begins with %v, want 5s", got)
	}
}

// TestDecideDisable covers what disables an endpoint at once, and that its owner is told once.
func TestDecideDisable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		result Result
		onGone OnGone
		was    DisableReason
		want   DisableReason
		told   int
	}{
		{"410", Result{Outcome: OutcomeGone, Status: 410}, GoneDisables, NotDisabled, DisabledGone, 1},
		{"410 that is to be retried", Result{Outcome: OutcomeGone, Status: 410}, GoneRetries, NotDisabled, NotDisabled, 0},
		{"asked with 4xx", Result{Outcome: OutcomeDisableAsked, Status: 400}, GoneRetries, NotDisabled, DisabledAsked, 1},
		{"asked with 2xx", Result{Outcome: OutcomeDisableAsked, Status: 200}, GoneDisables, NotDisabled, DisabledAsked, 1},
		{"asked with 410 that is to be retried", Result{Outcome: OutcomeDisableAsked, Status: 410}, GoneRetries, NotDisabled, DisabledAsked, 1},
		{"410 of one that is disabled", Result{Outcome: OutcomeGone, Status: 410}, GoneDisables, DisabledPerson, DisabledPerson, 0},
		{"401", Result{Outcome: OutcomeRejected, Status: 401}, GoneDisables, NotDisabled, NotDisabled, 0},
		{"2xx of one that is disabled", Result{Outcome: OutcomeDelivered, Status: 200}, GoneDisables, DisabledGone, DisabledGone, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := decidePolicy()
			p.OnGone = tt.onGone
			h := Health{Disabled: tt.was}
			if tt.was != NotDisabled {
				h.DisabledAt, h.Warned = decideNow.Add(-time.Hour), 100
			}
			x := Decide(p, decideDelivery(0), h, &tt.result, decideOccasion(), scheduleRand(6))
			if x.Health.Disabled != tt.want {
				t.Errorf("disabled %d, want %d", x.Health.Disabled, tt.want)
			}
			if at := x.Health.DisabledAt; tt.was != NotDisabled && at != h.DisabledAt || tt.was == NotDisabled && tt.want != NotDisabled && at != decideNow {
				t.Errorf("disabled at %v", at)
			}
			if got := decideKinds(x.Notices); len(got) != tt.told || tt.told == 1 && (got[0] != NoticeDisabled || x.Notices[0].Disabled != tt.want || x.Notices[0].Outcome != tt.result.Outcome) {
				t.Errorf("told %+v, want %d notices", x.Notices, tt.told)
			}
		})
	}
}

func decideKinds(notices []Notice) (kinds []NoticeKind) {
	for _, n := range notices {
		kinds = append(kinds, n.Kind)
	}
	return kinds
}

// TestDecideFailing lets an endpoint fail for days.
func TestDecideFailing(t *testing.T) {
	t.Parallel()
	type attempt struct {
		at      time.Duration
		outcome Outcome
	}
	const h = time.Hour
	failing := func(every, until time.Duration) (as []attempt) {
		for at := time.Duration(0); at <= until; at += every {
			as = append(as, attempt{at, OutcomeRejected})
		}
		return as
	}
	type told struct {
		at      time.Duration
		kind    NoticeKind
		percent int
	}
	for _, tt := range []struct {
		name     string
		after    time.Duration
		attempts []attempt
		want     []told
		disabled bool
	}{
		{"every 10 min for 5 days", 120 * h, failing(h/6, 130*h),
			[]told{{60 * h, NoticeWarned, 50}, {108 * h, NoticeWarned, 90}, {120 * h, NoticeDisabled, 0}}, true},
		{"never to be disabled", 0, failing(h, 1000*h), nil, false},
		{"a thousand failures in an hour", h, failing(time.Second*4, 59*time.Minute), nil, false},
		{"an hour is not passed by two failures less than that apart", 30 * time.Minute, []attempt{{0, OutcomeRejected}, {59 * time.Minute, OutcomeRejected}}, nil, false},
		{"two failures an hour apart", h, []attempt{{0, OutcomeRejected}, {h, OutcomeRejected}}, []told{{h, NoticeDisabled, 0}}, true},
		{"ten of 401 over three days", 120 * h, []attempt{{0, OutcomeRejected}, {5 * time.Second, OutcomeRejected}, {h, OutcomeRejected}, {20 * h, OutcomeRejected}, {59 * h, OutcomeRejected}}, nil, false},
		{"a success between", 120 * h, append(failing(h, 119*h), attempt{119*h + 1, OutcomeDelivered}, attempt{125 * h, OutcomeRejected}),
			[]told{{60 * h, NoticeWarned, 50}, {108 * h, NoticeWarned, 90}, {119*h + 1, NoticeRecovered, 0}}, false},
		{"a success before any warning", 120 * h, append(failing(h, 59*h), attempt{60 * h, OutcomeDelivered}, attempt{125 * h, OutcomeRejected}), nil, false},
		{"warned once only", 120 * h, append(failing(h, 107*h), attempt{107*h + 1, OutcomeRejected}), []told{{60 * h, NoticeWarned, 50}}, false},
		{"a second time", 10 * h, append(append(failing(h, 9*h), attempt{9*h + 1, OutcomeDelivered}), attempt{20 * h, OutcomeRejected}, attempt{25 * h, OutcomeRejected}),
			[]told{{5 * h, NoticeWarned, 50}, {9 * h, NoticeWarned, 90}, {9*h + 1, NoticeRecovered, 0}, {25 * h, NoticeWarned, 50}}, false},
		{"the clock was set back", 120 * h, append([]attempt{{200 * h, OutcomeRejected}}, failing(h, 121*h)...),
			[]told{{60 * h, NoticeWarned, 50}, {108 * h, NoticeWarned, 90}, {120 * h, NoticeDisabled, 0}}, true},
		{"under way when it was disabled", 120 * h, append(failing(h, 59*h), attempt{59*h + 1, OutcomeGone}, attempt{60 * h, OutcomeRejected}, attempt{108 * h, OutcomeRejected}),
			[]told{{59*h + 1, NoticeDisabled, 0}}, false},
		{"faults before the receiver", 120 * h, []attempt{{0, OutcomeResolverFailed}, {100 * h, OutcomeProxyFailed}, {200 * h, OutcomeMeshReset}, {300 * h, OutcomeInternal}, {400 * h, OutcomeInterrupted}}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := decidePolicy()
			p.DisableAfter = tt.after
			var health Health
			var got []told
			for _, a := range tt.attempts {
				now := decideNow.Add(a.at)
				d := &Delivery{State: StateWaiting, Created: now, Due: now}
				x := Decide(p, d, health, &Result{Outcome: a.outcome}, Occasion{Now: now, Open: now}, scheduleRand(7))
				health = x.Health
				for _, n := range x.Notices {
					got = append(got, told{a.at, n.Kind, n.Percent})
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("told %+v\nwant %+v", got, tt.want)
			}
			if (health.Disabled == DisabledFailing) != tt.disabled {
				t.Errorf("disabled %d, want %v", health.Disabled, tt.disabled)
			}
		})
	}
}

// TestDecideRecovery: one that was disabled and enabled again is told of its recovery, and warned anew.
func TestDecideRecovery(t *testing.T) {
	t.Parallel()
	enabled := Health{Warned: 100}
	ok := Result{Outcome: OutcomeDelivered, Status: 200}
	x := Decide(decidePolicy(), decideDelivery(0), enabled, &ok, decideOccasion(), scheduleRand(8))
	if got := decideKinds(x.Notices); !slices.Equal(got, []NoticeKind{NoticeRecovered}) || x.Health.Warned != 0 {
		t.Errorf("told %v, warned %d", got, x.Health.Warned)
	}
	if x = Decide(decidePolicy(), decideDelivery(0), x.Health, &ok, decideOccasion(), scheduleRand(8)); len(x.Notices) != 0 {
		t.Errorf("told again: %+v", x.Notices)
	}
	since := decideNow.Add(-61 * time.Hour)
	failing := Health{Warned: 100, FailingSince: since, LastFailure: since}
	x = Decide(decidePolicy(), decideDelivery(0), failing, &Result{Outcome: OutcomeRejected}, decideOccasion(), scheduleRand(8))
	if got := decideKinds(x.Notices); !slices.Equal(got, []NoticeKind{NoticeWarned}) || x.Notices[0].Percent != 50 || x.Notices[0].Since != since {
		t.Errorf("told %+v, want a warning at 50%% since %v", x.Notices, since)
	}
}

// TestDecideHealthRarely: what is for people only is not written with every attempt.
func TestDecideHealthRarely(t *testing.T) {
	t.Parallel()
	var h Health
	writes := 0
	for i := range 3000 { // ten minutes, five attempts a second
		now := decideNow.Add(time.Duration(i) * 200 * time.Millisecond)
		x := Decide(decidePolicy(), &Delivery{State: StateWaiting, Created: now, Due: now}, h, &Result{Outcome: OutcomeDelivered, Status: 200}, Occasion{Now: now}, scheduleRand(9))
		if h = x.Health; x.HealthChanged {
			writes++
		}
		if now.Sub(h.LastSuccess) >= time.Minute || now.Sub(h.LastAttempt) >= time.Minute {
			t.Fatalf("at %v the last success is known as %v", now, h.LastSuccess)
		}
	}
	if writes != 10 {
		t.Errorf("%d writes in ten minutes of successes, want one a minute", writes)
	}
	back := decideNow.Add(-time.Hour)
	x := Decide(decidePolicy(), &Delivery{State: StateWaiting, Created: back, Due: back}, h, &Result{Outcome: OutcomeDelivered, Status: 200}, Occasion{Now: back}, scheduleRand(9))
	if !x.Health.LastSuccess.Equal(back) || !x.Health.LastAttempt.Equal(back) {
		t.Errorf("after the clock was set back the last success is known as %v and the last attempt as %v, want %v", x.Health.LastSuccess, x.Health.LastAttempt, back)
	}
}

// TestDecideAway: under a policy that holds only where nothing answers, a delivery to an app that is away stays due where it
// was. Its schedule is used up at the schedule's own times, however often it is the probe, and it is dead after the last.
func TestDecideAway(t *testing.T) {
	t.Parallel()
	p := &Policy{Schedule: DefaultSchedule(), HoldOnlyUnreached: true, FirstHold: time.Second, LongestHold: 30 * time.Second}
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	d := &Delivery{State: StateWaiting, Lane: LaneFirst, Created: start, Due: start}
	var h Health
	rnd := scheduleRand(1)
	var counted []time.Duration
	for at := start; d.State == StateWaiting; at = at.Add(30 * time.Second) {
		x := Decide(p, d, h, &Result{Outcome: OutcomeConnectRefused}, Occasion{Now: at, Probe: h.Held(), Open: start}, rnd)
		if x.State == StateWaiting && (!x.Due.Equal(start) || x.Lane != LaneFirst || !x.Health.Held()) {
			t.Fatalf("after %v: due %v in lane %d, held %v", at.Sub(start), x.Due.Sub(start), x.Lane, x.Health.Held())
		}
		if x.Counted {
			counted = append(counted, at.Sub(start))
		}
		d.State, d.Attempts, d.Tries, d.Reason, h = x.State, x.Attempts, d.Tries+1, OutcomeConnectRefused, x.Health
	}
	// The sums of the waits, at the first probe after them.
	var want []time.Duration
	for n, sum := 0, time.Duration(0); n < 10; n++ {
		want = append(want, (sum + 30*time.Second - 1).Truncate(30*time.Second))
		if n < 9 {
			sum += DefaultWaits()[n]
		}
	}
	if d.State != StateDead || !slices.Equal(counted, want) {
		t.Errorf("%v, attempts used after %v, want %v", d.State, counted, want)
	}

	d = &Delivery{State: StateWaiting, Lane: LaneRetry, Created: start, Due: start.Add(time.Hour), Attempts: 3}
	x := Decide(p, d, h, &Result{Outcome: OutcomeConnectRefused}, Occasion{Now: start.Add(10 * time.Minute), Probe: true, Early: true, Open: start}, rnd)
	if x.Counted || !x.Due.Equal(d.Due) {
		t.Errorf("one that was not due: counted %v, due after %v", x.Counted, x.Due.Sub(start))
	}
	x = Decide(p, d, h, &Result{Outcome: OutcomeServerError, Status: 500}, Occasion{Now: start.Add(2 * time.Hour), Open: start}, rnd)
	if !x.Counted || x.Due.Before(start.Add(3*time.Hour)) {
		t.Errorf("one that the app refused: counted %v, due after %v", x.Counted, x.Due.Sub(start))
	}
}
