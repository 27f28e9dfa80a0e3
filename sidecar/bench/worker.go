package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/sidecar/envoytest"
)

// storeRig is a sidehook with one source in STORE, and the address of its app, which is away until somebody starts it.
type storeRig struct {
	*sidehook
	settings
	app string
}

// startStored starts one in folder.
func startStored(ctx context.Context, s settings, folder string, delivery map[string]any) (*storeRig, error) {
	addr, err := envoytest.FreeAddrs(1)
	if err != nil {
		return nil, err
	}
	// No source gets all slots, nor half of the store: these events are all of one.
	side, err := configure(folder, storedSource(addr[0], deliverWorkers, delivery), map[string]any{
		"limits": map[string]any{"source_percent": 100},
	})
	if err != nil {
		return nil, err
	}
	return &storeRig{side, s, addr[0]}, side.start(ctx, s.sidehook)
}

// fill has n events stored.
func (r *storeRig) fill(ctx context.Context, n, keys int) (loadResult, error) {
	return runRole(ctx, "fill", "-addr", r.gate, "-n", strconv.Itoa(n), "-keys", strconv.Itoa(keys))
}

// await waits until so many events are in a state.
func (r *storeRig) await(ctx context.Context, state inboxv1.EventState, n int) error {
	deadline := time.Now().Add(deliverTimeout)
	for {
		states, err := r.states(ctx)
		if err != nil {
			return err
		}
		if states[state] >= int64(n) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d events are %s after %s: %v", states[state], n, state, deliverTimeout, states)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(settleEvery):
		}
	}
}

// drained is a queue that went to the app.
type drained struct {
	received
	// durable is the rate from the first arrival until the last event was recorded as DONE.
	durable float64
	cpu     time.Duration
}

// drain fills a queue while the app is away, starts the app, and has it get all of them but those of the key that it refuses.
func (r *storeRig) drain(ctx context.Context, n, keys int, refuse string) (d drained, bare float64, err error) {
	if _, err := r.fill(ctx, n, keys); err != nil {
		return d, 0, err
	}
	if err := r.stop(); err != nil {
		return d, 0, err
	}
	app, addr, err := startReceiver(ctx, "-addr", r.app)
	if err != nil {
		return d, 0, err
	}
	defer func() { err = errors.Join(err, app.stop()) }()
	want := n
	if refuse != "" {
		want -= (n + keys - 1) / keys
		if _, err := app.tell("refuse " + refuse); err != nil {
			return d, 0, err
		}
	}
	if err := r.start(ctx, r.settings.sidehook); err != nil {
		return d, 0, err
	}
	before, err := cpuTime(r.pid())
	if err != nil {
		return d, 0, err
	}
	fetched := make(chan error, 1)
	if r.profile == "" {
		fetched <- nil
	} else {
		go func() { fetched <- fetchProfile(ctx, r.admin, filepath.Join(r.profile, "worker.pprof")) }()
	}
	d.received, err = waitReceived(ctx, app, want)
	if err := errors.Join(err, <-fetched); err != nil {
		return d, 0, err
	}
	if err := r.await(ctx, inboxv1.EventState_EVENT_STATE_DONE, want); err != nil {
		return d, 0, err
	}
	d.durable = float64(want) / time.Since(time.Unix(0, d.First)).Seconds()
	after, err := cpuTime(r.pid())
	if err != nil {
		return d, 0, err
	}
	d.cpu = after - before
	if d.Count != want {
		return d, 0, fmt.Errorf("%d deliveries of %d events", d.Count, want)
	}
	y, err := runRole(ctx, "client", "-addr", addr, "-n", strconv.Itoa(n), "-workers", strconv.Itoa(deliverWorkers))
	return d, y.rate(), err
}

// worker measures how fast a queue of stored events comes to an app that answers at once, and a restart with many of them.
func worker(ctx context.Context, s settings, b bounds, folder string, out *report) error {
	n := queued
	if s.ci {
		n = ciQueued
	}
	var ours, bare, ratios, cpus []float64
	for i := range s.pairs {
		d, y, err := drainOnce(ctx, s, filepath.Join(folder, strconv.Itoa(i)), n)
		if err != nil {
			return fmt.Errorf("a queue: %w", err)
		}
		ours, bare = append(ours, d.durable), append(bare, y)
		ratios, cpus = append(ratios, d.durable/y), append(cpus, d.cpu.Seconds()*10_000/float64(n))
	}
	out.printf("delivered and recorded a second %.0f, a bare client %.0f; processor seconds per 10,000 %.2f\n", ours, bare, cpus)
	out.add(figure{name: "stored events delivered to an instant app", value: median(ours), bound: b.workerRate, unit: "/s", atLeast: true})
	out.add(figure{name: "stored events delivered, of a bare client", got: fmt.Sprintf("%.0f/s", median(ours)),
		yardstick: fmt.Sprintf("%.0f/s", median(bare)), value: median(ratios), bound: b.workerShare, atLeast: true})
	if err := storeBacklog(ctx, s, b, filepath.Join(folder, "backlog"), out); err != nil {
		return fmt.Errorf("a backlog: %w", err)
	}
	return nil
}

func drainOnce(ctx context.Context, s settings, folder string, n int) (d drained, bare float64, err error) {
	r, err := startStored(ctx, s, folder, nil)
	if err != nil {
		return d, 0, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	return r.drain(ctx, n, 0, "")
}

// storeBacklog measures a restart with many events stored: how soon the app gets the first, and what is held in memory.
func storeBacklog(ctx context.Context, s settings, b bounds, folder string, out *report) (err error) {
	r, err := startStored(ctx, s, folder, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	peak := watchMemory(ctx, r.sidehook)
	stored, err := r.fill(ctx, s.queued, 0)
	filling := peak()
	if err != nil {
		return err
	}
	out.printf("%d events stored at %.0f a second, RssAnon at most %.0f MiB\n", s.queued, stored.rate(), mib(filling))
	if err := r.stop(); err != nil {
		return err
	}
	app, _, err := startReceiver(ctx, "-addr", r.app)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, app.stop()) }()
	first, restarted, err := restart(ctx, s, r.sidehook, app)
	if err != nil {
		return err
	}
	out.add(figure{name: fmt.Sprintf("restart with %d stored, first delivery", s.queued), value: first.Seconds(), bound: b.backlogSeconds, unit: " s"})
	out.add(figure{name: fmt.Sprintf("restart with %d stored, RssAnon throughout", s.queued),
		got:   fmt.Sprintf("filling %.0f MiB, restarted %.0f MiB", mib(filling), mib(restarted)),
		value: mib(max(filling, restarted)), bound: b.backlogMiB, unit: " MiB"})
	return nil
}

const (
	// orderKeys is how many keys the events in order have; one of them, stuckKey, is refused for ever.
	orderKeys = 10_000
	stuckKey  = "4711"
)

// order measures what order costs: the same queue of events of many keys, of which one is stuck, delivered in order and in none.
func order(ctx context.Context, s settings, b bounds, folder string, out *report) error {
	n := queued
	if s.ci {
		n = 2 * ciQueued
	}
	var inOrder, inNone, ratios []float64
	for i := range s.pairs {
		one := func(name string, delivery map[string]any) (d drained, err error) {
			r, err := startStored(ctx, s, filepath.Join(folder, strconv.Itoa(i)+name), delivery)
			if err != nil {
				return d, err
			}
			defer func() { err = errors.Join(err, r.stop()) }()
			d, _, err = r.drain(ctx, n, orderKeys, stuckKey)
			return d, err
		}
		none, err := one("none", nil)
		if err != nil {
			return fmt.Errorf("in no order: %w", err)
		}
		keyed, err := one("order", map[string]any{"order_by": map[string]any{"header": keyHeader}})
		if err != nil {
			return fmt.Errorf("in order: %w", err)
		}
		if keyed.Disorder > 0 {
			return fmt.Errorf("%d of %d events came out of order", keyed.Disorder, n)
		}
		inOrder, inNone = append(inOrder, keyed.durable), append(inNone, none.durable)
		ratios = append(ratios, keyed.durable/none.durable)
	}
	out.printf("a second in order %.0f, in no order %.0f\n", inOrder, inNone)
	out.add(figure{name: fmt.Sprintf("in order by %d keys, one stuck, of no order", orderKeys), got: fmt.Sprintf("%.0f/s", median(inOrder)),
		yardstick: fmt.Sprintf("%.0f/s", median(inNone)), value: median(ratios), bound: b.order, atLeast: true})
	return nil
}
