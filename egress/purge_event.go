package egress

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// terms are how long things stay at the moment.
type terms struct {
	Keep
	early bool // the store is so full that what is delivered goes early
}

func (p *Purger) terms() terms { return terms{p.keep().filled(), p.pressed()} }

// of is how long an event stays after a delivery of it ended in state s; 0: after it was accepted and got none.
func (t *terms) of(s State) time.Duration {
	switch {
	case s == StateDead:
		return t.Dead
	case t.early:
		return MinKeep
	case s == StateDelivered || s == 0:
		return t.Delivered
	}
	return t.Dead
}

// least is the age below which no event can go.
func (t *terms) least() time.Duration { return min(t.of(0), t.of(StateDiscarded), t.Dead) }

// log is how long an attempt stays.
func (t *terms) log() time.Duration {
	if t.early {
		return min(t.Log, MinKeep)
	}
	return t.Log
}

// walkEvents goes over the events that are old enough, step by step, the oldest first.
func (p *Purger) walkEvents(ctx context.Context) error {
	var after uint64
	for more := true; more; {
		if p.doubt() != "" {
			return nil
		}
		op := &purgeEventsOp{b: p.outbox, done: make(chan error, 1)}
		var err error
		if after, more, err = p.scanEvents(op, after); err != nil {
			return err
		}
		if len(op.events) == 0 {
			if err := giveWay(ctx); err != nil {
				return err
			}
			continue
		}
		if err := p.commit(ctx, op, op.done); err != nil {
			return err
		}
		if op.purged > 0 || op.attempts > 0 {
			p.onPurge(op.purged, op.attempts)
		}
		if op.again != 0 {
			after, more = op.again-1, true
		}
	}
	return nil
}

// scanEvents reads on after an event and puts into op what may go. It returns the last that it looked at, and whether
// there is more to look at.
func (p *Purger) scanEvents(op *purgeEventsOp, after uint64) (last uint64, more bool, err error) {
	t, now := p.terms(), p.wall().UnixMilli()
	last = after
	err = p.outbox.store.View(func(tx *store.Tx) error {
		c := tx.Cursor(eventBucket)
		rows := 0
		for key, _ := c.Seek(appendSeq(nil, after+1)); key != nil; key, _ = c.Next() {
			seq, err := parseSeq(key)
			if err != nil {
				return corruptRow(err)
			}
			if !p.past(seqTime(seq), t.least(), now) {
				return nil
			}
			deliveries, may, err := p.judge(tx, seq, &t, now)
			if err != nil {
				return err
			}
			if may {
				op.events = append(op.events, judged{seq, deliveries})
			}
			last = seq
			if rows += 1 + len(deliveries); rows >= stepScan || op.rows() >= stepChange {
				more = true
				return nil
			}
		}
		return nil
	})
	return last, more, err
}

// judge reads the deliveries of an event and reports whether it may go.
func (p *Purger) judge(tx *store.Tx, seq uint64, t *terms, now int64) (deliveries []keptRow, may bool, err error) {
	deliveries = rowsOf(tx, deliveryBucket, seq, math.MaxInt)
	may = len(deliveries) > 0 || p.past(seqTime(seq), t.of(0), now)
	for i := range deliveries {
		r, err := parseDelivery(deliveries[i].value, seq)
		if err != nil {
			return nil, false, corruptRow(err)
		}
		may = may && r.State != StateWaiting && p.past(r.Ended, t.of(r.State), now)
	}
	return deliveries, may, nil
}

// keptRow is a row as it was read; it does not point into the store.
type keptRow struct{ key, value []byte }

// rowsOf copies the first rows of a bucket whose keys begin with an event.
func rowsOf(tx *store.Tx, bucket []byte, seq uint64, most int) (rows []keptRow) {
	prefix := appendSeq(nil, seq)
	c := tx.Cursor(bucket)
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix) && len(rows) < most; k, v = c.Next() {
		rows = append(rows, keptRow{bytes.Clone(k), bytes.Clone(v)})
	}
	return rows
}

// judged is an event that may go as long as its deliveries are these.
type judged struct {
	seq        uint64
	deliveries []keptRow
}

// purgeEventsOp deletes the events of one step with all that belongs to them.
type purgeEventsOp struct {
	b      *BoltOutbox
	events []judged
	done   chan error

	purged, attempts int
	// again is an event with more attempts than one step deletes; 0: none.
	again uint64
}

// rows is about how many rows op deletes.
func (op *purgeEventsOp) rows() int {
	n := 0
	for _, e := range op.events {
		n += 2 + 2*len(e.deliveries) // one attempt for each
	}
	return n
}

// Apply implements store.Op.
func (op *purgeEventsOp) Apply(tx *store.Tx) error {
	op.purged, op.attempts, op.again = 0, 0, 0
	for i := range op.events {
		e := &op.events[i]
		if !slices.EqualFunc(rowsOf(tx, deliveryBucket, e.seq, math.MaxInt), e.deliveries, sameRow) {
			continue // redelivered since
		}
		gone, err := op.forgetAttempts(tx, e.seq)
		if err != nil {
			return err
		}
		if !gone {
			op.again = e.seq
			return nil
		}
		if err := op.purge(tx, e); err != nil {
			return err
		}
	}
	return nil
}

func sameRow(a, b keptRow) bool { return bytes.Equal(a.key, b.key) && bytes.Equal(a.value, b.value) }

// forgetAttempts deletes the attempts of an event as far as this step may, and reports whether that are all.
func (op *purgeEventsOp) forgetAttempts(tx *store.Tx, seq uint64) (all bool, err error) {
	rows := rowsOf(tx, attemptBucket, seq, stepChange)
	for _, r := range rows {
		if err := op.b.forgetAttempt(tx, r.key, r.value); err != nil {
			return false, err
		}
	}
	op.attempts += len(rows)
	return len(rows) < stepChange, nil
}

// purge deletes an event whose attempts are gone.
func (op *purgeEventsOp) purge(tx *store.Tx, e *judged) error {
	for _, d := range e.deliveries {
		id, err := parseDeliveryKey(d.key)
		if err != nil {
			return corruptRow(err)
		}
		r, err := parseDelivery(d.value, e.seq)
		if err != nil {
			return corruptRow(err)
		}
		if err := op.b.remove(tx, id, &r); err != nil {
			return err
		}
	}
	event, err := eventOf(tx, e.seq)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	key := appendSeq(nil, e.seq)
	if id := idKey(event.Tenant, event.ID); bytes.Equal(tx.Get(idBucket, id), key) {
		if err := tx.Delete(idBucket, id); err != nil {
			return err
		}
	}
	op.purged++
	return tx.Delete(eventBucket, key)
}

// Done implements store.Op.
func (op *purgeEventsOp) Done(err error) {
	if err != nil && !store.Fatal(err) {
		op.b.changed("") // it may be on disk all the same, and have ended what stopped others
	}
	op.done <- err
}
