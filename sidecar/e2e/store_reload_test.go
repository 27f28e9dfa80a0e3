package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A changed delivery holds from the next attempt: events that wait go to the new address, and nobody gets one twice.
func TestStoreReloadWhileDelivering(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: standardIn("rate: 50/s")})
	var mu sync.Mutex
	taken := map[string]int{}
	moved := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		taken[r.Header.Get("X-Sidehook-Event-Id")]++
	}))
	t.Cleanup(moved.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stored sync.Map
	var count atomic.Int64
	var senders sync.WaitGroup
	for sender := range 4 {
		senders.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("msg_%d_%d", sender, i)
				got, err := send(t.Context(), client, x.url, contact(t, id))
				if err != nil || !got.is(http.StatusOK, "stored") {
					t.Errorf("%s got %v, %v", id, got, err)
					return
				}
				stored.Store(id, true)
				count.Add(1)
			}
		})
	}
	eventually(t, "the app gets events", func() bool { return len(x.app.all()) > 10 })
	x.reload(strings.ReplaceAll(standardIn("rate: 50/s, max_in_flight: 2"), "http://APP", moved.URL))
	at := func() int { mu.Lock(); defer mu.Unlock(); return len(taken) }
	eventually(t, "the new address gets events", func() bool { return at() > 10 })
	x.reload(strings.ReplaceAll(standardIn("max_in_flight: 16"), "http://APP", moved.URL)) // and no rate any more
	cancel()
	senders.Wait()
	eventually(t, "all is delivered", func() bool { return int64(len(x.app.all())+at()) >= count.Load() })
	got := map[string]int{}
	for _, c := range x.app.all() {
		got[c.id()]++
	}
	mu.Lock()
	defer mu.Unlock()
	for id, n := range taken {
		got[id] += n
	}
	stored.Range(func(id, _ any) bool {
		if n := got[id.(string)]; n != 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
		return true
	})
}

// Events of a source that was removed, or that is not in STORE any more, are kept and shown as ORPHANED; once it is there
// again they are delivered. Under `was` they go on by its new name.
func TestStoreSourceRemovedAndRenamed(t *testing.T) {
	t.Parallel()
	other := `
  - {name: payments, match: {path_prefix: /webhooks/stripe}, provider: stripe, secrets: [{file: FOLDER/stripe}]}`
	x := start(t, setup{sources: standardIn("waits: [1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s]") + other})
	x.app.answer(status(http.StatusInternalServerError))
	m, renamed := contact(t, "msg_removed"), contact(t, "msg_renamed")
	x.mustStore(m)
	x.awaitCalls("msg_removed", 1)
	x.reload(other)
	x.awaitState("standard", "msg_removed", orphanedState)
	calls := len(x.app.all())
	x.app.answer(nil)
	if err := x.gate.stop(); err != nil { // it stays so over a restart
		t.Fatal(err)
	}
	x.startGate()
	x.awaitState("standard", "msg_removed", orphanedState)
	<-time.After(1500 * time.Millisecond) // the next attempt is long due
	if n := len(x.app.all()); n != calls {
		t.Fatalf("the app was called %d times for a source that is not there", n-calls)
	}
	x.reload(standardIn("") + other)
	x.awaitState("standard", "msg_removed", done)
	if got := x.post(m); !got.is(http.StatusOK, "duplicate") {
		t.Errorf("a repeat got %v, want 200 duplicate", got)
	}

	x.app.answer(status(http.StatusInternalServerError))
	x.mustStore(renamed)
	x.awaitCalls("msg_renamed", 1)
	x.reload(strings.Replace(standardIn("waits: [1s, 1s]"), "name: standard", "name: customers, was: [standard]", 1) + other)
	x.app.answer(nil)
	eventually(t, "it is delivered under the new name", func() bool {
		calls := x.app.of("msg_renamed")
		return len(calls) > 1 && len(calls) == strings.Count(x.attempts("standard", "msg_renamed"), ",")+1
	})
	if err := x.envoy.Stop(); err != nil { // its routes name the source
		t.Fatal(err)
	}
	x.startEnvoy()
	if got := x.post(renamed); !got.is(http.StatusOK, "duplicate") {
		t.Errorf("a repeat after the source was renamed got %v, want 200 duplicate", got)
	}
}
