package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/sidecar/config"
)

const (
	// intakeGrace bounds the end of posts in hand: one waits for a commit, a stream of events for its reader.
	intakeGrace = 5 * time.Second
	// attemptGrace bounds the end of attempts in flight. With intakeGrace, and what the dispatcher takes to write down how
	// they ended, it stays within drainGrace.
	attemptGrace = 10 * time.Second
	// noticeTrouble is how long it is told that a notice did not reach anybody.
	noticeTrouble = time.Hour
	// endpointPatience is how long the start waits until the store has taken the endpoints: on a full disk it takes new
	// ones when there is room, and that keeps nobody from being ready.
	endpointPatience = time.Second
)

// outbound is the outbound half, wired. Its methods do nothing on nil.
type outbound struct {
	log        *slog.Logger
	outbox     *egress.BoltOutbox
	registry   *egress.Registry
	dispatcher *egress.Dispatcher
	records    *egress.BoltRecords
	purger     *egress.Purger
	notifier   *egress.Notifier
	sender     *egress.HTTPSender
	service    *egress.Service
	metrics    *egress.Metrics
	intake     *egress.Intake

	// config is the configuration whose endpoints shall be in force; wake tells keepEndpoints that it is another one.
	config atomic.Pointer[config.Egress]
	wake   chan struct{}
	// inForce is closed once the first one's are.
	inForce chan struct{}
	// unheard is when a notice last reached nobody: unix nanoseconds, 0: never.
	unheard atomic.Int64
	// waiting are those who may wait for the store for as long as it lives.
	waiting sync.WaitGroup
}

// newOutbound builds the outbound half on the store.
func (s *Sidecar) newOutbound(cfg *config.Config, m *egress.Metrics) (*outbound, error) {
	o := &outbound{
		log: s.log, metrics: m, wake: make(chan struct{}, 1), inForce: make(chan struct{}),
	}
	var err error
	if o.outbox, err = egress.NewBoltOutbox(egress.BoltOutboxConfig{
		Store:              s.store,
		EndpointDeliveries: cfg.Limits.EndpointDeliveries,
		Logger:             s.log,
	}); err != nil {
		return nil, err
	}
	sealer, err := egress.NewSealer(cfg.Store.SealKeys...)
	if err != nil {
		return nil, err
	}
	if o.sender, err = egress.NewHTTPSender(egress.SenderConfig{UserAgent: userAgent(s.version)}); err != nil {
		return nil, err
	}
	if o.registry, err = egress.NewRegistry(egress.RegistryConfig{
		Store: s.store, Outbox: o.outbox, Sealer: sealer, Changed: o.endpointsChanged, Logger: s.log,
	}); err != nil {
		return nil, err
	}
	if o.notifier, err = egress.NewNotifier(egress.NotifierConfig{
		Targets: s.noticeTargets, Sender: o.sender, Instance: instance(), Logger: s.log, Count: o.noticed,
	}); err != nil {
		return nil, err
	}
	if o.dispatcher, err = egress.NewDispatcher(egress.DispatcherConfig{
		Outbox:      o.outbox,
		Sender:      m.Sender(o.sender),
		Endpoints:   o.registry.Endpoints,
		MaxInFlight: cfg.Limits.EgressInFlight,
		Grace:       attemptGrace,
		Paused:      o.registry.Paused(),
		Notify:      o.notifier.Tell,
		Observe:     m.Attempt,
		Logger:      s.log,
	}); err != nil {
		return nil, err
	}
	o.outbox.SetChanges(o.dispatcher)
	if o.records, err = egress.NewBoltRecords(egress.BoltRecordsConfig{
		Outbox: o.outbox, Parked: o.dispatcher.Parked, Sending: o.dispatcher.InFlight, Logger: s.log,
	}); err != nil {
		return nil, err
	}
	if o.purger, err = egress.NewPurger(egress.PurgerConfig{
		Outbox: o.outbox, Keep: func() egress.Keep { return s.current.Load().Keep }, Logger: s.log, OnPurge: m.Purged,
	}); err != nil {
		return nil, err
	}
	o.service = egress.NewService(egress.ServiceConfig{
		Records: o.records, Registry: o.registry, Switch: o.dispatcher, Sender: o.sender, UntilFull: s.store.UntilFull, Logger: s.log,
	})
	if err := m.Register(s.reg); err != nil {
		return nil, err
	}
	s.reg.MustRegister(&egress.QueueMetrics{Outbox: o.outbox, Endpoints: o.registry.Endpoints, Dispatcher: o.dispatcher})
	o.intake = egress.NewIntake(egress.IntakeConfig{
		Outbox:           o.outbox,
		Endpoints:        o.registry.Endpoints,
		Parked:           o.dispatcher.Parked,
		MaxBytesInFlight: cfg.Limits.EgressBodiesBytes,
		Token: func() []byte {
			if e := s.current.Load().Egress; e != nil {
				return e.Token.Bytes()
			}
			return nil
		},
		Logger:       s.log,
		Count:        m.Event,
		EndpointFull: m.EndpointFull,
	})
	o.apply(cfg.Egress)
	return o, nil
}

// userAgent is what receivers see of us. A build without a tag has the version "(devel)", whose brackets would make a
// comment of it (RFC 9110, 5.6.5 and 10.1.5).
func userAgent(version string) string { return "sidehook/" + strings.Trim(version, "()") }

// noticeTargets says who is told by the configuration in force.
func (s *Sidecar) noticeTargets() egress.NoticeTargets {
	if n := s.current.Load().Notify; n != nil {
		return *n
	}
	return egress.NoticeTargets{}
}

// instance names this sidehook to people who hear of many: in a pod it is the pod's name.
func instance() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// noticed is told what became of a notice.
func (o *outbound) noticed(channel, result string) {
	o.metrics.Notice(channel, result)
	if result == egress.NoticeFailed || result == egress.NoticeDropped {
		o.unheard.Store(time.Now().UnixNano())
	}
}

// endpointsChanged tells those who keep something of each endpoint that others are in force. The registry calls it once
// the store runs, so long after the rest was made.
func (o *outbound) endpointsChanged() {
	set := o.registry.Endpoints()
	var configured []*egress.Endpoint
	for _, e := range set.All() {
		if e.Origin == egress.OriginConfig {
			configured = append(configured, e)
		}
	}
	o.metrics.SetEndpoints(configured)
	if err := o.dispatcher.Refresh(); err != nil {
		o.log.LogAttrs(context.Background(), slog.LevelError, "dispatcher does not see the endpoints in force", slog.Any("err", err))
	}
	o.sender.Retain(set)
}

// apply takes cfg into use: the intake at once, endpoints as soon as the store has them.
func (o *outbound) apply(cfg *config.Egress) {
	if o == nil || cfg == nil {
		return
	}
	o.config.Store(cfg)
	o.intake.SetSettings(egress.IntakeSettings{MaxEventBytes: int(cfg.MaxEventBytes), Hosts: cfg.Hosts})
	select {
	case o.wake <- struct{}{}:
	default: // keepEndpoints looks at config anyway
	}
}

// begin puts the endpoints in force, and returns when that is done or has taken endpointPatience. The store runs, until
// life ends.
func (o *outbound) begin(ctx, life context.Context) {
	if o == nil {
		return
	}
	o.waiting.Go(func() { o.keepEndpoints(life) })
	o.waiting.Go(func() {
		if err := o.registry.Run(life); err != nil {
			o.log.LogAttrs(life, slog.LevelError, "endpoints of the API are not looked after", slog.Any("err", err))
		}
	})
	patience := time.NewTimer(endpointPatience)
	defer patience.Stop()
	select {
	case <-o.inForce:
	case <-ctx.Done():
	case <-patience.C:
		o.log.LogAttrs(ctx, slog.LevelWarn, "the store has not taken the endpoints yet: events for new ones are refused until then")
	}
}

// keepEndpoints puts the endpoints of the last configuration in force, whenever it is another one, until life ends.
func (o *outbound) keepEndpoints(life context.Context) {
	first := true
	for {
		select {
		case <-life.Done():
			return
		case <-o.wake:
		}
		cfg := o.config.Load()
		err := o.registry.SetConfig(life, egress.ConfigEndpoints{List: cfg.Endpoints, Policy: cfg.Policy, Filter: cfg.Filter})
		if err != nil {
			o.log.LogAttrs(life, slog.LevelError, "endpoints are not all in force", slog.Any("err", err))
		}
		if first {
			close(o.inForce)
			first = false
		}
	}
}

// wait returns when nobody waits for the store any more, which has ended.
func (o *outbound) wait() {
	if o != nil {
		o.waiting.Wait()
	}
}

// workers are what runs beside intake and dispatcher, until its ctx ends.
func (o *outbound) workers() []func(context.Context) error {
	return []func(context.Context) error{o.outbox.Run, o.records.Run, o.purger.Run, o.notifier.Run}
}

// serve takes events on l and delivers them until ctx ends. Then it finishes the posts in hand, and after them the attempts
// in flight.
func (o *outbound) serve(ctx context.Context, l net.Listener) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	sent := make(chan error, 1)
	go func() { sent <- o.dispatcher.Run(sending) }()
	taking, leave := context.WithCancel(ctx)
	defer leave()
	taken := make(chan error, 1)
	server := httpServer(o.intake, false, o.log)
	server.RegisterOnShutdown(o.intake.Stop)
	go func() { taken <- serveHTTP(taking, server, l, intakeGrace) }()

	var err error
	select {
	case err = <-taken:
		stop()
		err = errors.Join(err, <-sent)
	case err = <-sent: // only a store that failed for good ends it before it is told
		leave()
		err = errors.Join(err, <-taken)
	}
	_ = o.sender.Close() // it closes what is idle
	return err
}

// problems adds to p what a person should look at.
func (o *outbound) problems(p map[string]string, volume config.Volume) {
	list := func(code, text string, endpoints []string) {
		if len(endpoints) > 0 {
			p[code] = text + ": " + some(endpoints)
		}
	}
	if volume == config.VolumeEphemeral {
		p["volume_ephemeral"] = "accepted events die with the pod"
	}
	if o.dispatcher.Paused() {
		p["egress_paused"] = "nothing is sent: a person paused it"
	}
	var disabled []string
	for _, e := range o.registry.Endpoints().All() {
		if h, _ := o.dispatcher.HealthOf(e.ID); h.Disabled != egress.NotDisabled {
			disabled = append(disabled, e.ID)
		}
	}
	list("endpoint_disabled", "nothing is sent to", disabled)
	list("endpoint_full", "at limits.endpoint_deliveries or a quarter of the store, nothing more is taken for", o.outbox.FullEndpoints())
	list("endpoint_unusable", "their secrets cannot be opened, or their URL is not allowed any more", o.registry.Unusable())
	list("endpoint_shadowed", "the configuration has others of the same id", o.registry.Shadowed())
	if at := o.unheard.Load(); at != 0 && time.Since(time.Unix(0, at)) < noticeTrouble {
		p["notice_unheard"] = "a notice reached nobody in the last hour: see the log"
	}
	if why := o.purger.StandsStill(); why != "" {
		p["purge_stands_still"] = why
	}
}

// some lists a few of ids, which may be thousands.
func some(ids []string) string {
	const most = 10
	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(ids[:most], ", "), len(ids)-most)
}
