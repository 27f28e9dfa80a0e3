package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

const (
	storePath   = "/webhooks/standard"
	storeFlight = 8
)

// TestStoreCrash kills sidehook, and sometimes Envoy, with SIGKILL at random moments while senders send events that are kept and
// delivered to an app that fails at times. Whatever the moment:
//
//   - every event whose sender saw 200 comes to the app, and is recorded as DONE, once;
//   - one that the app took comes again only where a kill came between, and of those no more than may be in flight;
//   - nothing comes that is not signed.
func TestStoreCrash(t *testing.T) {
	t.Parallel()
	d := receive(t, 1, storePath)
	x := start(t, setup{listen: freeAddr(t), workers: 2, sources: fmt.Sprintf(`
  - {name: standard, match: {path_prefix: %s}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], mode: STORE,
     delivery: {url: "%s", max_in_flight: %d, waits: [%s100ms]}}`, storePath, d.customer.URL, storeFlight, strings.Repeat("100ms, ", 20))})
	s := &storeSenders{deliveries: d, url: x.url}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var senders sync.WaitGroup
	for sender := range crashSenders {
		senders.Go(func() { s.sendAll(ctx, t, sender) })
	}
	senders.Go(func() { s.forgeAll(ctx, t) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for round := range *rounds {
		timer.Reset(rand.N(crashGap))
		<-timer.C
		if round%8 == 7 {
			if err := x.envoy.Kill(); err != nil {
				t.Fatal(err)
			}
			x.startEnvoy()
		}
		d.kill(t, x.gate, x.startGate)
	}
	cancel()
	senders.Wait()
	eventually(t, "every accepted event is delivered", func() bool { return d.missing() == "" })
	d.check(t)
	s.checkRecords(t, x)
	if s.refused.Load() == 0 {
		t.Error("no forged event was refused: that means nothing")
	}
	if err := x.gate.kill(); err != nil {
		t.Fatal(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), path, "store", "check", "-c", x.config).CombinedOutput(); err != nil {
		t.Errorf("store check: %v\n%s", err, out)
	}
}

// storeSenders send events to a source in STORE.
type storeSenders struct {
	*deliveries
	url     string
	refused atomic.Int64 // forged events
}

// sendAll sends events until ctx ends, each until it is acknowledged, and some of them again.
func (s *storeSenders) sendAll(ctx context.Context, t *testing.T, sender int) {
	tick := time.NewTicker(crashWait)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		m := contact(t, fmt.Sprintf("sender%d_%d", sender, i))
		for repeats := i % 3 / 2; repeats >= 0; repeats-- {
			if !s.acknowledged(t, m, tick) {
				return
			}
		}
		s.mu.Lock()
		s.accepted[m.header.Get("Webhook-Id")] = true
		s.mu.Unlock()
		<-tick.C
	}
}

// acknowledged sends m until the sender sees 200.
func (s *storeSenders) acknowledged(t *testing.T, m message, tick *time.Ticker) bool {
	deadline := time.Now().Add(patience)
	for {
		got, err := send(t.Context(), client, s.url, m)
		switch {
		case err == nil && (got.is(http.StatusOK, "stored") || got.is(http.StatusOK, "duplicate")):
			return true
		case err == nil && got.code != http.StatusServiceUnavailable:
			t.Errorf("%s got %v, want 200 or 503", m.header.Get("Webhook-Id"), got)
			return false
		case time.Now().After(deadline):
			t.Errorf("%s is not acknowledged within %v: %v %v", m.header.Get("Webhook-Id"), patience, got, err)
			return false
		}
		<-tick.C
	}
}

// forgeAll sends what nobody signed until ctx ends.
func (s *storeSenders) forgeAll(ctx context.Context, t *testing.T) {
	tick := time.NewTicker(crashWait)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		m := standard(t, storePath, fmt.Sprintf("forged_%d", i), []byte(`{}`), time.Now(), otherSecret)
		got, err := send(t.Context(), client, s.url, m)
		switch {
		case err == nil && got.is(http.StatusUnauthorized, "bad_signature"):
			s.refused.Add(1)
		case err == nil && got.code != http.StatusServiceUnavailable:
			t.Errorf("a forged event got %v", got)
		}
		<-tick.C
	}
}

// checkRecords compares what the inbox has on record with what the senders saw acknowledged.
func (s *storeSenders) checkRecords(t *testing.T, x *stack) {
	t.Helper()
	s.mu.Lock()
	accepted, taken := maps.Clone(s.accepted), maps.Clone(s.taken)
	s.mu.Unlock()
	for key := range taken {
		if id := strings.TrimPrefix(key, storePath+" "); !accepted[id] {
			t.Errorf("the app took %q, which no sender saw accepted", key)
		}
	}
	listed := func() map[string][]inboxv1.EventState {
		all := map[string][]inboxv1.EventState{}
		for token := ""; ; {
			res, err := x.admin.ListEvents(t.Context(), connect.NewRequest(&inboxv1.ListEventsRequest{Source: "standard", PageSize: 1000, PageToken: token}))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range res.Msg.GetEvents() {
				all[e.GetId()] = append(all[e.GetId()], e.GetState())
			}
			if token = res.Msg.GetNextPageToken(); token == "" {
				return all
			}
		}
	}
	eventually(t, "every event is recorded", func() bool {
		for _, states := range listed() {
			if len(states) != 1 || states[0] != done {
				return false
			}
		}
		return true
	})
	all := listed()
	for id := range accepted {
		if states := all[id]; len(states) != 1 || states[0] != done {
			t.Errorf("%s was acknowledged and is recorded as %v, want DONE, once", id, states)
		}
		if n := strings.Count(x.attempts("standard", id), "delivered"); n != 1 {
			t.Errorf("%s was delivered %d times by its record: %s", id, n, x.attempts("standard", id))
		}
	}
	for id := range all {
		if !accepted[id] {
			t.Errorf("%s is recorded as %v, and no sender saw it accepted", id, all[id])
		}
	}
}
