package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestBackupIsAStoreOfOneMoment(t *testing.T) {
	t.Parallel()
	r := run(t, openStore(t, Options{}))
	// Each commit writes the pair; a copy of two moments would show halves.
	pair := func(i int) *funcOp {
		return newOp(func(tx *Tx) error {
			v := fmt.Append(nil, i)
			return errors.Join(tx.Put(testBucket, []byte("a"), v), tx.Put(testBucket, []byte("b"), v))
		})
	}
	if err := r.do(Urgent, pair(0)); err != nil {
		t.Fatal(err)
	}
	writing, stop := make(chan error, 1), make(chan struct{})
	go func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				writing <- nil
				return
			default:
			}
			if err := r.do(Urgent, pair(i)); err != nil {
				writing <- err
				return
			}
		}
	}()
	for range 10 {
		folder := t.TempDir()
		path := filepath.Join(folder, FileName)
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.WriteTo(t.Context(), f), f.Close()); err != nil {
			t.Fatal(err)
		}
		copied := openStore(t, Options{Folder: folder})
		if a, b := get(t, copied, "a"), get(t, copied, "b"); a == nil || string(a) != string(b) {
			t.Errorf("the copy has %q and %q, want the same", a, b)
		}
	}
	close(stop)
	if err := <-writing; err != nil {
		t.Error(err)
	}
}

func TestBackupFailures(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		to   io.Writer
		want error
	}{
		{"the reader is gone", t.Context(), brokenPipe(t), io.ErrClosedPipe},
		{"cancelled", gone, io.Discard, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := s.WriteTo(tt.ctx, tt.to); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// brokenPipe is a writer that fails.
func brokenPipe(t *testing.T) io.Writer {
	t.Helper()
	r, w := io.Pipe()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return w
}
