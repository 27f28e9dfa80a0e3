package extauthz

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// KeyState is what came of a look for a key that a sender publishes. The zero value is invalid.
type KeyState uint8

const (
	_ KeyState = iota
	// KeyFetched: the document was fetched after it was asked for.
	KeyFetched
	// KeyRecent: it was fetched so short a time ago that it is not fetched again.
	KeyRecent
	// KeyAway: it could not be had in time, or failed so short a time ago that nobody asks again.
	KeyAway
)

// KeySource gives the documents in which senders publish their keys, and goes where a sender's request says, through the
// address filter. It is safe for concurrent use.
type KeySource interface {
	// Keys returns at once what is at hand.
	signature.Published
	// Fetch has the document brought up to date, by others than the caller, and waits for that no longer than ctx.
	Fetch(ctx context.Context, want signature.KeyRequest) KeyState
	// Confirm calls a URL that a verified request named, and returns nil if that was answered by 2xx.
	Confirm(ctx context.Context, url string) error
}

// keyWait is how long a Check waits for a key. Senders that give up first do so after 3s.
const keyWait = 2 * time.Second

var errNoKeys = errors.New("nothing can be fetched here")

// noKeys is the KeySource of a gate that has none.
type noKeys struct{}

func (noKeys) Keys(string) *signature.PublishedKeys                 { return nil }
func (noKeys) Fetch(context.Context, signature.KeyRequest) KeyState { return KeyAway }
func (noKeys) Confirm(context.Context, string) error                { return errNoKeys }

// judgeSignature verifies msg. Where the key that the message names is not at hand, or a newer document may have it, it is
// looked for once. What cannot be had is not the sender's fault, and so never a bad signature.
func (b *bound) judgeSignature(ctx context.Context, keys KeySource, msg *signature.Message, from sender, now time.Time) signature.Verdict {
	msg.Published = keys
	verdict := b.source.Verifier.Verify(msg, from.keys, now, b.source.Tolerance)
	if verdict.Want.URL == "" {
		return verdict
	}
	ctx, cancel := context.WithTimeout(ctx, keyWait)
	defer cancel()
	ctx, stop := withMargin(ctx)
	defer stop()
	switch keys.Fetch(ctx, verdict.Want) {
	case KeyFetched:
		verdict = b.source.Verifier.Verify(msg, from.keys, now, b.source.Tolerance)
		if verdict.Reason == signature.ReasonKeyUnavailable && keys.Keys(verdict.Want.URL) != nil {
			verdict.Reason = signature.ReasonBadSignature // the sender publishes no such key
		}
	case KeyAway:
		if verdict.Reason == signature.ReasonBadSignature {
			verdict.Reason = signature.ReasonKeyUnavailable
		}
	}
	return verdict
}

// confirmSubscription answers a verified request of Amazon SNS that wants a subscription confirmed, where the source does that
// in the app's place. ok is false for every other request. It never goes to the app: what SNS could not be told is asked
// again by SNS.
func (b *bound) confirmSubscription(ctx context.Context, keys KeySource, msg *signature.Message, key *signature.Key) (d decision, ok bool) {
	if !b.source.ConfirmSubscription || key == nil {
		return decision{}, false
	}
	at, ok := key.SNSSubscription(msg)
	if !ok {
		return decision{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, keyWait)
	defer cancel()
	ctx, stop := withMargin(ctx)
	defer stop()
	if at == "" {
		return decision{reason: ReasonBadSignature}, true
	}
	if err := keys.Confirm(ctx, at); err != nil {
		return decision{reason: ReasonUnavailable, err: err}, true
	}
	d = textAnswer("")
	d.status = http.StatusOK
	return d, true
}
