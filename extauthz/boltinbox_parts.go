package extauthz

import (
	"crypto/sha256"
	"errors"

	"github.com/sidehook/sidehook/internal/store"
)

// A part of a request is known by the content row of its id, which names the claim of the request that brought it: with that it is
// with the app, with that it is DONE, and with that it is forgotten.

func partHash(id string) [sha256.Size]byte { return hashParts("part", id) }

// meetParts finds out which parts the app has. If it has all of the request the claim is a duplicate; if one of the others is with
// the app now, the claim waits for that. Those that are new are noted with the claim.
func (op *claimOp) meetParts(tx *store.Tx) error {
	var seen []string
	op.fresh = op.fresh[:0]
	for _, p := range op.req.Parts {
		brought, err := op.meetKeys(tx, partHash(p))
		switch {
		case err != nil || op.answeredAlready():
			return err
		case brought:
			seen = append(seen, p)
		default:
			op.fresh = append(op.fresh, p)
		}
	}
	if len(seen) > 0 && op.req.Whole && len(op.fresh) == 0 {
		op.claim.Outcome = Duplicate
		return nil
	}
	op.claim.Seen = seen
	return nil
}

// seenParts reports whether the app has all of a request, and calls again with each claim that brought a part.
func (op *claimOp) seenParts(tx *store.Tx, again func(key []byte, r *row)) (bool, error) {
	if !op.req.Whole || len(op.req.Parts) == 0 {
		return false, nil
	}
	for _, p := range op.req.Parts {
		known := false
		for rowKey := range op.keys() {
			key, r, err := op.broughtBy(tx, rowKey, partHash(p))
			if err != nil {
				return false, err
			}
			if known = r.State.forApp(); known {
				again(key, &r)
				break
			}
		}
		if !known {
			return false, nil
		}
	}
	return true, nil
}

// splitOp is a Claim of several on its way through the committer: all that it writes, it writes in one transaction.
type splitOp struct {
	claims   []*claimOp
	answered chan struct{}
}

// errUndecided ends a splitOp of which one claim is answered by what is with the app now, or has no room: nothing of it is
// written.
var errUndecided = errors.New("a part of the request cannot be decided yet")

// Apply implements store.Op.
func (op *splitOp) Apply(tx *store.Tx) error {
	for _, c := range op.claims {
		if err := c.Apply(tx); err != nil {
			return err
		}
		if c.full || c.claim.Outcome == InFlight || c.claim.Outcome == Held {
			return errUndecided
		}
	}
	return nil
}

// Done implements store.Op.
func (op *splitOp) Done(err error) {
	for _, c := range op.claims {
		c.Done(err)
	}
	close(op.answered)
}

// answer is the outcome of all claims together.
func (op *splitOp) answer() (Claim, error) {
	var all Claim
	var err error
	for _, c := range op.claims {
		switch {
		case c.full:
			return Claim{}, ErrFull
		case c.claim.Outcome == InFlight, c.claim.Outcome == Held:
			return c.claim, nil
		case c.err != nil:
			err = unavailable(c.err)
		case c.claim.Outcome == Stored:
			all.Outcome = Stored
		case all.Outcome == 0:
			all.Outcome = c.claim.Outcome
		case all.Outcome != Stored && all.Outcome != c.claim.Outcome:
			all.Outcome = Duplicate // one for one reason, another for another: the sender need not know
		}
	}
	if err != nil {
		return Claim{}, err
	}
	return all, nil
}
