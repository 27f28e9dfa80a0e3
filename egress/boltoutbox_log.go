package egress

import (
	"encoding/binary"
	"fmt"

	"github.com/sidehook/sidehook/internal/store"
)

// What the attempts take is counted as they come and go, so that their share of the store can be bounded without reading
// them.
var logBytesKey = []byte("bytes")

// logAttempt writes a row of attemptBucket that is not there yet.
func (b *BoltOutbox) logAttempt(tx *store.Tx, key, row []byte) error {
	c, err := b.totals.changesOf(tx)
	if err != nil {
		return err
	}
	c.log(int64(len(key) + len(row)))
	return tx.Append(attemptBucket, key, row)
}

// forgetAttempt deletes a row of attemptBucket.
func (b *BoltOutbox) forgetAttempt(tx *store.Tx, key, row []byte) error {
	c, err := b.totals.changesOf(tx)
	if err != nil {
		return err
	}
	c.log(-int64(len(key) + len(row)))
	return tx.Delete(attemptBucket, key)
}

// LogBytes is what the attempts take, as of the last commit. It reads nothing.
func (b *BoltOutbox) LogBytes() int64 {
	b.totals.mu.Lock()
	defer b.totals.mu.Unlock()
	return b.totals.logBytes
}

func logBytes(tx *store.Tx) (int64, error) {
	value := tx.Get(logBucket, logBytesKey)
	if value == nil {
		return 0, nil
	}
	n, err := parseLogBytes(value)
	if err != nil {
		return 0, corruptRow(err)
	}
	return n, nil
}

func parseLogBytes(value []byte) (int64, error) {
	if len(value) != 8 || value[0] > 0x7f {
		return 0, fmt.Errorf("%w: bytes of the log %x", errRow, value)
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}

func addLogBytes(tx *store.Tx, change int64) error {
	if change == 0 {
		return nil
	}
	n, err := logBytes(tx)
	if err != nil {
		return err
	}
	if n += change; n < 0 {
		return corruptRow(fmt.Errorf("%w: bytes of the log below zero", errRow))
	}
	return tx.Put(logBucket, logBytesKey, binary.BigEndian.AppendUint64(nil, uint64(n)))
}
