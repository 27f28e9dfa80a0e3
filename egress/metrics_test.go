package egress

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sidehook/sidehook/egress/netguard"
)

// metricSeries returns the series of a metric: its label values in the order of their names, and its value (of a
// histogram the number of observations).
func metricSeries(t *testing.T, r prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels strings.Builder
			for _, l := range m.GetLabel() {
				labels.WriteString(l.GetValue() + " ")
			}
			switch {
			case m.Counter != nil:
				series[labels.String()] = m.GetCounter().GetValue()
			case m.Gauge != nil:
				series[labels.String()] = m.GetGauge().GetValue()
			default:
				series[labels.String()] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return series
}

// Every series is there before anything happened, so that an alarm on a rate sees the first one.
func TestMetricsFromTheStart(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := NewMetrics()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	m.SetEndpoints([]*Endpoint{{ID: "a"}, {ID: "b"}})
	for name, want := range map[string]int{
		"sidehook_egress_events_total":             len(IntakeCodes()),
		"sidehook_egress_attempts_total":           3 * len(Outcomes()),
		"sidehook_egress_attempt_duration_seconds": 3,
		"sidehook_egress_endpoint_full_total":      3,
		"sidehook_egress_dial_denied_total":        len(netguard.Refusals()),
		"sidehook_egress_dial_reports_total":       len(netguard.Refusals()),
		"sidehook_egress_connections_total":        2,
		"sidehook_egress_notices_total":            len(NoticeChannels()) * len(NoticeResults()),
		"sidehook_egress_purged_total":             2,
	} {
		series := metricSeries(t, r, name)
		if len(series) != want {
			t.Errorf("%s has %d series, want %d", name, len(series), want)
		}
		for labels, value := range series {
			if value != 0 {
				t.Errorf("%s of %s = %v before anything happened", name, labels, value)
			}
		}
	}
	if err := NewMetrics().Register(r); err == nil {
		t.Error("the metrics are registered twice")
	}
}

// An endpoint of the API has no label of its own: its id came from outside. A removed one leaves no series behind, and
// one that comes back begins at 0.
func TestMetricsEndpoints(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := NewMetrics()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	m.SetEndpoints([]*Endpoint{{ID: "a"}, {ID: "b"}})
	attempt := func(endpoint string, o Outcome) {
		m.Attempt(&Endpoint{ID: endpoint}, &Settlement{Attempt: Attempt{Outcome: o, Took: 20 * time.Millisecond}})
	}
	attempt("a", OutcomeDelivered)
	attempt("a", OutcomeDelivered)
	attempt("b", OutcomeThrottled)
	attempt("made-by-the-api", OutcomeDelivered)
	attempt("another", OutcomeNoSuchHost)
	attempt("a", 0) // an outcome that is none is a fault of ours
	m.EndpointFull("b")
	m.EndpointFull("another")
	want := map[string]float64{"a delivered ": 2, "a internal ": 1, "b throttled ": 1, "_api delivered ": 1, "_api no_such_host ": 1}
	for labels, value := range metricSeries(t, r, "sidehook_egress_attempts_total") {
		if value != want[labels] {
			t.Errorf("attempts of %s = %v, want %v", labels, value, want[labels])
		}
		delete(want, labels)
	}
	if len(want) > 0 {
		t.Errorf("no series of %v", want)
	}
	for labels, want := range map[string]float64{"a ": 0, "b ": 1, "_api ": 1} {
		if got := metricSeries(t, r, "sidehook_egress_endpoint_full_total")[labels]; got != want {
			t.Errorf("full of %s = %v, want %v", labels, got, want)
		}
	}

	m.SetEndpoints([]*Endpoint{{ID: "b"}})
	for _, name := range []string{"sidehook_egress_attempts_total", "sidehook_egress_attempt_duration_seconds", "sidehook_egress_endpoint_full_total"} {
		var labels []string
		for l := range metricSeries(t, r, name) {
			labels = append(labels, l[:1])
		}
		if slices.Contains(labels, "a") || !slices.Contains(labels, "b") {
			t.Errorf("%s has series of %q after a was removed", name, labels)
		}
	}
	m.SetEndpoints([]*Endpoint{{ID: "a"}, {ID: "b"}})
	series := metricSeries(t, r, "sidehook_egress_attempts_total")
	if series["a delivered "] != 0 || series["b throttled "] != 1 {
		t.Errorf("after a came back: a %v, b %v", series["a delivered "], series["b throttled "])
	}
}

// fixedSender ends every attempt in the same way.
type fixedSender struct{ r Result }

func (s fixedSender) Send(context.Context, *Endpoint, *Event, int) Result { return s.r }

func TestMetricsConnections(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := NewMetrics()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	for _, result := range []Result{
		{Outcome: OutcomeDelivered, Reused: true, Wrote: true},
		{Outcome: OutcomeStaleConnection, Reused: true},
		{Outcome: OutcomeDelivered, Wrote: true},
		{Outcome: OutcomeNoSuchHost}, // no connection came about
	} {
		if got := m.Sender(fixedSender{result}).Send(t.Context(), nil, nil, 1); !reflect.DeepEqual(got, result) {
			t.Errorf("Send = %+v, want %+v as it came", got, result)
		}
	}
	want := map[string]float64{"true ": 2, "false ": 1}
	if got := metricSeries(t, r, "sidehook_egress_connections_total"); !maps.Equal(got, want) {
		t.Errorf("connections = %v, want %v", got, want)
	}
}

func TestMetricsEvents(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := NewMetrics()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	m.Event(IntakeAccepted)
	m.Event("a code that is none")
	m.Denied(netguard.VerdictLoopback, true)
	m.Denied(netguard.VerdictPrivate, false)
	m.Denied(0, true)
	m.Purged(2, 3)
	m.Notice(NoticeByMail, NoticeSent)
	m.Notice("smoke", NoticeSent)
	for name, want := range map[string]map[string]float64{
		"sidehook_egress_events_total":       {"accepted ": 1},
		"sidehook_egress_dial_denied_total":  {"loopback ": 1},
		"sidehook_egress_dial_reports_total": {"private ": 1},
		"sidehook_egress_purged_total":       {"events ": 2, "attempts ": 3},
		"sidehook_egress_notices_total":      {"mail sent ": 1},
	} {
		for labels, value := range metricSeries(t, r, name) {
			if value != want[labels] {
				t.Errorf("%s of %s = %v, want %v", name, labels, value, want[labels])
			}
		}
	}
}
