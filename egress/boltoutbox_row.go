package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/sidehook/sidehook/internal/packed"
	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/internal/store"
)

// The outbox's buckets. Numbers in keys are big-endian, so that rows stand in the order of acceptance.
var (
	// Event.Seq -> eventRow; appended, gone with the last of the event's deliveries.
	eventBucket = []byte("outbox_events")
	// Event.Seq -> body; there as long as a delivery of the event needs it, see State.needsBody.
	bodyBucket = []byte("outbox_bodies")
	// Event.Seq -> number of deliveries that need the body (uvarint); only where an event was made for several endpoints.
	openBucket = []byte("outbox_open")
	// idKey -> Event.Seq, for ids that the app gave; those of our own making hold their Seq.
	idBucket = []byte("outbox_ids")
	// DeliveryID -> deliveryRow.
	deliveryBucket = []byte("outbox_deliveries")
	// chainKey -> place; a row for each open delivery of an event with an Order.
	chainBucket = []byte("outbox_chains")
	// dueKey -> nothing; a row for each WAITING delivery but those that wait behind others of their chain.
	dueBucket = []byte("outbox_due")
	// DeliveryID -> nothing; a row for each DEAD delivery, which are few among many and looked for most.
	deadBucket = []byte("outbox_dead")
	// DeliveryID, Attempt.N (4 bytes) -> Attempt; appended.
	attemptBucket = []byte("outbox_attempts")
	// logBytesKey -> bytes of all keys and rows of attemptBucket (8 bytes).
	logBucket = []byte("outbox_log")
	// DeliveryID -> markRow; attempts that are under way.
	markBucket = []byte("outbox_marks")
	// countKey -> count.
	countBucket = []byte("outbox_counts")
	// endpoint ID -> endpointRow; those that are not removed.
	endpointBucket = []byte("outbox_endpoints")
	// number of an endpoint (4 bytes) -> numberRow; also of removed ones, until no delivery bears it.
	numberBucket = []byte("outbox_numbers")
)

// rowVersion is in the first four bits of every row.
const rowVersion = 1

// maxAnswerBytes and maxDetailBytes bound what an Attempt keeps.
const (
	maxAnswerBytes = 1 << 10
	maxDetailBytes = 256
)

var errRow = errors.New("malformed outbox row")

// corruptRow marks what a row of the store cannot be: the file cannot be trusted.
func corruptRow(err error) error { return fmt.Errorf("%w: %w", store.ErrCorrupt, err) }

// seqTime is the time in Event.Seq, unix milliseconds. Times in rows are kept as their distance to it.
func seqTime(seq uint64) int64 { return int64(seq >> seqCountBits) }

// seqCountBits of Event.Seq count the events of one millisecond.
const seqCountBits = 20

func appendSeq(b []byte, seq uint64) []byte { return binary.BigEndian.AppendUint64(b, seq) }

// parseSeq reads a key of eventBucket, bodyBucket and openBucket.
func parseSeq(key []byte) (uint64, error) {
	if len(key) != 8 {
		return 0, fmt.Errorf("%w: event key of %d bytes", errRow, len(key))
	}
	return binary.BigEndian.Uint64(key), nil
}

const deliveryKeySize = 12

func appendDeliveryKey(b []byte, id DeliveryID) []byte {
	return binary.BigEndian.AppendUint32(appendSeq(b, id.Event), id.Endpoint)
}

// parseDeliveryKey reads a key of deliveryBucket and markBucket, and the front of one of attemptBucket.
func parseDeliveryKey(key []byte) (DeliveryID, error) {
	if len(key) < deliveryKeySize {
		return DeliveryID{}, fmt.Errorf("%w: delivery key of %d bytes", errRow, len(key))
	}
	return DeliveryID{binary.BigEndian.Uint64(key), binary.BigEndian.Uint32(key[8:])}, nil
}

func appendAttemptKey(b []byte, id DeliveryID, n int) []byte {
	return binary.BigEndian.AppendUint32(appendDeliveryKey(b, id), uint32(n))
}

func parseAttemptKey(key []byte) (id DeliveryID, n int, err error) {
	if len(key) != deliveryKeySize+4 {
		return id, 0, fmt.Errorf("%w: attempt key of %d bytes", errRow, len(key))
	}
	id, err = parseDeliveryKey(key)
	return id, int(binary.BigEndian.Uint32(key[deliveryKeySize:])), err
}

// dueKey orders what waits at an endpoint: by lane, then by due time, then by acceptance.
type dueKey struct {
	endpoint uint32
	lane     Lane
	due      int64 // unix milliseconds
	seq      uint64
}

const (
	dueKeySize   = 4 + 1 + 8 + 8
	lanePartSize = 4 + 1 // of an endpoint's lane
)

func appendLaneKey(b []byte, endpoint uint32, lane Lane) []byte {
	return append(binary.BigEndian.AppendUint32(b, endpoint), byte(lane))
}

func (k dueKey) appendTo(b []byte) []byte {
	b = appendLaneKey(b, k.endpoint, k.lane)
	return appendSeq(binary.BigEndian.AppendUint64(b, uint64(k.due)), k.seq)
}

func parseDueKey(key []byte) (dueKey, error) {
	if len(key) != dueKeySize || Lane(key[4]) >= lanes {
		return dueKey{}, fmt.Errorf("%w: due key %x", errRow, key)
	}
	return dueKey{
		endpoint: binary.BigEndian.Uint32(key),
		lane:     Lane(key[4]),
		due:      int64(binary.BigEndian.Uint64(key[5:])),
		seq:      binary.BigEndian.Uint64(key[13:]),
	}, nil
}

func (k dueKey) delivery() DeliveryID { return DeliveryID{k.seq, k.endpoint} }

// eventRow is an Event without its body, as it is kept.
//
// Format: one byte version<<4|flags, then in the order of appendTo. The targets stand at the end, each of the same size,
// so that Accept can say of each what became of it when the rest is written already.
type eventRow struct {
	ID, Tenant, Type, ContentType string
	Headers                       []signature.Field
	Accepted                      int64 // unix milliseconds
	Content                       [32]byte
	Bytes                         int // of the body, also when it is gone
	// Expunged: body and headers were removed on somebody's wish.
	Expunged bool
	Targets  []targetRow
}

// targetRow is one endpoint of an event as the Receipt told it.
type targetRow struct {
	Endpoint     uint32
	Parked, Full bool
}

const (
	eventExpunged = 1

	targetSize   = 5
	targetParked = 1
	targetFull   = 2
)

func (r *eventRow) appendTo(b []byte, seq uint64) []byte {
	head := byte(rowVersion << 4)
	if r.Expunged {
		head |= eventExpunged
	}
	b = append(b, head)
	b = binary.AppendVarint(b, r.Accepted-seqTime(seq))
	b = append(b, r.Content[:]...)
	b = binary.AppendUvarint(b, uint64(r.Bytes))
	for _, s := range [...]string{r.ID, r.Tenant, r.Type, r.ContentType} {
		b = packed.AppendBytes(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		b = packed.AppendBytes(packed.AppendBytes(b, h.Name), h.Value)
	}
	for _, t := range r.Targets {
		b = t.appendTo(b)
	}
	return b
}

func (t targetRow) appendTo(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, t.Endpoint), t.flags())
}

func (t targetRow) flags() (f byte) {
	if t.Parked {
		f |= targetParked
	}
	if t.Full {
		f |= targetFull
	}
	return f
}

// parseEvent reads the row of the event seq. Nothing in it points into b.
func parseEvent(b []byte, seq uint64) (eventRow, error) {
	r := eventRow{}
	p := packed.Reader{Rest: b}
	head := p.Byte()
	if head>>4 != rowVersion {
		return r, fmt.Errorf("%w: event of version %d", errRow, head>>4)
	}
	r.Expunged = head&eventExpunged != 0
	r.Accepted = seqTime(seq) + p.Varint()
	copy(r.Content[:], p.Take(len(r.Content)))
	r.Bytes = p.Size(math.MaxInt32)
	texts := string(p.Rest) // one copy, of which all strings are cut
	next := func() string {
		n := len(p.Bytes())
		end := len(texts) - len(p.Rest)
		return texts[end-n : end]
	}
	for _, s := range [...]*string{&r.ID, &r.Tenant, &r.Type, &r.ContentType} {
		*s = next()
	}
	if n := p.Size(len(p.Rest)); n > 0 {
		r.Headers = make([]signature.Field, n)
	}
	for i := range r.Headers {
		r.Headers[i] = signature.Field{Name: next(), Value: next()}
	}
	if p.Bad || len(p.Rest)%targetSize != 0 {
		return r, fmt.Errorf("%w: event cut off", errRow)
	}
	r.Targets = make([]targetRow, 0, len(p.Rest)/targetSize)
	for len(p.Rest) > 0 {
		t := p.Take(targetSize)
		r.Targets = append(r.Targets, targetRow{
			Endpoint: binary.BigEndian.Uint32(t),
			Parked:   t[4]&targetParked != 0,
			Full:     t[4]&targetFull != 0,
		})
	}
	return r, nil
}
