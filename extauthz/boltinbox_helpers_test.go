package extauthz

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

// boltBench is a BoltInbox on a store that runs.
type boltBench struct {
	*BoltInbox
	store   *store.Store
	faults  *storetest.Faults
	commits *atomic.Int64
	end     func() error
}

// openBolt opens the inbox in folder; when it ends the file is checked whole.
func openBolt(t testing.TB, folder string, limit int64) *boltBench {
	t.Helper()
	b := &boltBench{faults: new(storetest.Faults), commits: new(atomic.Int64)}
	s, err := store.Open(context.Background(), store.Options{
		Folder:   folder,
		Limit:    limit,
		Commit:   b.faults.Commit,
		OnCommit: func(time.Duration, int, error) { b.commits.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.store = s
	if b.BoltInbox, err = NewBoltInbox(BoltInboxConfig{Store: s}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	over := false
	b.end = func() error {
		if over {
			return nil
		}
		over = true
		cancel()
		err := <-ended
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		storetest.CheckFile(t, s.Path(), &RowCheck{})
		return err
	}
	return b
}

const benchLease = time.Minute

func boltRequest(id string) ClaimRequest {
	return ClaimRequest{Key: Key{Source: "payments", ID: id}, Lease: benchLease, OnUnknown: OnUnknownRetry, Type: "invoice.paid"}
}

func (b *boltBench) mustClaim(t testing.TB, r ClaimRequest, want Outcome) Claim {
	t.Helper()
	c, err := b.Claim(context.Background(), r)
	if err != nil {
		t.Fatalf("claim %q: %v", r.Key.ID, err)
	}
	if c.Outcome != want {
		t.Fatalf("claim %q: outcome %d, want %d", r.Key.ID, c.Outcome, want)
	}
	return c
}

func (b *boltBench) mustFinish(t testing.TB, r ClaimRequest) {
	t.Helper()
	c := b.mustClaim(t, r, Claimed)
	if err := b.Settle(context.Background(), r.Key, c.Token, EndDone, true); err != nil {
		t.Fatalf("settle %q: %v", r.Key.ID, err)
	}
}

// bulkOp writes DONE rows, many in one commit.
type bulkOp struct {
	source string
	from   int
	rows   int
	seen   time.Time
	done   chan error
}

func (o *bulkOp) Apply(tx *store.Tx) error {
	for i := range o.rows {
		r := row{State: StateDone, First: o.seen.UnixMilli(), Last: o.seen.UnixMilli(), Type: []byte("invoice.paid")}
		if err := putRow(tx, doneBucket, appendKey(nil, bulkKey(o.source, o.from+i)), &r); err != nil {
			return err
		}
	}
	return nil
}

func (o *bulkOp) Done(err error) { o.done <- err }

// bulkKey has an id of 30 bytes; neighbours in number are far apart in order, as ids of providers are.
func bulkKey(source string, i int) Key {
	const spread = 0x9e3779b97f4a7c15 // odd, so that no two are the same
	return Key{Source: source, ID: fmt.Sprintf("evt_%016x%010d", uint64(i)*spread, i)}
}

// bulkDone writes rows DONE rows of source, last seen at seen.
func bulkDone(t testing.TB, b *boltBench, rows int, source string, seen time.Time) {
	t.Helper()
	const batch = 50_000
	for from := 0; from < rows; from += batch {
		op := &bulkOp{source, from, min(batch, rows-from), seen, make(chan error, 1)}
		if err := b.store.Submit(op, store.Urgent); err != nil {
			t.Fatal(err)
		}
		if err := <-op.done; err != nil {
			t.Fatal(err)
		}
	}
}

// figures is an inbox whose end skips the check of the whole file, which takes a while for ten million rows.
type figures struct {
	*boltBench
	cancel func()
	ended  chan error
}

func openFigures(t testing.TB, folder string) *figures {
	t.Helper()
	s, err := store.Open(context.Background(), store.Options{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBoltInbox(BoltInboxConfig{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &figures{&boltBench{BoltInbox: b, store: s}, cancel, make(chan error, 1)}
	go func() { f.ended <- s.Run(ctx) }()
	return f
}

func (f *figures) close(t testing.TB) {
	t.Helper()
	f.cancel()
	if err := errors.Join(<-f.ended, f.store.Close()); err != nil {
		t.Error(err)
	}
}
