package store

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// Errors of a running store after which it goes on.
var (
	// ErrWrite: the file could not be written (disk full, quota, I/O error). Nothing of the batch counts; later batches may succeed.
	ErrWrite = errors.New("store write failed")
	// ErrBusy: more operations wait than the store keeps.
	ErrBusy = errors.New("store queue full")
	// ErrClosed: Run has ended; nothing more is taken.
	ErrClosed = errors.New("store closed")
)

// Errors after which the process shall end: Run returns them, and every later operation gets them. See [Fatal].
var (
	// ErrSync: fdatasync or fsync failed. The kernel may have dropped the pages, and a second sync after a failed one proves nothing.
	ErrSync = errors.New("store sync failed")
	// ErrCorrupt: the file contradicts itself.
	ErrCorrupt = errors.New("store file is broken, run `sidehook store check`")
	// ErrUnusable: the file can no longer be mapped or grown for a reason other than room.
	ErrUnusable = errors.New("store file cannot be used any longer")
)

// Fatal reports whether err belongs to the class after which nothing read from or written to the store can be trusted.
func Fatal(err error) bool {
	return errors.Is(err, ErrSync) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnusable)
}

// LockedError says that another process has the store.
type LockedError struct {
	Path string
	PID  int // 0: the owner has not written its pid
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("store %s is in use by another process", e.Path)
	}
	return fmt.Sprintf("store %s is in use by process %d", e.Path, e.PID)
}

// VersionError says that the file was written by a later sidehook.
type VersionError struct {
	Path         string
	Found, Known uint64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("store %s has schema version %d, this sidehook knows up to %d: use a newer sidehook", e.Path, e.Found, e.Known)
}

// FilesystemError says that the folder lies on a file system whose locks and syncs cannot be relied upon.
type FilesystemError struct {
	Path string
	Type string // nfs, cifs, 9p, fuse ...
}

func (e *FilesystemError) Error() string {
	return fmt.Sprintf("store folder %s is on %s: put it on a local disk", e.Path, e.Type)
}

// classify names what a failed bbolt commit means.
//
// bbolt v1.5.0 hands on *fs.PathError from WriteAt, a bare errno from fdatasync (on systems without it a *fs.PathError
// with Op "sync"), and text without a wrapped error from its growth path (db.go, grow). What is none of these is a
// state that bbolt itself does not expect.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		if pathErr.Op == "sync" {
			return fmt.Errorf("%w: %w", ErrSync, err)
		}
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return fmt.Errorf("%w: %w", ErrSync, err)
	}
	switch text := err.Error(); {
	case strings.HasPrefix(text, "file sync error"):
		return fmt.Errorf("%w: %w", ErrSync, err)
	case strings.HasPrefix(text, "file resize error"):
		return fmt.Errorf("%w: %w", ErrWrite, err)
	case strings.HasPrefix(text, "file size too small"):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return fmt.Errorf("%w: %w", ErrUnusable, err)
}
