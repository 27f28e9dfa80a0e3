package egress

import (
	"container/heap"
	"time"
)

// turns says whose turn it is: queues that can perhaps send, in turn, and for the others when to look again.
type turns struct {
	line    []*queue // who is ready, in order
	head    int      // of line, those before it are gone
	blocked []*queue // those who would send, had others not taken the slots; until something has ended
	timers  timers
	active  int // queues that are ready, blocked or in flight
}

// turn is a queue's part of turns.
type turn struct {
	ready, blocked, active bool
	at                     time.Duration // of its timer; never: it has none
	index                  int           // in timers; -1: not there
}

// ready puts q at the end of the line, if it is not in it.
func (t *turns) ready(q *queue) {
	if q.turn.ready || q.turn.blocked {
		return
	}
	q.turn.ready = true
	t.count(q)
	t.line = append(t.line, q)
}

// next takes the first of the line out of it; nil: there is none.
func (t *turns) next() *queue {
	if t.head == len(t.line) {
		t.line, t.head = t.line[:0], 0
		return nil
	}
	q := t.line[t.head]
	t.line[t.head] = nil
	t.head++
	if t.head > 64 && t.head >= len(t.line)/2 {
		n := copy(t.line, t.line[t.head:])
		clear(t.line[n:])
		t.line, t.head = t.line[:n], 0
	}
	q.turn.ready = false
	return q
}

// block keeps q until something has ended.
func (t *turns) block(q *queue) {
	q.turn.blocked = true
	t.blocked = append(t.blocked, q)
}

// unblock puts back those who were blocked.
func (t *turns) unblock() {
	for i, q := range t.blocked {
		q.turn.blocked = false
		t.blocked[i] = nil
		t.ready(q)
	}
	t.blocked = t.blocked[:0]
}

// count keeps active right after something about q has changed.
func (t *turns) count(q *queue) {
	active := q.turn.ready || q.turn.blocked || q.inFlight > 0
	if active == q.turn.active {
		return
	}
	q.turn.active = active
	if active {
		t.active++
	} else {
		t.active--
	}
}

// wake has q looked at again at that time.
func (t *turns) wake(q *queue, at time.Duration) {
	switch {
	case at >= never:
		if q.turn.index >= 0 {
			heap.Remove(&t.timers, q.turn.index)
		}
		q.turn.at = never
	case q.turn.index < 0:
		q.turn.at = at
		heap.Push(&t.timers, q)
	case q.turn.at != at:
		q.turn.at = at
		heap.Fix(&t.timers, q.turn.index)
	}
}

// expire puts those into the line whose time has come.
func (t *turns) expire(now time.Duration) {
	for t.soonest() <= now {
		q := t.timers[0]
		t.wake(q, never)
		t.ready(q)
	}
}

// soonest is when the first timer ends.
func (t *turns) soonest() time.Duration {
	if len(t.timers) == 0 {
		return never
	}
	return t.timers[0].turn.at
}

// timers is a heap of queues by turn.at; it implements heap.Interface.
type timers []*queue

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].turn.at < t[j].turn.at }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].turn.index, t[j].turn.index = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	q := x.(*queue)
	q.turn.index = len(*t)
	*t = append(*t, q)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	q := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	q.turn.index = -1
	return q
}

// serveAll lets queues send in turn, one delivery each, while there are slots, and returns when to come again.
func (d *Dispatcher) serveAll(now time.Duration) (next time.Duration, err error) {
	d.turns.expire(now)
	for d.total < d.cfg.MaxInFlight {
		q := d.turns.next()
		if q == nil {
			break
		}
		sent, err := d.serve(q, now)
		if err != nil {
			if fatal(err) {
				return never, err
			}
			d.unreadable(q, err, now)
		}
		if sent {
			d.turns.ready(q)
		}
		d.turns.count(q)
	}
	return d.turns.soonest(), nil
}

// serve sends one delivery of q, if it may send one.
func (d *Dispatcher) serve(q *queue, now time.Duration) (sent bool, err error) {
	e := q.endpoint.Load()
	if e == nil {
		d.abandon(q)
		return false, nil
	}
	if d.paused.Load() || e.Unusable != "" {
		return false, nil
	}
	if q.inFlight >= q.pace.most(max(1, e.Policy.MaxInFlight)) {
		return false, nil // comes back when one of them has ended
	}
	disabled, held, probeAt := q.state()
	switch {
	case disabled || held && q.probing:
		return false, nil
	case held && now < probeAt:
		d.turns.wake(q, probeAt)
		return false, nil
	}
	if err := d.fill(q, e, now); err != nil {
		return false, err
	}
	if q.endpoint.Load() == nil {
		// It was removed while its lanes were read, and if it has come again, what was read may be of the one that came.
		d.abandon(q)
		return false, nil
	}
	lane, number, at, none := q.choose(now, held)
	if none {
		d.turns.wake(q, at)
		return false, nil
	}
	if !d.mayTake(q) || !d.mayHold(q, q.lanes[lane].at(number).Bytes) {
		d.turns.block(q)
		return false, nil
	}
	if wait := q.bucket.take(now, e.Policy.Rate); wait > 0 {
		d.turns.wake(q, now+wait)
		return false, nil
	}
	it := q.lanes[lane].take(number)
	delete(q.here, it.ID)
	d.launch(q, e, it, held, now)
	return true, nil
}

// mayHold reports whether q may have a body of that size in flight. One it may always have, so that large bodies of others
// keep nobody waiting.
func (d *Dispatcher) mayHold(q *queue, bytes int) bool {
	return d.cfg.MaxBytes == 0 || q.inFlight == 0 || d.bytes+int64(bytes) <= d.cfg.MaxBytes
}

// abandon has nothing more sent from the queue of an endpoint that was removed.
func (d *Dispatcher) abandon(q *queue) {
	q.forget()
	d.turns.wake(q, never)
}

const (
	// reserved is the part of all slots that no single endpoint can take, so that the others go on if it hangs with all that it
	// has.
	reserved = 16
	// leastUnproven is how many an endpoint may take that has not taken a delivery yet, where reserved is less.
	leastUnproven = 8
)

// mayTake reports whether q may take one of the slots that are free. One endpoint has a part of them at most, and a small
// one until it has taken something. When they become scarce, nobody has more than an equal share. And endpoints that
// last timed out have half of them at most together: however many hang, the others go on.
func (d *Dispatcher) mayTake(q *queue) bool {
	all := d.cfg.MaxInFlight
	most := all - all/reserved
	if !q.proven {
		most = max(leastUnproven, all/reserved)
	}
	if scarce := d.total >= all-all/4; scarce {
		most = min(most, max(1, all/max(1, d.turns.active)))
	}
	return q.inFlight < most && (!q.pace.slow || d.slow < max(1, all/2))
}
