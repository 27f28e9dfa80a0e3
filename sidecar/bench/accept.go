package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// acceptFor is how long a turn of intake lasts, acceptRate the rate at which its answers are timed.
	acceptFor   = 8 * time.Second
	ciAcceptFor = 2 * time.Second
	acceptRate  = 5000
	// syncsFor is how long the disk's syncs are counted, commits how many bare commits are timed.
	syncsFor = time.Second
	commits  = 2000
	// fastDisk is the rate of syncs from which on the absolute figure counts.
	fastDisk = 2000
)

// accept measures the intake: events that are on disk with their deliveries before they are answered.
func accept(ctx context.Context, s settings, b bounds, folder string, out *report) (err error) {
	target, addr, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.stop()) }()
	bare, err := startRole(ctx, "accept")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()
	bareAddr, err := bare.line()
	if err != nil {
		return err
	}
	side, err := configureOutbound(folder, 512, destination{id: "bench", addr: addr, types: "*", maxFlight: 8})
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
	syncs, err := syncRate(folder)
	if err != nil {
		return err
	}
	commit, err := commitTime(folder)
	if err != nil {
		return err
	}
	lasts := acceptFor
	if s.ci {
		lasts = ciAcceptFor
	}
	var ours, yardstick, ratios, paced []float64
	for range s.pairs {
		r, err := side.post(ctx, "-for", lasts.String())
		if err != nil {
			return err
		}
		y, err := runRole(ctx, "post", "-addr", bareAddr, "-for", lasts.String())
		if err != nil {
			return err
		}
		p, err := side.post(ctx, "-for", lasts.String(), "-rate", fmt.Sprint(acceptRate))
		if err != nil {
			return err
		}
		ours, yardstick = append(ours, r.rate()), append(yardstick, y.rate())
		ratios, paced = append(ratios, r.rate()/y.rate()), append(paced, milliseconds(p.P99))
	}
	out.printf("accepted a second %.0f, a bare handler %.0f; at %d/s p99 %.1f ms; the disk syncs %.0f times a second\n",
		ours, yardstick, acceptRate, paced, syncs)
	out.add(figure{name: "events accepted, of a bare handler", got: fmt.Sprintf("%.0f/s", median(ours)),
		yardstick: fmt.Sprintf("%.0f/s without a disk", median(yardstick)), value: median(ratios), bound: b.acceptShare, atLeast: true})
	if syncs >= fastDisk {
		out.add(figure{name: "events accepted", yardstick: fmt.Sprintf("fdatasync %.0f/s", syncs),
			value: median(ours), bound: b.acceptRate, unit: "/s", atLeast: true})
	}
	out.add(figure{name: fmt.Sprintf("p99 of an answer at %d/s", acceptRate), got: fmt.Sprintf("%.1f ms", median(paced)),
		yardstick: fmt.Sprintf("bare commit %.2f ms", milliseconds(commit)),
		value:     median(paced), bound: b.acceptMilliseconds + 4*milliseconds(commit), unit: " ms"})
	return nil
}

// syncRate counts how often a second a file in folder can be written and synced.
func syncRate(folder string) (float64, error) {
	f, err := os.Create(filepath.Join(folder, "syncs"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	page := make([]byte, os.Getpagesize())
	n := 0
	began := time.Now()
	for ; time.Since(began) < syncsFor; n++ {
		if _, err := f.WriteAt(page, 0); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("sync: %w", err)
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// commitTime is the p99 of bbolt's own commit of an event's bytes, one at a time.
func commitTime(folder string) (time.Duration, error) {
	dir := filepath.Join(folder, "commits")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	bare, err := openBare(dir, bodyBytes)
	if err != nil {
		return 0, err
	}
	took := make([]time.Duration, commits)
	for i := range took {
		began := time.Now()
		if err := bare.put(fmt.Appendf(nil, "%0*d", bareKeyBytes, i)); err != nil {
			return 0, errors.Join(err, bare.close())
		}
		took[i] = time.Since(began)
	}
	return percentile(took, 0.99), bare.close()
}
