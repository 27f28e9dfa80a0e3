package store

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAppendFillsPages: rows that come in order take not much more room than their bytes.
func TestAppendFillsPages(t *testing.T) {
	t.Parallel()
	const rows, size = 20_000, 100
	used := func(put func(tx *Tx, key, value []byte) error) int64 {
		s := openStore(t, Options{Folder: filepath.Join(t.TempDir(), "s")})
		for from := 0; from < rows; from += 100 {
			if err := s.Setup(func(tx *Tx) error {
				for i := range 100 {
					if err := put(tx, binary.BigEndian.AppendUint64(nil, uint64(from+i)), make([]byte, size)); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.measure(); err != nil {
			t.Fatal(err)
		}
		n, _ := s.Usage()
		return n
	}
	appended := used(func(tx *Tx, key, value []byte) error { return tx.Append(testBucket, key, value) })
	put := used(func(tx *Tx, key, value []byte) error { return tx.Put(testBucket, key, value) })
	least := int64(rows * (8 + size + elementSize))
	if appended > least*5/4+64*int64(os.Getpagesize()) {
		t.Errorf("%d bytes for rows of %d", appended, least)
	}
	if put < appended*3/2 {
		t.Errorf("Put takes %d bytes, Append %d: is it worth its name?", put, appended)
	}
}

func TestAppendNeedsABucket(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	if err := s.Setup(func(tx *Tx) error { return tx.Append([]byte("none"), []byte("k"), nil) }); err == nil {
		t.Error("appended to a bucket that is not there")
	}
}

// TestAfterCommit: it is called when the batch is on disk, before the operations hear of it, and not after a failure.
func TestAfterCommit(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	var order []string
	failing(s, diskFull, func(n int) bool { return n == 0 })
	r := run(t, s)
	for _, tt := range []struct {
		name string
		want []string
		err  error
	}{
		{"a failed write", nil, ErrWrite},
		{"a good one", []string{"committed", "k is v"}, nil},
	} {
		order = nil
		op := newOp(func(tx *Tx) error {
			tx.AfterCommit(func() { order = append(order, "committed") })
			return tx.Put(testBucket, []byte("k"), []byte("v"))
		})
		if err := r.do(Urgent, op); !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.err)
		}
		if len(order) > 0 {
			order = append(order, "k is "+string(get(t, s, "k")))
		}
		if !slices.Equal(order, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, order, tt.want)
		}
	}
	op := newOp(func(tx *Tx) error {
		tx.AfterCommit(func() { t.Error("called for a batch that wrote nothing") })
		return nil
	})
	if err := r.do(Urgent, op); err != nil {
		t.Error(err)
	}
}

// TestUrgentPersistent: it starts a commit at once, and after a failed write is tried again.
func TestUrgentPersistent(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, Options{Folder: folder})
		began := failing(s, diskFull, func(n int) bool { return n < 2 })
		r := run(t, s)
		start := time.Now()
		if err := r.do(UrgentPersistent, putOp("k", "v")); err != nil {
			t.Error(err)
		}
		var at []time.Duration
		for _, b := range *began {
			at = append(at, b.Sub(start))
		}
		if want := []time.Duration{0, lazyDelay, 3 * lazyDelay}; !slices.Equal(at, want) {
			t.Errorf("tried at %v, want %v", at, want)
		}
		if got := get(t, s, "k"); string(got) != "v" {
			t.Errorf("k is %q", got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestUrgentPersistentIsNeverBusy: what must be written is taken where new work is refused.
func TestUrgentPersistentIsNeverBusy(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	for range maxQueue {
		if err := s.Submit(putOp("k", "new"), Urgent); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Submit(putOp("k", "new"), Urgent); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v, want ErrBusy", err)
	}
	op := putOp("k", "settled")
	if err := s.Submit(op, UrgentPersistent); err != nil {
		t.Errorf("what must be written: %v", err)
	}
	r := run(t, s)
	if err := <-op.done; err != nil {
		t.Error(err)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}
