package egress

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"

	"github.com/sidehook/sidehook/internal/store"
)

// maxPageScan bounds the rows that one page, or one step of a count, reads: a filter that fits few rows gives short
// pages with a cursor to go on from, and no reader stays so long that the store grows under it.
const maxPageScan = 20_000

// endOfList is above every id.
var endOfList = DeliveryID{math.MaxUint64, math.MaxUint32}

// ListDeliveries implements Records.
func (b *BoltRecords) ListDeliveries(ctx context.Context, f Filter, cursor string, rows int) (DeliveryPage, error) {
	if rows <= 0 {
		rows = DefaultPageRows
	}
	rows = min(rows, MaxPageRows)
	below, err := parseCursor(cursor)
	if err != nil {
		return DeliveryPage{}, err
	}
	var page DeliveryPage
	err = b.view(ctx, "list deliveries", func(tx *store.Tx) error {
		s, err := b.selection(tx, f)
		if err != nil || s.nothing() {
			return err
		}
		scanned := 0
		v := func(id DeliveryID, r *deliveryRow) (bool, error) {
			selected, err := s.selects(id, r)
			if err != nil {
				return false, err
			}
			if selected {
				record, err := s.record(id, r)
				if err != nil {
					return false, err
				}
				page.Deliveries = append(page.Deliveries, record)
			}
			if scanned++; scanned < maxPageScan && len(page.Deliveries) < rows {
				return true, nil
			}
			page.Next = cursorOf(id)
			return false, nil
		}
		if s.Endpoint != "" && kept(s.State) == StateWaiting {
			ids, few, err := s.waiting(ctx, below)
			if err != nil {
				return err
			}
			if few {
				return s.each(ids, v)
			}
		}
		return s.descend(below, v)
	})
	return page, err
}

func cursorOf(id DeliveryID) string {
	return base64.RawURLEncoding.EncodeToString(appendDeliveryKey(nil, id))
}

func parseCursor(cursor string) (DeliveryID, error) {
	if cursor == "" {
		return endOfList, nil
	}
	key, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(key) != deliveryKeySize {
		return DeliveryID{}, fmt.Errorf("list deliveries: %w", ErrCursor)
	}
	return parseDeliveryKey(key)
}

// each goes over the deliveries of an index.
func (s *selection) each(ids []DeliveryID, v visitor) error {
	for _, id := range ids {
		r, err := s.row(id)
		if err != nil {
			return err
		}
		if more, err := v(id, &r); err != nil || !more {
			return err
		}
	}
	return nil
}

// Count implements Records.
func (b *BoltRecords) Count(ctx context.Context, f Filter) (int64, error) {
	return b.count(ctx, f, math.MaxUint64)
}

// count counts what f selects, up to and including the event last.
func (b *BoltRecords) count(ctx context.Context, f Filter, last uint64) (n int64, err error) {
	var after DeliveryID
	for more := true; more; {
		more = false
		err := b.view(ctx, "count deliveries", func(tx *store.Tx) error {
			s, err := b.selection(tx, f)
			if err != nil || s.nothing() {
				return err
			}
			scanned := 0
			return s.ascend(after, last, func(id DeliveryID, r *deliveryRow) (bool, error) {
				selected, err := s.selects(id, r)
				if selected {
					n++
				}
				after = id
				scanned++
				more = scanned == maxPageScan
				return !more, err
			})
		})
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}
