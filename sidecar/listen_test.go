package sidecar

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestListenTCPInUse(t *testing.T) {
	t.Parallel()
	first, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := listen(t.Context(), first.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second listen: got %v, want EADDRINUSE", err)
	}
}

func TestListenSocket(t *testing.T) {
	t.Parallel()
	// A socket's path has room for about 100 bytes, less than some test folders take.
	folder, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "s")

	first, err := listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != socketMode {
		t.Errorf("socket has mode %v (%v), want %o", fi.Mode(), err, socketMode)
	}
	if _, err := listen(t.Context(), "unix:"+path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("socket that is answered: got %v, want EADDRINUSE", err)
	}

	// A killed owner leaves its file.
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t.Context(), "unix:"+path); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("ordinary file: got %v, want it refused", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "not ours" {
		t.Errorf("the file was touched: %q, %v", b, err)
	}
}

// net/http writes text to stderr unless told otherwise, between the lines of our log.
func TestHTTPServerLogsToOurLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httpServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") }), false,
		slog.New(slog.NewJSONHandler(&out, nil)))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if resp, err := http.Get("http://" + l.Addr().String()); err == nil {
		resp.Body.Close()
		t.Error("the handler that panics answered")
	}
	if err := s.Shutdown(t.Context()); err != nil { // waits for the connection, whose end comes after its line
		t.Fatal(err)
	}
	<-served
	if got := out.String(); !strings.HasPrefix(got, "{") || !strings.Contains(got, `"level":"ERROR"`) || !strings.Contains(got, "broken") {
		t.Errorf("log: %q, want a line of JSON at ERROR with the panic", got)
	}
}
