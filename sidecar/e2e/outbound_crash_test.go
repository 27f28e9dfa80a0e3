package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

const (
	// outboundApps post at once.
	outboundApps = 8
	// outboundFlight bounds the attempts to each of the two endpoints at one time: what a kill may repeat.
	outboundFlight = 8
)

// deliveries are what the app posted and what its customers got.
type deliveries struct {
	endpoints int      // how many of them there are
	all       []string // the paths of those that get every event
	customer  *httptest.Server

	mu       sync.Mutex // covers all below
	accepted map[string]bool
	taken    map[string][]taking // by endpoint and event
	kills    []span
	open     map[string]bool // the customers' connections, by the address of the other side
	opened   map[string]bool // and those there ever were
}

// receive starts the customers; all are the paths of those that get every event.
func receive(t *testing.T, endpoints int, all ...string) *deliveries {
	t.Helper()
	d := &deliveries{
		endpoints: endpoints, all: all, accepted: map[string]bool{}, taken: map[string][]taking{}, open: map[string]bool{}, opened: map[string]bool{},
	}
	d.customer = httptest.NewUnstartedServer(http.HandlerFunc(d.take))
	d.customer.Config.ConnState = func(c net.Conn, s http.ConnState) {
		d.mu.Lock()
		defer d.mu.Unlock()
		switch peer := c.RemoteAddr().String(); s {
		case http.StateNew:
			d.open[peer], d.opened[peer] = true, true
		case http.StateClosed, http.StateHijacked:
			delete(d.open, peer)
		}
	}
	d.customer.Start()
	t.Cleanup(d.customer.Close)
	return d
}

// kill kills the running sidehook and has start start it again, once the customers are through with all that the killed one had sent: what lay in a
// buffer of the kernel would else look like something sent after the kill.
func (d *deliveries) kill(t *testing.T, running *gate, start func()) {
	t.Helper()
	killed := span{from: time.Now()}
	if err := running.kill(); err != nil {
		t.Fatal(err)
	}
	probe, err := net.Dial("tcp", d.customer.Listener.Addr().String()) // the last in the line of connections to accept
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the customers see the probe", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.opened[probe.LocalAddr().String()]
	})
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the customers are done", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.open) == 0
	})
	killed.to = time.Now()
	start()
	d.mu.Lock()
	d.kills = append(d.kills, killed)
	d.mu.Unlock()
}

// taking is one time that a receiver took an event and said so.
type taking struct{ began, answered time.Time }

// TestOutboundCrash kills sidehook with SIGKILL at random moments while events are posted and delivered. Whatever the
// moment:
//
//   - every event that was answered 202 arrives at both of its endpoints;
//   - one that an endpoint took is sent to it again only where a kill came after: it was in flight then, and of those no
//     more come again than may be in flight;
//   - each time under the same id.
func TestOutboundCrash(t *testing.T) {
	t.Parallel()
	d := receive(t, 2, "/a", "/b")
	u, err := url.Parse(d.customer.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := startOutbound(t, fmt.Sprintf(`
  filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s]}
  delivery: {waits: [100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms], max_in_flight: %d}
  endpoints:
  - {id: a, url: "%s/a", secrets: [{file: FOLDER/endpoint-a}]}
  - {id: b, url: "%s/b", secrets: [{file: FOLDER/endpoint-b}]}`, u.Port(), outboundFlight, d.customer.URL, d.customer.URL), "")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var apps sync.WaitGroup
	for app := range outboundApps {
		apps.Go(func() { d.postAll(ctx, t, o, app) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for range *rounds {
		timer.Reset(rand.N(crashGap))
		<-timer.C
		d.kill(t, o.gate, o.start)
	}
	cancel()
	apps.Wait()
	eventually(t, "every accepted event is delivered", func() bool { return d.missing() == "" })
	d.check(t)
}

// postAll posts events until ctx ends, each until it is accepted, as an app that trusts no answer it did not get.
func (d *deliveries) postAll(ctx context.Context, t *testing.T, o *outbound, app int) {
	tick := time.NewTicker(crashWait)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("app%d_%d", app, i)
		deadline := time.Now().Add(patience)
		for {
			code, a, err := o.post(t.Context(), map[string]any{"id": id, "type": "invoice.paid", "data": map[string]any{"n": i}})
			if err == nil && code == http.StatusAccepted {
				if a.ID != id || len(a.Deliveries) < 2 || len(a.Deliveries) > d.endpoints {
					t.Errorf("%s was answered %+v", id, a)
				}
				break
			}
			if err == nil && code != http.StatusServiceUnavailable {
				t.Errorf("%s got %d, want 202 or 503", id, code)
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("%s is not accepted within %v: %d %v", id, patience, code, err)
				return
			}
			<-tick.C
		}
		d.mu.Lock()
		d.accepted[id] = true
		d.mu.Unlock()
		<-tick.C
	}
}

// take is a customer: it mostly takes an event, at times after a while, at times it fails.
func (d *deliveries) take(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	luck := rand.IntN(100)
	switch {
	case luck < 10:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case luck < 30:
		<-time.After(rand.N(30 * time.Millisecond))
	}
	key := r.URL.Path + " " + r.Header.Get("Webhook-Id")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken[key] = append(d.taken[key], taking{began, time.Now()})
}

// missing names an accepted event that did not arrive at one of its endpoints; "": there is none.
func (d *deliveries) missing() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.accepted {
		for _, path := range d.all {
			if len(d.taken[path+" "+id]) == 0 {
				return path + " " + id
			}
		}
	}
	return ""
}

func (d *deliveries) check(t *testing.T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	repeats := make([]int, len(d.kills))
	again := 0
	for key, takings := range d.taken {
		for i := 1; i < len(takings); i++ {
			again++
			first, second := takings[i-1], takings[i]
			excuse := -1
			for k, killed := range d.kills {
				if killed.to.After(first.began) && killed.from.Before(second.began) {
					excuse = k
					break
				}
			}
			if excuse < 0 {
				t.Errorf("%s was taken twice, %v apart, and no kill lay between", key, second.began.Sub(first.began))
				continue
			}
			repeats[excuse]++
		}
	}
	for k, n := range repeats {
		if most := d.endpoints * outboundFlight; n > most {
			t.Errorf("%d deliveries were repeated after kill %d, more than the %d that may be in flight", n, k, most)
		}
	}
	if len(d.accepted) < outboundApps || len(d.kills) != *rounds {
		t.Errorf("%d events accepted over %d kills: too few to mean anything", len(d.accepted), len(d.kills))
	}
	t.Logf("%d kills, %d events accepted, %d taken again after a kill", len(d.kills), len(d.accepted), again)
}
