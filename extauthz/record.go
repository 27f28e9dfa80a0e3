package extauthz

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"
)

// Keys of the gate's log lines.
const (
	keySource     = "source"
	keyReason     = "reason"
	keyWould      = "would"
	keyStatus     = "status"
	keyTenant     = "tenant"
	keyEventID    = "event_id"
	keyEventType  = "event_type"
	keyMethod     = "method"
	keyURL        = "url"
	keyRequestID  = "request_id"
	keyDuration   = "duration_ms"
	keySetting    = "setting"
	keyNamed      = "named"
	keyErr        = "err"
	keySuppressed = "suppressed"
)

// keyUnversioned is true for an event that passed because no version could be read in it.
const keyUnversioned = "unversioned"

// record counts a Check and writes its one line.
func (s *Server) record(ctx context.Context, req *request, d *decision, start time.Time) {
	state, source := s.metrics.none, unconfigured
	if d.in != nil {
		state, source = d.in.state, d.in.source.Name
	}
	elapsed := time.Since(start)
	state.checks[d.reason].Inc()
	state.duration.Observe(elapsed.Seconds())
	level := outcomes[d.reason].level
	if d.would != 0 {
		state.reports[d.would].Inc()
		if outcomes[d.would].pass {
			level = outcomes[d.would].level
		}
	}
	if d.setting != settingNone {
		state.lost[d.setting].Inc()
		state.lostLog[d.setting].do(func(left int64) {
			s.log.LogAttrs(ctx, slog.LevelError, "body not forwarded: "+settings[d.setting].advice,
				slog.String(keySource, source), slog.String(keySetting, d.setting.String()), slog.Int64(keySuppressed, left))
		})
	}
	if !s.log.Enabled(ctx, level) {
		return
	}
	var left int64
	if level > slog.LevelDebug {
		var ok bool
		if ok, left = state.lines.Take(start, maxLogLines); !ok {
			return
		}
	}
	var space [15]slog.Attr
	attrs := append(space[:0],
		slog.String(keySource, source),
		slog.String(keyReason, d.reason.String()),
		slog.Int(keyStatus, d.status),
		slog.String(keyEventID, d.event),
		slog.String(keyEventType, d.eventType),
		slog.String(keyMethod, bounded(req.method)),
		slog.String(keyURL, logURL(req)),
		slog.String(keyRequestID, bounded(req.id)),
		slog.Float64(keyDuration, float64(elapsed.Microseconds())/1000),
	)
	if d.tenant != "" {
		attrs = append(attrs, slog.String(keyTenant, d.tenant))
	}
	if d.would != 0 {
		attrs = append(attrs, slog.String(keyWould, d.would.String()))
	}
	if d.setting != settingNone {
		attrs = append(attrs, slog.String(keySetting, d.setting.String()))
	}
	if d.reason == ReasonUnknownSource {
		attrs = append(attrs, slog.String(keyNamed, bounded(req.source())))
	}
	if d.unversioned {
		attrs = append(attrs, slog.Bool(keyUnversioned, true))
	}
	if d.err != nil {
		attrs = append(attrs, slog.Any(keyErr, d.err))
	}
	if left > 0 {
		attrs = append(attrs, slog.Int64(keySuppressed, left))
	}
	s.log.LogAttrs(ctx, level, "check", attrs...)
}

// logURL is a request's URL as logs hold it: scheme, host and a hash of the target, which may bear secrets. It is empty
// for a request that was refused before it was received.
func logURL(req *request) string {
	if req.target == "" && req.host == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(req.target))
	return req.scheme + "://" + bounded(req.host) + "#" + hex.EncodeToString(sum[:8])
}
