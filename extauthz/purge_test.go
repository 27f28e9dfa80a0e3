package extauthz

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// purgeBench is an inbox with a purger on its way.
type purgeBench struct {
	*boltBench
	purger *Purger
	rows   atomic.Int64 // deleted so far
	wall   atomic.Int64 // nanoseconds by which the purger's wall clock is ahead
	stop   func()
}

// openPurge opens the inbox in folder, with a keeper if one is given, and runs a purger whose wall clock is ahead of the real
// one by what wall says.
func openPurge(t *testing.T, folder string, retention map[string]time.Duration, keeper ...Keeper) *purgeBench {
	t.Helper()
	b := &purgeBench{boltBench: openBolt(t, folder, 0)}
	for _, k := range keeper {
		b.keeper = k
	}
	b.retention = func(source string) (time.Duration, bool) {
		d, ok := retention[source]
		return d, ok
	}
	var err error
	if b.purger, err = NewPurger(PurgerConfig{Inbox: b.BoltInbox, OnPurge: func(rows int) { b.rows.Add(int64(rows)) }}); err != nil {
		t.Fatal(err)
	}
	b.purger.wall = func() time.Time { return time.Now().Add(time.Duration(b.wall.Load())) }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.purger.Run(ctx) }()
	b.stop = func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("purger: %v", err)
		}
		if err := b.end(); err != nil {
			t.Errorf("run: %v", err)
		}
	}
	return b
}

// state returns the state of an id, 0 if it has no row.
func (b *purgeBench) stateOf(t *testing.T, r ClaimRequest) State {
	t.Helper()
	record, err := b.Get(r.Key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	return record.State
}

func TestPurgeByAge(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openPurge(t, folder, map[string]time.Duration{"payments": 10 * time.Hour, "shop": 2 * time.Hour})
		with := func(source, id string, on OnUnknown) ClaimRequest {
			r := boltRequest(id)
			r.Key.Source, r.OnUnknown = source, on
			return r
		}
		done, short := with("payments", "done", OnUnknownRetry), with("shop", "done", OnUnknownRetry)
		seenAgain := with("shop", "seen again", OnUnknownRetry)
		for _, r := range []ClaimRequest{done, short, seenAgain} {
			b.mustFinish(t, r)
		}
		held := with("shop", "held", OnUnknownHold)
		b.mustClaim(t, held, Claimed)
		retry := with("shop", "retry", OnUnknownRetry)
		b.mustClaim(t, retry, Claimed)
		long := with("shop", "long lease", OnUnknownRetry)
		long.Lease = 24 * time.Hour
		b.mustClaim(t, long, Claimed)
		// Sources that are not configured any more have the default retention.
		orphan, oldOrphan := ClaimRequest{Key: bulkKey("gone", 0)}, ClaimRequest{Key: bulkKey("long gone", 0)}
		bulkDone(t, b.boltBench, 1, orphan.Key.Source, time.Now().Add(-DefaultRetention+24*time.Hour))
		bulkDone(t, b.boltBench, 1, oldOrphan.Key.Source, time.Now().Add(-DefaultRetention-2*time.Hour))

		expect := func(when string, want map[*ClaimRequest]State) {
			t.Helper()
			for r, s := range want {
				if got := b.stateOf(t, *r); got != s {
					t.Errorf("%s: %s of %s is %v, want %v", when, r.Key.ID, r.Key.Source, got, s)
				}
			}
		}
		time.Sleep(benchLease + 2*sweepInterval)
		expect("after its lease", map[*ClaimRequest]State{&held: StateUnknown, &retry: StatePending, &long: StatePending})
		time.Sleep(2*time.Hour - 10*time.Minute)
		b.mustClaim(t, seenAgain, Duplicate)
		expect("just before retention", map[*ClaimRequest]State{&short: StateDone, &seenAgain: StateDone, &retry: StatePending})
		// Retention, what "last seen" may be behind, and a pass.
		time.Sleep(40 * time.Minute)
		expect("after two hours and a half", map[*ClaimRequest]State{
			&short: 0, &seenAgain: StateDone, &retry: 0, &held: StateUnknown, &long: StatePending, &done: StateDone,
			&orphan: StateDone, &oldOrphan: 0,
		})
		time.Sleep(9 * time.Hour)
		expect("after eleven hours and a half", map[*ClaimRequest]State{
			&seenAgain: 0, &done: 0, &orphan: StateDone, &held: StateUnknown, &long: StatePending,
		})
		if got := b.rows.Load(); got != 5 {
			t.Errorf("%d rows deleted, want 5", got)
		}
		b.stop()
	})
}

// TestPurgeGoesOverManyRows: more rows than a step reads or changes, content rows among them.
func TestPurgeGoesOverManyRows(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openPurge(t, folder, map[string]time.Duration{"payments": time.Hour})
		now := time.Now()
		bulkDone(t, b.boltBench, 3*stepScan, "payments", now.Add(-2*time.Hour))
		bulkDone(t, b.boltBench, 100, "shop", now)
		r := boltRequest("with content")
		r.ContentHash[0], r.ContentWindow = 1, time.Minute
		b.mustFinish(t, r)
		time.Sleep(time.Hour)
		if got := b.rows.Load(); got != 3*stepScan {
			t.Errorf("%d rows deleted, want %d", got, 3*stepScan)
		}
		left := 0
		err := b.store.View(func(tx *store.Tx) error {
			for k, _ := tx.Cursor(contentBucket).First(); k != nil; k = nil {
				left++
			}
			return nil
		})
		if err != nil || left != 0 {
			t.Errorf("%d content rows are left, %v", left, err)
		}
		b.stop()
	})
}

// TestPurgeDeletesOnlyTheRowThatItRead: between reading and deleting the id was seen again.
func TestPurgeDeletesOnlyTheRowThatItRead(t *testing.T) {
	t.Parallel()
	b := openBolt(t, t.TempDir(), 0)
	old := time.Now().Add(-100 * 24 * time.Hour)
	bulkDone(t, b, 2, "payments", old)
	p, err := NewPurger(PurgerConfig{Inbox: b.BoltInbox})
	if err != nil {
		t.Fatal(err)
	}
	op := &purgeOp{bucket: doneBucket, done: make(chan error, 1)}
	if _, err := p.scan(op, nil, p.judgeDone, false); err != nil || len(op.rows) != 2 {
		t.Fatalf("%d rows to delete, %v", len(op.rows), err)
	}
	touch := &touchOp{b.BoltInbox, appendKey(nil, bulkKey("payments", 0)), time.Now().UnixMilli()}
	b.touching.Add(1)
	if err := errors.Join(b.store.Submit(touch, store.Lazy), b.store.Submit(op, store.Lazy)); err != nil {
		t.Fatal(err)
	}
	if err := <-op.done; err != nil {
		t.Fatal(err)
	}
	for i, want := range []Outcome{Duplicate, Claimed} {
		r := boltRequest("")
		r.Key = bulkKey("payments", i)
		b.mustClaim(t, r, want)
	}
	if op.deleted != 1 {
		t.Errorf("%d rows deleted, want 1", op.deleted)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestPurgeStandsStill lets the wall clock jump under a running purger: a jump ahead would make every id old at once.
func TestPurgeStandsStill(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name string
		jump time.Duration
		// at is when a row that is past retention by the real clock must be there still, and gone.
		still, gone time.Duration
	}{
		{"an hour ahead and a bit", time.Hour + time.Minute, 23 * time.Hour, 26 * time.Hour},
		{"a year ahead", 365 * day, 23 * time.Hour, 26 * time.Hour},
		{"a day back", -day, 23 * time.Hour, 3 * day},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := openPurge(t, folder, map[string]time.Duration{"payments": time.Hour})
				time.Sleep(time.Minute)
				b.wall.Store(int64(tt.jump))
				b.mustFinish(t, boltRequest("a"))
				time.Sleep(tt.still)
				if got := b.stateOf(t, boltRequest("a")); got != StateDone {
					t.Errorf("after %v the row is %v, want DONE", tt.still, got)
				}
				if b.purger.StandsStill() == "" {
					t.Error("the purger does not say that it stands still")
				}
				time.Sleep(tt.gone - tt.still)
				if got := b.stateOf(t, boltRequest("a")); got != 0 {
					t.Errorf("after %v the row is %v, want none", tt.gone, got)
				}
				if why := b.purger.StandsStill(); why != "" {
					t.Errorf("still standing still: %s", why)
				}
				b.stop()
			})
		})
	}
}

// TestPurgeAfterAnUnlikelyStart: the store's newest time is ahead of the clock, or long behind it.
func TestPurgeAfterAnUnlikelyStart(t *testing.T) {
	for _, tt := range []struct {
		name      string
		newest    time.Duration // against the start
		old       time.Duration // the age of a row that is past retention
		wantStill bool
	}{
		{"ahead of the clock", 2 * time.Second, 3 * time.Hour, true},
		{"more than retention behind", -3 * time.Hour, 3 * time.Hour, true},
		{"an hour behind, retention two", -time.Hour, 3 * time.Hour, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := openBolt(t, folder, 0)
				now := time.Now()
				bulkDone(t, b, 1, "payments", now.Add(-tt.old))
				bulkDone(t, b, 1, "other", now.Add(tt.newest))
				if err := b.end(); err != nil {
					t.Fatal(err)
				}
				p := openPurge(t, folder, map[string]time.Duration{"payments": 2 * time.Hour})
				r := boltRequest("")
				r.Key = bulkKey("payments", 0)
				time.Sleep(50 * time.Minute)
				if got := p.stateOf(t, r) != 0; got != tt.wantStill {
					t.Errorf("within the first hour the row is there: %v, want %v", got, tt.wantStill)
				}
				time.Sleep(time.Hour)
				if got := p.stateOf(t, r); got != 0 {
					t.Errorf("after the first hour the row is %v, want none", got)
				}
				p.stop()
			})
		})
	}
}
