package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

const (
	// DefaultMaxInFlight is how many attempts are in flight in all.
	DefaultMaxInFlight = 512
	// DefaultGrace is how long attempts in flight may take after the dispatcher was told to stop.
	DefaultGrace = 10 * time.Second

	// settleGrace is how long what came of the last attempts may take to reach the disk. What does not is tried again
	// after the restart, as after a kill.
	settleGrace = 5 * time.Second
	// markAfter is how long an attempt is in flight before that is noted on disk: fast ones cost no write.
	markAfter = 50 * time.Millisecond
	// againAfter stands between two tries of what the outbox refused.
	againAfter = time.Second
	// retireAfter is how long a worker is kept that has nothing to do.
	retireAfter = 30 * time.Second
	// maxNews bounds what was accepted since the loop last looked; beyond, it reads it from the disk.
	maxNews = 1 << 14
)

// errStopping is the cause with which attempts are cut off that outlast the grace.
var errStopping = errors.New("sidehook stops")

// DispatcherConfig says what a Dispatcher works with.
type DispatcherConfig struct {
	Outbox Outbox
	Sender Sender
	// Endpoints returns the endpoints in force; call Refresh after it returns others.
	Endpoints func() *Endpoints
	// MaxInFlight bounds the attempts in flight in all; default DefaultMaxInFlight.
	MaxInFlight int
	// MaxBytes bounds the bodies of the attempts in flight in all, which are in memory: an endpoint with one in flight gets no
	// other past it. 0: no bound.
	MaxBytes int64
	// Grace is how long attempts in flight may take once Run was told to stop; default DefaultGrace.
	Grace time.Duration
	// Paused: nothing is sent until SetPaused(false).
	Paused bool
	// Notify hears what an endpoint's owner shall hear. It must not block.
	Notify func(Notice)
	// NameKey is the key of an endpoint's name in the log; default "endpoint".
	NameKey string
	// Observe hears of each attempt once it has ended, before it is on disk. It must not block and keeps nothing.
	Observe func(*Endpoint, *Settlement)
	Logger  *slog.Logger
}

// Dispatcher decides who is sent to, and when. One goroutine owns the queues, one for each endpoint, and serves them in
// turn; workers make the attempts. An attempt counts as in flight until what came of it is on disk.
//
// Locks: mu and a queue's mu are never held together; inbox.mu is taken last.
type Dispatcher struct {
	cfg    DispatcherConfig
	outbox Outbox
	log    *slog.Logger
	clock  runClock
	inbox  inbox
	paused atomic.Bool
	ran    atomic.Bool

	mu      sync.RWMutex // covers the next two
	queues  map[string]*queue
	flights map[DeliveryID]*flight
	set     atomic.Pointer[Endpoints] // the one that queues is of
	setting sync.Mutex                // is held while queues is made to match a set

	// What follows belongs to Run's goroutine.
	turns    turns
	marks    []*flight // not marked yet, by their start
	unkept   []*flight // whose settlement the outbox refused
	againAt  time.Duration
	total    int   // in flight
	bytes    int64 // of their bodies
	slow     int   // of them, to endpoints that last timed out
	spare    news
	scratch  []Delivery
	workers  int
	peak     int // of busy, since the last look at the workers
	retireAt time.Duration

	jobs    chan *flight
	busy    atomic.Int64 // workers with a job
	working sync.WaitGroup
	sending context.Context // of the attempts; ends with the grace
	cut     context.CancelCauseFunc
}

var _ Changes = (*Dispatcher)(nil)

// NewDispatcher makes a dispatcher and reads the health of the endpoints. Nothing is sent before Run.
func NewDispatcher(cfg DispatcherConfig) (*Dispatcher, error) {
	if cfg.Outbox == nil || cfg.Sender == nil || cfg.Endpoints == nil {
		return nil, errors.New("dispatcher without outbox, sender or endpoints")
	}
	cfg.MaxInFlight = cmp.Or(max(cfg.MaxInFlight, 0), DefaultMaxInFlight)
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	cfg.NameKey = cmp.Or(cfg.NameKey, keyEndpoint)
	if cfg.Notify == nil {
		cfg.Notify = func(Notice) {}
	}
	if cfg.Observe == nil {
		cfg.Observe = func(*Endpoint, *Settlement) {}
	}
	d := &Dispatcher{
		cfg:     cfg,
		outbox:  cfg.Outbox,
		log:     cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		clock:   newRunClock(),
		inbox:   inbox{wake: make(chan struct{}, 1)},
		queues:  make(map[string]*queue),
		flights: make(map[DeliveryID]*flight),
		jobs:    make(chan *flight, 2*cfg.MaxInFlight),
	}
	d.sending, d.cut = context.WithCancelCause(context.Background())
	d.paused.Store(cfg.Paused)
	if err := d.match(); err != nil {
		return nil, fmt.Errorf("open dispatcher: %w", err)
	}
	return d, nil
}

// Run sends until ctx ends. Then it begins no attempt, waits for those in flight for the grace, cuts off what is left, and
// returns nil once what came of them is on disk. It returns an error when the outbox has failed for good: what cannot
// be recorded must not be sent. It runs once.
func (d *Dispatcher) Run(ctx context.Context) error {
	if d.ran.Swap(true) {
		return errors.New("dispatcher run twice")
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer d.end()
	for {
		if err := d.drain(); err != nil {
			return fmt.Errorf("dispatch: %w", err)
		}
		if err := d.match(); fatal(err) {
			return fmt.Errorf("dispatch: %w", err)
		} else if err != nil {
			d.log.Error("dispatch", slog.Any(keyErr, err))
		}
		if ctx.Err() != nil {
			return d.stop(timer)
		}
		if err := d.pass(timer, true); err != nil {
			return fmt.Errorf("dispatch: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-d.inbox.wake:
		case <-timer.C:
		}
	}
}

// pass does what is to be done now and sets timer to when there is more.
func (d *Dispatcher) pass(timer *time.Timer, send bool) error {
	now := d.clock.mono()
	next := d.settleAgain(now)
	if send {
		at, err := d.serveAll(now)
		if err != nil {
			return err
		}
		next = min(next, at, d.retire(now))
	}
	next = min(next, d.mark(now)) // after serveAll: what it began is to be marked too
	timer.Reset(max(0, next-now))
	return nil
}

// never is later than anything that is waited for.
const never = time.Duration(1 << 62)

// stop ends what is in flight.
func (d *Dispatcher) stop(timer *time.Timer) error {
	if err := d.await(timer, d.cfg.Grace); err != nil {
		return err
	}
	if n := d.busy.Load(); n > 0 {
		d.log.LogAttrs(context.Background(), slog.LevelWarn, "attempts cut off at the end of the grace", slog.Int64("attempts", n))
	}
	d.cut(errStopping)
	return d.await(timer, settleGrace)
}

// await waits until nothing is in flight, but not longer than most.
func (d *Dispatcher) await(timer *time.Timer, most time.Duration) error {
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		if err := d.drain(); err != nil {
			return fmt.Errorf("dispatch: %w", err)
		}
		if d.total == 0 {
			return nil
		}
		if err := d.pass(timer, false); err != nil {
			return err
		}
		select {
		case <-end.C:
			return nil
		case <-d.inbox.wake:
		case <-timer.C:
		}
	}
}

// end waits for the workers.
func (d *Dispatcher) end() {
	d.cut(errStopping)
	close(d.jobs)
	d.working.Wait()
}

// drain takes note of what has happened.
func (d *Dispatcher) drain() error {
	n := d.inbox.take(d.spare)
	if n.missed {
		for _, q := range d.all() {
			for l := range q.lanes {
				q.lanes[l].complete = false
			}
			d.turns.ready(q)
		}
	}
	if len(n.accepted) > 0 {
		d.accept(n.accepted)
	}
	for _, id := range n.changed {
		d.change(id)
	}
	for _, l := range n.looks {
		if l.afresh {
			l.queue.pace.start()
		}
		d.turns.ready(l.queue)
	}
	if len(n.settled) > 0 {
		d.turns.unblock() // before those who land: it is their turn
	}
	for _, f := range n.settled {
		d.land(f)
	}
	d.spare = n.reset()
	return n.err
}

// accept adds deliveries that are new to their queues.
func (d *Dispatcher) accept(ds []Delivery) {
	now := d.clock.mono()
	d.mu.RLock()
	defer d.mu.RUnlock()
	for i := range ds {
		q := d.queues[ds[i].Endpoint]
		if q == nil {
			continue
		}
		d.turns.ready(q)
		if _, flying := d.flights[ds[i].ID]; flying || !q.lanes[ds[i].Lane].complete {
			continue
		}
		q.add(item{ds[i], now})
	}
}

// change has the queue of an endpoint, or of all, look at the disk again.
func (d *Dispatcher) change(id string) {
	changed := []*queue{d.queue(id)}
	if id == "" {
		changed = d.all()
	}
	for _, q := range changed {
		if q != nil {
			q.forget()
			d.turns.ready(q)
		}
	}
}

// all returns the queues.
func (d *Dispatcher) all() []*queue {
	d.mu.RLock()
	defer d.mu.RUnlock()
	all := make([]*queue, 0, len(d.queues))
	for _, q := range d.queues {
		all = append(all, q)
	}
	return all
}

// match makes the queues those of the endpoints in force.
func (d *Dispatcher) match() error {
	if d.cfg.Endpoints() == d.set.Load() {
		return nil
	}
	d.setting.Lock()
	defer d.setting.Unlock()
	set := d.cfg.Endpoints()
	if set == d.set.Load() || set == nil {
		return nil
	}
	// Health is read before the endpoints are there to be served.
	healths, err := d.outbox.Healths()
	if err != nil {
		return fmt.Errorf("read health of endpoints: %w", err)
	}
	d.mu.Lock()
	for id, q := range d.queues {
		if set.ByID(id) == nil {
			q.endpoint.Store(nil) // for those who have it in hand
			delete(d.queues, id)
		}
	}
	looks := make([]look, 0, len(set.All()))
	for _, e := range set.All() {
		q := d.queues[e.ID]
		if q == nil {
			q = d.newQueue(e, healths[e.ID])
			d.queues[e.ID] = q
		}
		was := q.endpoint.Swap(e)
		looks = append(looks, look{q, was != nil && was.Unusable != "" && e.Unusable == ""})
	}
	d.mu.Unlock()
	d.set.Store(set)
	for _, l := range looks {
		if l.afresh {
			l.queue.reopen(d.clock.now())
		}
		d.inbox.look(l.queue, l.afresh)
	}
	return nil
}

// fatal reports whether err ends the dispatcher.
func fatal(err error) bool { return store.Fatal(err) || errors.Is(err, store.ErrClosed) }
