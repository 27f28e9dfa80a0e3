package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sidehook/sidehook/internal/store"
)

// Delivery implements Records.
func (b *BoltRecords) Delivery(ctx context.Context, id DeliveryID) (DeliveryDetail, error) {
	var detail DeliveryDetail
	err := b.view(ctx, "get "+id.String(), func(tx *store.Tx) error {
		s, err := b.selection(tx, Filter{})
		if err != nil {
			return err
		}
		r, err := deliveryOf(tx, id)
		if err != nil {
			return err
		}
		if detail, err = s.detail(id, &r, MaxAttempts); err != nil {
			return err
		}
		detail.Event = s.eventMeta()
		return nil
	})
	return detail, err
}

// detail shows a delivery with at most so many of its last attempts.
func (s *selection) detail(id DeliveryID, r *deliveryRow, attempts int) (d DeliveryDetail, err error) {
	if d.Delivery, err = s.record(id, r); err != nil {
		return d, err
	}
	prefix := appendDeliveryKey(nil, id)
	c := s.tx.Cursor(attemptBucket)
	key, value := seekBelow(c, appendAttemptKey(nil, id, math.MaxInt32))
	for ; bytes.HasPrefix(key, prefix) && len(d.Attempts) < attempts; key, value = c.Prev() {
		a, err := readAttempt(key, value)
		if err != nil {
			return d, err
		}
		d.Attempts = append(d.Attempts, a)
	}
	slices.Reverse(d.Attempts)
	return d, nil
}

func readAttempt(key, value []byte) (Attempt, error) {
	id, n, err := parseAttemptKey(key)
	if err != nil {
		return Attempt{}, corruptRow(err)
	}
	a, err := parseAttempt(value, id, n)
	if err != nil {
		return Attempt{}, corruptRow(err)
	}
	return a, nil
}

// eventMeta shows the event that was loaded last.
func (s *selection) eventMeta() EventMeta {
	return EventMeta{
		Event:   s.event.event(s.eventSeq),
		Bytes:   s.event.Bytes,
		HasBody: s.tx.Get(bodyBucket, appendSeq(nil, s.eventSeq)) != nil,
	}
}

// Event implements Records.
func (b *BoltRecords) Event(ctx context.Context, tenant, id string) (EventDetail, error) {
	var detail EventDetail
	err := b.view(ctx, "get event "+id, func(tx *store.Tx) error {
		seq, _, err := findShown(tx, tenant, id)
		if err != nil {
			return err
		}
		detail, err = b.eventDetail(tx, seq)
		return err
	})
	return detail, err
}

// findShown is findEvent, and finds an id that the outbox made under any tenant.
func findShown(tx *store.Tx, tenant, id string) (uint64, eventRow, error) {
	seq, r, err := findEvent(tx, tenant, id)
	if !errors.Is(err, ErrNotFound) {
		return seq, r, err
	}
	seq, ok := seqOfEventID(id)
	if !ok {
		return 0, r, ErrNotFound
	}
	if r, err = eventOf(tx, seq); err == nil && r.ID != id {
		err = ErrNotFound
	}
	return seq, r, err
}

// eventDetail shows the event seq, which is there.
func (b *BoltRecords) eventDetail(tx *store.Tx, seq uint64) (EventDetail, error) {
	var detail EventDetail
	s, err := b.selection(tx, Filter{})
	if err != nil {
		return detail, err
	}
	if err := s.loadEvent(seq); err != nil {
		return detail, err
	}
	detail.Event = s.eventMeta()
	attempts := MaxPageRows
	err = s.ofEvent(seq, func(id DeliveryID, r *deliveryRow) (bool, error) {
		if len(detail.Deliveries) == MaxPageRows {
			detail.More = true
			return false, nil
		}
		d, err := s.detail(id, r, min(attempts, MaxAttempts))
		if err != nil {
			return false, err
		}
		attempts -= len(d.Attempts)
		detail.Deliveries = append(detail.Deliveries, d)
		return true, nil
	})
	return detail, err
}

// ofEvent goes over the deliveries of an event.
func (s *selection) ofEvent(seq uint64, v visitor) error {
	prefix := appendSeq(nil, seq)
	c := s.tx.Cursor(deliveryBucket)
	for key, value := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = c.Next() {
		id, err := parseDeliveryKey(key)
		if err != nil {
			return corruptRow(err)
		}
		r, err := parseDelivery(value, seq)
		if err != nil {
			return corruptRow(err)
		}
		if more, err := v(id, &r); err != nil || !more {
			return err
		}
	}
	return nil
}

// Attempts implements Records.
func (b *BoltRecords) Attempts(ctx context.Context, id DeliveryID, after int) ([]Attempt, error) {
	var attempts []Attempt
	err := b.view(ctx, "list attempts of "+id.String(), func(tx *store.Tx) error {
		if tx.Get(deliveryBucket, appendDeliveryKey(nil, id)) == nil {
			return ErrNotFound
		}
		prefix := appendDeliveryKey(nil, id)
		c := tx.Cursor(attemptBucket)
		key, value := c.Seek(appendAttemptKey(nil, id, max(0, after)+1))
		for ; bytes.HasPrefix(key, prefix) && len(attempts) < MaxPageRows; key, value = c.Next() {
			a, err := readAttempt(key, value)
			if err != nil {
				return err
			}
			attempts = append(attempts, a)
		}
		return nil
	})
	return attempts, err
}

// Body implements Records.
func (b *BoltRecords) Body(ctx context.Context, event uint64) ([]byte, error) {
	var body []byte
	err := b.view(ctx, "read a body", func(tx *store.Tx) error {
		key := appendSeq(nil, event)
		if tx.Get(eventBucket, key) == nil {
			return ErrNotFound
		}
		kept := tx.Get(bodyBucket, key)
		if kept == nil {
			return fmt.Errorf("%w: %w", ErrState, errBodyGone)
		}
		body = bytes.Clone(kept)
		return nil
	})
	return body, err
}
