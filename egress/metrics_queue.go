package egress

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sidehook/sidehook/internal/store"
)

// QueueMetrics are the metrics that tell how things stand: they are read at each scrape, from counters, and no delivery is
// read for them. All fields are required.
type QueueMetrics struct {
	Outbox     *BoltOutbox
	Endpoints  func() *Endpoints
	Dispatcher *Dispatcher
}

var _ prometheus.Collector = (*QueueMetrics)(nil)

var (
	queueDeliveries = prometheus.NewDesc("sidehook_egress_deliveries",
		"Deliveries that are kept, by endpoint (_api: those that the API added, _removed: those that are gone) and state.",
		[]string{"endpoint", "state"}, nil)
	queueOldest = prometheus.NewDesc("sidehook_egress_oldest_waiting_age_seconds",
		"Age of the oldest delivery that waits, to the hour; 0 without one.", nil, nil)
	queueInFlight = prometheus.NewDesc("sidehook_egress_in_flight",
		"Attempts under way.", nil, nil)
	queueHeld = prometheus.NewDesc("sidehook_egress_held_endpoints",
		"Endpoints that are held: only probes are sent until one succeeds.", nil, nil)
	queueDisabled = prometheus.NewDesc("sidehook_egress_disabled_endpoints",
		"Endpoints that are disabled: what goes there waits for a person.", nil, nil)
	queueUnusable = prometheus.NewDesc("sidehook_egress_unusable_endpoints",
		"Endpoints that the API added and that cannot be used: their secrets cannot be opened, or their URL is not allowed any more.", nil, nil)
	queuePaused = prometheus.NewDesc("sidehook_egress_paused",
		"1 while all sending is paused by a person.", nil, nil)
)

// queueStates are the states that are shown: SENDING is sidehook_egress_in_flight.
var queueStates = []State{StateWaiting, StateParked, StateDelivered, StateDead, StateCancelled, StateDiscarded}

// Describe implements prometheus.Collector.
func (m *QueueMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		queueDeliveries, queueOldest, queueInFlight, queueHeld, queueDisabled, queueUnusable, queuePaused,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *QueueMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	set := m.Endpoints()
	sums := map[string]*[states]int64{apiEndpoints: {}, removedEndpoints: {}}
	var held, disabled, unusable float64
	for _, e := range set.All() {
		if e.Origin != OriginAPI {
			sums[e.ID] = &[states]int64{}
		}
		if e.Unusable != "" {
			unusable++
		}
		switch h, _ := m.Dispatcher.HealthOf(e.ID); {
		case h.Disabled != NotDisabled:
			disabled++
		case h.Held():
			held++
		}
	}
	m.Outbox.Totals(func(endpoint string, s State, n Count) {
		label := removedEndpoints
		if e := set.ByID(endpoint); e != nil {
			label = endpoint
			if e.Origin == OriginAPI {
				label = apiEndpoints
			}
			if s == StateWaiting && m.Dispatcher.Parked(endpoint) {
				s = StateParked
			}
		}
		sums[label][s] += n.Rows
	})
	for label, of := range sums {
		for _, s := range queueStates {
			gauge(queueDeliveries, float64(of[s]), label, s.String())
		}
	}
	var age float64
	switch oldest, err := m.Outbox.OldestWaiting(); {
	case err != nil:
		ch <- prometheus.NewInvalidMetric(queueOldest, err)
	default:
		if !oldest.IsZero() {
			age = max(0, time.Since(oldest).Seconds())
		}
		gauge(queueOldest, age)
	}
	paused := 0.0
	if m.Dispatcher.Paused() {
		paused = 1
	}
	gauge(queueInFlight, float64(m.Dispatcher.InFlightTotal()))
	gauge(queueHeld, held)
	gauge(queueDisabled, disabled)
	gauge(queueUnusable, unusable)
	gauge(queuePaused, paused)
}

// OldestWaiting returns when the delivery was made, or last redelivered, that waits longest, to the hour before; zero
// where nothing waits. It reads one counter of each endpoint at which something waits.
func (b *BoltOutbox) OldestWaiting() (oldest time.Time, err error) {
	var numbers []uint32
	b.totals.each(func(number uint32, s State, n Count) {
		if s == StateWaiting && n.Rows > 0 {
			numbers = append(numbers, number)
		}
	})
	if len(numbers) == 0 {
		return time.Time{}, nil
	}
	slices.Sort(numbers)
	err = b.store.View(func(tx *store.Tx) error {
		c := tx.Cursor(countBucket)
		for _, number := range numbers {
			key, _ := c.Seek(countKey{number, StateWaiting, 0}.appendTo(nil))
			if key == nil {
				continue
			}
			k, err := parseCountKey(key)
			if err != nil {
				return corruptRow(err)
			}
			if k.endpoint != number || k.state != StateWaiting {
				continue // it has been delivered since
			}
			if t := fromMillis(int64(k.hour) * hourMillis); oldest.IsZero() || t.Before(oldest) {
				oldest = t
			}
		}
		return nil
	})
	return oldest, err
}

// FullEndpoints returns the endpoints that have as much as they may have: they get nothing more.
func (b *BoltOutbox) FullEndpoints() []string {
	waiting, dead := make(map[string]Count), make(map[string]Count)
	b.Totals(func(endpoint string, s State, n Count) {
		switch {
		case endpoint == "":
		case s == StateWaiting:
			waiting[endpoint] = n
		case s == StateDead:
			dead[endpoint] = n
		}
	})
	ids := make(map[string]bool)
	for _, counts := range []map[string]Count{waiting, dead} {
		for id := range counts {
			if b.full(waiting[id], dead[id]) {
				ids[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
