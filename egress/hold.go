package egress

import (
	"cmp"
	"time"
)

const (
	// DefaultFirstHold and DefaultLongestHold are those of a policy that names none.
	DefaultFirstHold   = 5 * time.Second
	DefaultLongestHold = 5 * time.Minute
)

// firstHold and longestHold are the waits before the first probe of an endpoint that is held, and at most between two.
func (p *Policy) firstHold() time.Duration   { return cmp.Or(p.FirstHold, DefaultFirstHold) }
func (p *Policy) longestHold() time.Duration { return cmp.Or(p.LongestHold, DefaultLongestHold) }

// holdWait is the wait before probe number step, counted from 1: each that fails doubles it.
func (p *Policy) holdWait(step int) time.Duration {
	wait, longest := p.firstHold(), p.longestHold()
	for ; step > 1 && wait < longest; step-- {
		wait *= 2
	}
	return min(wait, longest)
}

// Held reports whether the endpoint is held as a whole: only probes are sent, from HeldUntil on.
func (h *Health) Held() bool { return h.HoldStep > 0 }

// hold is the part of Decide that holds an endpoint, and moves the time of the next probe after one has failed. retryAfter
// is what the answer asked for, 0 for nothing.
func (h *Health) hold(p *Policy, o *rule, probe bool, retryAfter time.Duration, now time.Time) {
	switch {
	case h.Held() && !probe:
		// It was under way when the hold began, and says nothing about the probes.
		if until := now.Add(retryAfter); o.Holds && until.After(h.HeldUntil) {
			h.HeldUntil = until
		}
	case h.Held() || o.Holds:
		h.HoldStep++
		h.HeldUntil = now.Add(max(p.holdWait(h.HoldStep), retryAfter))
	}
}

// release ends a hold and reports whether there was one.
func (h *Health) release() bool {
	held := h.Held()
	h.HoldStep, h.HeldUntil = 0, time.Time{}
	return held
}
