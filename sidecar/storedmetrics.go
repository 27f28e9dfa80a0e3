package sidecar

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sidehook/sidehook/egress"
)

// orphanedSources stands for sources that are not in STORE any more, and still have events.
const orphanedSources = "_orphaned"

// storedMetrics are the metrics of how stored events come to the app.
type storedMetrics struct {
	attempts *prometheus.CounterVec   // source, outcome
	duration *prometheus.HistogramVec // source
	removed  *prometheus.CounterVec   // what

	bySource atomic.Pointer[map[string]*sourceMetrics] // replaced whole
	purges   [2]prometheus.Counter                     // events, attempts
}

// sourceMetrics are the handles of one source.
type sourceMetrics struct {
	attempts map[egress.Outcome]prometheus.Counter
	duration prometheus.Observer
}

func newStoredMetrics() *storedMetrics {
	m := &storedMetrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sidehook_inbox_attempts_total",
			Help: "Attempts to deliver stored events to the app, by source and by how they ended.",
		}, []string{"source", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sidehook_inbox_attempt_duration_seconds",
			Help:    "Time of an attempt to deliver a stored event to the app.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"source"}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sidehook_inbox_stored_purged_total",
			Help: "Stored events and their attempts deleted because they were kept long enough, or because the store needed the room.",
		}, []string{"what"}),
	}
	m.purges = [2]prometheus.Counter{m.removed.WithLabelValues("events"), m.removed.WithLabelValues("attempts")}
	m.bySource.Store(&map[string]*sourceMetrics{})
	return m
}

func (m *storedMetrics) register(r prometheus.Registerer, k *stored) {
	r.MustRegister(m.attempts, m.duration, m.removed, storedCollector{k})
}

// setSources resolves the handles of the sources in force; those of others are forgotten.
func (m *storedMetrics) setSources(names []string) {
	next := make(map[string]*sourceMetrics, len(names))
	for _, name := range names {
		s := &sourceMetrics{attempts: make(map[egress.Outcome]prometheus.Counter), duration: m.duration.WithLabelValues(name)}
		for _, o := range egress.Outcomes() {
			s.attempts[o] = m.attempts.WithLabelValues(name, o.String())
		}
		next[name] = s
	}
	for name := range *m.bySource.Swap(&next) {
		if next[name] == nil {
			m.attempts.DeletePartialMatch(prometheus.Labels{"source": name})
			m.duration.DeleteLabelValues(name)
		}
	}
}

// attempt is told of each attempt that has ended.
func (m *storedMetrics) attempt(e *egress.Endpoint, s *egress.Settlement) {
	if of := (*m.bySource.Load())[e.ID]; of != nil {
		of.attempts[s.Attempt.Outcome].Inc()
		of.duration.Observe(s.Attempt.Took.Seconds())
	}
}

// purged is told of each step of the purge.
func (m *storedMetrics) purged(events, attempts int) {
	m.purges[0].Add(float64(events))
	m.purges[1].Add(float64(attempts))
}

// storedCollector reads how things stand from counters at each scrape; no event is read.
type storedCollector struct{ k *stored }

var (
	storedDeliveries = prometheus.NewDesc("sidehook_inbox_deliveries",
		"Stored events, by source (_orphaned: sources that are not in STORE any more) and by what has become of them.", []string{"source", "state"}, nil)
	storedOldest = prometheus.NewDesc("sidehook_inbox_oldest_stored_age_seconds",
		"Age of the oldest stored event that the app has not taken, to the hour; 0 without one.", nil, nil)
	storedInFlight = prometheus.NewDesc("sidehook_inbox_in_flight", "Stored events that are with the app.", nil, nil)
	storedHeld     = prometheus.NewDesc("sidehook_inbox_held_sources", "Sources in STORE whose app cannot be reached: it is probed.", nil, nil)
)

// collectedStates are the states on disk of a delivery; storedStates says how they are shown.
var collectedStates = []egress.State{egress.StateWaiting, egress.StateDelivered, egress.StateDead, egress.StateDiscarded}

// Describe implements prometheus.Collector.
func (c storedCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storedDeliveries, storedOldest, storedInFlight, storedHeld} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c storedCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	sums := map[string]map[egress.State]int64{orphanedSources: {}}
	held := 0.0
	set := c.k.inForce.Load().endpoints
	for _, e := range set.All() {
		sums[e.ID] = map[egress.State]int64{}
		if h, _ := c.k.dispatcher.HealthOf(e.ID); h.Held() {
			held++
		}
	}
	c.k.outbox.Totals(func(source string, s egress.State, n egress.Count) {
		if set.ByID(source) == nil {
			source = orphanedSources
		}
		sums[source][s] += n.Rows
	})
	for source, of := range sums {
		for _, state := range collectedStates {
			gauge(storedDeliveries, float64(of[state]), source, storedStates[state].String())
		}
	}
	switch oldest, err := c.k.outbox.OldestWaiting(); {
	case err != nil:
		ch <- prometheus.NewInvalidMetric(storedOldest, err)
	case oldest.IsZero():
		gauge(storedOldest, 0)
	default:
		gauge(storedOldest, max(0, time.Since(oldest).Seconds()))
	}
	gauge(storedInFlight, float64(c.k.dispatcher.InFlightTotal()))
	gauge(storedHeld, held)
}
