package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// manyCallers is the figure.
	manyCallers = 256
	// callFor is how long a turn lasts.
	callFor = 2 * time.Second
	// ciCallFor is the same in the short form.
	ciCallFor = 500 * time.Millisecond
)

// inprocess measures claims without Envoy and gRPC: how much of bare bbolt's rate is left with many callers, and how
// much longer than a commit a single one waits.
func inprocess(ctx context.Context, s settings, b bounds, folder string, out *report) (err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	bare, err := openBare(folder, bareValueBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	in, err := openInbox(ctx, filepath.Join(folder, "inbox"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.close()) }()

	put := func() error { return bare.put([]byte(rand.Text() + rand.Text())[:bareKeyBytes]) }
	claim := func() error { return in.take(ctx, sourceName, freshID(), settleNever) }
	claimDone := func() error { return in.take(ctx, sourceName, freshID(), settleQueue) }

	took := callFor
	if s.ci {
		took = ciCallFor
	}
	var many, single [3]results
	for range s.pairs {
		for i, call := range []func() error{put, claim, claimDone} {
			for callers, into := range map[int]*results{manyCallers: &many[i], 1: &single[i]} {
				r, err := callAll(callers, took, call)
				if err != nil {
					return err
				}
				*into = append(*into, r)
			}
		}
	}
	rows := []string{fmt.Sprintf("\t%d callers, a second\tof bare bbolt\t1 caller, median", manyCallers)}
	for i, name := range []string{"bare bbolt, one Put each", "claim", "claim and DONE"} {
		rows = append(rows, fmt.Sprintf("%s\t%.0f\t%.2f\t%.0f µs", name, median(many[i].rates()),
			median(many[i].ratios(many[0])), median(single[i].medians())))
	}
	out.table(rows)
	out.add(figure{name: fmt.Sprintf("claims in process, %d callers", manyCallers),
		got: fmt.Sprintf("%.0f/s", median(many[1].rates())), yardstick: fmt.Sprintf("bare bbolt %.0f/s", median(many[0].rates())),
		value: median(many[1].ratios(many[0])), bound: b.claims, atLeast: true})
	alone, commit := median(single[1].medians()), median(single[0].medians())
	out.add(figure{name: "claim in process, 1 caller, beyond a commit",
		got: fmt.Sprintf("%.0f µs", alone), yardstick: fmt.Sprintf("commit %.0f µs", commit),
		value: alone - commit, bound: b.claimMicroseconds, unit: " µs"})
	return nil
}

// freshID returns a random id of 30 bytes.
func freshID() string { return "msg_" + rand.Text() }

// result is one turn of calls: how many a second, and the median of their times in µs.
type result struct{ rate, median float64 }

type results []result

func (rs results) rates() []float64 {
	all := make([]float64, len(rs))
	for i, r := range rs {
		all[i] = r.rate
	}
	return all
}

func (rs results) medians() []float64 {
	all := make([]float64, len(rs))
	for i, r := range rs {
		all[i] = r.median
	}
	return all
}

// ratios divides rates turn by turn.
func (rs results) ratios(yardstick results) []float64 {
	all := make([]float64, len(rs))
	for i, r := range rs {
		all[i] = r.rate / yardstick[i].rate
	}
	return all
}

// callAll lets callers call again and again for a time; the first error ends it.
func callAll(callers int, lasts time.Duration, call func() error) (result, error) {
	var failed atomic.Pointer[error]
	took := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range callers {
		wg.Go(func() {
			for failed.Load() == nil {
				start := time.Now()
				if start.Sub(began) >= lasts {
					return
				}
				if err := call(); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(began)
	if err := failed.Load(); err != nil {
		return result{}, *err
	}
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	return result{rate: float64(len(all)) / elapsed.Seconds(), median: microseconds(percentile(all, 0.5))}, nil
}
