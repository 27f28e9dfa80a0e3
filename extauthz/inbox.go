package extauthz

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of an Inbox.
var (
	// ErrUnavailable: the store could not write or did not answer in time. The sender shall retry.
	ErrUnavailable = errors.New("inbox unavailable")
	// ErrFull: the store is at its limit; only what was accepted is still settled.
	ErrFull = errors.New("inbox full")
)

// ErrNotFound: there is no row under that key.
var ErrNotFound = errors.New("no such event in the inbox")

// Key identifies an event. IDs longer than 256 bytes are replaced by their SHA-256 when the key is encoded.
type Key struct {
	Source string
	Tenant string // empty until tenants come
	ID     string
}

// Token is the random 128-bit name of one claim; only its holder settles the claim.
type Token [16]byte

// ClaimRequest asks for an event id.
type ClaimRequest struct {
	Key Key
	// Was are keys under earlier names of the source; a row found there counts as this one.
	Was []Key
	// ContentHash is the second key; used when ContentWindow > 0.
	ContentHash   [32]byte
	ContentWindow time.Duration
	Lease         time.Duration
	OnUnknown     OnUnknown
	// Type is the event type, for listings; at most 256 bytes are kept.
	Type string
	// Ignore: the event is not to reach the app. Its id is kept as IGNORED, and nothing is claimed, unless a person released
	// an IGNORED one.
	Ignore bool
	// Store, if not nil, is the event: it is kept for the app in the same durable write, and no lease is taken.
	Store *StoredEvent
}

// Outcome is the answer to a ClaimRequest. The zero value is invalid.
type Outcome uint8

const (
	_ Outcome = iota
	// Claimed: the id is new (or free again); the claim is on disk, PENDING, under Token.
	Claimed
	// Duplicate: the id is DONE, or its event is kept for the app.
	Duplicate
	// InFlight: the first is still with the app; Wait is closed when it ends, RetryAfter is the rest of its lease.
	InFlight
	// Held: UNKNOWN under HOLD; a person or a late success settles it.
	Held
	// Ignored: the request said Ignore, and the id, which is not DONE, is on disk.
	Ignored
	// Stored: the id was new, and the event is on disk.
	Stored
)

// Claim is the outcome of Inbox.Claim.
type Claim struct {
	Outcome    Outcome
	Token      Token
	RetryAfter time.Duration
	Wait       <-chan struct{}
}

// End is how a claim ended. The zero value is invalid.
type End uint8

const (
	_ End = iota
	// EndDone: the app answered 2xx.
	EndDone
	// EndReleased: the app refused, or was never asked; the next request of that id goes through.
	EndReleased
	// EndUnknown: nobody knows; the claim's OnUnknown decides.
	EndUnknown
)

// Inbox is the durable record of event ids. All methods are safe for concurrent use.
type Inbox interface {
	// Claim takes an event id. When it returns Claimed the claim is on disk. An id that was IGNORED and is not to be any
	// more is like a new one: the app has never seen it. A ctx that ends first gives
	// ctx's error, and whatever was or will be written of the claim is released; an id that was to be IGNORED may be it, and
	// an event that was to be stored may be kept.
	// It returns ErrUnavailable or ErrFull (wrapped) when it cannot decide; the caller answers 503.
	Claim(ctx context.Context, req ClaimRequest) (Claim, error)
	// Settle ends the claim that token names. A token that is not the row's own changes nothing and is no error,
	// with one exception: EndDone of the lease before, or of one of the two before that, counts also after its end,
	// unless that lease was released. Calling it twice is harmless. With wait it returns once the end is on disk;
	// without, once it is queued (on disk with the next commit, 20 ms later at most). A ctx that ends first gives
	// ctx's error; the claim is settled all the same.
	Settle(ctx context.Context, key Key, token Token, end End, wait bool) error
}

// State is where an event id stands. The zero value is invalid.
type State uint8

const (
	_ State = iota
	// StatePending: claimed, under a lease, or (under OnUnknownRetry) after one whose end nobody told.
	StatePending
	// StateUnknown: the lease has ended under OnUnknownHold; a person or a late success settles it.
	StateUnknown
	// StateDone: the app answered 2xx.
	StateDone
	// StateReleased: free for the next request of that id, and kept because an earlier lease may still succeed, or because
	// it was IGNORED and is to be let through once.
	StateReleased
	// StateIgnored: left out by the source's types; the app was not called.
	StateIgnored
	// StateStored: the event is kept for the app. What has become of it since is the Keeper's to say.
	StateStored
	_
	_
	// StateDiscarded: a person ended it; the app does not get it.
	StateDiscarded
	// StateDelivering, StateDead and StateOrphaned are shown of events that are kept for the app, and are in no row: an
	// attempt is in flight; the app refused it until the attempts were used up; its source is not in STORE any more.
	StateDelivering
	StateDead
	StateOrphaned
)

// settled reports whether s is a state without a lease.
func (s State) settled() bool {
	return s == StateDone || s == StateIgnored || s == StateStored || s == StateDiscarded
}

// States are all states of rows, in the order in which they are shown.
var States = [...]State{StatePending, StateUnknown, StateDone, StateReleased, StateIgnored, StateStored, StateDiscarded}

// String returns the state's name in listings and metrics.
func (s State) String() string {
	switch s {
	case StatePending:
		return "PENDING"
	case StateUnknown:
		return "UNKNOWN"
	case StateDone:
		return "DONE"
	case StateReleased:
		return "RELEASED"
	case StateIgnored:
		return "IGNORED"
	case StateStored:
		return "STORED"
	case StateDiscarded:
		return "DISCARDED"
	case StateDelivering:
		return "DELIVERING"
	case StateDead:
		return "DEAD"
	case StateOrphaned:
		return "ORPHANED"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}
