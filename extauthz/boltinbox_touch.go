package extauthz

import (
	"bytes"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

const (
	// touchShare of its retention may pass before a row's "last seen" is written again: duplicates must not cost a
	// commit each.
	touchShare = 16
	// maxTouchAge bounds that for long retentions.
	maxTouchAge = time.Hour
	// maxTouching bounds the notes that wait for a commit; a note that is left out is made by the next duplicate.
	maxTouching = 1024
)

// touchAge is by how much the "last seen" of a row may be behind.
func touchAge(retention time.Duration) time.Duration { return min(retention/touchShare, maxTouchAge) }

func (b *BoltInbox) retentionOf(source string) time.Duration {
	if d, ok := b.retention(source); ok {
		return d
	}
	return DefaultRetention
}

// stale reports whether a row last seen ms milliseconds ago shall be noted as seen again.
func (b *BoltInbox) stale(source string, ms int64) bool {
	return time.Duration(ms)*time.Millisecond > touchAge(b.retentionOf(source))
}

// touch notes at leisure that the DONE or IGNORED row of key was seen.
func (b *BoltInbox) touch(key []byte, now int64) {
	if b.touching.Add(1) > maxTouching || b.store.Submit(&touchOp{b, bytes.Clone(key), now}, store.Lazy) != nil {
		b.touching.Add(-1)
	}
}

type touchOp struct {
	b   *BoltInbox
	key []byte
	now int64
}

// Apply implements store.Op.
func (op *touchOp) Apply(tx *store.Tx) error {
	value := tx.Get(doneBucket, op.key)
	if value == nil {
		return nil
	}
	r, err := decodeRow(value)
	if err != nil {
		return err
	}
	if r.Last >= op.now {
		return nil
	}
	seen := r
	seen.Last = op.now
	return replaceRow(tx, doneBucket, op.key, value, &r, &seen)
}

// Done implements store.Op.
func (op *touchOp) Done(error) { op.b.touching.Add(-1) }
