package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

const (
	// DefaultEndpointDeliveries is how many deliveries may wait at one endpoint.
	DefaultEndpointDeliveries = 100_000
	// endpointShare is the part of the store's limit that the bodies of what one endpoint has not taken may take.
	endpointShare = 4
	// StoredSpace is the space of an outbox of what came in, on its way to the app.
	StoredSpace = "stored/"
)

// BoltOutboxConfig says on what a BoltOutbox works.
type BoltOutboxConfig struct {
	// Store is open and not running yet; its owner runs and closes it.
	Store *store.Store
	// Space is the space of the store that the outbox lies in: two of one store lie in different ones. Default: "", that of
	// what the app publishes.
	Space string
	// EndpointDeliveries bounds the deliveries that wait at one endpoint, EndpointBytes the bodies of these and of its dead
	// letters, which are kept for months: else one dead endpoint would fill the store for all. An endpoint at either bound
	// gets nothing more. Default: DefaultEndpointDeliveries, a quarter of the store's limit.
	EndpointDeliveries int
	EndpointBytes      int64
	// StopOnDead reports whether a dead letter at an endpoint stops those that came after it with the same Event.Order until it
	// is redelivered or discarded. It is called by the committer, and must be quick. Nil: never.
	StopOnDead func(endpoint string) bool
	// KeepRemoved: what waits at an endpoint that is not in SetEndpoints waits on, and goes on where the endpoint comes back.
	// Else it is CANCELLED.
	KeepRemoved bool
	Logger      *slog.Logger
}

// BoltOutbox is the Outbox on a store.
type BoltOutbox struct {
	store         *store.Space
	endpointRows  int64
	endpointBytes int64
	stopOnDead    func(endpoint string) bool
	keepRemoved   bool
	log           *slog.Logger
	changes       atomic.Pointer[Changes]
	// endpoints is replaced by the committer's goroutine alone, once what it says is on disk.
	endpoints atomic.Pointer[roster]
	// endpointTurn counts the calls of SetEndpoints.
	endpointTurn atomic.Uint64
	totals       totals
	lastSeq      atomic.Uint64
	removed      chan struct{} // wakes Run; of size 1

	opened time.Time // with its monotonic reading
	newest int64     // the newest time, unix milliseconds, that the outbox held when it was opened; 0: none
}

var _ Outbox = (*BoltOutbox)(nil)

// roster says which number each endpoint has. Nobody changes one that is in BoltOutbox.endpoints.
type roster struct {
	numbers map[string]uint32 // of those to which something can be sent
	names   map[uint32]string // of these, and of those that may come back
}

func newRoster() *roster { return &roster{make(map[string]uint32), make(map[uint32]string)} }

func (r *roster) put(name string, number uint32) { r.numbers[name], r.names[number] = number, name }

func (r *roster) drop(name string) {
	delete(r.names, r.numbers[name])
	delete(r.numbers, name)
}

// NewBoltOutbox makes the outbox's buckets in cfg.Store, and logs as interrupted the attempts that were under way when it
// was last closed. It starts no goroutine. Deliveries are accepted while the store runs, for the endpoints of the last
// SetEndpoints. What waits is not read: opening takes as long with a million deliveries as with none.
func NewBoltOutbox(cfg BoltOutboxConfig) (*BoltOutbox, error) {
	if cfg.Store == nil {
		return nil, errors.New("bolt outbox without a store")
	}
	_, limit := cfg.Store.Usage()
	b := &BoltOutbox{
		store:         cfg.Store.Space(cfg.Space),
		endpointRows:  int64(cmp.Or(cfg.EndpointDeliveries, DefaultEndpointDeliveries)),
		endpointBytes: cmp.Or(cfg.EndpointBytes, limit/endpointShare),
		stopOnDead:    cfg.StopOnDead,
		keepRemoved:   cfg.KeepRemoved,
		log:           cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		removed:       make(chan struct{}, 1),
		opened:        time.Now(),
	}
	b.totals.activated = b.accepted
	if err := b.store.Setup(b.setUp); err != nil {
		return nil, fmt.Errorf("open outbox: %w", err)
	}
	if err := b.logInterrupted(); err != nil {
		return nil, fmt.Errorf("open outbox: %w", err)
	}
	return b, nil
}

func (b *BoltOutbox) setUp(tx *store.Tx) error {
	for _, name := range [][]byte{
		eventBucket, bodyBucket, openBucket, idBucket, deliveryBucket, chainBucket, dueBucket, deadBucket, attemptBucket, logBucket,
		markBucket, countBucket, endpointBucket, numberBucket, jobBucket,
	} {
		if err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	found, err := sumCounts(tx)
	if err != nil {
		return err
	}
	logged, err := logBytes(tx)
	if err != nil {
		return err
	}
	b.totals.replace(found, logged)
	names := newRoster()
	err = eachEndpoint(tx, func(id string, r *endpointRow) { names.put(id, r.Number) })
	if err != nil {
		return err
	}
	b.endpoints.Store(names)
	if last, _ := tx.Cursor(eventBucket).Last(); last != nil {
		seq, err := parseSeq(last)
		if err != nil {
			return corruptRow(err)
		}
		b.lastSeq.Store(seq)
		b.newest = seqTime(seq)
	}
	return nil
}

// SetChanges has c told of what happens in the outbox from now on.
func (b *BoltOutbox) SetChanges(c Changes) { b.changes.Store(&c) }

// accepted and changed tell the Changes, if there is one.
func (b *BoltOutbox) accepted(ds []Delivery) {
	if c := b.changes.Load(); c != nil && len(ds) > 0 {
		(*c).Accepted(ds)
	}
}

func (b *BoltOutbox) changed(endpoint string) {
	if c := b.changes.Load(); c != nil {
		(*c).Changed(endpoint)
	}
}

// nextSeq numbers an event that is accepted at now. Numbers go up, also where the clock goes back.
func (b *BoltOutbox) nextSeq(now time.Time) uint64 {
	for {
		last := b.lastSeq.Load()
		seq := max(last+1, uint64(now.UnixMilli())<<seqCountBits)
		if b.lastSeq.CompareAndSwap(last, seq) {
			return seq
		}
	}
}

// Totals calls f with the number of deliveries to each endpoint in each state, as of the last commit, in no order;
// WAITING includes those that are under way or parked. Those to removed endpoints come under "". It reads nothing.
func (b *BoltOutbox) Totals(f func(endpoint string, s State, n Count)) {
	names := b.endpoints.Load().names
	var gone [states]Count
	b.totals.each(func(endpoint uint32, s State, n Count) {
		if name, ok := names[endpoint]; ok {
			f(name, s, n)
			return
		}
		gone[s].Rows += n.Rows
		gone[s].Bytes += n.Bytes
	})
	for s, n := range gone {
		if n.Rows != 0 {
			f("", State(s), n)
		}
	}
}

// full reports whether an endpoint has as much as it may have, by what waits at it and what is dead.
func (b *BoltOutbox) full(waiting, dead Count) bool {
	return waiting.Rows >= b.endpointRows || waiting.Bytes+dead.Bytes >= b.endpointBytes
}

// wait returns what came on answered, or ctx's error if that ends first: what was asked for is then done all the same.
func wait(ctx context.Context, answered <-chan error) error {
	select {
	case err := <-answered:
		return unavailable(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unavailable marks err, unless nil, as ErrFull if there is no room on the disk, and else as ErrUnavailable.
func unavailable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrState), errors.Is(err, ErrConflict), errors.Is(err, ErrFull):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// deliveryOf reads a delivery's row. ErrNotFound.
func deliveryOf(tx *store.Tx, id DeliveryID) (deliveryRow, error) {
	var key [deliveryKeySize]byte
	value := tx.Get(deliveryBucket, appendDeliveryKey(key[:0], id))
	if value == nil {
		return deliveryRow{}, ErrNotFound
	}
	r, err := parseDelivery(value, id.Event)
	if err != nil {
		return r, corruptRow(err)
	}
	return r, nil
}

// eventOf reads an event's row. ErrNotFound.
func eventOf(tx *store.Tx, seq uint64) (eventRow, error) {
	var key [8]byte
	value := tx.Get(eventBucket, appendSeq(key[:0], seq))
	if value == nil {
		return eventRow{}, ErrNotFound
	}
	r, err := parseEvent(value, seq)
	if err != nil {
		return r, corruptRow(err)
	}
	return r, nil
}

// findEvent finds the event of a tenant and id. ErrNotFound.
func findEvent(tx *store.Tx, tenant, id string) (seq uint64, r eventRow, err error) {
	if value := tx.Get(idBucket, idKey(tenant, id)); value != nil {
		if seq, err = parseSeq(value); err != nil {
			return 0, r, corruptRow(err)
		}
		r, err = eventOf(tx, seq)
		if err == nil && (r.ID != id || r.Tenant != tenant) {
			err = ErrNotFound // two ids with one key: not in the life of this program
		}
		return seq, r, err
	}
	seq, ok := seqOfEventID(id)
	if !ok {
		return 0, r, ErrNotFound
	}
	r, err = eventOf(tx, seq)
	if err == nil && (r.ID != id || r.Tenant != tenant) {
		err = ErrNotFound
	}
	return seq, r, err
}

// event is the row as an Event, without its body.
func (r *eventRow) event(seq uint64) Event {
	return Event{
		Seq: seq, ID: r.ID, Tenant: r.Tenant, Type: r.Type, ContentType: r.ContentType, Headers: r.Headers,
		Content: r.Content, Accepted: fromMillis(r.Accepted),
	}
}

// nameOf is the ID of the endpoint with that number, also of a removed one.
func (b *BoltOutbox) nameOf(tx *store.Tx, number uint32) (string, error) {
	if name, ok := b.endpoints.Load().names[number]; ok {
		return name, nil
	}
	var key [4]byte
	value := tx.Get(numberBucket, appendNumber(key[:0], number))
	if value == nil {
		return "", corruptRow(fmt.Errorf("%w: no endpoint has the number %d", errRow, number))
	}
	r, err := parseNumberRow(value)
	if err != nil {
		return "", corruptRow(err)
	}
	return r.Endpoint, nil
}

// eachEndpoint calls f with the endpoints that are not removed.
func eachEndpoint(tx *store.Tx, f func(id string, r *endpointRow)) error {
	c := tx.Cursor(endpointBucket)
	for k, v := c.First(); k != nil; k, v = c.Next() {
		r, err := parseEndpointRow(v)
		if err != nil {
			return corruptRow(err)
		}
		f(string(k), &r)
	}
	return nil
}
