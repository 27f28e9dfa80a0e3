package extauthz

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

func TestDuplicateOfADoneIDCostsNoCommit(t *testing.T) {
	t.Parallel()
	b := openBolt(t, t.TempDir(), 0)
	b.mustFinish(t, boltRequest("a"))
	before := b.commits.Load()
	for range 100 {
		b.mustClaim(t, boltRequest("a"), Duplicate)
	}
	if err := b.end(); err != nil {
		t.Fatal(err)
	}
	if b.commits.Load() != before {
		t.Errorf("%d commits for duplicates, want none", b.commits.Load()-before)
	}
}

func TestLastSeenIsKeptCoarselyAndLazily(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBolt(t, folder, 0)
		start := time.Now()
		b.mustFinish(t, boltRequest("a"))
		last := func() time.Time {
			t.Helper()
			r, err := b.Get(boltRequest("a").Key)
			if err != nil {
				t.Fatal(err)
			}
			return r.Last
		}
		time.Sleep(maxTouchAge - time.Second)
		b.mustClaim(t, boltRequest("a"), Duplicate)
		time.Sleep(time.Second)
		if got := last(); !got.Equal(start.UTC()) {
			t.Errorf("seen within the hour, last seen is %v, want the first time still", got)
		}
		before := b.commits.Load()
		for range 100 {
			b.mustClaim(t, boltRequest("a"), Duplicate)
		}
		seen := time.Now().UTC()
		time.Sleep(time.Second)
		if got := last(); !got.Equal(seen) {
			t.Errorf("last seen is %v, want %v", got, seen)
		}
		if got := b.commits.Load() - before; got != 1 {
			t.Errorf("%d commits for a hundred duplicates, want 1", got)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestClaimCancelledAtEachStep: no step leaves a claim behind, nor lets one pass.
func TestClaimCancelledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// at is called with the claim on its way, at a moment of its own, and cancels it.
		hold func(b *boltBench, start func(), cancel func())
	}{
		{"waiting for another commit", func(b *boltBench, start, cancel func()) {
			entered, goOn := b.faults.Hold()
			go func() { _, _ = b.Claim(context.Background(), boltRequest("other")) }()
			<-entered
			start()
			cancel()
			goOn()
		}},
		{"in its own commit", func(b *boltBench, start, cancel func()) {
			entered, goOn := b.faults.Hold()
			start()
			<-entered
			cancel()
			goOn()
		}},
		{"in its own commit, which fails", func(b *boltBench, start, cancel func()) {
			b.faults.Next(storetest.Fault{Err: storetest.DiskFull})
			entered, goOn := b.faults.Hold()
			start()
			<-entered
			cancel()
			goOn()
		}},
		{"in its own commit, which fails and is written", func(b *boltBench, start, cancel func()) {
			b.faults.Next(storetest.Fault{Err: storetest.DiskFull, Written: true})
			entered, goOn := b.faults.Hold()
			start()
			<-entered
			cancel()
			goOn()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := openBolt(t, folder, 0)
				ctx, cancel := context.WithCancel(context.Background())
				answer := make(chan error, 1)
				tt.hold(b, func() {
					go func() {
						c, err := b.Claim(ctx, boltRequest("a"))
						if c.Outcome != 0 {
							err = fmt.Errorf("outcome %d", c.Outcome)
						}
						answer <- err
					}()
					synctest.Wait()
				}, func() {
					cancel()
					synctest.Wait()
				})
				if err := <-answer; !errors.Is(err, context.Canceled) {
					t.Errorf("claim: %v, want context.Canceled", err)
				}
				time.Sleep(time.Second) // the release rides with no other commit
				b.mustClaim(t, boltRequest("a"), Claimed)
				if err := b.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestInboxFaults fails the commit of a claim, and of its end, in each way.
func TestInboxFaults(t *testing.T) {
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
		fatal := fault.f.Err == storetest.SyncFailed
		t.Run("claim: "+fault.name, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := openBolt(t, folder, 0)
				b.faults.Next(fault.f)
				if c, err := b.Claim(context.Background(), boltRequest("a")); !errors.Is(err, ErrUnavailable) || c.Outcome != 0 {
					t.Errorf("got %v, %v, want ErrUnavailable", c, err)
				}
				if fatal {
					if _, err := b.Claim(context.Background(), boltRequest("b")); !errors.Is(err, ErrUnavailable) {
						t.Errorf("after a failed sync: %v, want ErrUnavailable", err)
					}
					if err := b.end(); !store.Fatal(err) {
						t.Errorf("run: %v, want a fatal error", err)
					}
					b = openBolt(t, folder, 0)
					time.Sleep(benchLease) // what was written by the commit that failed nobody holds
				}
				time.Sleep(time.Second)
				b.mustClaim(t, boltRequest("a"), Claimed)
				if err := b.end(); err != nil {
					t.Error(err)
				}
			})
		})
		for _, wait := range []bool{true, false} {
			t.Run(fmt.Sprintf("done, waiting %v: %s", wait, fault.name), func(t *testing.T) {
				folder := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					b := openBolt(t, folder, 0)
					c := b.mustClaim(t, boltRequest("a"), Claimed)
					b.faults.Next(fault.f)
					err := b.Settle(context.Background(), boltRequest("a").Key, c.Token, EndDone, wait)
					if wait && !errors.Is(err, ErrUnavailable) || !wait && err != nil {
						t.Errorf("settle: %v", err)
					}
					time.Sleep(5 * time.Second) // it is tried again by itself
					err = b.end()
					if store.Fatal(err) != fatal {
						t.Errorf("run: %v", err)
					}
					b = openBolt(t, folder, 0)
					want := Duplicate
					if fatal && !fault.f.Written {
						want = InFlight // not acknowledged, not lost: the lease decides
					}
					b.mustClaim(t, boltRequest("a"), want)
					if err := b.end(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestFull fills a store to its limit: new ids are refused, what was accepted is settled, and known ids are answered.
func TestFull(t *testing.T) {
	t.Parallel()
	b := openBolt(t, t.TempDir(), store.MinLimit)
	b.mustFinish(t, boltRequest("done"))
	var open []ClaimRequest
	var tokens []Token
	for i := 0; ; i++ {
		if i == 100_000 {
			t.Fatal("the store never fills")
		}
		r := boltRequest(fmt.Sprintf("%d-%s", i, strings.Repeat("x", 200)))
		c, err := b.Claim(context.Background(), r)
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		open, tokens = append(open, r), append(tokens, c.Token)
	}
	used, limit := b.store.Usage()
	if float64(used) < 0.95*float64(limit) || used > limit {
		t.Errorf("full with %d of %d bytes in use", used, limit)
	}
	for i, r := range open {
		end := EndDone
		if i%2 == 0 {
			end = EndReleased
		}
		if err := b.Settle(context.Background(), r.Key, tokens[i], end, false); err != nil {
			t.Fatalf("settle while full: %v", err)
		}
	}
	// Settled once more, to wait for all before it.
	if err := b.Settle(context.Background(), open[1].Key, tokens[1], EndDone, true); err != nil {
		t.Fatal(err)
	}
	b.mustClaim(t, boltRequest("done"), Duplicate)
	b.mustClaim(t, open[1], Duplicate)
	if _, err := b.Claim(context.Background(), boltRequest("room again")); err != nil {
		// Pages that were given up are free a commit later.
		if _, err = b.Claim(context.Background(), boltRequest("room again")); err != nil {
			t.Errorf("after half was released: %v", err)
		}
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestClockJumpAcrossRestart: after a restart the wall clock decides on a lease, within one lease from then.
func TestClockJumpAcrossRestart(t *testing.T) {
	t.Parallel()
	opened := time.Now()
	b := &BoltInbox{opened: opened, epoch: 2}
	for _, tt := range []struct {
		name  string
		start time.Duration // the lease's start on the wall clock, against now
		want  time.Duration
	}{
		{"began a third of a lease ago", -benchLease / 3, benchLease * 2 / 3},
		{"ended long ago", -time.Hour, 0},
		{"clock an hour back: began in the future", time.Hour, benchLease},
		{"clock an hour ahead: ended", -time.Hour - time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := row{Start: opened.Add(tt.start).UnixMilli(), Lease: benchLease, Epoch: 1, Mono: 99}
			got := max(0, b.remaining(&r))
			if diff := got - tt.want; diff > time.Millisecond || diff < -time.Second {
				t.Errorf("%v left, want %v", got, tt.want)
			}
		})
	}
	t.Run("in the process that made it no clock counts", func(t *testing.T) {
		r := row{Start: opened.Add(-time.Hour).UnixMilli(), Lease: benchLease, Epoch: 2, Mono: b.mono()}
		if got := b.remaining(&r); got < benchLease-time.Second {
			t.Errorf("%v left, want %v", got, benchLease)
		}
	})
}

func TestNewBoltInboxNeedsAStoppedStore(t *testing.T) {
	t.Parallel()
	if _, err := NewBoltInbox(BoltInboxConfig{}); err == nil {
		t.Error("made without a store")
	}
	b := openBolt(t, t.TempDir(), 0)
	b.mustFinish(t, boltRequest("a"))
	if _, err := NewBoltInbox(BoltInboxConfig{Store: b.store}); err == nil {
		t.Error("made on a running store")
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestStartOnAFullDisk: a start that cannot be noted has an epoch of its own all the same, by which its claims are told
// from those of the starts before and after it.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	seen := make(map[uint64]string)
	for _, name := range []string{"with room", "full", "full once more", "with room again", "and again"} {
		faults := new(storetest.Faults)
		s, err := store.Open(t.Context(), store.Options{Folder: folder, Commit: faults.Commit})
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "full") {
			faults.Next(storetest.Fault{Err: storetest.DiskFull})
		}
		b, err := NewBoltInbox(BoltInboxConfig{Store: s})
		if err != nil {
			t.Fatalf("start %s: %v", name, err)
		}
		if before, ok := seen[b.epoch]; ok {
			t.Errorf("start %s has the epoch %d of start %s", name, b.epoch, before)
		}
		seen[b.epoch] = name
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
