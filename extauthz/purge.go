package extauthz

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/internal/clock"
	"github.com/sidehook/sidehook/internal/store"
)

const (
	// DefaultPurgeInterval is the pause between two passes over the done rows. A pass reads the whole inbox.
	DefaultPurgeInterval = 15 * time.Minute
	// sweepInterval is the pause between two passes over the open rows, which are few.
	sweepInterval = time.Minute

	// A step reads at most stepScan rows in one read transaction and changes at most stepChange of them in one
	// operation that rides with a commit: so much is added to the latency of the Checks in it.
	stepScan   = 2000
	stepChange = 128
	// stepPause after each step leaves the processor and the disk to the Checks.
	stepPause = 5 * time.Millisecond
)

// PurgerConfig says what a Purger works on.
type PurgerConfig struct {
	Inbox *BoltInbox
	// Interval between two passes; default DefaultPurgeInterval.
	Interval time.Duration
	Logger   *slog.Logger
	// OnPurge, if set, hears how many rows each step deleted. It must not block.
	OnPurge func(rows int)
}

// Purger ends what time has ended: claims under HOLD whose lease ran out become UNKNOWN, and rows are deleted once
// their source's retention has passed since they were last seen. A running lease, an UNKNOWN claim, and one whose event the
// app may still get are never deleted; a claim under RETRY whose lease has ended is free for the next delivery with or without
// its row, and goes like the rest. It deletes only the very row that it read, and nothing while the clock is in doubt (see
// clock.Guard).
type Purger struct {
	inbox    *BoltInbox
	interval time.Duration
	log      *slog.Logger
	onPurge  func(int)
	guard    clock.Guard
	wall     func() time.Time
	still    atomic.Pointer[string]
}

// NewPurger makes the purger of cfg.Inbox. Nothing happens before Run.
func NewPurger(cfg PurgerConfig) (*Purger, error) {
	if cfg.Inbox == nil {
		return nil, errors.New("purger without an inbox")
	}
	if cfg.OnPurge == nil {
		cfg.OnPurge = func(int) {}
	}
	return &Purger{
		inbox:    cfg.Inbox,
		interval: cmp.Or(cfg.Interval, DefaultPurgeInterval),
		log:      cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		onPurge:  cfg.OnPurge,
		guard:    clock.NewGuard(cfg.Inbox.newest, cfg.Inbox.opened.UnixMilli()),
		wall:     time.Now,
	}, nil
}

// StandsStill says why nothing is purged at the moment; empty: the clock is not in doubt.
func (p *Purger) StandsStill() string {
	if s := p.still.Load(); s != nil {
		return *s
	}
	return ""
}

// Run purges until ctx ends, and then returns nil. It returns an error only when the store has ended.
func (p *Purger) Run(ctx context.Context) error {
	sweep := time.NewTicker(min(sweepInterval, p.interval))
	defer sweep.Stop()
	var lastPass time.Duration
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
		}
		err := p.walk(ctx, openBucket, p.judgeOpen)
		if since := time.Since(p.inbox.opened); err == nil && since-lastPass >= p.interval {
			lastPass = since
			err = errors.Join(p.walk(ctx, doneBucket, p.judgeDone), p.walk(ctx, contentBucket, p.judgeContent), p.walk(ctx, versionBucket, p.judgeVersions))
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, store.ErrClosed):
			return nil
		case store.Fatal(err):
			return fmt.Errorf("purge inbox: %w", err)
		case err != nil:
			p.log.LogAttrs(ctx, slog.LevelWarn, "purge inbox", slog.Any("err", err))
		}
	}
}

// verdict is what becomes of a row.
type verdict uint8

const (
	keep verdict = iota
	toDelete
	toUnknown
)

// A judge decides on a row of its bucket, as tx has it. It must not keep key or value.
type judge func(tx *store.Tx, key, value []byte, now int64) (verdict, error)

// walk goes over a bucket once, step by step.
func (p *Purger) walk(ctx context.Context, bucket []byte, j judge) error {
	var from []byte
	for {
		doubt := p.doubt()
		if doubt != "" && !bytes.Equal(bucket, openBucket) {
			return nil
		}
		op := &purgeOp{b: p.inbox, bucket: bucket, done: make(chan error, 1)}
		next, err := p.scan(op, from, j, doubt != "")
		if err != nil {
			return err
		}
		if len(op.rows) > 0 {
			if err := p.inbox.store.Submit(op, store.Lazy); err != nil {
				return err
			}
			select {
			case err := <-op.done:
				if err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
			if op.deleted > 0 {
				p.onPurge(op.deleted)
			}
		}
		if next == nil {
			return nil
		}
		from = next
		select {
		case <-time.After(stepPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// scan reads on from the row after from and puts into op what is to be changed. It returns the last row read, nil at
// the bucket's end.
func (p *Purger) scan(op *purgeOp, from []byte, j judge, deleteNothing bool) (last []byte, err error) {
	now := p.wall().UnixMilli()
	err = p.inbox.store.View(func(tx *store.Tx) error {
		c := tx.Cursor(op.bucket)
		key, value := c.Seek(from)
		if from != nil && bytes.Equal(key, from) {
			key, value = c.Next()
		}
		for scanned := 0; key != nil; key, value = c.Next() {
			v, err := j(tx, key, value, now)
			if err != nil {
				return err
			}
			if v == toUnknown || v == toDelete && !deleteNothing {
				op.rows = append(op.rows, judged{bytes.Clone(key), bytes.Clone(value), v})
			}
			if scanned++; scanned == stepScan || len(op.rows) == stepChange {
				last = bytes.Clone(key)
				return nil
			}
		}
		return nil
	})
	return last, err
}

func (p *Purger) judgeDone(tx *store.Tx, key, value []byte, now int64) (verdict, error) {
	r, err := decodeRow(value)
	if err != nil {
		return keep, err
	}
	retention, err := p.retention(key)
	if err != nil {
		return keep, err
	}
	// Last may be behind by touchAge; never forget an id before its time.
	v := p.pastRetention(r.Last, now, retention, retention+touchAge(retention))
	if v == toDelete {
		wanted, err := p.inbox.wanted(tx, &r)
		if wanted || err != nil {
			return keep, err
		}
	}
	return v, nil
}

func (p *Purger) judgeOpen(_ *store.Tx, key, value []byte, now int64) (verdict, error) {
	r, err := decodeRow(value)
	if err != nil {
		return keep, err
	}
	switch {
	case p.inbox.state(&r) == StateUnknown:
		if r.State == StatePending {
			return toUnknown, nil
		}
		return keep, nil
	case r.State == StatePending && p.inbox.remaining(&r) > 0:
		return keep, nil
	}
	retention, err := p.retention(key)
	if err != nil {
		return keep, err
	}
	return p.pastRetention(r.Last, now, retention, retention), nil
}

func (p *Purger) judgeContent(_ *store.Tx, _, value []byte, now int64) (verdict, error) {
	c, err := parseContentRow(value)
	if err != nil {
		return keep, corruptRow(err)
	}
	if now >= c.Until {
		return toDelete, nil
	}
	return keep, nil
}

// judgeVersions lets go of what is known of an object like of an id: once nothing was heard of it for the retention.
func (p *Purger) judgeVersions(_ *store.Tx, key, value []byte, now int64) (verdict, error) {
	v, err := parseVersionRow(value)
	if err != nil {
		return keep, corruptRow(err)
	}
	if len(v.Open) > 0 {
		return keep, nil
	}
	retention, err := p.retention(key)
	if err != nil {
		return keep, err
	}
	return p.pastRetention(v.Last, now, retention, retention), nil
}

func (p *Purger) retention(key []byte) (time.Duration, error) {
	source, _, ok := cutLengthPrefixed(key)
	if !ok {
		return 0, corruptRow(fmt.Errorf("%w: key without source", errRow))
	}
	return p.inbox.retentionOf(string(source)), nil
}

func (p *Purger) pastRetention(last, now int64, retention, age time.Duration) verdict {
	if now-last <= age.Milliseconds() || p.guard.LongAgo(retention, p.inbox.mono()) {
		return keep
	}
	return toDelete
}

// doubt says why the clock is in doubt, and notes it.
func (p *Purger) doubt() string {
	why := p.guard.Observe(p.inbox.mono(), p.wall().UnixMilli())
	if old := p.StandsStill(); old != why {
		p.still.Store(&why)
		if why != "" {
			p.log.LogAttrs(context.Background(), slog.LevelWarn, "purge stands still", slog.String("reason", why))
		}
	}
	return why
}

// purgeOp changes the rows of one step, each only if it still is what was read.
type purgeOp struct {
	b       *BoltInbox
	bucket  []byte
	rows    []judged
	deleted int
	done    chan error
}

type judged struct {
	key, value []byte
	verdict    verdict
}

// Apply implements store.Op.
func (op *purgeOp) Apply(tx *store.Tx) error {
	op.deleted = 0
	for _, j := range op.rows {
		value := tx.Get(op.bucket, j.key)
		if !bytes.Equal(value, j.value) {
			continue
		}
		if bytes.Equal(op.bucket, contentBucket) || bytes.Equal(op.bucket, versionBucket) {
			if err := tx.Delete(op.bucket, j.key); err != nil {
				return err
			}
			continue
		}
		r, err := decodeRow(value)
		if err != nil {
			return err
		}
		if j.verdict == toUnknown {
			err = changeState(tx, j.key, value, &r, StateUnknown)
		} else {
			err = op.forget(tx, j.key, value, &r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// forget deletes a row, unless its event was redelivered since it was judged: that leaves the row as it is.
func (op *purgeOp) forget(tx *store.Tx, key, value []byte, r *row) error {
	if wanted, err := op.b.wanted(tx, r); wanted || err != nil {
		return err
	}
	op.deleted++
	return removeRow(tx, op.bucket, key, value, r)
}

// Done implements store.Op.
func (op *purgeOp) Done(err error) { op.done <- err }

// wanted reports whether r's event is kept for the app, which may still get it.
func (b *BoltInbox) wanted(tx *store.Tx, r *row) (bool, error) {
	if r.State != StateStored || b.keeper == nil {
		return false, nil
	}
	return b.keeper.Open(tx, r.Ref)
}
