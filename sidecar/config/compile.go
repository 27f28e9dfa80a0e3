package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/sidehook/sidehook/egress"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// Defaults of the fields that are not a source's, but for those that package egress has itself.
const (
	DefaultStoreLimit       = 8 << 30 // bytes
	DefaultGateListen       = "127.0.0.1:9191"
	DefaultEgressListen     = "127.0.0.1:9292"
	DefaultAdminListen      = "127.0.0.1:9393"
	DefaultHealthListen     = ":9394"
	DefaultInFlight         = 128 << 20 // bytes of bodies
	DefaultSourcePercent    = 50
	DefaultEndpointInFlight = 8 // attempts
	DefaultDeliveryTimeout  = 15 * time.Second
	DefaultDisableAfter     = 5 * 24 * time.Hour
)

var volumes = map[configv1.Volume]Volume{
	configv1.Volume_VOLUME_UNSPECIFIED: VolumeUnsaid,
	configv1.Volume_VOLUME_DURABLE:     VolumeDurable,
	configv1.Volume_VOLUME_EPHEMERAL:   VolumeEphemeral,
}

// logLevels are the levels of log/slog by their names in the schema.
var logLevels = map[configv1.LogLevel]slog.Level{
	configv1.LogLevel_LOG_LEVEL_DEBUG: slog.LevelDebug,
	configv1.LogLevel_LOG_LEVEL_INFO:  slog.LevelInfo,
	configv1.LogLevel_LOG_LEVEL_WARN:  slog.LevelWarn,
	configv1.LogLevel_LOG_LEVEL_ERROR: slog.LevelError,
}

// compile fills the defaults into m, checks what the schema cannot say, and builds the snapshot. What is wrong is noted
// in l; the result is then not to be used.
func (l *loader) compile(m *configv1.Config) *Config {
	fillDefaults(m)
	c := &Config{
		Log: Log{
			Level: logLevels[m.GetLog().GetLevel()],
			Text:  m.GetLog().GetFormat() == configv1.LogFormat_LOG_FORMAT_TEXT,
		},
		Limits: Limits{
			BodiesInFlightBytes: m.GetLimits().GetBodiesInFlight(),
			SourcePercent:       int(m.GetLimits().GetSourcePercent()),
			EgressInFlight:      int(m.GetLimits().GetEgressInFlight()),
			EgressBodiesBytes:   m.GetLimits().GetEgressBodies(),
			EndpointDeliveries:  int(m.GetLimits().GetEndpointDeliveries()),
		},
	}
	c.Admin.Listen = l.listen("admin.listen", &m.Admin.Listen, reachPod)
	c.Health.Listen = l.listen("health.listen", &m.Health.Listen, reachAny)
	if m.GetAdmin().GetToken() != nil {
		c.Admin.Token = l.token("admin.token", "admin", m.GetAdmin().GetToken())
	}
	if m.GetStore() != nil {
		c.Store = l.store(m.GetStore())
	}
	if m.GetExtauthz() != nil {
		if c.Store == nil {
			l.errorf("store", "is required with extauthz: claims are kept there; write store: {bolt: {path: /var/lib/sidehook}}")
		}
		c.Gate = l.gate(m.GetExtauthz())
		if largest := c.Gate.MaxBodyBytes; largest > c.Limits.BodiesInFlightBytes {
			l.errorf("limits.bodies_in_flight", "%s is below the largest max_body, %s, which could then never pass",
				formatSize(c.Limits.BodiesInFlightBytes), formatSize(largest))
		}
	}
	if m.GetEgress() != nil {
		l.outbound(m, c)
	}
	l.volume(m, c)
	c.Keep = egress.Keep{
		Delivered: m.GetKeep().GetDelivered().AsDuration(),
		Dead:      m.GetKeep().GetDead().AsDuration(),
		Log:       m.GetKeep().GetLog().AsDuration(),
	}
	if m.GetNotify() != nil {
		c.Notify = l.notify(m.GetNotify(), c.Egress)
	}
	for _, unused := range []struct {
		path string
		set  bool
	}{{"keep", m.GetKeep() != nil && !stores(m)}, {"notify", m.GetNotify() != nil}, {"store.seal_key", len(m.GetStore().GetSealKey()) > 0}} {
		if unused.set && m.GetEgress() == nil {
			l.warnf(unused.path, "has no effect without egress")
		}
	}
	l.listenersApart(c)
	return c
}

// store checks and compiles where everything is kept.
func (l *loader) store(m *configv1.Store) *Store {
	if p := m.GetBolt().GetPath(); filepath.Clean(p) == "/" {
		l.errorf("store.bolt.path", "is the root of the file system; write a folder of its own, such as /var/lib/sidehook")
	}
	s := &Store{Path: filepath.Clean(m.GetBolt().GetPath()), LimitBytes: m.GetLimit(), Volume: volumes[m.GetBolt().GetVolume()]}
	for i, k := range m.GetSealKey() {
		path := fmt.Sprintf("store.seal_key[%d]", i)
		if k.GetUntil() != nil {
			l.errorf(path+".until", "is for the secrets that sign; remove it")
		}
		key, ok := l.secret(path, "the store", k)
		if ok && len(key.Bytes()) < egress.MinSealKeyBytes {
			l.errorf(path, "the store: a seal key has at least %d characters (`sidehook secret new` prints one that will do)", egress.MinSealKeyBytes)
		}
		if ok {
			s.SealKeys = append(s.SealKeys, key)
		}
	}
	return s
}

// outbound checks and compiles the outbound half into c, and what it wants of the rest.
func (l *loader) outbound(m *configv1.Config, c *Config) {
	if c.Store == nil {
		l.errorf("store", "is required with egress: events are kept there; write store: {bolt: {path: /var/lib/sidehook, volume: DURABLE}}")
	}
	c.Egress = l.egress(m.GetEgress())
	if c.Egress.MaxEventBytes > c.Limits.EgressBodiesBytes {
		l.errorf("limits.egress_bodies", "%s is below egress.max_event, %s, which could then never be taken",
			formatSize(c.Limits.EgressBodiesBytes), formatSize(c.Egress.MaxEventBytes))
	}
	l.ownersReached(m)
}

// volume holds a configuration that keeps events to saying how long its folder lives.
func (l *loader) volume(m *configv1.Config, c *Config) {
	var who, answer string
	switch {
	case m.GetEgress() != nil:
		who, answer = "egress", "202"
	case stores(m):
		who, answer = "mode: STORE", "200"
	}
	switch {
	case who == "" || c.Store == nil:
	case c.Store.Volume == VolumeUnsaid:
		l.errorf("store.bolt.volume", "is required with %s: write DURABLE if the folder outlives the pod (a persistent volume), or "+
			"EPHEMERAL if events that were accepted may die with it", who)
	case c.Store.Volume == VolumeEphemeral:
		l.warnf("store.bolt.volume", "events that were answered %s die with the pod; a persistent volume and DURABLE keep them", answer)
	}
}

// stores reports whether some source is in STORE.
func stores(m *configv1.Config) bool {
	return slices.ContainsFunc(m.GetExtauthz().GetSources(), func(s *configv1.Source) bool { return s.GetMode() == configv1.Mode_MODE_STORE })
}

// ownersReached notes owners whom no mail can reach.
func (l *loader) ownersReached(m *configv1.Config) {
	if m.GetNotify().GetSmtp() != nil {
		return
	}
	for i, e := range m.GetEgress().GetEndpoints() {
		if e.GetOwner() != "" {
			l.warnf(fmt.Sprintf("egress.endpoints[%d].owner", i), "is told nothing: mails need notify.smtp")
		}
	}
}

// fillDefaults writes the defaults of all but the sources and endpoints into m.
func fillDefaults(m *configv1.Config) {
	if s := m.GetStore(); s != nil {
		s.Limit = cmp.Or(s.GetLimit(), DefaultStoreLimit)
	}
	if e := m.GetExtauthz(); e != nil {
		e.Listen = cmp.Or(e.GetListen(), DefaultGateListen)
	}
	m.Admin = cmp.Or(m.GetAdmin(), &configv1.Admin{})
	m.Admin.Listen = cmp.Or(m.Admin.GetListen(), DefaultAdminListen)
	m.Health = cmp.Or(m.GetHealth(), &configv1.Health{})
	m.Health.Listen = cmp.Or(m.Health.GetListen(), DefaultHealthListen)
	m.Limits = cmp.Or(m.GetLimits(), &configv1.Limits{})
	m.Limits.BodiesInFlight = cmp.Or(m.Limits.GetBodiesInFlight(), DefaultInFlight)
	m.Limits.SourcePercent = cmp.Or(m.Limits.GetSourcePercent(), DefaultSourcePercent)
	if m.GetEgress() != nil {
		m.Limits.EgressInFlight = cmp.Or(m.Limits.GetEgressInFlight(), egress.DefaultMaxInFlight)
		m.Limits.EgressBodies = cmp.Or(m.Limits.GetEgressBodies(), egress.DefaultIntakeBytes)
		m.Limits.EndpointDeliveries = cmp.Or(m.Limits.GetEndpointDeliveries(), egress.DefaultEndpointDeliveries)
	}
	fillEgress(m)
	m.Log = cmp.Or(m.GetLog(), &configv1.Log{})
	m.Log.Level = cmp.Or(m.Log.GetLevel(), configv1.LogLevel_LOG_LEVEL_INFO)
	m.Log.Format = cmp.Or(m.Log.GetFormat(), configv1.LogFormat_LOG_FORMAT_JSON)
}

// listen checks the address at path, and writes it back in its canonical form.
func (l *loader) listen(path string, address *string, r reach) string {
	canonical, err := parseListen(*address, r)
	if err != nil {
		l.errorf(path, "%v", err)
		return ""
	}
	*address = canonical
	return canonical
}

// listenersApart notes listeners that would fight for one address.
func (l *loader) listenersApart(c *Config) {
	type listener struct{ path, address string }
	all := []listener{{"admin.listen", c.Admin.Listen}, {"health.listen", c.Health.Listen}}
	if c.Gate != nil {
		all = append(all, listener{"extauthz.listen", c.Gate.Listen})
	}
	if c.Egress != nil {
		all = append(all, listener{"egress.listen", c.Egress.Listen})
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if a.address != "" && b.address != "" && sameListen(a.address, b.address) {
				l.errorf(a.path, "%s collides with %s, %s; give one of them another port", a.address, b.path, b.address)
			}
		}
	}
}
