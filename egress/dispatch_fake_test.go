package egress

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// dispatchOutbox is an Outbox in memory for the tests of the dispatcher: it writes in order on one goroutine, as a store does,
// and each commit takes as long as it is told.
type dispatchOutbox struct {
	commit time.Duration
	// refuse, if set, is asked before a settlement is written, and its error is what done is called with.
	refuse func(*Settlement) error

	mu       sync.Mutex
	changes  Changes
	seq      uint64
	numbers  map[string]uint32
	rows     map[DeliveryID]Delivery
	events   map[uint64]*Event
	due      map[string]*[lanes][]dispatchKey
	counts   map[dispatchCount]int
	health   map[string]Health
	attempts map[DeliveryID][]Attempt
	marks    map[DeliveryID]int
	reads    int // of Due
	bytes    int // of each new event; 0: 2
	loadErr  error
	queue    []func() func()
	wake     chan struct{}
}

type dispatchCount struct {
	endpoint string
	state    State
}

type dispatchKey struct {
	due int64
	id  DeliveryID
}

func (k dispatchKey) compare(o dispatchKey) int {
	return cmp.Or(cmp.Compare(k.due, o.due), cmp.Compare(k.id.Event, o.id.Event))
}

var _ Outbox = (*dispatchOutbox)(nil)

func newDispatchOutbox() *dispatchOutbox {
	return &dispatchOutbox{
		numbers: make(map[string]uint32), rows: make(map[DeliveryID]Delivery), events: make(map[uint64]*Event),
		due: make(map[string]*[lanes][]dispatchKey), health: make(map[string]Health), counts: make(map[dispatchCount]int),
		attempts: make(map[DeliveryID][]Attempt), marks: make(map[DeliveryID]int), wake: make(chan struct{}, 1),
	}
}

// run commits until ctx ends.
func (o *dispatchOutbox) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		if o.commit > 0 {
			<-time.After(o.commit) // in a bubble: it costs no time
		}
		var dones []func()
		o.mu.Lock()
		queue := o.queue
		o.queue = nil
		for _, apply := range queue {
			if done := apply(); done != nil {
				dones = append(dones, done)
			}
		}
		o.mu.Unlock()
		for _, done := range dones {
			done()
		}
	}
}

// submit has apply called with mu held, and what it returns after that, once it is written.
func (o *dispatchOutbox) submit(apply func() func()) {
	o.mu.Lock()
	o.queue = append(o.queue, apply)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// put writes a row and keeps due right; mu is held.
func (o *dispatchOutbox) put(r Delivery) {
	old, there := o.rows[r.ID]
	o.rows[r.ID] = r
	if there {
		o.counts[dispatchCount{old.Endpoint, old.State}]--
	}
	o.counts[dispatchCount{r.Endpoint, r.State}]++
	if r.State != StateWaiting || there && old.State == StateWaiting && old.Due.Equal(r.Due) && old.Lane == r.Lane {
		return
	}
	q := o.due[r.Endpoint]
	if q == nil {
		q = new([lanes][]dispatchKey)
		o.due[r.Endpoint] = q
	}
	k := dispatchKey{r.Due.UnixMilli(), r.ID}
	keys := q[r.Lane]
	if n := len(keys); n == 0 || keys[n-1].compare(k) < 0 {
		q[r.Lane] = append(keys, k)
		return
	}
	at, _ := slices.BinarySearchFunc(keys, k, dispatchKey.compare)
	q[r.Lane] = slices.Insert(keys, at, k)
}

// newDelivery makes a row; mu is held.
func (o *dispatchOutbox) newDelivery(endpoint string, at time.Time) Delivery {
	o.seq = max(o.seq+1, uint64(at.UnixMilli())<<20)
	number, ok := o.numbers[endpoint]
	if !ok {
		number = uint32(len(o.numbers) + 1)
		o.numbers[endpoint] = number
	}
	o.events[o.seq] = &Event{Seq: o.seq, ID: "evt_" + strconv.FormatUint(o.seq, 36), Type: "invoice.paid", Body: []byte(`{}`), Accepted: at}
	d := Delivery{ID: DeliveryID{o.seq, number}, Endpoint: endpoint, State: StateWaiting, Due: at, Created: at, Bytes: cmp.Or(o.bytes, 2)}
	o.put(d)
	return d
}

// fill writes n deliveries that wait since at, as they are found at a start; attempts of them were made.
func (o *dispatchOutbox) fill(endpoint string, n int, at time.Time, attempts int) (ids []DeliveryID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range n {
		d := o.newDelivery(endpoint, at.Truncate(time.Millisecond))
		if attempts > 0 {
			d.Attempts, d.Tries, d.Lane = attempts, attempts, LaneRetry
			o.put(d)
		}
		ids = append(ids, d.ID)
	}
	return ids
}

// Accept takes e for targets; the tests call it with events of their own.
func (o *dispatchOutbox) Accept(_ context.Context, e *Event, targets []Target) (Receipt, error) {
	done := make(chan Receipt, 1)
	at := time.Now().UTC().Truncate(time.Millisecond)
	o.submit(func() func() {
		var ds []Delivery
		var receipt Receipt
		for _, t := range targets {
			d := o.newDelivery(t.Endpoint, at)
			ds = append(ds, d)
			receipt.Deliveries = append(receipt.Deliveries, ReceiptDelivery{ID: d.ID, Endpoint: t.Endpoint})
		}
		return func() {
			o.changes.Accepted(ds)
			done <- receipt
		}
	})
	return <-done, nil
}

// accept takes n events for an endpoint in one commit, and returns once they are on disk.
func (o *dispatchOutbox) accept(endpoint string, n int) []DeliveryID {
	r, _ := o.Accept(context.Background(), &Event{}, slices.Repeat([]Target{{Endpoint: endpoint}}, n))
	ids := make([]DeliveryID, 0, n)
	for _, d := range r.Deliveries {
		ids = append(ids, d.ID)
	}
	return ids
}

func (o *dispatchOutbox) Due(dst []Delivery, endpoint string, lane Lane, after *Delivery, n int) ([]Delivery, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	q := o.due[endpoint]
	if q == nil {
		return dst, nil
	}
	live := func(k dispatchKey) bool {
		r := o.rows[k.id]
		return r.State == StateWaiting && r.Lane == lane && r.Due.UnixMilli() == k.due
	}
	keys := q[lane]
	for len(keys) > 0 && !live(keys[0]) {
		keys = keys[1:]
	}
	q[lane] = keys
	for _, k := range keys {
		if n == 0 {
			break
		}
		if !live(k) || after != nil && k.compare(dispatchKey{after.Due.UnixMilli(), after.ID}) <= 0 {
			continue
		}
		dst = append(dst, o.rows[k.id])
		n--
	}
	return dst, nil
}

func (o *dispatchOutbox) Load(id DeliveryID) (*Event, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.loadErr != nil {
		return nil, o.loadErr
	}
	e, ok := o.events[id.Event]
	if !ok {
		return nil, ErrNotFound
	}
	return e, nil
}

func (o *dispatchOutbox) Mark(d *Delivery, _ time.Time, _ Trigger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.marks[d.ID]++
}

func (o *dispatchOutbox) Settle(s *Settlement, done func(error)) {
	o.submit(func() func() {
		if o.refuse != nil {
			if err := o.refuse(s); err != nil {
				return func() { done(err) }
			}
		}
		id := s.Attempt.Delivery
		o.attempts[id] = append(o.attempts[id], s.Attempt)
		delete(o.marks, id)
		if r := o.rows[id]; r.State == StateWaiting || s.State == StateDelivered {
			r.State, r.Lane, r.Due, r.Attempts, r.Tries = s.State, s.Lane, s.Due, s.Attempts, s.Attempt.N
			r.Reason, r.NotReached = s.Attempt.Outcome, s.NotReached
			o.put(r)
		}
		if s.Health != nil {
			o.health[o.rows[id].Endpoint] = *s.Health
		}
		return func() { done(nil) }
	})
}

func (o *dispatchOutbox) SetHealth(_ context.Context, endpoint string, h Health) error {
	done := make(chan struct{})
	o.submit(func() func() {
		o.health[endpoint] = h
		return func() { close(done) }
	})
	<-done
	return nil
}

func (o *dispatchOutbox) Healths() (map[string]Health, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]Health, len(o.health))
	maps.Copy(all, o.health)
	return all, nil
}

// change writes a row as a person's wish does, and tells of it.
func (o *dispatchOutbox) change(id DeliveryID, f func(*Delivery)) {
	done := make(chan struct{})
	o.submit(func() func() {
		r := o.rows[id]
		f(&r)
		o.put(r)
		return func() {
			o.changes.Changed(r.Endpoint)
			close(done)
		}
	})
	<-done
}

func (o *dispatchOutbox) row(id DeliveryID) Delivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rows[id]
}

func (o *dispatchOutbox) healthOf(endpoint string) Health {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.health[endpoint]
}

func (o *dispatchOutbox) dueReads() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reads
}

func (o *dispatchOutbox) log(id DeliveryID) []Attempt {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.attempts[id])
}

// count returns how many deliveries of an endpoint are in that state.
func (o *dispatchOutbox) count(endpoint string, s State) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts[dispatchCount{endpoint, s}]
}
