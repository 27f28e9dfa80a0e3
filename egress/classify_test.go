package egress

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
)

// TestFaults has a receiver, or what is before it, fail in one way each: each gets a name of its own, none is a success.
func TestFaults(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	read := func(then func(net.Conn)) func(net.Conn) {
		return func(c net.Conn) {
			if _, _, err := sendReadRequest(bufio.NewReader(c)); err == nil {
				then(c)
			}
		}
	}
	hang := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	say := func(text string, then func(net.Conn)) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, text)
			then(c)
		}
	}
	done := func(net.Conn) {}
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"
	for _, c := range []struct {
		name, scheme string
		serve        func(net.Conn)
		want         Outcome
		status       int
	}{
		{"closes without an answer", "http", read(done), OutcomeConnectionClosed, 0},
		{"resets without an answer", "http", read(sendReset), OutcomeConnectionReset, 0},
		{"hangs before the header", "http", read(hang), OutcomeTimeoutHeaders, 0},
		{"hangs in the header", "http", read(say("HTTP/1.1 200 OK\r\nX: ", hang)), OutcomeTimeoutHeaders, 0},
		{"hangs in the body", "http", read(say(head, hang)), OutcomeTimeoutBody, 200},
		{"closes in the body", "http", read(say(head, done)), OutcomeConnectionClosed, 200},
		{"mesh has no cluster", "http", read(say("HTTP/1.1 503 Service Unavailable\r\nserver: envoy\r\nContent-Length: 0\r\n\r\n", done)), OutcomeMeshReset, 503},
		{"mesh knows no route", "http", read(say("HTTP/1.1 502 Bad Gateway\r\nServer: envoy\r\nContent-Length: 0\r\n\r\n", done)), OutcomeMeshReset, 502},
		{"TLS: closes at once", "https", done, OutcomeMeshReset, 0},
		{"TLS: closes after the hello", "https", func(c net.Conn) { _, _ = c.Read(make([]byte, 16<<10)) }, OutcomeMeshReset, 0},
		{"TLS: resets", "https", func(c net.Conn) { _, _ = c.Read(make([]byte, 1)); sendReset(c) }, OutcomeMeshReset, 0},
		{"TLS: hangs in the handshake", "https", hang, OutcomeConnectTimeout, 0},
		{"TLS: speaks HTTP", "https", say("HTTP/1.1 400 Bad Request\r\n\r\n", hang), OutcomeTLSHandshake, 0},
		{"TLS: stops after a byte", "https", say("\x16", func(c net.Conn) { _, _ = c.Read(make([]byte, 16<<10)) }), OutcomeTLSHandshake, 0},
		{"TLS: wants no client", "https", say("\x15\x03\x03\x00\x02\x02\x28", hang), OutcomeTLSHandshake, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at := sendServe(t, c.serve)
			r := sendOnce(t, sendEndpoint(t, c.scheme+"://"+at+"/"+sendToken+"?token="+sendToken, sendWithin(limit)))
			sendWant(t, r, c.want)
			if r.Status != c.status || r.IP.String() != "127.0.0.1" || r.RetryAfter != 0 {
				t.Errorf("status %d, IP %s, Retry-After %s", r.Status, r.IP, r.RetryAfter)
			}
		})
	}
}

func TestFaultNobodyListens(t *testing.T) {
	t.Parallel()
	at, _ := sendBound(t)
	r := sendOnce(t, sendEndpoint(t, "https://"+at+"/"+sendToken))
	sendWant(t, r, OutcomeConnectRefused)
	if r.Wrote || r.IP.String() != "127.0.0.1" {
		t.Errorf("wrote %t, IP %s", r.Wrote, r.IP)
	}
}

// A receiver that takes the connection and reads nothing must not hold the attempt beyond its time.
func TestFaultReceiverReadsNothing(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	quit := make(chan struct{})
	at := sendServe(t, func(net.Conn) { <-quit })
	t.Cleanup(func() { close(quit) })
	stuck := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for name, at := range map[string]string{
		"HTTP/1":          "http://" + at,
		"HTTP/1 over TLS": sendHTTPS(t, ca.issue(t, nil), stuck, "http/1.1"),
		"HTTP/2":          sendHTTPS(t, ca.issue(t, nil), stuck, "h2"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := sendEndpoint(t, at, sendTrusting(ca.pool), sendWithin(time.Second))
			ev := sendEvent()
			ev.Body = make([]byte, 32<<20) // more than any buffer between us
			r := sendSender(t).Send(t.Context(), e, ev, 1)
			sendCheck(t, e, r)
			sendWant(t, r, OutcomeTimeoutHeaders)
			if r.Took > 3*time.Second {
				t.Errorf("took %s", r.Took)
			}
		})
	}
}

// A receiver of which no SYN is answered.
func TestFaultConnectTimeout(t *testing.T) {
	t.Parallel()
	at, fd := sendBound(t)
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for full := false; !full; { // nobody accepts: once the backlog is full, the kernel drops SYNs
		c, err := net.DialTimeout("tcp4", at, 500*time.Millisecond)
		if full = err != nil; !full {
			t.Cleanup(func() { c.Close() })
		}
	}
	r := sendOnce(t, sendEndpoint(t, "http://"+at, sendWithin(500*time.Millisecond)))
	sendWant(t, r, OutcomeConnectTimeout)
}

func TestFaultCertificate(t *testing.T) {
	t.Parallel()
	ca, other := newSendCA(t), newSendCA(t)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	strong, err := rsa.GenerateKey(rand.Reader, minRSABits)
	if err != nil {
		t.Fatal(err)
	}
	self := newSendCA(t)
	selfSigned := tls.Certificate{Certificate: [][]byte{self.cert.Raw}, PrivateKey: self.key}
	// A chain of two below the CA, of which the server sends the lower one alone, or both.
	middleKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	middle := ca.issue(t, middleKey, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	})
	below := &sendCA{key: middleKey}
	if below.cert, err = x509.ParseCertificate(middle.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	incomplete := below.issue(t, nil)
	complete := incomplete
	complete.Certificate = append(complete.Certificate[:1:1], middle.Certificate[0])

	for _, c := range []struct {
		name string
		cert tls.Certificate
		want Outcome
	}{
		{"good", ca.issue(t, nil), OutcomeDelivered},
		{"good RSA", ca.issue(t, strong), OutcomeDelivered},
		{"whole chain", complete, OutcomeDelivered},
		{"expired", ca.issue(t, nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), OutcomeTLSVerify},
		{"not valid yet", ca.issue(t, nil, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), OutcomeTLSVerify},
		{"for another host", ca.issue(t, nil, func(c *x509.Certificate) { c.IPAddresses = nil }), OutcomeTLSVerify},
		{"for clients", ca.issue(t, nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), OutcomeTLSVerify},
		{"of another authority", other.issue(t, nil), OutcomeTLSVerify},
		{"self-signed", selfSigned, OutcomeTLSVerify},
		{"chain cut short", incomplete, OutcomeTLSVerify},
		{"RSA of 1024 bits", ca.issue(t, weak), OutcomeTLSVerify},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var seen sendSeen
			e := sendEndpoint(t, sendHTTPS(t, c.cert, &seen)+"/"+sendToken, sendTrusting(ca.pool))
			sendWant(t, sendOnce(t, e), c.want)
			if n := len(seen.requests); (n == 1) != (c.want == OutcomeDelivered) {
				t.Errorf("%d requests arrived", n)
			}
		})
	}
	t.Run("good, but nobody told us of its authority", func(t *testing.T) {
		t.Parallel()
		sendWant(t, sendOnce(t, sendEndpoint(t, sendHTTPS(t, ca.issue(t, nil), &sendSeen{}))), OutcomeTLSVerify)
	})
}

// The name in the URL is what the certificate must be for, whatever address it has.
func TestFaultCertificateForName(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	for _, c := range []struct {
		dns  string
		want Outcome
	}{{"hooks.acme.example", OutcomeDelivered}, {"*.acme.example", OutcomeDelivered}, {"hooks.other.example", OutcomeTLSVerify}} {
		var seen sendSeen
		cert := ca.issue(t, nil, func(x *x509.Certificate) { x.IPAddresses, x.DNSNames = nil, []string{c.dns} })
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(sendHTTPS(t, cert, &seen), "https://"))
		e := sendEndpoint(t, "https://hooks.acme.example:"+port+"/in", sendTrusting(ca.pool), sendNamed(t, func(string) sendDNS { return sendDNS{addrs: "127.0.0.1"} }))
		sendWant(t, sendOnce(t, e), c.want)
		if c.want == OutcomeDelivered {
			req, _, _ := seen.last(t)
			if req.Host != "hooks.acme.example:"+port || req.TLS.ServerName != "hooks.acme.example" {
				t.Errorf("Host %q, SNI %q", req.Host, req.TLS.ServerName)
			}
		}
	}
}

func TestFaultTLS(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	for _, c := range []struct {
		name   string
		config *tls.Config
		want   Outcome
	}{
		{"TLS 1.3 alone", &tls.Config{MinVersion: tls.VersionTLS13}, OutcomeDelivered},
		{"TLS 1.2 alone", &tls.Config{MaxVersion: tls.VersionTLS12}, OutcomeDelivered},
		{"TLS 1.1 at most", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, OutcomeTLSVersion},
		{"wants our certificate, TLS 1.2", &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}, OutcomeTLSHandshake},
		{"wants our certificate, TLS 1.3", &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}, OutcomeTLSHandshake},
		{"speaks another protocol", &tls.Config{NextProtos: []string{"smtp"}}, OutcomeTLSHandshake},
		{"has no cipher in common", &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}}, OutcomeTLSHandshake},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.config.Certificates = []tls.Certificate{ca.issue(t, nil)}
			at := sendServe(t, func(conn net.Conn) {
				server := tls.Server(conn, c.config)
				if _, _, err := sendReadRequest(bufio.NewReader(server)); err == nil {
					_, _ = io.WriteString(server, "HTTP/1.1 204 No Content\r\n\r\n")
				}
				_, _ = io.Copy(io.Discard, conn)
			})
			sendWant(t, sendOnce(t, sendEndpoint(t, "https://"+at+"/"+sendToken, sendTrusting(ca.pool))), c.want)
		})
	}
}

func TestFaultName(t *testing.T) {
	t.Parallel()
	at := sendHTTP(t, &sendSeen{})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(at, "http://"))
	for _, c := range []struct {
		name string
		dns  sendDNS
		want Outcome
	}{
		{"good", sendDNS{addrs: "127.0.0.1"}, OutcomeDelivered},
		{"does not exist", sendDNS{rcode: 3}, OutcomeNoSuchHost},
		{"has no address", sendDNS{}, OutcomeNoSuchHost},
		{"SERVFAIL", sendDNS{rcode: 2}, OutcomeResolverFailed},
		{"REFUSED", sendDNS{rcode: 5}, OutcomeResolverFailed},
		{"no answer", sendDNS{silent: true}, OutcomeResolverFailed},
		{"an address of the pod's network", sendDNS{addrs: "10.0.0.7"}, OutcomeAddressRefused},
		{"a metadata service among good ones", sendDNS{addrs: "127.0.0.1 169.254.169.254"}, OutcomeAddressRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := sendEndpoint(t, "http://hooks.acme.example:"+port+"/"+sendToken, sendWithin(time.Second), sendNamed(t, func(string) sendDNS { return c.dns }))
			r := sendOnce(t, e)
			sendWant(t, r, c.want)
			if delivered := c.want == OutcomeDelivered; r.IP.IsValid() != delivered || r.Wrote != delivered {
				t.Errorf("IP %s, wrote %t", r.IP, r.Wrote)
			}
		})
	}
}

// Faults of our own proxy are not the receiver's.
func TestFaultProxy(t *testing.T) {
	t.Parallel()
	receiver := strings.TrimPrefix(sendHTTP(t, &sendSeen{}), "http://")
	connect := func(answer string) string {
		return "http://" + sendServe(t, func(c net.Conn) {
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil || r.Method != http.MethodConnect {
				return
			}
			if _, err := io.WriteString(c, answer); err != nil || !strings.Contains(answer, " 200 ") {
				return
			}
			up, err := net.Dial("tcp4", r.Host)
			if err != nil {
				return
			}
			go func() {
				defer up.Close()
				_, _ = io.Copy(up, c)
			}()
			_, _ = io.Copy(c, up)
		})
	}
	closed, _ := sendBound(t)
	for _, c := range []struct {
		name, proxy string
		want        Outcome
	}{
		{"good", connect("HTTP/1.1 200 OK\r\n\r\n"), OutcomeDelivered},
		{"is down", "http://" + closed, OutcomeProxyFailed},
		{"wants a password", connect("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"), OutcomeProxyFailed},
		{"forbids it", connect("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"), OutcomeProxyFailed},
		{"does not reach the receiver", connect("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"), OutcomeUnreachable},
		{"has another certificate", sendHTTPS(t, newSendCA(t).issue(t, nil), &sendSeen{}), OutcomeProxyFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := sendEndpoint(t, "http://"+receiver+"/"+sendToken, func(_ *Endpoint, f *netguard.Config) {
				f.Proxy = &netguard.Proxy{URL: c.proxy, Authorization: "Basic " + sendToken}
			})
			sendWant(t, sendOnce(t, e), c.want)
		})
	}
}

// What cannot be had on a loopback interface, as the net package gives it.
func TestClassifyDial(t *testing.T) {
	t.Parallel()
	dial := func(addr string, errno syscall.Errno) error {
		to := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
		return fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: os.NewSyscallError("connect", errno)})
	}
	const v4, v6 = "192.0.2.1:443", "[2001:db8::1]:443"
	for _, c := range []struct {
		err  error
		want Outcome
	}{
		{dial(v4, syscall.ECONNREFUSED), OutcomeConnectRefused},
		{dial(v4, syscall.EHOSTUNREACH), OutcomeUnreachable},
		{dial(v4, syscall.ENETUNREACH), OutcomeUnreachable},
		{dial(v4, syscall.EPERM), OutcomeUnreachable}, // a packet filter of the pod's
		{dial(v4, syscall.ETIMEDOUT), OutcomeConnectTimeout},
		{dial(v4, syscall.ECONNRESET), OutcomeConnectionReset},
		{dial(v6, syscall.ENETUNREACH), OutcomeUnreachable},
		{dial(v6, syscall.EADDRNOTAVAIL), OutcomeUnreachable},
		{dial(v4, syscall.EADDRNOTAVAIL), OutcomeInternal}, // no local port is left
		{dial(v4, syscall.EMFILE), OutcomeInternal},
		{dial(v4, syscall.ENFILE), OutcomeInternal},
		{dial(v4, syscall.ENOBUFS), OutcomeInternal},
		{dial(v4, syscall.ENOMEM), OutcomeInternal},
		{&netguard.ProxyError{Err: dial(v4, syscall.ECONNREFUSED)}, OutcomeProxyFailed},
		{&netguard.ProxyError{Err: context.DeadlineExceeded}, OutcomeProxyFailed},
		{&netguard.TunnelError{Status: 503}, OutcomeUnreachable},
		{&netguard.TunnelError{}, OutcomeConnectTimeout},
		{&netguard.Refusal{Verdict: netguard.VerdictPrivate}, OutcomeAddressRefused},
		{context.DeadlineExceeded, OutcomeConnectTimeout},
		{errors.New("something new at " + sendToken), OutcomeUnreachable},
	} {
		f := failure{err: c.err, phase: phaseDial}
		got, detail := f.classify()
		if got != c.want || detail == "" || strings.Contains(detail, sendToken) {
			t.Errorf("%v: %s (%s), want %s", c.err, got, detail, c.want)
		}
	}
}

// Whatever an error says and wherever it comes, it gets an outcome that is a failure, and a reason in our own words: what
// comes from the receiver may repeat the request.
func FuzzClassify(f *testing.F) {
	for _, k := range knownTexts {
		f.Add(k.part, uint8(phaseHeader), true, true, false)
	}
	f.Add("malformed HTTP response", uint8(phaseBody), false, false, false)
	f.Add("tls: ", uint8(phaseHeader), false, true, true)
	f.Fuzz(func(t *testing.T, text string, p uint8, silent, reused, late bool) {
		ph := phase(p % uint8(phaseBody+1))
		said := errors.New(text + sendToken)
		for _, err := range []error{
			said, fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, said), &net.OpError{Op: text, Err: said}, &net.OpError{Op: "remote error", Err: said},
			&net.DNSError{Err: said.Error(), Name: text}, os.NewSyscallError(said.Error(), syscall.Errno(len(text)%140)),
			streamError{Code: uint32(len(text)), Cause: said}, &netguard.ProxyError{Status: len(text), Err: said},
		} {
			x := failure{err: err, phase: ph, silent: silent, reused: reused, late: late}
			o, detail := x.classify()
			if o == 0 || o >= outcomes || o == OutcomeDelivered || o == OutcomeInterrupted || detail == "" {
				t.Fatalf("%v in phase %d: %s, %q", err, ph, o, detail)
			}
			if ph != phasePrepare && ph != phaseHandshake && strings.Contains(detail, sendToken) {
				t.Fatalf("%v in phase %d: the detail repeats it: %q", err, ph, detail)
			}
		}
	})
}

// TestStopIsNoFault: of what a stop of ours cuts off nothing is said of the receiver.
func TestStopIsNoFault(t *testing.T) {
	t.Parallel()
	for p := phasePrepare; p <= phaseBody; p++ {
		f := failure{err: syscall.ECONNREFUSED, phase: p, stopped: true, late: true}
		if o, detail := f.classify(); o != OutcomeInterrupted || detail == "" {
			t.Errorf("phase %d: %s (%s)", p, o, detail)
		}
	}
}
