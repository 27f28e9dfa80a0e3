package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"
)

const (
	// singles are the events of an otherwise idle system, each singlePause after the last.
	singles     = 500
	ciSingles   = 100
	singlePause = 20 * time.Millisecond
	// hungBacklog waits at an endpoint that never answers, while events come at healthyRate for the healthy ones.
	hungBacklog   = 100_000
	ciHungBacklog = 10_000
	healthy       = 5
	healthyRate   = 1000
	healthyFor    = 10 * time.Second
	ciHealthyFor  = 3 * time.Second
)

// promptness measures how soon an event arrives, alone and beside an endpoint that hangs.
func promptness(ctx context.Context, s settings, b bounds, folder string, out *report) error {
	if err := single(ctx, s, b, filepath.Join(folder, "single"), out); err != nil {
		return fmt.Errorf("one event at a time: %w", err)
	}
	if err := besideHung(ctx, s, b, filepath.Join(folder, "hung"), out); err != nil {
		return fmt.Errorf("beside an endpoint that hangs: %w", err)
	}
	return nil
}

// single posts one event at a time and waits for each in this process, so that both times are of one clock.
func single(ctx context.Context, s settings, b bounds, folder string, out *report) (err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	arrivals := make(chan time.Time, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := newReader(c); ; {
					if _, _, err := in.message(); err != nil {
						return
					}
					arrivals <- time.Now()
					if _, err := c.Write(appAnswer); err != nil {
						return
					}
				}
			}()
		}
	}()
	side, err := configureOutbound(folder, 512, destination{id: "bench", addr: l.Addr().String(), types: "*", maxFlight: 8})
	if err != nil {
		return err
	}
	if err := side.start(ctx, s.sidehook); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.stop()) }()
	c, err := net.Dial("tcp", side.intake)
	if err != nil {
		return err
	}
	defer c.Close()
	request, sent := eventRequest(side.intake, "invoice.paid")
	in := newReader(c)
	n := singles
	if s.ci {
		n = ciSingles
	}
	var after, whole []time.Duration
	for range n {
		<-time.After(singlePause)
		began := time.Now()
		strconv.AppendInt(request[sent:sent], began.UnixNano(), 10)
		if _, err := c.Write(request); err != nil {
			return err
		}
		first, _, err := in.message()
		if err != nil {
			return err
		}
		answered := time.Now()
		if code := statusOf(first); code != 202 {
			return fmt.Errorf("an event was answered %d", code)
		}
		select {
		case at := <-arrivals:
			after, whole = append(after, max(0, at.Sub(answered))), append(whole, at.Sub(began))
		case <-time.After(deliverTimeout):
			return errors.New("an event did not arrive")
		}
	}
	out.printf("one event at a time: at the receiver %.2f ms after the post, median; p99 %.2f ms\n",
		milliseconds(percentile(whole, 0.5)), milliseconds(percentile(whole, 0.99)))
	out.add(figure{name: "an event on an idle system, p99 after the 202", value: milliseconds(percentile(after, 0.99)),
		bound: b.singleMilliseconds, unit: " ms"})
	return nil
}

// besideHung compares the healthy endpoints' times alone with those beside an endpoint that hangs over a long queue.
func besideHung(ctx context.Context, s settings, b bounds, folder string, out *report) (err error) {
	good, goodAddr, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, good.stop()) }()
	bad, badAddr, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bad.stop()) }()
	if _, err := bad.tell("hang"); err != nil {
		return err
	}
	ds := []destination{{id: "hung", addr: badAddr, types: "hung.*", maxFlight: 8}}
	for i := range healthy {
		ds = append(ds, destination{id: "healthy-" + strconv.Itoa(i), addr: goodAddr, types: "healthy.*", maxFlight: 8})
	}
	side, err := configureOutbound(folder, 512, ds...)
	if err != nil {
		return err
	}
	if err := side.start(ctx, s.sidehook); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.stop()) }()
	lasts, backlog := healthyFor, hungBacklog
	if s.ci {
		lasts, backlog = ciHealthyFor, ciHungBacklog
	}
	turn := func() (float64, error) {
		if _, err := good.look(); err != nil {
			return 0, err
		}
		posted, err := side.post(ctx, "-type", "healthy.event", "-for", lasts.String(), "-rate", strconv.Itoa(healthyRate))
		if err != nil {
			return 0, err
		}
		r, err := good.look() // one look: its percentiles are of all
		if err != nil {
			return 0, err
		}
		if least := posted.Requests * healthy * 9 / 10; r.Count < least {
			return 0, fmt.Errorf("%d deliveries to healthy endpoints, fewer than %d", r.Count, least)
		}
		return milliseconds(r.P99), nil
	}
	var alone, beside []float64
	for range s.pairs {
		p99, err := turn()
		if err != nil {
			return err
		}
		alone = append(alone, p99)
	}
	if _, err := side.post(ctx, "-type", "hung.event", "-n", strconv.Itoa(backlog)); err != nil {
		return err
	}
	for range s.pairs {
		p99, err := turn()
		if err != nil {
			return err
		}
		beside = append(beside, p99)
	}
	out.printf("p99 of %d healthy endpoints in ms: alone %.1f, beside one that hangs over %d deliveries %.1f\n", healthy, alone, backlog, beside)
	out.add(figure{name: "healthy endpoints' p99 beside one that hangs", got: fmt.Sprintf("%.1f ms", median(beside)),
		yardstick: fmt.Sprintf("alone %.1f ms", median(alone)), value: median(beside) / median(alone), bound: b.hungSlower, unit: " times"})
	return nil
}
