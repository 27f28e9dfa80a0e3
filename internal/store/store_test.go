package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestOpenMakesAPrivateStore(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "a", "b")
	s := openStore(t, Options{Folder: folder})
	for _, tt := range []struct {
		path string
		want fs.FileMode
	}{
		{folder, 0o700 | fs.ModeDir},
		{s.Path(), 0o600},
		{filepath.Join(folder, PIDName), 0o600},
	} {
		info, err := os.Stat(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != tt.want {
			t.Errorf("%s has mode %v, want %v", tt.path, info.Mode(), tt.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, PIDName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pid file is still there after Close: %v", err)
	}
}

func TestOpenRefusesALowLimit(t *testing.T) {
	t.Parallel()
	if s, err := Open(t.Context(), Options{Folder: t.TempDir(), Limit: MinLimit - 1}); err == nil {
		_ = s.Close()
		t.Error("opened")
	}
}

func TestLimitIsAtMostFourFifthsOfTheVolume(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{Limit: 1 << 60})
	var st syscall.Statfs_t
	if err := syscall.Statfs(s.folder, &st); err != nil {
		t.Fatal(err)
	}
	want := int64(float64(int64(st.Blocks)*int64(st.Bsize)) * 0.8)
	if _, got := s.Usage(); got != want {
		t.Errorf("limit is %d, want %d", got, want)
	}
}

// TestMain lets the test binary play the other process.
func TestMain(m *testing.M) {
	if folder := os.Getenv("STORE_TEST_OPEN"); folder != "" {
		start := time.Now()
		_, err := Open(context.Background(), Options{Folder: folder})
		if took := time.Since(start); took > time.Second {
			fmt.Printf("took %v: ", took)
		}
		fmt.Print(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestSecondProcessIsRefusedWithinASecondByPID(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_OPEN="+s.folder)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("open store %s: store %s is in use by process %d", s.folder, s.Path(), os.Getpid())
	if string(out) != want {
		t.Errorf("second process says %q, want %q", out, want)
	}
}

func TestLockedStoreInOneProcess(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	_, err := Open(t.Context(), Options{Folder: s.folder})
	locked, ok := errors.AsType[*LockedError](err)
	if !ok || locked.PID != os.Getpid() || locked.Path != s.Path() {
		t.Errorf("got %v, want a LockedError of %s with pid %d", err, s.Path(), os.Getpid())
	}
	if _, err := Check(t.Context(), s.Path(), nil); !isLocked(err) {
		t.Errorf("check of an open store: %v, want a LockedError", err)
	}
}

func isLocked(err error) bool {
	_, ok := errors.AsType[*LockedError](err)
	return ok
}

func TestNewerSchemaIsRefusedByName(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s, err := Open(t.Context(), Options{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(s.Setup(func(tx *Tx) error {
		return tx.Put(metaBucket, versionKey, binary.BigEndian.AppendUint64(nil, schemaVersion+1))
	}), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Options{Folder: folder})
	if v, ok := errors.AsType[*VersionError](err); !ok || v.Found != schemaVersion+1 || v.Known != schemaVersion {
		t.Errorf("got %v, want a VersionError", err)
	}
	// The refusal has given the lock back.
	if _, err := Check(t.Context(), filepath.Join(folder, FileName), nil); err != nil {
		t.Error(err)
	}
}

func TestSchemaVersionThatIsNoNumberIsCorrupt(t *testing.T) {
	t.Parallel()
	for _, stored := range [][]byte{{}, {1}, make([]byte, 9)} {
		folder := t.TempDir()
		s, err := Open(t.Context(), Options{Folder: folder})
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(s.Setup(func(tx *Tx) error { return tx.Put(metaBucket, versionKey, stored) }), s.Close())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), Options{Folder: folder}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("version of %d bytes: %v, want ErrCorrupt", len(stored), err)
		}
	}
}

func TestProcIsNoPlaceForAStore(t *testing.T) {
	t.Parallel()
	if _, err := Open(t.Context(), Options{Folder: "/proc/self/none"}); err == nil {
		t.Error("opened")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Folder: file}); err == nil {
		t.Error("opened where a file stands")
	}
}

func TestUsageLeavesFreePagesOut(t *testing.T) {
	t.Parallel()
	r := run(t, openStore(t, Options{Limit: MinLimit}))
	big := make([]byte, 980<<10)
	if err := r.do(Urgent, putOp("big", string(big))); err != nil {
		t.Fatal(err)
	}
	if err := r.do(Urgent, putOp("k", "v")); err != nil { // usage is measured when a batch begins
		t.Fatal(err)
	}
	if used, limit := r.Usage(); !r.Full() {
		t.Errorf("%d of %d bytes are not full", used, limit)
	}
	for _, op := range []*funcOp{
		newOp(func(tx *Tx) error { return tx.Delete(testBucket, []byte("big")) }),
		putOp("k", "v1"), putOp("k", "v2"), putOp("k", "v3"), // given-up pages are free a commit later
	} {
		if err := r.do(Urgent, op); err != nil {
			t.Fatal(err)
		}
	}
	if used, limit := r.Usage(); r.Full() || used > 64<<10 {
		t.Errorf("%d of %d bytes are in use after all was deleted", used, limit)
	}
}

func TestSetupOnlyBeforeRun(t *testing.T) {
	t.Parallel()
	r := run(t, openStore(t, Options{}))
	if err := r.do(Urgent, putOp("k", "v")); err != nil {
		t.Fatal(err)
	}
	if err := r.Setup(func(*Tx) error { return nil }); err == nil {
		t.Error("set up while running")
	}
	if err := r.Run(t.Context()); err == nil {
		t.Error("ran twice")
	}
}
