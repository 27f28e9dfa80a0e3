package egress

import (
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

// Defaults of Keep, and what bounds it.
const (
	DefaultKeepDelivered = 30 * 24 * time.Hour
	DefaultKeepDead      = 90 * 24 * time.Hour
	DefaultKeepLog       = 30 * 24 * time.Hour
	// MinKeep is how long an event is kept whatever Keep says: for so long a repeat of its id is answered as such.
	MinKeep = 24 * time.Hour
)

const (
	// DefaultPurgeInterval is the pause between two passes. A pass reads what is old enough to go, and little else.
	DefaultPurgeInterval = 15 * time.Minute
	// pressInterval is the pause between two looks at how full the store is.
	pressInterval = time.Minute
	// pressShare of the store's limit is where what is delivered begins to go before its time.
	pressShare = 0.8
	// logShare is the part of the store's limit that the attempts may take.
	logShare = 4
)

// Keep says how long something stays after its end; a zero field stands for its default.
type Keep struct {
	// Delivered events go so long after their last delivery, and so do those without any after they were accepted.
	Delivered time.Duration
	// Dead: deliveries that ended otherwise (DEAD, CANCELLED, DISCARDED). An event goes with the last of its deliveries.
	Dead time.Duration
	// Log: attempts, after they were made. They go with their event at the latest.
	Log time.Duration
}

func (k Keep) filled() Keep {
	return Keep{
		Delivered: max(MinKeep, cmp.Or(k.Delivered, DefaultKeepDelivered)),
		Dead:      max(MinKeep, cmp.Or(k.Dead, DefaultKeepDead)),
		Log:       cmp.Or(k.Log, DefaultKeepLog),
	}
}

// PurgerConfig says what a Purger works on.
type PurgerConfig struct {
	Outbox *BoltOutbox
	// Keep returns what holds now. Nil: the defaults.
	Keep func() Keep
	// LogBytes bounds what the attempts take; default a quarter of the store's limit.
	LogBytes int64
	// Interval between two passes; default DefaultPurgeInterval.
	Interval time.Duration
	Logger   *slog.Logger
	// OnPurge, if set, hears how many events and how many attempts each step deleted. It must not block.
	OnPurge func(events, attempts int)
}

// Purger deletes what is past its time, in this order: events whose deliveries have all ended, each longer ago than Keep
// says of its state, with all that belongs to them; attempts, by age; the oldest attempts while they take more than they
// may. Where the store is filled to 80% of its limit, which lasts until others can accept nothing, it does not wait for
// that: first the oldest events that are delivered, discarded or cancelled, then the oldest attempts go early, none
// before it is 24 hours old. What waits is never deleted, however old.
//
// It deletes an event only if its deliveries still are what it read, and nothing by age while the clock is in doubt (see
// clock.Guard).
type Purger struct {
	outbox   *BoltOutbox
	keep     func() Keep
	logBytes int64
	interval time.Duration
	log      *slog.Logger
	onPurge  func(events, attempts int)
	guard    clock.Guard
	wall     func() time.Time
	still    atomic.Pointer[string]
}

// NewPurger makes the purger of cfg.Outbox. Nothing happens before Run.
func NewPurger(cfg PurgerConfig) (*Purger, error) {
	if cfg.Outbox == nil {
		return nil, errors.New("purger without an outbox")
	}
	if cfg.Keep == nil {
		cfg.Keep = func() Keep { return Keep{} }
	}
	if cfg.OnPurge == nil {
		cfg.OnPurge = func(int, int) {}
	}
	_, limit := cfg.Outbox.store.Usage()
	return &Purger{
		outbox:   cfg.Outbox,
		keep:     cfg.Keep,
		logBytes: cmp.Or(cfg.LogBytes, limit/logShare),
		interval: cmp.Or(cfg.Interval, DefaultPurgeInterval),
		log:      cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		onPurge:  cfg.OnPurge,
		guard:    clock.NewGuard(cfg.Outbox.newest, cfg.Outbox.opened.UnixMilli()),
		wall:     time.Now,
	}, nil
}

// StandsStill says why nothing is purged by age at the moment; empty: the clock is not in doubt.
func (p *Purger) StandsStill() string {
	if s := p.still.Load(); s != nil {
		return *s
	}
	return ""
}

// Run purges until ctx ends, and then returns nil. It returns an error only when the store has ended.
func (p *Purger) Run(ctx context.Context) error {
	tick := time.NewTicker(min(pressInterval, p.interval))
	defer tick.Stop()
	var lastPass time.Duration
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var err error
		since := time.Since(p.outbox.opened)
		if pass := since-lastPass >= p.interval; pass || p.pressed() || p.logTooBig() {
			if pass {
				lastPass = since
			}
			err = p.pass(ctx)
		} else {
			p.doubt() // the guard looks at the clock once a minute
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, store.ErrClosed):
			return nil
		case store.Fatal(err):
			return fmt.Errorf("purge outbox: %w", err)
		case err != nil:
			p.log.LogAttrs(ctx, slog.LevelWarn, "purge outbox", slog.Any("err", err))
		}
	}
}

// pressed reports whether the store is so full that what is delivered goes early.
func (p *Purger) pressed() bool {
	used, limit := p.outbox.store.Usage()
	return float64(used) > float64(limit)*pressShare
}

func (p *Purger) logTooBig() bool { return p.outbox.LogBytes() > p.logBytes }

// pass goes over events and attempts once, the oldest first, as far as something of them may go.
func (p *Purger) pass(ctx context.Context) error {
	if err := p.walkEvents(ctx); err != nil {
		return err
	}
	if err := p.walkAttempts(ctx); err != nil {
		return err
	}
	return p.forgetEndpoints(ctx)
}

// doubt says why the clock is in doubt, and notes it.
func (p *Purger) doubt() string {
	why := p.guard.Observe(p.mono(), p.wall().UnixMilli())
	if old := p.StandsStill(); old != why {
		p.still.Store(&why)
		if why != "" {
			p.log.LogAttrs(context.Background(), slog.LevelWarn, "purge stands still", slog.String("reason", why))
		}
	}
	return why
}

// mono is the time since the outbox was opened, in milliseconds, which no change of the wall clock touches.
func (p *Purger) mono() int64 { return time.Since(p.outbox.opened).Milliseconds() }

// past reports whether something that ended at since, unix milliseconds, has been kept for longer than that.
func (p *Purger) past(since int64, keep time.Duration, now int64) bool {
	return now-since > keep.Milliseconds() && !p.guard.LongAgo(keep, p.mono())
}

// commit lets op, which answers through done, ride with a commit, and gives way then.
func (p *Purger) commit(ctx context.Context, op store.Op, done <-chan error) error {
	if err := p.outbox.store.Submit(op, store.Lazy); err != nil {
		return err
	}
	select {
	case err := <-done:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	return giveWay(ctx)
}

// giveWay leaves the processor and the disk to the deliveries between two steps.
func giveWay(ctx context.Context) error {
	select {
	case <-time.After(stepPause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
