package egress

import (
	"math"
	"time"
)

// pace is how many attempts to one endpoint may be in flight: as many as its policy allows, unless it has shown that it
// takes fewer. A time-out halves it down to one. From there, and after a hold, an enabling or a restart with a backlog, it
// grows with what is delivered: by one for each up to where it was last cut, and then by one for each round.
//
// The zero pace is that of an endpoint of which nothing is known: all that the policy allows.
type pace struct {
	known      bool
	limit, cut float64
	slow       bool // the last that is known of it is a time-out
}

// most is the number that may be in flight where the policy allows top.
func (p *pace) most(top int) int {
	if !p.known {
		return top
	}
	return min(top, max(1, int(p.limit)))
}

// start begins slowly.
func (p *pace) start() { *p = pace{known: true, limit: 1, cut: math.Inf(1), slow: p.slow} }

// timedOut takes note of an attempt that held its slot for the whole time limit.
func (p *pace) timedOut(top int) {
	half := max(1, float64(p.most(top))/2)
	*p = pace{known: true, limit: half, cut: half, slow: true}
}

// delivered takes note of one.
func (p *pace) delivered(top int) {
	p.slow = false
	switch {
	case !p.known:
	case p.limit < p.cut:
		p.limit++
	default:
		p.limit += 1 / p.limit
	}
	if p.limit >= float64(top) {
		p.known = false
	}
}

// burstTime is the part of a second whose attempts may be made at one time, where that is more than one: as much as a timer
// may be late.
const burstTime = 10 * time.Millisecond

// roundingError is by how much a sum of parts may fall short of one attempt.
const roundingError = 1e-9

// bucket holds an endpoint to its rate. The zero bucket is full.
type bucket struct {
	used  bool
	left  float64
	since time.Duration // left is as of then, by the monotonic clock
}

// take takes leave for one attempt, or says how long until there is one. A rate of 0 is none.
func (b *bucket) take(now time.Duration, rate float64) (wait time.Duration) {
	if rate <= 0 {
		return 0
	}
	burst := max(1, rate*burstTime.Seconds())
	if !b.used {
		b.used, b.left = true, burst
	} else {
		b.left = min(burst, b.left+(now-b.since).Seconds()*rate)
	}
	b.since = now
	if b.left >= 1-roundingError {
		b.left--
		return 0
	}
	// A rate of nearly nothing waits for longer than a Duration holds.
	return time.Duration(min(math.Ceil((1-b.left)/rate*1e9), float64(MaxWait)))
}
