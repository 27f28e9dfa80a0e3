package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// lazyDelay is how long a lazy operation waits for an urgent one to ride with.
	lazyDelay = 20 * time.Millisecond
	// maxRetryDelay bounds the pause between tries of lazy operations while the disk cannot be written.
	maxRetryDelay = time.Second

	// After a commit of at least gapFrom with more than one caller about, the next one leaves a part of its duration
	// (1/gapShare, at most maxGap) to those whom it answered: they come back with their next operation, and would else
	// miss a commit that started with the first of them, so that two halves took turns on a slow disk. On a fast one
	// the pause would cost more than the second commit.
	gapFrom  = 2 * time.Millisecond
	gapShare = 8
	maxGap   = time.Millisecond

	// slowCommit is a commit that all callers feel: a local disk takes some milliseconds. One that takes so long has too
	// much else to do, or is not local. It is said once in slowEvery.
	slowCommit = 100 * time.Millisecond
	slowEvery  = time.Minute
	// failedEvery is how often it is said that commits fail, unless one of them ends the store.
	failedEvery = 10 * time.Second

	// maxUrgent and maxLazy bound a batch: the commit of a batch is the latency of all in it.
	maxUrgent = 1024
	maxLazy   = 1024

	// maxQueue bounds what waits. Urgent callers wait themselves, so the gate's limit on Checks comes first; lazy ones
	// pile up while the disk is full.
	maxQueue = 1 << 16
)

// Op is an operation on the store. Its methods are called on the committer's goroutine.
type Op interface {
	// Apply reads and writes through tx. It may be called again in a new transaction, and must then start afresh.
	// An error ends this operation alone: what it wrote is undone, the others of the batch are not affected.
	Apply(tx *Tx) error
	// Done is called once. nil means that what Apply wrote is written and synced (or that it wrote nothing). After
	// ErrWrite it is normally not written. Done must not block.
	Done(err error)
}

// Urgency says when an operation is committed. The zero value is invalid.
type Urgency uint8

const (
	_ Urgency = iota
	// Urgent starts a commit at once when none is running, and else joins the next.
	Urgent
	// Lazy starts no commit: it rides with the next, or goes alone after 20 ms. Done reports a failed write.
	Lazy
	// Persistent is Lazy, and after a failed write is tried again instead of being done.
	Persistent
	// UrgentPersistent is Urgent, and after a failed write is tried again like Persistent. It is never refused with
	// ErrBusy: who submits it bounds how many there are.
	UrgentPersistent
)

type queued struct {
	op         Op
	space      string // whose buckets op means
	persistent bool
}

// queue holds the operations that wait. mu guards all fields but wake.
type queue struct {
	mu      sync.Mutex
	urgent  []queued
	lazy    []queued
	lazyDue time.Time
	retry   time.Duration // pause after the last failed write, 0 after a good one
	most    int           // after a failed write: so many lazy ones may be in a batch, without urgent ones; 0 when all is well
	turn    bool          // after a failed write: it is the turn of the urgent ones
	err     error         // why nothing is taken any more
	wake    chan struct{}
}

// Submit queues op. It returns ErrBusy, ErrClosed or the error that ended the store; Done is then not called.
func (s *Store) Submit(op Op, u Urgency) error { return s.submit(op, "", u) }

func (s *Store) submit(op Op, space string, u Urgency) error {
	q := &s.queue
	q.mu.Lock()
	if q.err != nil {
		defer q.mu.Unlock()
		return q.err
	}
	wake := false
	if u == Urgent || u == UrgentPersistent {
		if len(q.urgent) >= maxQueue && u == Urgent {
			q.mu.Unlock()
			return ErrBusy
		}
		wake = len(q.urgent) == 0
		q.urgent = append(q.urgent, queued{op, space, u == UrgentPersistent})
	} else {
		if len(q.lazy) >= maxQueue {
			q.mu.Unlock()
			return ErrBusy
		}
		if len(q.lazy) == 0 {
			wake = true
			q.lazyDue = time.Now().Add(max(lazyDelay, q.retry))
		}
		q.lazy = append(q.lazy, queued{op, space, u == Persistent})
	}
	q.mu.Unlock()
	if wake {
		q.signal()
	}
	return nil
}

func (q *queue) urgentWaiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.urgent)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take moves the next batch into buf, urgent operations first, or says how long until one is due (negative: nothing
// waits). After a failed write lazy operations, among them what is tried again, and urgent ones take turns, and the lazy ones
// go few at a time: on a full disk there may be room for the end of an attempt, which makes more, but not for it beside a
// new event, nor for a hundred of them.
func (q *queue) take(buf []queued, all bool) (batch []queued, urgent int, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lazy := 0
	if len(q.lazy) > 0 {
		wait = time.Until(q.lazyDue)
		switch due := wait <= 0 || all; {
		case len(q.urgent) == 0 && !due:
			return buf, 0, wait
		case q.most == 0:
			lazy = maxLazy
		case len(q.urgent) == 0 || due && !q.turn:
			q.turn = true
			buf, q.lazy = move(buf, q.lazy, q.most)
			return buf, 0, 0
		}
	} else if len(q.urgent) == 0 {
		return buf, 0, -1
	}
	q.turn = false
	buf, q.urgent = move(buf, q.urgent, maxUrgent)
	urgent = len(buf)
	buf, q.lazy = move(buf, q.lazy, lazy)
	return buf, urgent, 0
}

func move(dst, src []queued, n int) (newDst, rest []queued) {
	n = min(n, len(src))
	dst = append(dst, src[:n]...)
	rest = src[:copy(src, src[n:])]
	clear(src[len(rest):])
	return dst, rest
}

// requeue puts persistent operations back in front after a failed write of a batch of that size.
func (q *queue) requeue(ops []queued, batch int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(ops) == 0 {
		if q.most == 0 {
			q.most = maxLazy
		}
		return
	}
	q.most = max(1, min(batch/2, len(ops)))
	q.retry = min(max(lazyDelay, 2*q.retry), maxRetryDelay)
	q.lazyDue = time.Now().Add(q.retry)
	q.lazy = append(ops, q.lazy...)
}

func (q *queue) succeeded() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.retry = 0
	if q.most *= 2; q.most > maxLazy {
		q.most = 0
	}
}

// close refuses all further operations with err; the first err stays.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
}

func (q *queue) fail(err error) {
	q.close(err)
	q.signal()
}

func (q *queue) fatal() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if Fatal(q.err) {
		return q.err
	}
	return nil
}

// Run commits what is submitted until ctx ends; then it takes no more, commits what waits, and returns nil. It
// returns the error (see Fatal) after which the store cannot be trusted; all that wait get it too.
func (s *Store) Run(ctx context.Context) error {
	if !s.started.CompareAndSwap(false, true) {
		return errors.New("store run twice")
	}
	defer close(s.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	stopping := false
	var batch []queued
	for {
		if err := s.queue.fatal(); err != nil {
			return s.abandon(err)
		}
		var urgent int
		var wait time.Duration
		batch, urgent, wait = s.queue.take(batch[:0], stopping)
		if len(batch) > 0 {
			start := time.Now()
			if err := s.commitBatch(batch, stopping); err != nil {
				return s.abandon(err)
			}
			if took := time.Since(start); took >= gapFrom && !stopping && urgent+s.queue.urgentWaiting() > 1 {
				timer.Reset(min(took/gapShare, maxGap))
				<-timer.C
			}
			continue
		}
		if stopping {
			return nil
		}
		if wait < 0 {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case <-s.queue.wake:
		case <-timer.C:
		case <-ctx.Done():
			stopping = true
			s.queue.close(ErrClosed)
		}
	}
}

// abandon answers all that wait with err.
func (s *Store) abandon(err error) error {
	s.queue.close(err)
	for {
		batch, _, _ := s.queue.take(nil, true)
		if len(batch) == 0 {
			return err
		}
		for _, q := range batch {
			q.op.Done(err)
		}
	}
}

// noteFailed logs a commit that failed, or counts it for the next one that is logged: on a full disk each of them does, and
// the log may lie on that disk too. One that ends the store is always logged.
func (s *Store) noteFailed(start time.Time, took time.Duration, operations int, err error) {
	if err == nil {
		return
	}
	s.failed.since++
	if !Fatal(err) && !s.failed.told.IsZero() && start.Sub(s.failed.told) < failedEvery {
		return
	}
	s.log.LogAttrs(context.Background(), slog.LevelError, "commit", slog.Int64("duration_ms", took.Milliseconds()),
		slog.Int("operations", operations), slog.Int("failed_commits", s.failed.since), slog.Any("err", err))
	s.failed.told, s.failed.since = start, 0
}

// noteSlow logs a commit that took too long, or counts it for the next one that is logged.
func (s *Store) noteSlow(start time.Time, took time.Duration, operations int) {
	if took < slowCommit {
		return
	}
	s.slow.since++
	if !s.slow.told.IsZero() && start.Sub(s.slow.told) < slowEvery {
		return
	}
	s.log.LogAttrs(context.Background(), slog.LevelWarn, "slow commit: the store needs a local disk that is not busy",
		slog.Int64("duration_ms", took.Milliseconds()), slog.Int("operations", operations), slog.Int("slow_commits", s.slow.since))
	s.slow.told, s.slow.since = start, 0
}

// commitBatch executes a batch and answers it. Its error is fatal.
func (s *Store) commitBatch(batch []queued, last bool) error {
	own := make([]error, len(batch))
	start := time.Now()
	wrote, err := s.write(batch, own)
	took := time.Since(start)
	if (wrote || err != nil) && s.onCommit != nil {
		s.onCommit(took, len(batch), err)
	}
	s.noteFailed(start, took, len(batch), err)
	s.noteSlow(start, took, len(batch))
	// The queue is told before the answers: who gets one and asks again shall not wait in vain.
	fatal := Fatal(err)
	switch {
	case fatal:
		s.queue.close(err)
	case err == nil:
		s.queue.succeeded()
		s.keepPID()
	}
	var again []queued
	for i, q := range batch {
		switch {
		case own[i] != nil:
			q.op.Done(own[i])
		case err != nil && !fatal && q.persistent && !last:
			again = append(again, q)
		default:
			q.op.Done(err)
		}
	}
	switch {
	case fatal:
		return err
	case err != nil:
		s.queue.requeue(again, len(batch))
	}
	return nil
}

// errRestart: an operation failed after it had written; the batch is done again without it.
var errRestart = errors.New("restart batch")

// write applies ops in one transaction and commits it if anything was written. An operation's own error is put into
// own at its place; operations that have one there already are left out.
func (s *Store) write(ops []queued, own []error) (wrote bool, err error) {
	for {
		wrote, err = s.writeOnce(ops, own)
		if !errors.Is(err, errRestart) {
			return wrote, err
		}
	}
}

func (s *Store) writeOnce(ops []queued, own []error) (wrote bool, err error) {
	var btx *bbolt.Tx
	err = s.guard(func() error {
		var err error
		if btx, err = s.begin(true); err != nil {
			return err
		}
		s.noteUsage(btx)
		tx := newTx(btx)
		for i, q := range ops {
			if own[i] != nil {
				continue
			}
			writes := tx.writes
			if own[i] = q.op.Apply(tx.In(q.space)); own[i] == nil {
				continue
			}
			if errors.Is(own[i], ErrCorrupt) {
				return own[i]
			}
			if tx.writes != writes {
				return errRestart
			}
		}
		if tx.writes == 0 {
			return nil
		}
		for _, fn := range tx.before {
			if err := fn(); err != nil {
				return fmt.Errorf("%w: before commit: %w", ErrUnusable, err)
			}
		}
		wrote = true
		s.chooseFreelistSync()
		if err := s.commit(btx); err != nil {
			return classify(err)
		}
		for _, fn := range tx.after {
			fn()
		}
		return nil
	})
	if btx != nil {
		// Harmless after Commit, which ends the transaction in every case.
		_ = s.guard(btx.Rollback)
	}
	return wrote, err
}
