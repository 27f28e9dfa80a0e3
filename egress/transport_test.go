package egress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// keptConns returns how many connections the sender keeps, in all its pools.
func (s *HTTPSender) keptConns() (n int) {
	s.pools.mu.Lock()
	defer s.pools.mu.Unlock()
	for _, p := range s.pools.m {
		n += len(p.conns)
	}
	return n
}

// age makes all kept connections older, as if time had passed.
func (s *HTTPSender) age(d time.Duration) {
	s.pools.mu.Lock()
	defer s.pools.mu.Unlock()
	for _, p := range s.pools.m {
		for _, c := range p.conns {
			c.made, c.idleSince = c.made.Add(-d), c.idleSince.Add(-d)
		}
	}
}

// reapAll has the reaper of each pool come now.
func (s *HTTPSender) reapAll() {
	s.pools.mu.Lock()
	var all []*pool
	for _, p := range s.pools.m {
		all = append(all, p)
	}
	s.pools.mu.Unlock()
	for _, p := range all {
		s.pools.reap(p)
	}
}

// sendCounted is a receiver that says yes, after before if that is set, and counts connections, made and open.
type sendCounted struct {
	before               func()
	requests, made, open atomic.Int32
}

func (c *sendCounted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.requests.Add(1)
	if c.before != nil {
		c.before()
	}
	sendInstant(w, r)
}

func (c *sendCounted) state(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.made.Add(1)
		c.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
	}
}

func (c *sendCounted) serve(t *testing.T, ca *sendCA, protocol string) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: c, ConnState: c.state, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}}
	s.Protocols.SetHTTP1(protocol == "http/1.1")
	s.Protocols.SetHTTP2(protocol == "h2")
	return sendRun(t, s, func() error { return s.ServeTLS(l, "", "") }, "https://"+l.Addr().String())
}

func TestConnectionIsKept(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			var receiver sendCounted
			e, s := sendEndpoint(t, receiver.serve(t, ca, protocol), sendTrusting(ca.pool)), sendSender(t)
			send := func(reused bool) {
				t.Helper()
				r := sendWith(t, s, e, 1)
				if r.Outcome != OutcomeDelivered || r.Reused != reused || r.IP.String() != "127.0.0.1" {
					t.Errorf("%s (%s), reused %t, want %t; IP %s", r.Outcome, r.Detail, r.Reused, reused, r.IP)
				}
			}
			send(false)
			send(true)
			s.age(maxConnIdle - time.Second)
			send(true) // begins just in time
			s.age(maxConnAge - maxConnIdle)
			send(true)
			s.age(time.Second)
			send(false) // the first one is a minute old now, and is closed
			s.reapAll()
			sendEventually(t, "the old connection is closed", func() bool { return receiver.open.Load() == 1 })
			send(true)
			s.age(maxConnIdle)
			s.reapAll()
			sendEventually(t, "the idle connection is closed", func() bool { return receiver.open.Load() == 0 })
			if made, kept := receiver.made.Load(), s.keptConns(); made != 2 || kept != 0 || len(s.pools.m) != 0 {
				t.Errorf("%d connections made, %d kept in %d pools", made, kept, len(s.pools.m))
			}
		})
	}
}

// The reaper comes by itself, for the connection that ends first.
func TestConnectionReaperIsSet(t *testing.T) {
	t.Parallel()
	e, s := sendEndpoint(t, sendHTTP(t, http.HandlerFunc(sendInstant))), sendSender(t)
	sendWith(t, s, e, 1)
	s.pools.mu.Lock()
	p := s.pools.m[keyOf(e)]
	left := time.Until(p.reapAt)
	now := time.Now()
	s.pools.armLocked(p, now.Add(time.Hour), now) // later: changes nothing
	later := time.Until(p.reapAt)
	p.conns[0].made = now.Add(-maxConnAge)
	s.pools.armLocked(p, now, now)
	s.pools.mu.Unlock()
	if left <= 0 || left > maxConnIdle || later > maxConnIdle {
		t.Errorf("the reaper comes in %s, then in %s", left, later)
	}
	sendEventually(t, "the reaper closes the connection", func() bool { return s.keptConns() == 0 })
}

// Connections serve one endpoint under one filter. What a reload changes or removes is closed at once.
func TestConnectionsAreApart(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	var receiver sendCounted
	at := receiver.serve(t, ca, "http/1.1")
	s := sendSender(t)
	acme, other := sendEndpoint(t, at+"/in", sendTrusting(ca.pool)), sendEndpoint(t, at+"/in", sendTrusting(ca.pool))
	other.ID = "other"
	otherFilter, otherURL := *acme, sendEndpoint(t, at+"/new", sendTrusting(ca.pool))
	otherFilter.Filter = otherURL.Filter
	otherURL.Filter = acme.Filter
	otherHeader := *acme
	otherHeader.Tenant = "changed in what is no matter to a connection"

	for _, e := range []*Endpoint{acme, other, &otherFilter, otherURL} {
		if r := sendWith(t, s, e, 1); r.Outcome != OutcomeDelivered || r.Reused {
			t.Errorf("%s (%s), reused %t: a connection of another", r.Outcome, r.Detail, r.Reused)
		}
	}
	s.Retain(NewEndpoints([]*Endpoint{&otherHeader, other}))
	sendEventually(t, "what serves nobody is closed", func() bool { return receiver.open.Load() == 2 })
	for _, e := range []*Endpoint{&otherHeader, other} {
		if r := sendWith(t, s, e, 1); !r.Reused {
			t.Errorf("the connection of %s was closed", e.ID)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sendEventually(t, "all is closed", func() bool { return receiver.open.Load() == 0 })
}

// An attempt in flight outlives the reload that drops its endpoint, and its connection does not outlive the attempt.
func TestConnectionInFlightWhenDropped(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	for _, protocol := range []string{"http/1.1", "h2"} {
		arrived, answer := make(chan struct{}), make(chan struct{})
		c := &sendCounted{before: func() {
			close(arrived)
			<-answer
		}}
		at := c.serve(t, ca, protocol)
		e, s := sendEndpoint(t, at, sendTrusting(ca.pool)), sendSender(t)
		got := make(chan Result, 1)
		go func() { got <- s.Send(t.Context(), e, sendEvent(), 1) }()
		<-arrived
		s.Retain(NewEndpoints(nil))
		close(answer)
		sendWant(t, <-got, OutcomeDelivered)
		if n := s.keptConns(); n != 0 {
			t.Errorf("%s: %d connections kept", protocol, n)
		}
		sendEventually(t, protocol+": the connection is closed", func() bool { return c.open.Load() == 0 })
	}
}

// A name is looked up and judged for every attempt: what was allowed a second ago is refused now, kept connection or not.
func TestNameIsJudgedForEveryAttempt(t *testing.T) {
	t.Parallel()
	var receiver sendSeen
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(sendHTTP(t, &receiver), "http://"))
	var lookups, rebound atomic.Int32
	e := sendEndpoint(t, "http://hooks.acme.example:"+port, sendNamed(t, func(name string) sendDNS {
		if lookups.Add(1); name != "hooks.acme.example." {
			t.Errorf("asked for %q", name)
		}
		if rebound.Load() == 1 {
			return sendDNS{addrs: "169.254.169.254"}
		}
		return sendDNS{addrs: "127.0.0.1"}
	}))
	s := sendSender(t)
	sendWant(t, sendWith(t, s, e, 1), OutcomeDelivered)
	once := lookups.Load()
	if r := sendWith(t, s, e, 2); !r.Reused || lookups.Load() != 2*once {
		t.Errorf("reused %t, %d questions, then %d", r.Reused, once, lookups.Load())
	}
	rebound.Store(1)
	sendWant(t, sendWith(t, s, e, 3), OutcomeAddressRefused)
	if _, _, n := receiver.last(t); n != 2 {
		t.Errorf("%d requests arrived, want 2", n)
	}
	rebound.Store(0)
	sendWant(t, sendWith(t, s, e, 4), OutcomeDelivered)
}

// A receiver gets at most one request for each attempt that is logged. net/http's own Transport would send a second one
// by itself in some of these cases.
func TestOneRequestPerAttempt(t *testing.T) {
	t.Parallel()
	for _, tlsOn := range []bool{false, true} {
		for name, end := range map[string]func(net.Conn){"closes": func(c net.Conn) { c.Close() }, "resets": sendReset} {
			t.Run(fmt.Sprintf("TLS %t, %s", tlsOn, name), func(t *testing.T) {
				t.Parallel()
				ca := newSendCA(t)
				config := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}}
				var requests, conns atomic.Int32
				scheme := "http"
				if tlsOn {
					scheme = "https"
				}
				at := sendServe(t, func(raw net.Conn) {
					conns.Add(1)
					c := raw
					if tlsOn {
						c = tls.Server(raw, config)
					}
					br := bufio.NewReader(c)
					if _, _, err := sendReadRequest(br); err != nil {
						return
					}
					requests.Add(1)
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					// The second request is read whole, and its connection ends without an answer.
					if _, _, err := sendReadRequest(br); err == nil {
						requests.Add(1)
						if name == "resets" {
							end(raw)
						} else {
							end(c)
						}
					}
				})
				e, s := sendEndpoint(t, scheme+"://"+at, sendTrusting(ca.pool)), sendSender(t)
				for attempt, want := range []Outcome{OutcomeDelivered, OutcomeStaleConnection, OutcomeDelivered, OutcomeStaleConnection} {
					r := sendWith(t, s, e, attempt+1)
					sendWant(t, r, want)
					if r.Reused != (want == OutcomeStaleConnection) || !r.Wrote {
						t.Errorf("attempt %d: reused %t, wrote %t", attempt+1, r.Reused, r.Wrote)
					}
					if n := int(requests.Load()); n != attempt+1 {
						t.Errorf("%d requests after %d attempts", n, attempt+1)
					}
				}
				if n := conns.Load(); n != 2 {
					t.Errorf("%d connections", n)
				}
			})
		}
	}
}

// A header like this makes net/http's Transport believe that a request may be sent twice.
func TestOneRequestDespiteIdempotencyKey(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	at := sendServe(t, func(c net.Conn) {
		for br := bufio.NewReader(c); ; {
			if _, _, err := sendReadRequest(br); err != nil {
				return
			}
			if requests.Add(1) > 1 {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	e, s := sendEndpoint(t, "http://"+at), sendSender(t)
	ev := sendEvent()
	ev.Headers = append(ev.Headers, signature.Field{Name: "Idempotency-Key", Value: "1"})
	ev.Body = nil
	for attempt, want := range []Outcome{OutcomeDelivered, OutcomeStaleConnection} {
		if r := s.Send(t.Context(), e, ev, attempt); r.Outcome != want {
			t.Errorf("attempt %d: %s (%s), want %s", attempt, r.Outcome, r.Detail, want)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests for 2 attempts", n)
	}
}

// A kept connection that the receiver has closed meanwhile costs nothing: the attempt goes out on a new one.
// A kept connection that ends under a request costs no attempt only where the receiver has not begun to answer.
func TestKeptConnectionEndsInAnAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		begun string
		want  Outcome
	}{
		{"", OutcomeStaleConnection},
		{"HTTP/1.1 200 OK\r\nX-A: b\r\n", OutcomeConnectionClosed},
		{"HTTP/1.1 103 Early Hints\r\n\r\n", OutcomeConnectionClosed},
	} {
		at := sendServe(t, func(c net.Conn) {
			br := bufio.NewReader(c)
			for _, answer := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", tt.begun} {
				if _, _, err := sendReadRequest(br); err != nil {
					return
				}
				_, _ = io.WriteString(c, answer)
			}
		})
		s, e := sendSender(t), sendEndpoint(t, "http://"+at)
		sendWant(t, sendWith(t, s, e, 1), OutcomeDelivered)
		if r := sendWith(t, s, e, 2); r.Outcome != tt.want || !r.Reused {
			t.Errorf("%q: %s (%s), reused %v; want %s", tt.begun, r.Outcome, r.Detail, r.Reused, tt.want)
		}
	}
}

func TestClosedWhileIdle(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	at := sendServe(t, func(c net.Conn) {
		if _, _, err := sendReadRequest(bufio.NewReader(c)); err == nil {
			requests.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	e, s := sendEndpoint(t, "http://"+at), sendSender(t)
	for attempt := 1; attempt <= 20; attempt++ {
		r := sendWith(t, s, e, attempt)
		// When the two cross on the wire the request is lost with the connection, and this is said.
		if r.Outcome != OutcomeDelivered && (r.Outcome != OutcomeStaleConnection || !r.Reused) {
			t.Errorf("attempt %d: %s (%s)", attempt, r.Outcome, r.Detail)
		}
	}
	if n := requests.Load(); n > 20 {
		t.Errorf("%d requests for 20 attempts", n)
	}
}

func TestConnectionsInParallel(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			var receiver sendCounted
			e, s := sendEndpoint(t, receiver.serve(t, ca, protocol), sendTrusting(ca.pool)), sendSender(t)
			const workers, each = 8, 50
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for i := range each {
						if r := s.Send(t.Context(), e, sendEvent(), i+1); r.Outcome != OutcomeDelivered {
							t.Errorf("%s (%s)", r.Outcome, r.Detail)
						}
					}
				})
			}
			wg.Wait()
			if n, made := receiver.requests.Load(), receiver.made.Load(); n != workers*each || made > workers {
				t.Errorf("%d requests over %d connections", n, made)
			}
		})
	}
}

// Many endpoints do not keep more connections than a process can have: those that were not used for longest go.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	for _, protocol := range []string{"http/1.1", "h2"} {
		var receiver sendCounted
		e := sendEndpoint(t, receiver.serve(t, ca, protocol), sendTrusting(ca.pool))
		s, err := NewHTTPSender(SenderConfig{MaxIdle: 3})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		endpoint := func(n int) *Endpoint {
			other := *e
			other.ID = fmt.Sprint("endpoint-", n)
			return &other
		}
		for n := range 10 {
			sendWant(t, sendWith(t, s, endpoint(n), 1), OutcomeDelivered)
			sendWant(t, sendWith(t, s, endpoint(0), 1), OutcomeDelivered) // is used all the time
		}
		sendEventually(t, "all but three are closed", func() bool { return receiver.open.Load() == 3 })
		if kept, idle, pools := s.keptConns(), s.pools.idle.Len(), len(s.pools.m); kept != 3 || idle != 3 || pools != 3 {
			t.Errorf("%s: %d kept, %d of them idle, in %d pools", protocol, kept, idle, pools)
		}
		for n, reused := range map[int]bool{0: true, 9: true, 8: true} {
			if r := sendWith(t, s, endpoint(n), 2); r.Reused != reused {
				t.Errorf("%s: endpoint %d: reused %t", protocol, n, r.Reused)
			}
		}
		if made := receiver.made.Load(); made != 10 {
			t.Errorf("%s: %d connections made for 10 endpoints", protocol, made)
		}
	}
}

// A certificate that is replaced by one that nobody should trust is seen when the kept connection is a minute old, at the
// latest.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	ca, other := newSendCA(t), newSendCA(t)
	certs := []tls.Certificate{ca.issue(t, nil), other.issue(t, nil)}
	var now atomic.Int32
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(sendInstant), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	server.TLSConfig = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certs[now.Load()], nil }}
	at := sendRun(t, server, func() error { return server.ServeTLS(l, "", "") }, "https://"+l.Addr().String())
	e, s := sendEndpoint(t, at, sendTrusting(ca.pool)), sendSender(t)
	sendWant(t, sendWith(t, s, e, 1), OutcomeDelivered)
	now.Store(1)
	if r := sendWith(t, s, e, 2); r.Outcome != OutcomeDelivered || !r.Reused {
		t.Errorf("%s (%s), reused %t", r.Outcome, r.Detail, r.Reused)
	}
	s.age(maxConnAge)
	sendWant(t, sendWith(t, s, e, 3), OutcomeTLSVerify)
}
