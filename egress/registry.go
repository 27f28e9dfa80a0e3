package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/clock"
	"github.com/sidehook/sidehook/internal/store"
	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// MaxAPIEndpoints bounds the endpoints that are added through the API: all of them are held in memory.
const MaxAPIEndpoints = 10_000

// tellTimeout bounds how long a change waits for the outbox, which does not give up on a full disk.
const tellTimeout = 10 * time.Second

// tidyRetry is when Run tries again what the store did not take. Meanwhile events for new endpoints are refused.
const tidyRetry = 5 * time.Second

// Errors of the changes of a Registry, beside ErrNotFound, ErrFull and ErrUnavailable.
var (
	// ErrConfigured: the endpoint is one of the configuration, which alone can change it.
	ErrConfigured = errors.New("the endpoint is in the configuration file: change it there")
	// ErrExists: there is an endpoint of that id.
	ErrExists = errors.New("an endpoint of this id exists")
	// ErrNoSealer: no seal key is configured, so that no secret can be kept.
	ErrNoSealer = errors.New("store.seal_key is not set, and secrets are kept sealed only: set it to a file with the output of `sidehook secret new`, and restart")
	// ErrLimit: there are as many endpoints, or as many keys of one, as there may be.
	ErrLimit = errors.New("limit reached")
	// ErrSpec: the endpoint was not described by the rules. Wrapped, with the fields.
	ErrSpec = errors.New("invalid endpoint")
)

// EndpointKeeper is what the registry needs of an outbox; see BoltOutbox.
type EndpointKeeper interface {
	// Known are the endpoints that the outbox knows: those of the last SetEndpoints that is on disk, also before a restart.
	Known() []string
	// SetEndpoints says which endpoints there are. Those that are new can be accepted for once it has returned; what
	// waits for those that are gone is cancelled.
	SetEndpoints(ctx context.Context, ids []string) error
}

// RegistryConfig is what a Registry stands on. All fields are required but Sealer, Changed and Logger.
type RegistryConfig struct {
	Store  *store.Store
	Outbox EndpointKeeper
	// Sealer seals what is secret of the API's endpoints. Nil: none can be added, and those in the store are unusable.
	Sealer *Sealer
	// Changed is called after each change of the endpoints in force, and must not block. Nil: nobody asks.
	Changed func()
	// Logger hears of endpoints that cannot be used, and of what could not be written in the background. Nil: nothing.
	Logger *slog.Logger
}

// Registry holds the endpoints in force: those of the configuration, and those that were added through the API, which
// it keeps in the store. Where both have one of the same id the configuration's is in force, and the other is kept,
// shadowed, until it is removed or the configuration's is.
//
// A change is on disk before it is in force. All methods are safe for concurrent use.
type Registry struct {
	cfg     RegistryConfig
	current atomic.Pointer[registered]
	paused  atomic.Bool
	wake    chan struct{}

	// change serialises whatever changes current, the rows, told or retell, also while the store writes.
	change sync.Mutex
	// told are the ids that the outbox is known to know. retell: it was told of others, and may know those in place of them.
	told   map[string]bool
	retell bool

	// guard keeps a jump of the wall clock from taking keys out of the store; it is tidy's.
	guard  clock.Guard
	opened time.Time // with its monotonic reading
	wall   func() time.Time
}

// registered is what is in force at one time. Nobody changes it.
type registered struct {
	set    bool // false: nothing is in force yet
	config ConfigEndpoints
	byID   map[string]*Endpoint    // of config.List
	stored map[string]*storedEntry // the API's, shadowed ones included
	all    *Endpoints              // of both, as far as the outbox knows them
}

// ids are those of all endpoints, whether the outbox knows them or not.
func (g *registered) ids() map[string]bool {
	ids := make(map[string]bool, len(g.byID)+len(g.stored))
	for id := range g.byID {
		ids[id] = true
	}
	for id := range g.stored {
		ids[id] = true
	}
	return ids
}

// storedEntry is an endpoint of the API, as it is kept and as it is used.
type storedEntry struct {
	row      *egressv1.StoredEndpoint // not changed any more
	opened   openedSecrets            // of row
	endpoint *Endpoint                // nil before the first SetConfig
}

// ConfigEndpoints is the configuration's part.
type ConfigEndpoints struct {
	// List are its endpoints.
	List []*Endpoint
	// Policy and Filter are those of the API's endpoints, where they say nothing of their own.
	Policy Policy
	Filter *netguard.Filter
}

// Registration is an endpoint as the registry knows it.
type Registration struct {
	*Endpoint
	// Stored is what is kept of an endpoint of the API; nil for one of the configuration. It is not changed.
	Stored *egressv1.StoredEndpoint
	// Shadowed: an endpoint of the configuration is in force in place of this one.
	Shadowed bool
	// Shadows: this is one of the configuration, and one of the API is kept under the same id.
	Shadows bool
}

// NewRegistry reads the API's endpoints from the store. Nothing is in force before the first SetConfig. It must be called
// before the store runs.
func NewRegistry(cfg RegistryConfig) (*Registry, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	r := &Registry{cfg: cfg, wake: make(chan struct{}, 1), opened: time.Now(), wall: time.Now}
	r.guard = clock.NewGuard(0, r.opened.UnixMilli())
	if err := cfg.Store.Setup(func(tx *store.Tx) error { return tx.CreateBucket(definitionBucket) }); err != nil {
		return nil, fmt.Errorf("set up endpoints: %w", err)
	}
	rows, paused, err := readDefinitions(cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("read endpoints: %w", err)
	}
	r.paused.Store(paused)
	entries := make(map[string]*storedEntry, len(rows))
	for id, row := range rows {
		entries[id] = &storedEntry{row: row, opened: openSecrets(cfg.Sealer, id, row)}
	}
	r.current.Store(&registered{stored: entries, all: NewEndpoints(nil)})
	r.told = make(map[string]bool)
	for _, id := range cfg.Outbox.Known() {
		r.told[id] = true
	}
	return r, nil
}

// Endpoints returns the endpoints in force.
func (r *Registry) Endpoints() *Endpoints { return r.current.Load().all }

// Filter returns the address filter of the API's endpoints.
func (r *Registry) Filter() *netguard.Filter { return r.current.Load().config.Filter }

// Paused reports whether sending is paused as a whole, as SetPaused last said, also before a restart.
func (r *Registry) Paused() bool { return r.paused.Load() }

// Get returns the endpoint in force under id, else the one of the API that is kept there.
func (r *Registry) Get(id string) (Registration, bool) {
	now := r.current.Load()
	entry := now.stored[id]
	if e := now.byID[id]; e != nil {
		return Registration{Endpoint: e, Shadows: entry != nil}, true
	}
	if entry == nil || entry.endpoint == nil {
		return Registration{}, false
	}
	return Registration{Endpoint: entry.endpoint, Stored: entry.row}, true
}

// List returns all endpoints in the order of their ids. A shadowed one follows the one that is in force.
func (r *Registry) List() []Registration {
	now := r.current.Load()
	list := make([]Registration, 0, len(now.byID)+len(now.stored))
	for id, e := range now.byID {
		list = append(list, Registration{Endpoint: e, Shadows: now.stored[id] != nil})
	}
	for id, entry := range now.stored {
		if entry.endpoint != nil {
			list = append(list, Registration{Endpoint: entry.endpoint, Stored: entry.row, Shadowed: now.byID[id] != nil})
		}
	}
	slices.SortFunc(list, func(a, b Registration) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Origin, b.Origin))
	})
	return list
}

// SetConfig puts the endpoints of c in force, beside those of the API, which follow c's policy and filter from now on.
// The store must run. After an error all of c is in force but for endpoints that the outbox could not be told of, which
// Run tells it later.
func (r *Registry) SetConfig(ctx context.Context, c ConfigEndpoints) error {
	r.change.Lock()
	defer r.change.Unlock()
	defer r.signal()
	was := r.current.Load()
	now := &registered{set: true, config: c, byID: make(map[string]*Endpoint, len(c.List)), stored: make(map[string]*storedEntry, len(was.stored))}
	for _, e := range c.List {
		now.byID[e.ID] = e
	}
	for id, entry := range was.stored {
		next := newEntry(id, entry.row, entry.opened, c)
		now.stored[id] = next
		if text := next.endpoint.Unusable; text != "" && (entry.endpoint == nil || entry.endpoint.Unusable != text) {
			r.cfg.Logger.LogAttrs(ctx, slog.LevelError, "endpoint cannot be used: its events wait",
				slog.String("endpoint", id), slog.String("reason", text))
		}
		if now.byID[id] != nil && was.byID[id] == nil {
			r.cfg.Logger.LogAttrs(ctx, slog.LevelError, "endpoint of the API is shadowed by one of the configuration: rename one, or remove it",
				slog.String("endpoint", id))
		}
	}
	return r.put(ctx, now)
}

// put puts now in force. The outbox hears of new endpoints before an event can be taken for them, and of those that are
// gone after none can. Those that it knows are in force before it is told of anything: it does not answer while the disk
// is full. r.change is held.
func (r *Registry) put(ctx context.Context, now *registered) error {
	ctx = context.WithoutCancel(ctx)
	list := slices.Clone(now.config.List)
	for _, id := range slices.Sorted(maps.Keys(now.stored)) {
		if now.byID[id] == nil {
			list = append(list, now.stored[id].endpoint)
		}
	}
	wanted := now.ids()
	if !r.knows(wanted) {
		r.enforce(now, list)
	}
	err := r.tell(ctx, wanted)
	r.enforce(now, list)
	if err == nil {
		err = r.forget(ctx, wanted)
	}
	return err
}

// enforce puts those of list in force that the outbox knows; the others are pending. r.change is held.
func (r *Registry) enforce(now *registered, list []*Endpoint) {
	var known, pending []*Endpoint
	for _, e := range list {
		if r.told[e.ID] {
			known = append(known, e)
		} else {
			pending = append(pending, e)
		}
	}
	next := *now
	next.all = NewEndpoints(known)
	if len(pending) > 0 {
		next.all.pending = NewEndpoints(pending)
	}
	r.current.Store(&next)
	r.cfg.Changed()
}

// knows reports whether the outbox knows all of ids. r.change is held.
func (r *Registry) knows(ids map[string]bool) bool {
	for id := range ids {
		if !r.told[id] {
			return false
		}
	}
	return true
}

// tell tells the outbox of what is in ids and new to it; it keeps what it knows. r.change is held.
func (r *Registry) tell(ctx context.Context, ids map[string]bool) error {
	if !r.retell && r.knows(ids) {
		return nil
	}
	all := maps.Clone(ids)
	maps.Copy(all, r.told)
	return r.setTold(ctx, all)
}

// forget tells the outbox that there is nothing but ids, which it knows. r.change is held.
func (r *Registry) forget(ctx context.Context, ids map[string]bool) error {
	if !r.retell && maps.Equal(ids, r.told) {
		return nil
	}
	return r.setTold(ctx, ids)
}

// setTold tells the outbox that ids are its endpoints. After an error it may have been told all the same, or be told later:
// then it surely knows only what it knew before and was told now.
func (r *Registry) setTold(ctx context.Context, ids map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if err := r.cfg.Outbox.SetEndpoints(ctx, slices.Sorted(maps.Keys(ids))); err != nil {
		told := maps.Clone(r.told)
		maps.DeleteFunc(told, func(id string, _ bool) bool { return !ids[id] })
		r.told, r.retell = told, true
		return fmt.Errorf("tell the outbox its endpoints: %w", err)
	}
	r.told, r.retell = maps.Clone(ids), false
	return nil
}

// SetPaused keeps whether sending is paused as a whole, and returns once that is on disk. Who sends is told by the caller.
func (r *Registry) SetPaused(_ context.Context, paused bool) error {
	r.change.Lock()
	defer r.change.Unlock()
	if err := r.write(definitionRow{pausedKey, pausedRow(paused)}); err != nil {
		return fmt.Errorf("keep the pause: %w", err)
	}
	r.paused.Store(paused)
	return nil
}

// Unusable returns the ids of the endpoints that cannot be used, Shadowed those that are shadowed; in order, for alarms.
func (r *Registry) Unusable() []string {
	return r.ids(func(g Registration) bool { return g.Endpoint.Unusable != "" && !g.Shadowed })
}

// Shadowed: see Unusable.
func (r *Registry) Shadowed() []string { return r.ids(func(g Registration) bool { return g.Shadowed }) }

func (r *Registry) ids(is func(Registration) bool) []string {
	var ids []string
	for _, g := range r.List() {
		if is(g) {
			ids = append(ids, g.ID)
		}
	}
	return ids
}

// Run keeps the rows tidy until ctx ends: keys that sign no more leave the store, what is sealed under a seal key that is
// not the first is sealed again, and the outbox is told what it could not be told before. The store must run.
func (r *Registry) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.wake:
		}
		next, err := r.tidy(ctx)
		if errors.Is(err, store.ErrClosed) {
			return nil
		}
		if err != nil {
			r.cfg.Logger.LogAttrs(ctx, slog.LevelError, "tidy endpoints", slog.Any("err", err))
			next = tidyRetry
		}
		timer.Reset(next)
	}
}

func (r *Registry) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
