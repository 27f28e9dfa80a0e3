package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
)

// batches records the sizes of the commits of a store.
type batches struct {
	mu    sync.Mutex
	sizes []int
}

func (b *batches) onCommit(_ time.Duration, operations int, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes = append(b.sizes, operations)
}

func (b *batches) all() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sizes)
}

func TestWhatWaitsSharesTheNextCommit(t *testing.T) {
	t.Parallel()
	var seen batches
	s := openStore(t, Options{OnCommit: seen.onCommit})
	inCommit, goOn := make(chan struct{}), make(chan struct{})
	s.commit = func(tx *bbolt.Tx) error {
		inCommit <- struct{}{}
		<-goOn
		return tx.Commit()
	}
	r := run(t, s)
	first := putOp("first", "v")
	if err := r.Submit(first, Urgent); err != nil {
		t.Fatal(err)
	}
	<-inCommit // it started at once: nothing else has been submitted
	var rest []*funcOp
	for i := range 10 {
		op := putOp(fmt.Sprint(i), "v")
		u := Urgent
		if i%2 == 1 {
			u = Lazy
		}
		if err := r.Submit(op, u); err != nil {
			t.Fatal(err)
		}
		rest = append(rest, op)
	}
	select {
	case err := <-first.done:
		t.Errorf("answered before the commit ended: %v", err)
	default:
	}
	goOn <- struct{}{}
	if err := <-first.done; err != nil {
		t.Error(err)
	}
	<-inCommit
	goOn <- struct{}{}
	for _, op := range rest {
		if err := <-op.done; err != nil {
			t.Error(err)
		}
	}
	if got, want := seen.all(), []int{1, 10}; !slices.Equal(got, want) {
		t.Errorf("commits of %v operations, want %v", got, want)
	}
}

func TestLazyWaitsTwentyMilliseconds(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := run(t, openStore(t, Options{Folder: folder}))
		start := time.Now()
		if err := r.do(Lazy, putOp("alone", "v")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != lazyDelay {
			t.Errorf("alone it was committed after %v, want %v", took, lazyDelay)
		}
		// The clock of a bubble stands still while somebody works: what is answered at the same instant rode along.
		start = time.Now()
		lazy := putOp("riding", "v")
		if err := r.Submit(lazy, Lazy); err != nil {
			t.Fatal(err)
		}
		if err := r.do(Urgent, putOp("urgent", "v")); err != nil {
			t.Fatal(err)
		}
		if err := <-lazy.done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("with an urgent one it was committed after %v, want at once", took)
		}
		_ = r.stop()
	})
}

func TestBatchIsBounded(t *testing.T) {
	t.Parallel()
	var seen batches
	s := openStore(t, Options{OnCommit: seen.onCommit})
	var ops []*funcOp
	for i := range 2*maxUrgent + 10 {
		op := putOp(fmt.Sprint(i), "v")
		if err := s.Submit(op, Urgent); err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	run(t, s)
	for _, op := range ops {
		if err := <-op.done; err != nil {
			t.Fatal(err)
		}
	}
	if got, want := seen.all(), []int{maxUrgent, maxUrgent, 10}; !slices.Equal(got, want) {
		t.Errorf("commits of %v operations, want %v", got, want)
	}
}

func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	for _, u := range []Urgency{Urgent, Lazy} {
		for range maxQueue {
			if err := s.Submit(putOp("k", "v"), u); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Submit(putOp("k", "v"), u); !errors.Is(err, ErrBusy) {
			t.Errorf("one more: %v, want ErrBusy", err)
		}
	}
}

func TestOwnErrorEndsOneOperation(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	for _, tt := range []struct {
		name  string
		apply func(tx *Tx) error
	}{
		{"before it wrote", func(*Tx) error { return own }},
		{"after it wrote", func(tx *Tx) error {
			return errors.Join(tx.Put(testBucket, []byte("bad"), []byte("v")), tx.Delete(testBucket, []byte("1")), own)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Options{})
			var ops []*funcOp
			for i := range 5 {
				op := putOp(fmt.Sprint(i), "v")
				if i == 3 {
					op = newOp(tt.apply)
				}
				if err := s.Submit(op, Urgent); err != nil {
					t.Fatal(err)
				}
				ops = append(ops, op)
			}
			run(t, s)
			for i, op := range ops {
				want := error(nil)
				if i == 3 {
					want = own
				}
				if err := <-op.done; !errors.Is(err, want) {
					t.Errorf("operation %d: %v, want %v", i, err, want)
				}
			}
			for _, key := range []string{"0", "1", "2", "4"} {
				if get(t, s, key) == nil {
					t.Errorf("%s is not there", key)
				}
			}
			if get(t, s, "bad") != nil {
				t.Error("what the failed operation wrote is there")
			}
		})
	}
}

func TestReadingAloneCostsNoCommit(t *testing.T) {
	t.Parallel()
	var seen batches
	r := run(t, openStore(t, Options{OnCommit: seen.onCommit}))
	if err := r.do(Urgent, newOp(func(tx *Tx) error { tx.Get(testBucket, []byte("k")); return nil })); err != nil {
		t.Fatal(err)
	}
	if got := seen.all(); len(got) != 0 {
		t.Errorf("commits: %v, want none", got)
	}
}

func TestBeforeCommitSeesTheWholeBatch(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	type sumKey struct{}
	var ops []*funcOp
	for i := range 4 {
		op := newOp(func(tx *Tx) error {
			sum, ok := tx.Value(sumKey{}).(*int)
			if !ok {
				sum = new(int)
				tx.SetValue(sumKey{}, sum)
				tx.BeforeCommit(func() error { return tx.Put(testBucket, []byte("sum"), fmt.Append(nil, *sum)) })
			}
			*sum += i
			return tx.Put(testBucket, fmt.Append(nil, i), []byte("v"))
		})
		if err := s.Submit(op, Urgent); err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	run(t, s)
	for _, op := range ops {
		if err := <-op.done; err != nil {
			t.Fatal(err)
		}
	}
	if got := get(t, s, "sum"); !bytes.Equal(got, []byte("6")) {
		t.Errorf("sum is %q, want 6", got)
	}
}

func TestStopCommitsWhatWaits(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	var ops []*funcOp
	for i := range 2*maxLazy + 5 {
		op := putOp(fmt.Sprint(i), "v")
		if err := s.Submit(op, Persistent); err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for i, op := range ops {
		if err := <-op.done; err != nil {
			t.Fatal(err)
		}
		if get(t, s, fmt.Sprint(i)) == nil {
			t.Fatalf("%d is not there", i)
		}
	}
	if err := s.Submit(putOp("late", "v"), Urgent); !errors.Is(err, ErrClosed) {
		t.Errorf("after Run: %v, want ErrClosed", err)
	}
}

// TestLongFreelistIsLeftToClose pins both ways of keeping the list of free pages, and that Close writes it.
func TestLongFreelistIsLeftToClose(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s := openStore(t, Options{Folder: folder})
	r := run(t, s)
	big := make([]byte, (maxSyncedFree+100)*4096)
	for _, op := range []*funcOp{
		putOp("big", string(big)),
		newOp(func(tx *Tx) error { return tx.Delete(testBucket, []byte("big")) }),
		putOp("k", "1"), putOp("k", "2"),
	} {
		if err := r.do(Urgent, op); err != nil {
			t.Fatal(err)
		}
	}
	freelist := func() uint64 {
		t.Helper()
		data, err := os.ReadFile(s.Path())
		if err != nil {
			t.Fatal(err)
		}
		meta, err := readMeta(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		return meta.freelist
	}
	if got := freelist(); got != noFreelist {
		t.Errorf("a list of %d pages is written with every commit", s.db.Stats().FreePageN)
	}
	// What a crash now leaves behind opens all the same.
	crashed := t.TempDir()
	copyFile(t, s.Path(), crashed)
	c := openStore(t, Options{Folder: crashed})
	if got := get(t, c, "k"); string(got) != "2" {
		t.Errorf("after a crash k is %q, want 2", got)
	}
	if c.db.Stats().FreePageN < maxSyncedFree {
		t.Errorf("after a crash %d pages are free", c.db.Stats().FreePageN)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := freelist(); got == noFreelist {
		t.Error("closing does not write the list")
	}
}
