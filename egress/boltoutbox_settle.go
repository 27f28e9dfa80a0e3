package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// settleOp is a Settle on its way through the committer.
type settleOp struct {
	b      *BoltOutbox
	s      *Settlement
	done   func(error)
	key    []byte // of the attempt; that of the delivery is its front
	row    []byte // of the attempt
	health *endpointRow
	tried  bool // in a transaction that failed, and may be on disk
	look   bool // it is, and has perhaps made another delivery due
}

// Settle implements Outbox. done may be called before it returns, if the store takes nothing more.
func (b *BoltOutbox) Settle(s *Settlement, done func(error)) {
	a := &s.Attempt
	if err := s.check(); err != nil {
		done(fmt.Errorf("settle attempt %d of %s: %w", a.N, a.Delivery, err))
		return
	}
	room := make([]byte, 0, 64+len(a.Answer)+len(a.Detail))
	room = appendAttemptKey(room, a.Delivery, a.N)
	n := len(room)
	op := &settleOp{b: b, s: s, done: done, key: room[:n:n], row: a.appendTo(room)[n:]}
	if s.Health != nil {
		op.health = &endpointRow{a.Delivery.Endpoint, *s.Health}
	}
	if err := b.store.Submit(op, store.UrgentPersistent); err != nil {
		done(err)
	}
}

// check reports what cannot be written.
func (s *Settlement) check() error {
	a := &s.Attempt
	switch s.State {
	case StateWaiting, StateDelivered, StateDead:
	default:
		return fmt.Errorf("state %d is none that an attempt leads to", s.State)
	}
	if a.N < 1 || a.Outcome == 0 || a.Outcome >= outcomes || a.Trigger == 0 || a.Trigger >= triggers || s.Lane >= lanes {
		return fmt.Errorf("outcome %d, trigger %d, lane %d", a.Outcome, a.Trigger, s.Lane)
	}
	return nil
}

// Apply implements store.Op.
func (op *settleOp) Apply(tx *store.Tx) error {
	id, n := op.s.Attempt.Delivery, op.s.Attempt.N
	from, err := deliveryOf(tx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil // gone with all that is known of it
	case err != nil:
		return err
	case n <= from.Tries:
		// Settled already: the commit that was said to have failed is on disk, and the sums are not of it yet.
		op.look = op.tried && from.Order != orderKey{}
		_, err := op.b.totals.changesOf(tx)
		return err
	}
	op.tried = true
	to := op.s.after(&from)
	if err := op.b.move(tx, id, &from, &to); err != nil {
		return err
	}
	if err := op.b.logAttempt(tx, op.key, op.row); err != nil {
		return err
	}
	if err := tx.Delete(markBucket, op.key[:deliveryKeySize]); err != nil {
		return err
	}
	return op.b.putHealth(tx, op.health)
}

// after is what becomes of the delivery whose row is from.
func (s *Settlement) after(from *deliveryRow) deliveryRow {
	to := *from
	to.Tries, to.Reason = s.Attempt.N, s.Attempt.Outcome
	ended := toMillis(s.Attempt.At.Add(s.Attempt.Took))
	// Whoever asked for it to be sent again while it was under way has got that by a success, and else waits for more.
	again := !s.Created.IsZero() && from.Created > toMillis(s.Created)
	switch {
	case s.State == StateDelivered && from.State != StateDelivered:
		to.State, to.Lane, to.Attempts, to.Ended, to.NotReached = StateDelivered, s.Lane, s.Attempts, ended, false
	case from.State != StateWaiting || again:
		// Discarded, cancelled or asked for anew meanwhile: the attempt is logged, and changes nothing.
	case s.State == StateWaiting:
		to.Lane, to.Due, to.Attempts = s.Lane, toMillis(s.Due), s.Attempts
	default:
		to.State, to.Lane, to.Attempts, to.Ended, to.NotReached = StateDead, s.Lane, s.Attempts, ended, s.NotReached
	}
	return to
}

// putHealth writes an endpoint's health; h is nil, or of an endpoint that may be removed: then there is nothing to keep.
func (b *BoltOutbox) putHealth(tx *store.Tx, h *endpointRow) error {
	if h == nil {
		return nil
	}
	name, ok := b.endpoints.Load().names[h.Number]
	if !ok || tx.Get(endpointBucket, []byte(name)) == nil {
		return nil
	}
	return tx.Put(endpointBucket, []byte(name), h.encode())
}

// Done implements store.Op.
func (op *settleOp) Done(err error) {
	if op.look {
		op.b.changed(op.b.endpoints.Load().names[op.s.Attempt.Delivery.Endpoint])
	}
	op.done(err)
}

// markOp is a Mark on its way through the committer.
type markOp struct {
	b   *BoltOutbox
	id  DeliveryID
	row markRow
}

// Mark implements Outbox.
func (b *BoltOutbox) Mark(d *Delivery, at time.Time, trigger Trigger) {
	op := &markOp{b, d.ID, markRow{At: at.UnixMilli(), Trigger: trigger, N: d.Tries + 1}}
	// A mark that is not taken would only have told of an attempt that a kill cut off.
	if err := b.store.Submit(op, store.Lazy); err != nil {
		b.log.LogAttrs(context.Background(), slog.LevelDebug, "mark attempt", slog.String("delivery_id", d.ID.String()), slog.Any("err", err))
	}
}

// Apply implements store.Op. The attempt may be settled already: a batch takes what is urgent first.
func (op *markOp) Apply(tx *store.Tx) error {
	from, err := deliveryOf(tx, op.id)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case from.Tries >= op.row.N:
		return nil
	}
	return tx.Put(markBucket, appendDeliveryKey(nil, op.id), op.row.appendTo(nil))
}

// Done implements store.Op.
func (op *markOp) Done(err error) {
	if err != nil {
		op.b.log.LogAttrs(context.Background(), slog.LevelDebug, "mark attempt", slog.String("delivery_id", op.id.String()), slog.Any("err", err))
	}
}

// interruptedStep bounds the attempts that are logged as interrupted in one commit.
const interruptedStep = 1000

// logInterrupted logs what was under way when the process ended. It uses up no attempt, and what was to be sent is due as
// it was. What the disk has no room for is not logged now: it is with the next opening if no attempt was made until then,
// whose mark takes its place.
func (b *BoltOutbox) logInterrupted() error {
	for more := true; more; {
		err := b.store.Setup(func(tx *store.Tx) (err error) {
			more, err = b.interrupt(tx)
			return err
		})
		if errors.Is(err, store.ErrWrite) {
			b.log.LogAttrs(context.Background(), slog.LevelWarn, "attempts that were under way are not logged", slog.Any("err", err))
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// interrupt ends the first marks, and reports whether there are more.
func (b *BoltOutbox) interrupt(tx *store.Tx) (more bool, err error) {
	type marked struct {
		id  DeliveryID
		row markRow
	}
	var all []marked
	c := tx.Cursor(markBucket)
	for k, v := c.First(); k != nil && !more; k, v = c.Next() {
		id, err := parseDeliveryKey(k)
		if err != nil {
			return false, corruptRow(err)
		}
		row, err := parseMark(v)
		if err != nil {
			return false, corruptRow(err)
		}
		all = append(all, marked{id, row})
		more = len(all) == interruptedStep
	}
	for _, m := range all {
		if err := b.interruptOne(tx, m.id, m.row); err != nil {
			return false, err
		}
	}
	return more, nil
}

func (b *BoltOutbox) interruptOne(tx *store.Tx, id DeliveryID, m markRow) error {
	if err := tx.Delete(markBucket, appendDeliveryKey(nil, id)); err != nil {
		return err
	}
	from, err := deliveryOf(tx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case m.N <= from.Tries:
		return nil
	}
	a := Attempt{Delivery: id, N: m.N, At: fromMillis(m.At), Trigger: m.Trigger, Outcome: OutcomeInterrupted}
	to := from
	to.Tries, to.Reason = m.N, a.Outcome
	if err := b.move(tx, id, &from, &to); err != nil {
		return err
	}
	return b.logAttempt(tx, appendAttemptKey(nil, id, a.N), a.appendTo(nil))
}
