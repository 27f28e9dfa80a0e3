package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
	"github.com/sidehook/sidehook/pb/sidehook/egress/v1/egressv1connect"
)

// holder is a customer that takes what begins with "first" at once, and keeps every other request until it may go on.
type holder struct {
	mu        sync.Mutex          // covers attempts, now and most
	attempts  map[string][]string // by event, the numbers under which it came
	now, most map[string]int      // requests that wait, by path, and how many did so at one time

	ends, hangs chan struct{} // closed: events of these names may go on
}

// ServeHTTP implements http.Handler.
func (h *holder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	id, path := r.Header.Get("Webhook-Id"), r.URL.Path
	h.mu.Lock()
	h.attempts[id] = append(h.attempts[id], r.Header.Get("Webhook-Attempt"))
	h.now[path]++
	h.most[path] = max(h.most[path], h.now[path])
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.now[path]--
	}()
	goOn := h.ends
	switch name, _, _ := strings.Cut(id, "_"); name {
	case "first":
		return
	case "hangs":
		goOn = h.hangs
	}
	select {
	case <-goOn:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// holds returns how many requests of a path wait there, and how many did so at most.
func (h *holder) holds(path string) (now, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now[path], h.most[path]
}

// of returns the numbers of the attempts of an event.
func (h *holder) of(id string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.attempts[id], " ")
}

// startHolder runs a sidehook whose endpoints a and b lead to one holder, with inFlight attempts each. Both have taken an
// event, so that they may use all of them.
func startHolder(t *testing.T, inFlight int) (*outbound, *holder) {
	t.Helper()
	h := &holder{
		attempts: map[string][]string{}, now: map[string]int{}, most: map[string]int{},
		ends: make(chan struct{}), hangs: make(chan struct{}),
	}
	customer := httptest.NewServer(h)
	t.Cleanup(customer.Close)
	u, err := url.Parse(customer.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := startOutbound(t, fmt.Sprintf(`
  filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s]}
  delivery: {timeout: 60s, max_in_flight: %d}
  endpoints:
  - {id: a, url: "%s/a", secrets: [{file: FOLDER/endpoint-a}]}
  - {id: b, url: "%s/b", secrets: [{file: FOLDER/endpoint-b}]}`, u.Port(), inFlight, customer.URL, customer.URL), "")
	for _, endpoint := range []string{"a", "b"} {
		o.mustPost(t, "first_"+endpoint, endpoint)
		o.eventuallyDelivered(t, "first_"+endpoint)
	}
	return o, h
}

// mustPost posts an event for one endpoint, which must be accepted.
func (o *outbound) mustPost(t *testing.T, id, endpoint string) {
	t.Helper()
	code, a, err := o.post(t.Context(), map[string]any{"id": id, "type": "invoice.paid", "endpoint": endpoint, "data": 1})
	if err != nil || code != http.StatusAccepted || len(a.Deliveries) != 1 || a.Deliveries[0].ID == "" {
		t.Fatalf("post %s: %d %+v %v", id, code, a, err)
	}
}

// api is a client of the admin API.
func (o *outbound) api() egressv1connect.EgressServiceClient {
	return egressv1connect.NewEgressServiceClient(unixClient(o.socket("admin")), "http://localhost")
}

// deliveryOf returns the one delivery of an event, with its attempts.
func (o *outbound) deliveryOf(t *testing.T, event string) *egressv1.DeliveryWithAttempts {
	t.Helper()
	res, err := o.api().GetEvent(t.Context(), connect.NewRequest(&egressv1.GetEventRequest{Id: event}))
	if err != nil || len(res.Msg.GetDeliveries()) != 1 {
		t.Fatalf("event %s: %v, %v", event, res, err)
	}
	return res.Msg.GetDeliveries()[0]
}

// outcomes says how the attempts of a delivery ended, each with a mark where it used up none.
func outcomes(d *egressv1.DeliveryWithAttempts) string {
	var words []string
	for _, a := range d.GetAttempts() {
		word := fmt.Sprint(a.GetNumber(), " ", a.GetOutcome())
		if !a.GetCounted() {
			word += " for nothing"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// eventuallyDelivered waits until all these events are delivered.
func (o *outbound) eventuallyDelivered(t *testing.T, ids ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d events are delivered", len(ids)), func() bool {
		for len(ids) > 0 && o.deliveryOf(t, ids[0]).GetDelivery().GetState() == egressv1.DeliveryState_DELIVERY_STATE_DELIVERED {
			ids = ids[1:]
		}
		return len(ids) == 0
	})
}

// expect checks how the attempts of an event are logged, and under which numbers they came.
func (o *outbound) expect(t *testing.T, h *holder, id, logged, came string) {
	t.Helper()
	if got := outcomes(o.deliveryOf(t, id)); got != logged {
		t.Errorf("%s is logged as %q, want %q", id, got, logged)
	}
	if got := h.of(id); got != came {
		t.Errorf("%s came as the attempts %q, want %q", id, got, came)
	}
}

// What is in flight at a SIGKILL is tried again at once after the start, all of it, under the same id. The log says that
// it was interrupted, and no attempt is used up.
func TestOutboundKilledInFlight(t *testing.T) {
	t.Parallel()
	const events = 100
	o, h := startHolder(t, events)
	var ids []string
	for i := range events {
		ids = append(ids, fmt.Sprintf("ends_%d", i))
		o.mustPost(t, ids[i], "a")
	}
	eventually(t, "all are in flight", func() bool { now, _ := h.holds("/a"); return now == events })
	<-time.After(time.Second) // an attempt that takes longer than 50 ms is known on disk to be under way
	if err := o.gate.kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the receiver sees that", func() bool { now, _ := h.holds("/a"); return now == 0 })
	close(h.ends)
	o.start()
	began := time.Now()
	o.eventuallyDelivered(t, ids...)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("all was delivered %v after the start", took)
	}
	for _, id := range ids {
		o.expect(t, h, id, "1 interrupted for nothing, 2 delivered", "1 2")
	}
}

// SIGTERM with two hundred attempts in flight: those that end within the grace count, the others are cut off and do not,
// and nothing more is begun. The process ends well and in time, and the next one goes on. Nothing is recorded twice, and
// nothing that was taken is sent again.
func TestOutboundStopsUnderLoad(t *testing.T) {
	t.Parallel()
	const inFlight, more = 100, 20
	o, h := startHolder(t, inFlight)
	var ends, waits, hangs []string
	for i := range inFlight {
		ends, hangs = append(ends, fmt.Sprintf("ends_%d", i)), append(hangs, fmt.Sprintf("hangs_%d", i))
		o.mustPost(t, ends[i], "a")
		o.mustPost(t, hangs[i], "b")
	}
	for i := range more {
		waits = append(waits, fmt.Sprintf("waits_%d", i))
		o.mustPost(t, waits[i], "a")
	}
	eventually(t, "as many as may be are in flight", func() bool {
		a, _ := h.holds("/a")
		b, _ := h.holds("/b")
		return a == inFlight && b == inFlight
	})
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- o.gate.stop() }()
	health := unixClient(o.socket("health"))
	eventually(t, "it says that it stops", func() bool {
		res, err := health.Get("http://localhost/readyz")
		if err != nil {
			return true
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable
	})
	close(h.ends)
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v after %v, want exit 0", err, time.Since(began))
	}
	for _, id := range waits {
		if got := h.of(id); got != "" {
			t.Errorf("%s was begun while it stopped: %q", id, got)
		}
	}
	close(h.hangs)
	o.start()
	o.eventuallyDelivered(t, slices.Concat(hangs, waits)...)
	for _, id := range slices.Concat(ends, waits) {
		o.expect(t, h, id, "1 delivered", "1")
	}
	for _, id := range hangs {
		o.expect(t, h, id, "1 interrupted for nothing, 2 delivered", "1 2")
	}
	for _, path := range []string{"/a", "/b"} {
		if _, most := h.holds(path); most != inFlight {
			t.Errorf("%d requests at one time at %s, want %d", most, path, inFlight)
		}
	}
}

// A second process on the same store says so and ends, within a moment, and names the first one.
func TestOutboundSecondProcess(t *testing.T) {
	t.Parallel()
	o, h := startHolder(t, 1)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	out, err := exec.CommandContext(t.Context(), path, "run", "-c", o.config).CombinedOutput()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v, want about a second", took)
	}
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 3 {
		t.Errorf("it ended with %v, want exit 3", err)
	}
	if pid := fmt.Sprint(o.gate.process.Pid); !strings.Contains(string(out), pid) {
		t.Errorf("it does not name process %s: %s", pid, out)
	}
	o.mustPost(t, "first_again", "a")
	o.eventuallyDelivered(t, "first_again")
	if got := h.of("first_again"); got != "1" {
		t.Errorf("beside a second process it came as the attempts %q", got)
	}
}
