package extauthz

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sidehook/sidehook/internal/loglimit"
)

// unconfigured is the source label of what no configured source takes: open routes, unmatched requests.
const unconfigured = "unknown"

// secretSlots is how many secrets of a source have counters of their own; a scheme tries eight at most.
const secretSlots = 8

// maxLogLines is how many lines at info and above one source writes in a second.
const maxLogLines = 100

// setting names the setting of the mesh that lost a body. The zero value means none.
type setting uint8

const (
	settingNone setting = iota
	settingWithRequestBody
	settingPackAsBytes
	settingPartial
	settingFilterOrder
	settingCount
)

// settings says for each setting its metric label and what to change.
var settings = [settingCount]struct{ label, advice string }{
	settingNone: {"none", ""},
	settingWithRequestBody: {"with_request_body", "ext_authz does not forward the body: set with_request_body on the filter, " +
		"and neither disable_request_body_buffering nor disabled for the source's routes; per-route settings are keyed by the filter's own name"},
	settingPackAsBytes: {"pack_as_bytes", "ext_authz forwards the body as text, in which bytes are replaced: set with_request_body.pack_as_bytes: true"},
	settingPartial: {"allow_partial_message", "ext_authz forwards a part of the body: set with_request_body.allow_partial_message: false " +
		"and max_request_bytes to max_body of the source"},
	settingFilterOrder: {"filter_order", "the body is not as long as the sender said: a filter before ext_authz changes it " +
		"(decompressor, transcoder, lua, wasm); move it behind ext_authz"},
}

// String is the metric label and log value.
func (s setting) String() string {
	if s >= settingCount {
		return "invalid"
	}
	return settings[s].label
}

// gateMetrics are the metrics of the gate. Handles of a source are resolved when a table of sources is swapped in,
// so that a Check looks no label up.
type gateMetrics struct {
	checks        *prometheus.CounterVec   // source, reason
	duration      *prometheus.HistogramVec // source
	reports       *prometheus.CounterVec   // source, reason
	secretUses    *prometheus.CounterVec   // source, secret
	secretLastUse *prometheus.GaugeVec     // source, secret
	lostBodies    *prometheus.CounterVec   // source, setting
	tenantFaults  *prometheus.CounterVec   // source
	verifyNone    prometheus.Gauge
	reportOnly    prometheus.Gauge
	paused        prometheus.Gauge
	bodies        prometheus.GaugeFunc

	mu      sync.Mutex // covers sources; taken at swaps only
	sources map[string]*sourceState
	none    *sourceState
}

// sourceState is what the gate keeps of one source, by its name, across reloads.
type sourceState struct {
	checks   [reasonCount]prometheus.Counter
	reports  [reasonCount]prometheus.Counter
	duration prometheus.Observer
	lost     [settingCount]prometheus.Counter
	// tenantFaults counts what was found wrong with tenants' secrets.
	tenantFaults prometheus.Counter
	tenantLog    sometimes
	tenants      *tenantKeys // of the last Swap, which alone uses it; nil: none

	lines      loglimit.Limiter // of the log
	lostLog    [settingCount]sometimes
	handshakes pace // of unsigned ones
	// buffered: Envoy has marked a body of this source as buffered, which proves with_request_body.
	buffered atomic.Bool
}

// register makes the metrics and hands them to r, if there is one. inFlight reads the bytes of bodies in flight.
func (m *gateMetrics) register(r prometheus.Registerer, inFlight func() float64) error {
	m.checks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidehook_extauthz_checks_total",
		Help: "Requests that Envoy asked about, by source (unknown: none) and by how they were answered.",
	}, []string{"source", "reason"})
	m.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sidehook_extauthz_check_duration_seconds",
		Help:    "Time from a Check's arrival to its answer, the durable claim included.",
		Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
	}, []string{"source"})
	m.reports = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidehook_extauthz_reports_total",
		Help: "Requests that a source with enforce: REPORT let pass, by what they would have been.",
	}, []string{"source", "reason"})
	m.secretUses = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidehook_extauthz_secret_uses_total",
		Help: "Requests verified, by the index of the secret that matched.",
	}, []string{"source", "secret"})
	m.secretLastUse = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sidehook_extauthz_secret_last_use_timestamp_seconds",
		Help: "When the secret of that index last matched; 0: not since the start.",
	}, []string{"source", "secret"})
	m.lostBodies = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidehook_extauthz_body_not_forwarded_total",
		Help: "Requests whose body the mesh lost or changed, by the setting to mend.",
	}, []string{"source", "setting"})
	m.tenantFaults = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidehook_extauthz_tenant_secret_faults_total",
		Help: "Times that a tenant's secret, or the folder of them, was found unfit; the log names the tenant.",
	}, []string{"source"})
	m.verifyNone = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sidehook_extauthz_unverified_sources",
		Help: "Sources with verify: none. Anybody can send to them.",
	})
	m.reportOnly = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sidehook_extauthz_report_only_sources",
		Help: "Sources with enforce: REPORT. Nothing is refused there.",
	})
	m.paused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sidehook_extauthz_paused_sources",
		Help: "Sources that a person paused.",
	})
	m.bodies = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sidehook_extauthz_bodies_in_flight_bytes",
		Help: "Bytes of the bodies of the Checks under way.",
	}, inFlight)

	m.sources = make(map[string]*sourceState)
	m.none = m.resolve(unconfigured)
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.checks, m.duration, m.reports, m.secretUses, m.secretLastUse, m.lostBodies, m.tenantFaults, m.verifyNone, m.reportOnly, m.paused, m.bodies,
	} {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register gate metrics: %w", err)
	}
	return nil
}

// resolve makes the handles of a source. Every label value is there from the start.
func (m *gateMetrics) resolve(source string) *sourceState {
	s := &sourceState{duration: m.duration.WithLabelValues(source)}
	for r := Reason(1); r < reasonCount; r++ {
		s.checks[r] = m.checks.WithLabelValues(source, r.String())
	}
	for set := settingNone + 1; set < settingCount; set++ {
		s.lost[set] = m.lostBodies.WithLabelValues(source, set.String())
	}
	if source == unconfigured {
		return s
	}
	s.tenantFaults = m.tenantFaults.WithLabelValues(source)
	for r := Reason(1); r < reasonCount; r++ {
		s.reports[r] = m.reports.WithLabelValues(source, r.String())
	}
	return s
}

// secretHandles are the handles of one source's secrets, by index.
type secretHandles struct {
	uses    []prometheus.Counter
	lastUse []prometheus.Gauge
}

// used counts a use of the secret of that index.
func (h *secretHandles) used(index int, now time.Time) {
	if index < 0 || index >= len(h.uses) {
		return
	}
	h.uses[index].Inc()
	h.lastUse[index].Set(float64(now.Unix()))
}

// secrets makes the handles of a source's n secrets and drops those of secrets that it had.
func (m *gateMetrics) secrets(source string, n int) (h secretHandles) {
	for i := range secretSlots {
		label := strconv.Itoa(i)
		if i >= n {
			m.secretUses.DeleteLabelValues(source, label)
			m.secretLastUse.DeleteLabelValues(source, label)
			continue
		}
		h.uses = append(h.uses, m.secretUses.WithLabelValues(source, label))
		h.lastUse = append(h.lastUse, m.secretLastUse.WithLabelValues(source, label))
	}
	return h
}

// swap binds the sources, in their order, to what is kept of them, and drops the series of those that are gone.
func (m *gateMetrics) swap(sources []*Source) []bound {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]bound, 0, len(sources))
	stay := make(map[string]bool, len(sources))
	var unverified, reporting float64
	for _, src := range sources {
		s, ok := m.sources[src.Name]
		if !ok {
			s = m.resolve(src.Name)
			m.sources[src.Name] = s
		}
		stay[src.Name] = true
		if src.Verifier == nil {
			unverified++
		}
		if src.Enforce == EnforceReport {
			reporting++
		}
		all = append(all, bind(src, s, m.secrets(src.Name, src.secretCount())))
	}
	for name := range m.sources {
		if !stay[name] {
			m.drop(name)
		}
	}
	m.verifyNone.Set(unverified)
	m.reportOnly.Set(reporting)
	return all
}

// drop removes every series of a source.
func (m *gateMetrics) drop(source string) {
	delete(m.sources, source)
	labels := prometheus.Labels{"source": source}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.checks, m.duration, m.reports, m.secretUses, m.secretLastUse, m.lostBodies, m.tenantFaults} {
		v.DeletePartialMatch(labels)
	}
}
