package egress

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/signature"
)

const (
	sendSecret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	sendSecret2 = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	// sendToken stands in URLs, in path and query. It must not get out.
	sendToken = "S3CRET-T0KEN"
)

// sendKeys parses secrets of Standard Webhooks.
func sendKeys(tb testing.TB, secrets ...string) []signature.Key {
	tb.Helper()
	p, ok := signature.ProviderByName("standard-webhooks")
	if !ok {
		tb.Fatal("no provider standard-webhooks")
	}
	keys := make([]signature.Key, len(secrets))
	for i, s := range secrets {
		var err error
		if keys[i], err = p.Verifier().ParseKey([]byte(s)); err != nil {
			tb.Fatalf("secret %d: %v", i, err)
		}
	}
	return keys
}

// sendEndpoint is an endpoint at rawURL, on 127.0.0.1 and any port, with what the changes make of it.
func sendEndpoint(tb testing.TB, rawURL string, changes ...func(*Endpoint, *netguard.Config)) *Endpoint {
	tb.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		tb.Fatal(err)
	}
	port, _ := strconv.ParseUint(u.Port(), 10, 16)
	c := netguard.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, AllowHTTP: true, Ports: []uint16{443, uint16(port)}}
	if port == 0 {
		c.Ports = c.Ports[:1]
	}
	e := &Endpoint{ID: "acme", Keys: sendKeys(tb, sendSecret), Policy: Policy{Timeout: 10 * time.Second, MaxInFlight: 8}}
	for _, change := range changes {
		change(e, &c)
	}
	if e.Filter, err = netguard.New(c); err != nil {
		tb.Fatal(err)
	}
	if e.Target, err = e.Filter.Check(rawURL); err != nil {
		tb.Fatal(err)
	}
	return e
}

func sendWithin(d time.Duration) func(*Endpoint, *netguard.Config) {
	return func(e *Endpoint, _ *netguard.Config) { e.Policy.Timeout = d }
}

func sendTrusting(roots *x509.CertPool) func(*Endpoint, *netguard.Config) {
	return func(_ *Endpoint, c *netguard.Config) { c.RootCAs = roots }
}

func sendEvent() *Event {
	return &Event{ID: "evt_1", Type: "invoice.paid", ContentType: "application/json", Body: []byte(`{"type":"invoice.paid","timestamp":"2026-11-30T20:00:00.000Z","data":{"a":1.0}}`)}
}

func sendSender(tb testing.TB) *HTTPSender {
	tb.Helper()
	s, err := NewHTTPSender(SenderConfig{UserAgent: "sidehook/1.2.3"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// sendOnce makes one attempt with a sender of its own and checks what holds of every Result.
func sendOnce(t *testing.T, e *Endpoint) Result {
	t.Helper()
	return sendWith(t, sendSender(t), e, 1)
}

func sendWith(t *testing.T, s *HTTPSender, e *Endpoint, attempt int) Result {
	t.Helper()
	start := time.Now()
	r := s.Send(t.Context(), e, sendEvent(), attempt)
	sendCheck(t, e, r)
	if took := time.Since(start); took > e.Policy.Timeout+2*time.Second {
		t.Errorf("the attempt took %s, with a time limit of %s", took, e.Policy.Timeout)
	}
	return r
}

// sendCheck checks what holds of every Result: every failure has a reason, in a few words and without the URL's secrets.
func sendCheck(t *testing.T, e *Endpoint, r Result) {
	t.Helper()
	if r.Outcome == 0 || r.Outcome >= outcomes {
		t.Fatalf("outcome %d", r.Outcome)
	}
	if (r.Outcome == OutcomeDelivered) != (r.Detail == "") {
		t.Errorf("%s with the detail %q", r.Outcome, r.Detail)
	}
	if len(r.Detail) > maxDetail || strings.Contains(r.Detail, sendToken) || e.Target.URL != "" && strings.Contains(r.Detail, e.Target.URL) {
		t.Errorf("%s: the detail is too long or holds what it should not: %q", r.Outcome, r.Detail)
	}
	if r.Took <= 0 {
		t.Errorf("took %s", r.Took)
	}
	if len(r.Answer) > keptAnswer || r.AnswerBytes > maxAnswer {
		t.Errorf("%d bytes of the answer kept, %d read", len(r.Answer), r.AnswerBytes)
	}
}

func sendWant(t *testing.T, r Result, want Outcome) {
	t.Helper()
	if r.Outcome != want {
		t.Errorf("outcome %s (%s), want %s", r.Outcome, r.Detail, want)
	}
}

// sendServe listens on 127.0.0.1 and hands each connection to serve, which need not close it. It returns host:port.
func sendServe(tb testing.TB, serve func(c net.Conn)) string {
	tb.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var (
		mu    sync.Mutex
		conns []net.Conn
		over  bool
		wg    sync.WaitGroup
	)
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if conns = append(conns, c); over {
				c.Close()
			}
			mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		mu.Lock()
		over = true
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// sendBound returns an address at which nobody listens, and nobody else can, and its socket.
func sendBound(t *testing.T) (at string, fd int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port), fd
}

// sendReadRequest reads a whole request from c, as a server does that knows what comes.
func sendReadRequest(br *bufio.Reader) (*http.Request, []byte, error) {
	r, err := http.ReadRequest(br)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(r.Body)
	return r, body, err
}

// sendAnswer serves connections on each of which it reads requests and writes the same raw answer.
func sendAnswer(tb testing.TB, answer string) string {
	return sendServe(tb, func(c net.Conn) {
		for br := bufio.NewReader(c); ; {
			if _, _, err := sendReadRequest(br); err != nil {
				return
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
}

// sendReset has the connection end with RST: what is unsent is thrown away.
func sendReset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// sendCA is a certificate authority that lives as long as the test.
type sendCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newSendCA(tb testing.TB) *sendCA {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	ca := &sendCA{key: key, pool: x509.NewCertPool()}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	ca.pool.AddCert(ca.cert)
	return ca
}

// issue makes a certificate for 127.0.0.1 and hooks.acme.example, with what the changes make of it; key nil: a new one.
func (ca *sendCA) issue(tb testing.TB, key crypto.Signer, changes ...func(*x509.Certificate)) tls.Certificate {
	tb.Helper()
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			tb.Fatal(err)
		}
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "receiver"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"hooks.acme.example"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	for _, change := range changes {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		tb.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// sendHTTPS serves h over TLS with HTTP/2 and HTTP/1.1, or only those of protocols. It returns the URL's beginning.
func sendHTTPS(tb testing.TB, cert tls.Certificate, h http.Handler, protocols ...string) string {
	tb.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(len(protocols) == 0 || protocols[0] == "http/1.1")
	s.Protocols.SetHTTP2(len(protocols) == 0 || protocols[0] == "h2")
	return sendRun(tb, s, func() error { return s.ServeTLS(l, "", "") }, "https://"+l.Addr().String())
}

// sendHTTP serves h without TLS.
func sendHTTP(tb testing.TB, h http.Handler) string {
	tb.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	return sendRun(tb, s, func() error { return s.Serve(l) }, "http://"+l.Addr().String())
}

func sendRun(tb testing.TB, s *http.Server, serve func() error, at string) string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = serve()
	}()
	tb.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return at
}

// sendEventually waits until what happens on another goroutine has happened.
func sendEventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for tick := time.NewTicker(time.Millisecond); ; {
		select {
		case <-tick.C:
			if done() {
				tick.Stop()
				return
			}
		case <-limit:
			t.Fatalf("not within 10s: %s", what)
		}
	}
}

// sendDNS is what a name server answers.
type sendDNS struct {
	addrs  string // IPv4 addresses, separated by blanks
	rcode  dnsmessage.RCode
	silent bool
}

// sendNamed has the endpoint's names looked up at a name server of the test's own, which asks answer for each question.
func sendNamed(tb testing.TB, answer func(name string) sendDNS) func(*Endpoint, *netguard.Config) {
	return func(_ *Endpoint, c *netguard.Config) {
		c.AllowNames = append(c.AllowNames, ".example")
		c.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			tb.Cleanup(func() { theirs.Close() })
			go func() {
				for {
					if err := serveDNS(theirs, answer); err != nil {
						theirs.Close()
						return
					}
				}
			}()
			return ours, nil
		}}
	}
}

// serveDNS answers one question that comes over a stream (RFC 1035, section 4.2.2).
func serveDNS(c net.Conn, answer func(name string) sendDNS) error {
	size := make([]byte, 2)
	if _, err := io.ReadFull(c, size); err != nil {
		return err
	}
	query := make([]byte, binary.BigEndian.Uint16(size))
	if _, err := io.ReadFull(c, query); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return err
	}
	q := m.Questions[0]
	a := answer(q.Name.String())
	if a.silent {
		return nil
	}
	m.Response, m.RecursionAvailable, m.RCode, m.Additionals = true, true, a.rcode, nil
	for addr := range strings.FieldsSeq(a.addrs) {
		if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()},
			})
		}
	}
	reply, err := m.AppendPack(make([]byte, 2))
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint16(reply, uint16(len(reply)-2))
	_, err = c.Write(reply)
	return err
}
