package extauthz

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// Errors of StoredRecords and of what people do to events.
var (
	// ErrState: the event is not in a state in which this can be done.
	ErrState = errors.New("not possible in this state")
	// ErrFilter: the filter cannot be used so, or the cursor is none of its.
	ErrFilter = errors.New("filter cannot be used")
	// ErrJobs: as many jobs run as may run at one time.
	ErrJobs = errors.New("too many jobs are running")
)

const (
	// MaxAttempts bounds the attempts that come with an event.
	MaxAttempts = 100
	// MaxChanges bounds the events that one call of Redeliver or Discard takes; a job takes any number.
	MaxChanges = 1000
	// MaxJobRate bounds JobSpec.Rate.
	MaxJobRate = 10_000
)

// StoredRecords is what people see of the events that are kept for the app, and do to them. What is kept belongs to whoever
// delivers it; see Keeper. Methods that change something return once that is on disk. All of them are safe for concurrent
// use, and return ErrUnavailable or ErrFull (wrapped) if the store cannot answer.
type StoredRecords interface {
	// List returns events that f selects, the newest first. cursor is a StoredPage.Next of the same filter or empty; rows is
	// bounded by MaxPageRows. A call reads a bounded number of rows. ErrFilter.
	List(ctx context.Context, f StoredFilter, cursor string, rows int) (StoredPage, error)
	// Count returns how many events f selects. It may have to read all of them. ErrFilter.
	Count(ctx context.Context, f StoredFilter) (int64, error)
	// Find returns the events of refs, in that order, without those that are gone.
	Find(ctx context.Context, refs ...StoredRef) ([]StoredRecord, error)
	// Get returns one event with what is kept about it, but for its body. ErrNotFound if it is gone.
	Get(ctx context.Context, ref StoredRef) (StoredDetail, error)
	// Body returns an event's body. ErrNotFound if the event is gone, ErrState if its body is.
	Body(ctx context.Context, ref StoredRef) ([]byte, error)
	// Summary sums up by source and state. Its cost does not depend on the number of events.
	Summary(ctx context.Context) ([]StateSummary, error)

	// Redeliver makes STORED and DEAD events due at once, with a new schedule, Discard ends them. ErrFilter for more than
	// MaxChanges.
	Redeliver(ctx context.Context, refs ...StoredRef) ([]StoredChange, error)
	Discard(ctx context.Context, refs ...StoredRef) ([]StoredChange, error)
	// Expunge removes headers and body of an event; one that is open or DEAD becomes DISCARDED. Twice is harmless. ErrNotFound.
	Expunge(ctx context.Context, ref StoredRef) error

	// StartJob counts what spec selects, and starts a job for it. ErrFilter, ErrJobs.
	StartJob(ctx context.Context, spec JobSpec) (Job, error)
	// Jobs returns the jobs that run and the last that ended, the newest first.
	Jobs(ctx context.Context) ([]Job, error)
	// Job returns one. ErrNotFound.
	Job(ctx context.Context, id uint64) (Job, error)
	// CancelJob ends a job where it is; what it did stays done. ErrNotFound, ErrState if it has ended.
	CancelJob(ctx context.Context, id uint64) (Job, error)
	// RefText is the name that people know ref by; ParseRef reads it.
	RefText(ref StoredRef) string
	ParseRef(text string) (StoredRef, error)
}

// StoredFilter selects stored events; a zero field selects all.
type StoredFilter struct {
	Source string
	// State is one that is shown of stored events: STORED, DELIVERING, DONE, DEAD, DISCARDED or ORPHANED.
	State State
	// Tenant and Type are as the message has them; Tenant selects only where it is not empty.
	Tenant, Type string
	// Reason is how the last attempt ended, in the words of the metric.
	Reason string
	// Since (inclusive) and Until (exclusive) compare with the time at which the event was taken.
	Since, Until time.Time
}

// StoredRecord is a stored event as people see it.
type StoredRecord struct {
	Ref StoredRef
	// Source and Tenant are those of its claim, Shown and Type as in StoredEvent.
	Source, Tenant, Shown, Type string
	State                       State
	// Taken is when it was taken, Due when it is tried next (while it waits), Ended when it was done, dead or discarded.
	Taken, Due, Ended time.Time
	// Attempts are those that count against the schedule, Tries all.
	Attempts, Tries int
	// Reason is how the last attempt ended; empty: there was none.
	Reason string
	// NotReached: it is dead because no attempt reached the app.
	NotReached  bool
	Redelivered bool
	Job         uint64 // that it was redelivered by; 0: none
	Bytes       int    // of the body
}

// StoredPage is a part of a listing.
type StoredPage struct {
	Records []StoredRecord
	// Next continues the listing; empty after the last. A page may be short, even empty, and still have one.
	Next string
}

// StoredDetail is a stored event with what is kept about it.
type StoredDetail struct {
	StoredRecord
	Method, Target, Authority string
	Headers                   []signature.Field
	Content                   [32]byte // SHA-256 of the body; zero: not known
	HasBody                   bool
	// Attempts are the last MaxAttempts of them, in their order.
	Attempts []StoredAttempt
}

// StoredAttempt is one HTTP try.
type StoredAttempt struct {
	N           int // from 1
	At          time.Time
	Trigger     AttemptTrigger
	Outcome     string
	Counted     bool // it used up one of the schedule's attempts
	Status      int  // 0: no answer
	Took        time.Duration
	IP          netip.Addr // invalid: none was dialled
	RetryAfter  time.Duration
	Answer      []byte // the first KiB
	AnswerBytes int64
	Truncated   bool
	Detail      string
}

// AttemptTrigger says why an attempt was made. The zero value is invalid.
type AttemptTrigger uint8

const (
	_ AttemptTrigger = iota
	AttemptScheduled
	AttemptProbe
	AttemptRedelivery
)

// StoredChange says what became of one event that was named to Redeliver or Discard.
type StoredChange struct {
	Ref StoredRef
	// Err is why nothing was done: ErrNotFound or ErrState, with the cause in words. Nil: it was.
	Err error
}

// JobKind is what a job does with each event. The zero value is invalid.
type JobKind uint8

const (
	_ JobKind = iota
	JobRedeliver
	JobDiscard
)

// String returns the word of the API.
func (k JobKind) String() string {
	switch k {
	case JobRedeliver:
		return "REDELIVER"
	case JobDiscard:
		return "DISCARD"
	}
	return fmt.Sprintf("JobKind(%d)", uint8(k))
}

// JobState says how far a job is. The zero value is invalid.
type JobState uint8

const (
	_ JobState = iota
	JobRunning
	JobDone
	JobCancelled
)

// String returns the word of the API.
func (s JobState) String() string {
	switch s {
	case JobRunning:
		return "RUNNING"
	case JobDone:
		return "DONE"
	case JobCancelled:
		return "CANCELLED"
	}
	return fmt.Sprintf("JobState(%d)", uint8(s))
}

// JobSpec is what a job shall do.
type JobSpec struct {
	Kind JobKind
	// Filter selects the events. Without a State a redelivery takes those that are DEAD.
	Filter StoredFilter
	// Rate is the number of events per second; 0: the default of the kind.
	Rate float64
}

// Job is a redelivery or discard by filter. It survives a restart, and takes only what was there when it was started.
type Job struct {
	ID uint64
	JobSpec
	State          JobState
	Started, Ended time.Time
	// Total were selected when the job was started. Done are those that were changed, Skipped those that could not be.
	Total, Done, Skipped int64
}
