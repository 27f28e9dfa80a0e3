package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

const (
	// backlogFlight is how many attempts are under way when sidehook is killed.
	backlogFlight = 100
	// watchFor is how long memory is watched after a restart.
	watchFor   = 10 * time.Second
	ciWatchFor = 3 * time.Second
	watchEvery = 50 * time.Millisecond
)

// backlog measures a restart with many deliveries waiting: how soon the first one is made, what it holds in memory, and
// how soon those that a kill cut off are made again.
func backlog(ctx context.Context, s settings, b bounds, folder string, out *report) (err error) {
	target, addr, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.stop()) }()
	side, err := configureOutbound(folder, 512, destination{id: "bench", addr: addr, types: "*", maxFlight: backlogFlight})
	if err != nil {
		return err
	}
	if err := side.start(ctx, s.sidehook); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.stop()) }()
	if err := side.egress(ctx, s.sidehook, "pause"); err != nil {
		return err
	}
	peak := watchMemory(ctx, side)
	posted, err := side.post(ctx, "-n", strconv.Itoa(s.queued))
	filling := peak()
	if err != nil {
		return err
	}
	out.printf("%d events queued at %.0f a second, RssAnon at most %.0f MiB\n", s.queued, posted.rate(), mib(filling))
	// A pause outlives the process: it ends with it, so that the next one sends.
	if err := errors.Join(side.egress(ctx, s.sidehook, "resume"), side.stop()); err != nil {
		return err
	}
	first, restarted, err := restart(ctx, s, side, target)
	if err != nil {
		return err
	}
	out.add(figure{name: fmt.Sprintf("restart with %d queued, first delivery", s.queued), value: first.Seconds(), bound: b.backlogSeconds, unit: " s"})
	again, err := killed(ctx, s, side, target)
	if err != nil {
		return err
	}
	out.add(figure{name: fmt.Sprintf("restart with %d queued, RssAnon throughout", s.queued),
		got:   fmt.Sprintf("filling %.0f MiB, restarted %.0f MiB", mib(filling), mib(restarted)),
		value: mib(max(filling, restarted)), bound: b.backlogMiB, unit: " MiB"})
	out.add(figure{name: fmt.Sprintf("after kill -9, %d in flight tried again", backlogFlight), value: again.Seconds(), bound: b.againSeconds, unit: " s"})
	return nil
}

// restart starts side again and returns the time from its start to the first delivery, and the most memory that it held
// for a while after.
func restart(ctx context.Context, s settings, side *sidehook, target *child) (first time.Duration, peak int64, err error) {
	if _, err := target.look(); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := side.start(ctx, s.sidehook); err != nil {
		return 0, 0, err
	}
	most := watchMemory(ctx, side)
	r, err := waitReceived(ctx, target, 1)
	if err != nil {
		most()
		return 0, 0, err
	}
	watched := watchFor
	if s.ci {
		watched = ciWatchFor
	}
	select {
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(watched):
	}
	return time.Unix(0, r.First).Sub(began), most(), err
}

// killed kills side with all its attempts under way, starts it again, and returns the time from the start until each of
// them has been made again.
func killed(ctx context.Context, s settings, side *sidehook, target *child) (time.Duration, error) {
	for _, order := range []string{"hang", "keep-ids"} {
		if _, err := target.tell(order); err != nil {
			return 0, err
		}
	}
	if _, err := target.look(); err != nil { // from here on ids are kept
		return 0, err
	}
	// A short backlog is gone by now: there must be something to hang on.
	if _, err := side.post(ctx, "-n", strconv.Itoa(2*backlogFlight)); err != nil {
		return 0, err
	}
	r, err := waitReceived(ctx, target, backlogFlight)
	if err != nil {
		return 0, err
	}
	if err := side.kill(); err != nil {
		return 0, err
	}
	late, err := target.look()
	if err != nil {
		return 0, err
	}
	open := append(r.IDs, late.IDs...)
	// What hung last is what was open: those before it were answered.
	open = open[max(0, len(open)-backlogFlight):]
	if _, err := target.tell("answer 0s"); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := side.start(ctx, s.sidehook); err != nil {
		return 0, err
	}
	for {
		if time.Since(began) > deliverTimeout {
			return 0, fmt.Errorf("%d deliveries that were in flight were not made again", len(open))
		}
		r, err := target.look()
		if err != nil {
			return 0, err
		}
		open = slices.DeleteFunc(open, func(id string) bool { return slices.Contains(r.IDs, id) })
		if len(open) == 0 {
			return time.Since(began), nil
		}
		<-time.After(lookEvery)
	}
}

// watchMemory reads the process's own memory again and again until the function that it returns is called, which gives
// the most that was seen.
func watchMemory(ctx context.Context, side *sidehook) (stop func() int64) {
	ctx, cancel := context.WithCancel(ctx)
	most := make(chan int64, 1)
	pid := side.pid()
	go func() {
		var peak int64
		for {
			if held, err := memory(pid, "RssAnon"); err == nil {
				peak = max(peak, held)
			}
			select {
			case <-ctx.Done():
				most <- peak
				return
			case <-time.After(watchEvery):
			}
		}
	}()
	return func() int64 {
		cancel()
		return <-most
	}
}
