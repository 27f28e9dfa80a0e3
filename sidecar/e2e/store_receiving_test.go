package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// The bodies of the classes BODY and CHARSET, in STORE: the app gets the very bytes in the first attempt, in the next one, and
// when a person has a dead letter sent again.
func TestStoredBodiesArriveByteForByte(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: standardIn("waits: [100ms], rate: 1000/s")})
	x.app.answer(status(http.StatusInternalServerError))
	bodies := make(map[string]string)
	var names []*inboxv1.EventName
	for i, b := range oddBodies(t) {
		for j, way := range waysOfSending() {
			id := fmt.Sprintf("msg_%d_%d", i, j)
			m := standard(t, "/webhooks/standard", id, []byte(b.body), time.Now(), standardSecret)
			m.header.Set("Content-Type", "application/octet-stream")
			if b.coding != "" {
				m.header.Set("Content-Encoding", b.coding)
			}
			m.chunked = way.chunked
			got, err := send(t.Context(), way.client, x.url, m)
			if err != nil {
				t.Fatal(err)
			}
			if !got.is(http.StatusOK, "stored") {
				t.Fatalf("%s %s: the sender got %v, want 200 stored", b.name, way.name, got)
			}
			bodies[id] = b.body
			names = append(names, &inboxv1.EventName{Source: "standard", Id: id})
		}
	}
	for id := range bodies {
		x.awaitState("standard", id, deadState)
	}
	x.app.answer(nil)
	if _, err := x.admin.RedeliverEvents(t.Context(), connect.NewRequest(&inboxv1.RedeliverEventsRequest{Events: names})); err != nil {
		t.Fatal(err)
	}
	for id, body := range bodies {
		x.awaitState("standard", id, done)
		calls := x.app.of(id)
		if len(calls) != 3 {
			t.Errorf("%s: the app was called %d times, want 3", id, len(calls))
		}
		for i, c := range calls {
			if string(c.body) != body {
				t.Errorf("%s: call %d of the app had %q, want %q", id, i+1, c.body, body)
			}
		}
	}
}

// Senders ask again while the first request is under way, fifty at a time: one event is kept, the app is called once, and all
// senders are told that they need not come again.
func TestStoreOneCallForMany(t *testing.T) {
	t.Parallel()
	x := start(t, setup{workers: 2, sources: standardIn("")})
	x.app.answer(slow(200 * time.Millisecond))
	m := contact(t, "msg_many")
	var mu sync.Mutex // covers answers
	answers := make(map[string]int)
	var senders sync.WaitGroup
	for range 50 {
		senders.Go(func() {
			got, err := send(t.Context(), client, x.url, m)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[strings.TrimSpace(got.String())]++
		})
	}
	senders.Wait()
	if answers[`200 {"status":"stored"}`] != 1 || answers[`200 {"status":"duplicate"}`] != 49 {
		t.Errorf("the senders got %v", answers)
	}
	x.awaitState("standard", "msg_many", done)
	x.mustStore(contact(t, "msg_after")) // by the time that this one is through, a second call would have come
	x.awaitState("standard", "msg_after", done)
	if n := len(x.app.of("msg_many")); n != 1 {
		t.Errorf("the app was called %d times, want once", n)
	}
}

// GitHub's largest bodies, in the mode that its preset asks for: 24.9 MB each, several at once and with the app away, so that
// they queue. What does not fit into the memory for bodies is told to come back; sending them on takes no more than that either.
func TestStoreBodiesAsLargeAsGitHubSends(t *testing.T) {
	t.Parallel()
	const many = 6
	x := start(t, setup{more: "limits: {bodies_in_flight: 64Mi}", sources: `
  - {name: code, match: {path: /webhooks/github, method: POST}, provider: github, secrets: [{file: FOLDER/github}], mode: STORE, delivery: {url: "http://APP"}}`})
	x.app.down()
	body := bytes.Repeat([]byte("0123456789abcdef"), 24_900_000/16)
	own := func(i int) []byte { return append(slices.Clone(body), byte('0'+i)) }
	for i := range many {
		m := github(fmt.Sprintf("delivery-%d", i), own(i), githubSecret)
		eventually(t, "a body is kept", func() bool {
			got := x.post(m)
			if !got.is(http.StatusOK, "stored") && !got.is(http.StatusServiceUnavailable, "busy") {
				t.Fatalf("the sender got %v, want 200 stored or 503 busy", got)
			}
			return got.code == http.StatusOK
		})
	}
	var now, most atomic.Int64
	x.app.answer(func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		most.Store(max(most.Load(), n))
		slow(300*time.Millisecond)(w, r)
	})
	x.app.up(t)
	peak := anonymousMemory(t, x.gate.process.Pid)
	for i := range many {
		id := fmt.Sprintf("delivery-%d", i)
		eventually(t, "a body is delivered", func() bool {
			peak = max(peak, anonymousMemory(t, x.gate.process.Pid))
			return x.app.of(id) != nil
		})
		x.awaitState("code", id, done)
		if calls := x.app.of(id); len(calls) != 1 || !bytes.Equal(calls[0].body, own(i)) {
			t.Errorf("%s: the app was called %d times, or with another body", id, len(calls))
		}
	}
	if n := most.Load(); n > 2 {
		t.Errorf("%d of them were with the app at one time, want 2: no more fit into the memory for bodies", n)
	}
	// 128 MiB and twice the bodies in flight is what the gate tells the collector to keep to, and bodies that wait are not in memory.
	if peak > 384<<20 {
		t.Errorf("the gate took %d MiB of memory", peak>>20)
	}
}
