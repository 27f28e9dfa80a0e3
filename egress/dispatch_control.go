package egress

import (
	"context"
	"fmt"
	"time"
)

// SetPaused stops all sending, or resumes it: what has come to wait goes out slowly at first. What is in flight goes on.
func (d *Dispatcher) SetPaused(paused bool) {
	if d.paused.Swap(paused) == paused || paused {
		return
	}
	now := d.clock.now()
	for _, q := range d.all() {
		q.reopen(now)
		d.inbox.look(q, true)
	}
}

// Paused reports whether all sending is stopped.
func (d *Dispatcher) Paused() bool { return d.paused.Load() }

// Parked reports whether nothing is sent to an endpoint until somebody changes that: all is paused, it is disabled, or it
// cannot be used.
func (d *Dispatcher) Parked(endpoint string) bool {
	if d.paused.Load() {
		return true
	}
	q := d.queue(endpoint)
	if q == nil {
		return false
	}
	if e := q.endpoint.Load(); e != nil && e.Unusable != "" {
		return true
	}
	disabled, _, _ := q.state()
	return disabled
}

// HealthOf returns the health of an endpoint as it is now; ok is false if there is no such endpoint.
func (d *Dispatcher) HealthOf(endpoint string) (h Health, ok bool) {
	q := d.queue(endpoint)
	if q == nil {
		return Health{}, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.health, true
}

// InFlight reports whether an attempt of that delivery is under way, or what came of it is not on disk yet.
func (d *Dispatcher) InFlight(id DeliveryID) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.flights[id] != nil
}

// InFlightTotal is the number of attempts that are in flight.
func (d *Dispatcher) InFlightTotal() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.flights)
}

// Disable stops sending to an endpoint at once and returns when that is on disk; an endpoint that is disabled stays so for the
// reason that it was. What waits is kept. ErrNotFound, or the outbox's error; then it is as it was.
func (d *Dispatcher) Disable(ctx context.Context, endpoint string, reason DisableReason) error {
	now := d.clock.now()
	return d.changeHealth(ctx, endpoint, false, func(h *Health) {
		if h.Disabled == NotDisabled {
			h.Disabled, h.DisabledAt = reason, now
		}
	})
}

// Enable resumes sending to an endpoint that is disabled or held, slowly at first, and returns when that is on disk.
// ErrNotFound, or the outbox's error; then it is as it was.
func (d *Dispatcher) Enable(ctx context.Context, endpoint string) error {
	return d.changeHealth(ctx, endpoint, true, func(h *Health) {
		h.Disabled, h.DisabledAt = NotDisabled, time.Time{}
		h.FailingSince, h.LastFailure = time.Time{}, time.Time{}
		h.release()
	})
}

// changeHealth changes an endpoint's health on a person's wish. That is in force at once, and undone if it cannot be
// kept.
func (d *Dispatcher) changeHealth(ctx context.Context, endpoint string, resume bool, change func(*Health)) error {
	q := d.queue(endpoint)
	if q == nil {
		return fmt.Errorf("endpoint %s: %w", endpoint, ErrNotFound)
	}
	q.control.Lock()
	defer q.control.Unlock()
	q.mu.Lock()
	was := q.health
	change(&q.health)
	is := q.health
	if resume && is != was {
		q.open = d.clock.now()
	}
	q.mu.Unlock()
	if is == was {
		return nil
	}
	if resume {
		d.inbox.look(q, true)
	}
	if err := d.outbox.SetHealth(ctx, endpoint, is); err != nil {
		q.mu.Lock()
		q.health.Disabled, q.health.DisabledAt = was.Disabled, was.DisabledAt
		q.mu.Unlock()
		d.inbox.look(q, false)
		return fmt.Errorf("keep health of endpoint %s: %w", endpoint, err)
	}
	return nil
}

func (d *Dispatcher) queue(endpoint string) *queue {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.queues[endpoint]
}
