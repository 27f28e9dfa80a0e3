package config

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// DefaultPoll is how often files are looked at when nothing says that they changed. Notices get lost: on file systems
	// that have none, when the kernel's queue is full, when a folder was not there yet.
	DefaultPoll = 30 * time.Second
	// settleTime is how long files must have been left alone before they are read: writers truncate first and write then,
	// and a deployment changes several. settleMost is the end of that patience.
	settleTime = 100 * time.Millisecond
	settleMost = time.Second
)

// WatcherConfig is what a Watcher works with.
type WatcherConfig struct {
	// Running is the configuration that runs, as Load returned it. Required.
	Running *Config
	// Apply takes the next snapshot into use, with what differs from the one before. Fields that are read at start only
	// have their old values in it; their changes are marked NeedsRestart and come again with each reload. Required.
	Apply func(next *Config, changes []Change)
	// Failed is told why a changed configuration was not taken; the one before stays. It is called once for each state of
	// the files. An Apply afterwards means that all is well again. Required.
	Failed func(error)
	// Logger gets what the watcher itself has trouble with. Nil: it is not logged.
	Logger *slog.Logger
	// Options are those with which Running was loaded.
	Options []Option
	// Poll is how often files are looked at in any case. 0: DefaultPoll.
	Poll time.Duration
}

// Watcher loads the configuration again when its file or a secret's file changes, or when it is told to. Folders are
// watched rather than files, since Kubernetes swaps a symbolic link beside them.
type Watcher struct {
	cfg    WatcherConfig
	reload chan struct{}
	// newNotify is fsnotify.NewWatcher, or nil for looking only.
	newNotify func() (*fsnotify.Watcher, error)

	// Of Run alone:
	running *Config
	seen    prints
	notify  *fsnotify.Watcher // nil where there is none
	folders map[string]bool   // watched by notify
}

// NewWatcher returns a watcher of the configuration that runs. Nothing is watched before Run.
func NewWatcher(cfg WatcherConfig) *Watcher {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Poll = cmp.Or(cfg.Poll, DefaultPoll)
	return &Watcher{
		cfg: cfg, reload: make(chan struct{}, 1), newNotify: fsnotify.NewWatcher,
		running: cfg.Running, seen: cfg.Running.prints, folders: map[string]bool{},
	}
}

// Reload makes Run load the configuration again, changed or not. It returns at once and may be called at any time.
func (w *Watcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is due already
	}
}

// Run watches until ctx ends; then it returns nil. Apply and Failed are called by Run itself, one call at a time.
func (w *Watcher) Run(ctx context.Context) error {
	var (
		events <-chan fsnotify.Event
		errs   <-chan error
	)
	w.startNotify(ctx)
	if w.notify != nil {
		defer w.notify.Close()
		events, errs = w.notify.Events, w.notify.Errors
	}
	w.watchFolders(ctx)

	poll := time.NewTicker(w.cfg.Poll)
	defer poll.Stop()
	var settled <-chan time.Time
	var first time.Time
	w.loadIfChanged(ctx) // since Running was loaded
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.reload:
			w.load(ctx)
		case <-events:
			if settled == nil {
				first = time.Now()
			}
			settled = time.After(min(settleTime, time.Until(first.Add(settleMost))))
		case err := <-errs:
			w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "notices of changed files were lost", slog.Any("err", err))
			w.loadIfChanged(ctx)
		case <-settled:
			settled = nil
			w.loadIfChanged(ctx)
		case <-poll.C:
			w.watchFolders(ctx)
			w.loadIfChanged(ctx)
		}
	}
}

// startNotify begins to watch, if the kernel lets us: its watches are few, and shared by the whole node.
func (w *Watcher) startNotify(ctx context.Context) {
	if w.newNotify == nil {
		return
	}
	notify, err := w.newNotify()
	if err != nil {
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "files are not watched, only looked at from time to time",
			slog.Duration("every", w.cfg.Poll), slog.Any("err", err))
		return
	}
	w.notify = notify
}

// loadIfChanged loads if a file is not as it was when it was last read, for better or worse.
func (w *Watcher) loadIfChanged(ctx context.Context) {
	for path, seen := range w.seen {
		if printOf(path) != seen {
			w.load(ctx)
			return
		}
	}
}

// load loads the configuration and hands over what came of it.
func (w *Watcher) load(ctx context.Context) {
	before := w.seen
	next, seen, err := load(w.running.Path, w.cfg.Options...)
	w.seen = seen
	w.watchFolders(ctx)
	if err == nil {
		err = fitsRunning(w.running, next)
	}
	if err != nil {
		w.cfg.Failed(err)
		return
	}
	changes := Diff(w.running, next)
	for _, path := range next.Files {
		old, known := before[path]
		if path != next.Path && known && old != seen[path] {
			changes = append(changes, Change{Path: path, Effect: "its contents changed"})
		}
	}
	w.running = keepStarted(w.running, next)
	w.cfg.Apply(w.running, changes)
}

// fitsRunning returns nil, or why next needs more room than the process was started with.
func fitsRunning(running, next *Config) error {
	finding := func(path, format string, args ...any) error {
		return &Finding{Severity: SeverityError, File: next.Path, Path: path, Message: fmt.Sprintf(format, args...)}
	}
	limits := running.Limits
	if next.Gate != nil && running.Gate != nil && next.Gate.MaxBodyBytes > limits.BodiesInFlightBytes {
		return finding("limits.bodies_in_flight", "the process runs with %s, and a max_body of %s could never pass; it has to be restarted",
			formatSize(limits.BodiesInFlightBytes), formatSize(next.Gate.MaxBodyBytes))
	}
	if next.Egress != nil && running.Egress != nil && next.Egress.MaxEventBytes > limits.EgressBodiesBytes {
		return finding("limits.egress_bodies", "the process runs with %s, and a max_event of %s could never be taken; it has to be restarted",
			formatSize(limits.EgressBodiesBytes), formatSize(next.Egress.MaxEventBytes))
	}
	return nil
}

// watchFolders makes the folders that are watched those of all files that were read, and of what they link to.
func (w *Watcher) watchFolders(ctx context.Context) {
	if w.notify == nil {
		return
	}
	wanted := map[string]bool{}
	for path := range w.seen {
		wanted[filepath.Dir(path)] = true
		if target, err := filepath.EvalSymlinks(path); err == nil {
			wanted[filepath.Dir(target)] = true
		}
	}
	// The kernel forgets a folder that is removed, and another one may have come in its place.
	current := w.notify.WatchList()
	maps.DeleteFunc(w.folders, func(folder string, _ bool) bool { return !slices.Contains(current, folder) })
	for folder := range w.folders {
		if !wanted[folder] {
			delete(w.folders, folder)
			_ = w.notify.Remove(folder) // it may be gone by itself
		}
	}
	for folder := range wanted {
		if w.folders[folder] {
			continue
		}
		if err := w.notify.Add(folder); err != nil {
			w.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "a folder is not watched, only looked at from time to time",
				slog.String("folder", folder), slog.Any("err", err))
			continue
		}
		w.folders[folder] = true
	}
}
