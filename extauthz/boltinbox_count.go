package extauthz

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sidehook/sidehook/internal/packed"
	"github.com/sidehook/sidehook/internal/store"
)

// Counters are kept in the store by source, state and the hour in which the row's id was first claimed, so that
// Summary needs no scan and the oldest row is known to the hour. The operations of a batch add up their changes, and
// the batch writes them once.

type countKey struct {
	source string
	state  State
	hour   uint32 // of the row's First, since 1970
}

type count struct{ rows, bytes int64 }

func hourOf(r *row) uint32 { return uint32(r.First / time.Hour.Milliseconds()) }

func (k countKey) encode() []byte {
	b := append(appendKeySource(nil, k.source), byte(k.state))
	return binary.BigEndian.AppendUint32(b, k.hour)
}

func parseCountKey(b []byte) (countKey, error) {
	source, rest, ok := cutLengthPrefixed(b)
	if !ok || len(rest) != 5 {
		return countKey{}, fmt.Errorf("%w: counter key", errRow)
	}
	return countKey{string(source), State(rest[0]), binary.BigEndian.Uint32(rest[1:])}, nil
}

func (c count) encode() []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(c.rows)), uint64(c.bytes))
}

func parseCount(b []byte) (count, error) {
	p := packed.Reader{Rest: b}
	c := count{int64(p.Uvarint()), int64(p.Uvarint())}
	if p.Bad || len(p.Rest) != 0 || c.rows < 0 || c.bytes < 0 {
		return count{}, fmt.Errorf("%w: counter", errRow)
	}
	return c, nil
}

// changes are what a batch does to the counters.
type changes struct {
	counts map[countKey]count
	newest int64
}

type changesKey struct{}

func changesOf(tx *store.Tx) *changes {
	if c, ok := tx.Value(changesKey{}).(*changes); ok {
		return c
	}
	c := &changes{counts: make(map[countKey]count)}
	tx.SetValue(changesKey{}, c)
	tx.BeforeCommit(func() error { return c.flush(tx) })
	return c
}

func (c *changes) add(key []byte, r *row, rows, bytes int64) error {
	source, _, ok := cutLengthPrefixed(key)
	if !ok {
		return corruptRow(fmt.Errorf("%w: key without source", errRow))
	}
	k := countKey{string(source), r.State, hourOf(r)}
	n := c.counts[k]
	c.counts[k] = count{n.rows + rows, n.bytes + bytes}
	return nil
}

func (c *changes) flush(tx *store.Tx) error {
	for k, change := range c.counts {
		if change == (count{}) {
			continue
		}
		key := k.encode()
		var now count
		if value := tx.Get(countBucket, key); value != nil {
			var err error
			if now, err = parseCount(value); err != nil {
				return corruptRow(err)
			}
		}
		now.rows += change.rows
		now.bytes += change.bytes
		if now.rows < 0 || now.bytes < 0 || now.rows == 0 && now.bytes != 0 {
			return corruptRow(fmt.Errorf("%w: counter of %s %s below zero", errRow, k.source, k.state))
		}
		var err error
		if now.rows == 0 {
			err = tx.Delete(countBucket, key)
		} else {
			err = tx.Put(countBucket, key, now.encode())
		}
		if err != nil {
			return err
		}
	}
	if c.newest > int64(getUint64(tx, clockBucket, newestKey)) {
		return tx.Put(clockBucket, newestKey, binary.BigEndian.AppendUint64(nil, uint64(c.newest)))
	}
	return nil
}

// putRow writes a row that is not there yet, and counts it.
func putRow(tx *store.Tx, bucket, key []byte, r *row) error {
	value := r.appendTo(make([]byte, 0, 96))
	c := changesOf(tx)
	c.newest = max(c.newest, r.Last)
	if err := c.add(key, r, 1, int64(len(key)+len(value))); err != nil {
		return err
	}
	if !r.State.settled() && r.Version.At != "" {
		if err := openVersionOf(tx, key, r); err != nil {
			return err
		}
	}
	return tx.Put(bucket, key, value)
}

// removeRow deletes a row; value is what stands there and r what it says.
func removeRow(tx *store.Tx, bucket, key, value []byte, r *row) error {
	if err := unnoteRow(tx, key, value, r); err != nil {
		return err
	}
	return tx.Delete(bucket, key)
}

// unnoteRow takes a row out of what is known of all together.
func unnoteRow(tx *store.Tx, key, value []byte, r *row) error {
	if !r.State.settled() && r.Version.At != "" {
		if err := closeVersionOf(tx, key, r); err != nil {
			return err
		}
	}
	return changesOf(tx).add(key, r, -1, -int64(len(key)+len(value)))
}

// replaceRow writes a row over the one that stands there.
func replaceRow(tx *store.Tx, bucket, key, value []byte, old, r *row) error {
	if err := unnoteRow(tx, key, value, old); err != nil {
		return err
	}
	return putRow(tx, bucket, key, r)
}

func corruptRow(err error) error { return fmt.Errorf("%w: %w", store.ErrCorrupt, err) }

// eachCount calls f with every counter of the store.
func eachCount(tx *store.Tx, f func(countKey, count)) error {
	c := tx.Cursor(countBucket)
	for k, v := c.First(); k != nil; k, v = c.Next() {
		key, err := parseCountKey(k)
		if err != nil {
			return corruptRow(err)
		}
		n, err := parseCount(v)
		if err != nil {
			return corruptRow(err)
		}
		f(key, n)
	}
	return nil
}

// StateSummary sums up the rows of one source in one state.
type StateSummary struct {
	Source string
	State  State
	Count  int64
	Bytes  int64     // of keys and values
	Oldest time.Time // the hour in which the oldest of them was first claimed
	// Reason is the last outcome of an attempt that led to this state or kept it there; empty: none, or not known.
	Reason string
}

// Summary returns the counts by source and state, in that order, from counters: its cost does not depend on the
// number of rows. A claim under HOLD counts as UNKNOWN once the purger has found its lease ended.
func (b *BoltInbox) Summary() ([]StateSummary, error) {
	type group struct {
		source string
		state  State
	}
	sums := make(map[group]*StateSummary)
	err := b.store.View(func(tx *store.Tx) error {
		return eachCount(tx, func(key countKey, n count) {
			hour := time.Unix(int64(key.hour)*3600, 0).UTC()
			g := group{key.source, key.state}
			if sums[g] == nil {
				sums[g] = &StateSummary{Source: key.source, State: key.state, Oldest: hour}
			}
			sums[g].Count += n.rows
			sums[g].Bytes += n.bytes
			if hour.Before(sums[g].Oldest) {
				sums[g].Oldest = hour
			}
		})
	})
	if err != nil {
		return nil, unavailable(err)
	}
	out := make([]StateSummary, 0, len(sums))
	for _, s := range slices.SortedFunc(maps.Values(sums), func(a, b *StateSummary) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.State, b.State))
	}) {
		out = append(out, *s)
	}
	return out, nil
}
