package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// One endpoint hangs, with many events queued for it. The events of others arrive as if it were not there, before a
// restart and after it, and it never has more than its own attempts in flight.
func TestOutboundHungEndpoint(t *testing.T) {
	t.Parallel()
	const backlog, inFlight, soon = 20_000, 8, 2 * time.Second
	others := []string{"b", "c", "d", "e", "f"}
	var mu sync.Mutex
	arrived := map[string]time.Time{}
	var hung, most int
	quit := make(chan struct{})
	customer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		mu.Lock()
		if r.URL.Path != "/hangs" {
			arrived[r.Header.Get("Webhook-Id")] = time.Now()
			mu.Unlock()
			return
		}
		hung++
		most = max(most, hung)
		mu.Unlock()
		select {
		case <-r.Context().Done():
		case <-quit:
		}
		mu.Lock()
		defer mu.Unlock()
		hung--
	}))
	t.Cleanup(customer.Close)
	t.Cleanup(func() { close(quit) })
	u, err := url.Parse(customer.URL)
	if err != nil {
		t.Fatal(err)
	}
	var endpoints strings.Builder
	for _, id := range others {
		fmt.Fprintf(&endpoints, "\n  - {id: %s, url: %q, secrets: [{file: FOLDER/endpoint-b}]}", id, customer.URL+"/"+id)
	}
	o := startOutbound(t, fmt.Sprintf(`
  filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s]}
  delivery: {timeout: 3s, max_in_flight: %d}
  endpoints:
  - {id: hangs, url: "%s/hangs", secrets: [{file: FOLDER/endpoint-a}]}%s`, u.Port(), inFlight, customer.URL, endpoints.String()), "")

	var lines strings.Builder
	for i := range backlog {
		fmt.Fprintf(&lines, `{"id":"hangs_%d","type":"a","endpoint":"hangs","data":1}`+"\n", i)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/events", strings.NewReader(lines.String()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	res, err := o.intake.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answers, err := io.ReadAll(res.Body)
	if n := strings.Count(string(answers), `"status":202`); err != nil || n != backlog {
		t.Fatalf("%d of %d events were accepted: %v", n, backlog, err)
	}

	check := func(when string) {
		posted := map[string]time.Time{}
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := range 30 {
			<-tick.C
			for _, endpoint := range others {
				id := fmt.Sprintf("%s_%s_%d", endpoint, when, i)
				posted[id] = time.Now()
				o.mustPost(t, id, endpoint)
			}
		}
		all := func() (missing string, worst time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			for id, at := range posted {
				if arrived[id].IsZero() {
					missing = id
				}
				worst = max(worst, arrived[id].Sub(at))
			}
			return missing, worst
		}
		eventually(t, "all events of the others arrive "+when, func() bool { missing, _ := all(); return missing == "" })
		if _, worst := all(); worst > soon {
			t.Errorf("%s an event arrived after %v", when, worst)
		}
	}
	check("before")
	if err := o.gate.kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the receiver sees that", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return hung == 0
	})
	o.start()
	check("after")
	mu.Lock()
	defer mu.Unlock()
	if most == 0 || most > inFlight {
		t.Errorf("%d attempts at one time to the endpoint that hangs, want 1 to %d", most, inFlight)
	}
}
