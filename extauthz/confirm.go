package extauthz

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metadataNamespace is the dynamic metadata namespace of ext_authz. Envoy writes it whatever the filter is named.
const metadataNamespace = "envoy.filters.http.ext_authz"

// metadataKey is our one key in metadataNamespace; its value is a string, made by encodeRef.
const metadataKey = "sidehook"

const (
	// alarmPasses is how many passes may go by without one confirm.
	alarmPasses = 20
	// alarmAfter is how old the first of them must be: a burst at start is not silence. Envoy flushes its access log
	// every second, and few apps need longer than this for a webhook.
	alarmAfter = 3 * time.Second
	// settleTimeout bounds handing the ends of one access log message to the inbox.
	settleTimeout = 5 * time.Second
	// confirmLogEvery spaces the error lines of one kind; the metrics count every case.
	confirmLogEvery = time.Minute
)

// settler is what confirms need of an Inbox.
type settler interface {
	Settle(ctx context.Context, key Key, token Token, end End, wait bool) error
}

// ConfirmConfig is what NewConfirm needs.
type ConfirmConfig struct {
	// Inbox is where the claims are. Required.
	Inbox settler
	// SettleTimeout bounds how long an ext_proc answer waits for the disk; zero: DefaultSettleTimeout. It must be
	// shorter than the filter's message_timeout, else Envoy has gone on before we answer.
	SettleTimeout time.Duration
	// Logger; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil: they are kept, but not exported.
	Registerer prometheus.Registerer
}

// Confirm learns from Envoy what the app answered and ends the claims: it serves the access log and ext_proc streams.
// It is safe for concurrent use.
type Confirm struct {
	inbox         settler
	settleTimeout time.Duration
	log           *slog.Logger
	metrics       confirmMetrics
	sources       atomic.Pointer[map[string]*sourceConfirms] // swapped whole by SetSources
	gone          *sourceConfirms                            // of claims whose source is gone

	storeLog, refLog, wireLog sometimes

	passes  atomic.Int64 // since the start
	reports atomic.Int64 // that settled a claim, since the start
	open    atomic.Int64 // passes not yet reported; never below zero
}

// NewConfirm makes a Confirm that knows no source yet: see SetSources.
func NewConfirm(cfg ConfirmConfig) (*Confirm, error) {
	if cfg.Inbox == nil {
		return nil, errors.New("confirm: inbox is missing")
	}
	c := &Confirm{
		inbox:         cfg.Inbox,
		settleTimeout: cfg.SettleTimeout,
		log:           cfg.Logger,
	}
	if c.settleTimeout <= 0 {
		c.settleTimeout = DefaultSettleTimeout
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if err := c.metrics.register(cfg.Registerer); err != nil {
		return nil, err
	}
	c.gone = newSourceConfirms(unconfigured, &c.metrics)
	c.sources.Store(&map[string]*sourceConfirms{})
	return c, nil
}

// SetSources names the configured sources: at start and after each reload. What is known of a source that stays is
// kept. Calls must not overlap.
func (c *Confirm) SetSources(names []string) {
	old := *c.sources.Load()
	next := make(map[string]*sourceConfirms, len(names))
	for _, name := range names {
		if s, ok := old[name]; ok {
			next[name] = s
			continue
		}
		next[name] = newSourceConfirms(name, &c.metrics)
	}
	c.sources.Store(&next)
	for name := range old {
		if _, ok := next[name]; !ok {
			c.metrics.drop(name)
		}
	}
}

// Passed counts a request of source that went to the app under a claim; the gate calls it for each.
func (c *Confirm) Passed(source string) {
	c.passes.Add(1)
	c.open.Add(1)
	s := c.source(source)
	if s == c.gone {
		return
	}
	if passes, silent := s.passed(time.Now()); silent {
		c.logSilent(s.name, passes)
	}
}

// Unconfirmed names, sorted, the sources that let through twenty requests or more without one confirm: the mesh does
// not send us its access log, or not our metadata in it.
func (c *Confirm) Unconfirmed() []string {
	var names []string
	for _, s := range *c.sources.Load() {
		passes, unconfirmed, silent := s.check(time.Now())
		if silent {
			c.logSilent(s.name, passes)
		}
		if unconfirmed {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *Confirm) logSilent(source string, passes int) {
	c.log.LogAttrs(context.Background(), slog.LevelError,
		"no confirm arrives: Envoy's access log (or ext_proc filter) must point at the gate's listener, unsampled, and ext_authz must keep enable_dynamic_metadata_ingestion",
		slog.String("source", source), slog.Int("passes", passes))
}

// source is never nil.
func (c *Confirm) source(name string) *sourceConfirms {
	if s, ok := (*c.sources.Load())[name]; ok {
		return s
	}
	return c.gone
}

// settle ends the claim that ref names as r says, and reports whether that went well; nothing to do is well.
// A ref that does not parse, was forged, is late or comes twice changes nothing: the inbox compares the token.
func (c *Confirm) settle(ctx context.Context, ch channel, ref string, r report, wait bool) error {
	end, ok := r.end()
	if !ok || ref == "" {
		return nil
	}
	key, token, ok := parseRef(ref)
	if !ok {
		c.metrics.errors.WithLabelValues(ch.String(), "bad_reference").Inc()
		c.refLog.do(func(left int64) {
			c.log.LogAttrs(ctx, slog.LevelWarn, "confirm with a reference that is not ours: does a second ext_authz filter write the key "+metadataKey+"?",
				slog.String("channel", ch.String()), slog.Int64("suppressed", left))
		})
		return nil
	}
	if err := c.inbox.Settle(ctx, key, token, end, wait); err != nil {
		c.metrics.errors.WithLabelValues(ch.String(), "store").Inc()
		c.storeLog.do(func(left int64) {
			c.log.LogAttrs(ctx, slog.LevelError, "settle claim",
				slog.String("source", key.Source), slog.String("event_id", bounded(key.ID)), slog.String("channel", ch.String()),
				slog.Any("err", err), slog.Int64("suppressed", left))
		})
		return err
	}
	c.heard()
	s := c.source(key.Source)
	s.counts[ch][end].Inc()
	if s.confirmed() {
		c.log.LogAttrs(ctx, slog.LevelInfo, "confirms arrive again", slog.String("source", s.name))
	}
	return nil
}

// malformed counts n entries or messages of ch that could not be read.
func (c *Confirm) malformed(ctx context.Context, ch channel, n int) {
	if n == 0 {
		return
	}
	c.metrics.errors.WithLabelValues(ch.String(), "malformed").Add(float64(n))
	c.wireLog.do(func(left int64) {
		c.log.LogAttrs(ctx, slog.LevelWarn, "confirm message cannot be read",
			slog.String("channel", ch.String()), slog.Int("entries", n), slog.Int64("suppressed", left))
	})
}

// activity grows with every pass and every report that settles a claim.
func (c *Confirm) activity() int64 { return c.passes.Load() + c.reports.Load() }

// heard counts a report that settled a claim. Two channels may both report one pass.
func (c *Confirm) heard() {
	c.reports.Add(1)
	for {
		n := c.open.Load()
		if n <= 0 || c.open.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// sometimes runs a function at most once in confirmLogEvery and tells it how many were left out since.
type sometimes struct {
	mu   sync.Mutex // covers both below
	next time.Time
	left int64
}

func (s *sometimes) do(f func(left int64)) {
	now := time.Now()
	s.mu.Lock()
	if now.Before(s.next) {
		s.left++
		s.mu.Unlock()
		return
	}
	left := s.left
	s.left, s.next = 0, now.Add(confirmLogEvery)
	s.mu.Unlock()
	f(left)
}

// bounded cuts s to what a log line may carry of an untrusted string.
func bounded(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
