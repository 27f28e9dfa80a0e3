package netguard

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// forwardProxy is a proxy of the test's own: it notes what it is asked, and answers.
type forwardProxy struct {
	addr   string
	answer string // the whole answer; empty: none; "tunnel": 200, and then an echo

	mu       sync.Mutex
	requests []*http.Request
}

// newForwardProxy listens until the test ends; with tlsConfig set it is an https proxy.
func newForwardProxy(t *testing.T, answer string, tlsConfig *tls.Config) *forwardProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	p := &forwardProxy{addr: l.Addr().String(), answer: answer}
	if tlsConfig != nil {
		l = tls.NewListener(l, tlsConfig)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return p
}

func (p *forwardProxy) serve(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(conn)
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.requests = append(p.requests, req)
	p.mu.Unlock()
	switch p.answer {
	case "":
		io.Copy(io.Discard, r) // until the client gives up
	case "tunnel":
		io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
		io.Copy(conn, r)
	default:
		io.WriteString(conn, p.answer)
		io.Copy(io.Discard, r)
	}
}

func (p *forwardProxy) asked() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*http.Request(nil), p.requests...)
}

// throughProxy resolves and dials a.example by way of c.Proxy.
func throughProxy(t *testing.T, c Config, timeout time.Duration) (net.Conn, netip.AddrPort, error) {
	t.Helper()
	c.Resolver = newNameServer(t, zone{"a.example.": {addrs: []string{"93.184.216.34"}}}).resolver()
	f := mustNew(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	target := mustCheck(t, f, "https://a.example/")
	addrs, err := f.Resolve(ctx, target)
	if err != nil {
		t.Fatalf("resolve: %v", err)
	}
	conn, to, err := f.Dial(ctx, target, addrs)
	if (conn == nil) != (err != nil) {
		t.Fatalf("got %v, %v", conn, err)
	}
	if conn != nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, to, err
}

// wantEcho checks that conn is a tunnel in which both directions work, also after the context of the dial has ended.
func wantEcho(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("through the tunnel: %q, %v", got, err)
	}
}

func TestProxyTunnel(t *testing.T) {
	t.Parallel()
	p := newForwardProxy(t, "tunnel", nil)
	conn, to, err := throughProxy(t, Config{Proxy: &Proxy{URL: "http://" + p.addr, Authorization: "Basic c2VjcmV0"}}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	wantEcho(t, conn)
	if to.String() != "93.184.216.34:443" {
		t.Errorf("dialled %v", to)
	}
	asked := p.asked()
	if len(asked) != 1 || asked[0].Method != "CONNECT" || asked[0].Host != "93.184.216.34:443" ||
		asked[0].RequestURI != "93.184.216.34:443" || asked[0].Header.Get("Proxy-Authorization") != "Basic c2VjcmV0" {
		t.Errorf("asked %+v, want CONNECT to the judged address", asked)
	}
}

func TestProxyByName(t *testing.T) {
	t.Parallel()
	p := newForwardProxy(t, "tunnel", nil)
	ns := newNameServer(t, zone{})
	f := mustNew(t, Config{Proxy: &Proxy{URL: "http://" + p.addr, ByName: true}, Resolver: ns.resolver(), Allow: prefixes("10.0.0.1/32")})
	for url, want := range map[string]string{"https://Bücher.example./": "xn--bcher-kva.example:443", "https://10.0.0.1/": "10.0.0.1:443"} {
		target := mustCheck(t, f, url)
		addrs, err := f.Resolve(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		conn, _, err := f.Dial(t.Context(), target, addrs)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		wantEcho(t, conn)
		if asked := p.asked(); asked[len(asked)-1].Host != want || asked[len(asked)-1].Header.Get("Proxy-Authorization") != "" {
			t.Errorf("asked %+v, want %s", asked[len(asked)-1], want)
		}
	}
	if asked := ns.asked(); len(asked) > 0 {
		t.Errorf("names were looked up: %v", asked)
	}
	// The rules for names stay ours.
	_, err := f.Check("https://metadata.google.internal/")
	wantRefusal(t, err, VerdictReservedName)
}

func TestProxyAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, answer string
		proxyFault   bool
		status       int
	}{
		{"authorization wanted", "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", true, 407},
		{"its own rules", "HTTP/1.1 403 Forbidden\r\n\r\n", true, 403},
		{"its own error", "HTTP/1.1 500 Internal Server Error\r\n\r\n", true, 500},
		{"too many requests", "HTTP/1.1 429 Too Many Requests\r\n\r\n", true, 429},
		{"a redirect", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", true, 302},
		{"an early answer", "HTTP/1.1 100 Continue\r\n\r\n", true, 100},
		{"bad gateway", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno", false, 502},
		{"Squid: connection failed", "HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_CONNECT_FAIL 111\r\n\r\n", false, 503},
		{"gateway time-out", "HTTP/1.1 504 Gateway Timeout\r\n\r\n", false, 504},
		{"RFC 9209: the receiver refused", "HTTP/1.1 502 Bad Gateway\r\nProxy-Status: squid; error=connection_refused\r\n\r\n", false, 502},
		{"RFC 9209: the proxy's own error", "HTTP/1.1 502 Bad Gateway\r\nProxy-Status: x.example; error=proxy_internal_error\r\n\r\n", true, 502},
		{"RFC 9209: an address it does not permit", "HTTP/1.1 502 Bad Gateway\r\nProxy-Status: a, b; error=destination_ip_prohibited; details=\"no\"\r\n\r\n", true, 502},
		{"no HTTP", "SSH-2.0-OpenSSH_9.9\r\n\r\n", true, 0},
		{"an endless header", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxProxyHeaderBytes) + "\r\n\r\n", true, 0},
		{"speaks first in the tunnel", "HTTP/1.1 200 OK\r\n\r\nhello", true, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newForwardProxy(t, tt.answer, nil)
			_, _, err := throughProxy(t, Config{Proxy: &Proxy{URL: "http://" + p.addr, Authorization: "Basic hunter2"}}, 10*time.Second)
			ours, isOurs := errors.AsType[*ProxyError](err)
			theirs, isTheirs := errors.AsType[*TunnelError](err)
			if isOurs != tt.proxyFault || isTheirs == tt.proxyFault {
				t.Fatalf("got %#v, want the proxy at fault: %t", err, tt.proxyFault)
			}
			if isOurs && ours.Status != tt.status || isTheirs && theirs.Status != tt.status {
				t.Errorf("got %#v, want status %d", err, tt.status)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error holds the secret: %v", err)
			}
		})
	}
}

func TestProxyAway(t *testing.T) {
	t.Parallel()
	_, _, err := throughProxy(t, Config{Proxy: &Proxy{URL: "http://" + closedPort(t).String()}}, 10*time.Second)
	if r, ok := errors.AsType[*ProxyError](err); !ok || !errors.Is(r, syscall.ECONNREFUSED) || r.Status != 0 {
		t.Errorf("got %#v", err)
	}
}

// TestProxySilent: a proxy that took the request is still trying the receiver.
func TestProxySilent(t *testing.T) {
	t.Parallel()
	p := newForwardProxy(t, "", nil)
	_, _, err := throughProxy(t, Config{Proxy: &Proxy{URL: "http://" + p.addr}}, 300*time.Millisecond)
	r, ok := errors.AsType[*TunnelError](err)
	if !ok || !r.Timeout() || r.Status != 0 {
		t.Errorf("got %#v, want a TunnelError by time-out", err)
	}
}

// TestProxyCancelled: what we cut off ourselves is no fault of the proxy.
func TestProxyCancelled(t *testing.T) {
	t.Parallel()
	p := newForwardProxy(t, "", nil)
	f := mustNew(t, Config{Proxy: &Proxy{URL: "http://" + p.addr, ByName: true}})
	ctx, cancel := context.WithCancelCause(t.Context())
	stopping := errors.New("stopping")
	time.AfterFunc(100*time.Millisecond, func() { cancel(stopping) })
	_, _, err := f.Dial(ctx, mustCheck(t, f, "https://a.example/"), nil)
	if !errors.Is(err, stopping) {
		t.Errorf("got %v, want the cause", err)
	}
}

// TestProxyTLS: the certificate of an https proxy is verified, by its own authorities if it has some, and it is the
// proxy's fault if it does not hold.
func TestProxyTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil) // for its certificate, which is for 127.0.0.1 and example.com
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	certificate := &tls.Config{Certificates: server.TLS.Certificates}
	tests := []struct {
		name  string
		roots *x509.CertPool
		host  string
		ok    bool
	}{
		{"its own authority", roots, "127.0.0.1", true},
		{"the system's authorities", nil, "127.0.0.1", false},
		{"another authority", x509.NewCertPool(), "127.0.0.1", false},
		{"another name", roots, "localhost", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newForwardProxy(t, "tunnel", certificate)
			_, port, err := net.SplitHostPort(p.addr)
			if err != nil {
				t.Fatal(err)
			}
			conn, _, err := throughProxy(t, Config{
				Proxy:   &Proxy{URL: "https://" + net.JoinHostPort(tt.host, port), RootCAs: tt.roots},
				RootCAs: roots, // those for receivers count for nothing here
			}, 10*time.Second)
			if tt.ok {
				if err != nil {
					t.Fatal(err)
				}
				wantEcho(t, conn)
				return
			}
			r, ok := errors.AsType[*ProxyError](err)
			if _, verify := errors.AsType[*tls.CertificateVerificationError](err); !ok || !verify {
				t.Errorf("got %#v, want the proxy's certificate refused", r)
			}
			if len(p.asked()) > 0 {
				t.Error("it was asked before it was known")
			}
		})
	}
}

func TestProxyPrintsNoSecret(t *testing.T) {
	t.Parallel()
	p := Proxy{URL: "http://proxy.example:3128", Authorization: "Basic hunter2"}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "proxy", p, "pointer", &p)
	for _, text := range []string{fmt.Sprint(p), fmt.Sprintf("%+v", p), fmt.Sprintf("%#v", p), fmt.Sprint(&p), fmt.Sprintf("%+v", Config{Proxy: &p}), log.String()} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("prints its secret: %s", text)
		}
		if !strings.Contains(text, "proxy") {
			t.Errorf("prints nothing of it: %s", text)
		}
	}
}
