package e2e

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// app is the user's: it takes what comes and remembers it.
type app struct {
	addr   string
	server *http.Server

	mu    sync.Mutex // covers all below
	calls []call
	do    http.HandlerFunc // nil: 200
}

// call is one request that reached the app.
type call struct {
	method, target, host string
	header               http.Header
	body                 []byte
	at                   time.Time
}

// id is what the gate says the event is.
func (c call) id() string { return c.header.Get("X-Sidehook-Event-Id") }

func startApp(t *testing.T) *app {
	t.Helper()
	a := &app{addr: freeAddr(t)} // one that nobody takes while it is down
	a.up(t)
	t.Cleanup(a.down)
	return a
}

// up has the app listen, at its old address if it had one.
func (a *app) up(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	a.addr = listener.Addr().String()
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: patience}
	go func() { _ = a.server.Serve(listener) }() // ends with down
}

// down closes the listener and every connection.
func (a *app) down() { _ = a.server.Close() }

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	a.mu.Lock()
	a.calls = append(a.calls, call{method: r.Method, target: r.RequestURI, host: r.Host, header: r.Header.Clone(), body: body, at: time.Now()})
	do := a.do
	a.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	if do == nil {
		w.Header().Set("Server", "unchanged-app")
		_, _ = io.WriteString(w, "thanks") // the sender may have gone
		return
	}
	do(w, r)
}

// answer has the app answer with do from now on; nil: with 200.
func (a *app) answer(do http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.do = do
}

// answerOnce has the app answer its next request with do, and the later ones with 200.
func (a *app) answerOnce(do http.HandlerFunc) {
	a.answer(func(w http.ResponseWriter, r *http.Request) {
		a.answer(nil)
		do(w, r)
	})
}

// of returns the calls for an event, in order.
func (a *app) of(id string) []call {
	a.mu.Lock()
	defer a.mu.Unlock()
	var calls []call
	for _, c := range a.calls {
		if c.id() == id {
			calls = append(calls, c)
		}
	}
	return calls
}

// all returns every call, in order.
func (a *app) all() []call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// status answers with a code.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hangUp closes the connection without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// slow answers 200 after a while, also when nobody waits any more.
func slow(d time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		<-timer.C
		w.WriteHeader(http.StatusOK)
	}
}
