package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// maxDueScan bounds the rows of dueBucket and chainBucket that a listing sorts: more wait only at an app, or where they were
// redelivered; then all deliveries are gone over.
const maxDueScan = 200_000

// selection is a Filter at work in one transaction.
type selection struct {
	Filter
	b  *BoltRecords
	tx *store.Tx
	// low (inclusive) and high (exclusive) bound Event.Seq.
	low, high uint64
	// numbers are those that the Filter's endpoint has or had; without an endpoint it is not looked at.
	numbers []uint32
	met     map[uint32]numberRow // endpoints that were asked for so far

	// The event that was looked at last; deliveries of one event come together.
	event    eventRow
	eventSeq uint64
	eventAt  bool
}

func (b *BoltRecords) selection(tx *store.Tx, f Filter) (*selection, error) {
	s := &selection{Filter: f, b: b, tx: tx, high: math.MaxUint64, met: make(map[uint32]numberRow)}
	if !f.Since.IsZero() {
		s.low = seqOf(f.Since)
	}
	if !f.Until.IsZero() {
		s.high = seqOf(f.Until)
	}
	if f.Endpoint == "" {
		return s, nil
	}
	c := tx.Cursor(numberBucket)
	for k, v := c.First(); k != nil; k, v = c.Next() {
		number, row, err := parseNumberEntry(k, v)
		if err != nil {
			return nil, err
		}
		if row.Endpoint == f.Endpoint {
			s.numbers = append(s.numbers, number)
		}
	}
	return s, nil
}

// parseNumberEntry reads a key and row of numberBucket.
func parseNumberEntry(key, value []byte) (uint32, numberRow, error) {
	number, err := parseNumber(key)
	if err != nil {
		return 0, numberRow{}, corruptRow(err)
	}
	row, err := parseNumberRow(value)
	if err != nil {
		return 0, numberRow{}, corruptRow(err)
	}
	return number, row, nil
}

// seqOf is the lowest Seq of an event that was accepted at t or later.
func seqOf(t time.Time) uint64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	switch {
	case ms <= 0:
		return 0
	case ms > math.MaxUint64>>seqCountBits:
		return math.MaxUint64
	}
	return uint64(ms) << seqCountBits
}

// nothing reports whether no delivery can be selected.
func (s *selection) nothing() bool { return s.low >= s.high || s.Endpoint != "" && len(s.numbers) == 0 }

// bucket is where to look for deliveries by their DeliveryID: of those that are DEAD there is a list.
func (s *selection) bucket() []byte {
	if s.State == StateDead {
		return deadBucket
	}
	return deliveryBucket
}

// kept is the state on disk of what is shown in a Filter's state; 0: any.
func kept(shown State) State {
	if shown == StateSending || shown == StateParked {
		return StateWaiting
	}
	return shown
}

// A visitor looks at a delivery and says whether to go on. It must not keep r.
type visitor func(id DeliveryID, r *deliveryRow) (bool, error)

// descend goes over the deliveries below the one named, in falling order of their ids. Of the Filter only the time is
// applied.
func (s *selection) descend(below DeliveryID, v visitor) error {
	if below.Event >= s.high {
		below = DeliveryID{Event: s.high}
	}
	c := s.tx.Cursor(s.bucket())
	for key, value := seekBelow(c, appendDeliveryKey(nil, below)); key != nil; key, value = c.Prev() {
		id, err := parseDeliveryKey(key)
		if err != nil {
			return corruptRow(err)
		}
		if id.Event < s.low {
			return nil
		}
		if more, err := s.visit(id, value, v); err != nil || !more {
			return err
		}
	}
	return nil
}

// seekBelow moves c to the last row before key.
func seekBelow(c *store.Cursor, key []byte) (k, v []byte) {
	if k, _ := c.Seek(key); k == nil {
		return c.Last()
	}
	return c.Prev()
}

// ascend is descend the other way: over the deliveries after the one named (the zero value: from the first), up to and
// including those of the event last.
func (s *selection) ascend(after DeliveryID, last uint64, v visitor) error {
	from := append(appendDeliveryKey(nil, after), 0)
	if after.Event < s.low {
		from = appendSeq(nil, s.low)
	}
	c := s.tx.Cursor(s.bucket())
	for key, value := c.Seek(from); key != nil; key, value = c.Next() {
		id, err := parseDeliveryKey(key)
		if err != nil {
			return corruptRow(err)
		}
		if id.Event >= s.high || id.Event > last {
			return nil
		}
		if more, err := s.visit(id, value, v); err != nil || !more {
			return err
		}
	}
	return nil
}

// visit calls v with the delivery of that id; value is what stands beside its key in the bucket that is gone over.
func (s *selection) visit(id DeliveryID, value []byte, v visitor) (bool, error) {
	var r deliveryRow
	var err error
	if s.State == StateDead {
		r, err = s.row(id)
	} else if r, err = parseDelivery(value, id.Event); err != nil {
		err = corruptRow(err)
	}
	if err != nil {
		return false, err
	}
	return v(id, &r)
}

// waiting returns the ids of what waits at the Filter's endpoint, below the one named, in falling order. It reports false
// if there are too many to be sorted.
func (s *selection) waiting(ctx context.Context, below DeliveryID) ([]DeliveryID, bool, error) {
	var ids []DeliveryID
	scanned := 0
	for _, bucket := range [][]byte{dueBucket, chainBucket} {
		c := s.tx.Cursor(bucket)
		for _, number := range s.numbers {
			prefix := appendNumber(nil, number)
			for key, value := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = c.Next() {
				if scanned++; scanned > maxDueScan {
					return nil, false, nil
				}
				if scanned%1024 == 0 && ctx.Err() != nil {
					return nil, false, ctx.Err()
				}
				id, waits, err := waitingOf(bucket, key, value)
				if err != nil {
					return nil, false, corruptRow(err)
				}
				if waits && id.Event >= s.low && id.Event < s.high && compareIDs(id, below) < 0 {
					ids = append(ids, id)
				}
			}
		}
	}
	slices.SortFunc(ids, func(a, b DeliveryID) int { return compareIDs(b, a) })
	return ids, true, nil
}

// waitingOf reads a row of dueBucket, or of chainBucket if its delivery waits and is not due.
func waitingOf(bucket, key, value []byte) (id DeliveryID, waits bool, err error) {
	if bytes.Equal(bucket, dueBucket) {
		due, err := parseDueKey(key)
		return due.delivery(), true, err
	}
	chain, err := parseChainKey(key)
	if err != nil {
		return id, false, err
	}
	p, err := parsePlace(value)
	return chain.delivery(), p == chainBehind, err
}

// row reads the row of a delivery that is in an index.
func (s *selection) row(id DeliveryID) (deliveryRow, error) {
	r, err := deliveryOf(s.tx, id)
	if errors.Is(err, ErrNotFound) {
		err = corruptRow(fmt.Errorf("%w: %s is listed, and not there", errRow, id))
	}
	return r, err
}

// selects reports whether the row is one of the selected.
func (s *selection) selects(id DeliveryID, r *deliveryRow) (bool, error) {
	if s.State != 0 && kept(s.State) != r.State ||
		s.Reason != 0 && s.Reason != r.Reason ||
		s.Endpoint != "" && !slices.Contains(s.numbers, id.Endpoint) ||
		id.Event < s.low || id.Event >= s.high {
		return false, nil
	}
	if kept(s.State) == StateWaiting {
		e, err := s.endpoint(id.Endpoint)
		if err != nil || s.b.shown(id, e.Endpoint, r.State) != s.State {
			return false, err
		}
	}
	if s.Tenant == "" && s.Type == "" {
		return true, nil
	}
	if err := s.loadEvent(id.Event); err != nil {
		return false, err
	}
	return (s.Tenant == "" || s.Tenant == s.event.Tenant) && (s.Type == "" || s.Type == s.event.Type), nil
}

// record shows a delivery.
func (s *selection) record(id DeliveryID, r *deliveryRow) (DeliveryRecord, error) {
	e, err := s.endpoint(id.Endpoint)
	if err != nil {
		return DeliveryRecord{}, err
	}
	if err := s.loadEvent(id.Event); err != nil {
		return DeliveryRecord{}, err
	}
	record := DeliveryRecord{
		Delivery: r.delivery(id, e.Endpoint),
		EventID:  s.event.ID,
		Tenant:   s.event.Tenant,
		Type:     s.event.Type,
		Accepted: fromMillis(s.event.Accepted),
	}
	record.State = s.b.shown(id, e.Endpoint, r.State)
	return record, nil
}

// endpoint says whose the number is, or was.
func (s *selection) endpoint(number uint32) (numberRow, error) {
	if row, ok := s.met[number]; ok {
		return row, nil
	}
	value := s.tx.Get(numberBucket, appendNumber(nil, number))
	if value == nil {
		return numberRow{}, corruptRow(fmt.Errorf("%w: no endpoint has the number %d", errRow, number))
	}
	row, err := parseNumberRow(value)
	if err != nil {
		return row, corruptRow(err)
	}
	s.met[number] = row
	return row, nil
}

func (s *selection) loadEvent(seq uint64) error {
	if s.eventAt && s.eventSeq == seq {
		return nil
	}
	event, err := eventOf(s.tx, seq)
	if errors.Is(err, ErrNotFound) {
		err = corruptRow(fmt.Errorf("%w: a delivery of event %d, which is not there", errRow, seq))
	}
	if err != nil {
		return err
	}
	s.event, s.eventSeq, s.eventAt = event, seq, true
	return nil
}
