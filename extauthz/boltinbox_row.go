package extauthz

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/sidehook/sidehook/internal/packed"
)

const (
	// maxKeyIDBytes is the longest id that stands in a key as it is.
	maxKeyIDBytes = 256
	// maxTypeBytes is how much of an event type a row keeps.
	maxTypeBytes = 256
	// maxOlderTokens bounds the tokens of earlier leases that a row remembers for their late success.
	maxOlderTokens = 3

	rowVersion = 1
	// rowVersionMore is that of a row with more than most have, which stands behind its type.
	rowVersionMore = 2

	// The byte before an id in a key says what follows.
	keyPlainID  = 0
	keyHashedID = 1
	// shownHashPrefix stands before the hash of an id that is too long, wherever people see it.
	shownHashPrefix = "sha256:"
)

var errRow = errors.New("malformed inbox row")

// row is what the inbox keeps of an event id. A DONE row, and one that was set aside, is written without lease and tokens.
//
// Format: one byte version<<4|state, then uvarints and raw bytes in the order of appendTo. Times are UTC unix
// milliseconds. A row with IgnoredFor or Version is of rowVersionMore: its type has a length, and they follow.
type row struct {
	State State
	First int64 // first claimed
	Last  int64 // last seen
	Type  []byte

	// Ref names the event of a STORED row.
	Ref StoredRef

	// IgnoredFor is of an IGNORED row.
	IgnoredFor IgnoredFor

	// Of open rows only. The lease began at Start on the wall clock, and Mono milliseconds after the opening of the
	// store numbered Epoch: within one opening the latter counts, after a restart the former.
	OnUnknown OnUnknown
	Start     int64
	Lease     time.Duration
	Epoch     uint64
	Mono      int64
	Token     Token
	// Older are tokens of earlier leases whose end nobody has told yet, the latest first.
	Older []Token
	// Version becomes its object's mark when the claim is DONE.
	Version Version
}

// more reports whether r has what only rows of rowVersionMore hold.
func (r *row) more() bool {
	return r.IgnoredFor != 0 || !r.State.settled() && r.Version.At != ""
}

// letThrough reports whether a person released r when it was set aside: other rows are RELEASED only while tokens are open.
func (r *row) letThrough() bool { return r.State == StateReleased && len(r.Older) == 0 }

// neverClaimed reports whether no request of r's id went to the app.
func (r *row) neverClaimed() bool { return r.State.settled() || r.letThrough() }

func (r *row) appendTo(b []byte) []byte {
	version := byte(rowVersion)
	if r.more() {
		version = rowVersionMore
	}
	b = append(b, version<<4|byte(r.State))
	b = binary.AppendUvarint(b, uint64(r.First))
	b = binary.AppendVarint(b, r.Last-r.First)
	switch {
	case r.State == StateStored:
		b = append(b, r.Ref[:]...)
	case !r.State.settled():
		b = append(b, byte(r.OnUnknown))
		b = binary.AppendVarint(b, r.Start-r.First)
		b = binary.AppendUvarint(b, uint64(r.Lease/time.Millisecond))
		b = binary.AppendUvarint(b, r.Epoch)
		b = binary.AppendUvarint(b, uint64(r.Mono))
		b = append(b, r.Token[:]...)
		b = append(b, byte(len(r.Older)))
		for _, t := range r.Older {
			b = append(b, t[:]...)
		}
	}
	if version == rowVersion {
		return append(b, r.Type...)
	}
	b = packed.AppendBytes(b, r.Type)
	b = append(b, byte(r.IgnoredFor))
	if b = packed.AppendBytes(b, r.Version.At); r.Version.At != "" {
		b = append(b, r.Version.Object[:]...)
	}
	return b
}

// parseRow reads a row; Type is a view into b.
func parseRow(b []byte) (row, error) {
	var r row
	p := packed.Reader{Rest: b}
	head := p.Byte()
	if head>>4 != rowVersion && head>>4 != rowVersionMore {
		return row{}, fmt.Errorf("%w: version %d", errRow, head>>4)
	}
	r.State = State(head & 0xf)
	r.First = int64(p.Uvarint())
	r.Last = r.First + p.Varint()
	switch r.State {
	case StateDone, StateIgnored, StateStale, StateDuplicateChange, StateDiscarded:
	case StateStored:
		copy(r.Ref[:], p.Take(len(r.Ref)))
	case StatePending, StateUnknown, StateReleased:
		r.OnUnknown = OnUnknown(p.Byte())
		r.Start = r.First + p.Varint()
		r.Lease = time.Duration(p.Uvarint()) * time.Millisecond
		r.Epoch = p.Uvarint()
		r.Mono = int64(p.Uvarint())
		copy(r.Token[:], p.Take(len(r.Token)))
		n := int(p.Byte())
		if n > maxOlderTokens {
			return row{}, fmt.Errorf("%w: %d older tokens", errRow, n)
		}
		if n > 0 {
			r.Older = make([]Token, n)
		}
		for i := range r.Older {
			copy(r.Older[i][:], p.Take(len(Token{})))
		}
	default:
		return row{}, fmt.Errorf("%w: state %d", errRow, r.State)
	}
	if head>>4 == rowVersionMore {
		r.parseMore(&p)
	} else {
		r.Type = p.Rest
	}
	if p.Bad {
		return row{}, fmt.Errorf("%w: cut off", errRow)
	}
	if len(r.Type) > maxTypeBytes {
		return row{}, fmt.Errorf("%w: type of %d bytes", errRow, len(r.Type))
	}
	return r, nil
}

// parseMore reads what follows the lease in a row of rowVersionMore.
func (r *row) parseMore(p *packed.Reader) {
	r.Type = p.Bytes()
	r.IgnoredFor = IgnoredFor(p.Byte())
	if r.Version.At = string(p.Bytes()); r.Version.At != "" {
		copy(r.Version.Object[:], p.Take(len(r.Version.Object)))
	}
	p.Bad = p.Bad || len(p.Rest) > 0
}

// appendKey encodes k as a row's key: source and tenant with their lengths in front, so that the rows of a source
// stand together and no two keys collide, then the id or, if that is too long, its SHA-256.
func appendKey(b []byte, k Key) []byte {
	return appendKeyID(appendKeyPrefix(b, k.Source, k.Tenant), k.ID)
}

func appendKeyID(b []byte, id string) []byte {
	if len(id) > maxKeyIDBytes {
		sum := sha256.Sum256([]byte(id))
		return append(append(b, keyHashedID), sum[:]...)
	}
	return append(append(b, keyPlainID), id...)
}

func appendKeyPrefix(b []byte, source, tenant string) []byte {
	b = appendKeySource(b, source)
	b = binary.AppendUvarint(b, uint64(len(tenant)))
	return append(b, tenant...)
}

func appendKeySource(b []byte, source string) []byte {
	b = binary.AppendUvarint(b, uint64(len(source)))
	return append(b, source...)
}

// parseKey reads what appendKey wrote; a long id comes back as "sha256:" and hex.
func parseKey(b []byte) (Key, error) {
	source, b, ok := cutLengthPrefixed(b)
	if !ok {
		return Key{}, fmt.Errorf("%w: key without source", errRow)
	}
	tenant, b, ok := cutLengthPrefixed(b)
	if !ok || len(b) == 0 {
		return Key{}, fmt.Errorf("%w: key without id", errRow)
	}
	k := Key{Source: string(source), Tenant: string(tenant)}
	switch form, id := b[0], b[1:]; {
	case form == keyPlainID && len(id) <= maxKeyIDBytes:
		k.ID = string(id)
	case form == keyHashedID && len(id) == sha256.Size:
		k.ID = shownHashPrefix + hex.EncodeToString(id)
	default:
		return Key{}, fmt.Errorf("%w: key's id of form %d, %d bytes", errRow, form, len(id))
	}
	return k, nil
}

func cutLengthPrefixed(b []byte) (head, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return b[size : size+int(n)], b[size+int(n):], true
}

// contentRow says under which row key a content was last claimed, and until when (unix milliseconds) that counts.
type contentRow struct {
	Until int64
	Key   []byte
}

func (c *contentRow) appendTo(b []byte) []byte {
	b = append(b, rowVersion<<4)
	b = binary.AppendUvarint(b, uint64(c.Until))
	return append(b, c.Key...)
}

func parseContentRow(b []byte) (contentRow, error) {
	p := packed.Reader{Rest: b}
	if head := p.Byte(); head != rowVersion<<4 {
		return contentRow{}, fmt.Errorf("%w: content version %#x", errRow, head)
	}
	c := contentRow{Until: int64(p.Uvarint()), Key: p.Rest}
	if p.Bad || len(c.Key) == 0 {
		return contentRow{}, fmt.Errorf("%w: content cut off", errRow)
	}
	return c, nil
}

// truncateType bounds an event type without cutting a character in two.
func truncateType(s string) []byte {
	if len(s) <= maxTypeBytes {
		return []byte(s)
	}
	return bytes.ToValidUTF8([]byte(s[:maxTypeBytes]), nil)
}
