package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// Each way in which a request can end, by what it makes of the claim: the table of contract section 6. Both channels of
// the confirm have to come to the same end.
func TestEnds(t *testing.T) {
	t.Parallel()
	// The app has 1.5s of the lease of 2s, so "too slow" is 504 by Envoy while the app still works.
	tooSlow := slow(1800 * time.Millisecond)
	ends := []struct {
		name string
		do   http.HandlerFunc
		code int // what the sender gets
		// released: the next try passes at once. Otherwise nobody knows, and it passes when the lease has ended.
		released bool
	}{
		{"500", status(500), 500, true},
		{"503", status(503), 503, true},
		{"404", status(404), 404, true},
		{"302", status(302), 302, true},
		{"hangs up", hangUp, 503, false},
		{"too slow", tooSlow, 504, false},
	}
	for _, source := range []struct{ name, target string }{{"standard", "/webhooks/standard"}, {"sync", "/webhooks/sync"}} {
		for i, end := range ends {
			t.Run(source.name+"/"+end.name, func(t *testing.T) {
				t.Parallel()
				x := start(t, setup{})
				id := fmt.Sprintf("msg_end_%d", i)
				m := standard(t, source.target, id, []byte(`{}`), time.Now(), standardSecret)
				x.app.answerOnce(end.do)
				began := time.Now()
				if got := x.post(m); got.code != end.code {
					t.Fatalf("the sender got %v, want %d", got, end.code)
				}
				if end.released {
					x.awaitFree(source.name, id)
				} else {
					got := x.post(m)
					seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
					if got.code != http.StatusServiceUnavailable || err != nil || seconds < 1 || seconds > 2 {
						t.Errorf("within the lease a repeat got %v, Retry-After %q, want 503 and the rest of the lease", got, got.header.Get("Retry-After"))
					}
					if n := len(x.app.of(id)); n != 1 {
						t.Errorf("within the lease the app was called %d times, want once", n)
					}
				}
				// The sender tries again, as it does.
				eventually(t, "a repeat passes", func() bool { return x.post(m).body == "thanks" })
				if waited := time.Since(began); !end.released && waited < 2*time.Second {
					t.Errorf("the next try passed after %v, before the end of the lease", waited)
				}
				if n := len(x.app.of(id)); n != 2 {
					t.Errorf("the app was called %d times, want 2", n)
				}
				x.awaitState(source.name, id, inboxv1.EventState_EVENT_STATE_DONE)
				if got := x.post(m); !got.is(http.StatusOK, "duplicate") {
					t.Errorf("after its success a repeat got %v, want 200 duplicate", got)
				}
			})
		}
	}
}

// The app is down: it cannot have acted, so the next try passes at once.
func TestAppIsDown(t *testing.T) {
	t.Parallel()
	x := start(t, setup{})
	m := contact(t, "msg_down")
	x.app.down()
	if got := x.post(m); got.code != http.StatusServiceUnavailable {
		t.Fatalf("the sender got %v, want 503", got)
	}
	x.awaitFree("standard", "msg_down")
	x.app.up(t)
	if got := x.post(m); got.body != "thanks" {
		t.Errorf("with the app up again the sender got %v", got)
	}
}

// The sender hangs up while the app works: nobody knows whether the app finished, and Envoy will not say.
func TestSenderHangsUp(t *testing.T) {
	t.Parallel()
	for _, source := range []struct{ name, target string }{{"standard", "/webhooks/standard"}, {"sync", "/webhooks/sync"}} {
		t.Run(source.name, func(t *testing.T) {
			t.Parallel()
			x := start(t, setup{})
			m := standard(t, source.target, "msg_gone", []byte(`{}`), time.Now(), standardSecret)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			x.app.answerOnce(func(w http.ResponseWriter, r *http.Request) {
				cancel()
				<-r.Context().Done() // Envoy hung up too
			})
			if got, err := send(ctx, client, x.url, m); err == nil {
				t.Fatalf("the sender got %v", got)
			}
			if got := x.post(m); got.code != http.StatusServiceUnavailable {
				t.Errorf("within the lease a repeat got %v, want 503", got)
			}
			eventually(t, "a repeat passes", func() bool { return x.post(m).body == "thanks" })
			if n := len(x.app.of("msg_gone")); n != 2 {
				t.Errorf("the app was called %d times, want 2", n)
			}
		})
	}
}

// HOLD: what nobody knows stays closed until a person opens it.
func TestUnknownEndIsHeld(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: `
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], lease: 1s, on_unknown: HOLD}`})
	m := contact(t, "msg_hold")
	x.app.answerOnce(hangUp)
	if got := x.post(m); got.code != http.StatusServiceUnavailable {
		t.Fatalf("the sender got %v", got)
	}
	x.awaitState("standard", "msg_hold", inboxv1.EventState_EVENT_STATE_UNKNOWN)
	if got := x.post(m); got.code != http.StatusServiceUnavailable {
		t.Errorf("a held event got %v, want 503", got)
	}
	if n := len(x.app.of("msg_hold")); n != 1 {
		t.Fatalf("the app was called %d times, want once", n)
	}
	x.sidehook("inbox", "release", "msg_hold", "-c", x.config)
	if got := x.post(m); got.body != "thanks" {
		t.Errorf("after its release it got %v, want the app's answer", got)
	}
}

// 50 requests with one id at once call the app once. The others are told to come back, or wait where the source says so.
func TestOneCallForMany(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, wait string
		others     int
	}{
		{"told to come back", "0s", http.StatusServiceUnavailable},
		{"waiting", "5s", http.StatusOK},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := start(t, setup{workers: 2, sources: `
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], lease: 30s, in_flight_wait: ` + test.wait + `}`})
			m := contact(t, "msg_many")
			const many = 50
			arrived := make(chan struct{})
			var answered atomic.Int64
			x.app.answer(func(w http.ResponseWriter, r *http.Request) {
				if test.others == http.StatusOK {
					close(arrived)
					slow(200*time.Millisecond)(w, r)
					return
				}
				// All the others have their answers before the first one gets its own.
				deadline := time.NewTimer(patience)
				defer deadline.Stop()
				tick := time.NewTicker(pollEvery)
				defer tick.Stop()
				for answered.Load() < many-1 {
					select {
					case <-deadline.C:
						return
					case <-tick.C:
					}
				}
			})
			var codes [600]atomic.Int64
			var senders sync.WaitGroup
			for range many {
				senders.Go(func() {
					got, err := send(t.Context(), client, x.url, m)
					if err != nil {
						t.Error(err)
						return
					}
					codes[got.code].Add(1)
					answered.Add(1)
				})
			}
			senders.Wait()
			if n := len(x.app.of("msg_many")); n != 1 {
				t.Errorf("the app was called %d times, want once", n)
			}
			if test.others == http.StatusOK {
				<-arrived
				if n := codes[http.StatusOK].Load(); n != many {
					t.Errorf("%d of %d got 200", n, many)
				}
				return
			}
			if ok, busy := codes[http.StatusOK].Load(), codes[http.StatusServiceUnavailable].Load(); ok != 1 || busy != many-1 {
				t.Errorf("%d got 200 and %d got 503, want 1 and %d", ok, busy, many-1)
			}
		})
	}
}

// EXT_PROC: when the sender sees 2xx, DONE is on disk.
func TestExtProcIsDoneBeforeTheSenderSeesIt(t *testing.T) {
	t.Parallel()
	x := start(t, setup{})
	for i := range 20 {
		id := fmt.Sprintf("msg_sync_%d", i)
		if got := x.post(standard(t, "/webhooks/sync", id, []byte(`{}`), time.Now(), standardSecret)); got.body != "thanks" {
			t.Fatalf("the sender got %v", got)
		}
		if e := x.event("sync", id); e.GetState() != inboxv1.EventState_EVENT_STATE_DONE {
			t.Fatalf("the sender has its 200 and the event is %v", e)
		}
	}
}

// Case ENVOY 87: somebody's Envoy retries. The last answer decides, once.
func TestRouteRetriesEndAsTheLastAnswer(t *testing.T) {
	t.Parallel()
	x := start(t, setup{envoy: func(bootstrap string) string {
		return replaceAll(t, bootstrap, "retry_policy: {num_retries: 0}", `retry_policy: {num_retries: 2, retry_on: "5xx"}`)
	}})
	for _, source := range []struct{ name, target string }{{"standard", "/webhooks/standard"}, {"sync", "/webhooks/sync"}} {
		m := standard(t, source.target, "msg_retry", []byte(`{}`), time.Now(), standardSecret)
		before := len(x.app.all())
		x.app.answerOnce(status(503))
		if got := x.post(m); got.body != "thanks" {
			t.Fatalf("%s: the sender got %v, want the answer of the second call", source.name, got)
		}
		x.awaitState(source.name, "msg_retry", inboxv1.EventState_EVENT_STATE_DONE)
		if got := x.post(m); !got.is(http.StatusOK, "duplicate") {
			t.Errorf("%s: a repeat got %v, want 200 duplicate", source.name, got)
		}
		if n := len(x.app.all()) - before; n != 2 {
			t.Errorf("%s: the app was called %d times, want 2", source.name, n)
		}
	}
}

// A client cannot have our Envoy call the app twice, whatever it sends; also not where Envoy takes it for an internal one,
// whose x-envoy-* it obeys (private addresses are internal for older Envoys, and for this one where its user says so).
func TestClientCannotAskForRetries(t *testing.T) {
	t.Parallel()
	x := start(t, setup{envoy: func(bootstrap string) string {
		return replaceOnce(t, bootstrap, "          stat_prefix: inbound\n", `          stat_prefix: inbound
          internal_address_config: {cidr_ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]}
`)
	}})
	m := contact(t, "msg_greedy")
	for name, value := range map[string]string{
		"X-Envoy-Retry-On": "5xx", "X-Envoy-Max-Retries": "5", "X-Envoy-Hedge-On-Per-Try-Timeout": "true",
		"X-Envoy-Upstream-Rq-Per-Try-Timeout-Ms": "5", "X-Envoy-Upstream-Rq-Timeout-Ms": "60000",
		"X-Forwarded-For": "10.0.0.1",
	} {
		m.header.Set(name, value)
	}
	x.app.answer(status(503))
	if got := x.post(m); got.code != http.StatusServiceUnavailable {
		t.Fatalf("the sender got %v", got)
	}
	if n := len(x.app.of("msg_greedy")); n != 1 {
		t.Errorf("the app was called %d times for one Check", n)
	}
}
