package secret

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// write makes a file, the folders above it included.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestFolderLoad(t *testing.T) {
	t.Parallel()
	const key = "whsec_thisisthekey"
	outside := t.TempDir()
	write(t, filepath.Join(outside, "key"), key)
	dir := filepath.Join(outside, "secrets")
	write(t, filepath.Join(dir, "plain"), key)
	write(t, filepath.Join(dir, "newline"), key+"\n")
	write(t, filepath.Join(dir, "blank"), key+" \n")
	write(t, filepath.Join(dir, "empty"), "")
	write(t, filepath.Join(dir, "longest"), strings.Repeat("k", MaxBytes)+"\r\n")
	write(t, filepath.Join(dir, "long"), strings.Repeat("k", MaxBytes+1))
	write(t, filepath.Join(dir, "folder", "in"), key)
	// As Kubernetes lays out a volume.
	write(t, filepath.Join(dir, "..2026", "mounted"), key)
	link(t, "..2026", filepath.Join(dir, "..data"))
	link(t, "..data/mounted", filepath.Join(dir, "mounted"))
	link(t, "nowhere", filepath.Join(dir, "dangling"))
	link(t, "../key", filepath.Join(dir, "leaves"))
	link(t, filepath.Join(outside, "key"), filepath.Join(dir, "absolute"))
	link(t, "circle", filepath.Join(dir, "circle"))
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.next"), 0o600); err != nil {
		t.Fatal(err)
	}
	someError := errors.New("any")
	for _, tt := range []struct {
		name string
		want error // nil: key
	}{
		{"plain", nil},
		{"newline", nil},
		{"mounted", nil},
		{"blank", ErrWhitespace},
		{"empty", ErrEmpty},
		{"long", ErrTooLong},
		{"absent", ErrNoFile},
		{"folder", ErrNoFile},
		{"..data", ErrNoFile},
		{"dangling", ErrNoFile},
		{"pipe", ErrNotRegular}, // and nobody waits for its writer
		{"leaves", someError},
		{"absolute", someError},
		{"circle", someError},
		{"../key", someError},
		{"", someError},
		{"a\x00b", someError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, _, err := NewFolder(dir).Load(tt.name)
			switch {
			case tt.want == nil && (err != nil || string(s.Bytes()) != key):
				t.Errorf("Load = %q, %v", s.Bytes(), err)
			case tt.want == someError && (err == nil || errors.Is(err, ErrNoFile)),
				tt.want != nil && tt.want != someError && !errors.Is(err, tt.want):
				t.Errorf("Load: %v, want %v", err, tt.want)
			case err != nil && (strings.Contains(err.Error(), "thisisthekey") || !strings.Contains(err.Error(), outside)):
				t.Errorf("Load: %v", err)
			}
		})
	}
	t.Run("longest", func(t *testing.T) {
		t.Parallel()
		if s, _, err := NewFolder(dir).Load("longest"); err != nil || len(s.Bytes()) != MaxBytes {
			t.Errorf("Load = %d bytes, %v", len(s.Bytes()), err)
		}
	})
	// Nobody can say that a tenant has no secret where the folder cannot be read.
	t.Run("no folder", func(t *testing.T) {
		t.Parallel()
		f := NewFolder(filepath.Join(dir, "nowhere"))
		if _, _, err := f.Load("a"); !errors.Is(err, ErrFolder) || errors.Is(err, ErrNoFile) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Load: %v", err)
		}
		if _, err := f.Stat("a"); !errors.Is(err, ErrFolder) {
			t.Errorf("Stat: %v", err)
		}
	})
}

// A change shows in the print, and so does one that comes so soon after the reading that the file's times may not tell.
func TestFolderStat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	f := NewFolder(dir)
	stat := func() Print {
		t.Helper()
		p, err := f.Stat("a")
		if err != nil {
			t.Fatal(err)
		}
		return p[0]
	}
	then := time.Now().Add(-time.Hour)
	age := func(by time.Duration) {
		t.Helper()
		if err := os.Chtimes(path, time.Time{}, then.Add(by)); err != nil {
			t.Fatal(err)
		}
	}
	none := stat()
	if !none.Same(Print{}) || !none.Same(stat()) {
		t.Error("no file is not the same as no file")
	}
	write(t, path, "one")
	if none.Same(stat()) || stat().Same(none) {
		t.Error("a new file is the same as none")
	}
	if p := stat(); p.Same(stat()) {
		t.Error("a file of this second is taken for settled")
	}
	age(0)
	old := stat()
	if !old.Same(stat()) {
		t.Error("an old file is not the same as itself")
	}
	for name, change := range map[string]func(){
		"size": func() { write(t, path, "three"); age(0) },
		"time": func() { write(t, path, "two"); age(time.Minute) },
		"inode": func() {
			write(t, path+"~", "six")
			if err := os.Rename(path+"~", path); err != nil {
				t.Fatal(err)
			}
			age(0)
		},
		// A pipe, and then nothing, are not the same nothing.
		"kind": func() {
			if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
				t.Fatal(err)
			}
			before := stat()
			if _, read, err := f.Load("a"); !errors.Is(err, ErrNotRegular) || read.Same(Print{}) || before.Same(Print{}) {
				t.Errorf("a pipe is the same as nothing, or %v", err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		write(t, path, "one")
		age(0)
		before := stat()
		change()
		if before.Same(stat()) {
			t.Errorf("another %s is not seen", name)
		}
	}
}

// The folder is swapped as the kubelet does it, all the time: no look-up finds the file gone.
func TestFolderSwapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := NewFolder(dir)
	version := func(n int) string { return filepath.Join(dir, "..v"+string(rune('a'+n%26))) }
	swap := func(n int) error {
		if err := os.Mkdir(version(n), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(version(n), "acme"), []byte("secret of acme"), 0o600); err != nil {
			return err
		}
		next := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(filepath.Base(version(n)), next); err != nil {
			return err
		}
		if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
			return err
		}
		if n > 0 {
			return os.RemoveAll(version(n - 1))
		}
		return nil
	}
	if err := swap(0); err != nil {
		t.Fatal(err)
	}
	link(t, "..data/acme", filepath.Join(dir, "acme"))
	done := make(chan error, 1)
	go func() {
		for n := 1; n < 500; n++ {
			if err := swap(n); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		s, _, err := f.Load("acme")
		if err != nil || string(s.Bytes()) != "secret of acme" {
			t.Fatalf("Load = %q, %v", s.Bytes(), err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}
