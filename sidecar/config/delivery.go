package config

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sidehook/sidehook/egress"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// Defaults of Exponential, whose message names them too.
const (
	defaultBase     = 5 * time.Second
	defaultFactor   = 2
	defaultCap      = 24 * time.Hour
	defaultAttempts = 16
)

var onGones = map[configv1.OnGone]egress.OnGone{
	configv1.OnGone_ON_GONE_DISABLE: egress.GoneDisables,
	configv1.OnGone_ON_GONE_RETRY:   egress.GoneRetries,
}

// rateUnits are the units of Delivery.rate, in seconds.
var rateUnits = map[string]float64{"s": 1, "m": 60, "h": 3600}

// defaultDelivery is egress.delivery where nobody wrote anything.
func defaultDelivery() *configv1.Delivery {
	d := &configv1.Delivery{
		Timeout:           durationpb.New(DefaultDeliveryTimeout),
		JitterPercent:     proto.Int32(egress.DefaultJitterPercent),
		RespectRetryAfter: new(true),
		OnGone:            configv1.OnGone_ON_GONE_DISABLE,
		MaxInFlight:       DefaultEndpointInFlight,
		DisableAfter:      durationpb.New(DefaultDisableAfter),
	}
	for _, w := range egress.DefaultWaits() {
		d.Waits = append(d.Waits, durationpb.New(w))
	}
	return d
}

// delivery checks what is written at path, fills the rest from otherwise into m, and compiles it. m is not nil.
func (l *loader) delivery(path string, m, otherwise *configv1.Delivery) egress.Policy {
	if len(m.GetWaits()) > 0 && m.GetExponential() != nil {
		l.errorf(path+".exponential", "waits and exponential exclude each other; remove one")
	}
	if len(m.GetWaits()) == 0 && m.GetExponential() == nil {
		m.Waits, m.Exponential = otherwise.GetWaits(), otherwise.GetExponential()
	}
	if e := m.GetExponential(); e != nil {
		if m.JitterPercent != nil {
			l.errorf(path+".jitter_percent", "exponential has full jitter of its own; remove one of them")
		}
		e.Base = cmp.Or(e.GetBase(), durationpb.New(defaultBase))
		e.Cap = cmp.Or(e.GetCap(), durationpb.New(defaultCap))
		e.Factor = cmp.Or(e.GetFactor(), defaultFactor)
		e.Attempts = cmp.Or(e.GetAttempts(), defaultAttempts)
		if e.GetCap().AsDuration() < e.GetBase().AsDuration() {
			l.errorf(path+".exponential.cap", "%s is below base, %s; write at least that",
				formatDuration(e.GetCap().AsDuration()), formatDuration(e.GetBase().AsDuration()))
		}
	}
	fillDelivery(m, otherwise)
	p := egress.Policy{
		Timeout:           m.GetTimeout().AsDuration(),
		Schedule:          schedule(m),
		RespectRetryAfter: m.GetRespectRetryAfter(),
		OnGone:            onGones[m.GetOnGone()],
		MaxInFlight:       int(m.GetMaxInFlight()),
		Rate:              rate(m.GetRate()),
		DisableAfter:      m.GetDisableAfter().AsDuration(),
	}
	for _, code := range m.GetStopOn() {
		p.StopOn = append(p.StopOn, int(code))
	}
	return p
}

// fillDelivery writes into m, which has its waits, what it has not from d.
func fillDelivery(m, d *configv1.Delivery) {
	if m.JitterPercent == nil && m.GetExponential() == nil {
		m.JitterPercent = cmp.Or(d.JitterPercent, proto.Int32(egress.DefaultJitterPercent))
	}
	if len(m.GetStopOn()) == 0 {
		m.StopOn = d.GetStopOn()
	}
	m.Timeout = cmp.Or(m.GetTimeout(), d.GetTimeout())
	m.RespectRetryAfter = cmp.Or(m.RespectRetryAfter, d.RespectRetryAfter)
	m.OnGone = cmp.Or(m.GetOnGone(), d.GetOnGone())
	m.MaxInFlight = cmp.Or(m.GetMaxInFlight(), d.GetMaxInFlight())
	m.Rate = cmp.Or(m.GetRate(), d.GetRate())
	m.DisableAfter = cmp.Or(m.GetDisableAfter(), d.GetDisableAfter())
}

// schedule compiles the waits of m, which is filled.
func schedule(m *configv1.Delivery) egress.Schedule {
	if e := m.GetExponential(); e != nil {
		return egress.Schedule{Exponential: &egress.Exponential{
			Base: e.GetBase().AsDuration(), Cap: e.GetCap().AsDuration(),
			Factor: e.GetFactor(), Attempts: int(e.GetAttempts()),
		}}
	}
	s := egress.Schedule{JitterPercent: int(m.GetJitterPercent())}
	for _, w := range m.GetWaits() {
		s.Waits = append(s.Waits, w.AsDuration())
	}
	return s
}

// rate reads "50/s", which the schema has checked, as a number in a second; 0 for none.
func rate(s string) float64 {
	number, unit, _ := strings.Cut(s, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	return float64(n) / rateUnits[unit]
}
