package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidehook/sidehook/sidecar/envoytest"
)

const (
	// patience bounds every wait for something that happens within milliseconds on an idle machine.
	patience = 20 * time.Second
	// pollEvery is how often such a wait looks.
	pollEvery = 5 * time.Millisecond
)

// built is the folder of the binary, made by the first test that needs it.
var built string

// binary builds sidehook once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "sidehook")
	out, err := exec.Command("go", "build", "-o", path, "github.com/sidehook/sidehook/sidecar/cmd/sidehook").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build sidehook: %w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "sidehook-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built = folder
	code := m.Run()
	_ = os.RemoveAll(folder) // the exit code tells of the tests
	os.Exit(code)
}

// eventually waits for something that has no signal of its own.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		case <-tick.C:
		}
	}
}

// freeAddr is an address of this machine for who cannot be given port 0.
func freeAddr(t testing.TB) string {
	t.Helper()
	addrs, err := envoytest.FreeAddrs(1)
	if err != nil {
		t.Fatal(err)
	}
	return addrs[0]
}

// unixClient speaks HTTP over a Unix socket, whatever the host.
func unixClient(path string) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}}
}

// tail returns the last lines of a file, for messages.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// replaceOnce changes the one place where old stands.
func replaceOnce(t *testing.T, text, old, replacement string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("%q stands %d times in\n%s", old, n, text)
	}
	return strings.Replace(text, old, replacement, 1)
}

// replaceAll changes every place where old stands.
func replaceAll(t *testing.T, text, old, replacement string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("no %q in\n%s", old, text)
	}
	return strings.ReplaceAll(text, old, replacement)
}
