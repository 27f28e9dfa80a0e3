package egress

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/sidehook/sidehook/internal/store"
)

// Summary implements Records.
func (b *BoltRecords) Summary(ctx context.Context) ([]StateSummary, error) {
	type group struct {
		endpoint string
		state    State
	}
	type sum struct {
		StateSummary
		hour     uint32
		reasonAt int64
	}
	sums := make(map[group]*sum)
	err := b.view(ctx, "sum up the outbox", func(tx *store.Tx) error {
		names, there, err := readNumbers(tx)
		if err != nil {
			return err
		}
		return eachCount(tx, func(k countKey, n count) {
			name, state := names[k.endpoint], k.state
			if state == StateWaiting && b.parked(name) {
				state = StateParked
			}
			s := sums[group{name, state}]
			if s == nil {
				s = &sum{StateSummary: StateSummary{Endpoint: name, Removed: !there[name], State: state}, hour: k.hour}
				sums[group{name, state}] = s
			}
			s.Count += n.rows
			s.Bytes += n.bytes
			s.hour = min(s.hour, k.hour)
			if n.reason != 0 && n.at >= s.reasonAt {
				s.Reason, s.reasonAt = n.reason, n.at
			}
		})
	})
	if err != nil {
		return nil, err
	}
	out := make([]StateSummary, 0, len(sums))
	for _, s := range slices.SortedFunc(maps.Values(sums), func(a, b *sum) int {
		return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.State, b.State))
	}) {
		s.Oldest = fromMillis(int64(s.hour) * hourMillis)
		out = append(out, s.StateSummary)
	}
	return out, nil
}

// readNumbers returns the endpoints by their numbers, and those of them that are not removed.
func readNumbers(tx *store.Tx) (names map[uint32]string, there map[string]bool, err error) {
	names, there = make(map[uint32]string), make(map[string]bool)
	c := tx.Cursor(numberBucket)
	for k, v := c.First(); k != nil; k, v = c.Next() {
		number, row, err := parseNumberEntry(k, v)
		if err != nil {
			return nil, nil, err
		}
		names[number] = row.Endpoint
		if row.Removed == 0 {
			there[row.Endpoint] = true
		}
	}
	return names, there, nil
}
