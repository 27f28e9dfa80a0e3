package sidecar

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/store"
)

// processMetrics are the metrics of the process and its store; the halves have their own.
type processMetrics struct {
	reloads    *prometheus.CounterVec // result
	commits    prometheus.Histogram
	operations prometheus.Counter
	failures   prometheus.Counter
	purged     prometheus.Counter
	failed     atomic.Pointer[error] // of the last commit; nil: it went well
}

// register makes the metrics that every process has.
func (m *processMetrics) register(r prometheus.Registerer, version string) {
	m.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidehook_config_reload_total",
		Help: "Reloads of the configuration, by result; a refused one leaves the configuration before it in force.",
	}, []string{"result"})
	m.commits = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sidehook_store_commit_duration_seconds",
		Help:    "Time of one commit to the store, its sync included.",
		Buckets: prometheus.ExponentialBuckets(0.00025, 2, 15),
	})
	m.operations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sidehook_store_operations_total",
		Help: "Operations committed to the store; divided by commits: how many share one.",
	})
	m.failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sidehook_store_commit_failures_total",
		Help: "Commits that could not be written, as on a full disk.",
	})
	m.purged = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sidehook_inbox_purged_total",
		Help: "Event ids deleted because their retention had passed.",
	})
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "sidehook_build_info",
		Help:        "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	for _, result := range []string{"applied", "refused"} {
		m.reloads.WithLabelValues(result)
	}
	r.MustRegister(m.reloads, m.commits, m.operations, m.failures, m.purged, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// observe adds what is read from the store at each scrape. ephemeral: its folder ends with the pod.
func (m *processMetrics) observe(r prometheus.Registerer, s *store.Store, ephemeral bool) {
	gauge := func(name, help string, read func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	gauge("sidehook_store_used_bytes", "Bytes of the store's file that are in use.", func() float64 {
		used, _ := s.Usage()
		return float64(used)
	})
	gauge("sidehook_store_limit_bytes", "The store's limit; at 95% of it new claims and events get 503.", func() float64 {
		_, limit := s.Usage()
		return float64(limit)
	})
	gauge("sidehook_store_ephemeral", "1 if the store's folder ends with the pod, and what was accepted with it (volume: EPHEMERAL).", func() float64 {
		if ephemeral {
			return 1
		}
		return 0
	})
}

// reloaded counts a reload.
func (m *processMetrics) reloaded(applied bool) {
	result := "applied"
	if !applied {
		result = "refused"
	}
	m.reloads.WithLabelValues(result).Inc()
}

// committed is told of each commit by the store.
func (m *processMetrics) committed(took time.Duration, operations int, err error) {
	if err != nil {
		m.failures.Inc()
		m.failed.Store(&err)
		return
	}
	m.commits.Observe(took.Seconds())
	m.operations.Add(float64(operations))
	if m.failed.Load() != nil {
		m.failed.Store(nil)
	}
}

// purgedRows is told of each step of the purge.
func (m *processMetrics) purgedRows(rows int) { m.purged.Add(float64(rows)) }

// lastCommit returns why the last commit failed, nil where it did not.
func (m *processMetrics) lastCommit() error {
	if err := m.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// inboxCollector reads the inbox's counters at each scrape; no row is read.
type inboxCollector struct{ inbox *extauthz.BoltInbox }

var (
	inboxEvents = prometheus.NewDesc("sidehook_inbox_events",
		"Event ids in the inbox.", []string{"source", "state"}, nil)
	inboxOldest = prometheus.NewDesc("sidehook_inbox_oldest_pending_age_seconds",
		"Age of the oldest claim that is neither done nor released, to the hour; 0 without one.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c inboxCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- inboxEvents
	ch <- inboxOldest
}

// Collect implements prometheus.Collector.
func (c inboxCollector) Collect(ch chan<- prometheus.Metric) {
	sums, err := c.inbox.Summary()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(inboxEvents, err)
		return
	}
	var oldest float64
	for _, s := range sums {
		ch <- prometheus.MustNewConstMetric(inboxEvents, prometheus.GaugeValue, float64(s.Count), s.Source, s.State.String())
		if s.Count > 0 && (s.State == extauthz.StatePending || s.State == extauthz.StateUnknown) {
			oldest = max(oldest, time.Since(s.Oldest).Seconds())
		}
	}
	ch <- prometheus.MustNewConstMetric(inboxOldest, prometheus.GaugeValue, oldest)
}
