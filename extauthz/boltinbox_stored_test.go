package extauthz

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// fakeKeeper numbers the events that it keeps, and has some of them open.
type fakeKeeper struct {
	mu   sync.Mutex
	last uint64
	open map[StoredRef]bool
	// looks are how often a purger has found out whether an event is open; the first time, opens become open after it.
	looks int
	opens []StoredRef
}

func newFakeKeeper() *fakeKeeper {
	return &fakeKeeper{open: make(map[StoredRef]bool)}
}

func (k *fakeKeeper) Prepare(*StoredEvent) (Keeping, error) { return &fakeKeeping{k: k}, nil }

func (k *fakeKeeper) Open(_ *store.Tx, ref StoredRef) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	open := k.open[ref]
	if k.looks++; k.looks == 1 {
		for _, ref := range k.opens {
			k.open[ref] = true
		}
	}
	return open, nil
}

// opensAfterLook has an event that is not open become it after the next look of a purger, the first of all.
func (k *fakeKeeper) opensAfterLook(ref StoredRef) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[ref], k.opens, k.looks = false, []StoredRef{ref}, 0
}

func (k *fakeKeeper) looked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.looks
}

func (k *fakeKeeper) set(ref StoredRef, open bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[ref] = open
}

type fakeKeeping struct {
	k   *fakeKeeper
	ref StoredRef
}

func (p *fakeKeeping) Put(*store.Tx) (StoredRef, error) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	p.k.last++
	binary.BigEndian.PutUint64(p.ref[:], p.k.last)
	return p.ref, nil
}

func (p *fakeKeeping) Done(err error) {
	if err == nil {
		p.k.set(p.ref, true)
	}
}

func storeRequest(id string) ClaimRequest {
	r := boltRequest(id)
	r.Store = &StoredEvent{Key: r.Key, Type: r.Type, Shown: id, Method: "POST", Target: "/in", Body: []byte("{}"), Received: time.Now()}
	return r
}

func (b *boltBench) refOf(t *testing.T, key Key) StoredRef {
	t.Helper()
	r, err := b.Get(key)
	if err != nil || r.State != StateStored {
		t.Fatalf("%s is %s, %v; want STORED", key.ID, r.State, err)
	}
	return r.Ref
}

// An id is not forgotten while its event may still reach the app, however old it is: a sender that comes again would have it
// delivered twice.
func TestPurgeKeepsWhatIsStillForTheApp(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		keeper := newFakeKeeper()
		b := openPurge(t, folder, map[string]time.Duration{"payments": 2 * time.Hour}, keeper)
		waits, taken := storeRequest("waits"), storeRequest("taken")
		b.mustClaim(t, waits, Stored)
		b.mustClaim(t, taken, Stored)
		keeper.set(b.refOf(t, taken.Key), false)
		time.Sleep(10 * time.Hour)
		if got, want := [2]State{b.stateOf(t, waits), b.stateOf(t, taken)}, [2]State{StateStored, 0}; got != want {
			t.Errorf("after the retention: %v, want %v", got, want)
		}
		b.mustClaim(t, waits, Duplicate)
		keeper.set(b.refOf(t, waits.Key), false)
		time.Sleep(10 * time.Hour)
		if got := b.stateOf(t, waits); got != 0 {
			t.Errorf("once the app has it: %s, want no row", got)
		}
		b.stop()
	})
}

// An event that a person redelivers between the purger's look and its deletion keeps its id: the row has not changed, and only
// the transaction that deletes can tell.
func TestPurgeMeetsARedelivery(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		keeper := newFakeKeeper()
		b := openPurge(t, folder, map[string]time.Duration{"payments": 2 * time.Hour}, keeper)
		r := storeRequest("redelivered")
		b.mustClaim(t, r, Stored)
		ref := b.refOf(t, r.Key)
		keeper.opensAfterLook(ref)
		time.Sleep(10 * time.Hour)
		if got, looks := b.stateOf(t, r), keeper.looked(); got != StateStored || looks < 2 {
			t.Errorf("%s after %d looks, want STORED, and at least 2", got, looks)
		}
		if n := b.rows.Load(); n != 0 {
			t.Errorf("%d rows are told as purged, want none", n)
		}
		b.stop()
	})
}

func TestDiscard(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBolt(t, folder, 0)
		b.keeper = newFakeKeeper()
		held := boltRequest("held")
		held.OnUnknown = OnUnknownHold
		open := boltRequest("open")
		open.OnUnknown, open.Lease = OnUnknownHold, time.Hour
		retry := boltRequest("retry") // nobody waits for it: its next delivery passes
		claim := b.mustClaim(t, held, Claimed)
		b.mustClaim(t, open, Claimed)
		b.mustClaim(t, retry, Claimed)
		b.mustFinish(t, boltRequest("done"))
		b.mustClaim(t, storeRequest("stored"), Stored)
		time.Sleep(benchLease + time.Second)
		for _, tt := range []struct {
			id   string
			err  error
			text string
			now  State
		}{
			{"held", nil, "", StateDiscarded},
			{"held", ErrState, "it is DISCARDED", StateDiscarded},
			{"open", ErrState, "it is PENDING", StatePending},
			{"retry", ErrState, "it is PENDING", StatePending},
			{"done", ErrState, "it is DONE", StateDone},
			{"stored", ErrState, "it is STORED", StateStored},
			{"nobody", ErrNotFound, "", 0},
		} {
			key := boltRequest(tt.id).Key
			err := b.Discard(context.Background(), key)
			if !errors.Is(err, tt.err) || err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("discard %s: %v, want %v %s", tt.id, err, tt.err, tt.text)
			}
			if r, _ := b.Get(key); r.State != tt.now {
				t.Errorf("%s is %s now, want %s", tt.id, r.State, tt.now)
			}
		}
		b.mustClaim(t, held, Duplicate)
		// A person has decided: what the app says afterwards changes nothing.
		if err := b.Settle(context.Background(), held.Key, claim.Token, EndDone, true); err != nil {
			t.Error(err)
		}
		if r, _ := b.Get(held.Key); r.State != StateDiscarded {
			t.Errorf("a late success makes it %s", r.State)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// The next delivery of what was released is new, whatever became of it before.
func TestReleaseOfWhatWasForTheApp(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBolt(t, folder, 0)
		b.keeper = newFakeKeeper()
		stored, held := storeRequest("stored"), boltRequest("held")
		held.OnUnknown = OnUnknownHold
		b.mustClaim(t, stored, Stored)
		b.mustClaim(t, held, Claimed)
		time.Sleep(benchLease + time.Second)
		if err := b.Discard(context.Background(), held.Key); err != nil {
			t.Fatal(err)
		}
		for _, r := range []ClaimRequest{stored, held} {
			b.mustClaim(t, r, Duplicate)
			if err := b.Release(context.Background(), r.Key); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Get(r.Key); !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %v, want no row", r.Key.ID, err)
			}
		}
		b.mustClaim(t, stored, Stored)
		b.mustClaim(t, held, Claimed)
		if ref := b.refOf(t, stored.Key); ref[7] != 2 {
			t.Errorf("the second event is kept as %x, want number 2", ref)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}
