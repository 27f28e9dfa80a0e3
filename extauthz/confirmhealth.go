package extauthz

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// String is the metric label and log value of an End.
func (e End) String() string {
	switch e {
	case EndDone:
		return "done"
	case EndReleased:
		return "released"
	case EndUnknown:
		return "unknown"
	default:
		return "invalid"
	}
}

// confirmMetrics are the metrics of Confirm.
type confirmMetrics struct {
	confirms    *prometheus.CounterVec // source, channel, end
	errors      *prometheus.CounterVec // channel, reason
	unconfirmed *prometheus.GaugeVec   // source
}

// register makes the metrics and hands them to r, if there is one.
func (m *confirmMetrics) register(r prometheus.Registerer) error {
	m.confirms = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidehook_extauthz_confirms_total",
		Help: "Ends of requests that Envoy reported, by how the claim was settled.",
	}, []string{"source", "channel", "end"})
	m.errors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidehook_extauthz_confirm_errors_total",
		Help: "Reports of Envoy that settled nothing: unreadable, with a foreign reference, or refused by the store.",
	}, []string{"channel", "reason"})
	m.unconfirmed = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sidehook_extauthz_unconfirmed_passes",
		Help: "Requests let through since the last confirm; growing without end means that confirms do not arrive.",
	}, []string{"source"})
	for _, ch := range []channel{channelAccessLog, channelExtProc} {
		for _, reason := range []string{"bad_reference", "malformed", "store"} {
			m.errors.WithLabelValues(ch.String(), reason)
		}
	}
	if r == nil {
		return nil
	}
	if err := errors.Join(r.Register(m.confirms), r.Register(m.errors), r.Register(m.unconfirmed)); err != nil {
		return fmt.Errorf("register confirm metrics: %w", err)
	}
	return nil
}

// drop removes every series of a source.
func (m *confirmMetrics) drop(source string) {
	labels := prometheus.Labels{"source": source}
	m.confirms.DeletePartialMatch(labels)
	m.unconfirmed.DeletePartialMatch(labels)
}

// sourceConfirms is what we know of one source's confirms.
type sourceConfirms struct {
	name   string
	counts [channelCount][EndUnknown + 1]prometheus.Counter
	gauge  prometheus.Gauge

	mu     sync.Mutex // covers what follows
	passes int        // since the last confirm
	first  time.Time  // of the first of them
	silent bool       // the alarm was raised and not taken back
}

func newSourceConfirms(name string, m *confirmMetrics) *sourceConfirms {
	s := &sourceConfirms{name: name}
	for _, ch := range []channel{channelAccessLog, channelExtProc} {
		for _, end := range []End{EndDone, EndReleased, EndUnknown} {
			s.counts[ch][end] = m.confirms.WithLabelValues(name, ch.String(), end.String())
		}
	}
	if name == unconfigured {
		s.gauge = prometheus.NewGauge(prometheus.GaugeOpts{}) // nobody waits for confirms of sources that are gone
		return s
	}
	s.gauge = m.unconfirmed.WithLabelValues(name)
	return s
}

// passed counts a pass. It tells how many there are and whether this one raises the alarm.
func (s *sourceConfirms) passed(now time.Time) (passes int, raised bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.passes == 0 {
		s.first = now
	}
	s.passes++
	s.gauge.Set(float64(s.passes))
	return s.passes, s.raise(now)
}

// check tells whether the source is without confirms, and whether that was found just now.
func (s *sourceConfirms) check(now time.Time) (passes int, unconfirmed, raised bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	raised = s.raise(now)
	return s.passes, s.silent, raised
}

// raise sets silent if it is due, and reports whether it was not before. Needs mu.
func (s *sourceConfirms) raise(now time.Time) bool {
	if s.silent || s.passes < alarmPasses || now.Sub(s.first) < alarmAfter {
		return false
	}
	s.silent = true
	return true
}

// confirmed takes the alarm back and reports whether there was one.
func (s *sourceConfirms) confirmed() (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.silent
	s.passes, s.silent = 0, false
	s.gauge.Set(0)
	return was
}
