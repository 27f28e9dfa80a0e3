package egress

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// rowsBytes is about what the rows of an event take beside its body, and those of a delivery.
const rowsBytes = 200

const idKeySize = 16

// idKey is the key of an id in idBucket.
func idKey(tenant, id string) []byte {
	var room [320]byte
	b := binary.AppendUvarint(room[:0], uint64(len(tenant)))
	b = append(append(b, tenant...), id...)
	sum := sha256.Sum256(b)
	return sum[:idKeySize]
}

// acceptOp is an Accept on its way through the committer. Its rows are made before, on the caller's goroutine.
type acceptOp struct {
	b       *BoltOutbox
	id      string
	tenant  string
	content [32]byte
	body    []byte
	idKey   []byte // nil: the id is of our own making, and new
	seq     uint64
	key     []byte // of the event
	row     []byte // of the event; the targets stand at its end
	targets []acceptTarget

	// phase is acceptWaiting until either side ends it: the committer by answering, the caller by going away.
	phase    atomic.Uint32
	answered chan struct{}

	// What Apply found; the caller's after answered is closed.
	made    int // deliveries that were written
	repeat  *Receipt
	first   uint64 // the Seq of the event that repeat is about
	noRoom  bool
	written bool
	err     error
}

// acceptTarget is one target with its rows. full is what Apply found.
type acceptTarget struct {
	name   string
	parked bool
	full   bool
	id     DeliveryID
	key    []byte
	value  []byte
	due    []byte
	row    deliveryRow
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

// newAcceptOp numbers e and encodes all its rows.
func (b *BoltOutbox) newAcceptOp(e *Event, targets []Target, now time.Time) (*acceptOp, error) {
	e.Seq = b.nextSeq(now)
	op := &acceptOp{
		b: b, tenant: e.Tenant, content: e.Content, body: e.Body, seq: e.Seq, answered: make(chan struct{}),
		targets: make([]acceptTarget, len(targets)),
	}
	if op.body == nil {
		op.body = nothing
	}
	if e.ID == "" {
		e.ID = newEventID(e.Seq)
	} else {
		op.idKey = idKey(e.Tenant, e.ID)
	}
	op.id = e.ID
	if e.Accepted.IsZero() {
		e.Accepted = now
	}
	e.Accepted = e.Accepted.UTC().Truncate(time.Millisecond)

	names := b.endpoints.Load()
	event := eventRow{
		ID: e.ID, Tenant: e.Tenant, Type: e.Type, ContentType: e.ContentType, Headers: e.Headers,
		Accepted: e.Accepted.UnixMilli(), Content: e.Content, Bytes: len(e.Body),
	}
	const perTarget = deliveryKeySize + dueKeySize + 24 + targetSize
	room := make([]byte, 0, 8+128+len(e.ID)+len(e.Tenant)+len(e.Type)+len(e.ContentType)+64*len(e.Headers)+perTarget*len(targets))
	// cut encodes a row at the end of room. What was cut stays where it is when room has to grow.
	cut := func(encode func([]byte) []byte) []byte {
		from := len(room)
		room = encode(room)
		return room[from:len(room):len(room)]
	}
	for i, t := range targets {
		number, ok := names.numbers[t.Endpoint]
		if !ok {
			return nil, fmt.Errorf("endpoint %s: %w", t.Endpoint, ErrNotFound)
		}
		for j := range i {
			if op.targets[j].id.Endpoint == number {
				return nil, fmt.Errorf("endpoint %s is named twice", t.Endpoint)
			}
		}
		a := &op.targets[i]
		a.name, a.parked, a.id = t.Endpoint, t.Parked, DeliveryID{e.Seq, number}
		a.row = deliveryRow{State: StateWaiting, Created: e.Accepted.UnixMilli(), Due: now.UnixMilli(), Bytes: len(e.Body)}
		a.key = cut(func(b []byte) []byte { return appendDeliveryKey(b, a.id) })
		a.value = cut(func(b []byte) []byte { return a.row.appendTo(b, e.Seq) })
		a.due = cut(func(b []byte) []byte { return a.row.dueKey(a.id).appendTo(b) })
	}
	op.key = cut(func(b []byte) []byte { return appendSeq(b, e.Seq) })
	op.row = cut(func(b []byte) []byte {
		b = event.appendTo(b, e.Seq)
		for i := range op.targets {
			b = targetRow{Endpoint: op.targets[i].id.Endpoint, Parked: op.targets[i].parked}.appendTo(b)
		}
		return b
	})
	return op, nil
}

// Apply implements store.Op.
func (op *acceptOp) Apply(tx *store.Tx) error {
	op.made, op.repeat, op.noRoom, op.written = 0, nil, false, false
	if op.phase.Load() == acceptAbandoned {
		return nil
	}
	if op.idKey != nil {
		if met, err := op.meet(tx); met || err != nil {
			return err
		}
	}
	c, err := op.b.totals.changesOf(tx)
	if err != nil {
		return err
	}
	if op.noRoom = op.b.store.Room() <= c.bytes; op.noRoom {
		return nil
	}
	names := op.b.endpoints.Load().names
	for i := range op.targets {
		if t := &op.targets[i]; names[t.id.Endpoint] != t.name {
			return fmt.Errorf("endpoint %s: %w", t.name, ErrNotFound) // removed meanwhile
		}
	}
	op.judge(c)
	return op.write(tx, c)
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

// judge decides for each target whether there is room, and writes that into the rows.
func (op *acceptOp) judge(c *countChanges) {
	for i := range op.targets {
		t := &op.targets[i]
		if t.full = op.b.full(c.now(t.id.Endpoint, StateWaiting), c.now(t.id.Endpoint, StateDead)); !t.full {
			op.made++
		}
		flag := len(op.row) - targetSize*(len(op.targets)-i) + targetSize - 1
		op.row[flag] = targetRow{Parked: t.parked, Full: t.full}.flags()
	}
	for i := range op.targets {
		t := &op.targets[i]
		t.row.Shared = op.made > 1
		t.value[deliveryFlags] &^= deliveryShared
		if t.row.Shared {
			t.value[deliveryFlags] |= deliveryShared
		}
	}
}

// write puts the rows.
func (op *acceptOp) write(tx *store.Tx, c *countChanges) error {
	op.written = true
	c.bytes += int64(len(op.body)) + rowsBytes*int64(1+op.made)
	if err := tx.Append(eventBucket, op.key, op.row); err != nil {
		return err
	}
	if op.idKey != nil {
		if err := tx.Put(idBucket, op.idKey, op.key); err != nil {
			return err
		}
	}
	if op.made > 0 {
		if err := tx.Append(bodyBucket, op.key, op.body); err != nil {
			return err
		}
	}
	if op.made > 1 {
		if err := tx.Append(openBucket, op.key, encodeOpen(op.made)); err != nil {
			return err
		}
	}
	for i := range op.targets {
		t := &op.targets[i]
		if t.full {
			continue
		}
		if err := tx.Append(deliveryBucket, t.key, t.value); err != nil {
			return err
		}
		if err := tx.Append(dueBucket, t.due, nothing); err != nil {
			return err
		}
		c.enter(t.id.Endpoint, &t.row, t.row.Created)
	}
	return nil
}

// Done implements store.Op.
func (op *acceptOp) Done(err error) {
	op.err = err
	// Whoever listens hears of it before the caller does: nobody who has the answer is ahead of the news.
	switch {
	case err == nil && op.written:
		op.b.accepted(op.deliveries())
	case err != nil && op.written && !store.Fatal(err):
		// A commit that failed may still have been written.
		for i := range op.targets {
			op.b.changed(op.targets[i].name)
		}
	}
	if op.phase.CompareAndSwap(acceptWaiting, acceptAnswered) {
		close(op.answered)
	}
}

// deliveries are those that were made.
func (op *acceptOp) deliveries() []Delivery {
	ds := make([]Delivery, 0, op.made)
	for i := range op.targets {
		if t := &op.targets[i]; !t.full {
			ds = append(ds, t.row.delivery(t.id, t.name))
		}
	}
	return ds
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
