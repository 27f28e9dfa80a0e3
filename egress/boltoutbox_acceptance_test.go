package egress

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

var claimBucket = []byte("claims")

// claimOp is an operation of somebody else's that writes an event with a row of its own.
type claimOp struct {
	a    *Acceptance
	full bool
	done chan error
}

func (o *claimOp) Apply(tx *store.Tx) error {
	o.full = false
	err := o.a.Put(tx)
	if o.full = errors.Is(err, ErrFull); o.full {
		return nil
	}
	if err != nil {
		return err
	}
	return tx.Put(claimBucket, appendDeliveryKey(nil, o.a.ID(0)), nothing)
}

func (o *claimOp) Done(err error) {
	o.a.Done(err)
	o.done <- err
}

// openTwoOutboxes opens an outbox in the default space, and one in StoredSpace of the same store.
func openTwoOutboxes(t testing.TB, folder string, change func(*BoltOutboxConfig)) (first *boltBench, stored *BoltOutbox, heard *boltChanges) {
	t.Helper()
	heard = new(boltChanges)
	first = openBoltOutbox(t, folder, 0, func(c *BoltOutboxConfig) {
		err := c.Store.Setup(func(tx *store.Tx) error { return tx.CreateBucket(claimBucket) })
		if err != nil {
			t.Fatal(err)
		}
		cfg := BoltOutboxConfig{Store: c.Store, Space: StoredSpace}
		if change != nil {
			change(&cfg)
		}
		if stored, err = NewBoltOutbox(cfg); err != nil {
			t.Fatal(err)
		}
		stored.SetChanges(heard)
	})
	if err := stored.SetEndpoints(context.Background(), []string{"payments"}); err != nil {
		t.Fatal(err)
	}
	return first, stored, heard
}

// endTwo ends both, and checks the file whole.
func endTwo(t testing.TB, first *boltBench) {
	t.Helper()
	if err := first.end(); err != nil {
		t.Error(err)
	}
	storetest.CheckFile(t, first.store.Path(), store.AllRows(new(RowCheck), store.RowsIn(StoredSpace, new(RowCheck))))
}

// claim writes an event for payments as an operation of the default space does.
func claim(t testing.TB, s *store.Store, stored *BoltOutbox, id string) (*claimOp, error) {
	t.Helper()
	e := boltEvent(id, "body of "+id)
	e.Unindexed = true
	a, err := stored.Prepare(e, []Target{{Endpoint: "payments"}})
	if err != nil {
		t.Fatal(err)
	}
	op := &claimOp{a: a, done: make(chan error, 1)}
	if err := s.Submit(op, store.Urgent); err != nil {
		t.Fatal(err)
	}
	return op, <-op.done
}

func claims(t testing.TB, s *store.Store) (n int) {
	t.Helper()
	if err := s.View(func(tx *store.Tx) error {
		c := tx.Cursor(claimBucket)
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func dueOf(t testing.TB, b *BoltOutbox, endpoint string) []Delivery {
	t.Helper()
	return (&boltBench{BoltOutbox: b}).due(t, endpoint)
}

// TestTwoOutboxesOfOneStore: neither sees, counts or hears of what is the other's, though both write in the same commits.
func TestTwoOutboxesOfOneStore(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	first, stored, heard := openTwoOutboxes(t, folder, nil)
	for i := range 20 {
		first.mustAccept(t, boltEvent("", "out"), "a", "b")
		if _, err := claim(t, first.store, stored, "x"); err != nil { // always the same id, and no repeat
			t.Fatal(err)
		}
		if i == 10 {
			first.mustSettle(t, boltSettlement(first.due(t, "a")[0], StateDelivered))
		}
	}
	d := dueOf(t, stored, "payments")[3]
	if err := (&boltBench{BoltOutbox: stored}).settle(boltSettlement(d, StateDead)); err != nil {
		t.Fatal(err)
	}
	if got, want := first.totalsText(), []string{"a 1 19/57", "a 3 1/3", "b 1 20/60"}; !slices.Equal(got, want) {
		t.Errorf("totals of the first %v, want %v", got, want)
	}
	both := &boltBench{BoltOutbox: stored}
	if got, want := both.totalsText(), []string{"payments 1 19/171", "payments 4 1/9"}; !slices.Equal(got, want) {
		t.Errorf("totals of the second %v, want %v", got, want)
	}
	if accepted, _ := first.heard.take(); len(accepted) != 40 {
		t.Errorf("the first heard of %d deliveries, want 40", len(accepted))
	}
	if accepted, _ := heard.take(); len(accepted) != 20 || accepted[0].Endpoint != "payments" {
		t.Errorf("the second heard of %d deliveries, want 20", len(accepted))
	}
	if n := claims(t, first.store); n != 20 {
		t.Errorf("%d claims, want 20", n)
	}
	e, err := stored.Load(d.ID)
	if err != nil || string(e.Body) != "body of x" || e.ID != "x" {
		t.Errorf("load: %+v, %v", e, err)
	}
	endTwo(t, first)
}

// TestPutWhereThereIsNoRoom: an event that finds no room is not written, not by half, and the operation that brings it
// goes on.
func TestPutWhereThereIsNoRoom(t *testing.T) {
	t.Parallel()
	first, stored, heard := openTwoOutboxes(t, t.TempDir(), func(c *BoltOutboxConfig) { c.EndpointDeliveries = 2 })
	for i, want := range []bool{false, false, true, true} {
		op, err := claim(t, first.store, stored, "x")
		if err != nil || op.full != want {
			t.Errorf("event %d: full %v, %v; want %v", i, op.full, err, want)
		}
	}
	if n := claims(t, first.store); n != 2 {
		t.Errorf("%d claims, want 2", n)
	}
	if accepted, changed := heard.take(); len(accepted) != 2 || len(changed) != 0 {
		t.Errorf("heard of %d accepted, %v changed, want 2 and none", len(accepted), changed)
	}
	endTwo(t, first)
}

// TestPutAgain: what a failed transaction took is put again in the next, and is there once; the claim's row and the event
// are both there, or neither.
func TestPutAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fault storetest.Fault
		want  int // claims after the failed commit
	}{
		{"not written", storetest.Fault{Err: storetest.DiskFull}, 0},
		{"yet written", storetest.Fault{Err: storetest.DiskFull, Written: true}, 1},
	} {
		first, stored, heard := openTwoOutboxes(t, t.TempDir(), nil)
		first.faults.Next(tt.fault)
		op, err := claim(t, first.store, stored, "x")
		if !errors.Is(err, storetest.DiskFull) {
			t.Errorf("%s: %v, want a full disk", tt.name, err)
		}
		if accepted, changed := heard.take(); len(accepted) != 0 || !slices.Equal(changed, []string{"payments"}) {
			t.Errorf("%s: heard of %v accepted, %v changed", tt.name, accepted, changed)
		}
		if got := len(dueOf(t, stored, "payments")); got != tt.want || claims(t, first.store) != tt.want {
			t.Errorf("%s: %d wait and %d claims are there, want %d", tt.name, got, claims(t, first.store), tt.want)
		}
		if tt.want == 0 {
			if err := first.store.Submit(op, store.Urgent); err != nil {
				t.Fatal(err)
			}
			if err := <-op.done; err != nil {
				t.Errorf("%s: again: %v", tt.name, err)
			}
		}
		if got := len(dueOf(t, stored, "payments")); got != 1 || claims(t, first.store) != 1 {
			t.Errorf("%s: in the end %d wait and %d claims are there, want one", tt.name, got, claims(t, first.store))
		}
		endTwo(t, first)
	}
}

// TestPrepareRefuses: an event that might be a repeat, and one for an endpoint that is not there, also where it goes
// between Prepare and Put.
func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	first, stored, _ := openTwoOutboxes(t, t.TempDir(), nil)
	if _, err := stored.Prepare(boltEvent("x", "body"), []Target{{Endpoint: "payments"}}); err == nil {
		t.Error("an event with an id that is indexed was taken")
	}
	if _, err := stored.Prepare(boltEvent("", "body"), []Target{{Endpoint: "a"}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("endpoint of the other outbox: %v, want ErrNotFound", err)
	}
	a, err := stored.Prepare(boltEvent("", "body"), []Target{{Endpoint: "payments"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := stored.SetEndpoints(t.Context(), []string{"other"}); err != nil {
		t.Fatal(err)
	}
	op := &claimOp{a: a, done: make(chan error, 1)}
	if err := first.store.Submit(op, store.Urgent); err != nil {
		t.Fatal(err)
	}
	if err := <-op.done; !errors.Is(err, ErrNotFound) || claims(t, first.store) != 0 {
		t.Errorf("endpoint removed meanwhile: %v and %d claims, want ErrNotFound", err, claims(t, first.store))
	}
	endTwo(t, first)
}

// TestStateIn: whoever holds a delivery's id learns in its own transaction what has become of it.
func TestStateIn(t *testing.T) {
	t.Parallel()
	first, stored, _ := openTwoOutboxes(t, t.TempDir(), nil)
	in := &boltBench{BoltOutbox: stored}
	op, err := claim(t, first.store, stored, "x")
	if err != nil {
		t.Fatal(err)
	}
	state := func(id DeliveryID) (s State, ok bool) {
		if err := first.store.View(func(tx *store.Tx) (err error) {
			s, ok, err = stored.StateIn(tx, id)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return s, ok
	}
	if s, ok := state(op.a.ID(0)); s != StateWaiting || !ok {
		t.Errorf("%s %v, want WAITING", s, ok)
	}
	if err := in.settle(boltSettlement(in.due(t, "payments")[0], StateDelivered)); err != nil {
		t.Fatal(err)
	}
	if s, ok := state(op.a.ID(0)); s != StateDelivered || !ok {
		t.Errorf("%s %v, want DELIVERED", s, ok)
	}
	if s, ok := state(DeliveryID{uint64(time.Now().UnixNano()), 1}); ok {
		t.Errorf("a delivery that is not there is %s", s)
	}
	endTwo(t, first)
}
