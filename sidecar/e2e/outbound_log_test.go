package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReceiverWritesNothingToOurLog has a receiver send bytes that nobody asked for after its answer, as one would that
// echoes the token in its URL: net/http logs the like by itself.
func TestReceiverWritesNothingToOurLog(t *testing.T) {
	t.Parallel()
	const echoed = "token-that-stands-in-the-url"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		defer close(closed)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		_, _ = io.WriteString(c, "HTTP/1.1 200 "+echoed+"\r\n\r\n")
		_, _ = io.Copy(io.Discard, c) // until the other side, which did not ask, hangs up
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o := startOutbound(t, fmt.Sprintf(`
  filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s]}
  endpoints:
  - {id: a, url: "http://%s/%s", secrets: [{file: FOLDER/endpoint-a}]}`, port, l.Addr(), echoed), "")
	if code, _, err := o.post(t.Context(), map[string]any{"type": "invoice.paid", "data": 1}); err != nil || code != http.StatusAccepted {
		t.Fatalf("an event was answered %d, %v", code, err)
	}
	eventually(t, "the connection is closed", func() bool {
		select {
		case <-closed:
			return true
		default:
			return false
		}
	})
	if err := o.gate.stop(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(o.logs, "sidehook.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), echoed) {
		t.Errorf("sidehook's log holds what the receiver sent:\n%s", text)
	}
}
