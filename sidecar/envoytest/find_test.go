package envoytest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestFindOrder(t *testing.T) {
	writeProgram(t, "envoy", "exit 0")
	inPath := filepath.Join(os.Getenv("PATH"), "envoy")
	named := filepath.Join(t.TempDir(), "my-envoy")
	if err := os.WriteFile(named, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, env, want, message string
	}{
		{name: "PATH", want: inPath},
		{name: "$ENVOY before PATH", env: named, want: named},
		// Somebody who names one wants that one and no other.
		{name: "$ENVOY that is not there", env: named + "-gone", message: "$ENVOY: "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("ENVOY", test.env)
			got, err := find(t.Context())
			if test.message != "" {
				if err == nil || !strings.Contains(err.Error(), test.message) {
					t.Fatalf("find = %q, %v, want an error with %q", got, err, test.message)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("find = %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestNeedWithoutEnvoy(t *testing.T) {
	found.Lock()
	before := found.path
	found.path = ""
	found.Unlock()
	t.Cleanup(func() {
		found.Lock()
		found.path = before
		found.Unlock()
	})
	t.Setenv("ENVOY", filepath.Join(t.TempDir(), "gone"))

	t.Setenv("CI", "")
	laptop := &recorder{ctx: t.Context()}
	Need(laptop)
	if !strings.Contains(laptop.skipped, ErrNone.Error()) || laptop.failed != "" {
		t.Errorf("without CI: skipped %q, failed %q, want skipped", laptop.skipped, laptop.failed)
	}
	t.Setenv("CI", "true")
	ci := &recorder{ctx: t.Context()}
	Need(ci)
	if !strings.Contains(ci.failed, ErrNone.Error()) {
		t.Errorf("with CI: failed %q, want %q in it", ci.failed, ErrNone)
	}
	if _, err := Find(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("Find = %v, want ErrNone", err)
	}
}

func TestFreeAddrs(t *testing.T) {
	t.Parallel()
	addrs, err := FreeAddrs(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, addr := range addrs {
		host, text, err := net.SplitHostPort(addr)
		if err != nil || host != "127.0.0.1" || seen[addr] {
			t.Errorf("%q: want another port of 127.0.0.1 each time (%v)", addr, err)
		}
		// Above are those of outgoing connections: net.inet.ip.portrange and net.ipv4.ip_local_port_range by default.
		if port, err := strconv.Atoi(text); err != nil || port < 1024 || port >= 32768 {
			t.Errorf("%q: want a port that no outgoing connection gets (%v)", addr, err)
		}
		seen[addr] = true
	}
}
