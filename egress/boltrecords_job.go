package egress

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

const (
	// maxRunningJobs bounds the jobs that run at one time, keptJobs those that have ended and are still shown.
	maxRunningJobs = 16
	keptJobs       = 100
	// MaxJobRate bounds JobSpec.Rate.
	MaxJobRate = 10_000
)

// StartJob implements Records.
func (b *BoltRecords) StartJob(ctx context.Context, spec JobSpec) (Job, error) {
	if err := spec.complete(); err != nil {
		return Job{}, fmt.Errorf("start job: %w", err)
	}
	b.starting.Lock()
	defer b.starting.Unlock()
	row := jobRow{Job: Job{JobSpec: spec, State: JobRunning, Started: fromMillis(time.Now().UnixMilli())}}
	err := b.view(ctx, "start job", func(tx *store.Tx) error {
		key, _ := tx.Cursor(eventBucket).Last()
		if key == nil {
			return nil
		}
		var err error
		if row.Last, err = parseSeq(key); err != nil {
			return corruptRow(err)
		}
		return nil
	})
	if err != nil {
		return Job{}, err
	}
	if row.Total, err = b.count(ctx, row.Filter, row.Last); err != nil {
		return Job{}, err
	}
	op := &startJobOp{row: row, answered: make(chan error, 1)}
	if err := b.change(ctx, "start job", op, op.answered); err != nil {
		return Job{}, err
	}
	b.signal()
	return op.row.Job, nil
}

// complete fills in what is left out, and says what cannot be.
func (s *JobSpec) complete() error {
	if s.Filter.State >= states || s.Filter.Reason >= outcomes {
		return fmt.Errorf("%w: unknown state or reason", ErrFilter)
	}
	if math.IsNaN(s.Rate) || s.Rate < 0 || s.Rate > MaxJobRate {
		return fmt.Errorf("%w: a rate is 0 to %d per second", ErrFilter, MaxJobRate)
	}
	switch s.Kind {
	case JobRedeliver:
		switch s.Filter.State {
		case 0:
			s.Filter.State = StateDead
		case StateCancelled:
			return fmt.Errorf("%w: what is %s cannot be redelivered", ErrFilter, s.Filter.State)
		}
		if s.Rate == 0 {
			s.Rate = DefaultRedeliverRate
		}
	case JobDiscard:
		switch s.Filter.State {
		case StateWaiting, StateParked, StateDead:
		case 0:
			return fmt.Errorf("%w: a discard names a state", ErrFilter)
		default:
			return fmt.Errorf("%w: what is %s cannot be discarded", ErrFilter, s.Filter.State)
		}
	default:
		return fmt.Errorf("%w: kind of job %d", ErrFilter, s.Kind)
	}
	return nil
}

// startJobOp writes a new job, and forgets old ones.
type startJobOp struct {
	row      jobRow
	answered chan error
}

// Apply implements store.Op.
func (op *startJobOp) Apply(tx *store.Tx) error {
	jobs, err := readJobs(tx)
	if err != nil {
		return err
	}
	op.row.ID = 1
	if len(jobs) > 0 {
		op.row.ID = jobs[0].ID + 1
	}
	running, ended := 0, 0
	for _, j := range jobs {
		if j.State == JobRunning {
			running++
			continue
		}
		if ended++; ended >= keptJobs {
			if err := tx.Delete(jobBucket, appendSeq(nil, j.ID)); err != nil {
				return err
			}
		}
	}
	if running >= maxRunningJobs {
		return ErrJobs
	}
	return op.row.put(tx)
}

// Done implements store.Op.
func (op *startJobOp) Done(err error) { op.answered <- err }

// Jobs implements Records.
func (b *BoltRecords) Jobs(ctx context.Context) ([]Job, error) {
	var jobs []Job
	err := b.view(ctx, "list jobs", func(tx *store.Tx) error {
		rows, err := readJobs(tx)
		for _, r := range rows {
			jobs = append(jobs, r.Job)
		}
		return err
	})
	return jobs, err
}

// Job implements Records.
func (b *BoltRecords) Job(ctx context.Context, id uint64) (Job, error) {
	var row jobRow
	err := b.view(ctx, fmt.Sprintf("get job %d", id), func(tx *store.Tx) (err error) {
		row, err = getJob(tx, id)
		return err
	})
	return row.Job, err
}

// CancelJob implements Records.
func (b *BoltRecords) CancelJob(ctx context.Context, id uint64) (Job, error) {
	op := &cancelJobOp{id: id, answered: make(chan error, 1)}
	if err := b.change(ctx, fmt.Sprintf("cancel job %d", id), op, op.answered); err != nil {
		return Job{}, err
	}
	return op.row.Job, nil
}

// cancelJobOp ends a job where it is.
type cancelJobOp struct {
	id       uint64
	row      jobRow
	answered chan error
}

// Apply implements store.Op.
func (op *cancelJobOp) Apply(tx *store.Tx) (err error) {
	if op.row, err = getJob(tx, op.id); err != nil {
		return err
	}
	if op.row.State != JobRunning {
		return fmt.Errorf("%w: it is %s", ErrState, op.row.State)
	}
	op.row.end(JobCancelled)
	return op.row.put(tx)
}

// Done implements store.Op.
func (op *cancelJobOp) Done(err error) { op.answered <- err }

// end ends the job now.
func (r *jobRow) end(s JobState) { r.State, r.Ended = s, fromMillis(time.Now().UnixMilli()) }

// signal wakes Run.
func (b *BoltRecords) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}
