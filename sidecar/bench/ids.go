package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/extauthz"
)

const (
	// checkCallers is the figure.
	checkCallers = 64
	// fillCallers fill the store; many, so that a commit carries many.
	fillCallers = 2048
	// checkFor is how long a turn of Checks lasts, ciCheckFor the same in the short form.
	checkFor   = 5 * time.Second
	ciCheckFor = time.Second
	// oldSource holds the ids that are purged: one in oldShare of all, a million of ten.
	oldSource = "old"
	oldShare  = 10
	// purgeEvery starts the purge soon after its source's retention has been cut.
	purgeEvery = 100 * time.Millisecond
	// keepIDs is the retention of everything else.
	keepIDs = 30 * 24 * time.Hour
)

// idsBench measures an inbox that holds many ids.
type idsBench struct {
	out    *report
	folder string
	turns  int
	lasts  time.Duration
	n      int
	table  *extauthz.Sources
	// expired cuts the retention of oldSource.
	expired atomic.Bool
}

func ids(ctx context.Context, s settings, b bounds, folder string, out *report) error {
	table, err := loadTable(folder)
	if err != nil {
		return err
	}
	i := &idsBench{out: out, folder: folder, turns: s.pairs, lasts: checkFor, n: s.ids, table: table}
	if s.ci {
		i.lasts = ciCheckFor
	}
	return i.run(ctx, b)
}

func (i *idsBench) retention(source string) (time.Duration, bool) {
	if source == oldSource && i.expired.Load() {
		return time.Millisecond, true
	}
	return keepIDs, true
}

func (i *idsBench) run(ctx context.Context, b bounds) error {
	var empty []float64
	for turn := range i.turns {
		in, err := openInbox(ctx, filepath.Join(i.folder, "empty"+strconv.Itoa(turn)), i.retention)
		if err != nil {
			return err
		}
		p99, err := i.checks(ctx, in)
		if err := errors.Join(err, in.close()); err != nil {
			return err
		}
		empty = append(empty, p99)
	}
	folder := filepath.Join(i.folder, "full")
	in, err := openInbox(ctx, folder, i.retention)
	if err != nil {
		return err
	}
	full, purging, err := i.measure(ctx, in, b)
	if err := errors.Join(err, in.close()); err != nil {
		return err
	}
	i.out.printf("Check at %d callers, p99 in ms: empty %.1f, with %d ids %.1f, while %d are purged %.1f\n",
		checkCallers, empty, i.n, full, i.n/oldShare, purging)
	i.out.add(figure{name: fmt.Sprintf("Check p99 with %d ids", i.n), got: fmt.Sprintf("%.1f ms", median(full)),
		yardstick: fmt.Sprintf("empty %.1f ms", median(empty)), value: median(full) / median(empty), bound: b.idsSlower, unit: " times"})
	i.out.add(figure{name: fmt.Sprintf("Check p99 while %d are purged", i.n/oldShare), got: fmt.Sprintf("%.1f ms", median(purging)),
		yardstick: fmt.Sprintf("not purging %.1f ms", median(full)), value: median(purging) / median(full), bound: b.idsPurging, unit: " times"})
	return i.reopen(ctx, folder, b)
}

// measure fills the inbox, then times Checks on it, without and with a purge.
func (i *idsBench) measure(ctx context.Context, in *inbox, b bounds) (full, purging []float64, err error) {
	before, err := settledMemory()
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	if err := fill(ctx, in, i.n); err != nil {
		return nil, nil, err
	}
	took := time.Since(began)
	used, _ := in.store.Usage()
	info, err := os.Stat(in.store.Path())
	if err != nil {
		return nil, nil, err
	}
	after, err := settledMemory()
	if err != nil {
		return nil, nil, err
	}
	i.out.printf("%d ids of %d bytes, claimed and DONE in %s (%.0f a second); %.0f MiB in use; RssAnon %.0f MiB, before %.0f MiB\n",
		i.n, len(freshID()), took.Round(time.Second), float64(i.n)/took.Seconds(), mib(used), mib(after), mib(before))
	i.out.add(figure{name: fmt.Sprintf("file with %d ids", i.n), value: mib(info.Size()) / 1024, bound: b.idsFileGiB, unit: " GiB"})
	i.out.add(figure{name: fmt.Sprintf("memory with %d ids, RssAnon", i.n), got: fmt.Sprintf("%.0f MiB", mib(after)),
		yardstick: fmt.Sprintf("empty %.0f MiB", mib(before)), value: mib(after - before), bound: b.idsMemoryMiB, unit: " MiB more"})
	for range i.turns {
		p99, err := i.checks(ctx, in)
		if err != nil {
			return nil, nil, err
		}
		full = append(full, p99)
	}
	purging, err = i.purge(ctx, in)
	return full, purging, err
}

// purge times Checks while the old ids are purged.
func (i *idsBench) purge(ctx context.Context, in *inbox) (p99s []float64, err error) {
	var purged atomic.Int64
	started := make(chan struct{})
	begin := sync.OnceFunc(func() { close(started) })
	purger, err := extauthz.NewPurger(extauthz.PurgerConfig{Inbox: in.BoltInbox, Interval: purgeEvery, OnPurge: func(rows int) {
		purged.Add(int64(rows))
		begin()
	}})
	if err != nil {
		return nil, err
	}
	i.expired.Store(true)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- purger.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	select {
	case <-started:
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("nothing is purged: %q", purger.StandsStill())
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	old := int64(i.n / oldShare)
	for len(p99s) == 0 || purged.Load() < old && len(p99s) < i.turns {
		p99, err := i.checks(ctx, in)
		if err != nil {
			return nil, err
		}
		p99s = append(p99s, p99)
	}
	i.out.printf("purged %d of %d old ids in the turns\n", purged.Load(), old)
	return p99s, nil
}

// reopen times the opening of a store that was closed a moment ago, until it could claim.
func (i *idsBench) reopen(ctx context.Context, folder string, b bounds) error {
	began := time.Now()
	in, err := openInbox(ctx, folder, i.retention)
	if err != nil {
		return err
	}
	took := time.Since(began)
	if err := in.close(); err != nil {
		return err
	}
	i.out.add(figure{name: fmt.Sprintf("reopening with %d ids", i.n), value: took.Seconds(), bound: b.idsOpenSeconds, unit: " s"})
	return nil
}

// fill claims n fresh ids and settles them as DONE, the old ones first.
func fill(ctx context.Context, in *inbox, n int) error {
	var next atomic.Int64
	errs := make(chan error, fillCallers)
	var wg sync.WaitGroup
	for range fillCallers {
		wg.Go(func() {
			for {
				j := int(next.Add(1)) - 1
				if j >= n {
					return
				}
				source := sourceName
				if j < n/oldShare {
					source = oldSource
				}
				if err := in.take(ctx, source, freshID(), settleWait); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// settledMemory is this process's own memory without what it could give back.
func settledMemory() (int64, error) {
	debug.FreeOSMemory()
	return memory(os.Getpid(), "RssAnon")
}

// checks lets callers send signed Checks of fresh ids to a gate on the inbox for a turn; each claim is settled at once.
// It returns the p99 of the Checks alone in ms.
func (i *idsBench) checks(ctx context.Context, in *inbox) (float64, error) {
	server, err := extauthz.New(extauthz.Config{Inbox: settling{in.BoltInbox}, Sources: i.table})
	if err != nil {
		return 0, err
	}
	took := make([][]time.Duration, checkCallers)
	errs := make(chan error, checkCallers)
	var wg sync.WaitGroup
	began := time.Now()
	for c := range checkCallers {
		wg.Go(func() {
			sign := newSigner()
			for time.Since(began) < i.lasts {
				req := sign.checkRequest(time.Now())
				start := time.Now()
				answer, err := server.Check(ctx, req)
				took[c] = append(took[c], time.Since(start))
				if err == nil && answer.GetStatus().GetCode() != 0 {
					err = fmt.Errorf("a good Check is answered %d: %s", answer.GetDeniedResponse().GetStatus().GetCode(),
						answer.GetDeniedResponse().GetBody())
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	return milliseconds(percentile(all, 0.99)), nil
}

// settling is an inbox whose claims are DONE at once: an app that answers without delay.
type settling struct{ *extauthz.BoltInbox }

func (s settling) Claim(ctx context.Context, req extauthz.ClaimRequest) (extauthz.Claim, error) {
	claim, err := s.BoltInbox.Claim(ctx, req)
	if err != nil || claim.Outcome != extauthz.Claimed {
		return claim, err
	}
	return claim, s.Settle(ctx, req.Key, claim.Token, extauthz.EndDone, false)
}

var _ extauthz.Inbox = settling{}
