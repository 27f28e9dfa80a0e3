package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/signature"
)

// sendWire keeps requests as they came, byte for byte: the head up to its empty line, and the body that it announces.
type sendWire struct {
	mu     sync.Mutex
	heads  []string
	bodies [][]byte
	conns  int
}

func (w *sendWire) serve(c net.Conn) {
	w.mu.Lock()
	w.conns++
	w.mu.Unlock()
	for br := bufio.NewReader(c); ; {
		var head strings.Builder
		length := 0
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				return
			}
			if line == "\r\n" {
				break
			}
			head.WriteString(line)
			if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); strings.EqualFold(name, "content-length") {
				length, _ = strconv.Atoi(strings.TrimSpace(value))
			}
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(br, body); err != nil {
			return
		}
		w.mu.Lock()
		w.heads, w.bodies = append(w.heads, head.String()), append(w.bodies, body)
		w.mu.Unlock()
		if _, err := io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
			return
		}
	}
}

// last returns the lines of the last request's head, and its body.
func (w *sendWire) last(t *testing.T) (lines []string, body []byte) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.heads) == 0 {
		t.Fatal("the receiver got no request")
	}
	return strings.Split(strings.TrimSuffix(w.heads[len(w.heads)-1], "\r\n"), "\r\n"), w.bodies[len(w.bodies)-1]
}

// sendAsked returns a sender that sends r, whatever the event.
func sendAsked(tb testing.TB, r Request) *HTTPSender {
	tb.Helper()
	return sendAsking(tb, func(*Endpoint, *Event, int, time.Time) (Request, error) { return r, nil })
}

func sendAsking(tb testing.TB, ask func(*Endpoint, *Event, int, time.Time) (Request, error)) *HTTPSender {
	tb.Helper()
	s, err := NewHTTPSender(SenderConfig{UserAgent: "sidehook/1.2.3", Request: ask})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// sendFields makes fields of "name: value" lines.
func sendFields(lines ...string) (fields []signature.Field) {
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		fields = append(fields, signature.Field{Name: name, Value: value})
	}
	return fields
}

// What is asked for is what is on the wire: nothing of ours beside it, nothing decoded, joined or left out.
func TestSendRequestOnTheWire(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 2000)
	for _, c := range []struct {
		name    string
		request Request
		body    string
		want    []string // the lines of the head, in any order behind the first; HOST is the endpoint's own
	}{
		{
			name: "a POST", request: Request{Method: "POST", Target: "/hook?a=b", Host: "api.example", Header: sendFields("content-type: application/json", "user-agent: GitHub-Hookshot/1")},
			body: "{}",
			want: []string{"POST /hook?a=b HTTP/1.1", "Host: api.example", "User-Agent: GitHub-Hookshot/1", "Content-Length: 2", "content-type: application/json"},
		},
		{name: "no body of a POST", request: Request{Method: "POST", Target: "/"}, want: []string{"POST / HTTP/1.1", "Host: HOST", "Content-Length: 0"}},
		{name: "no body of a PUT", request: Request{Method: "PUT", Target: "/"}, want: []string{"PUT / HTTP/1.1", "Host: HOST", "Content-Length: 0"}},
		{name: "no body of a PATCH", request: Request{Method: "PATCH", Target: "/"}, want: []string{"PATCH / HTTP/1.1", "Host: HOST", "Content-Length: 0"}},
		// RFC 9110, section 8.6: of methods that anticipate no content the header is left out.
		{name: "no body of a GET", request: Request{Method: "GET", Target: "/"}, want: []string{"GET / HTTP/1.1", "Host: HOST"}},
		{name: "no body of a HEAD", request: Request{Method: "HEAD", Target: "/"}, want: []string{"HEAD / HTTP/1.1", "Host: HOST"}},
		{name: "no body of a DELETE", request: Request{Method: "DELETE", Target: "/"}, want: []string{"DELETE / HTTP/1.1", "Host: HOST"}},
		{name: "no body of OPTIONS to the server", request: Request{Method: "OPTIONS", Target: "*"}, want: []string{"OPTIONS * HTTP/1.1", "Host: HOST"}},
		{name: "a body of a GET", request: Request{Method: "GET", Target: "/"}, body: "x", want: []string{"GET / HTTP/1.1", "Host: HOST", "Content-Length: 1"}},
		{name: "a body of a DELETE", request: Request{Method: "DELETE", Target: "/"}, body: "x", want: []string{"DELETE / HTTP/1.1", "Host: HOST", "Content-Length: 1"}},
		{name: "a body of a method of one's own", request: Request{Method: "notify", Target: "/"}, body: "x", want: []string{"notify / HTTP/1.1", "Host: HOST", "Content-Length: 1"}},
		{
			name:    "repeats keep their order",
			request: Request{Method: "POST", Target: "/", Header: sendFields("x-b: 2", "x-a: second", "x-a: first", "x-b: 1", "x-a: second")},
			want:    []string{"POST / HTTP/1.1", "Host: HOST", "Content-Length: 0", "x-a: second", "x-a: first", "x-a: second", "x-b: 2", "x-b: 1"},
		},
		{
			name:    "values as they are",
			request: Request{Method: "POST", Target: "/", Header: sendFields("x-empty: ", "x-latin: caf\xe9", "x-utf8: é", "x-inner: a  b\tc", "x-long: "+long, "accept-encoding: gzip, br")},
			want:    []string{"POST / HTTP/1.1", "Host: HOST", "Content-Length: 0", "x-empty: ", "x-latin: caf\xe9", "x-utf8: é", "x-inner: a  b\tc", "x-long: " + long, "accept-encoding: gzip, br"},
		},
		{
			// A second content-length, or one of another connection's headers, is how requests are smuggled.
			name: "framing is ours",
			request: Request{Method: "POST", Target: "/", Host: "h", Header: sendFields("Host: evil", "content-length: 7", "transfer-encoding: chunked", "connection: close, x-a", "keep-alive: 5",
				"te: trailers", "trailer: x-t", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__", "expect: 100-continue", "proxy-connection: close", "x-a: 1")},
			body: "abc",
			want: []string{"POST / HTTP/1.1", "Host: h", "Content-Length: 3", "x-a: 1"},
		},
		{name: "an endpoint's header is another's", request: Request{Method: "POST", Target: "/", Header: sendFields("webhook-id: theirs")}, want: []string{"POST / HTTP/1.1", "Host: HOST", "Content-Length: 0", "webhook-id: theirs"}},
		{name: "two user agents", request: Request{Method: "POST", Target: "/", Header: sendFields("user-agent: a", "user-agent: b")}, want: []string{"POST / HTTP/1.1", "Host: HOST", "Content-Length: 0", "User-Agent: a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var wire sendWire
			at := sendServe(t, wire.serve)
			e := sendEndpoint(t, "http://"+at+"/")
			e.Headers = sendFields("x-endpoint: 1") // of Standard Webhooks alone
			ev := &Event{ID: "evt_1", ContentType: "text/plain", Headers: sendFields("x-event: 1"), Body: []byte(c.body)}
			r := sendAsked(t, c.request).Send(t.Context(), e, ev, 3)
			sendWant(t, r, OutcomeDelivered)
			lines, body := wire.last(t)
			want := slices.Clone(c.want)
			if i := slices.Index(want, "Host: HOST"); i >= 0 {
				want[i] = "Host: " + at
			}
			sortNames := func(a, b string) int { return strings.Compare(nameOf(a), nameOf(b)) }
			slices.SortStableFunc(lines[1:], sortNames)
			slices.SortStableFunc(want[1:], sortNames)
			if diff := cmp.Diff(want, lines); diff != "" {
				t.Errorf("the head (-want +got):\n%s", diff)
			}
			if string(body) != c.body {
				t.Errorf("body %q, want %q", body, c.body)
			}
		})
	}
}

func nameOf(line string) string {
	name, _, _ := strings.Cut(line, ":")
	return name
}

// A target is sent byte for byte, for it may be what was signed. Over TLS it is the same code.
func TestSendRequestTarget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, target, want string }{
		{"escapes stay", "/a%2fb%2Fc%41?x=%20+%2b", ""},
		{"slashes stay", "/a//b///", ""},
		{"slashes in front", "//a/b", ""},
		{"slashes in front with escapes", "//a%2fb%41/?x=1&y", ""},
		{"only slashes", "//", ""},
		{"three of them", "///x?", ""},
		{"a host behind them", "//evil.example/x", ""},
		{"dots", "/a/../b/./c", ""},
		{"dots in front", "/../../etc/passwd", ""},
		{"an empty query", "/a?", ""},
		{"two question marks", "/a?b?c=d??", ""},
		{"a query and no path", "/?a", ""},
		{"parameters", "/a;v=1/b;?c;d", ""},
		{"all that a path may hold", "/-._~!$&'()*+,;=:@", ""},
		{"what should be escaped and is not", `/a"b<c>d^e` + "`f{g|h}i\\j[k]", ""},
		{"that with slashes in front", `//a"b`, "http://HOST//a\"b"},
		{"bytes beyond ASCII", "/caf\xc3\xa9/\xff?\xfe", ""},
		{"an escape that is none", "/100%/%zz?%", ""},
		{"that with slashes in front, too", "//100%", "http://HOST//100%"},
		{"a fragment", "/a#b", ""},
		{"the server itself", "*", ""},
		{"absolute form", "http://api.example/x//y", ""},
		{"blanks and control characters end the line", "/a b\tc\r\nX: y\x00\x7f", "/a%20b%09c%0D%0AX:%20y%00%7F"},
		{"nothing", "", "/"},
		{"longer than a buffer", "/" + strings.Repeat("a%2f", 3000) + "?" + strings.Repeat("b", 3000), ""},
		{"longer than a buffer, slashes in front", "//" + strings.Repeat("a%2f", 3000), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var wire sendWire
			at := sendServe(t, wire.serve)
			r := sendAsked(t, Request{Method: "POST", Target: c.target, Host: "api.example"}).Send(t.Context(), sendEndpoint(t, "http://"+at+"/base"), sendEvent(), 1)
			sendWant(t, r, OutcomeDelivered)
			want := strings.Replace(c.want, "HOST", at, 1)
			if want == "" {
				want = c.target
			}
			if lines, _ := wire.last(t); lines[0] != "POST "+want+" HTTP/1.1" {
				t.Errorf("request line %q, want the target %q", lines[0], want)
			}
		})
	}
}

func TestSendRequestBodyIsUntouched(t *testing.T) {
	t.Parallel()
	var wire sendWire
	at := sendServe(t, wire.serve)
	e := sendEndpoint(t, "http://"+at+"/")
	s := sendAsked(t, Request{Method: "POST", Target: "/"})
	for name, body := range map[string][]byte{
		"no UTF-8":       []byte("\x00\xff\xfe"),
		"like a chunk":   []byte("5\r\nhello\r\n0\r\n\r\n"),
		"like a request": []byte("POST / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"25 MiB":         bytes.Repeat([]byte("0123456789abcde\n"), 25<<20/16),
	} {
		r := s.Send(t.Context(), e, &Event{ID: "evt_1", Body: body}, 1)
		sendWant(t, r, OutcomeDelivered)
		lines, got := wire.last(t)
		if !bytes.Equal(got, body) {
			t.Errorf("%s: %d other bytes", name, len(got))
		}
		if want := fmt.Sprintf("Content-Length: %d", len(body)); !slices.Contains(lines, want) {
			t.Errorf("%s: no %q", name, want)
		}
	}
	if wire.conns != 1 {
		t.Errorf("%d connections for requests one after the other", wire.conns)
	}
}

// Who makes the request is told of which attempt, and when it began: what it signs is fresh.
func TestSendRequestIsAskedFor(t *testing.T) {
	t.Parallel()
	var wire sendWire
	e, ev := sendEndpoint(t, "http://"+sendServe(t, wire.serve)+"/"), sendEvent()
	before := time.Now()
	s := sendAsking(t, func(gotE *Endpoint, gotEv *Event, attempt int, now time.Time) (Request, error) {
		if gotE != e || gotEv != ev || now.Before(before) || now.After(time.Now()) {
			t.Errorf("asked for %p, %p at %s", gotE, gotEv, now)
		}
		return Request{Method: "POST", Target: "/", Header: sendFields("x-attempt: " + strconv.Itoa(attempt))}, nil
	})
	for attempt := 1; attempt <= 2; attempt++ {
		sendWant(t, s.Send(t.Context(), e, ev, attempt), OutcomeDelivered)
		if lines, _ := wire.last(t); !slices.Contains(lines, "x-attempt: "+strconv.Itoa(attempt)) {
			t.Errorf("attempt %d: %q", attempt, lines)
		}
	}
}

// A request that cannot be made asks nobody, and its delivery waits as for every fault of ours.
func TestSendRequestThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		request Request
		err     error
		detail  string
	}{
		{name: "an error", err: errors.New("the event has no method"), detail: "the event has no method"},
		{name: "no key", err: fmt.Errorf("sign: %w", signature.ErrCannotSign), detail: "no key of the endpoint can sign: none is in force"},
		{name: "no method", request: Request{Target: "/"}, detail: `the method "" cannot be sent`},
		{name: "a method of two words", request: Request{Method: "GET /x", Target: "/"}, detail: `the method "GET /x" cannot be sent`},
		{name: "a line break in a header", request: Request{Method: "POST", Target: "/", Header: sendFields("x-a: 1\r\nx-b: 2")}, detail: "a header of the event cannot be sent"},
		{name: "a blank in a header's name", request: Request{Method: "POST", Target: "/", Header: sendFields("x a: 1")}, detail: "a header of the event cannot be sent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var wire sendWire
			e := sendEndpoint(t, "http://"+sendServe(t, wire.serve)+"/")
			s := sendAsking(t, func(*Endpoint, *Event, int, time.Time) (Request, error) { return c.request, c.err })
			r := s.Send(t.Context(), e, sendEvent(), 1)
			if r.Outcome != OutcomeInternal || r.Detail != c.detail || len(wire.heads) != 0 {
				t.Errorf("%s (%s), %d requests; want %s (%s)", r.Outcome, r.Detail, len(wire.heads), OutcomeInternal, c.detail)
			}
		})
	}
}

// What an app repeats of a secret that its request bears is not kept; what else it repeats is.
func TestSendRequestSecretsAreNotKept(t *testing.T) {
	t.Parallel()
	e := sendEndpoint(t, sendHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no "+r.Header.Get("x-token")+" of "+r.Header.Get("x-tenant"))
	})))
	secret := sendFields("x-token: tok_0123456789")
	r := sendAsked(t, Request{Method: "POST", Target: "/", Header: append(sendFields("x-tenant: customer-17"), secret...), Secrets: secret}).
		Send(t.Context(), e, sendEvent(), 1)
	sendWant(t, r, OutcomeRejected)
	if want := "no ************** of customer-17"; string(r.Answer) != want {
		t.Errorf("kept %q, want %q", r.Answer, want)
	}
}

// Requests of others go over HTTP/1.1, in which all of them can be said: without TLS, where an app could be asked to upgrade,
// and with it, where it offers HTTP/2.
func TestSendRequestSpeaksHTTP1(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	for _, c := range []struct {
		name    string
		serve   func(h http.Handler) string
		changes []func(*Endpoint, *netguard.Config)
	}{
		{name: "h2c is offered", serve: func(h http.Handler) string { return sendHTTP(t, h) }},
		{name: "h2 is offered", serve: func(h http.Handler) string { return sendHTTPS(t, ca.issue(t, nil), h) }, changes: []func(*Endpoint, *netguard.Config){sendTrusting(ca.pool)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var seen sendSeen
			e := sendEndpoint(t, c.serve(&seen)+"/", c.changes...)
			s := sendAsked(t, Request{Method: "POST", Target: "//a%2fb?c", Host: "api.example"})
			for range 2 {
				sendWant(t, s.Send(t.Context(), e, sendEvent(), 1), OutcomeDelivered)
			}
			r, body, n := seen.last(t)
			if r.Proto != "HTTP/1.1" || r.Header["Upgrade"] != nil || r.Header["Connection"] != nil || n != 2 {
				t.Errorf("%d requests over %s, with upgrade %q and connection %q", n, r.Proto, r.Header["Upgrade"], r.Header["Connection"])
			}
			if r.RequestURI != "//a%2fb?c" || r.Host != "api.example" || string(body) != string(sendEvent().Body) {
				t.Errorf("%s at %s with %q", r.RequestURI, r.Host, body)
			}
		})
	}
}

func TestSendRequestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var hits sendSeen
	e := sendEndpoint(t, sendHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.ServeHTTP(w, r)
		http.Redirect(w, r, "/again", http.StatusTemporaryRedirect)
	})))
	sendWant(t, sendAsked(t, Request{Method: "GET", Target: "/"}).Send(t.Context(), e, &Event{}, 1), OutcomeRedirect)
	if _, _, n := hits.last(t); n != 1 {
		t.Errorf("%d requests", n)
	}
}
