package extauthz

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

func versionRequest(id, at string) ClaimRequest {
	r := boltRequest(id)
	r.Version = Version{Object: [32]byte{1}, At: at}
	return r
}

// marks counts the objects of which something is known.
func (b *boltBench) marks(t *testing.T) (n int) {
	t.Helper()
	err := b.store.View(func(tx *store.Tx) error {
		c := tx.Cursor(versionBucket)
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A mark is kept for the retention from the last event of its object, and with it nothing is left of the object.
func TestPurgeOfMarks(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openPurge(t, folder, map[string]time.Duration{"payments": 5 * time.Hour})
		b.mustFinish(t, versionRequest("2", "n2"))
		time.Sleep(4 * time.Hour)
		b.mustFinish(t, versionRequest("2 again", "n2"))
		time.Sleep(4 * time.Hour)
		b.mustClaim(t, versionRequest("1", "n1"), Stale)
		held := versionRequest("3", "n3")
		held.OnUnknown = OnUnknownHold
		b.mustClaim(t, held, Claimed)
		time.Sleep(30 * time.Hour)
		if n := b.marks(t); n != 1 {
			t.Errorf("%d objects while a claim is held, want 1", n)
		}
		if err := b.Release(context.Background(), held.Key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Hour)
		if n := b.marks(t); n != 0 {
			t.Errorf("%d objects after the retention, want none", n)
		}
		b.mustClaim(t, versionRequest("1", "n1"), Claimed)
		b.stop()
	})
}

// A claim that the app refused leaves nothing of its object, where it was the first.
func TestReleasedVersionLeavesNothing(t *testing.T) {
	t.Parallel()
	b := openBolt(t, t.TempDir(), 0)
	r := versionRequest("1", "n1")
	c := b.mustClaim(t, r, Claimed)
	if err := b.Settle(t.Context(), r.Key, c.Token, EndReleased, true); err != nil {
		t.Fatal(err)
	}
	if n := b.marks(t); n != 0 {
		t.Errorf("%d objects, want none", n)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestVersionFaults fails the commit of a claim with a version, and of its end, in each way: the mark is where the claim is.
func TestVersionFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name string
		f    storetest.Fault
	}{
		{"disk full", storetest.Fault{Err: storetest.DiskFull}},
		{"disk full, yet written", storetest.Fault{Err: storetest.DiskFull, Written: true}},
		{"sync failed", storetest.Fault{Err: storetest.SyncFailed}},
		{"sync failed, yet written", storetest.Fault{Err: storetest.SyncFailed, Written: true}},
	} {
		fatal := errors.Is(fault.f.Err, storetest.SyncFailed)
		for _, settle := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, settling %v", fault.name, settle), func(t *testing.T) {
				folder := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					b := openBolt(t, folder, 0)
					r := versionRequest("2", "n2")
					if settle {
						c := b.mustClaim(t, r, Claimed)
						b.faults.Next(fault.f)
						if err := b.Settle(context.Background(), r.Key, c.Token, EndDone, true); !errors.Is(err, ErrUnavailable) {
							t.Errorf("settle: %v, want ErrUnavailable", err)
						}
					} else {
						b.faults.Next(fault.f)
						if _, err := b.Claim(context.Background(), r); !errors.Is(err, ErrUnavailable) {
							t.Errorf("claim: %v, want ErrUnavailable", err)
						}
					}
					time.Sleep(5 * time.Second) // what can be mended by itself is
					if err := b.end(); store.Fatal(err) != fatal {
						t.Errorf("run: %v", err)
					}
					b = openBolt(t, folder, 0) // end has checked that marks and claims agree
					time.Sleep(benchLease)
					want := Claimed // no newer one is known to be with the app
					if settle && (!fatal || fault.f.Written) {
						want = Stale
					}
					b.mustClaim(t, versionRequest("1", "n1"), want)
					if err := b.end(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// In STORE a mark moves with the write.
func TestStoredVersion(t *testing.T) {
	t.Parallel()
	b := openBolt(t, t.TempDir(), 0)
	b.keeper = newFakeKeeper()
	stored := func(id, at string) ClaimRequest {
		r := storeRequest(id)
		r.Version = Version{Object: [32]byte{1}, At: at}
		return r
	}
	b.mustClaim(t, stored("2", "n2"), Stored)
	b.mustClaim(t, stored("1", "n1"), Stale)
	b.mustClaim(t, stored("2 again", "n2"), Stored)
	b.mustClaim(t, stored("3", "n3"), Stored)
	b.mustClaim(t, stored("2 late", "n2"), Stale)

	// A claim of the time before STORE that is with the app still.
	b.mustClaim(t, versionRequest("9", "n9"), Claimed)
	b.mustClaim(t, stored("8", "n8"), InFlight)
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

func splitRequest(parts ...ClaimRequest) ClaimRequest {
	r := storeRequest("whole")
	r.Split = parts
	return r
}

// storedPart is the claim of one event of a request, as the gate makes it.
func storedPart(id string) ClaimRequest {
	r := storeRequest(id)
	r.Parts, r.Whole = []string{id}, true
	return r
}

func TestSplit(t *testing.T) {
	t.Parallel()
	b := openBolt(t, t.TempDir(), 0)
	keeper := newFakeKeeper()
	b.keeper = keeper
	before := b.commits.Load()
	b.mustClaim(t, splitRequest(storedPart("a"), storedPart("b"), storedPart("a")), Stored)
	if n := b.commits.Load() - before; n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
	if keeper.last != 2 {
		t.Errorf("%d events are kept, want 2", keeper.last)
	}
	b.mustClaim(t, splitRequest(storedPart("b"), storedPart("c")), Stored)
	if keeper.last != 3 {
		t.Errorf("%d events are kept, want 3", keeper.last)
	}
	before = b.commits.Load()
	b.mustClaim(t, splitRequest(storedPart("c"), storedPart("a")), Duplicate)
	if n := b.commits.Load() - before; n != 0 {
		t.Errorf("%d commits for a duplicate, want none", n)
	}
	ignored := storedPart("d")
	ignored.Ignore = true
	b.mustClaim(t, splitRequest(ignored), Ignored)
	b.mustClaim(t, splitRequest(ignored, storedPart("a")), Duplicate)
	b.mustClaim(t, splitRequest(ignored, storedPart("e")), Stored)
	if _, err := b.Get(Key{Source: "payments", ID: "whole"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("the request itself: %v, want nothing of it", err)
	}

	// What came in PASS, or in a request that was kept as one, is known.
	one := boltRequest("one")
	one.Parts = []string{"p", "q"}
	b.mustFinish(t, one)
	b.mustClaim(t, splitRequest(storedPart("p"), storedPart("q")), Duplicate)
	whole := storeRequest("kept")
	whole.Parts, whole.Whole = []string{"a", "x"}, true
	b.mustClaim(t, whole, Stored)
	b.mustClaim(t, splitRequest(storedPart("x")), Duplicate)
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestSplitIsAllOrNothing: where one event of a request has to wait, none is written, so that the sender's next try finds all.
func TestSplitIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// hinder makes the request's second event undecided.
		hinder func(t *testing.T, b *boltBench, second *ClaimRequest)
		want   Outcome
		err    error
	}{
		{"one is with the app", func(t *testing.T, b *boltBench, _ *ClaimRequest) {
			b.mustClaim(t, boltRequest("b"), Claimed)
		}, InFlight, nil},
		{"a newer one is with the app", func(t *testing.T, b *boltBench, second *ClaimRequest) {
			b.mustClaim(t, versionRequest("newer", "n2"), Claimed)
			second.Version = Version{Object: [32]byte{1}, At: "n1"}
		}, InFlight, nil},
		{"no room", func(_ *testing.T, b *boltBench, _ *ClaimRequest) {
			b.keeper = &fullKeeper{fakeKeeper: newFakeKeeper(), after: 1}
		}, 0, ErrFull},
		{"the commit fails", func(_ *testing.T, b *boltBench, _ *ClaimRequest) {
			b.faults.Next(storetest.Fault{Err: storetest.DiskFull})
		}, 0, ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := openBolt(t, t.TempDir(), 0)
			b.keeper = newFakeKeeper()
			second := storedPart("b")
			tt.hinder(t, b, &second)
			c, err := b.Claim(t.Context(), splitRequest(storedPart("a"), second))
			if c.Outcome != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %+v, %v; want %v, %v", c, err, tt.want, tt.err)
			}
			if r, err := b.Get(Key{Source: "payments", ID: "a"}); !errors.Is(err, ErrNotFound) {
				t.Errorf("the first: %+v, %v; want nothing of it", r, err)
			}
			b.keeper = newFakeKeeper()
			b.mustClaim(t, storedPart("a"), Stored)
			if err := b.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// fullKeeper has room for so many events.
type fullKeeper struct {
	*fakeKeeper
	after int
}

func (k *fullKeeper) Prepare(*StoredEvent) (Keeping, error) {
	return &fullKeeping{fakeKeeping: fakeKeeping{k: k.fakeKeeper}, full: k}, nil
}

type fullKeeping struct {
	fakeKeeping
	full *fullKeeper
}

func (p *fullKeeping) Put(tx *store.Tx) (StoredRef, error) {
	if p.full.after == 0 {
		return StoredRef{}, ErrFull
	}
	p.full.after--
	return p.fakeKeeping.Put(tx)
}
