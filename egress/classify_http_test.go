package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestKnownTexts provokes each error that is known by its text alone. A Go that words one of them differently fails here.
func TestKnownTexts(t *testing.T) {
	t.Parallel()
	ca := newSendCA(t)
	client := func(t *testing.T, at string, change func(*http.Transport)) (*http.ClientConn, error) {
		t.Helper()
		e := sendEndpoint(t, at, sendTrusting(ca.pool))
		tr := newTransport(e.Filter)
		if change != nil {
			change(tr)
		}
		scheme, host, _ := strings.Cut(at, "://")
		tr.DialContext = (&net.Dialer{}).DialContext
		cc, err := tr.NewClientConn(t.Context(), scheme, host)
		if err == nil {
			t.Cleanup(func() { cc.Close() })
		}
		return cc, err
	}
	post := func(t *testing.T, cc *http.ClientConn, at string) error {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := cc.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
			return nil
		}
		return err
	}
	sent := func(at string) func(*testing.T) error {
		return func(t *testing.T) error {
			cc, err := client(t, at, nil)
			if err != nil {
				t.Fatal(err)
			}
			return post(t, cc, at)
		}
	}
	// dead posts on a connection that has ended, or was told to.
	dead := func(at string, ended func(*http.ClientConn) bool) func(*testing.T) error {
		return func(t *testing.T) error {
			cc, err := client(t, at, nil)
			if err != nil {
				t.Fatal(err)
			}
			sendEventually(t, "the connection ends", func() bool { return ended(cc) })
			return post(t, cc, at)
		}
	}
	h2 := func(t *testing.T, then func(r *h2Receiver, stream uint32)) string {
		return serveH2(t, ca, func(r *h2Receiver, _ int) {
			if stream, err := r.request(); err == nil {
				then(r, stream)
			}
		})
	}
	header := func(lines int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := range lines {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
			}
		})
	}
	hints := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Hint", strings.Repeat("x", 1000))
		for range 200 {
			w.WriteHeader(http.StatusEarlyHints)
		}
	})
	provoke := map[string]func(*testing.T) error{
		"server response headers exceeded":                  sent("http://" + sendAnswer(t, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 2*maxAnswerHeader)+"\r\n\r\n")),
		"response header list larger than advertised limit": sent(sendHTTPS(t, ca.issue(t, nil), header(64), "h2")),
		"connection error: PROTOCOL_ERROR":                  sent(sendHTTPS(t, ca.issue(t, nil), header(2000), "h2")),
		"header list too large":                             sent(sendHTTPS(t, ca.issue(t, nil), hints, "h2")),
		"server closed idle connection":                     dead("http://"+sendServe(t, func(net.Conn) {}), func(cc *http.ClientConn) bool { return cc.Err() != nil }),
		"client conn could not be established": dead(serveH2(t, ca, func(r *h2Receiver, _ int) { r.conn.Close() }),
			func(cc *http.ClientConn) bool { return cc.Err() != nil }),
		"client conn not usable": dead(serveH2(t, ca, func(r *h2Receiver, _ int) { _ = r.WriteGoAway(0, http2.ErrCodeNo, nil) }), func(cc *http.ClientConn) bool {
			if cc.Reserve() != nil {
				return true
			}
			cc.Release()
			return false
		}),
		"Server's graceful shutdown GOAWAY":     sent(h2(t, func(r *h2Receiver, _ uint32) { _ = r.WriteGoAway(0, http2.ErrCodeNo, nil) })),
		"Transport received GOAWAY from server": sent(h2(t, func(r *h2Receiver, _ uint32) { _ = r.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil) })),
		"server sent GOAWAY and closed the connection": sent(h2(t, func(r *h2Receiver, stream uint32) {
			_ = r.WriteGoAway(stream, http2.ErrCodeNo, nil)
			r.conn.Close()
		})),
		"client connection lost": func(t *testing.T) error {
			at := h2(t, func(*h2Receiver, uint32) {}) // reads no frame any more, so answers no ping
			cc, err := client(t, at, func(tr *http.Transport) {
				tr.HTTP2.SendPingTimeout, tr.HTTP2.PingTimeout = 20*time.Millisecond, 20*time.Millisecond
			})
			if err != nil {
				t.Fatal(err)
			}
			return post(t, cc, at)
		},
		"server selected unsupported protocol version": func(t *testing.T) error {
			// A ServerHello that chooses TLS 1.1, which was not offered.
			hello := append([]byte{0x16, 3, 1, 0, 42, 2, 0, 0, 38, 3, 2}, make([]byte, 32)...)
			hello = append(hello, 0, 0xc0, 0x13, 0)
			_, err := client(t, "https://"+sendServe(t, func(c net.Conn) {
				_, _ = c.Write(hello)
				_, _ = io.Copy(io.Discard, c)
			}), nil)
			return err
		},
		"http: invalid header": func(t *testing.T) error {
			at := sendHTTP(t, http.HandlerFunc(sendInstant))
			cc, err := client(t, at, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header["X"] = []string{"a\r\nb"}
			resp, err := cc.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			return err
		},
	}
	for _, k := range knownTexts {
		t.Run(k.part, func(t *testing.T) {
			t.Parallel()
			if provoke[k.part] == nil {
				t.Fatal("nothing provokes it")
			}
			err := provoke[k.part](t)
			if err == nil || !strings.Contains(err.Error(), k.part) || knownText(err) != k.is {
				t.Errorf("provoked %v", err)
			}
		})
	}
}

// The stream error of net/http is found by its shape.
func TestStreamErrorIsFound(t *testing.T) {
	t.Parallel()
	var found streamError
	if errors.As(errors.New("stream error: stream ID 1; REFUSED_STREAM; received from peer"), &found) {
		t.Error("a text is taken for one")
	}
	if got := (streamError{Code: 99}).code(); got != "code 99" {
		t.Errorf("code %q", got)
	}
}
