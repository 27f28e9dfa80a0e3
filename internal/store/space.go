package store

import "strings"

// Space is a part of a store with buckets of its own: their names in the file begin with its prefix. So two users of the
// same bucket names live in one file, and in one batch. All methods are those of the Store, in that space.
type Space struct {
	store  *Store
	prefix string
}

// Space returns the space of that prefix; "" is the one that the Store's own methods work in. A prefix must not be the
// beginning of another space's bucket names: one that ends with a slash is not, as no bucket has one.
func (s *Store) Space(prefix string) *Space { return &Space{s, prefix} }

// Prefix is what the names of the space's buckets begin with in the file.
func (s *Space) Prefix() string { return s.prefix }

// In returns tx, which may be of any space of the store, as this one sees it.
func (s *Space) In(tx *Tx) *Tx { return tx.In(s.prefix) }

// View is Store.View.
func (s *Space) View(fn func(*Tx) error) error { return s.store.view(s.prefix, fn) }

// Submit is Store.Submit.
func (s *Space) Submit(op Op, u Urgency) error { return s.store.submit(op, s.prefix, u) }

// Setup is Store.Setup.
func (s *Space) Setup(fn func(*Tx) error) error { return s.store.setup(s.prefix, fn) }

// Usage is that of the whole Store.
func (s *Space) Usage() (used, limit int64) { return s.store.Usage() }

// Room is that of the whole Store.
func (s *Space) Room() int64 { return s.store.Room() }

// RowsIn has rows judge what lies in the space of that prefix, under the names that the space knows.
func RowsIn(prefix string, rows Rows) Rows {
	if prefix == "" {
		return rows
	}
	return rowsIn{prefix, rows}
}

type rowsIn struct {
	prefix string
	rows   Rows
}

// Row implements Rows.
func (r rowsIn) Row(bucket string, key, value []byte) error {
	if name, ok := strings.CutPrefix(bucket, r.prefix); ok {
		return r.rows.Row(name, key, value)
	}
	return nil
}

// Finish implements Rows.
func (r rowsIn) Finish() []error { return r.rows.Finish() }
