package store

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
)

// little is a disk on which there is room for a commit of operations of that size together, and not for a larger one.
type little struct {
	room    int
	sizes   []int // of the operations in the batch at hand
	order   []int // in which those of size 1 were written
	commits int   // good ones
}

// op is an operation of a size, with a number that order notes.
func (l *little) op(size, number int) *funcOp {
	return newOp(func(tx *Tx) error {
		l.sizes = append(l.sizes, size)
		tx.AfterCommit(func() {
			if size == 1 {
				l.order = append(l.order, number)
			}
		})
		return tx.Put(testBucket, []byte{byte(number >> 8), byte(number)}, []byte("v"))
	})
}

func (l *little) commit(tx *bbolt.Tx) error {
	defer func() { l.sizes = nil }()
	sum := 0
	for _, size := range l.sizes {
		sum += size
	}
	if sum > l.room {
		return errors.Join(tx.Rollback(), diskFull)
	}
	l.commits++
	return tx.Commit()
}

// TestLittleRoom: a disk that has room for few operations at a time takes one after the other of many that must be written,
// lazy ones in their order. Those that ask for too much do not keep them from it, however many come, nor are they kept waiting.
func TestLittleRoom(t *testing.T) {
	const many = 500
	for _, tt := range []struct {
		name    string
		room    int
		every   time.Duration // a new operation that is too large comes; 0: none does
		urgency Urgency
		within  time.Duration
	}{
		{"few at a time", 3, 0, Persistent, 20 * time.Second},
		{"one at a time", 1, 0, Persistent, 30 * time.Second},
		{"few at a time beside large ones", 3, time.Millisecond, Persistent, time.Minute},
		{"urgent ones beside large ones", 3, time.Millisecond, UrgentPersistent, time.Minute},
		{"all at once beside large ones", many, time.Millisecond, Persistent, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t, Options{Folder: folder})
				l := &little{room: tt.room}
				s.commit = l.commit
				r := run(t, s)
				start := time.Now()
				var ops []*funcOp
				for i := range many {
					ops = append(ops, l.op(1, i))
					if err := r.Submit(ops[i], tt.urgency); err != nil {
						t.Fatal(err)
					}
				}
				quit, ended := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(ended)
					for n := many; tt.every > 0; n++ {
						select {
						case <-quit:
							return
						case <-time.After(tt.every):
						}
						asked := time.Now()
						if err := r.do(Urgent, l.op(many+1, n)); !errors.Is(err, ErrWrite) {
							t.Errorf("a large one: %v, want ErrWrite", err)
						}
						if took := time.Since(asked); took > 10*time.Millisecond {
							t.Errorf("a large one waited for %v", took)
						}
					}
				}()
				limit := time.After(2 * time.Minute)
				for i, op := range ops {
					select {
					case err := <-op.done:
						if err != nil {
							t.Fatal(err)
						}
					case <-limit:
						t.Fatalf("%d of %d are written after two minutes", i, many)
					}
				}
				if took := time.Since(start); took > tt.within {
					t.Errorf("all are written after %v, want at most %v", took, tt.within)
				}
				close(quit)
				<-ended
				if len(l.order) != many || tt.urgency == Persistent && !slices.IsSorted(l.order) {
					t.Errorf("%d were written, in the order %v", len(l.order), l.order)
				}
				// Once there is room for all they go together again.
				l.room = 1 << 20
				for range 12 {
					if err := r.do(Urgent, l.op(1, many)); err != nil {
						t.Fatal(err)
					}
				}
				ops = ops[:0]
				commits := l.commits
				for range many {
					ops = append(ops, l.op(1, many))
					if err := r.Submit(ops[len(ops)-1], Lazy); err != nil {
						t.Fatal(err)
					}
				}
				for _, op := range ops {
					if err := <-op.done; err != nil {
						t.Fatal(err)
					}
				}
				if n := l.commits - commits; n != 1 {
					t.Errorf("%d commits for %d operations on a disk that has room", n, many)
				}
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
