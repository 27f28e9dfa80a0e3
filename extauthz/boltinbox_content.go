package extauthz

import (
	"crypto/sha256"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// A content is what makes an event the same as another beside its id: the hash of what was signed, of a change, or of the id of
// an event within a request. Its row in contentBucket says which claim brought it.

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
	return op.meetKeys(tx, op.req.Change.Hash)
}

// meetKeys is meetHash under the source's name and its earlier ones.
func (op *claimOp) meetKeys(tx *store.Tx, hash [sha256.Size]byte) (brought bool, err error) {
	for key := range op.keys() {
		if brought, err = op.meetHash(tx, key, hash); brought || err != nil || op.answeredAlready() {
			return brought, err
		}
	}
	return false, nil
}

// meetHash reports whether the claim that brought the content of that hash, under the source and tenant of rowKey, is DONE,
// STORED or DISCARDED. One that is open answers this claim; one that is gone, or was kept from the app, leaves the content free.
func (op *claimOp) meetHash(tx *store.Tx, rowKey []byte, hash [sha256.Size]byte) (brought bool, err error) {
	key, r, err := op.broughtBy(tx, rowKey, hash)
	switch {
	case key == nil || err != nil:
		return false, err
	case r.State.settled():
		return r.State.forApp(), nil
	}
	return false, op.meet(tx, key, tx.Get(openBucket, key), &r)
}

// broughtBy returns the row of another claim that brought the content of that hash; no key, and no state: there is none.
func (op *claimOp) broughtBy(tx *store.Tx, rowKey []byte, hash [sha256.Size]byte) (key []byte, r row, err error) {
	at, err := hashKey(rowKey, hash)
	if err != nil {
		return nil, row{}, err
	}
	value := tx.Get(contentBucket, at)
	if value == nil {
		return nil, row{}, nil
	}
	c, err := parseContentRow(value)
	if err != nil {
		return nil, row{}, corruptRow(err)
	}
	if time.Now().UnixMilli() >= c.Until || op.own(c.Key) {
		return nil, row{}, nil
	}
	if value = tx.Get(doneBucket, c.Key); value == nil {
		value = tx.Get(openBucket, c.Key)
	}
	if value == nil {
		return nil, row{}, nil
	}
	if r, err = decodeRow(value); err != nil {
		return nil, row{}, err
	}
	return c.Key, r, nil
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
	for _, p := range op.fresh {
		if err := note(partHash(p), op.b.retentionOf(op.req.Key.Source)); err != nil {
			return err
		}
	}
	return nil
}
