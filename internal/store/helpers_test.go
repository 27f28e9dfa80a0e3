package store

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

var testBucket = []byte("test")

// openStore opens a store in a folder of its own, with testBucket in it. When the test ends the store is closed and
// its file checked whole, unless the test has closed it already.
func openStore(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Folder == "" {
		o.Folder = t.TempDir()
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Setup(func(tx *Tx) error { return tx.CreateBucket(testBucket) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		checkFile(t, s.Path())
	})
	return s
}

// checkFile checks the file with our own check and with bbolt's.
func checkFile(t *testing.T, path string) {
	t.Helper()
	report, err := Check(context.Background(), path, nil)
	if err != nil {
		t.Errorf("check: %v", err)
	}
	for _, p := range report.Problems {
		t.Errorf("check: %v", p)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Errorf("check: %v", err)
		return
	}
	defer db.Close()
	_ = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("bbolt's check: %v", err)
		}
		return nil
	})
}

// running is a store whose Run is on its way.
type running struct {
	*Store
	cancel context.CancelFunc
	ended  chan error
}

// run runs s until stop is called or the test ends.
func run(t *testing.T, s *Store) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{s, cancel, make(chan error, 1)}
	go func() { r.ended <- s.Run(ctx) }()
	t.Cleanup(func() { _ = r.stop() })
	return r
}

func (r *running) stop() error {
	r.cancel()
	err := <-r.ended
	r.ended <- err
	return err
}

// funcOp is an Op made of functions; done receives what Done got.
type funcOp struct {
	apply func(*Tx) error
	done  chan error
}

func newOp(apply func(*Tx) error) *funcOp { return &funcOp{apply, make(chan error, 1)} }

func putOp(key, value string) *funcOp {
	return newOp(func(tx *Tx) error { return tx.Put(testBucket, []byte(key), []byte(value)) })
}

func (o *funcOp) Apply(tx *Tx) error { return o.apply(tx) }
func (o *funcOp) Done(err error)     { o.done <- err }

// do submits an operation and waits for its end.
func (r *running) do(u Urgency, op *funcOp) error {
	if err := r.Submit(op, u); err != nil {
		return err
	}
	return <-op.done
}

// get reads a key; nil if it is not there.
func get(t *testing.T, s *Store, key string) []byte {
	t.Helper()
	var value []byte
	if err := s.View(func(tx *Tx) error {
		if v := tx.Get(testBucket, []byte(key)); v != nil {
			value = append([]byte{}, v...)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return value
}

func copyFile(t *testing.T, from, folder string) string {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(folder, FileName)
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}
