package egress

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/internal/loglimit"
)

// retryTurn: where both wait, every so-manieth attempt to an endpoint is a late retry, so that a stream of new events does
// not keep retries back for ever.
const retryTurn = 8

// queue is what the dispatcher keeps of one endpoint.
type queue struct {
	id string
	// endpoint in force; nil: it was removed, and nothing is sent.
	endpoint atomic.Pointer[Endpoint]
	lines    loglimit.Limiter
	control  sync.Mutex // is held while a person's change goes to disk, so that two arrive there in order

	mu     sync.Mutex // covers the next four; Outbox.Settle is called under it, so that health reaches the disk in order
	health Health
	// probeAt is Health.HeldUntil by the monotonic clock.
	probeAt time.Duration
	// open is since when something could be sent; see Occasion.
	open  time.Time
	frame frame // changed by the loop only

	// What follows belongs to the loop.
	lanes [lanes]laneQueue
	// here are the deliveries in lanes, kept the late retries that forget took out of them.
	here     map[DeliveryID]struct{}
	kept     map[DeliveryID]item
	loaded   bool   // lanes were filled before
	gen      uint64 // counts forget
	inFlight int
	probing  bool
	last     DeliveryID // that was sent; the zero value before the first
	proven   bool       // it has taken a delivery
	taken    uint       // attempts while both lanes waited
	pace     pace
	bucket   bucket
	turn     turn
}

func (d *Dispatcher) newQueue(e *Endpoint, h Health) *queue {
	now := d.clock.now()
	q := &queue{id: e.ID, health: h, open: now, frame: d.clock.newFrame(), here: make(map[DeliveryID]struct{}), turn: turn{at: never, index: -1}}
	switch {
	case !h.Held():
	case e.Policy.HoldOnlyUnreached:
		q.probeAt = d.clock.mono() // it has probably been started together with us
	default:
		// The clock may have been set back since.
		q.probeAt = d.clock.mono() + min(h.HeldUntil.Sub(now), MaxRetryAfter)
	}
	return q
}

// state is what of the health decides whether something is sent.
func (q *queue) state() (disabled, held bool, probeAt time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.health.Disabled != NotDisabled, q.health.Held(), q.probeAt
}

// reopen notes that something can be sent again.
func (q *queue) reopen(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = now
}

// add puts it into its lane's window, unless it is there or does not belong there.
func (q *queue) add(it item) {
	if _, twice := q.here[it.ID]; twice {
		return
	}
	out, ok := q.lanes[it.Lane].add(it)
	if ok {
		q.here[it.ID] = struct{}{}
	}
	if out != nil {
		delete(q.here, out.ID)
	}
}

// forget empties the windows: something was changed on disk. What was not is due when it was.
func (q *queue) forget() {
	if retries := &q.lanes[LaneRetry]; retries.len() > 0 {
		q.kept = make(map[DeliveryID]item, retries.len())
		for _, it := range retries.items[retries.head:] {
			q.kept[it.ID] = it
		}
	}
	for i := range q.lanes {
		q.lanes[i].forget()
	}
	clear(q.here)
	q.gen++
}

// choose returns the delivery that is to be sent now, by its lane and its number there. none: there is none, and at says when
// there will be one.
func (q *queue) choose(now time.Duration, held bool) (l Lane, i int, at time.Duration, none bool) {
	if held {
		l, i, none = q.probe()
		return l, i, never, none
	}
	l, at, none = q.next(now)
	return l, 0, at, none
}

// next returns the lane whose first delivery is to be sent now. none: there is none, and at says when there will be one.
func (q *queue) next(now time.Duration) (l Lane, at time.Duration, none bool) {
	first, retry := q.lanes[LaneFirst].first(), q.lanes[LaneRetry].first()
	switch {
	case first == nil && retry == nil:
		return 0, never, true
	case first != nil && retry != nil && retry.at <= now:
		if q.taken++; q.taken%retryTurn == 0 {
			return LaneRetry, 0, false
		}
		return LaneFirst, 0, false
	case first != nil:
		return LaneFirst, 0, false
	case retry.at <= now:
		return LaneRetry, 0, false
	}
	return 0, retry.at, true
}

// probe returns the delivery that is to be the next probe, by its lane and its number there: any will do, the one that is
// due longest is best, and none twice in a row unless it is the only one. Where the fault is one event's, another one finds that.
func (q *queue) probe() (l Lane, i int, none bool) {
	var best *item
	for _, last := range []DeliveryID{q.last, {}} {
		for lane := range lanes {
			if j, it := q.lanes[lane].other(last); it != nil && (best == nil || it.at < best.at) {
				l, i, best = lane, j, it
			}
		}
		if best != nil {
			return l, i, false
		}
	}
	return 0, 0, true
}

// fill reads the windows that are empty and of which it is not known that nothing waits beyond them.
func (d *Dispatcher) fill(q *queue, e *Endpoint, now time.Duration) error {
	for l := range lanes {
		if lane := &q.lanes[l]; lane.len() == 0 && !lane.complete {
			if err := d.load(q, e, l, now); err != nil {
				return err
			}
		}
	}
	if !q.loaded {
		q.loaded = true
		if d.backlog(q, now) {
			q.pace.start()
		}
	}
	return nil
}

// load reads the window of a lane from its start. What is in flight still waits on disk, and is passed over. That nothing is
// sent twice rests on this: whatever was settled before the read began is not in flight any more, and not WAITING on
// disk as it was; and what is settled during it is in flight until the loop comes back.
func (d *Dispatcher) load(q *queue, e *Endpoint, l Lane, now time.Duration) error {
	n := laneWindow + q.inFlight
	ds, err := d.outbox.Due(d.scratch[:0], q.id, l, nil, n)
	d.scratch = ds[:0]
	if err != nil {
		return fmt.Errorf("read what is due: %w", err)
	}
	lane := &q.lanes[l]
	lane.complete = true // so that all of them can be added
	latest := now + max(e.Policy.Schedule.Longest(), MaxRetryAfter+share(MaxRetryAfter, 100))
	if lane.items == nil {
		lane.items = make([]item, 0, min(len(ds), laneWindow))
	}
	d.mu.RLock()
	for i := range ds {
		if _, flying := d.flights[ds[i].ID]; !flying {
			q.add(item{ds[i], q.deadline(&ds[i], now, latest)})
		}
	}
	d.mu.RUnlock()
	if l == LaneRetry {
		q.kept = nil
	}
	if len(ds) == n {
		lane.complete = false
	}
	clear(ds)
	d.follow(q)
	return nil
}

// deadline is when d is due, which was read from the disk: by its frame, unless that is known better. It is not after latest:
// nothing waits for longer than its schedule, whatever has happened to the clock.
func (q *queue) deadline(d *Delivery, now, latest time.Duration) time.Duration {
	if was, ok := q.kept[d.ID]; ok && was.Due.Equal(d.Due) {
		return was.at
	}
	at := q.frame.deadline(d.Due)
	if d.Redelivered && d.Attempts == 0 {
		at = min(at, now) // whoever asked for it wrote the time as it was for them
	}
	return min(at, latest)
}

// follow has what is kept of q's due times on disk follow the wall clock.
func (d *Dispatcher) follow(q *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.frame.follow(&d.clock, q.lanes[LaneRetry].complete)
}

// backlog reports whether something waits at q that was there before the process was: what waits is then not sent at one
// go.
func (d *Dispatcher) backlog(q *queue, now time.Duration) bool {
	for i := range q.lanes {
		if it := q.lanes[i].first(); it != nil && (Lane(i) == LaneFirst || it.at <= now) && it.Created.Before(d.clock.start) {
			return true
		}
	}
	return false
}

// unreadable takes note that what is due could not be read; it is tried again.
func (d *Dispatcher) unreadable(q *queue, err error, now time.Duration) {
	d.log.Error("read outbox", slog.String(d.cfg.NameKey, q.id), slog.Any(keyErr, err))
	d.turns.wake(q, now+againAfter)
}
