package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/sidecar/config"
	"github.com/sidehook/sidehook/sidecar/keyfetch"
)

const (
	// minMessageBody is room in a message from Envoy for a max_body that a reload may bring: the limit of the
	// listener is set at start.
	minMessageBody = 64 << 20
	// drainGrace bounds the end of the gate: Checks in hand, and the confirms of what is with the app. It stays below
	// the 30 s that Kubernetes gives a pod by default.
	drainGrace = 20 * time.Second
	// adminGrace bounds the end of requests to the admin API and the probes.
	adminGrace = 2 * time.Second
)

// Options is what New needs.
type Options struct {
	// Config is the configuration to start with. Required.
	Config *config.Config
	// Version is what `sidehook version` prints.
	Version string
	// Logger; nil discards.
	Logger *slog.Logger
	// Level, if not nil, is set to log.level when a reload changes it.
	Level *slog.LevelVar
	// Hangup, if not nil, makes the sidecar reload with each value: SIGHUP.
	Hangup <-chan os.Signal
	// Outbound are the metrics of the outbound half, whose Denied the address filters of Config tell what they refuse (see
	// config.OnDenied). Nil: New makes them, and they hear of the filters of the first reload on.
	Outbound *egress.Metrics
}

// Sidecar is the process: the store, both halves, the admin API and the probes, on one configuration that can be swapped.
type Sidecar struct {
	version string
	log     *slog.Logger
	level   *slog.LevelVar
	hangup  <-chan os.Signal
	started time.Time
	maxBody int64 // the largest body that the gate's listener takes
	reg     *prometheus.Registry
	metrics processMetrics
	health  health
	watcher *config.Watcher

	current atomic.Pointer[loaded]
	refused atomic.Pointer[string] // why the last reload was refused; nil: it was not

	store    *store.Store // nil where neither half is there
	gate     *gate        // nil where the configuration has none
	outbound *outbound    // nil where the configuration has no egress
}

// loaded is the configuration in force.
type loaded struct {
	*config.Config
	at time.Time
}

// gate is the inbound half, wired.
type gate struct {
	inbox   *extauthz.BoltInbox
	server  *extauthz.Server
	confirm *extauthz.Confirm
	purger  *extauthz.Purger
	grpc    *extauthz.GRPCServer
	keys    *keyfetch.Fetcher
	stored  *stored
}

// New opens the store and wires everything; nothing runs and nothing listens until Run, which must follow: it closes
// the store. Errors: see store.Open.
func New(ctx context.Context, o Options) (*Sidecar, error) {
	s := &Sidecar{version: o.Version, log: o.Logger, level: o.Level, hangup: o.Hangup, started: time.Now(), reg: prometheus.NewRegistry()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.health = health{detail: s.problems, reg: s.reg}
	s.metrics.register(s.reg, o.Version)
	s.current.Store(&loaded{o.Config, s.started})
	outbound := cmp.Or(o.Outbound, egress.NewMetrics())
	if err := s.open(ctx, o.Config, outbound); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.watcher = config.NewWatcher(config.WatcherConfig{
		Running: o.Config, Apply: s.apply, Failed: s.refuse, Logger: s.log,
		Options: []config.Option{config.OnDenied(outbound.Denied)},
	})
	s.note(o.Config, nil)
	return s, nil
}

// open opens the store and builds on it the halves that cfg has. After an error the store may be open.
func (s *Sidecar) open(ctx context.Context, cfg *config.Config, m *egress.Metrics) (err error) {
	if cfg.Gate == nil && cfg.Egress == nil {
		return nil
	}
	s.store, err = store.Open(ctx, store.Options{
		Folder:   cfg.Store.Path,
		Limit:    cfg.Store.LimitBytes,
		Logger:   s.log,
		OnCommit: s.metrics.committed,
	})
	if err != nil {
		return err
	}
	s.metrics.observe(s.reg, s.store, cfg.Store.Volume == config.VolumeEphemeral)
	if cfg.Gate != nil {
		s.maxBody = max(cfg.Gate.MaxBodyBytes, minMessageBody)
		if s.gate, err = s.newGate(cfg); err != nil {
			return err
		}
	}
	if cfg.Egress != nil {
		s.outbound, err = s.newOutbound(cfg, m)
	}
	return err
}

// newGate builds the inbound half on the store.
func (s *Sidecar) newGate(cfg *config.Config) (_ *gate, err error) {
	g := &gate{}
	if g.stored, err = s.newStored(cfg); err != nil {
		return nil, err
	}
	if g.inbox, err = extauthz.NewBoltInbox(extauthz.BoltInboxConfig{
		Store:         s.store,
		Retention:     s.retention,
		SourcePercent: cfg.Limits.SourcePercent,
		Keeper:        g.stored,
		Logger:        s.log,
	}); err != nil {
		return nil, err
	}
	if g.purger, err = extauthz.NewPurger(extauthz.PurgerConfig{Inbox: g.inbox, Logger: s.log, OnPurge: s.metrics.purgedRows}); err != nil {
		return nil, err
	}
	if g.confirm, err = extauthz.NewConfirm(extauthz.ConfirmConfig{Inbox: g.inbox, Logger: s.log, Registerer: s.reg}); err != nil {
		return nil, err
	}
	g.confirm.SetSources(names(cfg))
	if g.keys, err = s.newKeys(); err != nil {
		return nil, err
	}
	g.server, err = extauthz.New(extauthz.Config{
		Inbox:             g.inbox,
		Sources:           cfg.Gate.Table,
		Keys:              g.keys,
		MaxBodiesInFlight: cfg.Limits.BodiesInFlightBytes,
		Passed:            g.confirm.Passed,
		Logger:            s.log,
		Registerer:        s.reg,
	})
	if err != nil {
		return nil, err
	}
	g.grpc = extauthz.NewGRPCServer(extauthz.GRPCConfig{
		Server:       g.server,
		Confirm:      g.confirm,
		MaxBodyBytes: s.maxBody,
		Logger:       s.log,
	})
	s.reg.MustRegister(inboxCollector{g.inbox})
	return g, nil
}

// names returns the names of cfg's sources.
func names(cfg *config.Config) []string {
	var names []string
	for _, src := range cfg.Gate.Sources {
		names = append(names, src.Name)
	}
	return names
}

// retention is how long ids of source, by its name or by an earlier one, are kept by the configuration in force.
func (s *Sidecar) retention(source string) (time.Duration, bool) {
	cfg := s.current.Load()
	if cfg.Gate == nil {
		return 0, false
	}
	if src := cfg.Gate.Table.Named(source); src != nil {
		return src.Retention, true
	}
	for _, src := range cfg.Gate.Sources {
		if slices.Contains(src.Was, source) {
			return src.Retention, true
		}
	}
	return 0, false
}

// reloadOnHangup loads the configuration and the secrets anew with each SIGHUP, as a change of their files does.
func (s *Sidecar) reloadOnHangup(ctx context.Context) error {
	for {
		select {
		case <-s.hangup:
			s.watcher.Reload()
		case <-ctx.Done():
			return nil
		}
	}
}

// Run listens and serves until ctx ends, then stops in order: not ready; the gate takes no more, finishes its Checks and
// waits a while for the confirms of what is with the app, while the intake finishes the posts in hand and then the
// attempts in flight end; admin API and probes end; the store commits what waits and closes. It returns nil then, and the
// first error otherwise; see store.Fatal.
func (s *Sidecar) Run(ctx context.Context) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// draining begins when nobody is told any more that we are ready; late ends when both halves have: whatever they need
	// to finish lives on it. The store, and who may wait for it without end, live longer still.
	draining, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	late, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	storeLife, endStore := context.WithCancel(context.WithoutCancel(ctx))
	defer endStore()

	listeners, err := s.listen(ctx)
	if err != nil {
		return errors.Join(err, s.close())
	}
	var group errgroup.Group
	run := func(f func() error) {
		group.Go(func() error {
			err := f()
			if err != nil {
				fail(err)
			}
			return err
		})
	}
	if s.store != nil {
		ended := make(chan error, 1)
		go func() {
			err := s.store.Run(storeLife)
			if err != nil {
				fail(err)
			}
			ended <- err
		}()
		defer func() {
			endStore()
			err = errors.Join(err, <-ended)
			s.outbound.wait()
			if s.gate != nil {
				s.gate.stored.wait()
			}
			err = errors.Join(err, s.close())
		}()
	}
	s.outbound.begin(ctx, storeLife)
	if s.gate != nil {
		s.gate.stored.begin(ctx, storeLife)
	}
	run(func() error {
		admin := httpServer(s.admin(), true, s.log)
		admin.ConnContext = withPeer
		return serveHTTP(late, admin, listeners.admin, adminGrace)
	})
	run(func() error {
		return serveHTTP(late, httpServer(s.health.handler(), false, s.log), listeners.health, adminGrace)
	})
	run(func() error { return s.watcher.Run(ctx) })
	run(func() error { return s.reloadOnHangup(ctx) })
	run(func() error {
		<-ctx.Done()
		s.stopping(ctx)
		drain()
		return nil
	})
	var halves sync.WaitGroup
	half := func(serve func() error) {
		halves.Add(1)
		run(func() error {
			defer halves.Done()
			return serve()
		})
	}
	if s.gate != nil {
		for _, worker := range append(s.gate.stored.workers(), s.gate.purger.Run, s.gate.keys.Run) {
			run(func() error { return worker(late) })
		}
		half(func() error { return s.gate.stored.deliver(draining) })
		half(func() error { return s.serveGate(draining, listeners.gate) })
		s.gate.grpc.SetServing(true)
	}
	if s.outbound != nil {
		for _, worker := range s.outbound.workers() {
			run(func() error { return worker(late) })
		}
		half(func() error { return s.outbound.serve(draining, listeners.egress) })
	}
	run(func() error {
		<-draining.Done()
		halves.Wait()
		stop()
		return nil
	})
	s.health.ready.Store(true)
	s.log.LogAttrs(ctx, slog.LevelInfo, "ready",
		slog.String("version", s.version), slog.String("config", s.current.Load().Path), slog.Int64("duration_ms", time.Since(s.started).Milliseconds()))
	return group.Wait()
}

// serveGate serves the gate until ctx ends and has it finish what is in hand.
func (s *Sidecar) serveGate(ctx context.Context, l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.gate.grpc.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainGrace)
	defer cancel()
	s.gate.grpc.Stop(grace)
	return <-served
}

// stopping takes the process out of its Service.
func (s *Sidecar) stopping(ctx context.Context) {
	s.health.stopping.Store(true)
	s.log.LogAttrs(ctx, slog.LevelInfo, "stopping", slog.Any("cause", context.Cause(ctx)))
}

// close closes the store, if there is one.
func (s *Sidecar) close() error {
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// listeners are the open sockets; gate and egress are nil where there is no such half.
type listeners struct{ gate, egress, admin, health net.Listener }

// listen opens all listeners or none.
func (s *Sidecar) listen(ctx context.Context) (ls listeners, err error) {
	cfg := s.current.Load()
	type want struct {
		addr string
		l    *net.Listener
	}
	wanted := []want{{cfg.Admin.Listen, &ls.admin}, {cfg.Health.Listen, &ls.health}}
	if s.gate != nil {
		wanted = append(wanted, want{cfg.Gate.Listen, &ls.gate})
	}
	if s.outbound != nil {
		wanted = append(wanted, want{cfg.Egress.Listen, &ls.egress})
	}
	var open []net.Listener
	for _, w := range wanted {
		l, err := listen(ctx, w.addr)
		if err != nil {
			for _, l := range open {
				err = errors.Join(err, l.Close())
			}
			return listeners{}, err
		}
		open = append(open, l)
		*w.l = l
	}
	return ls, nil
}
