// Package clock decides whether the wall clock can be trusted to say that something is old.
package clock

import (
	"slices"
	"time"
)

const (
	// maxDrift between wall and monotonic clock within driftWindow is taken for adjustment; more is in doubt.
	maxDrift    = time.Hour
	driftWindow = 24 * time.Hour
	// driftSample is the time that one sample stands for.
	driftSample = time.Minute
	// startDoubt is how long a start that finds an unlikely clock is in doubt.
	startDoubt = time.Hour
)

// Guard decides whether the wall clock can be trusted to say that rows are old: a jump forwards would make all of them
// old at once. It is used by one goroutine. All times are milliseconds: mono since the store was opened, wall since 1970.
type Guard struct {
	newest, openedWall int64
	// samples of wall minus mono within the last driftWindow, the oldest first.
	samples []sample
}

// sample is the least and the greatest offset seen from mono on, for driftSample.
type sample struct{ mono, low, high int64 }

// NewGuard takes the newest time that the store held when it was opened (0: none), and the clock at that moment.
func NewGuard(newest, openedWall int64) Guard {
	return Guard{newest: newest, openedWall: openedWall, samples: []sample{{0, openedWall, openedWall}}}
}

// Observe notes what the clocks say and returns why the wall clock is in doubt, or nothing.
func (g *Guard) Observe(mono, wall int64) string {
	offset := wall - mono
	g.samples = slices.DeleteFunc(g.samples, func(s sample) bool { return mono-s.mono > driftWindow.Milliseconds() })
	if n := len(g.samples); n == 0 || mono-g.samples[n-1].mono >= driftSample.Milliseconds() {
		g.samples = append(g.samples, sample{mono, offset, offset})
	} else {
		last := &g.samples[n-1]
		last.low, last.high = min(last.low, offset), max(last.high, offset)
	}
	low, high := offset, offset
	for _, s := range g.samples {
		low, high = min(low, s.low), max(high, s.high)
	}
	drifted := high-low > maxDrift.Milliseconds()
	switch {
	case drifted:
		return "wall clock and monotonic clock have drifted apart by more than an hour within 24 hours"
	case g.newest > g.openedWall && mono < startDoubt.Milliseconds():
		return "the newest time in the store is ahead of the clock"
	}
	return ""
}

// LongAgo reports whether, in the first hour after the start, the store's newest time is more than retention behind
// the clock: it was long off, or the clock is wrong.
func (g *Guard) LongAgo(retention time.Duration, mono int64) bool {
	return g.newest > 0 && mono < startDoubt.Milliseconds() && g.openedWall-g.newest > retention.Milliseconds()
}
