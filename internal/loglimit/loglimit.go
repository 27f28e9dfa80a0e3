// Package loglimit keeps a log readable while something goes wrong a thousand times a second.
package loglimit

import (
	"sync"
	"time"
)

// Limiter lets through a number of log lines a second and counts the rest. The zero Limiter is ready; it is safe for
// concurrent use.
type Limiter struct {
	mu     sync.Mutex // covers what follows
	second int64
	taken  int
	left   int64
}

// Take reports whether a line may be written now, if perSecond may, and how many were left out since the last one that
// was.
func (l *Limiter) Take(now time.Time, perSecond int) (ok bool, left int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second := now.Unix(); second != l.second {
		l.second, l.taken = second, 0
	}
	if l.taken >= perSecond {
		l.left++
		return false, 0
	}
	l.taken++
	left, l.left = l.left, 0
	return true, left
}
