package store

import (
	"sync"
	"time"
)

const (
	// growthWindow is the past from which UntilFull judges how fast the store fills.
	growthWindow = time.Hour
	// growthStep is how far its samples are apart at least.
	growthStep = time.Minute
	// growthLeast is the past below which it does not judge: an hour may begin with a burst.
	growthLeast = 10 * time.Minute
	// growthMost bounds what is told: beyond it a store does not fill.
	growthMost = 10 * 365 * 24 * time.Hour
)

// growth are samples of the bytes in use, at most growthStep apart where anything was written, from the last one before
// growthWindow on. The zero value has none.
type growth struct {
	mu      sync.Mutex
	samples []usageSample
}

type usageSample struct {
	at   time.Time // with its monotonic reading
	used int64
}

// note takes a sample, unless there is a recent one.
func (g *growth) note(now time.Time, used int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.samples); n > 0 && now.Sub(g.samples[n-1].at) < growthStep {
		return
	}
	for len(g.samples) > 1 && now.Sub(g.samples[1].at) >= growthWindow {
		g.samples = g.samples[:copy(g.samples, g.samples[1:])]
	}
	g.samples = append(g.samples, usageSample{now, used})
}

// until returns when room more bytes will be in use, if it goes on as in the past hour, or since the first sample where
// that is later.
func (g *growth) until(now time.Time, used, room int64) (time.Duration, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := 0 // the last sample before the window: nothing was written between it and the next
	for first+1 < len(g.samples) && now.Sub(g.samples[first+1].at) >= growthWindow {
		first++
	}
	if first == len(g.samples) {
		return 0, false
	}
	past := min(now.Sub(g.samples[first].at), growthWindow)
	grown := used - g.samples[first].used
	if past < growthLeast || grown <= 0 {
		return 0, false
	}
	left := float64(max(0, room)) / float64(grown) * float64(past)
	if left > float64(growthMost) {
		return 0, false
	}
	return time.Duration(left), true
}

// UntilFull estimates when the store will be full (see Full) if it goes on filling as it did in the past hour, or since Open
// where that is less. It is false while it does not fill, or would take more than ten years, and in the first ten minutes.
func (s *Store) UntilFull() (time.Duration, bool) {
	return s.growth.until(time.Now(), s.used.Load(), s.Room())
}
