package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
)

// failing lets the commits of s fail with err as long as fails says so for their number, counted from 0, and notes when
// they began.
func failing(s *Store, err error, fails func(n int) bool) (began *[]time.Time) {
	began = new([]time.Time)
	s.commit = func(tx *bbolt.Tx) error {
		n := len(*began)
		*began = append(*began, time.Now())
		if fails(n) {
			return errors.Join(tx.Rollback(), err)
		}
		return tx.Commit()
	}
	return began
}

var diskFull = &fs.PathError{Op: "write", Path: FileName, Err: syscall.ENOSPC}

// TestPersistentIsTriedAgain: while the disk is full the pause doubles up to a second; then everything is written, in
// the order in which it came, and the pause is forgotten.
func TestPersistentIsTriedAgain(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, Options{Folder: folder})
		older, newer := putOp("k", "older"), putOp("k", "newer")
		began := failing(s, diskFull, func(n int) bool {
			if n == 0 { // it comes while the older one is on its way
				if err := s.Submit(newer, Persistent); err != nil {
					t.Error(err)
				}
			}
			return n < 8
		})
		r := run(t, s)
		start := time.Now()
		if err := r.Submit(older, Persistent); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-older.done, <-newer.done); err != nil {
			t.Error(err)
		}
		var waits []time.Duration
		for i, at := range *began {
			if i == 0 {
				waits = append(waits, at.Sub(start))
				continue
			}
			waits = append(waits, at.Sub((*began)[i-1]))
		}
		const ms = time.Millisecond
		// The newer one goes alone, right after the older one.
		want := []time.Duration{20 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, time.Second, time.Second, 0}
		if !slices.Equal(waits, want) {
			t.Errorf("tried after pauses of %v, want %v", waits, want)
		}
		if got := get(t, s, "k"); string(got) != "newer" {
			t.Errorf("k is %q: the older operation was written last", got)
		}
		start = time.Now()
		if err := r.do(Lazy, putOp("k", "later")); err != nil || time.Since(start) != lazyDelay {
			t.Errorf("after a good commit: %v after %v, want %v", err, time.Since(start), lazyDelay)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestStopEndsWhatCannotBeWritten: a full disk does not keep the process from ending.
func TestStopEndsWhatCannotBeWritten(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, Options{Folder: folder})
		began := failing(s, diskFull, func(n int) bool { return n < 100 })
		r := run(t, s)
		op := putOp("k", "v")
		if err := r.Submit(op, Persistent); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := r.stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if err := <-op.done; !errors.Is(err, ErrWrite) {
			t.Errorf("the operation: %v, want ErrWrite", err)
		}
		if len(*began) == 100 {
			t.Error("tried until it was written")
		}
	})
}

// againOp asks again as soon as it is answered.
type againOp struct {
	*funcOp
	s     *Store
	again chan error
}

func (o *againOp) Done(err error) {
	o.again <- o.s.Submit(putOp("again", "v"), Urgent)
	o.funcOp.Done(err)
}

// TestFailedSyncTakesNothingMore: whoever hears of it and asks again is refused at once.
func TestFailedSyncTakesNothingMore(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	failing(s, syscall.EIO, func(n int) bool { return n == 0 })
	r := run(t, s)
	op := &againOp{putOp("k", "v"), s, make(chan error, 1)}
	if err := s.Submit(op, Urgent); err != nil {
		t.Fatal(err)
	}
	if err := <-op.done; !errors.Is(err, ErrSync) {
		t.Errorf("the operation: %v, want ErrSync", err)
	}
	if err := <-op.again; !errors.Is(err, ErrSync) {
		t.Errorf("the next one: %v, want ErrSync", err)
	}
	if err := r.stop(); !errors.Is(err, ErrSync) {
		t.Errorf("run: %v, want ErrSync", err)
	}
}

// TestOpenGivesUpWithItsContext: the wait for a lock ends when nobody wants the store any more.
func TestOpenGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if _, err := Open(ctx, Options{Folder: s.folder}); !errors.Is(err, stopped) {
		t.Errorf("got %v, want the context's cause", err)
	}
}

// TestCorruptRowEndsTheStore: a row that its reader cannot make sense of is a broken file, whoever reads it.
func TestCorruptRowEndsTheStore(t *testing.T) {
	t.Parallel()
	corrupt := func(*Tx) error { return fmt.Errorf("%w: row of 3 bytes", ErrCorrupt) }
	for _, tt := range []struct {
		name string
		read func(r *running) error
	}{
		{"in an operation", func(r *running) error { return r.do(Urgent, newOp(corrupt)) }},
		{"in a view", func(r *running) error { return r.View(corrupt) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := run(t, openStore(t, Options{}))
			if err := r.do(Urgent, putOp("k", "v")); err != nil {
				t.Fatal(err)
			}
			if err := tt.read(r); !errors.Is(err, ErrCorrupt) {
				t.Errorf("the reader: %v, want ErrCorrupt", err)
			}
			if err := r.Submit(putOp("k", "later"), Urgent); !errors.Is(err, ErrCorrupt) {
				t.Errorf("the next one: %v, want ErrCorrupt", err)
			}
			if err := r.stop(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("run: %v, want ErrCorrupt", err)
			}
		})
	}
}
