package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

const (
	// FileName and PIDName are the files of a store in its folder.
	FileName = "sidehook.db"
	PIDName  = "sidehook.pid"

	// DefaultLimit is the default of Options.Limit.
	DefaultLimit = 8 << 30
	// MinLimit is the smallest limit with which a store can be opened.
	MinLimit = 1 << 20

	// schemaVersion names the layout of all buckets of the file. A file with a higher one is refused.
	schemaVersion = 1

	// volumeShare is the part of the volume that the file may take: a full volume hurts the neighbours too.
	volumeShare = 0.8
	// fullShare of the limit is open to new entries; the rest is kept for settling what was accepted.
	fullShare = 0.95

	// bbolt writes its list of free pages with every commit. Up to maxSyncedFree pages (32 KiB of list) that costs
	// little and spares the next Open a scan of the file; a longer list, as a purge leaves it behind, is written only
	// by Close, until it has shrunk to minUnsyncedFree. A crash in between costs the next Open the scan, and our own
	// before it (see examinePages): together about a second for each GiB in use, cache warm.
	maxSyncedFree   = 4096
	minUnsyncedFree = 2048

	// maxGrowth and growthShare bound the step in which the file grows: each step costs an fsync.
	maxGrowth   = 16 << 20
	growthShare = 128

	// maxStack bounds the stack that is logged with a panic.
	maxStack = 4 << 10
)

var (
	metaBucket = []byte("meta")
	versionKey = []byte("schema_version")
)

// Options says where a store lies and how big it may get.
type Options struct {
	// Folder holds the store's files; it is created (0700) if it is not there.
	Folder string
	// Limit is the size in bytes that the file shall not exceed; default DefaultLimit, at least MinLimit, lowered to
	// 80% of the volume.
	Limit int64
	// Logger hears of failed and of slow commits, and of panics over a broken file; default: nothing is logged.
	Logger *slog.Logger
	// OnCommit, if set, is called on the committer's goroutine after every commit, failed ones included, with its
	// duration and the number of operations in it. It must not block.
	OnCommit func(took time.Duration, operations int, err error)
	// Commit, if set, is called in place of every commit after Open, to let tests hold it up or fail it (see package
	// storetest). It must call exactly one of commit and rollback.
	Commit func(commit, rollback func() error) error
}

// Store is one bbolt file with one committer. All methods are safe for concurrent use.
type Store struct {
	folder   string
	limit    int64
	log      *slog.Logger
	onCommit func(time.Duration, int, error)

	// slow and failed count such commits for the log. They are of the committer's goroutine alone.
	slow, failed struct {
		told  time.Time // when one was last logged
		since int       // those after that
	}

	db     *bbolt.DB
	file   *os.File // the descriptor that db writes to and that holds the lock
	commit func(*bbolt.Tx) error

	// noPID is when the pid file last found no room, zero if it is there. It belongs to Open, and then to the committer.
	noPID time.Time

	used    atomic.Int64
	growth  growth
	started atomic.Bool
	ended   chan struct{} // closed when Run has returned

	queue queue

	closeOnce sync.Once
	closeErr  error

	begins sync.Mutex  // held while bbolt begins a transaction
	wedged atomic.Bool // bbolt panicked: its locks may be held for good
}

// Open opens the store in o.Folder, or makes one. It fails within a second with a *LockedError while another process
// has it, with a *FilesystemError on a network file system, with a *VersionError if a later sidehook wrote it, and
// with ErrCorrupt if the file is broken. A store that is there opens on a full disk too. No goroutine is started: see Run.
func Open(ctx context.Context, o Options) (*Store, error) {
	limit := cmp.Or(o.Limit, DefaultLimit)
	if limit < MinLimit {
		return nil, fmt.Errorf("open store %s: limit of %d bytes is below %d", o.Folder, limit, MinLimit)
	}
	if err := makeFolder(o.Folder); err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Folder, err)
	}
	volume, err := inspectVolume(o.Folder)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Folder, err)
	}
	if volume > 0 {
		limit = max(MinLimit, min(limit, int64(float64(volume)*volumeShare)))
	}
	s := &Store{
		folder:   o.Folder,
		limit:    limit,
		log:      cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		onCommit: o.OnCommit,
		commit:   (*bbolt.Tx).Commit,
		ended:    make(chan struct{}),
	}
	opened := false
	if o.Commit != nil {
		s.commit = func(tx *bbolt.Tx) error {
			if !opened {
				return tx.Commit()
			}
			return o.Commit(tx.Commit, tx.Rollback)
		}
	}
	s.queue.wake = make(chan struct{}, 1)
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Folder, err)
	}
	opened = true
	return s, nil
}

func (s *Store) open(ctx context.Context) (err error) {
	defer func() {
		if err != nil && s.file != nil {
			_ = unlockAndClose(s.file)
		}
	}()
	err = s.guard(func() error {
		s.db, err = bbolt.Open(s.Path(), 0o600, &bbolt.Options{
			FreelistType: bbolt.FreelistMapType,
			// Mapping the whole limit at once spares the remapping that would wait for readers and hold up the writer.
			InitialMmapSize: int(s.limit),
			OpenFile: func(path string, flag int, mode os.FileMode) (*os.File, error) {
				if s.file, err = openLocked(ctx, path, flag, mode); err != nil {
					return nil, err
				}
				return s.file, examinePages(ctx, s.file)
			},
		})
		return err
	})
	if err != nil {
		return err
	}
	s.db.AllocSize = int(min(maxGrowth, max(s.limit/growthShare, int64(os.Getpagesize())*16)))
	if err := s.checkVersion(); err != nil {
		return errors.Join(err, s.closeDB())
	}
	if err := errors.Join(s.writePID(), syncFolder(s.folder)); err != nil {
		return errors.Join(err, s.closeDB())
	}
	return s.measure()
}

// closeDB closes bbolt. After a panic of bbolt's that would wait for ever: then only the file is closed, and the map of
// it left to the end of the process.
func (s *Store) closeDB() error {
	if s.wedged.Load() {
		return unlockAndClose(s.file)
	}
	return s.db.Close()
}

func (s *Store) checkVersion() error {
	return s.Setup(func(tx *Tx) error {
		stored := tx.Get(metaBucket, versionKey)
		if stored == nil {
			if err := tx.CreateBucket(metaBucket); err != nil {
				return err
			}
			return tx.Put(metaBucket, versionKey, binary.BigEndian.AppendUint64(nil, schemaVersion))
		}
		if len(stored) != 8 {
			return fmt.Errorf("%w: schema version of %d bytes", ErrCorrupt, len(stored))
		}
		if found := binary.BigEndian.Uint64(stored); found > schemaVersion {
			return &VersionError{Path: s.Path(), Found: found, Known: schemaVersion}
		}
		return nil
	})
}

// Setup runs fn in a transaction of its own and commits it, on the caller's goroutine. It is for what must be there
// before the first operation and may only be called before Run.
func (s *Store) Setup(fn func(*Tx) error) error { return s.setup("", fn) }

func (s *Store) setup(space string, fn func(*Tx) error) error {
	if s.started.Load() {
		return errors.New("store set up while running")
	}
	var failed error
	_, err := s.write([]queued{{op: setupOp{fn, &failed}, space: space}}, []error{nil})
	return cmp.Or(failed, err)
}

type setupOp struct {
	fn  func(*Tx) error
	err *error
}

func (o setupOp) Apply(tx *Tx) error {
	*o.err = o.fn(tx)
	return *o.err
}
func (setupOp) Done(error) {}

// View calls fn with a read transaction on the state after the last commit. fn must be short: pages that it might
// read are not reused while it runs. A broken page gives ErrCorrupt, which also ends Run.
func (s *Store) View(fn func(*Tx) error) error { return s.view("", fn) }

func (s *Store) view(space string, fn func(*Tx) error) error {
	var fromFn error
	err := s.guard(func() error {
		tx, err := s.begin(false)
		if err != nil {
			return err
		}
		defer func() {
			if !s.wedged.Load() { // else it might wait for ever
				_ = tx.Rollback()
			}
		}()
		fromFn = fn(newTx(tx).In(space))
		return nil
	})
	if err != nil {
		if Fatal(err) {
			s.queue.fail(err)
		}
		return err
	}
	if errors.Is(fromFn, ErrCorrupt) {
		s.queue.fail(fromFn)
	}
	return fromFn
}

// begin begins a transaction. A panic in bbolt's Begin leaves its locks held: whoever came after would wait for ever,
// and gets ErrCorrupt instead.
func (s *Store) begin(writable bool) (*bbolt.Tx, error) {
	s.begins.Lock()
	defer s.begins.Unlock()
	if s.wedged.Load() {
		return nil, fmt.Errorf("%w: it cannot be read any longer", ErrCorrupt)
	}
	begun := false
	defer func() {
		if !begun {
			s.wedged.Store(true) // before the next one is let in
		}
	}()
	tx, err := s.db.Begin(writable)
	begun = true
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return nil, ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("%w: begin: %w", ErrUnusable, err)
	}
	return tx, nil
}

// Path is the store's file.
func (s *Store) Path() string { return filepath.Join(s.folder, FileName) }

// Usage returns the bytes in use (the file without its free pages) as of the last batch, and the limit.
func (s *Store) Usage() (used, limit int64) { return s.used.Load(), s.limit }

// Full reports whether the store is at 95% of its limit: new entries shall be refused, what was accepted is settled.
func (s *Store) Full() bool { return s.Room() <= 0 }

// Room is how many bytes new entries may take before the store is full, as of the last batch; negative beyond that.
func (s *Store) Room() int64 { return int64(float64(s.limit)*fullShare) - s.used.Load() }

// measure brings Usage up to date.
func (s *Store) measure() error {
	return s.View(func(tx *Tx) error {
		s.noteUsage(tx.tx)
		return nil
	})
}

func (s *Store) noteUsage(tx *bbolt.Tx) {
	free := int64(s.db.Stats().FreePageN) * int64(s.db.Info().PageSize)
	used := max(0, tx.Size()-free)
	s.used.Store(used)
	s.growth.note(time.Now(), used)
}

// Close closes the file and gives up the lock. If Run was called it must have returned. Calling it twice is harmless.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.queue.close(ErrClosed)
		err := remove(filepath.Join(s.folder, PIDName))
		s.closeErr = errors.Join(s.syncFreelist(), err, s.closeDB())
	})
	return s.closeErr
}

// chooseFreelistSync decides whether the commit at hand writes the list of free pages. Only the committer calls it.
func (s *Store) chooseFreelistSync() {
	stats := s.db.Stats()
	switch free := stats.FreePageN + stats.PendingPageN; {
	case free > maxSyncedFree:
		s.db.NoFreelistSync = true
	case free < minUnsyncedFree:
		s.db.NoFreelistSync = false
	}
}

// syncFreelist writes the list of free pages if the last commit did not. Where the disk does not take it the next Open
// scans the file.
func (s *Store) syncFreelist() error {
	if !s.db.NoFreelistSync || s.wedged.Load() || Fatal(s.queue.fatal()) {
		return nil
	}
	return s.guard(func() error {
		s.db.NoFreelistSync = false
		tx, err := s.begin(true)
		if err != nil {
			return err
		}
		err = classify(tx.Commit())
		if errors.Is(err, ErrWrite) {
			s.log.LogAttrs(context.Background(), slog.LevelWarn, "no room for the list of free pages: the next start takes longer", slog.Any("err", err))
			return nil
		}
		return err
	})
}

// guard turns a panic, and a fault in the mapped file (a page beyond its end, an unreadable sector), into ErrCorrupt:
// nothing that bbolt or a decoder says after one can be trusted.
func (s *Store) guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			s.wedged.Store(true)
			stack := debug.Stack()
			s.log.LogAttrs(context.Background(), slog.LevelError, "panic over the store's file",
				slog.Any("panic", p), slog.String("stack", string(stack[:min(len(stack), maxStack)])))
			if _, ok := p.(interface{ Addr() uintptr }); ok { // see debug.SetPanicOnFault; its text speaks of a nil pointer
				p = "a page cannot be read"
			}
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	return fn()
}
