package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// lockWait is how long Open waits for the lock: long enough for a predecessor that is just ending, and well within
	// the second after which a second process shall have said so.
	lockWait  = 500 * time.Millisecond
	lockRetry = 20 * time.Millisecond
)

// openLocked opens the store's file, takes its lock and examines it. bbolt's own lock on the same descriptor is then
// granted at once.
func openLocked(ctx context.Context, path string, flag int, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if flag&(os.O_RDWR|os.O_WRONLY) == 0 {
		how = syscall.LOCK_SH
	}
	if err := lock(ctx, f, how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := examine(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func lock(ctx context.Context, f *os.File, how int) error {
	deadline := time.Now().Add(lockWait)
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		case time.Now().After(deadline):
			return &LockedError{Path: f.Name(), PID: readPID(filepath.Dir(f.Name()))}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lockRetry):
		}
	}
}

// unlockAndClose closes f. Closing alone keeps the lock for as long as a map of the file is left.
func unlockAndClose(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// pidRetry is when a pid that found no room on the disk is written again, at the earliest.
const pidRetry = time.Minute

// writePID leaves our pid beside the store for the error message of a second process. The lock decides, not this file: on
// a full disk there is none until there is room again (see keepPID), rather than one of a process that has ended.
func (s *Store) writePID() error {
	path := filepath.Join(s.folder, PIDName)
	err := os.WriteFile(path+".new", []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil {
		s.noPID = time.Time{}
		return nil
	}
	if !noRoom(err) {
		return fmt.Errorf("write pid: %w", err)
	}
	if s.noPID.IsZero() {
		s.log.LogAttrs(context.Background(), slog.LevelWarn, "no room for the pid file: a second process cannot be told who has the store",
			slog.String("store", s.folder), slog.Any("err", err))
	}
	s.noPID = time.Now()
	return errors.Join(remove(path+".new"), remove(path))
}

// keepPID writes the pid if it found no room before. The committer calls it after a commit that succeeded.
func (s *Store) keepPID() {
	if s.noPID.IsZero() || time.Since(s.noPID) < pidRetry {
		return
	}
	if err := s.writePID(); err != nil {
		s.noPID = time.Now()
		s.log.LogAttrs(context.Background(), slog.LevelWarn, "write pid", slog.Any("err", err))
	}
}

// noRoom reports whether err says that there is no block, or none for us, on the disk.
func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// remove removes a file that need not be there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func readPID(folder string) int {
	text, err := os.ReadFile(filepath.Join(folder, PIDName))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// makeFolder makes folder, and makes sure that a new one survives a power cut.
func makeFolder(folder string) error {
	if info, err := os.Stat(folder); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a folder", folder)
		}
		return nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(folder))
}

// syncFolder makes names created in folder durable.
func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
