package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/sidecar/config"
	"github.com/sidehook/sidehook/sidecar/envoytest"
)

const patience = 20 * time.Second

// freeAddr returns a loopback address on which nobody listens at the moment.
func freeAddr(t *testing.T) string {
	t.Helper()
	addrs, err := envoytest.FreeAddrs(1)
	if err != nil {
		t.Fatal(err)
	}
	return addrs[0]
}

// place is a configuration on disk for one test.
type place struct {
	file, gate, admin, health, store string
}

func newPlace(t *testing.T) place {
	t.Helper()
	folder := t.TempDir()
	p := place{
		file: filepath.Join(folder, "sidehook.yaml"), store: filepath.Join(folder, "store"),
		gate: freeAddr(t), admin: freeAddr(t), health: freeAddr(t),
	}
	if err := os.WriteFile(filepath.Join(folder, "secret"), []byte("whsec_0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.write(t, "5m")
	return p
}

// write writes the configuration with that tolerance.
func (p place) write(t *testing.T, tolerance string) {
	t.Helper()
	yaml := fmt.Sprintf(`store:
  bolt: {path: %s}
extauthz:
  listen: %s
  open: [{path_prefix: /}]
  sources:
  - name: payments
    match: {path_prefix: /webhooks/stripe}
    was: [billing]
    provider: stripe
    retention: 40d
    tolerance: %s
    secrets: [{file: %s}]
admin: {listen: "%s"}
health: {listen: "%s"}
`, p.store, p.gate, tolerance, filepath.Join(filepath.Dir(p.file), "secret"), p.admin, p.health)
	if err := os.WriteFile(p.file+".new", []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.file+".new", p.file); err != nil {
		t.Fatal(err)
	}
}

// start runs a sidecar on p until stop is called, which returns what Run did.
func start(t *testing.T, p place, options ...func(*Options)) (s *Sidecar, stop func() error) {
	t.Helper()
	cfg, err := config.Load(p.file)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Config: cfg, Version: "test"}
	for _, option := range options {
		option(&o)
	}
	if s, err = New(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return errors.New("Run does not end")
		}
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	eventually(t, func() error {
		if _, code, err := p.readyz(t); err != nil || code != http.StatusOK {
			return fmt.Errorf("readyz: %d, %w", code, err)
		}
		return nil
	})
	return s, stop
}

func (p place) readyz(t *testing.T) (readiness, int, error) {
	t.Helper()
	res, err := http.Get("http://" + p.health + "/readyz") //nolint:noctx // loopback, bounded by the server
	if err != nil {
		return readiness{}, 0, err
	}
	defer res.Body.Close()
	var r readiness
	return r, res.StatusCode, json.NewDecoder(res.Body).Decode(&r)
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		runtime.Gosched()
		<-time.After(10 * time.Millisecond)
	}
}

func TestRunServesAndStops(t *testing.T) {
	p := newPlace(t)
	before := runtime.NumGoroutine()
	_, stop := start(t, p)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/debug/pprof/": 404, "/": 404} {
		res, err := http.Get("http://" + p.health + path) //nolint:noctx // as above
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("health listener, %s: got %d, want %d", path, res.StatusCode, want)
		}
	}
	res, err := http.Get("http://" + p.admin + "/debug/pprof/") //nolint:noctx // as above
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("admin listener, /debug/pprof/: got %d, want 200", res.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
	eventually(t, func() error {
		if n := runtime.NumGoroutine(); n > before {
			return fmt.Errorf("%d goroutines before, %d after", before, n)
		}
		return nil
	})
	// The lock is free again, and the file whole.
	report, err := store.Check(t.Context(), filepath.Join(p.store, store.FileName), new(extauthz.RowCheck))
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("store after the stop: %v %v", report.Problems, err)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	p := newPlace(t)
	start(t, p)
	cfg, err := config.Load(p.file)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, err = New(t.Context(), Options{Config: cfg})
	locked, ok := errors.AsType[*store.LockedError](err)
	if !ok || locked.PID != os.Getpid() {
		t.Errorf("second sidecar on the store: got %v, want a LockedError with pid %d", err, os.Getpid())
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %s to say so, want about a second", took)
	}
}

func TestListenersOpenTogetherOrNotAtAll(t *testing.T) {
	p := newPlace(t)
	taken, err := net.Listen("tcp", p.gate)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg, err := config.Load(p.file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), p.gate) {
		t.Errorf("gate's port is taken: got %v, want an error that names %s", err, p.gate)
	}
	for _, addr := range []string{p.admin, p.health} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Errorf("%s is still open: %v", addr, err)
			continue
		}
		_ = l.Close()
	}
	if _, err := New(t.Context(), Options{Config: cfg}); err != nil {
		t.Errorf("the store is still locked: %v", err)
	}
}

func TestReload(t *testing.T) {
	p := newPlace(t)
	hangup := make(chan os.Signal, 1)
	s, _ := start(t, p, func(o *Options) { o.Hangup = hangup })
	tolerance := func() time.Duration { return s.gate.server.Configured()[0].Tolerance }
	p.write(t, "2m")
	eventually(t, func() error {
		if got := tolerance(); got != 2*time.Minute {
			return fmt.Errorf("tolerance in force: got %s, want 2m", got)
		}
		return nil
	})
	// A wrong one is refused, said, and leaves the gate as it is and ready.
	p.write(t, "0s")
	eventually(t, func() error {
		r, code, err := p.readyz(t)
		if err != nil || code != 200 || !strings.Contains(r.Details["reload_refused"], "tolerance") {
			return fmt.Errorf("readyz after a wrong configuration: %d %+v %w", code, r, err)
		}
		return nil
	})
	if got := tolerance(); got != 2*time.Minute {
		t.Errorf("tolerance after a wrong configuration: got %s, want 2m", got)
	}
	// A right one ends the complaint, also by signal.
	p.write(t, "3m")
	hangup <- syscall.SIGHUP
	eventually(t, func() error {
		r, _, err := p.readyz(t)
		if err != nil || r.Details["reload_refused"] != "" || tolerance() != 3*time.Minute {
			return fmt.Errorf("after a right configuration: %+v, tolerance %s, %w", r, tolerance(), err)
		}
		return nil
	})
}

// A pause that was forgotten is answered 503 until the senders give up.
func TestPausedSourceIsAProblem(t *testing.T) {
	p := newPlace(t)
	s, _ := start(t, p)
	for _, tt := range []struct {
		do   func(string)
		want string
	}{
		{s.gate.server.Pause, "a person paused, and senders get 503 from: payments"},
		{s.gate.server.Resume, ""},
	} {
		tt.do("payments")
		if r, code, err := p.readyz(t); err != nil || code != http.StatusOK || r.Details["source_paused"] != tt.want {
			t.Errorf("readyz: %d %+v %v, want source_paused %q", code, r, err, tt.want)
		}
	}
}

func TestRetention(t *testing.T) {
	p := newPlace(t)
	s, _ := start(t, p)
	for _, tt := range []struct {
		source string
		want   time.Duration
		known  bool
	}{
		{"payments", 40 * 24 * time.Hour, true},
		{"billing", 40 * 24 * time.Hour, true}, // its rows still count for payments
		{"orders", 0, false},
	} {
		if got, known := s.retention(tt.source); got != tt.want || known != tt.known {
			t.Errorf("retention of %s: got %s, %t, want %s, %t", tt.source, got, known, tt.want, tt.known)
		}
	}
}
