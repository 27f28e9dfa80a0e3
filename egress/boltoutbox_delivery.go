package egress

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"time"
	"unicode/utf8"

	"github.com/sidehook/sidehook/internal/packed"
)

// deliveryRow is a Delivery as it is kept; times are unix milliseconds, 0 for none.
//
// Format: one byte version<<4|state, one of flags, one of Reason, then varints in the order of appendTo.
type deliveryRow struct {
	State State
	Lane  Lane
	// Shared: the event was made for several endpoints, and openBucket counts those that need its body.
	Shared      bool
	NotReached  bool
	Redelivered bool
	Reason      Outcome
	Created     int64
	Due         int64 // of a WAITING one when it shall be tried; else as it last was
	Ended       int64
	Attempts    int
	Tries       int
	Bytes       int
	Job         uint64
	Order       orderKey
}

const (
	deliveryRetry  = 1 << iota // Lane is LaneRetry
	deliveryShared             // see deliveryFlags
	deliveryNotReached
	deliveryRedelivered
	deliveryEnded // there is an Ended
	deliveryJob   // there is a Job
	deliveryOrder // there is an Order

	// deliveryFlags is where the flags stand in the row: Accept learns only in the committer whether a delivery is shared.
	deliveryFlags = 1
)

// appendTo appends the row of a delivery of the event seq.
func (r *deliveryRow) appendTo(b []byte, seq uint64) []byte {
	var flags byte
	for _, f := range [...]struct {
		set bool
		bit byte
	}{
		{r.Lane == LaneRetry, deliveryRetry}, {r.Shared, deliveryShared}, {r.NotReached, deliveryNotReached},
		{r.Redelivered, deliveryRedelivered}, {r.Ended != 0, deliveryEnded}, {r.Job != 0, deliveryJob},
		{r.Order != orderKey{}, deliveryOrder},
	} {
		if f.set {
			flags |= f.bit
		}
	}
	b = append(b, rowVersion<<4|byte(r.State), flags, byte(r.Reason))
	base := seqTime(seq)
	b = binary.AppendVarint(b, r.Created-base)
	b = binary.AppendVarint(b, r.Due-base)
	b = binary.AppendUvarint(b, uint64(r.Attempts))
	b = binary.AppendUvarint(b, uint64(r.Tries))
	b = binary.AppendUvarint(b, uint64(r.Bytes))
	if r.Ended != 0 {
		b = binary.AppendVarint(b, r.Ended-base)
	}
	if r.Job != 0 {
		b = binary.AppendUvarint(b, r.Job)
	}
	if r.Order != (orderKey{}) {
		b = append(b, r.Order[:]...)
	}
	return b
}

// parseDelivery reads the row of a delivery of the event seq.
func parseDelivery(b []byte, seq uint64) (deliveryRow, error) {
	var r deliveryRow
	p := packed.Reader{Rest: b}
	head, flags := p.Byte(), p.Byte()
	r.State, r.Reason = State(head&0xf), Outcome(p.Byte())
	if head>>4 != rowVersion || !r.State.kept() || r.Reason >= outcomes {
		return r, fmt.Errorf("%w: delivery of version %d, state %d, reason %d", errRow, head>>4, r.State, r.Reason)
	}
	if flags&deliveryRetry != 0 {
		r.Lane = LaneRetry
	}
	r.Shared = flags&deliveryShared != 0
	r.NotReached = flags&deliveryNotReached != 0
	r.Redelivered = flags&deliveryRedelivered != 0
	base := seqTime(seq)
	r.Created = base + p.Varint()
	r.Due = base + p.Varint()
	r.Attempts = p.Size(math.MaxInt32)
	r.Tries = p.Size(math.MaxInt32)
	r.Bytes = p.Size(math.MaxInt32)
	if flags&deliveryEnded != 0 {
		r.Ended = base + p.Varint()
	}
	if flags&deliveryJob != 0 {
		r.Job = p.Uvarint()
	}
	if flags&deliveryOrder != 0 {
		copy(r.Order[:], p.Take(len(r.Order)))
	}
	if p.Bad || len(p.Rest) != 0 {
		return r, fmt.Errorf("%w: delivery of %d bytes", errRow, len(b))
	}
	return r, nil
}

// kept reports whether s is a state that a delivery has on disk; the others are only shown.
func (s State) kept() bool {
	switch s {
	case StateWaiting, StateDelivered, StateDead, StateCancelled, StateDiscarded:
		return true
	}
	return false
}

// needsBody reports whether a delivery in state s may be sent yet, or again: the event's body is kept for it.
func (s State) needsBody() bool { return s == StateWaiting || s == StateDead }

// dueKey is the row's place in dueBucket while it is WAITING.
func (r *deliveryRow) dueKey(id DeliveryID) dueKey {
	return dueKey{id.Endpoint, r.Lane, r.Due, id.Event}
}

// delivery is the row as a Delivery to the endpoint of that ID.
func (r *deliveryRow) delivery(id DeliveryID, endpoint string) Delivery {
	return Delivery{
		ID: id, Endpoint: endpoint, State: r.State, Lane: r.Lane, Due: fromMillis(r.Due), Attempts: r.Attempts, Tries: r.Tries,
		Created: fromMillis(r.Created), Ended: fromMillis(r.Ended), Reason: r.Reason, NotReached: r.NotReached,
		Redelivered: r.Redelivered, Job: r.Job, Bytes: r.Bytes,
	}
}

// fromMillis is the time of unix milliseconds as rows keep them: 0 is none.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// toMillis is the other way round.
func toMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

const (
	attemptCounted = 1 << iota
	attemptTruncated
)

// appendTo appends the attempt as it is logged; delivery and number are its key. Answer and Detail are cut to their bounds.
func (a *Attempt) appendTo(b []byte) []byte {
	head := byte(rowVersion << 4)
	if a.Counted {
		head |= attemptCounted
	}
	answer := a.Answer[:min(len(a.Answer), maxAnswerBytes)]
	if a.Truncated || len(answer) < len(a.Answer) {
		head |= attemptTruncated
	}
	b = append(b, head, byte(a.Trigger), byte(a.Outcome))
	b = binary.AppendVarint(b, toMillis(a.At)-seqTime(a.Delivery.Event))
	b = binary.AppendUvarint(b, uint64(max(0, a.Status)))
	b = binary.AppendUvarint(b, uint64(max(0, a.Took.Microseconds())))
	b = packed.AppendBytes(b, a.IP.AsSlice())
	b = binary.AppendUvarint(b, uint64(max(0, a.RetryAfter.Milliseconds())))
	b = binary.AppendUvarint(b, uint64(max(0, a.AnswerBytes)))
	b = packed.AppendBytes(b, answer)
	return append(b, cutText(a.Detail, maxDetailBytes)...)
}

// cutText is s, cut to most bytes where it is longer, and no character in two.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// parseAttempt reads a row of attemptBucket. Nothing in it points into b.
func parseAttempt(b []byte, id DeliveryID, n int) (Attempt, error) {
	a := Attempt{Delivery: id, N: n}
	p := packed.Reader{Rest: b}
	head := p.Byte()
	a.Counted, a.Truncated = head&attemptCounted != 0, head&attemptTruncated != 0
	a.Trigger, a.Outcome = Trigger(p.Byte()), Outcome(p.Byte())
	if head>>4 != rowVersion || a.Trigger == 0 || a.Trigger >= triggers || a.Outcome == 0 || a.Outcome >= outcomes {
		return a, fmt.Errorf("%w: attempt of version %d, trigger %d, outcome %d", errRow, head>>4, a.Trigger, a.Outcome)
	}
	a.At = fromMillis(seqTime(id.Event) + p.Varint())
	a.Status = p.Size(math.MaxInt32)
	a.Took = time.Duration(p.Size(math.MaxInt64/1000)) * time.Microsecond
	ip := p.Bytes()
	a.RetryAfter = time.Duration(p.Size(math.MaxInt64/1_000_000)) * time.Millisecond
	a.AnswerBytes = int64(p.Size(math.MaxInt64))
	if answer := p.Bytes(); len(answer) > 0 {
		a.Answer = append([]byte(nil), answer...)
	}
	var ok bool
	if a.IP, ok = netip.AddrFromSlice(ip); !ok && len(ip) > 0 {
		p.Bad = true
	}
	if p.Bad || len(a.Answer) > maxAnswerBytes || len(p.Rest) > maxDetailBytes {
		return a, fmt.Errorf("%w: attempt of %d bytes", errRow, len(b))
	}
	a.Detail = string(p.Rest)
	return a, nil
}

// markRow notes that attempt N of a delivery began.
type markRow struct {
	At      int64 // unix milliseconds
	Trigger Trigger
	N       int
}

func (r markRow) appendTo(b []byte) []byte {
	b = append(b, rowVersion<<4, byte(r.Trigger))
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.At)), uint64(r.N))
}

func parseMark(b []byte) (markRow, error) {
	p := packed.Reader{Rest: b}
	head := p.Byte()
	r := markRow{Trigger: Trigger(p.Byte()), At: int64(p.Uvarint()), N: p.Size(math.MaxInt32)}
	if head != rowVersion<<4 || r.Trigger == 0 || r.Trigger >= triggers || p.Bad || len(p.Rest) != 0 {
		return r, fmt.Errorf("%w: mark %x", errRow, b)
	}
	return r, nil
}
