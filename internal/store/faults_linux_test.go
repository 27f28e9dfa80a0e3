package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
)

// misuse puts another file under the descriptor that s writes to, and returns how to put the right one back: with
// /dev/full every write fails with ENOSPC, with /dev/null writes succeed and fdatasync fails with EINVAL.
func misuse(t *testing.T, s *Store, path string) (restore func()) {
	t.Helper()
	fd := int(s.file.Fd())
	kept, err := syscall.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := syscall.Dup3(int(other.Fd()), fd, syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(syscall.Dup3(kept, fd, syscall.O_CLOEXEC), syscall.Close(kept)); err != nil {
			t.Fatal(err)
		}
	}
}

// makeRoom leaves free pages in the file, so that the commits that follow need not let it grow: growing asks for the
// size of the file, and a device has none.
func (r *running) makeRoom(t *testing.T) {
	t.Helper()
	big := make([]byte, 64<<10)
	for i := range 3 {
		if err := r.do(Urgent, putOp("room", string(append(big, byte(i))))); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.do(Urgent, newOp(func(tx *Tx) error { return tx.Delete(testBucket, []byte("room")) })); err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // pages are free one commit after they were given up
		if err := r.do(Urgent, putOp("room", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiskFull lets real writes fail with ENOSPC and then lets the disk recover.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	r := run(t, openStore(t, Options{}))
	r.makeRoom(t)
	if err := r.do(Urgent, putOp("before", "v")); err != nil {
		t.Fatal(err)
	}
	restore := misuse(t, r.Store, "/dev/full")
	err := r.do(Urgent, putOp("urgent", "v"))
	if !errors.Is(err, ErrWrite) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("urgent: %v, want ErrWrite with ENOSPC", err)
	}
	if err := r.do(Lazy, putOp("lazy", "v")); !errors.Is(err, ErrWrite) {
		t.Errorf("lazy: %v, want ErrWrite", err)
	}
	persistent := putOp("persistent", "v")
	if err := r.Submit(persistent, Persistent); err != nil {
		t.Fatal(err)
	}
	if err := r.do(Urgent, putOp("urgent", "v")); !errors.Is(err, ErrWrite) { // takes the persistent one with it
		t.Errorf("urgent: %v, want ErrWrite", err)
	}
	if got := get(t, r.Store, "before"); got == nil {
		t.Error("what was there cannot be read while the disk is full")
	}
	select {
	case err := <-persistent.done:
		t.Errorf("the persistent operation ended with the disk full: %v", err)
	default:
	}
	restore()
	if err := <-persistent.done; err != nil { // by itself, without any other operation
		t.Errorf("persistent: %v", err)
	}
	if err := r.do(Urgent, putOp("after", "v")); err != nil {
		t.Errorf("after: %v", err)
	}
	for key, want := range map[string]bool{"before": true, "urgent": false, "lazy": false, "persistent": true, "after": true} {
		if got := get(t, r.Store, key) != nil; got != want {
			t.Errorf("%s is there: %v, want %v", key, got, want)
		}
	}
	if err := r.stop(); err != nil {
		t.Errorf("run: %v", err)
	}
}

// TestFailedSyncEndsTheStore lets real writes succeed and fdatasync fail.
func TestFailedSyncEndsTheStore(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	r := run(t, s)
	r.makeRoom(t)
	restore := misuse(t, s, "/dev/null")
	defer restore()
	inCommit, goOn := make(chan struct{}), make(chan struct{})
	commit := s.commit
	s.commit = func(tx *bbolt.Tx) error {
		close(inCommit)
		<-goOn
		return commit(tx)
	}
	failing := putOp("failing", "v")
	if err := s.Submit(failing, Urgent); err != nil {
		t.Fatal(err)
	}
	<-inCommit
	waiting := []*funcOp{putOp("urgent", "v"), putOp("persistent", "v")}
	if err := errors.Join(s.Submit(waiting[0], Urgent), s.Submit(waiting[1], Persistent)); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	for _, op := range append(waiting, failing) {
		if err := <-op.done; !errors.Is(err, ErrSync) {
			t.Errorf("an operation got %v, want ErrSync", err)
		}
	}
	if err := <-r.ended; !errors.Is(err, ErrSync) || !Fatal(err) {
		t.Errorf("run: %v, want ErrSync", err)
	}
	r.ended <- nil
	if err := s.Submit(putOp("late", "v"), Urgent); !errors.Is(err, ErrSync) {
		t.Errorf("later: %v, want ErrSync", err)
	}
}

// fullForPID has the next pid file of the store in folder find no room, until whoever finds none removes what is in its way.
func fullForPID(t *testing.T, folder string) {
	t.Helper()
	if err := os.Symlink("/dev/full", filepath.Join(folder, PIDName+".new")); err != nil {
		t.Fatal(err)
	}
}

// TestOpenWithoutRoomForThePID: the pid is a help, and no reason to stay away while the disk is full.
func TestOpenWithoutRoomForThePID(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s := openStore(t, Options{Folder: folder})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	pid := filepath.Join(folder, PIDName)
	if err := os.WriteFile(pid, []byte("4711\n"), 0o600); err != nil { // left behind by a kill
		t.Fatal(err)
	}
	fullForPID(t, folder)
	var log bytes.Buffer
	s = openStore(t, Options{Folder: folder, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if !strings.Contains(log.String(), "no space left on device") {
		t.Errorf("the log does not say why there is no pid file: %s", log.String())
	}
	if _, err := Open(t.Context(), Options{Folder: folder}); !isLocked(err) || strings.Contains(err.Error(), "4711") {
		t.Errorf("a second process is told %v, want that the store is in use, and nothing of who had it before", err)
	}
	r := run(t, s)
	if err := r.do(Urgent, putOp("soon", "v")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is tried again with every commit: %v", err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // with no pid file to remove
		t.Errorf("close: %v", err)
	}
}

// TestPIDComesWithRoom: a minute later the pid is written after all, with the next commit.
func TestPIDComesWithRoom(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	fullForPID(t, folder)
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, Options{Folder: folder})
		r := run(t, s)
		time.Sleep(pidRetry)
		if err := r.do(Urgent, putOp("later", "v")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := readPID(folder); got != os.Getpid() {
			t.Errorf("pid file names %d, want %d", got, os.Getpid())
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseOnAFullDisk: a store that cannot write its list of free pages is closed all the same.
func TestCloseOnAFullDisk(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	r := run(t, s)
	r.makeRoom(t)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	s.db.NoFreelistSync = true // as a purge leaves it behind
	restore := misuse(t, s, "/dev/full")
	err := s.syncFreelist()
	restore()
	if err != nil {
		t.Errorf("write the list of free pages: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
