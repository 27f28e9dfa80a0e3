package egress

import (
	"math"
	"math/rand/v2"
	"time"
)

const (
	// DefaultJitterPercent is what keeps deliveries that failed together from coming back together.
	DefaultJitterPercent = 20
	// MaxWait bounds every wait, whatever a schedule or a Retry-After says: longer ones are mistakes.
	MaxWait = 30 * 24 * time.Hour
)

// DefaultWaits returns the waits of a schedule that nobody has set: 10 attempts in 75 h 35 min 5 s. They are those of
// Standard Webhooks, "Deliverability and reliability".
func DefaultWaits() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// DefaultSchedule is that of an endpoint that names none.
func DefaultSchedule() Schedule {
	return Schedule{Waits: DefaultWaits(), JitterPercent: DefaultJitterPercent}
}

// Schedule gives the waits between the attempts of a delivery: a list, or where Exponential is set, that.
type Schedule struct {
	// Waits stand between attempts: the first attempt is made at once, the one after it Waits[0] later, and so on; there
	// are len(Waits)+1 attempts.
	Waits []time.Duration
	// JitterPercent spreads each wait evenly over so many percent below and above it: 0 to 100.
	JitterPercent int
	// Exponential, if not nil, stands in place of Waits, with full jitter: a wait is drawn evenly from 0 to its length.
	Exponential *Exponential
}

// Exponential is a schedule of growing waits: Base, Base*Factor, Base*Factor^2, …, none above Cap.
type Exponential struct {
	Base, Cap time.Duration
	Factor    float64
	// Attempts is their number in all, the first included.
	Attempts int
}

// Attempts is the number of attempts in all, the first included; at least 1.
func (s *Schedule) Attempts() int {
	if s.Exponential != nil {
		return max(1, s.Exponential.Attempts)
	}
	return len(s.Waits) + 1
}

// Length is the time from the first attempt to the last without jitter.
func (s *Schedule) Length() time.Duration { return s.until(s.Attempts() - 1) }

// until is the time from the first attempt to the one after so many, without jitter.
func (s *Schedule) until(attempts int) time.Duration {
	var sum time.Duration
	for n := 1; n <= min(attempts, s.Attempts()-1); n++ {
		wait := s.length(n)
		if sum > math.MaxInt64-wait {
			return math.MaxInt64
		}
		sum += wait
	}
	return sum
}

// Wait draws the time between attempt n, counted from 1, and the next. There is none, and ok is false, after the last.
func (s *Schedule) Wait(n int, rnd *rand.Rand) (wait time.Duration, ok bool) {
	if n < 1 || n >= s.Attempts() {
		return 0, false
	}
	length := s.length(n)
	if s.Exponential != nil {
		return time.Duration(rnd.Int64N(int64(length) + 1)), true
	}
	return spread(length, s.JitterPercent, rnd), true
}

// Longest is the longest that Wait can return.
func (s *Schedule) Longest() time.Duration {
	var longest time.Duration
	for n := 1; n < s.Attempts(); n++ {
		longest = max(longest, s.length(n))
	}
	if s.Exponential == nil {
		longest += share(longest, s.JitterPercent)
	}
	return longest
}

// length is the wait after attempt n, which is not the last, before jitter: 0 to MaxWait.
func (s *Schedule) length(n int) time.Duration {
	x := s.Exponential
	if x == nil {
		return min(max(s.Waits[n-1], 0), MaxWait)
	}
	limit := min(max(x.Cap, 0), MaxWait)
	// Beyond float64 this is +Inf, and NaN for a Base of 0: neither is below the limit.
	if wait := float64(x.Base) * math.Pow(x.Factor, float64(n-1)); wait < float64(limit) {
		return time.Duration(max(wait, 0))
	}
	return limit
}

// spread draws evenly from so many percent below wait to so many above.
func spread(wait time.Duration, percent int, rnd *rand.Rand) time.Duration {
	part := share(wait, percent)
	return wait - part + time.Duration(rnd.Int64N(2*int64(part)+1))
}

// share is that many percent of wait, which is at most MaxWait.
func share(wait time.Duration, percent int) time.Duration {
	return wait * time.Duration(min(max(percent, 0), 100)) / 100
}
