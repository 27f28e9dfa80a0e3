package egress

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// sendSocket returns an endpoint at a socket that nobody listens on yet, and what makes somebody.
func sendSocket(t *testing.T, h http.Handler) (e *Endpoint, listen func() *http.Server) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.sock")
	e = &Endpoint{ID: "payments", Socket: path, Policy: Policy{Timeout: 10 * time.Second, MaxInFlight: 8}}
	return e, func() *http.Server {
		t.Helper()
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		sendRun(t, s, func() error { return s.Serve(l) }, "")
		return s
	}
}

// A socket that is not there is an app that is not there: that holds, and uses no attempt but of a probe.
func TestSendSocket(t *testing.T) {
	t.Parallel()
	var seen sendSeen
	e, listen := sendSocket(t, &seen)
	s := sendAsked(t, Request{Method: "POST", Target: "/hook"})
	send := func(want Outcome) Result {
		t.Helper()
		r := s.Send(t.Context(), e, sendEvent(), 1)
		sendCheck(t, e, r)
		sendWant(t, r, want)
		if want != OutcomeDelivered && !r.Outcome.rule().Holds {
			t.Errorf("%s does not hold", r.Outcome)
		}
		return r
	}
	if r := send(OutcomeUnreachable); r.Detail != "no such file or directory" || r.Wrote {
		t.Errorf("no file: %q, wrote %t", r.Detail, r.Wrote)
	}
	app := listen()
	for i := range 3 {
		if r := send(OutcomeDelivered); r.Reused != (i > 0) || r.IP.IsValid() {
			t.Errorf("attempt %d: reused %t, IP %s", i, r.Reused, r.IP)
		}
	}
	if r, body, n := seen.last(t); n != 3 || r.RequestURI != "/hook" || r.Host != "localhost" || r.Proto != "HTTP/1.1" || string(body) != string(sendEvent().Body) {
		t.Errorf("%d requests, the last %s at %s over %s with %q", n, r.RequestURI, r.Host, r.Proto, body)
	}
	if err := app.Close(); err != nil { // it takes the file with it
		t.Fatal(err)
	}
	s.Retain(NewEndpoints(nil)) // or the kept connection may not have ended yet
	send(OutcomeUnreachable)
	listen()
	send(OutcomeDelivered)
}

// A file that is left behind by an app that was killed refuses.
func TestSendSocketRefuses(t *testing.T) {
	t.Parallel()
	e, _ := sendSocket(t, nil)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: e.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r := sendAsked(t, Request{Method: "POST", Target: "/"}).Send(t.Context(), e, sendEvent(), 1)
	sendCheck(t, e, r)
	sendWant(t, r, OutcomeConnectRefused)
}

// Another path is another pool, and a connection to the old one serves nobody.
func TestSendSocketChanges(t *testing.T) {
	t.Parallel()
	var old, fresh sendSeen
	e, listen := sendSocket(t, &old)
	listen()
	s := sendAsked(t, Request{Method: "POST", Target: "/"})
	sendWant(t, s.Send(t.Context(), e, sendEvent(), 1), OutcomeDelivered)
	moved, listenMoved := sendSocket(t, &fresh)
	listenMoved()
	s.Retain(NewEndpoints([]*Endpoint{moved}))
	if len(s.pools.m) != 0 || s.pools.idle.Len() != 0 {
		t.Errorf("%d pools and %d connections after the change", len(s.pools.m), s.pools.idle.Len())
	}
	sendWant(t, s.Send(t.Context(), moved, sendEvent(), 1), OutcomeDelivered)
	if _, _, n := fresh.last(t); n != 1 || len(old.requests) != 1 {
		t.Errorf("%d requests at the old socket, %d at the new one", len(old.requests), n)
	}
}
