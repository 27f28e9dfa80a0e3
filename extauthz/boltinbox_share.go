package extauthz

import (
	"maps"
	"slices"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// shareAge is how old the sums of shares may be when they decide. They are read from the counters, a few hundred of
// them, and only while a source can be beyond its share at all.
const shareAge = time.Second

// shareReached is the part of its share from which on a source is called full. At the bound the room in use goes up and
// down with every commit, which frees pages of the one before.
const shareReached = 0.95

// shares keeps one source from taking the room of all others.
type shares struct {
	percent int // of the store's limit that one source may take; 100 or more: as much as there is

	// Only the committer's goroutine uses these.
	read  time.Time
	bytes map[string]int64 // of keys and values, by source
	total int64
}

// exceeded reports whether source takes its share or more of s.
func (h *shares) exceeded(tx *store.Tx, s *store.Store, source string) (bool, error) {
	used, most := h.bound(s)
	if used < most {
		return false, nil
	}
	if h.bytes == nil || time.Since(h.read) >= shareAge {
		bytes, total, err := sumShares(tx)
		if err != nil {
			return false, err
		}
		h.bytes, h.total, h.read = bytes, total, time.Now()
	}
	return charged(used, h.bytes[source], h.total) >= most, nil
}

// bound returns what of s is used and what one source may take of it; with used below most, no source can be beyond.
func (h *shares) bound(s *store.Store) (used, most float64) {
	u, limit := s.Usage()
	if h.percent >= 100 {
		return 0, 1
	}
	return float64(u), float64(limit) * float64(h.percent) / 100
}

// charged is the part of used that stands for bytes of total: of what the file takes a source is charged with the part
// that its rows are of all rows, since pages are shared.
func charged(used float64, bytes, total int64) float64 {
	if total == 0 {
		return 0
	}
	return used * float64(bytes) / float64(total)
}

// sumShares reads from the counters the bytes of each source and of all.
func sumShares(tx *store.Tx) (bytes map[string]int64, total int64, err error) {
	bytes = make(map[string]int64)
	err = eachCount(tx, func(key countKey, n count) {
		bytes[key.source] += n.bytes
		total += n.bytes
	})
	return bytes, total, err
}

// FullSources returns, sorted, the sources that take all of the room that one source may: new claims of theirs get
// ErrFull. A store that is full as a whole is another matter: see store.Full.
func (b *BoltInbox) FullSources() ([]string, error) {
	used, most := b.shares.bound(b.store)
	most *= shareReached
	if used < most {
		return nil, nil
	}
	var full []string
	err := b.store.View(func(tx *store.Tx) error {
		bytes, total, err := sumShares(tx)
		for _, source := range slices.Sorted(maps.Keys(bytes)) {
			if charged(used, bytes[source], total) >= most {
				full = append(full, source)
			}
		}
		return err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return full, nil
}
