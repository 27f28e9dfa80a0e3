// Package storetest checks stores and lets them fail, for the tests of what is built on them.
package storetest

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/sidehook/sidehook/internal/store"
)

// CheckFile examines the file of a closed store whole, with our own check and with bbolt's.
func CheckFile(t testing.TB, path string, rows store.Rows) {
	t.Helper()
	report, err := store.Check(context.Background(), path, rows)
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

// Errors as the operating system gives them to a commit.
var (
	DiskFull   error = &fs.PathError{Op: "write", Path: store.FileName, Err: syscall.ENOSPC}
	SyncFailed error = syscall.EIO
)

// Fault is how one commit ends: with Err (nil: as it should), and written all the same or not.
type Fault struct {
	Err     error
	Written bool
}

// Faults fails commits. Its Commit goes into store.Options.Commit; the zero value fails none.
type Faults struct {
	mu    sync.Mutex
	queue []Fault
	held  chan struct{}
	in    chan struct{}
}

// Next lets the next commits end so, in this order; those after them are good again.
func (f *Faults) Next(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, faults...)
}

// Forget lets the next commits be good, whatever Next said.
func (f *Faults) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = nil
}

// Hold stops the next commit before anything is written. entered is closed when it has got there; goOn lets it go on.
func (f *Faults) Hold() (entered <-chan struct{}, goOn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.in, f.held = make(chan struct{}), make(chan struct{})
	held := f.held
	return f.in, func() { close(held) }
}

// Commit is for store.Options.Commit.
func (f *Faults) Commit(commit, rollback func() error) error {
	f.mu.Lock()
	in, held := f.in, f.held
	f.in, f.held = nil, nil
	var fault Fault
	if len(f.queue) > 0 {
		fault, f.queue = f.queue[0], f.queue[1:]
	}
	f.mu.Unlock()
	if in != nil {
		close(in)
		<-held
	}
	switch {
	case fault.Err == nil:
		return commit()
	case fault.Written:
		return errors.Join(commit(), fault.Err)
	}
	return errors.Join(rollback(), fault.Err)
}
