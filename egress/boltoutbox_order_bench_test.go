package egress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// orderSender has next make the attempts, and counts what is taken. Without next everything is taken at once, but for events
// of the type "stuck".
type orderSender struct {
	next  Sender
	want  int64
	taken atomic.Int64
	all   chan struct{} // closed when want are taken
}

func (s *orderSender) Send(ctx context.Context, e *Endpoint, ev *Event, attempt int) Result {
	r := Result{Outcome: OutcomeDelivered, Status: 200, Took: time.Microsecond}
	switch {
	case s.next != nil:
		r = s.next.Send(ctx, e, ev, attempt)
	case ev.Type == "stuck":
		return Result{Outcome: OutcomeServerError, Status: 500}
	}
	if r.delivered() && s.taken.Add(1) == s.want {
		close(s.all)
	}
	return r
}

// orderApp is an instant app that takes everything but what begins with "stuck".
func orderApp(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if bytes.HasPrefix(body, []byte("stuck")) {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// orderLoad queues n events of 1 KiB with so many orders (0: none), of which the first is never taken, and returns how many
// of the others were delivered per second.
func orderLoad(t testing.TB, n, orders int, e *Endpoint, next Sender) float64 {
	t.Helper()
	f := openOutboxFigures(t, t.TempDir(), "a")
	defer f.close(t)
	body := make([]byte, 1024)
	content := sha256.Sum256(body)
	stuck := append([]byte("stuck"), body[5:]...)
	s := &orderSender{next: next, all: make(chan struct{})}
	for from := 0; from < n; from += 5000 { // many in one commit
		op := &fillOp{done: make(chan error, 1)}
		for i := from; i < min(n, from+5000); i++ {
			ev := &Event{Type: "ok", ContentType: "application/json", Body: body, Content: content}
			if orders > 0 {
				ev.Order = fmt.Sprint("order ", i%orders)
			}
			if orders > 0 && i%orders == 0 {
				ev.Type, ev.Body = "stuck", stuck
			} else {
				s.want++
			}
			one, err := f.newAcceptOp(ev, []Target{{Endpoint: "a"}}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			op.ops = append(op.ops, one)
		}
		if err := f.store.Submit(op, store.Urgent); err != nil {
			t.Fatal(err)
		}
		if err := <-op.done; err != nil {
			t.Fatal(err)
		}
	}
	set := NewEndpoints([]*Endpoint{e})
	d, err := NewDispatcher(DispatcherConfig{Outbox: f.BoltOutbox, Sender: s, Endpoints: func() *Endpoints { return set }})
	if err != nil {
		t.Fatal(err)
	}
	f.SetChanges(d)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- d.Run(ctx) }()
	select {
	case <-s.all:
	case <-time.After(time.Minute):
		t.Errorf("%d of %d are delivered after a minute", s.taken.Load(), s.want)
	}
	rate := float64(s.taken.Load()) / time.Since(start).Seconds()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return rate
}

// BenchmarkOrder compares what goes out in order of 10,000 keys, one of them stuck, with what goes out in no order: to an app
// that answers at once over HTTP, and to one that costs nothing, so that what is left is the store's part.
func BenchmarkOrder(b *testing.B) {
	for _, app := range []string{"http", "none"} {
		b.Run(app, func(b *testing.B) {
			e, next, events := dispatchEndpoint("a", 256), Sender(nil), 30_000
			if app == "http" {
				policy := e.Policy
				e, next, events = sendEndpoint(b, sendHTTP(b, http.HandlerFunc(orderApp))+"/in"), sendSender(b), 20_000
				e.ID, e.Policy = "a", policy
				e.Policy.MaxInFlight = 64
			}
			for b.Loop() {
				plain := orderLoad(b, events, 0, e, next)
				inOrder := orderLoad(b, events, 10_000, e, next)
				b.ReportMetric(plain, "unordered/s")
				b.ReportMetric(inOrder, "ordered/s")
				b.ReportMetric(inOrder/plain, "of_unordered")
			}
		})
	}
}

// TestOrderOfOthers: however long one key is stuck, the others go on.
func TestOrderOfOthers(t *testing.T) {
	t.Parallel()
	orderLoad(t, 4000, 1000, dispatchEndpoint("a", 256), nil)
}
