package sidecar

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/sidecar/config"
)

// apply puts cfg in force: the gate sees the whole of it or, until then, the whole of the one before. What is read at
// start only (store, listeners, limits) stays as it is; the log says which of it differs.
func (s *Sidecar) apply(cfg *config.Config, changes []config.Change) {
	s.current.Store(&loaded{cfg, time.Now()})
	if s.gate != nil && cfg.Gate != nil {
		s.gate.stored.announce(cfg)
		s.gate.server.Swap(cfg.Gate.Table)
		s.gate.confirm.SetSources(names(cfg))
		s.gate.stored.apply(cfg)
	}
	s.outbound.apply(cfg.Egress)
	if s.level != nil {
		s.level.Set(cfg.Log.Level)
	}
	s.refused.Store(nil)
	s.metrics.reloaded(true)
	s.note(cfg, changes)
	debug.FreeOSMemory() // reading a configuration takes many times what it leaves
}

// refuse keeps the configuration in force and says why.
func (s *Sidecar) refuse(err error) {
	text := err.Error()
	s.refused.Store(&text)
	s.metrics.reloaded(false)
	s.log.LogAttrs(context.Background(), slog.LevelError, "reload refused, the configuration before it stays in force", slog.Any("err", err))
}

// note writes what a person must be able to find later to the log: warnings, changes, and every weakening.
func (s *Sidecar) note(cfg *config.Config, changes []config.Change) {
	ctx := context.Background()
	for _, f := range cfg.Warnings {
		s.log.LogAttrs(ctx, slog.LevelWarn, "configuration", slog.String("finding", f.String()))
	}
	if cfg.Gate != nil && cfg.Gate.MaxBodyBytes > s.maxBody {
		s.log.LogAttrs(ctx, slog.LevelError, "max_body is beyond what the listener was started for: restart",
			slog.Int64("max_body", cfg.Gate.MaxBodyBytes), slog.Int64("started_for", s.maxBody))
	}
	for _, c := range changes {
		before, after := c.Before, c.After
		if c.IsURL() {
			before, after = egress.LoggedURL(before), egress.LoggedURL(after)
		}
		s.audit(ctx, "reload", c.Path, before, after, slog.Bool("needs_restart", c.NeedsRestart))
	}
	for _, w := range config.Weakenings(cfg) {
		s.audit(ctx, "config", "weakening", "", w.What, slog.String("field", w.Path),
			slog.String("source", w.Source), slog.String("endpoint", w.Endpoint))
	}
}

// audit writes a line of the audit log, in the form of the admin API's.
func (s *Sidecar) audit(ctx context.Context, who, what, before, after string, more ...slog.Attr) {
	attrs := append([]slog.Attr{slog.String("who", who), slog.String("what", what),
		slog.String("before", before), slog.String("after", after)}, more...)
	s.log.LogAttrs(ctx, slog.LevelInfo, "audit", slog.GroupAttrs("audit", attrs...))
}

// problems are the details of /readyz and of status: what a person should look at and what makes nobody unready.
func (s *Sidecar) problems() map[string]string {
	p := map[string]string{}
	if text := s.refused.Load(); text != nil {
		p["reload_refused"] = *text
	}
	if s.store == nil {
		return p
	}
	if s.store.Full() {
		p["store_full"] = "the store is at its limit: new claims and events get 503"
	}
	if err := s.metrics.lastCommit(); err != nil {
		p["store_write"] = err.Error()
	}
	if s.gate != nil {
		s.gateProblems(p)
	}
	if s.outbound != nil {
		s.outbound.problems(p, s.current.Load().Store.Volume)
	}
	return p
}

// gateProblems adds those of the inbound half.
func (s *Sidecar) gateProblems(p map[string]string) {
	if sources := s.gate.confirm.Unconfirmed(); len(sources) > 0 {
		p["unconfirmed"] = "no confirm arrives for: " + strings.Join(sources, ", ")
	}
	var paused []string
	for _, source := range s.gate.server.Configured() {
		if s.gate.server.Paused(source.Name) {
			paused = append(paused, source.Name)
		}
	}
	if len(paused) > 0 {
		p["source_paused"] = "a person paused, and senders get 503 from: " + some(paused)
	}
	s.gate.stored.problems(p)
	if s.current.Load().Store.Volume == config.VolumeEphemeral && len(s.gate.stored.inForce.Load().sources) > 0 {
		p["volume_ephemeral"] = "accepted events die with the pod"
	}
	if s.store.Full() {
		return
	}
	if sources, err := s.gate.inbox.FullSources(); err == nil && len(sources) > 0 {
		p["source_full"] = "at limits.source_percent of the store, new claims get 503: " + strings.Join(sources, ", ")
	}
}
