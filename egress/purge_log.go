package egress

import (
	"bytes"
	"context"

	"github.com/sidehook/sidehook/internal/store"
)

// walkAttempts goes over the attempts that may go, step by step, those of the oldest events first.
func (p *Purger) walkAttempts(ctx context.Context) error {
	var from []byte
	for more := true; more; {
		doubt := p.doubt() != ""
		op := &purgeAttemptsOp{b: p.outbox, done: make(chan error, 1)}
		var err error
		if from, more, err = p.scanAttempts(op, from, doubt); err != nil {
			return err
		}
		if len(op.keys) == 0 {
			if err := giveWay(ctx); err != nil {
				return err
			}
			continue
		}
		if err := p.commit(ctx, op, op.done); err != nil {
			return err
		}
		if op.deleted > 0 {
			p.onPurge(0, op.deleted)
		}
	}
	return nil
}

// scanAttempts reads on from a key and puts into op what may go. It returns where to go on, and whether there is more to
// look at. Unless the clock is in doubt attempts go by age; where they take too much, the oldest go whatever their age.
func (p *Purger) scanAttempts(op *purgeAttemptsOp, from []byte, doubt bool) (next []byte, more bool, err error) {
	t, now := p.terms(), p.wall().UnixMilli()
	excess := p.outbox.LogBytes() - p.logBytes
	err = p.outbox.store.View(func(tx *store.Tx) error {
		c := tx.Cursor(attemptBucket)
		scanned := 0
		for key, value := c.Seek(from); key != nil; key, value = c.Next() {
			if scanned++; scanned > stepScan || len(op.keys) == stepChange {
				next, more = bytes.Clone(key), true
				return nil
			}
			a, err := readAttempt(key, value)
			if err != nil {
				return err
			}
			switch {
			case excess > 0:
				excess -= int64(len(key) + len(value))
			case doubt || !p.past(seqTime(a.Delivery.Event), t.log(), now):
				return nil // no attempt was made before its event came
			case !p.past(a.At.UnixMilli(), t.log(), now):
				continue
			}
			op.keys = append(op.keys, bytes.Clone(key))
		}
		return nil
	})
	return next, more, err
}

// purgeAttemptsOp deletes the attempts of one step.
type purgeAttemptsOp struct {
	b       *BoltOutbox
	keys    [][]byte
	deleted int
	done    chan error
}

// Apply implements store.Op.
func (op *purgeAttemptsOp) Apply(tx *store.Tx) error {
	op.deleted = 0
	for _, key := range op.keys {
		value := tx.Get(attemptBucket, key)
		if value == nil {
			continue
		}
		if err := op.b.forgetAttempt(tx, key, value); err != nil {
			return err
		}
		op.deleted++
	}
	return nil
}

// Done implements store.Op.
func (op *purgeAttemptsOp) Done(err error) { op.done <- err }

// forgetEndpoints deletes the numbers of endpoints that were removed, once nothing bears them any more.
func (p *Purger) forgetEndpoints(ctx context.Context) error {
	if p.doubt() != "" {
		return nil
	}
	op := &forgetEndpointsOp{before: p.wall().Add(-MinKeep).UnixMilli(), done: make(chan error, 1)}
	found := false
	err := p.outbox.store.View(func(tx *store.Tx) (err error) {
		numbers, err := op.forgettable(tx)
		found = len(numbers) > 0
		return err
	})
	if err != nil || !found {
		return err
	}
	return p.commit(ctx, op, op.done)
}

// forgetEndpointsOp deletes the numbers of endpoints that were removed before a time, unix milliseconds.
type forgetEndpointsOp struct {
	before int64
	done   chan error
}

// forgettable returns the keys of numbers that no delivery and no event can name: all that there is came after the
// endpoint was removed. The last number stays, so that none is given twice.
func (op *forgetEndpointsOp) forgettable(tx *store.Tx) ([][]byte, error) {
	before := op.before
	if oldest, _ := tx.Cursor(eventBucket).First(); oldest != nil {
		seq, err := parseSeq(oldest)
		if err != nil {
			return nil, corruptRow(err)
		}
		before = min(before, seqTime(seq))
	}
	var keys [][]byte
	c := tx.Cursor(numberBucket)
	for k, v := c.First(); k != nil; k, v = c.Next() {
		_, row, err := parseNumberEntry(k, v)
		if err != nil {
			return nil, err
		}
		if row.Removed != 0 && row.Removed < before {
			keys = append(keys, bytes.Clone(k))
		}
	}
	if last, _ := c.Last(); len(keys) > 0 && bytes.Equal(keys[len(keys)-1], last) {
		keys = keys[:len(keys)-1]
	}
	return keys[:min(len(keys), stepChange)], nil
}

// Apply implements store.Op.
func (op *forgetEndpointsOp) Apply(tx *store.Tx) error {
	keys, err := op.forgettable(tx)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := tx.Delete(numberBucket, key); err != nil {
			return err
		}
	}
	return nil
}

// Done implements store.Op.
func (op *forgetEndpointsOp) Done(err error) { op.done <- err }
