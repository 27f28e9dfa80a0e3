package egress

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// Errors of an Outbox.
var (
	// ErrFull: the store is at its limit, and nothing was written; or the disk is full, and what was asked for is written
	// only if the disk took it all the same. Try again later.
	ErrFull = errors.New("outbox is full")
	// ErrUnavailable: the store gave an error. What was asked for may be written all the same.
	ErrUnavailable = errors.New("outbox unavailable")
	// ErrConflict: an event of this tenant and id with other content is kept.
	ErrConflict = errors.New("an event of this id has other content")
	// ErrNotFound: no such event, delivery, endpoint or job.
	ErrNotFound = errors.New("not found")
	// ErrState: the delivery is not in a state in which this can be done.
	ErrState = errors.New("not possible in this state")
)

// Event is one fact to tell. Slices belong to whoever made the Event and are not changed afterwards.
type Event struct {
	// Seq orders events by acceptance: milliseconds since 1970 shifted left by 20, plus a count. Set by the outbox.
	Seq uint64
	// ID is 1 to 256 printable ASCII characters without blank, comma and full stop; "" has Accept make one. It is the
	// webhook-id of every attempt.
	ID     string
	Tenant string
	// Type is the event's type, for matching endpoints; up to 256 bytes.
	Type string
	// ContentType and Body are sent as they are. Headers are those of the event itself (ce-… of CloudEvents).
	ContentType string
	Headers     []signature.Field
	Body        []byte
	// Content is what makes two posts of one id the same: a SHA-256 over all that the app posted (not over the time in
	// Body).
	Content [32]byte
	// Unindexed: ID is not unique, and no way to find the event by: what comes with the same one is no repeat.
	Unindexed bool
	// Order is common to events that go to an endpoint one after the other, as they were accepted: one is sent when the one
	// before has come to its end. "": this one waits for none. It is not kept as such, and not in what Load returns.
	Order string
	// Redelivered: of the delivery that an attempt is made of, for its Sender; set by the dispatcher alone.
	Redelivered bool
	// Accepted is when the event was taken, UTC, in milliseconds.
	Accepted time.Time
}

// State is the state of a delivery. The zero value is invalid; String gives the words of the API.
type State uint8

const (
	_ State = iota
	StateWaiting
	StateSending // shown for one that is in flight; on disk it is WAITING with a mark
	StateDelivered
	StateDead
	StateParked // shown for WAITING while the endpoint is disabled or paused
	StateCancelled
	StateDiscarded
	states // their number
)

// stateNames are the words of the API.
var stateNames = [states]string{
	StateWaiting:   "WAITING",
	StateSending:   "SENDING",
	StateDelivered: "DELIVERED",
	StateDead:      "DEAD",
	StateParked:    "PARKED",
	StateCancelled: "CANCELLED",
	StateDiscarded: "DISCARDED",
}

// String returns the word of the API, "invalid" for a value outside the enum.
func (s State) String() string {
	if s == 0 || s >= states {
		return "invalid"
	}
	return stateNames[s]
}

// DeliveryID names a delivery: the event's Seq and the number that the outbox gave to the endpoint. Its text is
// dlv_ and 20 characters of base32hex.
type DeliveryID struct {
	Event    uint64
	Endpoint uint32
}

// Lane orders what is due at one endpoint: first attempts go before late retries. The zero value is the lane of first
// attempts, in which Due is in the past and only orders.
type Lane uint8

const (
	LaneFirst Lane = iota
	LaneRetry
	lanes
)

// Delivery is one event to one endpoint.
type Delivery struct {
	ID       DeliveryID
	Endpoint string // the endpoint's ID
	State    State
	Lane     Lane
	// Due is when it shall be tried next (WAITING), in milliseconds.
	Due time.Time
	// Attempts are those that count against the schedule; Tries are all, and number the attempt log from 1.
	Attempts, Tries int
	// Created is when the event was accepted, or, after a redelivery, when that was asked for: the schedule begins there.
	Created time.Time
	// Ended is when it was delivered, dead, cancelled or discarded.
	Ended time.Time
	// Reason is the last attempt's Outcome; 0: none yet.
	Reason Outcome
	// NotReached: it is dead because no attempt reached the receiver for the length of the schedule.
	NotReached bool
	// Redelivered: somebody asked for it to be sent again.
	Redelivered bool
	// Job is the redelivery job that it belongs to, 0 for none.
	Job uint64
	// Bytes is the size of the event's body.
	Bytes int
}

// Trigger says why an attempt was made. The zero value is invalid.
type Trigger uint8

const (
	_ Trigger = iota
	TriggerSchedule
	TriggerProbe      // of an endpoint that is held
	TriggerRedelivery // asked for by a person or program
	TriggerTest       // `endpoint test`; not logged
	triggers
)

// Attempt is one HTTP try, as in the log.
type Attempt struct {
	Delivery DeliveryID
	// N numbers the tries of a delivery from 1.
	N       int
	At      time.Time
	Trigger Trigger
	Outcome Outcome
	// Counted: it used up one of the schedule's attempts.
	Counted bool
	// Status is the HTTP status, 0 without one.
	Status int
	// Took is from the start of the try to its end.
	Took time.Duration
	// IP is the address that was dialled, invalid without one.
	IP netip.Addr
	// RetryAfter as the answer asked, 0 for none.
	RetryAfter time.Duration
	// Answer is the first KiB of the answer's body; AnswerBytes is its length as far as it was read, Truncated says that
	// there was more than Answer.
	Answer      []byte
	AnswerBytes int64
	Truncated   bool
	// Detail says in a few words what the Outcome does not: never a URL, a header or a secret; at most 256 bytes.
	Detail string
}

// DisableReason says why an endpoint is disabled. The zero value: it is not.
type DisableReason uint8

const (
	NotDisabled DisableReason = iota
	DisabledGone
	DisabledAsked   // webhook-delivery: disable
	DisabledFailing // for longer than Policy.DisableAfter
	DisabledPerson
	disableReasons
)

// Health is what the outbox keeps of an endpoint beside its deliveries. Times are wall-clock milliseconds, zero for none.
type Health struct {
	Disabled   DisableReason
	DisabledAt time.Time
	// HeldUntil is when the next probe is sent, and nothing else is; HoldStep is 1 and the probes that failed. 0: not held.
	HeldUntil time.Time
	HoldStep  int
	// FailingSince is the first failure since the last success; LastFailure the last one that counted towards
	// DisableAfter: those are at least an hour apart.
	FailingSince, LastFailure time.Time
	// Warned is the percentage of DisableAfter at which the owner was last warned: 0, 50 or 90; or 100, that it was disabled.
	Warned int
	// LastSuccess, LastAttempt are for people.
	LastSuccess, LastAttempt time.Time
}

// Target is an endpoint that an event shall go to, as Accept takes it.
type Target struct {
	Endpoint string
	// Parked: the endpoint is disabled or paused now; only the answer says so.
	Parked bool
}

// Receipt is the answer to an accepted event. A repeat of the same id and content gets the same.
type Receipt struct {
	EventID    string
	Deliveries []ReceiptDelivery // in the order of the targets
	// Repeat: the event was there already.
	Repeat bool
}

// ReceiptDelivery is one target's part of a Receipt.
type ReceiptDelivery struct {
	ID       DeliveryID
	Endpoint string
	Parked   bool
	// Full: the endpoint has as many open deliveries as one may have, and no delivery was made.
	Full bool
}

// Settlement is the end of one attempt: what is logged, and what becomes of the delivery.
type Settlement struct {
	// Attempt is what is logged. Its N is the Tries of the delivery as it was sent, plus 1: a second Settlement of the same
	// N, and what a kill has left behind of one, changes nothing.
	Attempt Attempt
	// Created is Delivery.Created as the delivery was sent. One that was redelivered meanwhile has a later one, and goes on
	// waiting as that has it, unless this attempt delivered it. Zero: not looked at.
	Created time.Time
	// State, Lane, Due and Attempts are the delivery's from now on: WAITING (then Due says when), DELIVERED or DEAD.
	State      State
	Lane       Lane
	Due        time.Time
	Attempts   int
	NotReached bool
	// Health is the endpoint's from now on; nil: it has not changed.
	Health *Health
}

// Outbox is the durable queue of deliveries and the log of their attempts. BoltOutbox is one; all methods are safe for
// concurrent use. Methods that wait end early with ctx's error; what they began is then done all the same, or not.
type Outbox interface {
	// Accept writes e and a WAITING delivery, due at once, for each target, in one durable write, and returns once they are
	// on disk. It sets e.Seq, e.ID where empty. A repeat of e.Tenant and e.ID with the same Content writes nothing and returns
	// the first Receipt; with other Content ErrConflict. ErrFull, ErrUnavailable (wrapped).
	Accept(ctx context.Context, e *Event, targets []Target) (Receipt, error)

	// Due appends to dst up to n deliveries of the endpoint and lane that wait, in the order of Due (then of Seq), after
	// the one named (nil: from the first), whatever their due time is: the caller looks at it. Fewer than n: there are no more.
	Due(dst []Delivery, endpoint string, lane Lane, after *Delivery, n int) ([]Delivery, error)

	// Load returns the event of a delivery with its body. ErrNotFound if it is gone.
	Load(id DeliveryID) (*Event, error)

	// Mark notes without waiting that an attempt of d began at that time, so that a kill leaves a trace: the next opening of
	// the store logs it as interrupted. It rides with some later commit.
	Mark(d *Delivery, at time.Time, trigger Trigger)

	// Settle writes s and calls done once, not before it is on disk: nil, or the error (see store.Fatal) after which it may not
	// be. It starts a commit where none runs. done must not block. A delivery that was ended meanwhile (discarded, cancelled)
	// keeps that state unless it was delivered, and the attempt is logged. Settle does not give up on a full disk: it tries until
	// it is written.
	Settle(s *Settlement, done func(error))

	// SetHealth writes an endpoint's health and returns once it is on disk.
	SetHealth(ctx context.Context, endpoint string, h Health) error

	// Healths returns the health of every endpoint that the outbox knows and that is not removed.
	Healths() (map[string]Health, error)
}

// Changes tells the dispatcher what happened in the outbox beside what it did itself. Its methods are called after the write is
// on disk, must not block, and may be called from the committer's goroutine.
type Changes interface {
	// Accepted: ds wait now and are due: new ones, and those before which others of their Event.Order have come to their end.
	// It is not called after the done of a Settle of one of them.
	Accepted(ds []Delivery)
	// Changed: what waits at the endpoint changed otherwise (redelivered, discarded, released): look again. "": at any.
	Changed(endpoint string)
}
