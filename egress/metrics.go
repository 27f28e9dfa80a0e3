package egress

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sidehook/sidehook/egress/netguard"
)

// Values of the label endpoint that are no endpoint's id: an id has no underscore.
const (
	// apiEndpoints stands for all endpoints that the API added: their ids come from outside, and there are thousands.
	apiEndpoints = "_api"
	// removedEndpoints stands for those that are not there any more.
	removedEndpoints = "_removed"
)

// Metrics are the metrics of the outbound half, but for those that are read at each scrape (see QueueMetrics). Handles of an
// endpoint are resolved when a set of endpoints is taken into use, so that an attempt looks no label up. All methods are
// safe for concurrent use.
type Metrics struct {
	events      *prometheus.CounterVec   // result
	full        *prometheus.CounterVec   // endpoint
	attempts    *prometheus.CounterVec   // endpoint, outcome
	duration    *prometheus.HistogramVec // endpoint
	connections *prometheus.CounterVec   // reused
	denied      *prometheus.CounterVec   // verdict
	reported    *prometheus.CounterVec   // verdict
	notices     *prometheus.CounterVec   // channel, result
	purged      *prometheus.CounterVec   // what

	eventBy     map[string]prometheus.Counter
	deniedBy    map[netguard.Verdict]prometheus.Counter
	reportedBy  map[netguard.Verdict]prometheus.Counter
	reusedConn  prometheus.Counter
	newConn     prometheus.Counter
	noticesBy   map[[2]string]prometheus.Counter // channel, result
	purgedEvent prometheus.Counter
	purgedTry   prometheus.Counter
	mu          sync.Mutex // covers changes of byEndpoint
	byEndpoint  atomic.Pointer[map[string]*endpointMetrics]
	apiEndpoint *endpointMetrics
}

// endpointMetrics are the handles of one endpoint, or of all that the API added.
type endpointMetrics struct {
	attempts [outcomes]prometheus.Counter
	duration prometheus.Observer
	full     prometheus.Counter
}

// NewMetrics makes the metrics. Every value of every label is there from the start, but for endpoints: see SetEndpoints.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		events: counter("sidehook_egress_events_total",
			"Posted events, by what the app was answered; no_endpoint: taken, and no endpoint gets it.", "result"),
		full: counter("sidehook_egress_endpoint_full_total",
			"Deliveries that were not made because their endpoint has as many waiting as it may have.", "endpoint"),
		attempts: counter("sidehook_egress_attempts_total",
			"Attempts to deliver, by endpoint (_api: those that the API added) and by how they ended.", "endpoint", "outcome"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sidehook_egress_attempt_duration_seconds",
			Help:    "Time of an attempt, from resolving the name to the end of the answer.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60},
		}, []string{"endpoint"}),
		connections: counter("sidehook_egress_connections_total",
			"Attempts that reached a connection, by whether it was a kept one.", "reused"),
		denied: counter("sidehook_egress_dial_denied_total",
			"Attempts that the address filter refused, by why.", "verdict"),
		reported: counter("sidehook_egress_dial_reports_total",
			"Attempts that an address filter with enforce: REPORT let pass, by why it would have refused them.", "verdict"),
		notices: counter("sidehook_egress_notices_total",
			"Notices to the owners of endpoints and to the operator, by channel and by what became of them.", "channel", "result"),
		purged: counter("sidehook_egress_purged_total",
			"Events and attempts deleted because they were kept long enough, or because the store needed the room.", "what"),
	}
	m.eventBy = make(map[string]prometheus.Counter)
	for _, code := range IntakeCodes() {
		m.eventBy[code] = m.events.WithLabelValues(code)
	}
	m.deniedBy, m.reportedBy = make(map[netguard.Verdict]prometheus.Counter), make(map[netguard.Verdict]prometheus.Counter)
	for _, v := range netguard.Refusals() {
		m.deniedBy[v] = m.denied.WithLabelValues(v.String())
		m.reportedBy[v] = m.reported.WithLabelValues(v.String())
	}
	m.reusedConn, m.newConn = m.connections.WithLabelValues("true"), m.connections.WithLabelValues("false")
	m.apiEndpoint = m.resolve(apiEndpoints)
	m.noticesBy = make(map[[2]string]prometheus.Counter)
	for _, channel := range NoticeChannels() {
		for _, result := range NoticeResults() {
			m.noticesBy[[2]string{channel, result}] = m.notices.WithLabelValues(channel, result)
		}
	}
	m.purgedEvent, m.purgedTry = m.purged.WithLabelValues("events"), m.purged.WithLabelValues("attempts")
	m.byEndpoint.Store(&map[string]*endpointMetrics{})
	return m
}

// Register hands the metrics to r.
func (m *Metrics) Register(r prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{
		m.events, m.full, m.attempts, m.duration, m.connections, m.denied, m.reported, m.notices, m.purged,
	} {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register egress metrics: %w", err)
	}
	return nil
}

// resolve makes the handles of an endpoint.
func (m *Metrics) resolve(endpoint string) *endpointMetrics {
	e := &endpointMetrics{duration: m.duration.WithLabelValues(endpoint), full: m.full.WithLabelValues(endpoint)}
	for o := Outcome(1); o < outcomes; o++ {
		e.attempts[o] = m.attempts.WithLabelValues(endpoint, o.String())
	}
	return e
}

// SetEndpoints makes the series of the configuration's endpoints and drops those of endpoints that are not among list any
// more. Every other endpoint is counted as one of the API's.
func (m *Metrics) SetEndpoints(list []*Endpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := *m.byEndpoint.Load()
	after := make(map[string]*endpointMetrics, len(list))
	for _, e := range list {
		handles, ok := before[e.ID]
		if !ok {
			handles = m.resolve(e.ID)
		}
		after[e.ID] = handles
	}
	m.byEndpoint.Store(&after)
	for id := range maps.Keys(before) {
		if _, stays := after[id]; stays {
			continue
		}
		labels := prometheus.Labels{"endpoint": id}
		m.attempts.DeletePartialMatch(labels)
		m.duration.DeletePartialMatch(labels)
		m.full.DeletePartialMatch(labels)
	}
}

func (m *Metrics) endpoint(id string) *endpointMetrics {
	if e, ok := (*m.byEndpoint.Load())[id]; ok {
		return e
	}
	return m.apiEndpoint
}

// Event counts a posted event or a refused post by its code, which is one of IntakeCodes (see IntakeConfig.Count).
func (m *Metrics) Event(code string) {
	if c, ok := m.eventBy[code]; ok {
		c.Inc()
	}
}

// EndpointFull counts a delivery that was not made (see IntakeConfig.EndpointFull).
func (m *Metrics) EndpointFull(endpoint string) { m.endpoint(endpoint).full.Inc() }

// Attempt counts an attempt that has ended (see DispatcherConfig.Observe).
func (m *Metrics) Attempt(e *Endpoint, s *Settlement) {
	handles := m.endpoint(e.ID)
	o := s.Attempt.Outcome
	if o == 0 || o >= outcomes {
		o = OutcomeInternal
	}
	handles.attempts[o].Inc()
	handles.duration.Observe(s.Attempt.Took.Seconds())
}

// Sender returns s with its connections counted.
func (m *Metrics) Sender(s Sender) Sender { return countingSender{s, m} }

type countingSender struct {
	Sender
	metrics *Metrics
}

// Send implements Sender.
func (s countingSender) Send(ctx context.Context, e *Endpoint, ev *Event, attempt int) Result {
	r := s.Sender.Send(ctx, e, ev, attempt)
	switch {
	case r.Reused:
		s.metrics.reusedConn.Inc()
	case r.Wrote:
		s.metrics.newConn.Inc()
	}
	return r
}

// Notice counts what became of a notice (see NotifierConfig.Count).
func (m *Metrics) Notice(channel, result string) {
	if c, ok := m.noticesBy[[2]string{channel, result}]; ok {
		c.Inc()
	}
}

// Purged counts what a step of the purge deleted (see PurgerConfig.OnPurge).
func (m *Metrics) Purged(events, attempts int) {
	m.purgedEvent.Add(float64(events))
	m.purgedTry.Add(float64(attempts))
}

// Denied counts what an address filter refused or, not enforced, would have refused (see netguard.Config.OnDenied).
func (m *Metrics) Denied(v netguard.Verdict, enforced bool) {
	by := m.deniedBy
	if !enforced {
		by = m.reportedBy
	}
	if c, ok := by[v]; ok {
		c.Inc()
	}
}
