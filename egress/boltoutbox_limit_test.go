package egress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestOutboxFull fills a store to its limit: new events are refused, what was accepted is settled, repeats are answered,
// and there is room again once bodies are gone.
func TestOutboxFull(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 4<<20, func(c *BoltOutboxConfig) { c.EndpointBytes = 1 << 40 })
	body := strings.Repeat("x", 10_000)
	var ids []DeliveryID
	for i := 0; ; i++ {
		if i == 10_000 {
			t.Fatal("the store never fills")
		}
		before := b.commits.Load()
		r, err := b.Accept(t.Context(), boltEvent(fmt.Sprint(i), body), []Target{{Endpoint: "a"}})
		if errors.Is(err, ErrFull) {
			if b.commits.Load() != before {
				t.Error("something was written for what was refused")
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.Deliveries[0].ID)
	}
	used, limit := b.store.Usage()
	if float64(used) < 0.9*float64(limit) || used > limit {
		t.Errorf("full with %d of %d bytes in use", used, limit)
	}
	if r := b.mustAccept(t, boltEvent("0", body), "a"); !r.Repeat {
		t.Error("a repeat is taken as new")
	}
	for i, id := range ids {
		state := StateDelivered
		if i%4 == 0 {
			state = StateWaiting
		}
		b.mustSettle(t, boltSettlement(Delivery{ID: id}, state))
	}
	b.mustAccept(t, boltEvent("new", body), "a")
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestRoomOfDeliveredBodiesIsUsedAgain: many times what the store holds goes through it.
func TestRoomOfDeliveredBodiesIsUsedAgain(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	b := openBoltOutbox(t, t.TempDir(), limit, nil)
	body := strings.Repeat("x", 100_000)
	for i := 0; i*len(body) < 5*limit; i++ {
		r := b.mustAccept(t, boltEvent("", body), "a")
		b.mustSettle(t, boltSettlement(Delivery{ID: r.Deliveries[0].ID}, StateDelivered))
	}
	info, err := os.Stat(b.store.Path())
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > limit {
		t.Errorf("the file has grown to %d bytes, beyond its limit of %d", info.Size(), limit)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestBatchDoesNotRunOverTheLimit: the room is counted within a batch too, whose bodies can be many and big.
func TestBatchDoesNotRunOverTheLimit(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoltOutbox(t, folder, 2<<20, func(c *BoltOutboxConfig) { c.EndpointBytes = 1 << 40 })
		entered, goOn := b.faults.Hold()
		go func() { _ = b.SetHealth(context.Background(), "a", Health{}) }()
		<-entered
		var wg sync.WaitGroup
		var taken, refused atomic.Int64
		body := strings.Repeat("x", 100_000)
		for range 100 { // ten megabytes in one batch
			wg.Go(func() {
				switch _, err := b.Accept(context.Background(), boltEvent("", body), []Target{{Endpoint: "a"}}); {
				case errors.Is(err, ErrFull):
					refused.Add(1)
				case err != nil:
					t.Errorf("accept: %v", err)
				default:
					taken.Add(1)
				}
			})
		}
		synctest.Wait()
		goOn()
		wg.Wait()
		if used, limit := b.store.Usage(); used > limit || taken.Load() < 10 || refused.Load() < 70 {
			t.Errorf("%d taken, %d refused, %d of %d bytes in use", taken.Load(), refused.Load(), used, limit)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestEndpointBytes: an endpoint is bounded by the bytes that wait at it, too, and only it.
func TestEndpointBytes(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 0, func(c *BoltOutboxConfig) { c.EndpointBytes = 1000 })
	for i, want := range []bool{false, false, false, true} { // 400, 800 and, not at its bound before, 1200 bytes
		r := b.mustAccept(t, boltEvent("", strings.Repeat("x", 400)), "a", "b")
		if r.Deliveries[0].Full != want || r.Deliveries[1].Full != want {
			t.Errorf("event %d: %+v, want full %v", i, r.Deliveries, want)
		}
	}
	if r := b.mustAccept(t, boltEvent("", "x"), "c"); r.Deliveries[0].Full {
		t.Error("c is full")
	}
	b.mustSettle(t, boltSettlement(b.due(t, "a")[0], StateDelivered))
	if r := b.mustAccept(t, boltEvent("", "x"), "a", "b"); r.Deliveries[0].Full || !r.Deliveries[1].Full {
		t.Errorf("after one was delivered to a: %+v", r.Deliveries)
	}
	for _, d := range b.due(t, "b") {
		b.mustSettle(t, boltSettlement(d, StateDead))
	}
	if full := b.FullEndpoints(); !slices.Equal(full, []string{"b"}) {
		t.Errorf("full are %q, want b alone: its dead letters keep their bodies", full)
	}
	if r := b.mustAccept(t, boltEvent("", "x"), "a", "b"); r.Deliveries[0].Full || !r.Deliveries[1].Full {
		t.Errorf("after all for b are dead: %+v", r.Deliveries)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestEndpointDeliveriesWithinABatch: the bound holds for posts that come together.
func TestEndpointDeliveriesWithinABatch(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 0, func(c *BoltOutboxConfig) { c.EndpointDeliveries = 10 })
	var wg sync.WaitGroup
	var full atomic.Int64
	for range 50 {
		wg.Go(func() {
			r, err := b.Accept(context.Background(), boltEvent("", "x"), []Target{{Endpoint: "a"}})
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}
			if r.Deliveries[0].Full {
				full.Add(1)
			}
		})
	}
	wg.Wait()
	if got := len(b.due(t, "a")); got != 10 || full.Load() != 40 {
		t.Errorf("%d wait and %d were refused, want 10 and 40", got, full.Load())
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}
