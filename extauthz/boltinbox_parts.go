package extauthz

import (
	"bytes"
	"crypto/sha256"
	"errors"

	"github.com/sidehook/sidehook/internal/store"
)

func partHash(id string) [sha256.Size]byte { return hashParts("part", id) }

// partKeys are the keys that a part's row may have: under the source's name, and under earlier ones.
func (op *claimOp) partKeys(p Part) [][]byte {
	key := op.req.Key
	key.ID = p.ID
	keys := [][]byte{appendKey(nil, key)}
	for _, was := range op.req.Was {
		was.ID = p.ID
		keys = append(keys, appendKey(nil, was))
	}
	return keys
}

// seenPart reports whether a part is DONE, or STORED, and its row's key.
func (op *claimOp) seenPart(tx *store.Tx, p Part) (key []byte, r row, err error) {
	for _, key := range op.partKeys(p) {
		value := tx.Get(doneBucket, key)
		if value == nil {
			continue
		}
		r, err := decodeRow(value)
		if err != nil {
			return nil, row{}, err
		}
		if !r.State.leftOut() {
			return key, r, nil
		}
	}
	return nil, row{}, nil
}

// meetParts finds out which parts the app has. If it has all of the request the claim is a duplicate; if one of the others is with
// the app now, the claim waits for that.
func (op *claimOp) meetParts(tx *store.Tx) error {
	var seen []string
	for _, p := range op.req.Parts {
		key, _, err := op.seenPart(tx, p)
		if err != nil {
			return err
		}
		if key != nil {
			seen = append(seen, p.ID)
			continue
		}
		for key := range op.keys() {
			if _, err := op.meetHash(tx, key, partHash(p.ID)); err != nil || op.answeredAlready() {
				return err
			}
		}
	}
	if len(seen) > 0 && op.req.Whole && len(seen) == len(op.req.Parts) {
		op.claim.Outcome = Duplicate
		return nil
	}
	op.claim.Seen = seen
	return nil
}

// finishParts makes the parts of a claim DONE that is so.
func finishParts(tx *store.Tx, rowKey []byte, r *row) error {
	prefix, err := keyPrefix(rowKey)
	if err != nil {
		return err
	}
	for _, p := range r.Parts {
		key := appendKeyID(bytes.Clone(prefix), p.ID)
		done := row{State: StateDone, First: r.First, Last: r.Last, Type: truncateType(p.Type)}
		value := tx.Get(doneBucket, key)
		if value == nil {
			// An open claim of that id is another request's, and will have its own end.
			if bytes.Equal(key, rowKey) || tx.Get(openBucket, key) != nil {
				continue
			}
			if err := putRow(tx, doneBucket, key, &done); err != nil {
				return err
			}
			continue
		}
		old, err := decodeRow(value)
		if err != nil {
			return err
		}
		if !old.State.leftOut() {
			continue
		}
		if err := replaceRow(tx, doneBucket, key, value, &old, &done); err != nil {
			return err
		}
	}
	return nil
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
	for _, c := range op.claims {
		switch {
		case c.full:
			return Claim{}, ErrFull
		case c.claim.Outcome == InFlight, c.claim.Outcome == Held:
			return c.claim, nil
		case c.err != nil:
			return Claim{}, unavailable(c.err)
		case c.claim.Outcome == Stored:
			all.Outcome = Stored
		case all.Outcome == 0:
			all.Outcome = c.claim.Outcome
		case all.Outcome != Stored && all.Outcome != c.claim.Outcome:
			all.Outcome = Duplicate // one for one reason, another for another: the sender need not know
		}
	}
	return all, nil
}
