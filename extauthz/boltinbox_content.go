package extauthz

import (
	"crypto/sha256"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// A content is what makes an event the same as another beside its id: the hash of what was signed, of a change, or of the id of
// a part that is with the app. Its row in contentBucket says which claim brought it.

// meetContent answers the claim by the row of another id that brought the same content within the window.
func (op *claimOp) meetContent(tx *store.Tx) error {
	if op.req.ContentWindow <= 0 {
		return nil
	}
	brought, err := op.meetHash(tx, op.key, op.req.ContentHash)
	if brought {
		op.claim.Outcome = Duplicate
	}
	return err
}

// judgeChange reports whether the app has the claim's change by another event. If it may be about to have it, the claim is
// answered.
func (op *claimOp) judgeChange(tx *store.Tx) (told bool, err error) {
	if op.req.Change.Window <= 0 {
		return false, nil
	}
	for key := range op.keys() {
		if told, err = op.meetHash(tx, key, op.req.Change.Hash); told || err != nil || op.answeredAlready() {
			return told, err
		}
	}
	return false, nil
}

// meetHash reports whether the claim that brought the content of that hash, under the source and tenant of rowKey, is DONE or
// STORED. One that is open answers this claim; one that is gone, or was kept from the app, leaves the content free.
func (op *claimOp) meetHash(tx *store.Tx, rowKey []byte, hash [sha256.Size]byte) (brought bool, err error) {
	key, err := hashKey(rowKey, hash)
	if err != nil {
		return false, err
	}
	value := tx.Get(contentBucket, key)
	if value == nil {
		return false, nil
	}
	c, err := parseContentRow(value)
	if err != nil {
		return false, corruptRow(err)
	}
	if time.Now().UnixMilli() >= c.Until || op.own(c.Key) {
		return false, nil
	}
	if value = tx.Get(doneBucket, c.Key); value != nil {
		r, err := decodeRow(value)
		return err == nil && !r.State.leftOut(), err
	}
	if value = tx.Get(openBucket, c.Key); value == nil {
		return false, nil
	}
	r, err := decodeRow(value)
	if err != nil {
		return false, err
	}
	return false, op.meet(tx, c.Key, value, &r)
}

// noteContents notes what the claim brings.
func (op *claimOp) noteContents(tx *store.Tx) error {
	note := func(hash [sha256.Size]byte, window time.Duration) error {
		key, err := hashKey(op.key, hash)
		if err != nil {
			return err
		}
		c := contentRow{Until: time.Now().Add(window).UnixMilli(), Key: op.key}
		return tx.Put(contentBucket, key, c.appendTo(nil))
	}
	if window := op.req.ContentWindow; window > 0 {
		if err := note(op.req.ContentHash, window); err != nil {
			return err
		}
	}
	if window := op.req.Change.Window; window > 0 {
		if err := note(op.req.Change.Hash, window); err != nil {
			return err
		}
	}
	// While the claim is open; once it is DONE each part has a row of its own.
	window := op.req.Lease
	if op.req.OnUnknown == OnUnknownHold {
		window = op.b.retentionOf(op.req.Key.Source)
	}
	for _, p := range op.req.Parts {
		if err := note(partHash(p.ID), window); err != nil {
			return err
		}
	}
	return nil
}
