package egress

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	svix "github.com/svix/svix-webhooks/go"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/signature"
)

// sendSeen keeps what a receiver got.
type sendSeen struct {
	mu       sync.Mutex
	requests []*http.Request
	bodies   [][]byte
}

// ServeHTTP implements http.Handler.
func (s *sendSeen) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.bodies = append(s.requests, r), append(s.bodies, body)
}

// last returns the last request and the number of all.
func (s *sendSeen) last(t *testing.T) (r *http.Request, body []byte, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n = len(s.requests); n == 0 {
		t.Fatal("the receiver got no request")
	}
	return s.requests[n-1], s.bodies[n-1], n
}

func TestSend(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			var seen sendSeen
			e := sendEndpoint(t, sendHTTPS(t, ca.issue(t, nil), &seen, protocol)+"/in%2fbox//x?a=b&c=%20d", sendTrusting(ca.pool))
			before := time.Now().Unix()
			r := sendWith(t, sendSender(t), e, 7)
			sendWant(t, r, OutcomeDelivered)
			if r.Status != 200 || r.IP.String() != "127.0.0.1" || r.Reused || !r.Wrote {
				t.Errorf("status %d, IP %s, reused %t, wrote %t", r.Status, r.IP, r.Reused, r.Wrote)
			}
			req, body, n := seen.last(t)
			if n != 1 || req.Method != http.MethodPost || req.RequestURI != "/in%2fbox//x?a=b&c=%20d" || req.Host != strings.TrimPrefix(strings.Split(e.Target.URL, "/in")[0], "https://") {
				t.Errorf("%d requests; %s %s at %s", n, req.Method, req.RequestURI, req.Host)
			}
			if want := fmt.Sprintf("HTTP/%d", map[string]int{"http/1.1": 1, "h2": 2}[protocol]); !strings.HasPrefix(req.Proto, want) {
				t.Errorf("spoke %s, want %s", req.Proto, want)
			}
			if string(body) != string(sendEvent().Body) || req.ContentLength != int64(len(body)) {
				t.Errorf("body %q of announced length %d", body, req.ContentLength)
			}
			for name, want := range map[string]string{
				"Webhook-Id": "evt_1", "Webhook-Attempt": "7", "User-Agent": "sidehook/1.2.3", "Content-Type": "application/json",
			} {
				if got := req.Header[name]; len(got) != 1 || got[0] != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			for _, name := range []string{"Accept-Encoding", "Cookie", "Authorization", "Transfer-Encoding", "Traceparent"} {
				if got := req.Header[name]; got != nil {
					t.Errorf("%s: %q, want none", name, got)
				}
			}
			at, err := strconv.ParseInt(req.Header.Get("Webhook-Timestamp"), 10, 64)
			if err != nil || at < before || at > time.Now().Unix() {
				t.Errorf("webhook-timestamp %q, sent at %d", req.Header.Get("Webhook-Timestamp"), before)
			}
		})
	}
}

// Bytes that a sender would change who reads the body and writes it again.
func TestSendBodyIsUntouched(t *testing.T) {
	t.Parallel()
	var seen sendSeen
	e, s := sendEndpoint(t, sendHTTP(t, &seen)+"/"), sendSender(t)
	hook, err := standardwebhooks.NewWebhook(sendSecret)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"order of keys":    `{"b":1,"a":2}`,
		"numbers":          `{"x":1.0,"y":1e2,"z":-0}`,
		"escapes":          `{"a":"\u00e9 é \/"}`,
		"twice":            `{"a":1,"a":2}`,
		"newline":          "{}\r\n\n",
		"byte order mark":  "\xef\xbb\xbf{}",
		"empty":            "",
		"no JSON":          "a=b&c=d",
		"no UTF-8":         "\x00\xff\xfe",
		"a MiB":            strings.Repeat("0123456789abcdef", 1<<16),
		"like a chunk":     "5\r\nhello\r\n0\r\n\r\n",
		"like a request":   "POST / HTTP/1.1\r\nHost: x\r\n\r\n",
		"exactly a buffer": strings.Repeat("x", 4096),
	} {
		ev := sendEvent()
		ev.Body = []byte(body)
		r := s.Send(t.Context(), e, ev, 1)
		if r.Outcome != OutcomeDelivered {
			t.Errorf("%s: %s (%s)", name, r.Outcome, r.Detail)
			continue
		}
		req, got, _ := seen.last(t)
		if string(got) != body || req.ContentLength != int64(len(body)) {
			t.Errorf("%s: the receiver got %d bytes, announced as %d, that differ from the %d sent", name, len(got), req.ContentLength, len(body))
		}
		if err := hook.Verify(got, req.Header); err != nil {
			t.Errorf("%s: the library of Standard Webhooks: %v", name, err)
		}
	}
}

// During a rotation the receiver may have the old secret, the new one or the public key, and knows only the official
// verifier of its language. Each attempt is signed by what is in force when it begins.
func TestSendRotation(t *testing.T) {
	t.Parallel()
	private := ed25519.NewKeyFromSeed([]byte("0123456789abcdef0123456789abcdef"))
	whsk := "whsk_" + base64.StdEncoding.EncodeToString(private)
	now := time.Now()
	until := func(k signature.Key, at time.Time) signature.Key { k.Until = at; return k }
	k := sendKeys(t, sendSecret, sendSecret2, whsk)
	for _, c := range []struct {
		name     string
		keys     []signature.Key
		versions string
		old, new bool // accepted under sendSecret, under sendSecret2
	}{
		{"before", k[:1], "v1", true, false},
		{"overlap, new first", []signature.Key{k[1], until(k[0], now.Add(time.Hour))}, "v1 v1", true, true},
		{"overlap, old first", []signature.Key{until(k[0], now.Add(time.Hour)), k[1]}, "v1 v1", true, true},
		{"after", []signature.Key{until(k[0], now), k[1]}, "v1", false, true},
		{"both kinds", []signature.Key{k[2], k[0]}, "v1a v1", true, false},
		{"both kinds, other order", []signature.Key{k[1], k[2], k[0]}, "v1 v1a v1", true, true},
		{"public key alone", k[2:], "v1a", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var seen sendSeen
			e := sendEndpoint(t, sendHTTP(t, &seen)+"/", func(e *Endpoint, _ *netguard.Config) { e.Keys = c.keys })
			sendWant(t, sendOnce(t, e), OutcomeDelivered)
			req, body, _ := seen.last(t)
			if n := len(req.Header["Webhook-Signature"]); n != 1 {
				t.Fatalf("%d lines webhook-signature, want 1", n)
			}
			var versions []string
			for element := range strings.FieldsSeq(req.Header.Get("Webhook-Signature")) {
				version, encoded, _ := strings.Cut(element, ",")
				versions = append(versions, version)
				if version == "v1a" {
					sig, err := base64.StdEncoding.DecodeString(encoded)
					content := req.Header.Get("Webhook-Id") + "." + req.Header.Get("Webhook-Timestamp") + "." + string(body)
					if err != nil || !ed25519.Verify(private.Public().(ed25519.PublicKey), []byte(content), sig) {
						t.Errorf("v1a does not verify (%v)", err)
					}
				}
			}
			if got := strings.Join(versions, " "); got != c.versions {
				t.Errorf("versions %q, want %q", got, c.versions)
			}
			for secret, accepts := range map[string]bool{sendSecret: c.old, sendSecret2: c.new} {
				standard, err1 := standardwebhooks.NewWebhook(secret)
				theSvix, err2 := svix.NewWebhook(secret)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				if err := standard.Verify(body, req.Header); (err == nil) != accepts {
					t.Errorf("the library of Standard Webhooks: %v, want acceptance %t", err, accepts)
				}
				// Svix' own library reads the same header under its other names too.
				if err := theSvix.Verify(body, req.Header); (err == nil) != accepts {
					t.Errorf("the library of Svix: %v, want acceptance %t", err, accepts)
				}
			}
		})
	}
}

func TestSendWithoutKey(t *testing.T) {
	t.Parallel()
	var seen sendSeen
	at := sendHTTP(t, &seen)
	for name, change := range map[string]func(*Endpoint, *netguard.Config){
		"out of force": func(e *Endpoint, _ *netguard.Config) { e.Keys[0].Until = time.Now() },
		"no key":       func(e *Endpoint, _ *netguard.Config) { e.Keys = nil },
		"unusable":     func(e *Endpoint, _ *netguard.Config) { e.Unusable = "its secret cannot be opened" },
	} {
		r := sendOnce(t, sendEndpoint(t, at, change))
		if r.Outcome != OutcomeInternal || r.Wrote || r.IP.IsValid() {
			t.Errorf("%s: %s (%s), wrote %t, IP %s", name, r.Outcome, r.Detail, r.Wrote, r.IP)
		}
	}
	if len(seen.requests) != 0 {
		t.Errorf("%d unsigned requests went out", len(seen.requests))
	}
}

// The id stays the same, the time and so the signature do not.
func TestSendAgain(t *testing.T) {
	t.Parallel()
	var seen sendSeen
	e, s := sendEndpoint(t, sendHTTP(t, &seen)), sendSender(t)
	for attempt := 1; attempt <= 3; attempt++ {
		sendWant(t, sendWith(t, s, e, attempt), OutcomeDelivered)
		req, _, n := seen.last(t)
		if n != attempt || req.Header.Get("Webhook-Id") != "evt_1" || req.Header.Get("Webhook-Attempt") != strconv.Itoa(attempt) {
			t.Errorf("request %d: id %q, attempt %q", n, req.Header.Get("Webhook-Id"), req.Header.Get("Webhook-Attempt"))
		}
	}
}

// Whatever a header is called that came to be in an endpoint or event, ours go out, and once.
func TestSendHeaderPrecedence(t *testing.T) {
	t.Parallel()
	var seen sendSeen
	e := sendEndpoint(t, sendHTTP(t, &seen), func(e *Endpoint, _ *netguard.Config) {
		e.Headers = []signature.Field{
			{Name: "Authorization", Value: "Bearer x"}, {Name: "x-team", Value: "of the endpoint"}, {Name: "X-TEAM", Value: "of the endpoint, last"},
			// ForbiddenHeader refuses these; here they are all the same.
			{Name: "Webhook-Signature", Value: "v1,forged"}, {Name: "WEBHOOK-ID", Value: "forged"}, {Name: "webhook-timestamp", Value: "1"},
			{Name: "webhook-attempt", Value: "99"}, {Name: "user-agent", Value: "forged"}, {Name: "content-type", Value: "forged/x"},
		}
	})
	ev := sendEvent()
	ev.Headers = []signature.Field{{Name: "ce-id", Value: "evt_1"}, {Name: "ce-source", Value: "/billing"}, {Name: "x-team", Value: "of the event"}}
	if r := sendSender(t).Send(t.Context(), e, ev, 2); r.Outcome != OutcomeDelivered {
		t.Fatalf("%s (%s)", r.Outcome, r.Detail)
	}
	req, body, _ := seen.last(t)
	for name, want := range map[string]string{
		"Authorization": "Bearer x", "X-Team": "of the endpoint, last", "Ce-Id": "evt_1", "Ce-Source": "/billing",
		"Webhook-Id": "evt_1", "Webhook-Attempt": "2", "User-Agent": "sidehook/1.2.3", "Content-Type": "application/json",
	} {
		if got := req.Header[name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	hook, err := standardwebhooks.NewWebhook(sendSecret)
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Verify(body, req.Header); err != nil {
		t.Errorf("the library of Standard Webhooks: %v", err)
	}
}

// A header that cannot be sent is a fault of ours and no attempt; nothing of it reaches the receiver.
func TestSendInvalidHeader(t *testing.T) {
	t.Parallel()
	var seen sendSeen
	e := sendEndpoint(t, sendHTTP(t, &seen))
	ev := sendEvent()
	ev.Headers = []signature.Field{{Name: "ce-x", Value: "a\r\nx-injected: 1"}}
	r := sendSender(t).Send(t.Context(), e, ev, 1)
	sendCheck(t, e, r)
	sendWant(t, r, OutcomeInternal)
	if len(seen.requests) != 0 {
		t.Errorf("the receiver got %v", seen.requests[0].Header)
	}
}

func TestSendIsCutOffByStopping(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	at := sendServe(t, func(c net.Conn) {
		if _, _, err := sendReadRequest(bufio.NewReader(c)); err == nil {
			close(arrived)
			_, _ = c.Read(make([]byte, 1))
		}
	})
	e := sendEndpoint(t, "http://"+at)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	r := sendSender(t).Send(ctx, e, sendEvent(), 1)
	sendCheck(t, e, r)
	sendWant(t, r, OutcomeInterrupted)
	if r = sendSender(t).Send(ctx, e, sendEvent(), 1); r.Outcome != OutcomeInterrupted {
		t.Errorf("after the stop: %s", r.Outcome)
	}
}

// The environment of the pod is not asked for proxies. It is by name that the receiver is asked for: for loopback addresses
// net/http would not ask it either.
func TestSendIgnoresProxyEnvironment(t *testing.T) {
	var asked atomic.Int32
	proxy := sendServe(t, func(net.Conn) { asked.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://"+proxy)
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	ca := newSendCA(t)
	for _, at := range []string{sendHTTP(t, &sendSeen{}), sendHTTPS(t, ca.issue(t, nil), &sendSeen{})} {
		e := sendEndpoint(t, strings.Replace(at, "127.0.0.1", "hooks.acme.example", 1), sendTrusting(ca.pool),
			sendNamed(t, func(string) sendDNS { return sendDNS{addrs: "127.0.0.1"} }))
		sendWant(t, sendOnce(t, e), OutcomeDelivered)
		// net/http reads the environment once in a process, which may have been before this test.
		if newTransport(e.Filter).Proxy != nil {
			t.Error("the transport asks for a proxy")
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the proxy of the environment was asked %d times", n)
	}
}

// An endpoint that is made, kept and dropped sends nothing by itself.
func TestSendNothingUnasked(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	at := sendServe(t, func(net.Conn) { conns.Add(1) })
	e, s := sendEndpoint(t, "http://"+at), sendSender(t)
	s.Retain(NewEndpoints([]*Endpoint{e}))
	s.Retain(NewEndpoints(nil))
	if n := conns.Load(); n != 0 {
		t.Errorf("%d connections without an attempt", n)
	}
}

func TestForbiddenHeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"Authorization", "Bearer abc", true}, // the receiver's own authentication
		{"X-Api-Key", "k", true},
		{"x-team", "a b\"c~!", true},
		{"Idempotency-Key", "1", true},
		{"accept", "*/*", true},
		{"hosts", "x", true},
		{"content", "x", true},
		{"webhook", "x", true},

		{"Webhook-Signature", "x", false},
		{"WEBHOOK-ID", "x", false},
		{"webhook-timestamp", "1", false},
		{"webhook-attempt", "1", false},
		{"webhook_signature", "x", false}, // CGI makes HTTP_WEBHOOK_SIGNATURE of both
		{"Host", "x", false},
		{"Connection", "close", false},
		{"Keep-Alive", "x", false},
		{"Content-Length", "1", false},
		{"content-type", "a/b", false},
		{"Content-Encoding", "gzip", false},
		{"CONTENT_LENGTH", "1", false},
		{"Transfer-Encoding", "chunked", false},
		{"TE", "trailers", false},
		{"trailer", "x", false},
		{"Upgrade", "h2c", false},
		{"HTTP2-Settings", "x", false},
		{"expect", "100-continue", false},
		{"Cookie", "a=b", false},
		{"Proxy-Authorization", "x", false},
		{"Proxy-Connection", "x", false},
		{"X-Envoy-Upstream-Rq-Timeout-Ms", "1", false},
		{"x-sidehook-source", "payments", false},
		{"X_Sidehook_Source", "payments", false},
		{"User-Agent", "x", false},

		{"", "x", false},
		{"x y", "x", false},
		{"x:", "x", false},
		{":path", "/", false},
		{"x\r\n", "x", false},
		{"x\x00", "x", false},
		{"x-é", "x", false},
		{"x-a", "", false},
		{"x-a", " b", false},
		{"x-a", "b ", false},
		{"x-a", "b\r\nx-c: d", false},
		{"x-a", "b\nc", false},
		{"x-a", "b\x00", false},
		{"x-a", "b\tc", false},
		{"x-a", "é", false},
		{"x-a", "b\x7f", false},
		{"x-a", strings.Repeat("x", maxHeaderBytes-3), true},
		{"x-a", strings.Repeat("x", maxHeaderBytes-2), false},
	} {
		err := ForbiddenHeader(c.name, c.value)
		if (err == nil) != c.ok {
			t.Errorf("ForbiddenHeader(%q, %.20q): %v, want allowed %t", c.name, c.value, err, c.ok)
		}
	}
	if err := ForbiddenHeader("x-key", sendToken+"\n"); err == nil || strings.Contains(err.Error(), sendToken) {
		t.Errorf("the error holds the value: %v", err)
	}
}

// What ForbiddenHeader lets through can be sent, and arrives as it is.
func FuzzForbiddenHeader(f *testing.F) {
	for _, seed := range [][2]string{{"x-a", "b"}, {"Webhook_Id", "x"}, {"x-a", "a\r\nb"}, {"\u212aost", "x"}, {"x!#$", "~"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if ForbiddenHeader(name, value) != nil {
			return
		}
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.Header = http.Header{"Webhook-Id": {"evt_1"}, http.CanonicalHeaderKey(name): {value}}
		var wire strings.Builder
		if err := r.Write(&wire); err != nil {
			t.Fatalf("%q: %q cannot be sent: %v", name, value, err)
		}
		got, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire.String())))
		if err != nil {
			t.Fatalf("%q: %q cannot be read again: %v", name, value, err)
		}
		if v := got.Header[http.CanonicalHeaderKey(name)]; !slices.Equal(v, []string{value}) || got.Header.Get("Webhook-Id") != "evt_1" || got.Host != "example.com" {
			t.Fatalf("%q: %q arrives as %q", name, value, v)
		}
	})
}

// noAccepter is an outbox that nothing may reach.
type noAccepter struct{ t *testing.T }

// Accept implements Accepter.
func (a noAccepter) Accept(context.Context, *Event, []Target) (Receipt, error) {
	a.t.Error("an attempt of ours was taken for an event")
	return Receipt{}, ErrUnavailable
}

// An endpoint that leads back to a sidehook's intake, this one's or another's, does not go round: it is refused for what
// every attempt bears.
func TestSendToAnIntake(t *testing.T) {
	t.Parallel()
	none := NewEndpoints(nil)
	intake := NewIntake(IntakeConfig{Outbox: noAccepter{t}, Endpoints: func() *Endpoints { return none }})
	for _, path := range []string{"/v1/events", "/v1/endpoints/acme/events"} {
		r := sendOnce(t, sendEndpoint(t, sendHTTP(t, intake)+path))
		if r.Outcome != OutcomeRejected || r.Status != http.StatusForbidden || !strings.Contains(string(r.Answer), "forwarded_request") {
			t.Errorf("%s: %s, %q", path, r.Outcome, r.Answer)
		}
	}
}
