package sidecar

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/sidecar/config"
)

// stored is what brings the events of sources in STORE to the app: an outbox of its own in the inbox's store, in which a
// source is an endpoint, with a dispatcher on it. It is the Keeper of the inbox.
type stored struct {
	log        *slog.Logger
	outbox     *egress.BoltOutbox
	dispatcher *egress.Dispatcher
	records    *egress.BoltRecords
	purger     *egress.Purger
	sender     *egress.HTTPSender
	metrics    *storedMetrics

	// wanted is the configuration that shall be in force, inForce what is; wake tells keepApps that they differ.
	wanted  atomic.Pointer[config.Config]
	inForce atomic.Pointer[apps]
	wake    chan struct{}
	begun   chan struct{} // closed once the first one is in force
	waiting sync.WaitGroup
}

// apps are the sources in STORE of one configuration, by name, earlier names included.
type apps struct {
	endpoints *egress.Endpoints
	sources   map[string]*extauthz.Source
	stop      map[string]bool // dead letters stop the later events of their key
}

func newApps(cfg *config.Config) *apps {
	a := &apps{sources: make(map[string]*extauthz.Source), stop: make(map[string]bool)}
	var list []*egress.Endpoint
	if cfg != nil && cfg.Gate != nil {
		for name, app := range cfg.Gate.Apps {
			source := cfg.Gate.Table.Named(name)
			for _, id := range append([]string{name}, source.Was...) {
				e := *app.Endpoint
				e.ID = id
				list = append(list, &e)
				a.sources[id], a.stop[id] = source, app.StopOnDead
			}
		}
	}
	slices.SortFunc(list, func(x, y *egress.Endpoint) int { return strings.Compare(x.ID, y.ID) })
	a.endpoints = egress.NewEndpoints(list)
	return a
}

// ids are the names of the sources, earlier ones included.
func (a *apps) ids() []string { return slices.Sorted(maps.Keys(a.sources)) }

var _ extauthz.Keeper = (*stored)(nil)

// newStored builds it on the store of s.
func (s *Sidecar) newStored(cfg *config.Config) (_ *stored, err error) {
	k := &stored{log: s.log, metrics: newStoredMetrics(), wake: make(chan struct{}, 1), begun: make(chan struct{})}
	k.inForce.Store(newApps(nil))
	_, limit := s.store.Usage()
	if k.outbox, err = egress.NewBoltOutbox(egress.BoltOutboxConfig{
		Store: s.store,
		Space: egress.StoredSpace,
		// A source is bounded by its share of the store, and not by a number: the app may be away for days.
		EndpointDeliveries: math.MaxInt32,
		EndpointBytes:      limit / 100 * int64(cfg.Limits.SourcePercent),
		KeepRemoved:        true,
		StopOnDead:         func(source string) bool { return k.inForce.Load().stop[source] },
		Logger:             s.log,
	}); err != nil {
		return nil, err
	}
	if k.sender, err = egress.NewHTTPSender(egress.SenderConfig{UserAgent: userAgent(s.version), Request: k.request}); err != nil {
		return nil, err
	}
	if k.dispatcher, err = egress.NewDispatcher(egress.DispatcherConfig{
		Outbox:    k.outbox,
		Sender:    k.sender,
		Endpoints: func() *egress.Endpoints { return k.inForce.Load().endpoints },
		MaxBytes:  cfg.Limits.BodiesInFlightBytes,
		Grace:     attemptGrace,
		NameKey:   "source",
		Observe:   k.metrics.attempt,
		Logger:    s.log,
	}); err != nil {
		return nil, err
	}
	k.outbox.SetChanges(k.dispatcher)
	if k.records, err = egress.NewBoltRecords(egress.BoltRecordsConfig{
		Outbox: k.outbox, Parked: k.orphaned, Sending: k.dispatcher.InFlight, Logger: s.log,
	}); err != nil {
		return nil, err
	}
	if k.purger, err = egress.NewPurger(egress.PurgerConfig{
		Outbox: k.outbox, Keep: func() egress.Keep { return s.current.Load().Keep }, Logger: s.log, OnPurge: k.metrics.purged,
	}); err != nil {
		return nil, err
	}
	k.metrics.register(s.reg, k)
	k.apply(cfg)
	return k, nil
}

// Prepare implements extauthz.Keeper.
func (k *stored) Prepare(e *extauthz.StoredEvent) (extauthz.Keeping, error) {
	a, err := k.outbox.Prepare(&egress.Event{
		ID: e.Shown, Unindexed: true, Tenant: e.Key.Tenant, Type: e.Type, Headers: e.Fields(), Body: e.Body,
		Content: sha256.Sum256(e.Body), // what is left of the body when it is gone
		Order:   e.Order, Accepted: e.Received,
	}, []egress.Target{{Endpoint: e.Key.Source}})
	if err != nil {
		return nil, err
	}
	return keeping{a}, nil
}

// Open implements extauthz.Keeper.
func (k *stored) Open(tx *store.Tx, ref extauthz.StoredRef) (bool, error) {
	state, ok, err := k.outbox.StateIn(tx, deliveryID(ref))
	return ok && (state == egress.StateWaiting || state == egress.StateDead), err
}

// keeping is an event on its way to the disk.
type keeping struct{ a *egress.Acceptance }

// Put implements extauthz.Keeping.
func (p keeping) Put(tx *store.Tx) (extauthz.StoredRef, error) {
	if err := p.a.Put(tx); err != nil {
		if errors.Is(err, egress.ErrFull) {
			return extauthz.StoredRef{}, fmt.Errorf("%w: %w", extauthz.ErrFull, err)
		}
		return extauthz.StoredRef{}, err
	}
	return storedRef(p.a.ID(0)), nil
}

// Done implements extauthz.Keeping.
func (p keeping) Done(err error) { p.a.Done(err) }

// request makes the request of an attempt to bring an event to the app.
func (k *stored) request(e *egress.Endpoint, ev *egress.Event, attempt int, now time.Time) (egress.Request, error) {
	source := k.inForce.Load().sources[e.ID]
	if source == nil {
		return egress.Request{}, fmt.Errorf("source %s is not in STORE any more", e.ID)
	}
	r, err := source.DeliveryRequest(ev.Headers, ev.Body, extauthz.DeliveryInfo{
		ID: ev.ID, Type: ev.Type, Tenant: ev.Tenant, Attempt: attempt, Redelivered: ev.Redelivered,
	}, now)
	if err != nil {
		return egress.Request{}, err
	}
	return egress.Request{Method: r.Method, Target: r.Target, Host: r.Host, Header: r.Header, Secrets: r.Secrets}, nil
}

// orphaned reports whether the source, by any of its names, is not in STORE by the configuration in force: what is kept of it
// waits. It is the Parked of the records, see NewStoredRecords.
func (k *stored) orphaned(source string) bool {
	_, ok := k.inForce.Load().sources[source]
	return !ok
}

// problems adds to p what a person should look at.
func (k *stored) problems(p map[string]string) {
	var orphaned, held []string
	k.outbox.Totals(func(source string, s egress.State, n egress.Count) {
		if s == egress.StateWaiting && n.Rows > 0 && k.orphaned(source) {
			orphaned = append(orphaned, source)
		}
	})
	for _, e := range k.inForce.Load().endpoints.All() {
		if h, _ := k.dispatcher.HealthOf(e.ID); h.Held() {
			held = append(held, e.ID)
		}
	}
	if len(orphaned) > 0 {
		slices.Sort(orphaned)
		p["stored_orphaned"] = "stored events wait for sources that are not in STORE any more: " + some(orphaned)
	}
	if len(held) > 0 {
		p["app_unreachable"] = "stored events wait, the app cannot be reached for: " + some(held)
	}
}

// announce has the store know the sources of cfg that it does not know yet, before the gate takes their events; those that are not
// in cfg stay. It waits no longer than endpointPatience: on a full disk the events of new ones get 503 until there is room.
func (k *stored) announce(cfg *config.Config) {
	k.wanted.Store(cfg) // before: what keepApps is about to put must not be put after it
	known, ids := k.outbox.Known(), newApps(cfg).ids()
	if !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(known, id) }) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endpointPatience)
	defer cancel()
	if err := k.outbox.SetEndpoints(ctx, append(known, ids...)); err != nil {
		k.log.LogAttrs(ctx, slog.LevelWarn, "the store has not taken the sources in STORE yet: events of new ones get 503 until then",
			slog.Any("err", err))
	}
}

// apply takes cfg into use as soon as the store knows its sources.
func (k *stored) apply(cfg *config.Config) {
	k.wanted.Store(cfg)
	select {
	case k.wake <- struct{}{}:
	default: // keepApps looks at wanted anyway
	}
}

// begin puts the first configuration in force, and returns when that is done or has taken endpointPatience.
func (k *stored) begin(ctx, life context.Context) {
	k.waiting.Go(func() { k.keepApps(life) })
	patience := time.NewTimer(endpointPatience)
	defer patience.Stop()
	select {
	case <-k.begun:
	case <-ctx.Done():
	case <-patience.C:
		k.log.LogAttrs(ctx, slog.LevelWarn, "the store has not taken the sources in STORE yet: events of new ones get 503 until then")
	}
}

// keepApps puts the sources of the last configuration in force, whenever it is another one, until life ends.
func (k *stored) keepApps(life context.Context) {
	first := true
	for {
		select {
		case <-life.Done():
			return
		case <-k.wake:
		}
		cfg := k.wanted.Load()
		if err := k.put(life, newApps(cfg)); err != nil && cfg == k.wanted.Load() {
			k.log.LogAttrs(life, slog.LevelError, "sources in STORE are not all in force", slog.Any("err", err))
		}
		if first {
			close(k.begun)
			first = false
		}
	}
}

// put has the outbox know the sources of next, and then delivers to them.
func (k *stored) put(life context.Context, next *apps) error {
	ids := next.ids()
	if err := k.outbox.SetEndpoints(life, ids); err != nil {
		return err
	}
	k.metrics.setSources(ids)
	k.inForce.Store(next)
	if err := k.dispatcher.Refresh(); err != nil {
		return err
	}
	k.sender.Retain(next.endpoints)
	return k.outbox.ReleaseDead(life)
}

// wait returns when nobody waits for the store any more, which has ended.
func (k *stored) wait() { k.waiting.Wait() }

// workers are what runs beside the gate, until its ctx ends; the dispatcher finishes the attempts in hand.
func (k *stored) workers() []func(context.Context) error {
	return []func(context.Context) error{k.outbox.Run, k.records.Run, k.purger.Run}
}

// deliver brings events to the app until ctx ends, and finishes the attempts in flight.
func (k *stored) deliver(ctx context.Context) error {
	err := k.dispatcher.Run(ctx)
	_ = k.sender.Close() // it closes what is idle
	return err
}
