package egress

import (
	"context"
	"errors"
	"fmt"

	"github.com/sidehook/sidehook/internal/store"
)

// Deliveries implements Records.
func (b *BoltRecords) Deliveries(ctx context.Context, ids ...DeliveryID) ([]DeliveryRecord, error) {
	if len(ids) > MaxPageRows {
		return nil, fmt.Errorf("get deliveries: %w: %d, at most %d", ErrFilter, len(ids), MaxPageRows)
	}
	var found []DeliveryRecord
	err := b.view(ctx, "get deliveries", func(tx *store.Tx) error {
		s, err := b.selection(tx, Filter{})
		if err != nil {
			return err
		}
		for _, id := range ids {
			r, err := deliveryOf(tx, id)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			record, err := s.record(id, &r)
			if err != nil {
				return err
			}
			found = append(found, record)
		}
		return nil
	})
	return found, err
}

// ExpungeEvent implements Records.
func (b *BoltRecords) ExpungeEvent(ctx context.Context, event uint64) (EventDetail, error) {
	op := &expungeOp{change: change{b: b}, seq: event, answered: make(chan error, 1)}
	err := b.change(ctx, fmt.Sprintf("expunge event %d", event), op, op.answered)
	return op.left, err
}
