package egress

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/sidehook/sidehook/internal/packed"
	"github.com/sidehook/sidehook/internal/store"
)

// What hangs on a delivery's row is changed with it, here and in Accept alone: its row in dueBucket or deadBucket, its place
// in its chain, the counters, and the event's body with the count of those that need it.

// nothing is the value of a row that is all key, and the body of an event without one. bbolt takes nil for no row.
var nothing = []byte{}

// move writes the row to of a delivery over from, which is what stands there. It returns ErrState, and has written
// nothing, if to needs a body that is gone.
func (b *BoltOutbox) move(tx *store.Tx, id DeliveryID, from, to *deliveryRow) error {
	var seq [8]byte
	appendSeq(seq[:0], id.Event)
	needed, needs := from.State.needsBody(), to.State.needsBody()
	if needs && !needed {
		if tx.Get(bodyBucket, seq[:]) == nil {
			return fmt.Errorf("%w: the event's body is gone", ErrState)
		}
		if err := addOpen(tx, seq[:], 1); err != nil {
			return err
		}
	}
	chain := from.chainKey(id)
	was, err := chain.place(tx)
	if err != nil {
		return err
	}
	is, err := b.rechain(tx, chain, was, to)
	if err != nil {
		return err
	}
	if err := b.unlink(tx, id, from, to, was); err != nil {
		return err
	}
	c, err := b.totals.changesOf(tx)
	if err != nil {
		return err
	}
	c.enter(id.Endpoint, to, time.Now().UnixMilli())
	if to.State == StateWaiting && is != chainBehind {
		if err := tx.Append(dueBucket, to.dueKey(id).appendTo(make([]byte, 0, dueKeySize)), nothing); err != nil {
			return err
		}
	}
	var key [deliveryKeySize]byte
	appendDeliveryKey(key[:0], id)
	if to.State == StateDead && from.State != StateDead {
		if err := tx.Append(deadBucket, key[:], nothing); err != nil {
			return err
		}
	}
	if err := tx.Append(deliveryBucket, key[:], to.appendTo(make([]byte, 0, 48), id.Event)); err != nil {
		return err
	}
	if needed && !needs {
		if err := releaseBody(tx, seq[:], from.Shared); err != nil {
			return err
		}
	}
	return b.left(tx, chain, was, is)
}

// left has the chain go on that a delivery held up in the place was, and does not as what it is.
func (b *BoltOutbox) left(tx *store.Tx, chain chainKey, was, is place) error {
	if was == chainActive && is != chainActive || was == chainStopped && is == unchained {
		return b.advance(tx, chain, was)
	}
	return nil
}

// remove deletes a delivery, whose row is from. Its attempts, and its event if it was the last, are the caller's.
func (b *BoltOutbox) remove(tx *store.Tx, id DeliveryID, from *deliveryRow) error {
	chain := from.chainKey(id)
	was, err := chain.place(tx)
	if err != nil {
		return err
	}
	if was != unchained {
		if err := tx.Delete(chainBucket, chain.appendTo(nil)); err != nil {
			return err
		}
	}
	if err := b.unlink(tx, id, from, nil, was); err != nil {
		return err
	}
	var key [deliveryKeySize]byte
	appendDeliveryKey(key[:0], id)
	if err := tx.Delete(deliveryBucket, key[:]); err != nil {
		return err
	}
	if from.State.needsBody() {
		if err := releaseBody(tx, key[:8], from.Shared); err != nil {
			return err
		}
	}
	return b.left(tx, chain, was, unchained)
}

// unlink takes from out of the counters, and out of dueBucket or deadBucket unless to stands at the same place there. was is
// its place in its chain.
func (b *BoltOutbox) unlink(tx *store.Tx, id DeliveryID, from, to *deliveryRow, was place) error {
	c, err := b.totals.changesOf(tx)
	if err != nil {
		return err
	}
	c.leave(id.Endpoint, from)
	delete(c.activated, id)
	if from.State == StateDead && (to == nil || to.State != StateDead) {
		var key [deliveryKeySize]byte
		return tx.Delete(deadBucket, appendDeliveryKey(key[:0], id))
	}
	if from.State != StateWaiting || was == chainBehind || to != nil && to.State == StateWaiting && to.dueKey(id) == from.dueKey(id) {
		return nil
	}
	var due [dueKeySize]byte
	return tx.Delete(dueBucket, from.dueKey(id).appendTo(due[:0]))
}

// releaseBody notes that one delivery less needs the body of the event seq, and deletes it with the last.
func releaseBody(tx *store.Tx, seq []byte, shared bool) error {
	if shared {
		left, err := openOf(tx, seq)
		if err != nil {
			return err
		}
		if left > 1 {
			return addOpen(tx, seq, -1)
		}
		if err := tx.Delete(openBucket, seq); err != nil {
			return err
		}
	}
	return tx.Delete(bodyBucket, seq)
}

// openOf is how many deliveries need the body of an event that several share.
func openOf(tx *store.Tx, seq []byte) (int, error) {
	n, err := parseOpen(tx.Get(openBucket, seq))
	if err != nil {
		return 0, corruptRow(err)
	}
	return n, nil
}

func parseOpen(value []byte) (int, error) {
	p := packed.Reader{Rest: value}
	n := p.Size(math.MaxInt32)
	if n == 0 || p.Bad || len(p.Rest) != 0 {
		return 0, fmt.Errorf("%w: count of open deliveries %x", errRow, value)
	}
	return n, nil
}

func encodeOpen(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// addOpen changes the count of the deliveries that need a body; that of an event which several share.
func addOpen(tx *store.Tx, seq []byte, change int) error {
	n, err := openOf(tx, seq)
	if err != nil {
		return err
	}
	return tx.Put(openBucket, seq, encodeOpen(n+change))
}
