package egress

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// policyOf is a policy with two fields set.
func policyOf(set map[string]any) *egressv1.DeliveryPolicy {
	p := &egressv1.DeliveryPolicy{}
	if d, ok := set["timeout"]; ok {
		p.Timeout = durationpb.New(d.(time.Duration))
	}
	if n, ok := set["max"]; ok {
		p.MaxInFlight = int32(n.(int))
	}
	return p
}

func TestPolicyFrom(t *testing.T) {
	t.Parallel()
	base := Policy{
		Timeout: 15 * time.Second, Schedule: Schedule{Waits: []time.Duration{time.Second}, JitterPercent: 20}, RespectRetryAfter: true,
		OnGone: GoneDisables, StopOn: []int{400}, MaxInFlight: 8, Rate: 5, DisableAfter: 120 * time.Hour,
	}
	growing := base
	growing.Schedule = Schedule{Exponential: &Exponential{Base: time.Minute, Cap: time.Hour, Factor: 3, Attempts: 5}}
	with := func(p Policy, change func(*Policy)) Policy {
		change(&p)
		return p
	}
	for _, tc := range []struct {
		name string
		p    *egressv1.DeliveryPolicy
		from Policy
		want Policy
	}{
		{"nothing", nil, base, base},
		{"empty", &egressv1.DeliveryPolicy{}, base, base},
		{"timeout", &egressv1.DeliveryPolicy{Timeout: durationpb.New(time.Minute)}, base, with(base, func(p *Policy) { p.Timeout = time.Minute })},
		{"waits", &egressv1.DeliveryPolicy{Waits: []*durationpb.Duration{durationpb.New(time.Hour)}}, base,
			with(base, func(p *Policy) { p.Schedule.Waits = []time.Duration{time.Hour} })},
		{"waits instead of exponential", &egressv1.DeliveryPolicy{Waits: []*durationpb.Duration{durationpb.New(time.Hour)}}, growing,
			with(base, func(p *Policy) { p.Schedule.Waits = []time.Duration{time.Hour} })},
		{"exponential of defaults", &egressv1.DeliveryPolicy{Exponential: &egressv1.Exponential{}}, base,
			with(base, func(p *Policy) {
				p.Schedule = Schedule{Exponential: &Exponential{Base: 5 * time.Second, Cap: 24 * time.Hour, Factor: 2, Attempts: 16}}
			})},
		{"no jitter", &egressv1.DeliveryPolicy{JitterPercent: proto.Int32(0)}, base, with(base, func(p *Policy) { p.Schedule.JitterPercent = 0 })},
		{"no Retry-After", &egressv1.DeliveryPolicy{RespectRetryAfter: new(false)}, base, with(base, func(p *Policy) { p.RespectRetryAfter = false })},
		{"410 as the others", &egressv1.DeliveryPolicy{OnGone: egressv1.OnGone_ON_GONE_RETRY}, base, with(base, func(p *Policy) { p.OnGone = GoneRetries })},
		{"stop on", &egressv1.DeliveryPolicy{StopOn: []int32{422, 404}}, base, with(base, func(p *Policy) { p.StopOn = []int{422, 404} })},
		{"no rate", &egressv1.DeliveryPolicy{Rate: proto.Float64(0)}, base, with(base, func(p *Policy) { p.Rate = 0 })},
		{"never disabled", &egressv1.DeliveryPolicy{DisableAfter: durationpb.New(0)}, base, with(base, func(p *Policy) { p.DisableAfter = 0 })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := policyFrom(tc.p, tc.from)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if base.StopOn[0] != 400 {
		t.Error("the default was changed in place")
	}
}

func TestPolicyFromRefuses(t *testing.T) {
	t.Parallel()
	wait := durationpb.New(time.Second)
	for _, tc := range []struct {
		field string // that the error names
		p     *egressv1.DeliveryPolicy
	}{
		{"policy.timeout:", &egressv1.DeliveryPolicy{Timeout: durationpb.New(0)}},
		{"policy.timeout:", &egressv1.DeliveryPolicy{Timeout: durationpb.New(6 * time.Minute)}},
		// Beyond what a duration can be: as a number it would wrap around.
		{"policy.timeout:", &egressv1.DeliveryPolicy{Timeout: &durationpb.Duration{Seconds: math.MaxInt64}}},
		{"policy.waits[1]:", &egressv1.DeliveryPolicy{Waits: []*durationpb.Duration{wait, durationpb.New(-time.Second)}}},
		{"policy.waits:", &egressv1.DeliveryPolicy{Waits: make([]*durationpb.Duration, 101)}},
		{"policy.exponential:", &egressv1.DeliveryPolicy{Waits: []*durationpb.Duration{wait}, Exponential: &egressv1.Exponential{}}},
		{"policy.exponential:", &egressv1.DeliveryPolicy{JitterPercent: proto.Int32(3), Exponential: &egressv1.Exponential{}}},
		{"policy.exponential.base:", &egressv1.DeliveryPolicy{Exponential: &egressv1.Exponential{Base: durationpb.New(2 * time.Hour)}}},
		{"policy.exponential.cap:", &egressv1.DeliveryPolicy{Exponential: &egressv1.Exponential{Base: durationpb.New(time.Hour), Cap: durationpb.New(time.Minute)}}},
		{"policy.exponential.factor:", &egressv1.DeliveryPolicy{Exponential: &egressv1.Exponential{Factor: 0.5}}},
		{"policy.exponential.factor:", &egressv1.DeliveryPolicy{Exponential: &egressv1.Exponential{Factor: math.NaN()}}},
		{"policy.exponential.attempts:", &egressv1.DeliveryPolicy{Exponential: &egressv1.Exponential{Attempts: 101}}},
		{"policy.jitter_percent:", &egressv1.DeliveryPolicy{JitterPercent: proto.Int32(101)}},
		{"policy.on_gone:", &egressv1.DeliveryPolicy{OnGone: 9}},
		{"policy.stop_on[1]:", &egressv1.DeliveryPolicy{StopOn: []int32{400, 410}}},
		{"policy.stop_on[0]:", &egressv1.DeliveryPolicy{StopOn: []int32{200}}},
		{"policy.stop_on:", &egressv1.DeliveryPolicy{StopOn: make([]int32, 65)}},
		{"policy.max_in_flight:", &egressv1.DeliveryPolicy{MaxInFlight: 513}},
		{"policy.rate:", &egressv1.DeliveryPolicy{Rate: new(math.Inf(1))}},
		{"policy.rate:", &egressv1.DeliveryPolicy{Rate: proto.Float64(-1)}},
		{"policy.disable_after:", &egressv1.DeliveryPolicy{DisableAfter: durationpb.New(time.Minute)}},
		{"policy.disable_after:", &egressv1.DeliveryPolicy{DisableAfter: durationpb.New(91 * 24 * time.Hour)}},
	} {
		if _, err := policyFrom(tc.p, Policy{}); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), tc.field) {
			t.Errorf("%v: %v, want ErrSpec naming %q", tc.p, err, tc.field)
		}
	}
}

func TestValidEventTypes(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{
		"*": true, "invoice.paid": true, "invoice.*": true, "a.b.*": true, "a": true, strings.Repeat("a", 256): true,
		"": false, ".*": false, "a.b*": false, "*.a": false, "a..*": false, "**": false, "a b": false, "ä": false, "a,b": false,
		"a\n": false, strings.Repeat("a", 257): false,
	} {
		if got := validEventTypes(pattern); got != want {
			t.Errorf("%q: %t, want %t", pattern, got, want)
		}
	}
}
