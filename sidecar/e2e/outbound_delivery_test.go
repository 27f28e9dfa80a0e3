package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// startTo runs a sidehook with one endpoint a at receiver, with these settings of its delivery.
func startTo(t *testing.T, receiver http.Handler, delivery string) *outbound {
	t.Helper()
	customer := httptest.NewServer(receiver)
	t.Cleanup(customer.Close)
	u, err := url.Parse(customer.URL)
	if err != nil {
		t.Fatal(err)
	}
	return startOutbound(t, fmt.Sprintf(`
  filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s]}
  delivery: {%s}
  endpoints:
  - {id: a, url: "%s/in", secrets: [{file: FOLDER/endpoint-a}]}`, u.Port(), delivery, customer.URL), "")
}

// What the app posts is what the receiver gets, to the byte, and that is what is signed.
func TestOutboundBytes(t *testing.T) {
	t.Parallel()
	receiver := new(customers)
	o := startTo(t, receiver, "")
	hook, err := standardwebhooks.NewWebhook(endpointSecretA)
	if err != nil {
		t.Fatal(err)
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, body := range map[string]string{
		"keys":    `{"b":1,"a":2}`,
		"numbers": `{"x":1.0,"y":1e2,"z":-0,"w":12345678901234567890}`,
		"escapes": `{"a":"\u00e9 é \/ <&> \u2028"}`,
		"twice":   `{"a":1,"a":2}`,
		"newline": "{\r\n}\r\n\n",
		"mark":    "\xef\xbb\xbf{}",
		"empty":   "",
		"form":    "a=b&c=d+%20",
		"binary":  string(every),
		"large":   strings.Repeat("0123456789abcdef", 16<<10), // as large as an event may be
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/endpoints/a/events", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Webhook-Id", name)
		req.Header.Set("Content-Type", "application/x-"+name)
		res, err := o.intake.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusAccepted {
			t.Fatalf("%s: %d %s %v", name, res.StatusCode, answer, err)
		}
		eventually(t, name+" is delivered", func() bool { return len(receiver.of(name)) > 0 })
		got := receiver.of(name)[0]
		if !bytes.Equal(got.body, []byte(body)) || got.header.Get("Content-Type") != "application/x-"+name {
			t.Errorf("%s: %d bytes of %q arrive of %d", name, len(got.body), got.header.Get("Content-Type"), len(body))
		}
		if err := hook.Verify(got.body, got.header); err != nil {
			t.Errorf("%s: the library of Standard Webhooks: %v", name, err)
		}
	}
}

// Deliveries to one endpoint run side by side, and the time limit of each begins with its attempt: a receiver that takes
// 200 ms loses none of 120 events, though the last of them wait longer than the time limit.
func TestOutboundSideBySide(t *testing.T) {
	t.Parallel()
	const events, inFlight, each = 120, 10, 200 * time.Millisecond
	var mu sync.Mutex
	var now, most int
	o := startTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			<-time.After(each)
		}
		mu.Lock()
		defer mu.Unlock()
		now--
	}), fmt.Sprintf("timeout: 2s, max_in_flight: %d", inFlight))
	o.mustPost(t, "first", "a")
	o.eventuallyDelivered(t, "first")
	began := time.Now()
	var ids []string
	for i := range events {
		ids = append(ids, fmt.Sprintf("in_%d", i))
		o.mustPost(t, ids[i], "a")
	}
	o.eventuallyDelivered(t, ids...)
	if took := time.Since(began); took > events*each/2 {
		t.Errorf("it took %v: they do not run side by side", took)
	}
	for _, id := range ids {
		if got := outcomes(o.deliveryOf(t, id)); got != "1 delivered" {
			t.Errorf("%s: %s", id, got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most > inFlight {
		t.Errorf("%d at one time, more than %d", most, inFlight)
	}
}

// A person redelivers what waits for a retry that is due at just that time: the receiver takes each event once, and no
// attempt is made twice.
func TestOutboundRedeliverBesideRetry(t *testing.T) {
	t.Parallel()
	const events = 40
	var mu sync.Mutex
	attempts, taken := map[string][]string{}, map[string]int{}
	o := startTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, n := r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Attempt")
		mu.Lock()
		attempts[id] = append(attempts[id], n)
		mu.Unlock()
		if n == "1" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		<-time.After(time.Second) // none has ended when the last is redelivered
		mu.Lock()
		defer mu.Unlock()
		taken[id]++
	}), "waits: [1s, 1s], jitter_percent: 0, max_in_flight: 64")
	ids := make([]string, events)
	deliveries := make([]string, events)
	var people sync.WaitGroup
	for i := range events {
		ids[i] = fmt.Sprintf("in_%d", i)
		code, a, err := o.post(t.Context(), map[string]any{"id": ids[i], "type": "a", "data": 1})
		if err != nil || code != http.StatusAccepted {
			t.Fatal(code, err)
		}
		deliveries[i] = a.Deliveries[0].ID
		people.Go(func() {
			<-time.After(900*time.Millisecond + rand.N(200*time.Millisecond))
			o.redeliver(t.Context(), t, deliveries[i])
		})
	}
	people.Wait()
	o.eventuallyDelivered(t, ids...)
	mu.Lock()
	defer mu.Unlock()
	for _, id := range ids {
		if want := []string{"1", "2"}; taken[id] != 1 || !slices.Equal(attempts[id], want) {
			t.Errorf("%s was taken %d times, in the attempts %q", id, taken[id], attempts[id])
		}
		if d := o.deliveryOf(t, id); len(d.GetAttempts()) != 2 {
			t.Errorf("%s is logged as %s", id, outcomes(d))
		}
	}
}

// redeliver asks for one delivery.
func (o *outbound) redeliver(ctx context.Context, t *testing.T, id string) {
	res, err := o.api().Redeliver(ctx, connect.NewRequest(&egressv1.RedeliverRequest{Ids: []string{id}}))
	if err != nil || len(res.Msg.GetResults()) != 1 || res.Msg.GetResults()[0].GetError() != "" {
		t.Errorf("redeliver %s: %v, %v", id, res, err)
	}
}
