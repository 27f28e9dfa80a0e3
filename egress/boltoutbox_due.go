package egress

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/sidehook/sidehook/internal/store"
)

// Due implements Outbox.
func (b *BoltOutbox) Due(dst []Delivery, endpoint string, lane Lane, after *Delivery, n int) ([]Delivery, error) {
	number, ok := b.endpoints.Load().numbers[endpoint]
	if !ok || n <= 0 {
		return dst, nil
	}
	var room [dueKeySize]byte
	prefix := appendLaneKey(room[:0], number, lane)
	from := prefix
	if after != nil {
		from = dueKey{number, lane, toMillis(after.Due), after.ID.Event}.appendTo(nil)
	}
	had := len(dst)
	err := b.store.View(func(tx *store.Tx) error {
		dst = dst[:had]
		c := tx.Cursor(dueBucket)
		k, _ := c.Seek(from)
		if after != nil && bytes.Equal(k, from) {
			k, _ = c.Next()
		}
		for ; k != nil && bytes.HasPrefix(k, prefix) && len(dst)-had < n; k, _ = c.Next() {
			due, err := parseDueKey(k)
			if err != nil {
				return corruptRow(err)
			}
			row, err := deliveryOf(tx, due.delivery())
			if err != nil {
				return corruptRow(fmt.Errorf("%s is due: %w", due.delivery(), err))
			}
			dst = append(dst, row.delivery(due.delivery(), endpoint))
		}
		return nil
	})
	if err != nil {
		return dst[:had], unavailable(err)
	}
	return dst, nil
}

// Load implements Outbox. The event is the caller's.
func (b *BoltOutbox) Load(id DeliveryID) (*Event, error) {
	var e Event
	err := b.store.View(func(tx *store.Tx) error {
		row, err := eventOf(tx, id.Event)
		if err != nil {
			return err
		}
		var key [8]byte
		body := tx.Get(bodyBucket, appendSeq(key[:0], id.Event))
		if body == nil {
			return ErrNotFound
		}
		e = row.event(id.Event)
		e.Body = slices.Clone(body)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load event of %s: %w", id, unavailable(err))
	}
	return &e, nil
}

// StateIn is the state of a delivery on disk, as tx sees it, which may be of any space of the store; false if it is gone.
func (b *BoltOutbox) StateIn(tx *store.Tx, id DeliveryID) (State, bool, error) {
	row, err := deliveryOf(b.store.In(tx), id)
	if errors.Is(err, ErrNotFound) {
		return 0, false, nil
	}
	return row.State, err == nil, err
}
