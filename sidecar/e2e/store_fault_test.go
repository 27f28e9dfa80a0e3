package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// An app that fails gets the event again, as another attempt of the same one; the log, the metrics and the command line tell
// of it.
func TestStoreTriesAgain(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: standardIn("waits: [100ms, 100ms, 100ms]")})
	x.app.answerOnce(status(http.StatusInternalServerError))
	x.mustStore(contact(t, "msg_again"))
	x.awaitState("standard", "msg_again", done)
	calls := x.awaitCalls("msg_again", 2)
	for i, c := range calls {
		if got := c.header.Get("X-Sidehook-Attempt"); got != fmt.Sprint(i+1) {
			t.Errorf("call %d came as attempt %q", i+1, got)
		}
		if got := c.header.Get("X-Sidehook-Redelivered"); got != "" {
			t.Errorf("call %d came as redelivered %q", i+1, got)
		}
	}
	if len(calls) != 2 || string(calls[0].body) != string(calls[1].body) {
		t.Errorf("the app was called %d times", len(calls))
	}
	if got, want := x.attempts("standard", "msg_again"), "1 server_error, 2 delivered"; got != want {
		t.Errorf("it is recorded as %q, want %q", got, want)
	}
	for name, want := range map[string]string{
		`sidehook_inbox_attempts_total{outcome="server_error",source="standard"}`: "1",
		`sidehook_inbox_attempts_total{outcome="delivered",source="standard"}`:    "1",
		`sidehook_inbox_deliveries{source="standard",state="DONE"}`:               "1",
		`sidehook_inbox_deliveries{source="standard",state="STORED"}`:             "0",
		`sidehook_extauthz_checks_total{reason="stored",source="standard"}`:       "1",
	} {
		eventually(t, name+" is "+want, func() bool { return x.metric(name) == want })
	}
	logged := slices.ContainsFunc(strings.Split(x.log(), "\n"), func(line string) bool {
		return strings.Contains(line, "server_error") && strings.Contains(line, "msg_again")
	})
	if !logged {
		t.Error("no line of the log tells of the attempt that failed")
	}
	shown := x.sidehook("inbox", "show", "msg_again", "-c", x.config)
	for _, want := range []string{"DONE", "server_error", "delivered"} {
		if !strings.Contains(shown, want) {
			t.Errorf("inbox show does not say %s:\n%s", want, shown)
		}
	}
}

// What an app can answer but 2xx is a failure, and nothing more than that: nobody is disabled, nothing is followed.
func TestStoreAppAnswers(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: standardIn("waits: [100ms, 100ms, 100ms], timeout: 1s")})
	answers := map[string]http.HandlerFunc{
		"rejected":     status(http.StatusBadRequest),
		"too_early":    status(http.StatusTooEarly),
		"gone":         status(http.StatusGone),
		"throttled":    status(http.StatusTooManyRequests),
		"unavailable":  status(http.StatusServiceUnavailable),
		"bad_gateway":  status(http.StatusBadGateway),
		"conn_closed":  hangUp,
		"timeout":      slow(1500 * time.Millisecond),
		"not_modified": status(http.StatusNotModified),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"disable_asked": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Webhook-Delivery", "disable")
			w.WriteHeader(500)
		},
		"abort_asked": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Webhook-Delivery", "abort-message")
			w.WriteHeader(500)
		},
		"multi_statuses": status(http.StatusIMUsed),
	}
	x.app.answer(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Sidehook-Attempt") == "1" {
			answers[r.Header.Get("X-Sidehook-Event-Id")](w, r)
		}
	})
	for id := range answers {
		x.mustStore(contact(t, id))
	}
	for id := range answers {
		x.awaitState("standard", id, done)
		want := 2
		if id == "multi_statuses" { // 226 is one of 2xx
			want = 1
		}
		if n := len(x.app.of(id)); n != want {
			t.Errorf("%s: the app was called %d times, want %d: %s", id, n, want, x.attempts("standard", id))
		}
	}
	for _, c := range x.app.all() {
		if c.target == "/elsewhere" {
			t.Error("a redirect was followed")
		}
	}
}

// An app that asks for a pause gets it for that event alone: the others go on.
func TestStoreHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: standardIn("waits: [100ms, 100ms]")})
	const pause = 2 * time.Second
	x.app.answer(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Sidehook-Event-Id") == "msg_busy" && r.Header.Get("X-Sidehook-Attempt") == "1" {
			w.Header().Set("Retry-After", fmt.Sprint(pause.Seconds()))
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	x.mustStore(contact(t, "msg_busy"))
	x.awaitCalls("msg_busy", 1)
	for i := range 10 {
		id := fmt.Sprintf("msg_%d", i)
		x.mustStore(contact(t, id))
		x.awaitState("standard", id, done)
	}
	others := time.Now()
	x.awaitState("standard", "msg_busy", done)
	calls := x.app.of("msg_busy")
	if wait := calls[1].at.Sub(calls[0].at); wait < pause {
		t.Errorf("the app asked for %v, and was called again after %v", pause, wait)
	}
	if !others.Before(calls[1].at) {
		t.Error("the other events waited for the one that was to come later")
	}
}

// An event that the app refuses until its attempts are used up is a dead letter. A person can have it sent again, discard it,
// or remove what it holds.
func TestStoreDeadLetters(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: standardIn("waits: [100ms, 100ms]")})
	x.app.answer(status(http.StatusInternalServerError))
	for _, id := range []string{"msg_redelivered", "msg_discarded", "msg_expunged"} {
		x.mustStore(contact(t, id))
	}
	for _, id := range []string{"msg_redelivered", "msg_discarded", "msg_expunged"} {
		x.awaitState("standard", id, deadState)
		if got, want := x.attempts("standard", id), "1 server_error, 2 server_error, 3 server_error"; got != want {
			t.Errorf("%s is recorded as %q, want %q", id, got, want)
		}
		if got := x.post(contact(t, id)); !got.is(http.StatusOK, "duplicate") {
			t.Errorf("%s is dead, and the sender got %v, want 200 duplicate", id, got)
		}
	}
	calls := len(x.app.all())
	x.app.answer(nil)
	named := func(id string) []*inboxv1.EventName { return []*inboxv1.EventName{{Source: "standard", Id: id}} }

	again, err := x.admin.RedeliverEvents(t.Context(), connect.NewRequest(&inboxv1.RedeliverEventsRequest{Events: named("msg_redelivered")}))
	if err != nil || len(again.Msg.GetResults()) != 1 || again.Msg.GetResults()[0].GetError() != "" {
		t.Fatalf("redeliver: %v, %v", again, err)
	}
	x.awaitState("standard", "msg_redelivered", done)
	if c := x.app.of("msg_redelivered"); len(c) != 4 || c[3].header.Get("X-Sidehook-Redelivered") != "true" || string(c[3].body) != string(c[0].body) {
		t.Errorf("the redelivery came as %d calls, %+v", len(c), c[len(c)-1].header)
	}

	discarded, err := x.admin.DiscardEvents(t.Context(), connect.NewRequest(&inboxv1.DiscardEventsRequest{Events: named("msg_discarded")}))
	if err != nil || len(discarded.Msg.GetResults()) != 1 || discarded.Msg.GetResults()[0].GetError() != "" {
		t.Fatalf("discard: %v, %v", discarded, err)
	}
	x.awaitState("standard", "msg_discarded", discardedState)
	if _, err := x.admin.ExpungeEvent(t.Context(), connect.NewRequest(&inboxv1.ExpungeEventRequest{Event: named("msg_expunged")[0]})); err != nil {
		t.Fatalf("expunge: %v", err)
	}
	x.awaitState("standard", "msg_expunged", discardedState)
	e := x.detail("standard", "msg_expunged")
	if r := e.GetRequest(); len(r.GetBody()) != 0 || len(r.GetHeaders()) != 0 || e.GetEvent().GetDelivery().GetBodyKept() {
		t.Errorf("what was expunged still holds %d bytes and %d headers", len(r.GetBody()), len(r.GetHeaders()))
	}
	for _, id := range []string{"msg_discarded", "msg_expunged", "msg_redelivered"} {
		if got := x.post(contact(t, id)); !got.is(http.StatusOK, "duplicate") {
			t.Errorf("%s: the sender got %v, want 200 duplicate", id, got)
		}
	}
	if n := len(x.app.all()) - calls; n != 1 {
		t.Errorf("the app was called %d times more, want once: for the redelivery", n)
	}
}

// While the app cannot be reached it is probed, with another event each time; nobody else loses an attempt. Once it is back
// the events come oldest first.
func TestStoreAppUnreachable(t *testing.T) {
	t.Parallel()
	const events = 20
	x := start(t, setup{sources: standardIn("max_in_flight: 1, waits: [1h]")})
	x.app.down()
	var ids []string
	for i := range events {
		ids = append(ids, fmt.Sprintf("msg_%02d", i))
		x.mustStore(contact(t, ids[i]))
	}
	tried := func() (probes int) {
		for _, id := range ids {
			d := x.event("standard", id).GetDelivery()
			if d.GetAttempts() > 1 {
				t.Fatalf("%s lost %d attempts: %s", id, d.GetAttempts(), x.attempts("standard", id))
			}
			probes += int(d.GetTries())
		}
		return probes
	}
	// The first attempt fails, then probes after 1s and 2s.
	began := time.Now()
	eventually(t, "the app is probed", func() bool { return tried() >= 3 })
	if took := time.Since(began); took < time.Second {
		t.Errorf("three attempts within %v: nobody waits between them", took)
	}
	if got := x.metric("sidehook_inbox_held_sources"); got != "1" {
		t.Errorf("sidehook_inbox_held_sources is %s", got)
	}
	failed := tried()
	if failed > 5 {
		t.Errorf("%d attempts were made at an app that is not there", failed)
	}
	x.app.up(t)
	var want []string
	for _, id := range ids {
		if x.event("standard", id).GetDelivery().GetTries() == 0 {
			want = append(want, id)
		}
	}
	eventually(t, "all that was not tried yet is delivered", func() bool { return len(x.app.all()) >= len(want) })
	var got []string
	for _, c := range x.app.all() {
		if slices.Contains(want, c.id()) {
			got = append(got, c.id())
		}
	}
	if !slices.IsSorted(got) {
		t.Errorf("they came in the order %v", got)
	}
	if n := x.metric("sidehook_inbox_held_sources"); n != "0" {
		t.Errorf("sidehook_inbox_held_sources is %s once it is back", n)
	}
}

// A delivery.url that leads back to the gate is a mistake that must not look like success: the gate's answer is not the app's.
func TestStoreLoop(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, path string }{
		{"to the source itself", ""}, {"to what is open", "/open/in"}, {"to nobody's path", "/nowhere"}, {"to a source in PASS", "/webhooks/stripe"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := start(t, setup{listen: freeAddr(t), open: "[{path_prefix: /open}]", sources: fmt.Sprintf(`
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], mode: STORE, delivery: {url: "http://LISTEN", path: "%s", waits: [200ms]}}
  - {name: payments, match: {path_prefix: /webhooks/stripe}, provider: stripe, secrets: [{file: FOLDER/stripe}]}`, test.path)})
			x.mustStore(contact(t, "msg_loop"))
			x.awaitState("standard", "msg_loop", deadState)
			for _, a := range x.detail("standard", "msg_loop").GetAttempts() {
				if a.GetStatus() != http.StatusLoopDetected || a.GetOutcome() == "delivered" {
					t.Errorf("an attempt is recorded as %v", a)
				}
			}
			if n := len(x.app.all()); n != 0 {
				t.Errorf("the app was called %d times", n)
			}
			if !strings.Contains(x.log(), `"reason":"loop"`) {
				t.Error("the log does not say that there is a loop")
			}
			if got := x.events(); got != 1 {
				t.Errorf("the inbox holds %d events, want the one", got)
			}
		})
	}
}

// A process that is stopped or killed in the middle of a delivery brings the event again, at once, and nobody lost an attempt.
func TestStoreStopsUnderLoad(t *testing.T) {
	t.Parallel()
	const events, inFlight = 30, 10
	x := start(t, setup{sources: standardIn(fmt.Sprintf("max_in_flight: %d", inFlight))})
	first := contact(t, "msg_first")
	x.mustStore(first)
	x.awaitState("standard", "msg_first", done) // a source that has taken an event may use all its slots
	hold := make(chan struct{})
	var waiting atomic.Int64
	x.app.answer(func(_ http.ResponseWriter, r *http.Request) {
		waiting.Add(1)
		defer waiting.Add(-1)
		select {
		case <-hold:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	})
	var ids []string
	for i := range events {
		ids = append(ids, fmt.Sprintf("msg_%02d", i))
		x.mustStore(contact(t, ids[i]))
	}
	eventually(t, "as many as may be are with the app", func() bool { return waiting.Load() == inFlight })
	<-time.After(500 * time.Millisecond) // what takes longer than 50 ms is known on disk to be under way
	if err := x.gate.kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the app sees that", func() bool { return waiting.Load() == 0 })
	x.startGate()
	eventually(t, "some are with the app again", func() bool { return waiting.Load() > 0 }) // a backlog goes slowly at first
	killed := len(x.app.all())
	ended := make(chan error, 1)
	go func() { ended <- x.gate.stop() }()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v, want exit 0", err)
	}
	if n := len(x.app.all()) - killed; n != 0 {
		t.Errorf("%d attempts were begun while it stopped", n)
	}
	close(hold)
	x.startGate()
	interrupted := 0
	for _, id := range ids {
		x.awaitState("standard", id, done)
		attempts := x.detail("standard", id).GetAttempts()
		for i, a := range attempts {
			last := i == len(attempts)-1
			if want := map[bool]string{true: "delivered", false: "interrupted"}[last]; a.GetOutcome() != want || a.GetCounted() != last {
				t.Errorf("%s is recorded as %q", id, x.attempts("standard", id))
			}
		}
		if len(attempts) > 1 {
			interrupted++
		}
		if n := len(x.app.of(id)); n != len(attempts) {
			t.Errorf("%s came %d times and is recorded as %q", id, n, x.attempts("standard", id))
		}
	}
	if interrupted < inFlight {
		t.Errorf("%d events were interrupted, want the %d that were with the app at the kill", interrupted, inFlight)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.gate.stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), path, "store", "check", "-c", x.config).CombinedOutput(); err != nil {
		t.Errorf("store check: %v\n%s", err, out)
	}
}
