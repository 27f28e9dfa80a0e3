package extauthz

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

const (
	// DefaultPageRows and MaxPageRows bound the rows of a page of List.
	DefaultPageRows = 100
	MaxPageRows     = 1000
	// maxPageScan bounds the rows that one page reads: a filter that fits few rows gives short pages with a cursor
	// to go on from, and no reader stays so long that the store grows under it.
	maxPageScan = 20_000
)

// Record is an inbox row as people see it.
type Record struct {
	Key        Key // an id longer than 256 bytes is "sha256:" and hex
	State      State
	Type       string
	First      time.Time // first claimed
	Last       time.Time // last seen; of a DONE id, and one set aside, up to an hour, or a sixteenth of the retention, behind
	LeaseLeft  time.Duration
	OnUnknown  OnUnknown  // zero for a state without a lease
	OpenTokens int        // leases whose success would still count
	IgnoredFor IgnoredFor // of an IGNORED id
	Ref        StoredRef  // of a STORED one
}

// Filter selects rows; a zero field selects all.
type Filter struct {
	Source, Tenant string
	State          State
	// OrStored selects STORED rows beside those in State.
	OrStored bool
	Type     string
	// Since (inclusive) and Until (exclusive) compare with Record.Last.
	Since, Until time.Time
}

// Page is a part of a listing.
type Page struct {
	Records []Record
	// Next continues the listing; empty after the last row. A page may be short, even empty, and still have one.
	Next string
}

// List returns the rows that f selects, those of a source and tenant together and by id (names of sources come by
// length first: that is how keys are written). cursor is a Page.Next or empty; rows is bounded by MaxPageRows, and
// DefaultPageRows if 0. Rows that change between two pages are listed as they then are.
func (b *BoltInbox) List(ctx context.Context, f Filter, cursor string, rows int) (Page, error) {
	if rows <= 0 {
		rows = DefaultPageRows
	}
	rows = min(rows, MaxPageRows)
	var prefix []byte
	if f.Source != "" {
		prefix = appendKeySource(nil, f.Source)
	}
	if f.Source != "" && f.Tenant != "" {
		prefix = appendKeyPrefix(nil, f.Source, f.Tenant)
	}
	from := prefix
	if cursor != "" {
		after, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || !bytes.HasPrefix(after, prefix) {
			return Page{}, fmt.Errorf("list inbox: cursor does not belong to this listing")
		}
		from = append(after, 0)
	}
	var page Page
	err := b.store.View(func(tx *store.Tx) error {
		m := newMerge(tx, f.State, from)
		scanned := 0
		for key, value := m.next(); key != nil && bytes.HasPrefix(key, prefix); key, value = m.next() {
			if err := ctx.Err(); err != nil {
				return err
			}
			r, err := decodeRow(value)
			if err != nil {
				return err
			}
			record, err := b.record(key, &r)
			if err != nil {
				return err
			}
			if f.selects(&record) {
				page.Records = append(page.Records, record)
			}
			if scanned++; scanned == maxPageScan || len(page.Records) == rows {
				page.Next = base64.RawURLEncoding.EncodeToString(key)
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return Page{}, fmt.Errorf("list inbox: %w", err)
	}
	return page, nil
}

func (f *Filter) selects(r *Record) bool {
	return (f.State == 0 || f.State == r.State || f.OrStored && r.State == StateStored) &&
		(f.Tenant == "" || f.Tenant == r.Key.Tenant) &&
		(f.Type == "" || f.Type == r.Type) &&
		(f.Since.IsZero() || !r.Last.Before(f.Since)) &&
		(f.Until.IsZero() || r.Last.Before(f.Until))
}

// Get returns the row of key, or ErrNotFound.
func (b *BoltInbox) Get(key Key) (Record, error) {
	var record Record
	err := b.store.View(func(tx *store.Tx) error {
		_, encoded, value := findRow(tx, key)
		if value == nil {
			return ErrNotFound
		}
		r, err := decodeRow(value)
		if err != nil {
			return err
		}
		record, err = b.record(encoded, &r)
		return err
	})
	if err != nil {
		return Record{}, fmt.Errorf("get %s of %s: %w", key.ID, key.Source, err)
	}
	return record, nil
}

// Release lets the next delivery of key through once, whatever the row's state (one that was set aside too, though its rule
// stands); it returns ErrNotFound if there is none. It returns once that is on disk. If the app is at work on the event now, or
// is still to get it, it gets it twice.
func (b *BoltInbox) Release(ctx context.Context, key Key) error {
	op := &releaseOp{b: b, key: key, answered: make(chan error, 1)}
	return b.change(ctx, "release", key, op, op.answered)
}

// change has op, a person's, change the row of key, and waits for its answer.
func (b *BoltInbox) change(ctx context.Context, what string, key Key, op store.Op, answered <-chan error) error {
	if err := b.store.Submit(op, store.Urgent); err != nil {
		return unavailable(err)
	}
	var err error
	select {
	case err = <-answered:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s %s of %s: %w", what, key.ID, key.Source, err)
	}
	return nil
}

type releaseOp struct {
	b        *BoltInbox
	key      Key
	found    []byte // the row's key; nil: no row
	answered chan error
}

// Apply implements store.Op.
func (op *releaseOp) Apply(tx *store.Tx) error {
	bucket, encoded, value := findRow(tx, op.key)
	if op.found = encoded; op.found == nil {
		return nil
	}
	r, err := decodeRow(value)
	if err != nil {
		return err
	}
	if r.State.settled() {
		if err := removeRow(tx, bucket, encoded, value, &r); err != nil || r.State.forApp() {
			return err
		}
		// Without a row the next delivery would be left out again.
		return putRow(tx, openBucket, encoded, &row{State: StateReleased, First: r.First, Last: r.Last, Type: r.Type})
	}
	// What is still with the app may succeed yet, and then counts.
	return free(tx, encoded, value, &r, appendOlder(nil, &r))
}

// Done implements store.Op.
func (op *releaseOp) Done(err error) {
	switch {
	case err != nil:
		err = unavailable(err)
	case op.found == nil:
		err = ErrNotFound
	default:
		op.b.waits.end(string(op.found))
	}
	op.answered <- err
}

// findRow looks for key as a claim writes it, and as a listing shows it.
func findRow(tx *store.Tx, key Key) (bucket, encoded, value []byte) {
	candidates := [][]byte{appendKey(nil, key)}
	if hash, ok := strings.CutPrefix(key.ID, shownHashPrefix); ok {
		if sum, err := hex.DecodeString(hash); err == nil && len(sum) == sha256.Size {
			candidates = append(candidates, append(append(appendKeyPrefix(nil, key.Source, key.Tenant), keyHashedID), sum...))
		}
	}
	for _, encoded := range candidates {
		for _, bucket := range [...][]byte{openBucket, doneBucket} {
			if value := tx.Get(bucket, encoded); value != nil {
				return bucket, encoded, value
			}
		}
	}
	return nil, nil, nil
}

// record shows r; what it returns does not point into the store.
func (b *BoltInbox) record(key []byte, r *row) (Record, error) {
	k, err := parseKey(key)
	if err != nil {
		return Record{}, corruptRow(err)
	}
	record := Record{
		Key:   k,
		State: b.state(r),
		Type:  string(r.Type),
		First: time.UnixMilli(r.First).UTC(),
		Last:  time.UnixMilli(r.Last).UTC(),
	}
	record.IgnoredFor = r.IgnoredFor
	if r.State == StateStored {
		record.Ref = r.Ref
	}
	if !r.State.settled() {
		record.OnUnknown = r.OnUnknown
		record.OpenTokens = len(appendOlder(nil, r))
	}
	if r.State == StatePending {
		record.LeaseLeft = max(0, b.remaining(r))
	}
	return record, nil
}

// merge walks the open and the done rows together in key order.
type merge struct {
	open, done       *store.Cursor
	openKey, openVal []byte
	doneKey, doneVal []byte
}

// newMerge starts at from; a state other than zero leaves out the bucket that cannot hold it.
func newMerge(tx *store.Tx, state State, from []byte) *merge {
	m := &merge{}
	if !state.settled() {
		m.open = tx.Cursor(openBucket)
		m.openKey, m.openVal = m.open.Seek(from)
	}
	if state == 0 || state.settled() {
		m.done = tx.Cursor(doneBucket)
		m.doneKey, m.doneVal = m.done.Seek(from)
	}
	return m
}

// next returns the next row, nil after the last.
func (m *merge) next() (key, value []byte) {
	if m.openKey != nil && (m.doneKey == nil || bytes.Compare(m.openKey, m.doneKey) < 0) {
		key, value = m.openKey, m.openVal
		m.openKey, m.openVal = m.open.Next()
		return key, value
	}
	key, value = m.doneKey, m.doneVal
	if m.doneKey != nil {
		m.doneKey, m.doneVal = m.done.Next()
	}
	return key, value
}
