package extauthz

import (
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxBodiesInFlight bounds, in bytes, the bodies of all Checks under way: 128 MiB.
const DefaultMaxBodiesInFlight = 128 << 20

// budget bounds a sum of bytes. It never waits: what does not fit is refused at once, and its sender comes again.
// It is safe for concurrent use.
type budget struct {
	limit int64
	used  atomic.Int64
}

// take reserves n bytes, or reports that they do not fit.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.limit {
		return true
	}
	b.used.Add(-n)
	return false
}

// give returns n bytes that were taken.
func (b *budget) give(n int64) { b.used.Add(-n) }

// pace lets one thing through a second. It is safe for concurrent use.
type pace struct {
	mu   sync.Mutex // covers next
	next time.Time
}

// take reports whether it is time for another one.
func (p *pace) take(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(time.Second)
	return true
}
