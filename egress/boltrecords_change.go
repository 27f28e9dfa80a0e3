package egress

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// Why something is left as it is; each comes with ErrState.
var (
	errBodyGone = errors.New("the event's body is gone")
	errRemoved  = errors.New("its endpoint was removed")
)

// Redeliver implements Records.
func (b *BoltRecords) Redeliver(ctx context.Context, ids ...DeliveryID) ([]Changed, error) {
	return b.changeAll(ctx, "redeliver", JobRedeliver, ids)
}

// Discard implements Records.
func (b *BoltRecords) Discard(ctx context.Context, ids ...DeliveryID) ([]Changed, error) {
	return b.changeAll(ctx, "discard", JobDiscard, ids)
}

func (b *BoltRecords) changeAll(ctx context.Context, step string, kind JobKind, ids []DeliveryID) ([]Changed, error) {
	if len(ids) > MaxChanges {
		return nil, fmt.Errorf("%s: %w: %d deliveries, at most %d", step, ErrFilter, len(ids), MaxChanges)
	}
	var changed []Changed
	for len(ids) > 0 {
		part := ids[:min(len(ids), stepChange)]
		ids = ids[len(part):]
		op := &changeOp{change: change{b: b}, kind: kind, ids: part, answered: make(chan error, 1)}
		if err := b.change(ctx, step, op, op.answered); err != nil {
			return changed, err
		}
		changed = append(changed, op.changed...)
	}
	return changed, nil
}

// change is what operations of this file have in common: they change deliveries, and tell where.
type change struct {
	b         *BoltRecords
	endpoints map[string]struct{} // where something changed
}

// begin starts afresh.
func (c *change) begin() { c.endpoints = make(map[string]struct{}) }

// tell says where something changed, once the write has ended so.
func (c *change) tell(err error) {
	if store.Fatal(err) {
		return
	}
	// After any other error it may be on disk all the same.
	for endpoint := range c.endpoints {
		c.b.outbox.changed(endpoint)
	}
}

// do does with a delivery what kind says, and makes of r what it then is. It returns why nothing was done, or an error of
// the store.
func (c *change) do(s *selection, kind JobKind, id DeliveryID, r *deliveryRow, job uint64, now int64) (why, err error) {
	e, err := s.endpoint(id.Endpoint)
	if err != nil {
		return nil, err
	}
	to := *r
	if kind == JobRedeliver {
		why = redelivered(&to, &e, job, now)
	} else {
		why = discarded(&to, now)
	}
	if why != nil {
		return fmt.Errorf("%w: %w", ErrState, why), nil
	}
	switch err := c.b.outbox.move(s.tx, id, r, &to); {
	case errors.Is(err, ErrState): // the body is gone
		return err, nil
	case err != nil:
		return nil, err
	}
	*r = to
	c.endpoints[e.Endpoint] = struct{}{}
	return nil, nil
}

// redelivered makes of r what it is once it was redelivered. An attempt that is under way ends it if it succeeds, and else
// does not touch it: see Settlement.Created.
func redelivered(r *deliveryRow, e *numberRow, job uint64, now int64) (why error) {
	if e.Removed != 0 {
		return errRemoved
	}
	if r.State == StateWaiting && r.Lane == LaneFirst {
		r.Due = min(r.Due, now) // its turn has come already, and is not lost
	} else {
		r.Lane, r.Due = LaneRetry, now
	}
	// An attempt that is under way finds by Created that it was asked for anew.
	r.State, r.Created, r.Ended, r.Attempts = StateWaiting, max(now, r.Created+1), 0, 0
	r.NotReached, r.Redelivered, r.Job = false, true, job
	return nil
}

// discarded makes of r what it is once it was discarded.
func discarded(r *deliveryRow, now int64) (why error) {
	if !r.State.needsBody() {
		return fmt.Errorf("it is %s", r.State)
	}
	r.State, r.Ended = StateDiscarded, now
	return nil
}

// changeOp redelivers or discards deliveries by their ids.
type changeOp struct {
	change
	kind     JobKind
	ids      []DeliveryID
	changed  []Changed
	answered chan error
}

// Apply implements store.Op.
func (op *changeOp) Apply(tx *store.Tx) error {
	op.begin()
	op.changed = op.changed[:0]
	s, err := op.b.selection(tx, Filter{})
	if err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	for _, id := range op.ids {
		r, err := deliveryOf(tx, id)
		if errors.Is(err, ErrNotFound) {
			op.changed = append(op.changed, Changed{ID: id, Err: ErrNotFound})
			continue
		}
		if err != nil {
			return err
		}
		was := r.State
		why, err := op.do(s, op.kind, id, &r, 0, now)
		if err != nil {
			return err
		}
		op.changed = append(op.changed, Changed{ID: id, Was: was, Now: r.State, Err: why})
	}
	return nil
}

// Done implements store.Op.
func (op *changeOp) Done(err error) {
	op.tell(err)
	op.answered <- err
}

// Expunge implements Records.
func (b *BoltRecords) Expunge(ctx context.Context, tenant, id string) (EventDetail, error) {
	op := &expungeOp{change: change{b: b}, tenant: tenant, id: id, answered: make(chan error, 1)}
	err := b.change(ctx, "expunge event "+id, op, op.answered)
	return op.left, err
}

// expungeOp removes the body and the headers of an event, which is named by its Seq, or by tenant and id.
type expungeOp struct {
	change
	seq        uint64
	tenant, id string
	left       EventDetail
	answered   chan error
}

// Apply implements store.Op.
func (op *expungeOp) Apply(tx *store.Tx) error {
	op.begin()
	seq, event, err := op.find(tx)
	if err != nil {
		return err
	}
	s, err := op.b.selection(tx, Filter{})
	if err != nil {
		return err
	}
	if err := op.discardOpen(s, seq); err != nil {
		return err
	}
	if !event.Expunged {
		event.Expunged, event.Headers = true, nil
		if err := tx.Put(eventBucket, appendSeq(nil, seq), event.appendTo(nil, seq)); err != nil {
			return err
		}
	}
	op.left, err = op.b.eventDetail(tx, seq)
	return err
}

func (op *expungeOp) find(tx *store.Tx) (uint64, eventRow, error) {
	if op.seq == 0 {
		return findShown(tx, op.tenant, op.id)
	}
	event, err := eventOf(tx, op.seq)
	return op.seq, event, err
}

// discardOpen ends the deliveries of the event that need its body; the last of them takes it away.
func (op *expungeOp) discardOpen(s *selection, seq uint64) error {
	type open struct {
		id  DeliveryID
		row deliveryRow
	}
	var all []open // what is gone over must not be changed meanwhile
	err := s.ofEvent(seq, func(id DeliveryID, r *deliveryRow) (bool, error) {
		if r.State.needsBody() {
			all = append(all, open{id, *r})
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	for _, d := range all {
		if why, err := op.do(s, JobDiscard, d.id, &d.row, 0, now); err != nil || why != nil {
			return errors.Join(err, why)
		}
	}
	return nil
}

// Done implements store.Op.
func (op *expungeOp) Done(err error) {
	op.tell(err)
	op.answered <- err
}
