package egress

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// maxEventAttempts bounds the attempts that come with an event: each holds up to a KiB of an answer. MaxPageRows leaves
// each delivery one.
const maxEventAttempts = 1000

// maxRedeliverRate bounds the pace of a redelivery job.
const maxRedeliverRate = 10_000

// ListDeliveries implements egressv1connect.EgressServiceHandler.
func (s *Service) ListDeliveries(ctx context.Context, req *connect.Request[egressv1.ListDeliveriesRequest]) (*connect.Response[egressv1.ListDeliveriesResponse], error) {
	f, err := filterOf(req.Msg.GetFilter())
	if n := req.Msg.GetPageSize(); n < 0 || n > MaxPageRows {
		err = errors.Join(err, fmt.Errorf("page_size: %d is not within 0 to %d", n, MaxPageRows))
	}
	cursor, ok := strings.CutPrefix(req.Msg.GetPageToken(), tokenPrefix(f))
	if req.Msg.GetPageToken() != "" && (!ok || cursor == "") {
		err = errors.Join(err, errPageToken)
	}
	if err != nil {
		return nil, invalid(err)
	}
	page, err := s.cfg.Records.ListDeliveries(ctx, f, cursor, int(cmp.Or(req.Msg.GetPageSize(), DefaultPageRows)))
	if errors.Is(err, ErrCursor) {
		return nil, invalid(errPageToken)
	}
	if err != nil {
		return nil, s.failure(ctx, "list deliveries", err)
	}
	res := &egressv1.ListDeliveriesResponse{Deliveries: make([]*egressv1.Delivery, len(page.Deliveries))}
	for i := range page.Deliveries {
		res.Deliveries[i] = deliveryMessage(&page.Deliveries[i])
	}
	if page.Next != "" {
		res.NextPageToken = tokenPrefix(f) + page.Next
	}
	return connect.NewResponse(res), nil
}

// GetDelivery implements egressv1connect.EgressServiceHandler.
func (s *Service) GetDelivery(ctx context.Context, req *connect.Request[egressv1.GetDeliveryRequest]) (*connect.Response[egressv1.GetDeliveryResponse], error) {
	id, err := ParseDeliveryID(req.Msg.GetId())
	if err != nil {
		return nil, invalid(fmt.Errorf("id: %w", err))
	}
	d, err := s.cfg.Records.Delivery(ctx, id)
	if err != nil {
		return nil, s.missing(ctx, "get delivery", err, "the outbox holds no delivery "+id.String())
	}
	return connect.NewResponse(&egressv1.GetDeliveryResponse{
		Delivery: deliveryMessage(&d.Delivery),
		Event:    eventMessage(&d.Event),
		Attempts: attemptMessages(d.Attempts),
	}), nil
}

// GetEvent implements egressv1connect.EgressServiceHandler.
func (s *Service) GetEvent(ctx context.Context, req *connect.Request[egressv1.GetEventRequest]) (*connect.Response[egressv1.GetEventResponse], error) {
	e, err := s.event(ctx, "get event", req.Msg.GetTenant(), req.Msg.GetId(), s.cfg.Records.Event)
	if err != nil {
		return nil, err
	}
	res := &egressv1.GetEventResponse{Event: eventMessage(&e.Event), MoreDeliveries: e.More}
	most := maxEventAttempts / max(1, len(e.Deliveries))
	for i := range e.Deliveries {
		d := &e.Deliveries[i]
		res.Deliveries = append(res.Deliveries, &egressv1.DeliveryWithAttempts{
			Delivery: deliveryMessage(&d.Delivery),
			Attempts: attemptMessages(d.Attempts[max(0, len(d.Attempts)-most):]),
		})
	}
	if req.Msg.GetIncludeBody() && e.Event.HasBody {
		res.Body, err = s.cfg.Records.Body(ctx, e.Event.Seq)
		switch {
		case errors.Is(err, ErrState), errors.Is(err, ErrNotFound): // it went meanwhile
			res.Event.BodyKept = false
		case err != nil:
			return nil, s.failure(ctx, "get body", err)
		default:
			s.audit(ctx, "outbox show body", "", "", slog.String("event_id", e.Event.ID), slog.String("tenant", e.Event.Tenant))
		}
	}
	return connect.NewResponse(res), nil
}

// event applies do to the event that a request names.
func (s *Service) event(ctx context.Context, step, tenant, id string, do func(ctx context.Context, tenant, id string) (EventDetail, error)) (EventDetail, error) {
	if id == "" {
		return EventDetail{}, invalid(errors.New("the event's id: required"))
	}
	e, err := do(ctx, tenant, id)
	if err != nil {
		what := fmt.Sprintf("the outbox holds no event %q", id)
		if tenant != "" {
			what += fmt.Sprintf(" of tenant %q", tenant)
		} else {
			what += " without a tenant"
		}
		return EventDetail{}, s.missing(ctx, step, err, what)
	}
	return e, nil
}

// missing is failure with a text of its own for what is not there.
func (s *Service) missing(ctx context.Context, step string, err error, what string) error {
	if errors.Is(err, ErrNotFound) {
		return connect.NewError(connect.CodeNotFound, errors.New(what))
	}
	return s.failure(ctx, step, err)
}

// Summarize implements egressv1connect.EgressServiceHandler.
func (s *Service) Summarize(ctx context.Context, req *connect.Request[egressv1.SummarizeRequest]) (*connect.Response[egressv1.SummarizeResponse], error) {
	counts, err := s.cfg.Records.Summary(ctx)
	if err != nil {
		return nil, s.failure(ctx, "summarize the outbox", err)
	}
	only := req.Msg.GetEndpoint()
	type name struct {
		endpoint string
		removed  bool
	}
	found := make(map[name]*egressv1.EndpointSummary)
	summary := func(endpoint string, removed bool) *egressv1.EndpointSummary {
		m := found[name{endpoint, removed}]
		if m == nil {
			m = &egressv1.EndpointSummary{Endpoint: endpoint, Removed: removed, States: emptyStates()}
			found[name{endpoint, removed}] = m
		}
		return m
	}
	for _, e := range s.cfg.Registry.Endpoints().All() {
		if only == "" || e.ID == only {
			summary(e.ID, false)
		}
	}
	for _, c := range counts {
		if only != "" && c.Endpoint != only || c.Count == 0 && c.Removed {
			continue
		}
		for _, st := range summary(c.Endpoint, c.Removed).States {
			if st.GetState() == stateMessage(c.State) {
				addSummary(st, c)
			}
		}
	}
	if only != "" && len(found) == 0 {
		return nil, noEndpoint(only)
	}
	res := &egressv1.SummarizeResponse{Paused: s.cfg.Registry.Paused()}
	if left, ok := s.cfg.UntilFull(); ok {
		res.HoursUntilFull = new(left.Hours())
	}
	for _, m := range found {
		res.Endpoints = append(res.Endpoints, m)
	}
	slices.SortFunc(res.Endpoints, func(a, b *egressv1.EndpointSummary) int {
		return cmp.Or(cmp.Compare(a.GetEndpoint(), b.GetEndpoint()), compareBool(a.GetRemoved(), b.GetRemoved()))
	})
	return connect.NewResponse(res), nil
}

// addSummary adds c to st: an endpoint that was removed more than once has several counts in a state.
func addSummary(st *egressv1.StateSummary, c StateSummary) {
	st.Count += c.Count
	st.BodyBytes += c.Bytes
	if oldest := timeMessage(c.Oldest); oldest != nil && (st.OldestTime == nil || c.Oldest.Before(st.OldestTime.AsTime())) {
		st.OldestTime = oldest
	}
	if c.Reason != 0 {
		st.LastReason = c.Reason.String()
	}
}

// compareBool puts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Redeliver implements egressv1connect.EgressServiceHandler.
func (s *Service) Redeliver(ctx context.Context, req *connect.Request[egressv1.RedeliverRequest]) (*connect.Response[egressv1.RedeliverResponse], error) {
	rate := req.Msg.GetRate()
	if !(rate >= 0 && rate <= maxRedeliverRate) { // not a number is neither
		return nil, invalid(fmt.Errorf("rate: %v is not within 0 to %d", rate, maxRedeliverRate))
	}
	results, job, matched, err := s.changeDeliveries(ctx, JobSpec{Kind: JobRedeliver, Rate: rate},
		req.Msg.GetIds(), req.Msg.GetFilter(), req.Msg.GetDryRun(), s.cfg.Records.Redeliver)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&egressv1.RedeliverResponse{Results: results, Job: job, Matched: matched}), nil
}

// Discard implements egressv1connect.EgressServiceHandler.
func (s *Service) Discard(ctx context.Context, req *connect.Request[egressv1.DiscardRequest]) (*connect.Response[egressv1.DiscardResponse], error) {
	results, job, matched, err := s.changeDeliveries(ctx, JobSpec{Kind: JobDiscard},
		req.Msg.GetIds(), req.Msg.GetFilter(), req.Msg.GetDryRun(), s.cfg.Records.Discard)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&egressv1.DiscardResponse{Results: results, Job: job, Matched: matched}), nil
}

// changeDeliveries does what spec says to the deliveries that a request names, or starts a job for those that its filter
// selects, or counts these.
func (s *Service) changeDeliveries(ctx context.Context, spec JobSpec, ids []string, filter *egressv1.Filter, dryRun bool,
	do func(context.Context, ...DeliveryID) ([]Changed, error),
) (results []*egressv1.DeliveryResult, job *egressv1.Job, matched int64, err error) {
	what := "outbox " + strings.ToLower(spec.Kind.String())
	selects := filter != nil && !proto.Equal(filter, &egressv1.Filter{})
	switch {
	case selects && len(ids) > 0:
		return nil, nil, 0, invalid(errors.New("ids and filter exclude each other"))
	case len(ids) > MaxChanges:
		return nil, nil, 0, invalid(fmt.Errorf("ids: %d, %d are the most: use a filter", len(ids), MaxChanges))
	case len(ids) > 0 && dryRun:
		return nil, nil, 0, invalid(errors.New("dry_run: there is nothing to count about ids"))
	case len(ids) > 0:
		results, err = s.changeNamed(ctx, what, ids, do)
		return results, nil, 0, err
	case !selects:
		return nil, nil, 0, invalid(errors.New("filter: something must be set, or ids given"))
	}
	if spec.Filter, err = filterOf(filter); err != nil {
		return nil, nil, 0, invalid(err)
	}
	if spec.Kind == JobDiscard && spec.Filter.State == 0 {
		return nil, nil, 0, invalid(errors.New("filter.state: required: WAITING, PARKED or DEAD"))
	}
	if dryRun {
		counted := spec.Filter
		if counted.State == 0 && spec.Kind == JobRedeliver {
			counted.State = StateDead // as the job takes it
		}
		if matched, err = s.cfg.Records.Count(ctx, counted); err != nil {
			return nil, nil, 0, s.failure(ctx, what, err)
		}
		return nil, nil, matched, nil
	}
	started, err := s.cfg.Records.StartJob(ctx, spec)
	if err != nil {
		return nil, nil, 0, s.failure(ctx, what, err)
	}
	job = jobMessage(started)
	s.audit(ctx, what, "", fmt.Sprintf("job %d over %d deliveries", started.ID, started.Total),
		slog.Uint64("job", started.ID), slog.String("filter", filterText(started.Filter)))
	return nil, job, 0, nil
}

// changeNamed applies do to the deliveries of these ids.
func (s *Service) changeNamed(ctx context.Context, what string, ids []string, do func(context.Context, ...DeliveryID) ([]Changed, error)) ([]*egressv1.DeliveryResult, error) {
	parsed := make([]DeliveryID, len(ids))
	for i, text := range ids {
		id, err := ParseDeliveryID(text)
		if err != nil {
			return nil, invalid(fmt.Errorf("ids[%d]: %w", i, err))
		}
		parsed[i] = id
	}
	changed, err := do(ctx, parsed...)
	if err != nil {
		return nil, s.failure(ctx, what, err)
	}
	results := make([]*egressv1.DeliveryResult, len(changed))
	for i, c := range changed {
		results[i] = &egressv1.DeliveryResult{Id: c.ID.String(), Before: stateMessage(c.Was), Now: stateMessage(c.Now)}
		if c.Err != nil {
			results[i].Error = c.Err.Error()
			continue
		}
		s.audit(ctx, what, stateWord(c.Was), stateWord(c.Now), slog.String("delivery", c.ID.String()))
	}
	return results, nil
}

// Expunge implements egressv1connect.EgressServiceHandler.
func (s *Service) Expunge(ctx context.Context, req *connect.Request[egressv1.ExpungeRequest]) (*connect.Response[egressv1.ExpungeResponse], error) {
	before := "no body"
	was, err := s.event(ctx, "outbox expunge", req.Msg.GetTenant(), req.Msg.GetEventId(), s.cfg.Records.Event)
	if err != nil {
		return nil, err
	}
	if was.Event.HasBody {
		before = fmt.Sprintf("%d bytes", was.Event.Bytes)
	}
	e, err := s.event(ctx, "outbox expunge", was.Event.Tenant, was.Event.ID, s.cfg.Records.Expunge)
	if err != nil {
		return nil, err
	}
	s.audit(ctx, "outbox expunge", before, "no body", slog.String("event_id", e.Event.ID), slog.String("tenant", e.Event.Tenant))
	res := &egressv1.ExpungeResponse{Event: eventMessage(&e.Event)}
	for i := range e.Deliveries {
		res.Deliveries = append(res.Deliveries, deliveryMessage(&e.Deliveries[i].Delivery))
	}
	return connect.NewResponse(res), nil
}

var errPageToken = errors.New("page_token: not one that this API gave for this filter")

// filterOf checks and translates a filter; nil selects all.
func filterOf(m *egressv1.Filter) (f Filter, err error) {
	var errs []error
	f.Endpoint, f.Tenant, f.Type = m.GetEndpoint(), m.GetTenant(), m.GetType()
	if _, ok := egressv1.DeliveryState_name[int32(m.GetState())]; !ok {
		errs = append(errs, fmt.Errorf("state: %d is not a state", m.GetState()))
	}
	f.State = State(m.GetState())
	if text := m.GetReason(); text != "" {
		var ok bool
		if f.Reason, ok = ParseOutcome(text); !ok {
			errs = append(errs, fmt.Errorf("reason: %q is none: want one of %s", text, outcomeWords()))
		}
	}
	for _, b := range []struct {
		name string
		from *timestamppb.Timestamp
		to   *time.Time
	}{{"since", m.GetSince(), &f.Since}, {"until", m.GetUntil(), &f.Until}} {
		if b.from == nil {
			continue
		}
		if err := b.from.CheckValid(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", b.name, err))
		}
		*b.to = b.from.AsTime()
	}
	if m.GetSince() != nil && m.GetUntil() != nil && !f.Since.Before(f.Until) {
		errs = append(errs, errors.New("until: not after since, so that nothing can match"))
	}
	return f, errors.Join(errs...)
}

// tokenPrefix stands before the outbox's cursor in a page token and names the filter that the cursor belongs to: going
// on with another one would leave out rows in silence. Times are not among it, for people give them as how long ago.
func tokenPrefix(f Filter) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d %q %q %d", f.Endpoint, f.State, f.Tenant, f.Type, f.Reason)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:6]) + "."
}
