package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

const (
	// A step, of a job or of the purge, reads at most stepScan rows in one read transaction and changes at most
	// stepChange of them in one operation that rides with a commit: so much is added to the latency of what else is in it.
	stepScan   = 2000
	stepChange = 128
	// stepPause after each step leaves the processor and the disk to the deliveries.
	stepPause = 5 * time.Millisecond
	// jobTick is how often a paced job comes to its deliveries: so much of a second's share it takes at once.
	jobTick = 100 * time.Millisecond
	// jobRetry is the pause after the store could not write.
	jobRetry = time.Second
)

// jobPace is where a job stands between two steps.
type jobPace struct {
	next time.Time  // when its next step may begin
	at   DeliveryID // what it has read up to; jobRow.At is behind where it found nothing to do
}

// Run carries on with the jobs until ctx ends, and then returns nil. It returns an error only when the store has ended.
func (b *BoltRecords) Run(ctx context.Context) error {
	paces := make(map[uint64]*jobPace)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, err := b.work(ctx, paces)
		switch {
		case ctx.Err() != nil || errors.Is(err, store.ErrClosed):
			return nil
		case store.Fatal(err):
			return fmt.Errorf("work on jobs: %w", err)
		case err != nil:
			b.log.LogAttrs(ctx, slog.LevelWarn, "work on jobs", slog.Any("err", err))
			wait = jobRetry
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		case <-timer.C:
		}
	}
}

// work makes one step of the job whose turn it is, if any, and returns how long nothing is to be done then.
func (b *BoltRecords) work(ctx context.Context, paces map[uint64]*jobPace) (time.Duration, error) {
	var running []jobRow
	err := b.view(ctx, "read jobs", func(tx *store.Tx) error {
		all, err := readJobs(tx)
		for _, r := range all {
			if r.State == JobRunning {
				running = append(running, r)
			}
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	var turn *jobRow
	for i := range running {
		r := &running[i]
		if p := paces[r.ID]; p == nil {
			paces[r.ID] = &jobPace{at: r.At}
		} else if compareIDs(p.at, r.At) < 0 {
			p.at = r.At // a step that was said to have failed is on disk
		}
		if turn == nil || paces[r.ID].next.Before(paces[turn.ID].next) {
			turn = r
		}
	}
	if turn == nil {
		clear(paces)
		return time.Hour, nil
	}
	p := paces[turn.ID]
	if wait := time.Until(p.next); wait > 0 {
		return wait, nil
	}
	return 0, b.step(ctx, turn, p)
}

// step makes one step of a job.
func (b *BoltRecords) step(ctx context.Context, job *jobRow, p *jobPace) error {
	began := time.Now()
	most := stepChange
	if job.Rate > 0 {
		most = min(most, max(1, int(job.Rate*jobTick.Seconds())))
	}
	op := &jobStepOp{change: change{b: b}, job: job.ID, answered: make(chan error, 1)}
	at, end, err := b.scan(ctx, job, p.at, most, op)
	if err != nil {
		return err
	}
	if len(op.ids) > 0 || end {
		op.at, op.end = at, end
		if err := b.store.Submit(op, store.Lazy); err != nil {
			return err
		}
		select {
		case err := <-op.answered:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.at = at
	p.next = time.Now().Add(stepPause)
	if job.Rate > 0 {
		if due := began.Add(time.Duration(float64(op.changed) / job.Rate * float64(time.Second))); due.After(p.next) {
			p.next = due
		}
	}
	return nil
}

// scan puts into op the next of the job's deliveries after the one named, and returns up to which it has read, and
// whether that is the end.
func (b *BoltRecords) scan(ctx context.Context, job *jobRow, after DeliveryID, most int, op *jobStepOp) (DeliveryID, bool, error) {
	end := true
	err := b.view(ctx, "read deliveries of a job", func(tx *store.Tx) error {
		s, err := b.selection(tx, job.Filter)
		if err != nil || s.nothing() {
			return err
		}
		scanned := 0
		return s.ascend(after, job.Last, func(id DeliveryID, r *deliveryRow) (bool, error) {
			after = id
			selected, err := job.selects(s, id, r)
			if selected {
				op.ids = append(op.ids, id)
			}
			scanned++
			end = scanned < stepScan && len(op.ids) < most
			return end, err
		})
	})
	return after, end, err
}

// selects reports whether a delivery is the job's. What ended after the job was started was not there then.
func (r *jobRow) selects(s *selection, id DeliveryID, row *deliveryRow) (bool, error) {
	if row.Ended > toMillis(r.Started) {
		return false, nil
	}
	return s.selects(id, row)
}

// jobStepOp is one step of a job: its deliveries and how far it is are written together, so that a restart repeats nothing.
type jobStepOp struct {
	change
	job      uint64
	ids      []DeliveryID
	at       DeliveryID
	end      bool
	changed  int
	answered chan error
}

// Apply implements store.Op.
func (op *jobStepOp) Apply(tx *store.Tx) error {
	op.begin()
	op.changed = 0
	job, err := getJob(tx, op.job)
	if err != nil {
		return err
	}
	if job.State != JobRunning {
		return nil // cancelled since
	}
	s, err := op.b.selection(tx, job.Filter)
	if err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	for _, id := range op.ids {
		r, err := deliveryOf(tx, id)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if selected, err := job.selects(s, id, &r); err != nil {
			return err
		} else if !selected {
			continue
		}
		why, err := op.do(s, job.Kind, id, &r, job.ID, now)
		switch {
		case err != nil:
			return err
		case why != nil:
			job.Skipped++
		default:
			job.Done++
			op.changed++
		}
	}
	job.At = op.at
	if op.end {
		job.end(JobDone)
	}
	return job.put(tx)
}

// Done implements store.Op.
func (op *jobStepOp) Done(err error) {
	op.tell(err)
	op.answered <- err
}
