package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

var rounds = flag.Int("rounds", 12, "how often each of the crash tests kills sidehook or Envoy")

const (
	// crashSenders send at once; each sends one event until it is acknowledged, as a sender does, and then the next.
	crashSenders = 16
	// crashWait is how long a sender waits before it tries again.
	crashWait = 15 * time.Millisecond
	// crashGap is the longest time of load between two kills.
	crashGap = 250 * time.Millisecond
)

// span is a stretch of time; the moment that matters lies in it.
type span struct{ from, to time.Time }

// ledger is what everybody saw.
type ledger struct {
	mu      sync.Mutex           // covers all below
	sent    map[string]time.Time // by try
	slow    map[string]bool      // tries that Envoy gave up waiting for
	effects map[string][]effect  // by event id
	acked   map[string]int
	kills   []span
}

// effect is one time that the app acted on an event.
type effect struct {
	try      string    // its request
	sent, at time.Time // when its request was sent, and when the app acted
	failed   bool      // the app acted, and then gave no answer
}

// TestCrash kills the gate, and sometimes Envoy, with SIGKILL at random moments under load. Whatever the moment:
//
//   - an event that its sender saw acknowledged was acted on by the app;
//   - it was acted on twice only where a kill, or a failure of the app itself, lay between sending the first request and
//     the second action, for then nobody could know how the first one ended.
func TestCrash(t *testing.T) {
	t.Parallel()
	x := start(t, setup{listen: freeAddr(t), workers: 2, sources: `
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], lease: 2s}
  - {name: sync, match: {path_prefix: /webhooks/sync}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], lease: 2s, confirm: EXT_PROC}`})
	l := &ledger{sent: map[string]time.Time{}, slow: map[string]bool{}, effects: map[string][]effect{}, acked: map[string]int{}}
	x.app.answer(l.act)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var senders sync.WaitGroup
	for worker := range crashSenders {
		senders.Go(func() { l.sendAll(ctx, t, x.url, worker) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for round := range *rounds {
		timer.Reset(rand.N(crashGap))
		<-timer.C
		killed := span{from: time.Now()}
		if round%4 == 3 {
			if err := x.envoy.Kill(); err != nil {
				t.Fatal(err)
			}
			killed.to = time.Now()
			x.startEnvoy()
		} else {
			if err := x.gate.kill(); err != nil {
				t.Fatal(err)
			}
			killed.to = time.Now()
			x.startGate()
		}
		l.mu.Lock()
		l.kills = append(l.kills, killed)
		l.mu.Unlock()
	}
	cancel()
	senders.Wait()
	l.check(t)
}

// sendAll sends events until ctx ends, each until it is acknowledged.
func (l *ledger) sendAll(ctx context.Context, t *testing.T, url string, worker int) {
	tick := time.NewTicker(crashWait)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		source := []string{"standard", "sync"}[i%2]
		id := fmt.Sprintf("%s_%d_%d", source, worker, i)
		deadline := time.Now().Add(patience)
		for try := 0; ; try++ {
			code := l.send(t, url, source, id, try)
			if code >= 200 && code < 300 {
				break
			}
			switch code {
			case 0, http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusGatewayTimeout:
			default:
				t.Errorf("%s got %d, want 2xx, 500 (the app's), 503 or 504 (the app was slow)", id, code)
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("%s is not acknowledged after %d tries in %v", id, try+1, patience)
				return
			}
			<-tick.C
		}
		if i%3 == 0 { // some senders send again although they need not
			l.send(t, url, source, id, -1)
		}
	}
}

// send sends an event once and returns the status, 0 for none.
func (l *ledger) send(t *testing.T, url, source, id string, try int) int {
	m := standard(t, "/webhooks/"+source, id, []byte(`{}`), time.Now(), standardSecret)
	name := id + "/" + strconv.Itoa(try)
	m.header.Set("X-Try", name)
	l.mu.Lock()
	l.sent[name] = time.Now()
	l.mu.Unlock()
	// What is under way when the kills end is still to be acknowledged.
	got, err := send(t.Context(), client, url, m)
	if err != nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case got.code >= 200 && got.code < 300:
		l.acked[id]++
	case got.code == http.StatusGatewayTimeout:
		l.slow[name] = true
	}
	return got.code
}

// act is the app: it mostly acts and says so, at times it fails before, at times after.
func (l *ledger) act(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Sidehook-Event-Id")
	luck := rand.IntN(100)
	if luck < 4 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	failed := luck < 6
	l.mu.Lock()
	try := r.Header.Get("X-Try")
	l.effects[id] = append(l.effects[id], effect{try: try, sent: l.sent[try], at: time.Now(), failed: failed})
	l.mu.Unlock()
	if failed {
		hangUp(w, r)
	}
	_, _ = io.WriteString(w, "thanks")
}

// check compares what everybody saw.
func (l *ledger) check(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.acked {
		if len(l.effects[id]) == 0 {
			t.Errorf("%s was acknowledged and never acted on", id)
		}
	}
	again := 0
	for id, effects := range l.effects {
		for i := 1; i < len(effects); i++ {
			again++
			first, second := effects[i-1], effects[i]
			excused := first.failed || l.slow[first.try] || slices.ContainsFunc(l.kills, func(k span) bool {
				return k.to.After(first.sent) && k.from.Before(second.at)
			})
			if !excused {
				t.Errorf("%s was acted on %v and %v after the start of its first request, and nothing lay between",
					id, first.at.Sub(first.sent), second.at.Sub(first.sent))
			}
		}
	}
	if len(l.acked) < crashSenders || len(l.kills) != *rounds {
		t.Errorf("%d events acknowledged over %d kills: too few to mean anything", len(l.acked), len(l.kills))
	}
	t.Logf("%d kills, %d events acknowledged, %d acted on again after a kill or a failure of the app", len(l.kills), len(l.acked), again)
}
