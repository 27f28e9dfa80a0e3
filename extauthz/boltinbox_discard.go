package extauthz

import (
	"context"
	"fmt"

	"github.com/sidehook/sidehook/internal/store"
)

// Discard ends an UNKNOWN claim for good, as DISCARDED: further deliveries of it are duplicates. It returns ErrNotFound if there
// is no such event, ErrState if it is in any other state, and nil once it is on disk.
func (b *BoltInbox) Discard(ctx context.Context, key Key) error {
	op := &discardOp{b: b, key: key, answered: make(chan error, 1)}
	return b.change(ctx, "discard", key, op, op.answered)
}

type discardOp struct {
	b        *BoltInbox
	key      Key
	found    []byte // the row's key; nil: no row
	state    State  // of the row that was found
	answered chan error
}

// Apply implements store.Op.
func (op *discardOp) Apply(tx *store.Tx) error {
	bucket, encoded, value := findRow(tx, op.key)
	if op.found = encoded; op.found == nil {
		return nil
	}
	r, err := decodeRow(value)
	if err != nil {
		return err
	}
	if op.state = op.b.state(&r); op.state != StateUnknown {
		return nil
	}
	if err := removeRow(tx, bucket, encoded, value, &r); err != nil {
		return err
	}
	return putRow(tx, doneBucket, encoded, &row{State: StateDiscarded, First: r.First, Last: r.Last, Type: r.Type})
}

// Done implements store.Op.
func (op *discardOp) Done(err error) {
	switch {
	case err != nil:
		err = unavailable(err)
	case op.found == nil:
		err = ErrNotFound
	case op.state != StateUnknown:
		err = fmt.Errorf("%w: it is %s", ErrState, op.state)
	default:
		op.b.waits.end(string(op.found))
	}
	op.answered <- err
}
