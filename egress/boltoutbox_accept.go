package egress

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// acceptOp is an Accept on its way through the committer.
type acceptOp struct {
	Acceptance

	// phase is acceptWaiting until either side ends it: the committer by answering, the caller by going away.
	phase    atomic.Uint32
	answered chan struct{}

	// err is how it ended; the caller's after answered is closed.
	err error
}

const (
	acceptWaiting = iota
	acceptAnswered
	acceptAbandoned
)

// Accept implements Outbox. It returns ErrNotFound (wrapped) for a target that is none of the last SetEndpoints. After an
// early end e and its slices are in use until the store has run.
func (b *BoltOutbox) Accept(ctx context.Context, e *Event, targets []Target) (Receipt, error) {
	if err := ctx.Err(); err != nil {
		return Receipt{}, err
	}
	op, err := b.newAcceptOp(e, targets, time.Now())
	if err != nil {
		return Receipt{}, fmt.Errorf("accept event: %w", err)
	}
	if err := b.store.Submit(op, store.Urgent); err != nil {
		return Receipt{}, unavailable(err)
	}
	select {
	case <-op.answered:
	case <-ctx.Done():
		if op.phase.CompareAndSwap(acceptWaiting, acceptAbandoned) {
			return Receipt{}, ctx.Err()
		}
		<-op.answered // at hand: the committer was first
	}
	switch {
	case op.err != nil:
		return Receipt{}, unavailable(op.err)
	case op.noRoom:
		return Receipt{}, ErrFull
	case op.repeat != nil:
		e.Seq = op.first
		return *op.repeat, nil
	}
	return op.receipt(), nil
}

func (b *BoltOutbox) newAcceptOp(e *Event, targets []Target, now time.Time) (*acceptOp, error) {
	op := &acceptOp{answered: make(chan struct{})}
	return op, op.prepare(b, e, targets, now)
}

// Apply implements store.Op.
func (op *acceptOp) Apply(tx *store.Tx) error {
	op.reset()
	if op.phase.Load() == acceptAbandoned {
		return nil
	}
	if op.idKey != nil {
		if met, err := op.meet(tx); met || err != nil {
			return err
		}
	}
	return op.put(tx, false)
}

// meet answers by the event that has this id already, and reports whether there is one.
func (op *acceptOp) meet(tx *store.Tx) (met bool, err error) {
	seq, first, err := findEvent(tx, op.tenant, op.id)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case first.Content != op.content:
		return true, ErrConflict
	}
	op.first = seq
	op.repeat = &Receipt{EventID: first.ID, Deliveries: make([]ReceiptDelivery, len(first.Targets)), Repeat: true}
	for i, t := range first.Targets {
		name, err := op.b.nameOf(tx, t.Endpoint)
		if err != nil {
			return false, err
		}
		op.repeat.Deliveries[i] = ReceiptDelivery{ID: DeliveryID{seq, t.Endpoint}, Endpoint: name, Parked: t.Parked, Full: t.Full}
	}
	return true, nil
}

// Done implements store.Op.
func (op *acceptOp) Done(err error) {
	op.err = err
	// Whoever listens hears of it before the caller does: nobody who has the answer is ahead of the news.
	op.Acceptance.Done(err)
	if op.phase.CompareAndSwap(acceptWaiting, acceptAnswered) {
		close(op.answered)
	}
}

// receipt is the answer to a new event.
func (op *acceptOp) receipt() Receipt {
	r := Receipt{EventID: op.id, Deliveries: make([]ReceiptDelivery, len(op.targets))}
	for i := range op.targets {
		t := &op.targets[i]
		r.Deliveries[i] = ReceiptDelivery{ID: t.id, Endpoint: t.name, Parked: t.parked, Full: t.full}
	}
	return r
}
