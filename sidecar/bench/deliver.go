package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

const (
	// queued is how many events wait when delivery begins; deliverWorkers are the requests at one time, ours and the
	// bare client's.
	queued         = 60_000
	ciQueued       = 10_000
	deliverWorkers = 128
	// togetherFor is how long intake and delivery are counted together, at togetherRate.
	togetherFor   = 30 * time.Second
	ciTogetherFor = 5 * time.Second
	togetherRate  = 6000
	// slowAnswer is the receiver's time in the turn with slowFlight requests at one time.
	slowAnswer = 100 * time.Millisecond
	slowFlight = 512
	// deliverTimeout bounds each wait for deliveries.
	deliverTimeout = 2 * time.Minute
)

// deliverBench measures delivery: signed, logged, durable.
type deliverBench struct {
	settings
	out    *report
	folder string
	turns  int
}

func deliver(ctx context.Context, s settings, b bounds, folder string, out *report) error {
	d := &deliverBench{settings: s, out: out, folder: folder}
	if err := d.prefilled(ctx, b); err != nil {
		return fmt.Errorf("a queue filled beforehand: %w", err)
	}
	if err := d.together(ctx, b); err != nil {
		return fmt.Errorf("intake and delivery together: %w", err)
	}
	if err := d.slow(ctx, b); err != nil {
		return fmt.Errorf("a slow receiver: %w", err)
	}
	return nil
}

// withOne runs f with a receiver and a sidehook that has it as its only endpoint.
func (d *deliverBench) withOne(ctx context.Context, flight int, f func(target *child, addr string, side *sidehook) error) (err error) {
	target, addr, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.stop()) }()
	d.turns++
	// No endpoint gets all slots: twice as many leave it those that it may have.
	side, err := configureOutbound(filepath.Join(d.folder, strconv.Itoa(d.turns)), 2*slowFlight,
		destination{id: "bench", addr: addr, types: "*", maxFlight: flight})
	if err != nil {
		return err
	}
	if err := side.start(ctx, d.sidehook); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.stop()) }()
	return f(target, addr, side)
}

// drain queues n events, lets them go, and returns what the receiver saw of them and the processor time they took.
func (d *deliverBench) drain(ctx context.Context, side *sidehook, target *child, n int) (r received, cpu time.Duration, err error) {
	if err := side.egress(ctx, d.sidehook, "pause"); err != nil {
		return r, 0, err
	}
	if _, err := side.post(ctx, "-n", strconv.Itoa(n)); err != nil {
		return r, 0, err
	}
	before, err := cpuTime(side.pid())
	if err != nil {
		return r, 0, err
	}
	if err := side.egress(ctx, d.sidehook, "resume"); err != nil {
		return r, 0, err
	}
	if r, err = waitReceived(ctx, target, n); err != nil {
		return r, 0, err
	}
	after, err := cpuTime(side.pid())
	return r, after - before, err
}

func (d *deliverBench) prefilled(ctx context.Context, b bounds) error {
	n := queued
	if d.ci {
		n = ciQueued
	}
	return d.withOne(ctx, deliverWorkers, func(target *child, addr string, side *sidehook) error {
		var ours, bare, ratios, cpus []float64
		for range d.pairs {
			r, cpu, err := d.drain(ctx, side, target, n)
			if err != nil {
				return err
			}
			if r.Count != n {
				return fmt.Errorf("%d deliveries of %d events", r.Count, n)
			}
			y, err := runRole(ctx, "client", "-addr", addr, "-n", strconv.Itoa(n), "-workers", strconv.Itoa(deliverWorkers))
			if err != nil {
				return err
			}
			if _, err := target.look(); err != nil {
				return err
			}
			ours, bare = append(ours, r.rate()), append(bare, y.rate())
			ratios, cpus = append(ratios, r.rate()/y.rate()), append(cpus, cpu.Seconds()*10_000/float64(n))
		}
		d.out.printf("delivered a second %.0f, a bare client %.0f; processor seconds per 10,000 %.2f\n", ours, bare, cpus)
		d.out.add(figure{name: "delivered from a full queue, of a bare client", got: fmt.Sprintf("%.0f/s", median(ours)),
			yardstick: fmt.Sprintf("%.0f/s", median(bare)), value: median(ratios), bound: b.deliverShare, atLeast: true})
		return nil
	})
}

func (d *deliverBench) together(ctx context.Context, b bounds) error {
	lasts := togetherFor
	if d.ci {
		lasts = ciTogetherFor
	}
	return d.withOne(ctx, deliverWorkers, func(target *child, _ string, side *sidehook) error {
		before, err := cpuTime(side.pid())
		if err != nil {
			return err
		}
		fetched := make(chan error, 1)
		if d.profile == "" {
			fetched <- nil
		} else {
			go func() { fetched <- fetchProfile(ctx, side.admin, filepath.Join(d.profile, "outbound.pprof")) }()
		}
		posted, err := side.post(ctx, "-for", lasts.String(), "-rate", strconv.Itoa(togetherRate))
		if err := errors.Join(err, <-fetched); err != nil {
			return err
		}
		r, err := target.look()
		if err != nil {
			return err
		}
		after, err := cpuTime(side.pid())
		if err != nil {
			return err
		}
		rate := float64(r.Count) / posted.Elapsed.Seconds()
		cpu := (after - before).Seconds() * 10_000 / float64(r.Count)
		d.out.printf("posted %.0f a second (p99 %.1f ms), received %.0f, p99 %.1f ms after the post\n",
			posted.rate(), milliseconds(posted.P99), rate, milliseconds(r.P99))
		d.out.add(figure{name: "posted and received at the same time", got: fmt.Sprintf("%.0f/s", posted.rate()),
			value: rate, bound: b.togetherRate, unit: "/s", atLeast: true})
		d.out.add(figure{name: "processor time per 10,000 events", value: cpu, bound: b.togetherCPUSeconds, unit: " s"})
		return nil
	})
}

func (d *deliverBench) slow(ctx context.Context, b bounds) error {
	n := queued
	if d.ci {
		n = ciQueued
	}
	return d.withOne(ctx, slowFlight, func(target *child, _ string, side *sidehook) error {
		if _, err := target.tell("answer " + slowAnswer.String()); err != nil {
			return err
		}
		r, _, err := d.drain(ctx, side, target, n)
		if err != nil {
			return err
		}
		limit := float64(slowFlight) / slowAnswer.Seconds()
		d.out.add(figure{name: fmt.Sprintf("to a receiver that takes %s, %d at one time", slowAnswer, slowFlight),
			got: fmt.Sprintf("%d open at most", r.Open), yardstick: fmt.Sprintf("%.0f/s is the limit", limit),
			value: r.rate(), bound: b.slowRate, unit: "/s", atLeast: true})
		return nil
	})
}
