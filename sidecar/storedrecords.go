package sidecar

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/extauthz"
)

// storedRecords shows the outbox of the stored events as the inbox's admin API knows them.
type storedRecords struct{ records egress.Records }

var _ extauthz.StoredRecords = storedRecords{}

// NewStoredRecords shows records as those of stored events, whose endpoints are sources. Their Parked says that a source is not
// in STORE any more: what waits there is ORPHANED.
func NewStoredRecords(records egress.Records) extauthz.StoredRecords { return storedRecords{records} }

// storedStates says how the states of deliveries are shown as states of events.
var storedStates = map[egress.State]extauthz.State{
	egress.StateWaiting:   extauthz.StateStored,
	egress.StateSending:   extauthz.StateDelivering,
	egress.StateDelivered: extauthz.StateDone,
	egress.StateDead:      extauthz.StateDead,
	egress.StateParked:    extauthz.StateOrphaned,
	egress.StateDiscarded: extauthz.StateDiscarded,
	// An outbox that keeps what waits for removed endpoints has none of these.
	egress.StateCancelled: extauthz.StateDiscarded,
}

// List implements extauthz.StoredRecords.
func (r storedRecords) List(ctx context.Context, f extauthz.StoredFilter, cursor string, rows int) (extauthz.StoredPage, error) {
	filter, err := deliveryFilter(f)
	if err != nil {
		return extauthz.StoredPage{}, err
	}
	page, err := r.records.ListDeliveries(ctx, filter, cursor, rows)
	return extauthz.StoredPage{Records: storedList(page.Deliveries), Next: page.Next}, storedError(err)
}

// Count implements extauthz.StoredRecords.
func (r storedRecords) Count(ctx context.Context, f extauthz.StoredFilter) (int64, error) {
	filter, err := deliveryFilter(f)
	if err != nil {
		return 0, err
	}
	n, err := r.records.Count(ctx, filter)
	return n, storedError(err)
}

// Find implements extauthz.StoredRecords.
func (r storedRecords) Find(ctx context.Context, refs ...extauthz.StoredRef) ([]extauthz.StoredRecord, error) {
	found, err := r.records.Deliveries(ctx, deliveryIDs(refs)...)
	return storedList(found), storedError(err)
}

// Get implements extauthz.StoredRecords.
func (r storedRecords) Get(ctx context.Context, ref extauthz.StoredRef) (extauthz.StoredDetail, error) {
	d, err := r.records.Delivery(ctx, deliveryID(ref))
	if err != nil {
		return extauthz.StoredDetail{}, storedError(err)
	}
	detail := extauthz.StoredDetail{
		StoredRecord: storedRecord(&d.Delivery),
		Content:      d.Event.Content,
		HasBody:      d.Event.HasBody,
	}
	for _, h := range d.Event.Headers {
		switch h.Name {
		case extauthz.PseudoMethod:
			detail.Method = h.Value
		case extauthz.PseudoPath:
			detail.Target = h.Value
		case extauthz.PseudoAuthority:
			detail.Authority = h.Value
		default:
			detail.Headers = append(detail.Headers, h)
		}
	}
	for i := range d.Attempts {
		detail.Attempts = append(detail.Attempts, storedAttempt(&d.Attempts[i]))
	}
	return detail, nil
}

// Body implements extauthz.StoredRecords.
func (r storedRecords) Body(ctx context.Context, ref extauthz.StoredRef) ([]byte, error) {
	body, err := r.records.Body(ctx, deliveryID(ref).Event)
	return body, storedError(err)
}

// Summary implements extauthz.StoredRecords.
func (r storedRecords) Summary(ctx context.Context) ([]extauthz.StateSummary, error) {
	sums, err := r.records.Summary(ctx)
	if err != nil {
		return nil, storedError(err)
	}
	out := make([]extauthz.StateSummary, len(sums))
	for i, s := range sums {
		out[i] = extauthz.StateSummary{
			Source: s.Endpoint, State: storedStates[s.State], Count: s.Count, Bytes: s.Bytes, Oldest: s.Oldest, Reason: outcomeWord(s.Reason),
		}
	}
	return out, nil
}

// Redeliver implements extauthz.StoredRecords.
func (r storedRecords) Redeliver(ctx context.Context, refs ...extauthz.StoredRef) ([]extauthz.StoredChange, error) {
	changed, err := r.records.Redeliver(ctx, deliveryIDs(refs)...)
	return storedChanges(changed), storedError(err)
}

// Discard implements extauthz.StoredRecords.
func (r storedRecords) Discard(ctx context.Context, refs ...extauthz.StoredRef) ([]extauthz.StoredChange, error) {
	changed, err := r.records.Discard(ctx, deliveryIDs(refs)...)
	return storedChanges(changed), storedError(err)
}

// Expunge implements extauthz.StoredRecords.
func (r storedRecords) Expunge(ctx context.Context, ref extauthz.StoredRef) error {
	_, err := r.records.ExpungeEvent(ctx, deliveryID(ref).Event)
	return storedError(err)
}

// StartJob implements extauthz.StoredRecords.
func (r storedRecords) StartJob(ctx context.Context, spec extauthz.JobSpec) (extauthz.Job, error) {
	filter, err := deliveryFilter(spec.Filter)
	if err != nil {
		return extauthz.Job{}, err
	}
	job, err := r.records.StartJob(ctx, egress.JobSpec{Kind: egress.JobKind(spec.Kind), Filter: filter, Rate: spec.Rate})
	return storedJob(&job), storedError(err)
}

// Jobs implements extauthz.StoredRecords.
func (r storedRecords) Jobs(ctx context.Context) ([]extauthz.Job, error) {
	jobs, err := r.records.Jobs(ctx)
	out := make([]extauthz.Job, len(jobs))
	for i := range jobs {
		out[i] = storedJob(&jobs[i])
	}
	return out, storedError(err)
}

// Job implements extauthz.StoredRecords.
func (r storedRecords) Job(ctx context.Context, id uint64) (extauthz.Job, error) {
	job, err := r.records.Job(ctx, id)
	return storedJob(&job), storedError(err)
}

// CancelJob implements extauthz.StoredRecords.
func (r storedRecords) CancelJob(ctx context.Context, id uint64) (extauthz.Job, error) {
	job, err := r.records.CancelJob(ctx, id)
	return storedJob(&job), storedError(err)
}

// RefText implements extauthz.StoredRecords.
func (storedRecords) RefText(ref extauthz.StoredRef) string { return deliveryID(ref).String() }

// ParseRef implements extauthz.StoredRecords.
func (storedRecords) ParseRef(text string) (extauthz.StoredRef, error) {
	id, err := egress.ParseDeliveryID(text)
	return storedRef(id), err
}

// storedRef is a delivery's name as the inbox keeps it.
func storedRef(id egress.DeliveryID) (ref extauthz.StoredRef) {
	binary.BigEndian.PutUint64(ref[:], id.Event)
	binary.BigEndian.PutUint32(ref[8:], id.Endpoint)
	return ref
}

// deliveryID is the other way round of storedRef.
func deliveryID(ref extauthz.StoredRef) egress.DeliveryID {
	return egress.DeliveryID{Event: binary.BigEndian.Uint64(ref[:]), Endpoint: binary.BigEndian.Uint32(ref[8:])}
}

func deliveryIDs(refs []extauthz.StoredRef) []egress.DeliveryID {
	ids := make([]egress.DeliveryID, len(refs))
	for i, ref := range refs {
		ids[i] = deliveryID(ref)
	}
	return ids
}

func deliveryFilter(f extauthz.StoredFilter) (egress.Filter, error) {
	filter := egress.Filter{Endpoint: f.Source, Tenant: f.Tenant, Type: f.Type, Since: f.Since, Until: f.Until}
	for of, shown := range storedStates {
		if shown == f.State && of != egress.StateCancelled {
			filter.State = of
		}
	}
	if f.State != 0 && filter.State == 0 {
		return filter, fmt.Errorf("%w: no event that is kept for the app is %s", extauthz.ErrFilter, f.State)
	}
	if f.Reason == "" {
		return filter, nil
	}
	var ok bool
	if filter.Reason, ok = egress.ParseOutcome(f.Reason); !ok {
		return filter, fmt.Errorf("%w: reason: %q is none: want one of %s", extauthz.ErrFilter, f.Reason, outcomeWords())
	}
	return filter, nil
}

func storedList(list []egress.DeliveryRecord) []extauthz.StoredRecord {
	out := make([]extauthz.StoredRecord, len(list))
	for i := range list {
		out[i] = storedRecord(&list[i])
	}
	return out
}

func storedRecord(d *egress.DeliveryRecord) extauthz.StoredRecord {
	r := extauthz.StoredRecord{
		Ref:         storedRef(d.ID),
		Source:      d.Endpoint,
		Tenant:      d.Tenant,
		Shown:       d.EventID,
		Type:        d.Type,
		State:       storedStates[d.State],
		Taken:       d.Accepted,
		Ended:       d.Ended,
		Attempts:    d.Attempts,
		Tries:       d.Tries,
		Reason:      outcomeWord(d.Reason),
		NotReached:  d.NotReached,
		Redelivered: d.Redelivered,
		Job:         d.Job,
		Bytes:       d.Bytes,
	}
	if r.State == extauthz.StateStored {
		r.Due = d.Due
	}
	return r
}

func storedAttempt(a *egress.Attempt) extauthz.StoredAttempt {
	return extauthz.StoredAttempt{
		N:           a.N,
		At:          a.At,
		Trigger:     extauthz.AttemptTrigger(a.Trigger),
		Outcome:     outcomeWord(a.Outcome),
		Counted:     a.Counted,
		Status:      a.Status,
		Took:        a.Took,
		IP:          a.IP,
		RetryAfter:  a.RetryAfter,
		Answer:      a.Answer,
		AnswerBytes: a.AnswerBytes,
		Truncated:   a.Truncated,
		Detail:      a.Detail,
	}
}

func storedChanges(changed []egress.Changed) []extauthz.StoredChange {
	out := make([]extauthz.StoredChange, len(changed))
	for i, c := range changed {
		out[i] = extauthz.StoredChange{Ref: storedRef(c.ID), Err: storedError(c.Err)}
	}
	return out
}

func storedJob(j *egress.Job) extauthz.Job {
	f := &j.Filter
	return extauthz.Job{
		ID: j.ID,
		JobSpec: extauthz.JobSpec{
			Kind: extauthz.JobKind(j.Kind),
			Filter: extauthz.StoredFilter{
				Source: f.Endpoint, State: storedStates[f.State], Tenant: f.Tenant, Type: f.Type, Reason: outcomeWord(f.Reason),
				Since: f.Since, Until: f.Until,
			},
			Rate: j.Rate,
		},
		State:   extauthz.JobState(j.State),
		Started: j.Started,
		Ended:   j.Ended,
		Total:   j.Total,
		Done:    j.Done,
		Skipped: j.Skipped,
	}
}

// outcomeWord is o's word, empty for none.
func outcomeWord(o egress.Outcome) string {
	if o == 0 {
		return ""
	}
	return o.String()
}

func outcomeWords() string {
	var words []string
	for _, o := range egress.Outcomes() {
		words = append(words, o.String())
	}
	return strings.Join(words, ", ")
}

// storedErrors are the errors of the outbox by what they are to the inbox.
var storedErrors = []struct{ from, to error }{
	{egress.ErrNotFound, extauthz.ErrNotFound},
	{egress.ErrState, extauthz.ErrState},
	{egress.ErrFilter, extauthz.ErrFilter},
	{egress.ErrCursor, extauthz.ErrFilter},
	{egress.ErrJobs, extauthz.ErrJobs},
	{egress.ErrFull, extauthz.ErrFull},
	{egress.ErrUnavailable, extauthz.ErrUnavailable},
}

// storedError makes of an error of the outbox one of the inbox, with the same text.
func storedError(err error) error {
	for _, e := range storedErrors {
		if errors.Is(err, e.from) {
			return &sameText{err, e.to}
		}
	}
	return err
}

// sameText is err, and also is.
type sameText struct{ err, is error }

func (e *sameText) Error() string   { return e.err.Error() }
func (e *sameText) Unwrap() []error { return []error{e.is, e.err} }
