package egress

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
)

// What a receiver chooses of what we offer decides which HTTP is spoken; what it must not choose ends the attempt.
func TestALPN(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	for _, c := range []struct {
		name   string
		offers []string
		proto  string
	}{
		{"both", []string{"h2", "http/1.1"}, "HTTP/2.0"},
		{"both, the other way round", []string{"http/1.1", "h2"}, "HTTP/1.1"}, // the receiver's order counts
		{"h2 alone", []string{"h2"}, "HTTP/2.0"},
		{"http/1.1 alone", []string{"http/1.1"}, "HTTP/1.1"},
		{"none", nil, "HTTP/1.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var seen sendSeen
			server := &http.Server{Handler: &seen, ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
			server.Protocols.SetHTTP1(true)
			server.Protocols.SetHTTP2(true)
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			// Serve, unlike ServeTLS, leaves what is offered as it is.
			secured := tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}, NextProtos: c.offers})
			at := sendRun(t, server, func() error { return server.Serve(secured) }, "https://"+l.Addr().String())
			e, s := sendEndpoint(t, at, sendTrusting(ca.pool)), sendSender(t)
			for attempt := range 2 {
				r := sendWith(t, s, e, attempt+1)
				sendWant(t, r, OutcomeDelivered)
				if r.Reused != (attempt == 1) {
					t.Errorf("attempt %d: reused %t", attempt+1, r.Reused)
				}
			}
			if req, _, _ := seen.last(t); req.Proto != c.proto {
				t.Errorf("spoke %s, want %s", req.Proto, c.proto)
			}
		})
	}
	t.Run("what nobody offered", func(t *testing.T) {
		t.Parallel()
		at := sendServe(t, func(c net.Conn) {
			if _, err := io.ReadFull(c, make([]byte, 5)); err == nil {
				_, _ = c.Write(serverHello("smtp"))
			}
			_, _ = io.Copy(io.Discard, c)
		})
		r := sendOnce(t, sendEndpoint(t, "https://"+at+"/"+sendToken))
		sendWant(t, r, OutcomeTLSHandshake)
		if !strings.Contains(r.Detail, "ALPN") {
			t.Errorf("the detail does not say so: %q", r.Detail)
		}
	})
}

// serverHello is a record with a ServerHello of TLS 1.2 (RFC 5246, section 7.4.1.3) that has chosen a protocol (RFC 7301).
func serverHello(protocol string) []byte {
	alpn := append([]byte{0, 16}, binary.BigEndian.AppendUint16(nil, uint16(len(protocol)+3))...)
	alpn = binary.BigEndian.AppendUint16(alpn, uint16(len(protocol)+1))
	alpn = append(append(alpn, byte(len(protocol))), protocol...)
	hello := append([]byte{3, 3}, strings.Repeat("\x2a", 32)...) // version, random
	hello = append(hello, 0, 0xc0, 0x2b, 0)                      // no session, ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, no compression
	hello = append(binary.BigEndian.AppendUint16(hello, uint16(len(alpn))), alpn...)
	message := append([]byte{2, 0}, binary.BigEndian.AppendUint16(nil, uint16(len(hello)))...)
	message = append(message, hello...)
	return append(append([]byte{22, 3, 3}, binary.BigEndian.AppendUint16(nil, uint16(len(message)))...), message...)
}

// Only the names and addresses that a certificate lists as such count, each for its own kind.
func TestCertificateNames(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	const host = "hooks.acme.example"
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, c := range []struct {
		name   string
		byName bool // the URL has the name, else the address
		cert   x509.Certificate
		want   Outcome
	}{
		{"name", true, x509.Certificate{DNSNames: []string{host}}, OutcomeDelivered},
		{"address", false, x509.Certificate{IPAddresses: loopback}, OutcomeDelivered},
		{"name alone, asked by address", false, x509.Certificate{DNSNames: []string{host}}, OutcomeTLSVerify},
		{"address alone, asked by name", true, x509.Certificate{IPAddresses: loopback}, OutcomeTLSVerify},
		{"name as CN only", true, x509.Certificate{Subject: pkix.Name{CommonName: host}}, OutcomeTLSVerify},
		{"address as CN only", false, x509.Certificate{Subject: pkix.Name{CommonName: "127.0.0.1"}}, OutcomeTLSVerify},
		{"address as a name", false, x509.Certificate{DNSNames: []string{"127.0.0.1"}}, OutcomeTLSVerify},
		{"wildcard of the level above", true, x509.Certificate{DNSNames: []string{"*.example"}}, OutcomeTLSVerify},
		{"wildcard over all", true, x509.Certificate{DNSNames: []string{"*"}}, OutcomeTLSVerify},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var seen sendSeen
			cert := ca.issue(t, nil, func(x *x509.Certificate) {
				x.DNSNames, x.IPAddresses = c.cert.DNSNames, c.cert.IPAddresses
				x.Subject = c.cert.Subject
			})
			at := sendHTTPS(t, cert, &seen) + "/" + sendToken
			if c.byName {
				at = strings.Replace(at, "127.0.0.1", host, 1)
			}
			e := sendEndpoint(t, at, sendTrusting(ca.pool), sendNamed(t, func(string) sendDNS { return sendDNS{addrs: "127.0.0.1"} }))
			sendWant(t, sendOnce(t, e), c.want)
			if n := len(seen.requests); (n == 1) != (c.want == OutcomeDelivered) {
				t.Errorf("%d requests arrived", n)
			}
		})
	}
}

// Where TLS fails nothing is tried without it, on no port.
func TestNoPlainHTTPInstead(t *testing.T) {
	t.Parallel()
	said := make(chan byte, 100)
	at := sendServe(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		for {
			b, err := br.Peek(1)
			if err != nil {
				return
			}
			said <- b[0]
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_, _ = br.Discard(br.Buffered())
		}
	})
	e, s := sendEndpoint(t, "https://"+at), sendSender(t)
	for attempt := 1; attempt <= 3; attempt++ {
		sendWant(t, sendWith(t, s, e, attempt), OutcomeTLSHandshake)
	}
	for n := len(said); n > 0; n-- {
		if b := <-said; b != 22 && b != 21 { // a handshake or an alert
			t.Errorf("a connection began with the byte %q", b)
		}
	}
}

// Two endpoints at one address, one certificate for both: HTTP/2 would let them share a connection (RFC 9113, section
// 9.1.1). Here they do not.
func TestConnectionsAreNotCoalesced(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	var receiver sendCounted
	_, port, err := net.SplitHostPort(strings.TrimPrefix(receiver.serve(t, ca, "h2"), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	s := sendSender(t)
	shared := func(_ *Endpoint, c *netguard.Config) { c.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} }
	for i, host := range []string{"127.0.0.1", "hooks.acme.example"} {
		e := sendEndpoint(t, "https://"+host+":"+port, sendTrusting(ca.pool), shared, sendNamed(t, func(string) sendDNS { return sendDNS{addrs: "127.0.0.1"} }))
		e.ID = host
		for attempt := range 2 {
			r := sendWith(t, s, e, attempt+1)
			sendWant(t, r, OutcomeDelivered)
			if r.Reused != (attempt == 1) {
				t.Errorf("%s, attempt %d: reused %t", host, attempt+1, r.Reused)
			}
		}
		if n := int(receiver.made.Load()); n != i+1 {
			t.Errorf("%d connections for %d endpoints", n, i+1)
		}
	}
}
