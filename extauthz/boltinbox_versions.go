package extauthz

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/packed"
	"github.com/sidehook/sidehook/internal/store"
)

// versionBucket holds, for each object whose version a source compares, the newest that the app has: the mark. With it stand
// the versions of all open claims of the object, so that one look says whether a newer one is with the app. Its key is that of a
// row, with Version.Object in place of the id.
var versionBucket = []byte("inbox_versions") // behind inbox_claims: RowCheck relies on it

// versionRow is what is known of an object.
type versionRow struct {
	Last int64  // of the last change, unix milliseconds
	Mark string // Version.At; empty: the app has none that we know of
	Open []openVersion
}

// openVersion is the version of an open claim: one entry for each row of openBucket that has one.
type openVersion struct {
	At  string
	Key []byte // of the claim's row
}

func (v *versionRow) appendTo(b []byte) []byte {
	b = append(b, rowVersion<<4)
	b = packed.AppendBytes(binary.AppendUvarint(b, uint64(v.Last)), v.Mark)
	for _, o := range v.Open {
		b = packed.AppendBytes(packed.AppendBytes(b, o.At), o.Key)
	}
	return b
}

func parseVersionRow(b []byte) (versionRow, error) {
	p := packed.Reader{Rest: b}
	if head := p.Byte(); head != rowVersion<<4 {
		return versionRow{}, fmt.Errorf("%w: versions of version %#x", errRow, head)
	}
	v := versionRow{Last: int64(p.Uvarint()), Mark: string(p.Bytes())}
	for len(p.Rest) > 0 {
		v.Open = append(v.Open, openVersion{string(p.Bytes()), p.Bytes()})
	}
	if p.Bad {
		return versionRow{}, fmt.Errorf("%w: versions cut off", errRow)
	}
	return v, nil
}

// hashKey is the key of what is known of a hash for the source and tenant of a row's key.
func hashKey(rowKey []byte, hash [32]byte) ([]byte, error) {
	prefix, err := keyPrefix(rowKey)
	if err != nil {
		return nil, err
	}
	return append(append(make([]byte, 0, len(prefix)+len(hash)), prefix...), hash[:]...), nil
}

// keyPrefix is the part of a row's key before its id: what all rows of its source and tenant begin with.
func keyPrefix(rowKey []byte) ([]byte, error) {
	rest := rowKey
	for range 2 {
		var ok bool
		if _, rest, ok = cutLengthPrefixed(rest); !ok {
			return nil, corruptRow(fmt.Errorf("%w: key without source and tenant", errRow))
		}
	}
	return rowKey[:len(rowKey)-len(rest)], nil
}

func readVersions(tx *store.Tx, key []byte) (versionRow, error) {
	value := tx.Get(versionBucket, key)
	if value == nil {
		return versionRow{}, nil
	}
	v, err := parseVersionRow(value)
	if err != nil {
		return versionRow{}, corruptRow(err)
	}
	return v, nil
}

// changeVersions applies f to what is known of the object of a claim's row. An object of which nothing is left to know has
// no row.
func changeVersions(tx *store.Tx, rowKey []byte, object [32]byte, f func(*versionRow)) error {
	key, err := hashKey(rowKey, object)
	if err != nil {
		return err
	}
	v, err := readVersions(tx, key)
	if err != nil {
		return err
	}
	f(&v)
	if v.Mark == "" && len(v.Open) == 0 {
		return tx.Delete(versionBucket, key)
	}
	v.Last = max(v.Last, time.Now().UnixMilli())
	return tx.Put(versionBucket, key, v.appendTo(nil))
}

// openVersionOf notes the version of a row that comes into openBucket.
func openVersionOf(tx *store.Tx, rowKey []byte, r *row) error {
	at := strings.Clone(r.Version.At) // else all rows would be on the heap
	return changeVersions(tx, rowKey, r.Version.Object, func(v *versionRow) {
		v.Open = append(v.Open, openVersion{at, rowKey})
	})
}

// closeVersionOf takes that note away with the row.
func closeVersionOf(tx *store.Tx, rowKey []byte, r *row) error {
	return changeVersions(tx, rowKey, r.Version.Object, func(v *versionRow) {
		v.Open = slices.DeleteFunc(v.Open, func(o openVersion) bool { return bytes.Equal(o.Key, rowKey) })
	})
}

// moveMark notes that the app has, or will have, that version.
func moveMark(tx *store.Tx, rowKey []byte, version Version) error {
	if version.At == "" {
		return nil
	}
	return changeVersions(tx, rowKey, version.Object, func(v *versionRow) {
		if !olderVersion(version.At, v.Mark) {
			v.Mark = version.At
		}
	})
}

// judgeVersion reports whether the app has a newer version of the claim's object. If it may be about to have one, the claim is
// answered.
func (op *claimOp) judgeVersion(tx *store.Tx) (stale bool, err error) {
	version := op.req.Version
	if version.At == "" {
		return false, nil
	}
	var open []openVersion
	for rowKey := range op.keys() {
		key, err := hashKey(rowKey, version.Object)
		if err != nil {
			return false, err
		}
		v, err := readVersions(tx, key)
		if err != nil {
			return false, err
		}
		if olderVersion(version.At, v.Mark) {
			return true, nil
		}
		open = append(open, v.Open...)
	}
	for _, o := range open {
		if !olderVersion(version.At, o.At) || op.own(o.Key) {
			continue
		}
		value := tx.Get(openBucket, o.Key)
		if value == nil {
			return false, corruptRow(fmt.Errorf("%w: a version of a claim that is not open", errRow))
		}
		r, err := decodeRow(value)
		if err != nil {
			return false, err
		}
		if left := op.b.remaining(&r); r.State == StatePending && left > 0 {
			op.wait(o.Key, left)
			return false, nil
		}
	}
	return false, nil
}
