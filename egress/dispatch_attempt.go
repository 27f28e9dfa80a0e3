package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Keys of the log lines about endpoints and deliveries.
const (
	keyEndpoint   = "endpoint"
	keyEventID    = "event_id"
	keyDelivery   = "delivery"
	keyAttempt    = "attempt"
	keyOutcome    = "outcome"
	keyStatus     = "status"
	keyDuration   = "duration_ms"
	keyIP         = "ip"
	keyState      = "state"
	keyDetail     = "detail"
	keyPercent    = "percent"
	keyDisabled   = "disabled"
	keySince      = "since"
	keySuppressed = "suppressed"
	keyErr        = "err"
)

// attemptLines is how many lines a second are written about attempts to one endpoint; those about a dead letter, and faults of
// ours, always are.
const attemptLines = 50

// flight is an attempt from its start until what came of it is on disk.
type flight struct {
	d        *Dispatcher
	queue    *queue
	endpoint *Endpoint // as it was at the start
	item     item
	gen      uint64 // of queue at the start
	began    time.Duration
	at       time.Time
	probe    bool
	slow     bool // counted in Dispatcher.slow
	ended    atomic.Bool

	settling   bool // Outbox.Settle was called; guarded by queue.mu
	settlement Settlement
	resumed    bool
	again      time.Duration // when it is due again, where it waits
	err        error         // of the settlement; for the loop
}

// launch begins an attempt of it.
func (d *Dispatcher) launch(q *queue, e *Endpoint, it item, probe bool, now time.Duration) {
	f := &flight{d: d, queue: q, endpoint: e, item: it, gen: q.gen, began: now, at: d.clock.now(), probe: probe, slow: q.pace.slow}
	d.mu.Lock()
	d.flights[it.ID] = f
	d.mu.Unlock()
	q.inFlight++
	q.probing, q.last = q.probing || probe, it.ID
	d.total++
	d.bytes += int64(it.Bytes)
	if f.slow {
		d.slow++
	}
	d.marks = append(d.marks, f)
	busy := int(d.busy.Add(1))
	d.peak = max(d.peak, busy)
	if busy > d.workers {
		d.workers++
		d.working.Go(d.work)
	}
	d.jobs <- f // has room for as many as there are slots
}

// land takes note that f's settlement is on disk, or could not be written.
func (d *Dispatcher) land(f *flight) {
	if f.err != nil {
		switch {
		case fatal(f.err):
			d.inbox.fail(f.err)
		default:
			// It was sent. So it must be recorded, and is not sent again meanwhile.
			d.log.Error("record attempt", slog.String(d.cfg.NameKey, f.queue.id), slog.Any(keyErr, f.err))
			d.unkept = append(d.unkept, f)
			d.againAt = d.clock.mono() + againAfter
		}
		return
	}
	q, s := f.queue, &f.settlement
	d.mu.Lock()
	delete(d.flights, f.item.ID)
	d.mu.Unlock()
	q.inFlight--
	d.total--
	d.bytes -= int64(f.item.Bytes)
	if f.slow {
		d.slow--
	}
	if f.probe {
		q.probing = false
	}
	top := max(1, f.endpoint.Policy.MaxInFlight)
	q.proven = q.proven || s.State == StateDelivered
	switch {
	case f.resumed:
		q.pace.start()
	case s.State == StateDelivered:
		q.pace.delivered(top)
	case s.Attempt.Outcome.rule().Slow:
		q.pace.timedOut(top)
	}
	switch {
	case q.gen != f.gen:
		// Something was changed on disk meanwhile, perhaps this delivery.
		q.forget()
	case s.State == StateWaiting:
		it := f.item
		it.Lane, it.Due, it.Attempts, it.Tries, it.Reason = s.Lane, s.Due, s.Attempts, s.Attempt.N, s.Attempt.Outcome
		it.at = f.again
		q.add(it)
		d.follow(q)
	}
	d.turns.ready(q)
	d.turns.count(q)
	if in := d.queue(q.id); in != nil && in != q {
		d.change(q.id) // the endpoint was away meanwhile, and its queue passed over what was in flight
	}
}

// settleAgain hands settlements to the outbox again that it refused, and returns when to come again.
func (d *Dispatcher) settleAgain(now time.Duration) (next time.Duration) {
	if len(d.unkept) == 0 {
		return never
	}
	if now < d.againAt {
		return d.againAt
	}
	unkept := d.unkept
	d.unkept = nil
	for _, f := range unkept {
		f.queue.mu.Lock()
		f.err = nil
		d.outbox.Settle(&f.settlement, f.done)
		f.queue.mu.Unlock()
	}
	return never
}

// mark notes on disk what has been in flight for a while, and returns when to come again.
func (d *Dispatcher) mark(now time.Duration) (next time.Duration) {
	n := 0
	next = never
	for _, f := range d.marks {
		if f.ended.Load() {
			n++
			continue
		}
		if at := f.began + markAfter; at > now {
			next = at
			break
		}
		n++
		f.queue.mu.Lock()
		if !f.settling { // else the mark would come after the settlement
			d.outbox.Mark(&f.item.Delivery, f.at, f.trigger())
		}
		f.queue.mu.Unlock()
	}
	if n > 0 {
		left := copy(d.marks, d.marks[n:])
		clear(d.marks[left:])
		d.marks = d.marks[:left]
	}
	return next
}

// retire ends workers that were not needed for a while, and returns when to come again.
func (d *Dispatcher) retire(now time.Duration) (next time.Duration) {
	if d.workers == 0 {
		d.retireAt = now + retireAfter
		return never
	}
	if now < d.retireAt {
		return d.retireAt
	}
	for ; d.workers > d.peak; d.workers-- {
		d.jobs <- nil
	}
	d.peak = int(d.busy.Load())
	d.retireAt = now + retireAfter
	return d.retireAt
}

// work makes attempts until the dispatcher ends, or it is not needed.
func (d *Dispatcher) work() {
	rnd := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for f := range d.jobs {
		if f == nil {
			return
		}
		d.attempt(f, rnd)
		f.ended.Store(true)
		d.busy.Add(-1)
	}
}

// attempt makes one.
func (d *Dispatcher) attempt(f *flight, rnd *rand.Rand) {
	ev, err := d.outbox.Load(f.item.ID)
	if err != nil && fatal(err) {
		d.inbox.fail(err)
		return
	}
	var r Result
	if err != nil {
		r = Result{Outcome: OutcomeInternal, Detail: "the event cannot be read"}
		if errors.Is(err, ErrNotFound) {
			r.Detail = "the event is gone"
		} else {
			d.log.Error("read event", slog.String(d.cfg.NameKey, f.queue.id), slog.Any(keyErr, err))
		}
		ev = &Event{}
	} else {
		ev.Redelivered = f.item.Redelivered
		r = d.send(f, ev)
	}
	if r.Took == 0 {
		r.Took = d.clock.mono() - f.began
	}
	x := d.settle(f, &r, rnd)
	d.cfg.Observe(f.endpoint, &f.settlement)
	d.record(f, ev.ID)
	d.tell(f, ev, x.Notices)
}

// send has the sender make the attempt.
func (d *Dispatcher) send(f *flight, ev *Event) (r Result) {
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("attempt panicked", slog.String(d.cfg.NameKey, f.queue.id), slog.Any(keyErr, fmt.Errorf("panic: %v", p)),
				slog.String("stack", string(debug.Stack())))
			r = Result{Outcome: OutcomeInternal, Detail: "fault of sidehook, see its log"}
		}
	}()
	r = d.cfg.Sender.Send(d.sending, f.endpoint, ev, f.item.Tries+1)
	switch {
	case d.sending.Err() != nil && r.Status == 0:
		r.Outcome, r.Detail = OutcomeInterrupted, errStopping.Error()
	case r.Outcome == 0 || r.Outcome >= outcomes:
		r.Outcome = OutcomeInternal
	}
	return r
}

// settle decides what follows from an attempt and hands that to the outbox.
func (d *Dispatcher) settle(f *flight, r *Result, rnd *rand.Rand) Decision {
	q, s := f.queue, &f.settlement
	q.mu.Lock()
	defer q.mu.Unlock()
	mono, now := d.clock.mono(), d.clock.now()
	// On disk the due time is one of the queue's frame; what is decided here is decided by the clock as it is now.
	delivery := f.item.Delivery
	delivery.Due = now.Add(f.item.at - mono)
	early := f.probe && f.item.Lane == LaneRetry && f.item.at > f.began
	x := Decide(&f.endpoint.Policy, &delivery, q.health, r, Occasion{Now: now, Probe: f.probe, Early: early, Open: q.open}, rnd)
	f.resumed = x.Resumed
	*s = Settlement{
		Attempt: Attempt{
			Delivery: f.item.ID, N: f.item.Tries + 1, At: f.at, Trigger: f.trigger(), Outcome: r.Outcome, Counted: x.Counted, Status: r.Status,
			Took: r.Took, IP: r.IP, RetryAfter: r.RetryAfter, Answer: r.Answer, AnswerBytes: r.AnswerBytes, Truncated: r.Truncated, Detail: r.Detail,
		},
		Created: f.item.Created, State: x.State, Lane: x.Lane, Due: f.item.Due, Attempts: x.Attempts, NotReached: x.NotReached,
	}
	f.again = f.item.at
	if !x.Due.Equal(delivery.Due) {
		f.again = mono + x.Due.Sub(now)
		s.Due = q.frame.due(f.again)
	}
	if x.HealthChanged {
		q.health = x.Health
		if q.health.Held() {
			q.probeAt = mono + q.health.HeldUntil.Sub(now)
		}
		s.Health = new(q.health)
	}
	f.settling = true
	d.outbox.Settle(s, f.done)
	return x
}

// done is told when the settlement is on disk.
func (f *flight) done(err error) {
	f.err = err
	f.d.inbox.settled(f)
}

func (f *flight) trigger() Trigger {
	switch {
	case f.probe:
		return TriggerProbe
	case f.item.Redelivered && f.item.Attempts == 0:
		return TriggerRedelivery
	}
	return TriggerSchedule
}

// record writes the one line about an attempt.
func (d *Dispatcher) record(f *flight, eventID string) {
	s := &f.settlement
	a := &s.Attempt
	ctx, level := context.Background(), a.Outcome.rule().level
	if s.State == StateDead {
		level = max(level, slog.LevelWarn)
	}
	if !d.log.Enabled(ctx, level) {
		return
	}
	var left int64
	if level < slog.LevelError && s.State != StateDead {
		var ok bool
		if ok, left = f.queue.lines.Take(a.At, attemptLines); !ok {
			return
		}
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String(d.cfg.NameKey, f.queue.id), slog.String(keyEventID, eventID), slog.String(keyDelivery, a.Delivery.String()),
		slog.Int(keyAttempt, a.N), slog.String(keyOutcome, a.Outcome.String()), slog.Int(keyStatus, a.Status),
		slog.Int64(keyDuration, a.Took.Milliseconds()))
	if a.IP.IsValid() {
		attrs = append(attrs, slog.String(keyIP, a.IP.String()))
	}
	if s.State != StateDelivered {
		attrs = append(attrs, slog.String(keyState, s.State.String()), slog.String(keyDetail, a.Detail))
	}
	if left > 0 {
		attrs = append(attrs, slog.Int64(keySuppressed, left))
	}
	d.log.LogAttrs(ctx, level, "attempt", attrs...)
}

// tell hands on what the endpoint's owner shall hear.
func (d *Dispatcher) tell(f *flight, ev *Event, notices []Notice) {
	for _, n := range notices {
		n.Endpoint, n.Tenant, n.Owner = f.endpoint.ID, f.endpoint.Tenant, f.endpoint.Owner
		n.DeliveryID, n.EventID = f.item.ID, ev.ID
		if n.Kind != NoticeDead { // the attempt's line says that
			d.log.LogAttrs(context.Background(), slog.LevelWarn, n.Kind.String(), noticeAttrs(&n)...)
		}
		if n.Kind == NoticeDisabled { // nobody asked for it, and it is a change all the same
			d.log.LogAttrs(context.Background(), slog.LevelInfo, "audit", slog.GroupAttrs("audit",
				slog.String("who", "attempt "+n.DeliveryID.String()), slog.String("what", "endpoint disable"), slog.String(keyEndpoint, n.Endpoint),
				slog.String("before", "enabled"), slog.String("after", "disabled "+disableReasonName(n.Disabled))))
		}
		d.cfg.Notify(n)
	}
}

// noticeAttrs are what a notice's line holds.
func noticeAttrs(n *Notice) []slog.Attr {
	attrs := []slog.Attr{slog.String(keyEndpoint, n.Endpoint), slog.String(keyOutcome, n.Outcome.String())}
	if n.Disabled != NotDisabled {
		attrs = append(attrs, slog.String(keyDisabled, disableReasonName(n.Disabled)))
	}
	if n.Percent > 0 {
		attrs = append(attrs, slog.Int(keyPercent, n.Percent))
	}
	if !n.Since.IsZero() {
		attrs = append(attrs, slog.Time(keySince, n.Since))
	}
	return attrs
}
