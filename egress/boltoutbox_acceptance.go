package egress

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
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

// Acceptance is an event with a delivery for each of its targets on the way to the disk. All rows are made on the goroutine
// of whoever prepares it; the committer only puts them.
type Acceptance struct {
	b       *BoltOutbox
	id      string
	tenant  string
	content [32]byte
	body    []byte
	idKey   []byte // nil: the id is of our own making, and new, or not indexed
	key     []byte // of the event
	row     []byte // of the event; the targets stand at its end
	targets []acceptTarget

	// What the last transaction found.
	made    int // deliveries that were written
	repeat  *Receipt
	first   uint64 // the Seq of the event that repeat is about
	noRoom  bool
	written bool
}

// acceptTarget is one target with its rows. full is what the last transaction found.
type acceptTarget struct {
	name   string
	parked bool
	full   bool
	id     DeliveryID
	key    []byte
	value  []byte
	due    []byte
	row    deliveryRow
	behind bool // others of its chain; found as full is
}

// Prepare makes ready an event that an operation of somebody else's on the same store writes in its batch; its own ID, if it
// has one, is Unindexed. Nothing is written before Put. ErrNotFound (wrapped) for a target that is none of the last
// SetEndpoints. The body of e is in use until Done.
func (b *BoltOutbox) Prepare(e *Event, targets []Target) (*Acceptance, error) {
	if e.ID != "" && !e.Unindexed {
		return nil, errors.New("prepare event: its id is indexed, so it may be a repeat: see Accept")
	}
	a := new(Acceptance)
	if err := a.prepare(b, e, targets, time.Now()); err != nil {
		return nil, fmt.Errorf("prepare event: %w", err)
	}
	return a, nil
}

// Put writes the event in tx, which may be of any space of the store. ErrFull (wrapped) where there is no room for it, or an
// endpoint has as much as it may have, ErrNotFound (wrapped) where one was removed meanwhile: then nothing of it was
// written. It may be called again in another transaction, after one that failed.
func (a *Acceptance) Put(tx *store.Tx) error {
	a.reset()
	if err := a.put(a.b.store.In(tx), true); err != nil {
		return err
	}
	if a.noRoom {
		return fmt.Errorf("%w: the store is at its limit", ErrFull)
	}
	return nil
}

// ID is that of the delivery to target i.
func (a *Acceptance) ID(i int) DeliveryID { return a.targets[i].id }

// Done says, once, how the transaction of the last Put ended. The deliveries are due from then on.
func (a *Acceptance) Done(err error) {
	switch {
	case err == nil && a.written:
		a.b.accepted(a.deliveries())
	case err != nil && a.written && !store.Fatal(err):
		// A commit that failed may still have been written.
		for i := range a.targets {
			a.b.changed(a.targets[i].name)
		}
	}
}

// prepare numbers e and encodes all its rows.
func (a *Acceptance) prepare(b *BoltOutbox, e *Event, targets []Target, now time.Time) error {
	e.Seq = b.nextSeq(now)
	a.b, a.tenant, a.content, a.body = b, e.Tenant, e.Content, e.Body
	a.targets = make([]acceptTarget, len(targets))
	if a.body == nil {
		a.body = nothing
	}
	switch {
	case e.ID == "":
		e.ID = newEventID(e.Seq)
	case !e.Unindexed:
		a.idKey = idKey(e.Tenant, e.ID)
	}
	a.id = e.ID
	if e.Accepted.IsZero() {
		e.Accepted = now
	}
	e.Accepted = e.Accepted.UTC().Truncate(time.Millisecond)

	order := orderOf(e.Order)
	names := b.endpoints.Load()
	event := eventRow{
		ID: e.ID, Tenant: e.Tenant, Type: e.Type, ContentType: e.ContentType, Headers: e.Headers,
		Accepted: e.Accepted.UnixMilli(), Content: e.Content, Bytes: len(e.Body),
	}
	const perTarget = deliveryKeySize + dueKeySize + 40 + targetSize
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
			return fmt.Errorf("endpoint %s: %w", t.Endpoint, ErrNotFound)
		}
		for j := range i {
			if a.targets[j].id.Endpoint == number {
				return fmt.Errorf("endpoint %s is named twice", t.Endpoint)
			}
		}
		to := &a.targets[i]
		to.name, to.parked, to.id = t.Endpoint, t.Parked, DeliveryID{e.Seq, number}
		to.row = deliveryRow{State: StateWaiting, Created: e.Accepted.UnixMilli(), Due: now.UnixMilli(), Bytes: len(e.Body), Order: order}
		to.key = cut(func(b []byte) []byte { return appendDeliveryKey(b, to.id) })
		to.value = cut(func(b []byte) []byte { return to.row.appendTo(b, e.Seq) })
		to.due = cut(func(b []byte) []byte { return to.row.dueKey(to.id).appendTo(b) })
	}
	a.key = cut(func(b []byte) []byte { return appendSeq(b, e.Seq) })
	a.row = cut(func(b []byte) []byte {
		b = event.appendTo(b, e.Seq)
		for i := range a.targets {
			b = targetRow{Endpoint: a.targets[i].id.Endpoint, Parked: a.targets[i].parked}.appendTo(b)
		}
		return b
	})
	return nil
}

// reset forgets what an earlier transaction found.
func (a *Acceptance) reset() { a.made, a.repeat, a.noRoom, a.written = 0, nil, false, false }

// put writes the event unless there is no room. strict: nor if an endpoint is full, which is then ErrFull (wrapped).
func (a *Acceptance) put(tx *store.Tx, strict bool) error {
	c, err := a.b.totals.changesOf(tx)
	if err != nil {
		return err
	}
	if a.noRoom = a.b.store.Room() <= int64(*c.accepted); a.noRoom {
		return nil
	}
	numbers := a.b.endpoints.Load().numbers
	for i := range a.targets {
		t := &a.targets[i]
		if number, ok := numbers[t.name]; !ok || number != t.id.Endpoint {
			return fmt.Errorf("endpoint %s: %w", t.name, ErrNotFound) // removed meanwhile
		}
		t.full = a.b.full(c.now(t.id.Endpoint, StateWaiting), c.now(t.id.Endpoint, StateDead))
		if t.full && strict {
			return fmt.Errorf("endpoint %s: %w", t.name, ErrFull)
		}
	}
	a.judge()
	return a.write(tx, c)
}

// judge writes into the rows for which targets there is room.
func (a *Acceptance) judge() {
	for i := range a.targets {
		t := &a.targets[i]
		if !t.full {
			a.made++
		}
		flag := len(a.row) - targetSize*(len(a.targets)-i) + targetSize - 1
		a.row[flag] = targetRow{Parked: t.parked, Full: t.full}.flags()
	}
	for i := range a.targets {
		t := &a.targets[i]
		t.row.Shared = a.made > 1
		t.value[deliveryFlags] &^= deliveryShared
		if t.row.Shared {
			t.value[deliveryFlags] |= deliveryShared
		}
	}
}

// write puts the rows.
func (a *Acceptance) write(tx *store.Tx, c *countChanges) error {
	a.written = true
	*c.accepted += acceptedBytes(len(a.body) + rowsBytes*(1+a.made))
	if err := tx.Append(eventBucket, a.key, a.row); err != nil {
		return err
	}
	if a.idKey != nil {
		if err := tx.Put(idBucket, a.idKey, a.key); err != nil {
			return err
		}
	}
	if a.made > 0 {
		if err := tx.Append(bodyBucket, a.key, a.body); err != nil {
			return err
		}
	}
	if a.made > 1 {
		if err := tx.Append(openBucket, a.key, encodeOpen(a.made)); err != nil {
			return err
		}
	}
	for i := range a.targets {
		t := &a.targets[i]
		if t.full {
			continue
		}
		if err := tx.Append(deliveryBucket, t.key, t.value); err != nil {
			return err
		}
		if err := t.putDue(tx); err != nil {
			return err
		}
		c.enter(t.id.Endpoint, &t.row, t.row.Created)
	}
	return nil
}

// putDue makes a delivery due, unless it waits behind others.
func (t *acceptTarget) putDue(tx *store.Tx) error {
	t.behind = false
	if t.row.Order != (orderKey{}) {
		is, err := t.row.chainKey(t.id).enter(tx)
		if err != nil {
			return err
		}
		if t.behind = is == chainBehind; t.behind {
			return nil
		}
	}
	return tx.Append(dueBucket, t.due, nothing)
}

// deliveries are those that were made, and are due.
func (a *Acceptance) deliveries() []Delivery {
	ds := make([]Delivery, 0, a.made)
	for i := range a.targets {
		if t := &a.targets[i]; !t.full && !t.behind {
			ds = append(ds, t.row.delivery(t.id, t.name))
		}
	}
	return ds
}
