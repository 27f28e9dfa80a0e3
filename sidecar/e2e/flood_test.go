package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// floodMemory is what the gate may take at most under the floods below: it idles at a third of it.
const floodMemory = 96 << 20

// endless is a body that has no end; it counts what was read.
type endless struct{ read *atomic.Int64 }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.read.Add(int64(len(p)))
	return len(p), nil
}

// Case SIZE 55: bodies without end and with a wrong signature are refused long before their end, and the gate's memory
// stays what it is: none of it gets there.
func TestEndlessBodies(t *testing.T) {
	t.Parallel()
	x := start(t, setup{workers: 2})
	var read, told atomic.Int64
	var senders sync.WaitGroup
	const count = 200
	for i := range count {
		senders.Go(func() {
			m := stripe(fmt.Sprint("evt_endless_", i), time.Now(), otherSecret)
			got, err := sendFrom(t.Context(), client, x.url, m, endless{&read})
			switch {
			case err == nil && got.is(http.StatusRequestEntityTooLarge, "too_large"):
				told.Add(1)
			case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
				// It went on writing after the answer, until Envoy hung up: who does not read is not told.
			default:
				t.Errorf("got %v, %v, want 413 too_large", got, err)
			}
		})
	}
	senders.Wait()
	if told.Load() == 0 {
		t.Error("no sender was told 413 too_large")
	}
	if n := read.Load(); n > count*8<<20 {
		t.Errorf("Envoy took %d MiB of %d bodies of 1 MiB at most", n>>20, count)
	}
	if peak, ok := peakMemory(t, x.gate.process.Pid); ok && peak > floodMemory {
		t.Errorf("the gate took %d MiB of memory", peak>>20)
	}
	if n := len(x.app.all()) + int(x.events()); n != 0 {
		t.Errorf("%d of them reached the app or the inbox", n)
	}
}

// Forged bodies as large as a source takes, all at once: what does not fit into limits.bodies_in_flight is told to come
// back, not received. A good one passes in the end.
func TestForgedLargeBodies(t *testing.T) {
	t.Parallel()
	x := start(t, setup{workers: 2, more: "limits: {bodies_in_flight: 25Mi}"})
	body := bytes.Repeat([]byte("x"), 20<<20)
	var senders sync.WaitGroup
	for i := range 12 {
		senders.Go(func() {
			m := github(fmt.Sprint("forged-", i), body, otherSecret)
			// Hidden behind MultiReader the body has no length, and goes in chunks.
			got, err := sendFrom(t.Context(), client, x.url, m, io.MultiReader(bytes.NewReader(body)))
			if err != nil || !got.is(http.StatusUnauthorized, "bad_signature") && got.code != http.StatusServiceUnavailable {
				t.Errorf("got %v, %v, want 401 bad_signature or 503", got, err)
			}
		})
	}
	senders.Wait()
	if peak, ok := peakMemory(t, x.gate.process.Pid); ok && peak > 2*floodMemory {
		t.Errorf("the gate took %d MiB of memory", peak>>20)
	}
	good := github("good", body, githubSecret)
	eventually(t, "a good one passes", func() bool { return x.post(good).body == "thanks" })
}

// Case ENVOY 18: with partial bodies allowed Envoy asks about a body over its limit with the beginning of it. That is
// no body, whatever its length, and nothing of it stays.
func TestPartialBodyOverTheLimit(t *testing.T) {
	t.Parallel()
	x := start(t, setup{envoy: func(b string) string {
		return replaceAll(t, b, "allow_partial_message: false", "allow_partial_message: true")
	}})
	body := bytes.Repeat([]byte("x"), 15<<20)
	for name, test := range map[string]struct {
		body   io.Reader
		status int
		word   string
	}{
		"with its length": {bytes.NewReader(body), http.StatusRequestEntityTooLarge, "too_large"},
		"in chunks":       {io.MultiReader(bytes.NewReader(body)), http.StatusInternalServerError, "body_not_forwarded"},
	} {
		m := standard(t, "/webhooks/standard", "msg_partial", body, time.Now(), standardSecret)
		got, err := sendFrom(t.Context(), client, x.url, m, test.body)
		if err != nil || !got.is(test.status, test.word) {
			t.Errorf("%s: got %v, %v, want %d %s", name, got, err, test.status, test.word)
		}
	}
	if n := len(x.app.all()) + int(x.events()); n != 0 {
		t.Errorf("%d of them reached the app or the inbox", n)
	}
}
