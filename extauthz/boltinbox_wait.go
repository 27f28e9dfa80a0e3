package extauthz

import (
	"sync"
	"time"
)

// waits wakes those who wait for a claim of another request to end. There is an entry only for claims that somebody
// waits for, until the claim ends or its lease does. The zero value is ready.
type waits struct {
	mu sync.Mutex
	m  map[string]*waitEntry
}

type waitEntry struct {
	ended chan struct{}
	timer *time.Timer
}

// add returns a channel that is closed when the claim of key ends, or after left, when its lease does.
func (w *waits) add(key string, left time.Duration) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.m[key]; e != nil {
		return e.ended
	}
	if w.m == nil {
		w.m = make(map[string]*waitEntry)
	}
	e := &waitEntry{ended: make(chan struct{})}
	e.timer = time.AfterFunc(left, func() { w.endEntry(key, e) })
	w.m[key] = e
	return e.ended
}

// end wakes all who wait for key.
func (w *waits) end(key string) {
	w.mu.Lock()
	e := w.m[key]
	w.mu.Unlock()
	if e != nil {
		w.endEntry(key, e)
	}
}

func (w *waits) endEntry(key string, e *waitEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m[key] != e {
		return
	}
	delete(w.m, key)
	e.timer.Stop()
	close(e.ended)
}
