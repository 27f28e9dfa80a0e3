package store

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// appendFill leaves a little room on the pages of a bucket that is appended to: rows come in nearly their order, and some
// grow later.
const appendFill = 0.9

// Cursor walks a bucket in key order (First, Seek, Next, and back). Its bytes end with the transaction.
type Cursor = bbolt.Cursor

// Tx is the transaction that the operations of one batch share, or that one View reads, as one space sees it. It is used by
// one goroutine and ends with the batch or the View: bytes it returned are then invalid, copy what is kept.
type Tx struct {
	*batch
	// name is room for the name of a bucket; its first bytes are the prefix of the space.
	name   []byte
	prefix int
}

// batch is what all spaces of a transaction share, with the default one in it: most need no other.
type batch struct {
	def    Tx
	tx     *bbolt.Tx
	writes int
	before []func() error
	after  []func()
	values map[any]any
	spaces []*Tx // beside the default one
}

// newTx returns the default space of tx.
func newTx(tx *bbolt.Tx) *Tx {
	b := &batch{tx: tx}
	b.def.batch = b
	return &b.def
}

// In returns the same transaction as the space of that prefix sees it, whatever the space of t; see Store.Space.
func (t *Tx) In(prefix string) *Tx {
	if prefix == "" {
		return &t.def
	}
	for _, s := range t.spaces {
		if string(s.name[:s.prefix]) == prefix {
			return s
		}
	}
	s := &Tx{batch: t.batch, name: []byte(prefix), prefix: len(prefix)}
	t.spaces = append(t.spaces, s)
	return s
}

// full is the name of a bucket in the file. It is good until the next call.
func (t *Tx) full(bucket []byte) []byte {
	if t.prefix == 0 {
		return bucket
	}
	t.name = append(t.name[:t.prefix], bucket...)
	return t.name
}

// bucket returns a bucket of the space, nil if there is none.
func (t *Tx) bucket(name []byte) *bbolt.Bucket { return t.tx.Bucket(t.full(name)) }

// Get returns the value of key in bucket, nil if there is none.
func (t *Tx) Get(bucket, key []byte) []byte {
	b := t.bucket(bucket)
	if b == nil {
		return nil
	}
	return b.Get(key)
}

// Put writes key in bucket. value must not be changed until the batch has ended.
func (t *Tx) Put(bucket, key, value []byte) error {
	return t.put(bucket, key, value, bbolt.DefaultFillPercent)
}

// Append is Put in a bucket that grows at its end: pages that are full are split so that the first is left appendFill
// full, and not half empty for keys that never come. What it says of a bucket holds for the whole batch.
func (t *Tx) Append(bucket, key, value []byte) error { return t.put(bucket, key, value, appendFill) }

func (t *Tx) put(bucket, key, value []byte, fill float64) error {
	b := t.bucket(bucket)
	if b == nil {
		return fmt.Errorf("put in bucket %q: no such bucket", bucket)
	}
	if fill != bbolt.DefaultFillPercent {
		b.FillPercent = fill
	}
	t.writes++
	return asCorrupt(b.Put(key, value))
}

// Delete removes key from bucket; a key that is not there is no error.
func (t *Tx) Delete(bucket, key []byte) error {
	b := t.bucket(bucket)
	if b == nil {
		return fmt.Errorf("delete from bucket %q: no such bucket", bucket)
	}
	t.writes++
	return asCorrupt(b.Delete(key))
}

// asCorrupt names what it means that bbolt takes a row for a bucket: no bucket of a store lies in another.
func asCorrupt(err error) error {
	if errors.Is(err, berrors.ErrIncompatibleValue) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// Cursor walks bucket in key order; it is nil if there is no such bucket.
func (t *Tx) Cursor(bucket []byte) *Cursor {
	b := t.bucket(bucket)
	if b == nil {
		return nil
	}
	return b.Cursor()
}

// CreateBucket makes bucket unless it exists.
func (t *Tx) CreateBucket(bucket []byte) error {
	if t.bucket(bucket) != nil {
		return nil
	}
	t.writes++
	_, err := t.tx.CreateBucket(t.full(bucket))
	return err
}

// BeforeCommit calls fn once after the batch's operations, in the same transaction, if the batch wrote anything.
// It lets operations add up what they would otherwise each write.
func (t *Tx) BeforeCommit(fn func() error) { t.before = append(t.before, fn) }

// AfterCommit calls fn once when the batch is on disk, before the operations' Done. After a failed write it is not
// called, though the batch may be on disk all the same.
func (t *Tx) AfterCommit(fn func()) { t.after = append(t.after, fn) }

// Value returns what SetValue kept for key in this transaction.
func (t *Tx) Value(key any) any { return t.values[key] }

// SetValue keeps v for the operations that follow in this transaction.
func (t *Tx) SetValue(key, v any) {
	if t.values == nil {
		t.values = make(map[any]any, 1)
	}
	t.values[key] = v
}
