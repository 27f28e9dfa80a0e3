package egress

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/sidehook/sidehook/internal/packed"
	"github.com/sidehook/sidehook/internal/store"
)

// Counters are kept in the store by endpoint, state and the time of Delivery.Created (to the hour for what waits, to the
// day for the rest), so that a summary needs no scan and tells how old the oldest is. The operations of a batch add up
// their changes, and the batch writes them once. Their sums by endpoint and state are kept in memory beside: they
// decide whether an endpoint has room, and are what the metrics show.

const (
	hourMillis = 60 * 60 * 1000
	dayHours   = 24
)

// countKey names a counter.
type countKey struct {
	endpoint uint32
	state    State
	hour     uint32 // since 1970
}

// count is a counter: deliveries, the bytes of their bodies, and why the last of them came into this state.
type count struct {
	rows, bytes int64
	reason      Outcome
	at          int64 // when that was, unix milliseconds; of no meaning while reason is 0
}

const countKeySize = 4 + 1 + 4

func (k countKey) appendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint32(append(appendNumber(b, k.endpoint), byte(k.state)), k.hour)
}

func parseCountKey(key []byte) (countKey, error) {
	if len(key) != countKeySize || !State(key[4]).kept() {
		return countKey{}, fmt.Errorf("%w: counter key %x", errRow, key)
	}
	return countKey{binary.BigEndian.Uint32(key), State(key[4]), binary.BigEndian.Uint32(key[5:])}, nil
}

func (c count) appendTo(b []byte) []byte {
	b = append(b, rowVersion<<4, byte(c.reason))
	b = binary.AppendUvarint(b, uint64(c.at))
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(c.rows)), uint64(c.bytes))
}

func parseCount(b []byte) (count, error) {
	p := packed.Reader{Rest: b}
	head := p.Byte()
	c := count{reason: Outcome(p.Byte()), at: int64(p.Uvarint())}
	c.rows, c.bytes = int64(p.Size(math.MaxInt64)), int64(p.Size(math.MaxInt64))
	if head != rowVersion<<4 || c.reason >= outcomes || c.rows == 0 || p.Bad || len(p.Rest) != 0 {
		return c, fmt.Errorf("%w: counter %x", errRow, b)
	}
	return c, nil
}

// countKey is the counter in which the row stands.
func (r *deliveryRow) countKey(endpoint uint32) countKey {
	hour := uint32(max(0, r.Created) / hourMillis)
	if r.State != StateWaiting {
		hour -= hour % dayHours
	}
	return countKey{endpoint, r.State, hour}
}

// Count is a number of deliveries, and the bytes of their bodies.
type Count struct{ Rows, Bytes int64 }

// sums are the counters of all hours, by the number of the endpoint.
type sums map[uint32]*[states]Count

func (s sums) add(endpoint uint32, state State, rows, bytes int64) {
	of := s[endpoint]
	if of == nil {
		of = new([states]Count)
		s[endpoint] = of
	}
	of[state].Rows += rows
	of[state].Bytes += bytes
}

// of returns the sum for an endpoint and state.
func (s sums) of(endpoint uint32, state State) Count {
	if of := s[endpoint]; of != nil {
		return of[state]
	}
	return Count{}
}

// totals are the sums as of the last commit.
type totals struct {
	mu       sync.Mutex
	sums     sums
	logBytes int64 // what all attempts take

	// pending is what a batch has changed and nothing has confirmed. Only the committer's goroutine, and whoever opens
	// the outbox before, use it.
	pending *countChanges

	// activated is told of what a batch has made active, once that is on disk.
	activated func([]Delivery)
}

// countChanges are what a batch does to the counters.
type countChanges struct {
	totals *totals
	// base are the sums as the batch found them. Nobody changes them while it runs.
	base   sums
	counts map[countKey]*count
	sums   sums
	// accepted is the batch's, whatever the outbox.
	accepted *acceptedBytes
	// logBytes were put into attemptBucket, or taken out.
	logBytes int64
	// activated are deliveries that are due now because those before them have come to their end.
	activated map[DeliveryID]Delivery
}

// acceptedBytes were put into the store by what a batch accepted; the store's own usage is as of its beginning.
type acceptedBytes int64

type acceptedBytesKey struct{}

// acceptedIn returns the count of tx's batch.
func acceptedIn(tx *store.Tx) *acceptedBytes {
	n, ok := tx.Value(acceptedBytesKey{}).(*acceptedBytes)
	if !ok {
		n = new(acceptedBytes)
		tx.SetValue(acceptedBytesKey{}, n)
	}
	return n
}

// changesOf returns the changes of tx's batch.
func (t *totals) changesOf(tx *store.Tx) (*countChanges, error) {
	if c, ok := tx.Value(t).(*countChanges); ok {
		return c, nil
	}
	if t.pending != nil {
		// A batch failed, and may be written all the same: only the store can tell.
		found, err := sumCounts(tx)
		if err != nil {
			return nil, err
		}
		logged, err := logBytes(tx)
		if err != nil {
			return nil, err
		}
		t.replace(found, logged)
	}
	c := &countChanges{totals: t, base: t.sums, counts: make(map[countKey]*count), sums: make(sums), accepted: acceptedIn(tx)}
	tx.SetValue(t, c)
	tx.BeforeCommit(func() error { return c.flush(tx) })
	tx.AfterCommit(c.confirm)
	return c, nil
}

// replace sets the sums, and forgets what is pending.
func (t *totals) replace(found sums, logBytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sums, t.logBytes, t.pending = found, logBytes, nil
}

// confirm takes the changes over into the sums: they are on disk.
func (c *countChanges) confirm() {
	c.sumUp()
	if len(c.activated) > 0 {
		c.totals.activated(slices.SortedFunc(maps.Values(c.activated), func(a, b Delivery) int { return compareIDs(a.ID, b.ID) }))
	}
}

// sumUp adds the changes to the sums.
func (c *countChanges) sumUp() {
	t := c.totals
	t.mu.Lock()
	defer t.mu.Unlock()
	for endpoint, of := range c.sums {
		for state, n := range of {
			t.sums.add(endpoint, State(state), n.Rows, n.Bytes)
		}
		if *t.sums[endpoint] == ([states]Count{}) {
			delete(t.sums, endpoint)
		}
	}
	t.logBytes += c.logBytes
	t.pending = nil
}

// each calls f with the sums as of the last commit, by the number of the endpoint, in no order.
func (t *totals) each(f func(endpoint uint32, state State, n Count)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for endpoint, of := range t.sums {
		for state, n := range of {
			if n.Rows != 0 {
				f(endpoint, State(state), n)
			}
		}
	}
}

// add counts rows with that many bytes.
func (c *countChanges) add(k countKey, rows, bytes int64) *count {
	n := c.counts[k]
	if n == nil {
		n = new(count)
		c.counts[k] = n
	}
	n.rows += rows
	n.bytes += bytes
	c.sums.add(k.endpoint, k.state, rows, bytes)
	c.totals.pending = c
	return n
}

// log counts bytes of attempts.
func (c *countChanges) log(bytes int64) {
	c.logBytes += bytes
	c.totals.pending = c
}

// enter counts a row that comes into its state at now, leave one that goes.
func (c *countChanges) enter(endpoint uint32, r *deliveryRow, now int64) {
	n := c.add(r.countKey(endpoint), 1, int64(r.Bytes))
	if r.Reason != 0 && now >= n.at {
		n.reason, n.at = r.Reason, now
	}
}

func (c *countChanges) leave(endpoint uint32, r *deliveryRow) {
	c.add(r.countKey(endpoint), -1, -int64(r.Bytes))
}

// now is what an endpoint has in a state, with what this batch has done.
func (c *countChanges) now(endpoint uint32, s State) Count {
	before, change := c.base.of(endpoint, s), c.sums.of(endpoint, s)
	return Count{before.Rows + change.Rows, before.Bytes + change.Bytes}
}

// flush writes the counters, in the order of their keys.
func (c *countChanges) flush(tx *store.Tx) error {
	keys := slices.SortedFunc(maps.Keys(c.counts), func(a, b countKey) int {
		return slices.Compare(a.appendTo(nil), b.appendTo(nil))
	})
	for _, k := range keys {
		change := c.counts[k]
		if change.rows == 0 && change.bytes == 0 && change.reason == 0 {
			continue
		}
		key := k.appendTo(make([]byte, 0, countKeySize))
		var now count
		if value := tx.Get(countBucket, key); value != nil {
			var err error
			if now, err = parseCount(value); err != nil {
				return corruptRow(err)
			}
		}
		now.rows += change.rows
		now.bytes += change.bytes
		if change.reason != 0 && change.at >= now.at {
			now.reason, now.at = change.reason, change.at
		}
		if now.rows < 0 || now.bytes < 0 || now.rows == 0 && now.bytes != 0 {
			return corruptRow(fmt.Errorf("%w: counter of endpoint %d, state %d below zero", errRow, k.endpoint, k.state))
		}
		var err error
		if now.rows == 0 {
			err = tx.Delete(countBucket, key)
		} else {
			err = tx.Put(countBucket, key, now.appendTo(nil))
		}
		if err != nil {
			return err
		}
	}
	return addLogBytes(tx, c.logBytes)
}

// eachCount calls f with every counter of the store, in the order of their keys.
func eachCount(tx *store.Tx, f func(countKey, count)) error {
	c := tx.Cursor(countBucket)
	for k, v := c.First(); k != nil; k, v = c.Next() {
		key, err := parseCountKey(k)
		if err != nil {
			return corruptRow(err)
		}
		n, err := parseCount(v)
		if err != nil {
			return corruptRow(err)
		}
		f(key, n)
	}
	return nil
}

func sumCounts(tx *store.Tx) (sums, error) {
	s := make(sums)
	err := eachCount(tx, func(k countKey, n count) { s.add(k.endpoint, k.state, n.rows, n.bytes) })
	return s, err
}
