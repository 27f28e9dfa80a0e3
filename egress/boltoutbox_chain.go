package egress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/sidehook/sidehook/internal/store"
)

// Order. The open deliveries to one endpoint of events with the same Event.Order are a chain, in the order of acceptance. One
// of them is active: it is due, as any delivery is. The others wait behind it, and are not due. When the active one has come
// to its end, the first of the chain is made active in the same transaction.
//
// A dead letter leaves the chain, which goes on. Where BoltOutboxConfig.StopOnDead says so it stays in it, and stops it:
// nothing that came after it is made active. So a chain has an active delivery unless its first one is dead.

// orderKey names a chain of an endpoint; the zero value is that of events without an order.
type orderKey [16]byte

// orderOf is the key of an Event.Order.
func orderOf(order string) (k orderKey) {
	if order != "" {
		sum := sha256.Sum256([]byte(order))
		copy(k[:], sum[:])
	}
	return k
}

// place is that of a delivery in its chain.
type place byte

const (
	unchained place = iota // never on disk
	chainActive
	chainBehind
	chainStopped
	places // their number
)

// placeValues are the places as chainBucket keeps them.
var placeValues = [places][]byte{chainActive: {byte(chainActive)}, chainBehind: {byte(chainBehind)}, chainStopped: {byte(chainStopped)}}

func parsePlace(value []byte) (place, error) {
	if len(value) != 1 || place(value[0]) == unchained || place(value[0]) >= places {
		return unchained, fmt.Errorf("%w: place in a chain %x", errRow, value)
	}
	return place(value[0]), nil
}

// chainKey orders the deliveries of a chain.
type chainKey struct {
	endpoint uint32
	order    orderKey
	seq      uint64
}

const (
	chainPartSize = 4 + len(orderKey{}) // of the chain
	chainKeySize  = chainPartSize + 8
)

func (k chainKey) appendTo(b []byte) []byte {
	return appendSeq(append(appendNumber(b, k.endpoint), k.order[:]...), k.seq)
}

func parseChainKey(key []byte) (k chainKey, err error) {
	if len(key) != chainKeySize {
		return k, fmt.Errorf("%w: chain key of %d bytes", errRow, len(key))
	}
	k.endpoint, k.seq = binary.BigEndian.Uint32(key), binary.BigEndian.Uint64(key[chainPartSize:])
	copy(k.order[:], key[4:])
	return k, nil
}

func (k chainKey) delivery() DeliveryID { return DeliveryID{k.seq, k.endpoint} }

func (k chainKey) put(tx *store.Tx, p place) error {
	return tx.Put(chainBucket, k.appendTo(make([]byte, 0, chainKeySize)), placeValues[p])
}

// place is that of the delivery of that key.
func (k chainKey) place(tx *store.Tx) (place, error) {
	if k.order == (orderKey{}) {
		return unchained, nil
	}
	var room [chainKeySize]byte
	value := tx.Get(chainBucket, k.appendTo(room[:0]))
	if value == nil {
		return unchained, nil
	}
	p, err := parsePlace(value)
	if err != nil {
		return p, corruptRow(err)
	}
	return p, nil
}

// first is the first delivery of the chain that k is of; unchained: it has none.
func (k chainKey) first(tx *store.Tx) (seq uint64, p place, err error) {
	var room [chainKeySize]byte
	k.seq = 0
	from := k.appendTo(room[:0])
	key, value := tx.Cursor(chainBucket).Seek(from)
	if !bytes.HasPrefix(key, from[:chainPartSize]) {
		return 0, unchained, nil
	}
	k, err = parseChainKey(key)
	if err == nil {
		p, err = parsePlace(value)
	}
	if err != nil {
		return 0, unchained, corruptRow(err)
	}
	return k.seq, p, nil
}

// enter puts a delivery that waits into its chain, and says in which place.
func (k chainKey) enter(tx *store.Tx) (place, error) {
	first, p, err := k.first(tx)
	if err != nil {
		return unchained, err
	}
	// What came before all that stops the chain is not stopped by it.
	is := chainBehind
	if p == unchained || p == chainStopped && k.seq < first {
		is = chainActive
	}
	return is, k.put(tx, is)
}

// rechain gives a delivery that was in its chain the place that it has as to.
func (b *BoltOutbox) rechain(tx *store.Tx, k chainKey, was place, to *deliveryRow) (is place, err error) {
	switch {
	case k.order == (orderKey{}):
		return unchained, nil
	case to.State == StateWaiting && was == unchained:
		return k.enter(tx)
	case to.State == StateWaiting && was == chainStopped: // redelivered
		first, _, err := k.first(tx)
		if err != nil {
			return unchained, err
		}
		is = chainBehind
		if first == k.seq {
			is = chainActive
		}
		return is, k.put(tx, is)
	case to.State == StateWaiting, to.State == StateDead && was == chainStopped:
		return was, nil
	case to.State == StateDead && was == chainActive && b.stops(k.endpoint):
		return chainStopped, k.put(tx, chainStopped)
	case was == unchained:
		return unchained, nil
	}
	var room [chainKeySize]byte
	return unchained, tx.Delete(chainBucket, k.appendTo(room[:0]))
}

// stops reports whether a dead letter stops its chain. For an endpoint that is not there now nobody can say: it stays as it is.
func (b *BoltOutbox) stops(number uint32) bool {
	if b.stopOnDead == nil {
		return false
	}
	r := b.endpoints.Load()
	name, known := r.names[number]
	if _, there := r.numbers[name]; !known || !there {
		return true
	}
	return b.stopOnDead(name)
}

// unchain takes a delivery that does not wait out of its chain, if it stops one.
func (b *BoltOutbox) unchain(tx *store.Tx, k chainKey) error {
	was, err := k.place(tx)
	if err != nil || was != chainStopped {
		return err
	}
	if err := tx.Delete(chainBucket, k.appendTo(nil)); err != nil {
		return err
	}
	return b.advance(tx, k, was)
}

// advance makes the first of a chain active, if none is: k has left the place was.
func (b *BoltOutbox) advance(tx *store.Tx, k chainKey, was place) error {
	first, p, err := k.first(tx)
	if err != nil || p != chainBehind || was == chainStopped && first < k.seq {
		return err // where k stopped the chain and is not the one that did so first, one before it is active
	}
	k.seq = first
	id := k.delivery()
	row, err := deliveryOf(tx, id)
	if err != nil {
		return corruptRow(fmt.Errorf("%s waits behind others: %w", id, err))
	}
	if err := k.put(tx, chainActive); err != nil {
		return err
	}
	if err := tx.Append(dueBucket, row.dueKey(id).appendTo(make([]byte, 0, dueKeySize)), nothing); err != nil {
		return err
	}
	name, there := b.endpoints.Load().names[id.Endpoint]
	if !there {
		return nil // nobody is to hear of it
	}
	c, err := b.totals.changesOf(tx)
	if err != nil {
		return err
	}
	put(&c.activated, id, row.delivery(id, name))
	return nil
}

// ReleaseDead lets the chains go on that a dead letter stops at endpoints where it does not any more; see
// BoltOutboxConfig.StopOnDead, to be called whenever that may say something else. It goes in small steps, each of which is
// tried until it is written, and returns once there is none left.
func (b *BoltOutbox) ReleaseDead(ctx context.Context) error {
	var after DeliveryID
	for {
		op := &releaseOp{b: b, after: after, answered: make(chan error, 1)}
		if err := b.store.Submit(op, store.Persistent); err != nil {
			return fmt.Errorf("release dead letters: %w", unavailable(err))
		}
		if err := wait(ctx, op.answered); err != nil {
			return fmt.Errorf("release dead letters: %w", err)
		}
		if !op.more {
			return nil
		}
		after = op.at
		if !pause(ctx, cancelPause) {
			return ctx.Err()
		}
	}
}

// releaseOp is one step of ReleaseDead. It reads in the transaction in which it writes, after all that was decided before.
type releaseOp struct {
	b        *BoltOutbox
	after    DeliveryID
	at       DeliveryID
	more     bool
	tries    int
	answered chan error
}

// Apply implements store.Op.
func (op *releaseOp) Apply(tx *store.Tx) error {
	op.tries++
	op.at, op.more = op.after, false
	if key, _ := tx.Cursor(chainBucket).First(); key == nil {
		return nil
	}
	var found []chainKey // what is gone over must not be changed meanwhile
	scanned := 0
	c := tx.Cursor(deadBucket)
	for key, _ := c.Seek(append(appendDeliveryKey(nil, op.after), 0)); key != nil && !op.more; key, _ = c.Next() {
		id, err := parseDeliveryKey(key)
		if err != nil {
			return corruptRow(err)
		}
		k, stopped, err := stoppedBy(tx, id)
		if err != nil {
			return err
		}
		if stopped && !op.b.stops(id.Endpoint) {
			found = append(found, k)
		}
		scanned++
		op.at, op.more = id, scanned >= stepScan || len(found) >= stepChange
	}
	for _, k := range found {
		if err := op.b.unchain(tx, k); err != nil {
			return err
		}
	}
	return nil
}

// stoppedBy reports whether the dead delivery id stops its chain.
func stoppedBy(tx *store.Tx, id DeliveryID) (chainKey, bool, error) {
	row, err := deliveryOf(tx, id)
	if err != nil {
		return chainKey{}, false, corruptRow(fmt.Errorf("%s is listed as dead: %w", id, err))
	}
	k := row.chainKey(id)
	p, err := k.place(tx)
	return k, p == chainStopped, err
}

// Done implements store.Op.
func (op *releaseOp) Done(err error) {
	if op.tries > 1 && !store.Fatal(err) {
		op.b.changed("") // a commit that was said to have failed may be on disk
	}
	op.answered <- err
}

// chainKey is the row's place among those of its chain, of which it is as long as it is open.
func (r *deliveryRow) chainKey(id DeliveryID) chainKey {
	return chainKey{id.Endpoint, r.Order, id.Event}
}
