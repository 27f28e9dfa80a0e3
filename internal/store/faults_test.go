package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"write, disk full", &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, ErrWrite},
		{"write, quota", &fs.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT}, ErrWrite},
		{"write, I/O error", &fs.PathError{Op: "write", Path: "x", Err: syscall.EIO}, ErrWrite},
		{"fdatasync", syscall.EIO, ErrSync},
		{"sync where there is no fdatasync", &fs.PathError{Op: "sync", Path: "x", Err: syscall.EIO}, ErrSync},
		{"sync after growing", errors.New("file sync error: input/output error"), ErrSync},
		{"growing", errors.New("file resize error: file too large"), ErrWrite},
		{"cut off under us", errors.New("file size too small 0"), ErrCorrupt},
		{"mapping", errors.New("mmap allocate error: cannot allocate memory"), ErrUnusable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := classify(tt.err)
			if !errors.Is(got, tt.want) || !errors.Is(got, tt.err) {
				t.Errorf("got %v, want %v of it", got, tt.want)
			}
			if Fatal(got) != (tt.want != ErrWrite) {
				t.Errorf("fatal: %v", Fatal(got))
			}
		})
	}
}

// TestCommitFaults fails the commit of each operation in turn, in each of the ways in which a commit can end.
func TestCommitFaults(t *testing.T) {
	t.Parallel()
	const operations = 6
	full := &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	for _, tt := range []struct {
		name    string
		err     error
		written bool
		fatal   bool
	}{
		{"write fails, not written", full, false, false},
		{"write fails, yet written", full, true, false}, // the meta page got through although write said no
		{"sync fails, not written", syscall.EIO, false, true},
		{"sync fails, yet written", syscall.EIO, true, true},
	} {
		for at := range operations {
			t.Run(fmt.Sprintf("%s, commit %d", tt.name, at), func(t *testing.T) {
				t.Parallel()
				folder := t.TempDir()
				s := openStore(t, Options{Folder: folder})
				n := 0
				s.commit = func(tx *bbolt.Tx) error {
					n++
					if n-1 != at {
						return tx.Commit()
					}
					if tt.written {
						return errors.Join(tx.Commit(), tt.err)
					}
					return errors.Join(tx.Rollback(), tt.err)
				}
				r := run(t, s)
				acknowledged := make(map[string]bool)
				for i := range operations {
					key := fmt.Sprint(i)
					err := r.do(Urgent, putOp(key, "v"))
					switch {
					case i < at || i > at && !tt.fatal:
						if err != nil {
							t.Errorf("operation %d: %v", i, err)
						}
						acknowledged[key] = true
					case tt.fatal && !errors.Is(err, ErrSync), !tt.fatal && !errors.Is(err, ErrWrite):
						t.Errorf("operation %d: %v", i, err)
					}
				}
				if err := r.stop(); Fatal(err) != tt.fatal {
					t.Errorf("run: %v", err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				again := openStore(t, Options{Folder: folder})
				for i := range operations {
					key := fmt.Sprint(i)
					there := get(t, again, key) != nil
					if acknowledged[key] && !there {
						t.Errorf("%s was acknowledged and is not there", key)
					}
					if i == at && there != tt.written {
						t.Errorf("%s is there: %v, want %v", key, there, tt.written)
					}
				}
			})
		}
	}
}

// makeFile makes a store of 500 rows and returns its file.
func makeFile(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	s, err := Open(t.Context(), Options{Folder: folder, Limit: MinLimit})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Setup(func(tx *Tx) error {
		err := tx.CreateBucket(testBucket)
		for i := range 500 {
			err = errors.Join(err, tx.Put(testBucket, fmt.Appendf(nil, "key-%04d", i), bytes.Repeat([]byte("v"), 100)))
		}
		return err
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, FileName)
}

// TestBrokenFile damages a file. Each damage is found by Check, and Open or the first use says so and names the
// command; none ends the process.
func TestBrokenFile(t *testing.T) {
	t.Parallel()
	const page = 4096
	sound := makeFile(t)
	data, err := os.ReadFile(sound)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := readMeta(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	fill := func(id uint64, c byte) func(b []byte) []byte {
		return func(b []byte) []byte {
			copy(b[id*page:(id+1)*page], bytes.Repeat([]byte{c}, page))
			return b
		}
	}
	for _, tt := range []struct {
		name   string
		damage func(b []byte) []byte
		opens  bool // the damage lies where only use meets it
	}{
		{"cut to nothing but a piece of a page", func(b []byte) []byte { return b[:100] }, false},
		{"cut in the middle", func(b []byte) []byte { return b[:3*page] }, false},
		{"cut by its last page", func(b []byte) []byte { return b[:(meta.pages-1)*page] }, false},
		{"both meta pages overwritten", func(b []byte) []byte { return fill(0, 'x')(fill(1, 'x')(b)) }, false},
		{"other kind of file", func([]byte) []byte { return bytes.Repeat([]byte("text "), page) }, false},
		{"zeros", func(b []byte) []byte { return make([]byte, len(b)) }, false},
		{"list of free pages overwritten", fill(meta.freelist, 'x'), false},
		{"root page overwritten", fill(meta.root, 'x'), false},
		{"data page zeroed", func(b []byte) []byte { return fill(dataPage(t, b), 0)(b) }, true},
		{"data page overwritten", func(b []byte) []byte { return fill(dataPage(t, b), 0xff)(b) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			path := filepath.Join(folder, FileName)
			if err := os.WriteFile(path, tt.damage(bytes.Clone(data)), 0o600); err != nil {
				t.Fatal(err)
			}
			report, err := Check(t.Context(), path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Problems) == 0 {
				t.Error("check finds nothing")
			}
			s, err := Open(t.Context(), Options{Folder: folder, Limit: MinLimit})
			if !tt.opens {
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "sidehook store check") {
					t.Errorf("open: %v, want ErrCorrupt naming the command", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			r := run(t, s)
			read := newOp(func(tx *Tx) error {
				for i := range 500 {
					tx.Get(testBucket, fmt.Appendf(nil, "key-%04d", i))
				}
				return nil
			})
			if err := r.do(Urgent, read); !errors.Is(err, ErrCorrupt) {
				t.Errorf("reading: %v, want ErrCorrupt", err)
			}
			if err := r.stop(); !Fatal(err) {
				t.Errorf("run: %v, want ErrCorrupt", err)
			}
		})
	}
}

// dataPage finds the leaf page that holds the row key-0250.
func dataPage(t *testing.T, b []byte) uint64 {
	t.Helper()
	const page = 4096
	for id := len(b)/page - 1; id > 1; id-- { // a page left over from the commits before has the lower number
		if p := b[id*page : (id+1)*page]; p[8] == leafPage && bytes.Contains(p, []byte("key-0250")) {
			return uint64(id)
		}
	}
	t.Fatal("no page with key-0250")
	return 0
}

// TestFaultWhileReading cuts the file under a running store: the map then ends in a fault, which is an error here too,
// for all who come, and no reason to hang.
func TestFaultWhileReading(t *testing.T) {
	t.Parallel()
	read := func(tx *Tx) error {
		tx.Get(testBucket, []byte("key-0250"))
		return nil
	}
	for _, tt := range []struct {
		name string
		size int64
		use  func(s *Store, r *running) error
	}{
		{"in a row, reading", 2 * testPage, func(s *Store, _ *running) error { return s.View(read) }},
		{"in a row, writing", 2 * testPage, func(_ *Store, r *running) error { return r.do(Urgent, putOp("key-0250", "v")) }},
		// In bbolt's Begin, which keeps its locks then.
		{"in the meta pages, reading", 0, func(s *Store, _ *running) error { return s.View(read) }},
		{"in the meta pages, writing", 0, func(_ *Store, r *running) error { return r.do(Urgent, putOp("key-0250", "v")) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := makeFile(t)
			s, err := Open(t.Context(), Options{Folder: filepath.Dir(path), Limit: MinLimit})
			if err != nil {
				t.Fatal(err)
			}
			r := run(t, s)
			inView, goOn := make(chan struct{}), make(chan struct{})
			earlier := make(chan error, 1)
			go func() {
				earlier <- s.View(func(*Tx) error { close(inView); <-goOn; return nil })
			}()
			<-inView
			if err := os.Truncate(path, tt.size); err != nil {
				t.Fatal(err)
			}
			if err := tt.use(s, r); !errors.Is(err, ErrCorrupt) || !strings.HasSuffix(err.Error(), "a page cannot be read") {
				t.Errorf("got %v, want ErrCorrupt over a page", err)
			}
			if err := s.View(read); !errors.Is(err, ErrCorrupt) {
				t.Errorf("a later reader got %v, want ErrCorrupt", err)
			}
			close(goOn)
			ended := make(chan error, 1)
			go func() {
				<-earlier
				err := <-r.ended
				r.ended <- nil
				_ = s.Close()
				ended <- err
			}()
			select {
			case err := <-ended:
				if !errors.Is(err, ErrCorrupt) {
					t.Errorf("run: %v, want ErrCorrupt", err)
				}
			case <-time.After(10 * time.Second):
				t.Error("the store does not end")
			}
		})
	}
}

// TestCheckFindsWhatBoltCannotSee: damage that keeps the pages whole.
func TestCheckFindsWhatBoltCannotSee(t *testing.T) {
	t.Parallel()
	path := makeFile(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	id := dataPage(t, data)
	at := int(id)*4096 + bytes.Index(data[id*4096:(id+1)*4096], []byte("key-0250"))
	copy(data[at:], "key-9250") // out of order
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := Check(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) == 0 || !strings.Contains(report.Problems[0].Error(), "out of order") {
		t.Errorf("problems: %v, want a key out of order", report.Problems)
	}
}
