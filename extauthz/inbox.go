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
	Tenant string // empty: none
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
	// Ignore: the event is not to reach the app, for the reason in IgnoredFor. Its id is kept as IGNORED, and nothing is claimed,
	// unless a person released one that was set aside.
	Ignore     bool
	IgnoredFor IgnoredFor
	// Version: an event whose object the app has in a newer version is kept as STALE.
	Version Version
	// Change: an event of a change that the app has by another event is kept as DUPLICATE_CHANGE.
	Change Change
	// Parts are the ids of the events of a request that carries several, as far as they have ids. The request is claimed; when the
	// app has it, it has them. Whole says that they are all of it: when the app has them all the request is a duplicate.
	Parts []string
	Whole bool
	// Split, if not empty, are claims in STORE, one for each event of the request, that are decided and written together. The rest
	// of the request is without effect then.
	Split []ClaimRequest
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
	// Stored: the id was new, and the event is on disk. Of a request with Split: one or more of them.
	Stored
	// Stale: the app has the object in a newer version; the id is on disk as STALE.
	Stale
	// DuplicateChange: the app has the change by another event; the id is on disk as DUPLICATE_CHANGE.
	DuplicateChange
)

// IgnoredFor says why an event is not to reach the app.
type IgnoredFor uint8

const (
	// IgnoredForType: the source's types leave it out.
	IgnoredForType IgnoredFor = iota
	// IgnoredForMode: it is of the sender's test mode, and the source is live only.
	IgnoredForMode
)

// String returns the reason's name in listings.
func (f IgnoredFor) String() string {
	switch f {
	case IgnoredForType:
		return "type"
	case IgnoredForMode:
		return "mode"
	}
	return fmt.Sprintf("IgnoredFor(%d)", uint8(f))
}

// Change names a change of which a sender may tell by several events. The zero value names none.
type Change struct {
	Hash   [32]byte
	Window time.Duration
}

// Claim is the outcome of Inbox.Claim.
type Claim struct {
	Outcome    Outcome
	Token      Token
	RetryAfter time.Duration
	Wait       <-chan struct{}
	// Seen are those of the request's Parts that the app has already. Of a Claimed one.
	Seen []string
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
	// Claim takes an event id. When it returns Claimed the claim is on disk. An id that was set aside (IGNORED, STALE,
	// DUPLICATE_CHANGE) by a rule that the request does not have any more is like a new one: the app has never seen it. A ctx
	// that ends first gives ctx's error, and whatever was or will be written of the claim is released; an id that was to be set
	// aside may be it, and an event that was to be stored may be kept.
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
	// it was set aside and is to be let through once.
	StateReleased
	// StateIgnored: left out by the source's types, or for its mode; the app was not called.
	StateIgnored
	// StateStored: the event is kept for the app. What has become of it since is the Keeper's to say.
	StateStored
	// StateStale: older than what the app has of the object; the app was not called.
	StateStale
	// StateDuplicateChange: a second event for a change that the app has; the app was not called.
	StateDuplicateChange
	// StateDiscarded: a person ended it; the app does not get it.
	StateDiscarded
	// StateDelivering, StateDead and StateOrphaned are shown of events that are kept for the app, and are in no row: an
	// attempt is in flight; the app refused it until the attempts were used up; its source is not in STORE any more.
	StateDelivering
	StateDead
	StateOrphaned
)

// settled reports whether s is a state without a lease.
func (s State) settled() bool { return s.forApp() || s.leftOut() }

// forApp reports whether s is settled and of an event that was meant for the app: without its row the next delivery passes.
func (s State) forApp() bool { return s == StateDone || s == StateStored || s == StateDiscarded }

// leftOut reports whether s is that of an event which was answered, and is kept from the app by a rule of its source.
func (s State) leftOut() bool {
	return s == StateIgnored || s == StateStale || s == StateDuplicateChange
}

// States are all states of rows, in the order in which they are shown.
var States = [...]State{StatePending, StateUnknown, StateDone, StateReleased, StateIgnored, StateStored, StateStale, StateDuplicateChange, StateDiscarded}

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
	case StateStale:
		return "STALE"
	case StateDuplicateChange:
		return "DUPLICATE_CHANGE"
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
