package egress

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// Result is what came of one attempt.
type Result struct {
	Outcome Outcome
	// Status is the HTTP status, 0 without one.
	Status int
	// RetryAfter is what the answer asked for (see ParseRetryAfter), 0 for nothing.
	RetryAfter time.Duration
	// Took is from the start of the attempt to its end.
	Took time.Duration
	// IP is the address that was dialled, invalid without one.
	IP netip.Addr
	// Answer is the first KiB of the answer's body, with stars for what it repeats of the endpoint's headers; nobody changes it
	// any more. AnswerBytes is the body's length as far as it was read, Truncated says that there was more than Answer.
	Answer      []byte
	AnswerBytes int64
	Truncated   bool
	// Detail says in a few words what the Outcome does not: never a URL, a header or a secret; at most 256 bytes.
	Detail string
	// Reused: a kept connection was used. Wrote: a byte of the request was written to it.
	Reused, Wrote bool
}

// delivered reports whether the receiver took the event: an answer of 2xx may ask for something beside.
func (r *Result) delivered() bool {
	return r.Outcome.rule().Success || r.answered() && r.Status/100 == 2
}

// answered reports whether r is an answer that was read to its end.
func (r *Result) answered() bool {
	return r.Outcome == OutcomeDisableAsked || r.Outcome == OutcomeAbortAsked
}

// Sender makes attempts. It is safe for concurrent use.
type Sender interface {
	// Send sends ev to e once and returns within e.Policy.Timeout, or soon after ctx ended. attempt numbers the tries of
	// the delivery from 1. It never panics for what a receiver sends, and keeps nothing of ev.
	Send(ctx context.Context, e *Endpoint, ev *Event, attempt int) Result
}

// Occasion says under which circumstances an attempt was made.
type Occasion struct {
	// Now is the wall clock at its end.
	Now time.Time
	// Probe: it was the probe of an endpoint that is held. Early: the delivery was not due yet, and uses no attempt.
	Probe, Early bool
	// Open is since when the delivery could have been tried at all: when the process began, or the endpoint or all
	// sending was resumed. The time before does not bring it nearer to NotReached.
	Open time.Time
}

// Decision is what follows from an attempt: for its delivery, its endpoint and the endpoint's owner.
type Decision struct {
	// These go into the Settlement.
	State      State
	Lane       Lane
	Due        time.Time
	Attempts   int
	Counted    bool
	NotReached bool
	// Health is the endpoint's from now on; HealthChanged: it differs from what it was.
	Health        Health
	HealthChanged bool
	// Resumed: a hold has ended, and what waited goes out slowly at first.
	Resumed bool
	// Notices lack what Decide is not told: endpoint, owner and event.
	Notices []Notice
}

const (
	// failureGap stands between two failures that count towards Policy.DisableAfter, so that one bad minute is one failure.
	failureGap = time.Hour
	// healthAge is how exact Health.LastSuccess and LastAttempt are: they are for people, and would else be written with
	// every attempt.
	healthAge = time.Minute
	// leastReach is how long faults before the receiver are tolerated under a schedule that is shorter, or has one attempt.
	leastReach = 5 * time.Minute
	// warnedDisabled in Health.Warned: the owner was told that the endpoint is disabled, and shall hear of the recovery.
	warnedDisabled = 100
)

// Decide says what follows from an attempt of d. It is the one place that decides: rules says what an Outcome means, and
// Decide what that means here.
func Decide(p *Policy, d *Delivery, h Health, r *Result, o Occasion, rnd *rand.Rand) Decision {
	x := Decision{State: StateWaiting, Lane: d.Lane, Due: d.Due, Attempts: d.Attempts, Health: h}
	now := o.Now
	switch {
	case r.delivered():
		x.succeed(r, now)
	case r.Outcome == OutcomeInterrupted:
		// As if it had not been: it stays due, and comes again once we run.
	default:
		x.fail(p, d, r, o, rnd)
	}
	if r.Outcome != OutcomeInterrupted {
		refresh(&x.Health.LastAttempt, now)
	}
	if x.State == StateDead {
		x.Notices = append(x.Notices, Notice{Kind: NoticeDead, At: now, Outcome: r.Outcome, NotReached: x.NotReached, Since: x.Health.FailingSince})
	}
	x.HealthChanged = x.Health != h
	return x
}

// succeed is Decide for a delivery that the receiver took.
func (x *Decision) succeed(r *Result, now time.Time) {
	h := &x.Health
	x.State, x.Attempts, x.Counted = StateDelivered, x.Attempts+1, true
	x.Resumed = h.release()
	since := h.FailingSince
	h.FailingSince, h.LastFailure = time.Time{}, time.Time{}
	refresh(&h.LastSuccess, now)
	switch {
	case r.Outcome.rule().Disables:
		x.disable(DisabledAsked, r, now)
	case h.Disabled != NotDisabled:
		// It was under way when the endpoint was disabled.
	case h.Warned > 0:
		h.Warned = 0
		x.Notices = append(x.Notices, Notice{Kind: NoticeRecovered, At: now, Outcome: r.Outcome, Since: since})
	}
}

// fail is Decide for a delivery that the receiver did not take.
func (x *Decision) fail(p *Policy, d *Delivery, r *Result, o Occasion, rnd *rand.Rand) {
	now, what := o.Now, *r.Outcome.rule()
	if what.RetryNow && d.Reason == r.Outcome {
		what.Counts, what.RetryNow = true, false
	}
	if what.RetryNow {
		return // it is due as it was
	}
	retryAfter := min(max(r.RetryAfter, 0), MaxRetryAfter)
	if !p.RespectRetryAfter {
		retryAfter = 0
	}

	switch {
	case what.EndsDelivery || r.Status != 0 && slices.Contains(p.StopOn, r.Status):
		x.State = StateDead
		x.count(!o.Early)
	case o.Early:
		x.postpone(retryAfter, now)
	case p.HoldOnlyUnreached && what.Counts && what.Holds && r.Status == 0:
		x.away(p, d, now)
	case what.Counts:
		x.count(true)
		wait, more := p.Schedule.Wait(x.Attempts, rnd)
		if !more {
			x.State = StateDead
			break
		}
		x.retry(now, later(wait, retryAfter, &p.Schedule, rnd))
	case unreached(p, d, o):
		x.State, x.NotReached = StateDead, true
	default:
		// As long as it has lasted so far: that doubles.
		lasted := min(max(now.Sub(o.begin(d)), p.firstHold()), p.longestHold())
		x.retry(now, spread(lasted, DefaultJitterPercent, rnd))
	}

	if p.HoldOnlyUnreached && r.Status != 0 {
		what.Holds = false // it is about this event
		x.Resumed = x.Health.release()
	} else {
		x.Health.hold(p, &what, o.Probe, retryAfter, now)
	}
	if what.Counts {
		x.failing(p, r, now)
	}
	if what.Disables && (r.Outcome != OutcomeGone || p.OnGone != GoneRetries) {
		reason := DisabledAsked
		if r.Outcome == OutcomeGone {
			reason = DisabledGone
		}
		x.disable(reason, r, now)
	}
}

func (x *Decision) count(counted bool) {
	if counted {
		x.Counted = true
		x.Attempts++
	}
}

// away is fail for a receiver that is not there, under a policy that holds an endpoint for that alone. The hold says when
// somebody is asked again; the delivery stays due as it is, so that all goes on at once, the oldest first, when the hold ends. It
// is the schedule's own times at which attempts are used up, however often it was the probe.
func (x *Decision) away(p *Policy, d *Delivery, now time.Time) {
	x.count(now.Sub(d.Created) >= p.Schedule.until(x.Attempts))
	if x.Attempts >= p.Schedule.Attempts() {
		x.State = StateDead
	}
}

// retry makes the delivery due again after wait.
func (x *Decision) retry(now time.Time, wait time.Duration) {
	x.Lane, x.Due = LaneRetry, ceilMillis(now.Add(wait))
}

// postpone leaves a delivery that was tried early as it was, but for what the receiver asked for.
func (x *Decision) postpone(retryAfter time.Duration, now time.Time) {
	if until := now.Add(retryAfter); retryAfter > 0 && until.After(x.Due) {
		x.Lane, x.Due = LaneRetry, ceilMillis(until)
	}
}

// later is the longer of both waits. Deliveries that were asked to come back at one time are spread like others, but only
// upwards.
func later(wait, retryAfter time.Duration, s *Schedule, rnd *rand.Rand) time.Duration {
	if retryAfter <= wait {
		return wait
	}
	percent := s.JitterPercent
	if s.Exponential != nil {
		percent = DefaultJitterPercent
	}
	return retryAfter + time.Duration(rnd.Int64N(int64(share(retryAfter, percent))+1))
}

// unreached reports whether a delivery that met one more fault before the receiver has met them for as long as it may: for
// the length of its schedule, and where attempts of it did reach the receiver, which takes that long itself, for twice that.
// Where the process is started again and again, it is the number of faults that ends it: as many as fill that time twice.
func unreached(p *Policy, d *Delivery, o Occasion) bool {
	limit := min(max(p.Schedule.Length(), leastReach), 1<<61)
	if d.Attempts > 0 {
		limit *= 2
	}
	if o.Now.Sub(o.begin(d)) >= limit {
		return true
	}
	return o.Now.Sub(d.Created) >= limit && time.Duration(d.Tries-d.Attempts) >= 2*(limit/p.longestHold())
}

// begin is since when d could have been tried.
func (o *Occasion) begin(d *Delivery) time.Time {
	if o.Open.After(d.Created) {
		return o.Open
	}
	return d.Created
}

// failing moves the window after which an endpoint that fails on end is disabled, and warns its owner on the way.
func (x *Decision) failing(p *Policy, r *Result, now time.Time) {
	h := &x.Health
	if h.FailingSince.IsZero() || now.Before(h.FailingSince) {
		h.FailingSince, h.LastFailure = now, now
		return
	}
	if now.Sub(h.LastFailure) < failureGap {
		return
	}
	h.LastFailure = now
	if p.DisableAfter <= 0 || h.Disabled != NotDisabled {
		return
	}
	told := h.Warned
	if told == warnedDisabled {
		told = 0 // that was before it was enabled again
	}
	switch failed := now.Sub(h.FailingSince); {
	case failed >= p.DisableAfter:
		x.disable(DisabledFailing, r, now)
	case failed >= p.DisableAfter/10*9:
		x.warn(90, told, r, now)
	case failed >= p.DisableAfter/2:
		x.warn(50, told, r, now)
	}
}

func (x *Decision) warn(percent, told int, r *Result, now time.Time) {
	if percent > told {
		x.Health.Warned = percent
		x.Notices = append(x.Notices, Notice{Kind: NoticeWarned, At: now, Outcome: r.Outcome, Percent: percent, Since: x.Health.FailingSince})
	}
}

// disable disables the endpoint, once.
func (x *Decision) disable(reason DisableReason, r *Result, now time.Time) {
	h := &x.Health
	if h.Disabled != NotDisabled {
		return
	}
	h.Disabled, h.DisabledAt, h.Warned = reason, now, warnedDisabled
	x.Notices = append(x.Notices, Notice{Kind: NoticeDisabled, At: now, Disabled: reason, Outcome: r.Outcome, Since: h.FailingSince})
}

// refresh sets *t to now, unless it is about that already.
func refresh(t *time.Time, now time.Time) {
	if age := now.Sub(*t); t.IsZero() || age >= healthAge || age < 0 {
		*t = now
	}
}

// ceilMillis rounds up to what is kept, so that nothing is due before its time.
func ceilMillis(t time.Time) time.Time {
	if short := t.Truncate(time.Millisecond); !short.Equal(t) {
		return short.Add(time.Millisecond)
	}
	return t
}
