package egress

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/sidehook/sidehook/internal/packed"
	"github.com/sidehook/sidehook/internal/store"
)

// Job.ID (8 bytes) -> jobRow.
var jobBucket = []byte("outbox_jobs")

// jobRow is a Job as it is kept, and how far it is.
//
// Format: one byte version<<4, then in the order of appendTo.
type jobRow struct {
	Job
	// Last is the newest event that there was when the job was started; it takes none that came later.
	Last uint64
	// At is the delivery up to which everything is done.
	At DeliveryID
}

func (r *jobRow) appendTo(b []byte) []byte {
	b = append(b, rowVersion<<4, byte(r.Kind), byte(r.State), byte(r.Filter.State), byte(r.Filter.Reason))
	for _, s := range [...]string{r.Filter.Endpoint, r.Filter.Tenant, r.Filter.Type} {
		b = packed.AppendBytes(b, s)
	}
	b = appendTime(appendTime(b, r.Filter.Since), r.Filter.Until)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(r.Rate))
	for _, n := range [...]int64{toMillis(r.Started), toMillis(r.Ended), r.Total, r.Done, r.Skipped} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = appendSeq(b, r.Last)
	return appendDeliveryKey(b, r.At)
}

// appendTime appends a time of a Filter, which may be any and is shown as it was asked for.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	b = binary.AppendVarint(append(b, 1), t.Unix())
	return binary.AppendUvarint(b, uint64(t.Nanosecond()))
}

func readTime(p *packed.Reader) time.Time {
	if p.Byte() == 0 {
		return time.Time{}
	}
	return time.Unix(p.Varint(), int64(p.Size(999_999_999))).UTC()
}

func parseJob(key, value []byte) (jobRow, error) {
	var r jobRow
	id, err := parseSeq(key)
	if err != nil {
		return r, err
	}
	r.ID = id
	p := packed.Reader{Rest: value}
	head := p.Byte()
	r.Kind, r.State = JobKind(p.Byte()), JobState(p.Byte())
	r.Filter.State, r.Filter.Reason = State(p.Byte()), Outcome(p.Byte())
	if head != rowVersion<<4 || r.Kind == 0 || r.Kind >= jobKinds || r.State == 0 || r.State >= jobStates ||
		r.Filter.State >= states || r.Filter.Reason >= outcomes {
		return r, fmt.Errorf("%w: job %d", errRow, id)
	}
	for _, s := range [...]*string{&r.Filter.Endpoint, &r.Filter.Tenant, &r.Filter.Type} {
		*s = string(p.Bytes())
	}
	r.Filter.Since, r.Filter.Until = readTime(&p), readTime(&p)
	if rate := p.Take(8); rate != nil {
		r.Rate = math.Float64frombits(binary.BigEndian.Uint64(rate))
	}
	r.Started, r.Ended = fromMillis(int64(p.Uvarint())), fromMillis(int64(p.Uvarint()))
	for _, n := range [...]*int64{&r.Total, &r.Done, &r.Skipped} {
		*n = int64(p.Size(math.MaxInt64))
	}
	if last, at := p.Take(8), p.Take(deliveryKeySize); at != nil {
		r.Last = binary.BigEndian.Uint64(last)
		r.At, _ = parseDeliveryKey(at)
	}
	if p.Bad || len(p.Rest) != 0 {
		return r, fmt.Errorf("%w: job of %d bytes", errRow, len(value))
	}
	return r, nil
}

func getJob(tx *store.Tx, id uint64) (jobRow, error) {
	key := appendSeq(nil, id)
	value := tx.Get(jobBucket, key)
	if value == nil {
		return jobRow{}, ErrNotFound
	}
	r, err := parseJob(key, value)
	if err != nil {
		return r, corruptRow(err)
	}
	return r, nil
}

func (r *jobRow) put(tx *store.Tx) error {
	return tx.Put(jobBucket, appendSeq(nil, r.ID), r.appendTo(nil))
}

// readJobs returns all jobs, the newest first.
func readJobs(tx *store.Tx) ([]jobRow, error) {
	var jobs []jobRow
	c := tx.Cursor(jobBucket)
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		r, err := parseJob(k, v)
		if err != nil {
			return nil, corruptRow(err)
		}
		jobs = append(jobs, r)
	}
	return jobs, nil
}
