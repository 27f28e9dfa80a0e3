package egress

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of Records beside those of an Outbox.
var (
	// ErrCursor: the cursor is none of this listing's.
	ErrCursor = errors.New("cursor does not belong to this listing")
	// ErrFilter: the filter cannot be used so, or the job asks for something else that there is not.
	ErrFilter = errors.New("filter cannot be used")
	// ErrJobs: as many jobs run as may run at one time.
	ErrJobs = errors.New("too many jobs are running")
)

const (
	// DefaultPageRows and MaxPageRows bound the rows of a page of a listing.
	DefaultPageRows = 100
	MaxPageRows     = 1000
	// MaxAttempts bounds the attempts that come with a delivery or an event; Attempts pages through all.
	MaxAttempts = 100
	// MaxChanges bounds the deliveries that one call of Redeliver or Discard takes; a job takes any number.
	MaxChanges = 1000
	// DefaultRedeliverRate is how many deliveries a redelivery job hands to the queue per second.
	DefaultRedeliverRate = 100
)

// Filter selects deliveries; a zero field selects all.
type Filter struct {
	Endpoint string
	// State as it is shown: SENDING and PARKED are no WAITING here.
	State State
	// Tenant and Type are the event's; Tenant selects only where it is not empty.
	Tenant, Type string
	// Reason is the outcome of the last attempt.
	Reason Outcome
	// Since (inclusive) and Until (exclusive) compare with the time at which the event was accepted.
	Since, Until time.Time
}

// DeliveryRecord is a delivery as people see it: its State may be SENDING or PARKED.
type DeliveryRecord struct {
	Delivery
	EventID, Tenant, Type string
	// Accepted is when the event was taken; Delivery.Created is later after a redelivery.
	Accepted time.Time
}

// DeliveryPage is a part of a listing.
type DeliveryPage struct {
	Deliveries []DeliveryRecord
	// Next continues the listing; empty after the last row. A page may be short, even empty, and still have one.
	Next string
}

// DeliveryDetail is a delivery with what is kept about it. Event has no body.
type DeliveryDetail struct {
	Delivery DeliveryRecord
	Event    EventMeta
	// Attempts are the last MaxAttempts of them, in the order in which they were made.
	Attempts []Attempt
}

// EventMeta is what is kept of an event beside its body.
type EventMeta struct {
	Event // without Body
	// Bytes is the size that the body has or had; HasBody says whether it is there still.
	Bytes   int
	HasBody bool
}

// EventDetail is an event with its deliveries and their attempts, of each the last MaxAttempts, and of all together at
// most MaxPageRows.
type EventDetail struct {
	Event      EventMeta
	Deliveries []DeliveryDetail // in the order of the endpoints' numbers; their Event is left empty
	// More: there are more than MaxPageRows deliveries, and the rest is left out.
	More bool
}

// StateSummary sums up the deliveries to one endpoint in one state. WAITING includes those that are in flight; at an endpoint
// that is disabled or paused all of these are PARKED.
type StateSummary struct {
	Endpoint string
	Removed  bool // the endpoint is not there any more
	State    State
	Count    int64
	Bytes    int64 // of event bodies
	// Oldest is when the event was accepted that has been in this state longest, as far as an index tells without a
	// scan; zero: not known.
	Oldest time.Time
	// Reason is the last outcome that led to this state or kept it there; 0: none, or not known.
	Reason Outcome
}

// Changed says what became of one delivery that was named to Redeliver or Discard.
type Changed struct {
	ID DeliveryID
	// Was and Now are the states before and after; the same where nothing was done.
	Was, Now State
	// Err is why nothing was done: ErrNotFound or ErrState, with the cause in words. Nil: it was.
	Err error
}

// JobKind is what a job does with each delivery. The zero value is invalid.
type JobKind uint8

const (
	_ JobKind = iota
	JobRedeliver
	JobDiscard
	jobKinds
)

// JobState says how far a job is. The zero value is invalid.
type JobState uint8

const (
	_ JobState = iota
	JobRunning
	JobDone
	JobCancelled
	jobStates
)

// JobSpec is what a job shall do.
type JobSpec struct {
	Kind JobKind
	// Filter selects the deliveries. Without a State a redelivery takes those that are DEAD, and CANCELLED is none for it;
	// a discard must name one, which is WAITING, PARKED or DEAD.
	Filter Filter
	// Rate is the number of deliveries per second; 0: DefaultRedeliverRate for a redelivery, as fast as the store takes
	// it beside all else for a discard.
	Rate float64
}

// Job is a redelivery or discard by filter. It survives a restart, and takes only what was there when it was started.
type Job struct {
	ID uint64
	JobSpec
	State          JobState
	Started, Ended time.Time
	// Total were selected when the job was started. Done are those that were changed. Skipped were selected when the job
	// came to them, and could not be changed: the body is gone, or the endpoint was removed. What left the selection
	// meanwhile is counted in neither.
	Total, Done, Skipped int64
}

// Records is what people and programs see of the outbox and do to it, beside its daily work. Methods that change
// something return once that is on disk. All of them are safe for concurrent use, and return ErrUnavailable or ErrFull
// (wrapped) if the store cannot answer.
type Records interface {
	// ListDeliveries returns deliveries that f selects, those of the newest events first. cursor is a DeliveryPage.Next of
	// the same filter or empty; rows is bounded by MaxPageRows, and DefaultPageRows if 0. A call reads a bounded number of
	// rows. ErrCursor.
	ListDeliveries(ctx context.Context, f Filter, cursor string, rows int) (DeliveryPage, error)
	// Count returns how many deliveries f selects. It may have to read the whole outbox.
	Count(ctx context.Context, f Filter) (int64, error)
	// Delivery returns one delivery. ErrNotFound.
	Delivery(ctx context.Context, id DeliveryID) (DeliveryDetail, error)
	// Deliveries returns those of ids that are there, in their order. ErrFilter for more than MaxPageRows.
	Deliveries(ctx context.Context, ids ...DeliveryID) ([]DeliveryRecord, error)
	// Event returns the event of a tenant and id; an id that the outbox made is found whatever the tenant. ErrNotFound.
	Event(ctx context.Context, tenant, id string) (EventDetail, error)
	// Attempts returns the logged attempts of a delivery with numbers above after, in that order and at most MaxPageRows;
	// none: there are no more. ErrNotFound if there is no such delivery.
	Attempts(ctx context.Context, id DeliveryID, after int) ([]Attempt, error)
	// Body returns the body of an event (see Event.Seq). ErrNotFound if there is no such event, ErrState if its body is
	// gone.
	Body(ctx context.Context, event uint64) ([]byte, error)
	// Summary sums up by endpoint and state, in that order. Its cost does not depend on the number of deliveries.
	Summary(ctx context.Context) ([]StateSummary, error)

	// Redeliver makes the deliveries due at once, with a new schedule: DEAD ones, WAITING ones (in place of the retry that
	// they wait for; if an attempt is under way and succeeds, that was it), and DELIVERED and DISCARDED ones whose body is
	// still there for the sake of another delivery. At an endpoint that is disabled or paused they wait. ErrFilter for more
	// than MaxChanges.
	Redeliver(ctx context.Context, ids ...DeliveryID) ([]Changed, error)
	// Discard ends WAITING and DEAD deliveries for good. An attempt that is under way is not called back; if it succeeds
	// the delivery is DELIVERED. ErrFilter for more than MaxChanges.
	Discard(ctx context.Context, ids ...DeliveryID) ([]Changed, error)
	// Expunge removes an event's body and headers and leaves its id, hash and times; deliveries of it that are open or
	// DEAD become DISCARDED. It returns what is left. Twice is harmless. ErrNotFound.
	Expunge(ctx context.Context, tenant, id string) (EventDetail, error)
	// ExpungeEvent is Expunge of the event that has the Seq, which is not 0.
	ExpungeEvent(ctx context.Context, event uint64) (EventDetail, error)

	// StartJob counts what spec selects, and starts a job for it. ErrFilter, ErrJobs.
	StartJob(ctx context.Context, spec JobSpec) (Job, error)
	// Jobs returns the jobs that run and the last that ended, the newest first.
	Jobs(ctx context.Context) ([]Job, error)
	// Job returns one. ErrNotFound.
	Job(ctx context.Context, id uint64) (Job, error)
	// CancelJob ends a job where it is; what it did stays done. ErrNotFound, ErrState if it has ended.
	CancelJob(ctx context.Context, id uint64) (Job, error)
}

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
