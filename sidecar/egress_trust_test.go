package sidecar

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// certified is a certificate for 127.0.0.1 that is its own authority, and the file in which it stands.
type certified struct {
	tls.Certificate
	file string
}

func newCertified(t *testing.T, file string) certified {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: file}, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return certified{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file}
}

// listenTLS serves each connection with that certificate.
func listenTLS(t *testing.T, cert tls.Certificate, serve func(net.Conn)) (port string) {
	t.Helper()
	l, err := tls.Listen("tcp4", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()[len("127.0.0.1:"):]
}

// takeAll is a receiver that answers 204 to every request.
func takeAll(c net.Conn) {
	for br := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if _, err := io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
			return
		}
	}
}

// tunnel is a forward proxy.
func tunnel(c net.Conn) {
	br := bufio.NewReader(c)
	r, err := http.ReadRequest(br)
	if err != nil || r.Method != http.MethodConnect {
		return
	}
	up, err := net.Dial("tcp4", r.Host)
	if err != nil {
		return
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		up.Close()
		return
	}
	go func() {
		defer up.Close()
		_, _ = io.Copy(up, br)
	}()
	_, _ = io.Copy(c, up)
}

// Case 76: every setting that says whom we trust is tried both ways, with the certificate that it is for and with another.
// None trusts more than it says, and none stands in for another.
func TestOutboundTrust(t *testing.T) {
	p := newOutPlace(t)
	ours, other := newCertified(t, p.path("ours.pem")), newCertified(t, p.path("other.pem"))
	receiver := listenTLS(t, ours.Certificate, takeAll)
	proxy := listenTLS(t, other.Certificate, tunnel)
	through := func(ca string) string {
		return fmt.Sprintf(", proxy: {url: \"https://127.0.0.1:%s\"%s}", proxy, ca)
	}
	trusting := func(c certified) string { return ", ca_file: " + c.file }
	for _, c := range []struct {
		name   string
		global string // of egress.filter
		own    string // of the endpoint's
		want   string
	}{
		{"nobody", "", "", "tls_verify"},
		{"the receiver's", trusting(ours), "", "delivered"},
		{"another", trusting(other), "", "tls_verify"},
		{"the receiver's at the endpoint", "", trusting(ours), "delivered"},
		{"another at the endpoint", "", trusting(other), "tls_verify"},
		{"the receiver's and another at the endpoint", trusting(ours), trusting(other), "tls_verify"},
		{"another and the receiver's at the endpoint", trusting(other), trusting(ours), "delivered"},
		{"both ends of the way", trusting(ours) + through(trusting(other)), "", "delivered"},
		{"the receiver's alone and a proxy", trusting(ours) + through(""), "", "proxy_failed"},
		{"the receiver's for the proxy too", trusting(ours) + through(trusting(ours)), "", "proxy_failed"},
		{"the proxy's alone", through(trusting(other)), "", "tls_verify"},
		{"the proxy's for the receiver too", trusting(other) + through(trusting(other)), "", "tls_verify"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newOutPlace(t)
			filter := "filter: {allow: [127.0.0.1/32], ports: [" + receiver + "]" + c.global + "}\n"
			endpoint := strings.TrimSuffix(p.endpoint("acme", "https://127.0.0.1:"+receiver), "}\n")
			if c.own != "" {
				endpoint += ", filter: {" + strings.TrimPrefix(c.own, ", ") + "}"
			}
			p.config(t, filter+"delivery: {waits: [1h]}\nendpoints:\n"+endpoint+"}\n", "")
			_, stop := start(t, p.place)
			id := p.accepted(t, `{"type":"a","data":1}`)
			var got string
			eventually(t, func() error {
				event, err := p.api().GetEvent(t.Context(), connect.NewRequest(&egressv1.GetEventRequest{Id: id}))
				if err != nil {
					return err
				}
				attempts := event.Msg.GetDeliveries()[0].GetAttempts()
				if len(attempts) == 0 {
					return fmt.Errorf("no attempt was made")
				}
				got = attempts[0].GetOutcome()
				return nil
			})
			if got != c.want {
				t.Errorf("the attempt ended %s, want %s", got, c.want)
			}
			http.DefaultClient.CloseIdleConnections()
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The same holds for the mail server: one whose certificate is not of an authority that we trust hears nothing.
func TestOutboundTrustOfMail(t *testing.T) {
	p := newOutPlace(t)
	ours, other := newCertified(t, p.path("ours.pem")), newCertified(t, p.path("other.pem"))
	for _, c := range []struct {
		name, ca string
		trusted  bool
	}{
		{"nobody", "", false},
		{"the server's", ", ca_file: " + ours.file, true},
		{"another", ", ca_file: " + other.file, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newOutPlace(t)
			var heard atomic.Int32 // bytes
			mail := listenTLS(t, ours.Certificate, func(c net.Conn) { takeMail(c, &heard) })
			gone := newReceiver(t, func(int) int { return http.StatusGone })
			p.config(t, gone.filter()+"endpoints:\n"+p.endpoint("acme", gone.URL), fmt.Sprintf(
				"notify: {smtp: {server: \"127.0.0.1:%s\", from: a@example.com, to: [b@example.com], tls: TLS%s}}\n", mail, c.ca))
			var log lockedBuffer
			_, stop := start(t, p.place, logTo(&log))
			p.accepted(t, `{"type":"a","data":1}`)
			tried := `"msg":"notice not sent, it is tried again"`
			if c.trusted {
				tried = `"msg":"notice sent"`
			}
			eventually(t, func() error {
				if text := log.String(); !strings.Contains(text, tried) {
					return fmt.Errorf("no %s in\n%s", tried, text)
				}
				return nil
			})
			if c.trusted != (heard.Load() > 0) {
				t.Errorf("the server heard %d bytes", heard.Load())
			}
			http.DefaultClient.CloseIdleConnections()
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// takeMail is a mail server that takes everything and counts the bytes that it heard.
func takeMail(c net.Conn, heard *atomic.Int32) {
	br := bufio.NewReader(c)
	answer := "220 mail.test ESMTP"
	for data := false; ; {
		if answer != "" {
			if _, err := io.WriteString(c, answer+"\r\n"); err != nil {
				return
			}
		}
		line, err := br.ReadString('\n')
		if err != nil {
			return
		}
		heard.Add(int32(len(line)))
		switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case data && strings.TrimSpace(line) == ".":
			data, answer = false, "250 taken"
		case data:
			answer = ""
		case strings.EqualFold(word, "DATA"):
			data, answer = true, "354 go on"
		default:
			answer = "250 yes"
		}
	}
}
