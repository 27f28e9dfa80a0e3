package extauthz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// RedeliverEvents implements inboxv1connect.InboxServiceHandler.
func (s *Service) RedeliverEvents(ctx context.Context, req *connect.Request[inboxv1.RedeliverEventsRequest]) (*connect.Response[inboxv1.RedeliverEventsResponse], error) {
	rate := req.Msg.GetRate()
	if !(rate >= 0 && rate <= MaxJobRate) { // not a number is neither
		return nil, invalid(fmt.Errorf("rate: %v is not within 0 to %d", rate, MaxJobRate))
	}
	results, job, matched, err := s.changeEvents(ctx, JobSpec{Kind: JobRedeliver, Rate: rate},
		req.Msg.GetEvents(), req.Msg.GetFilter(), req.Msg.GetDryRun())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&inboxv1.RedeliverEventsResponse{Results: results, Job: job, Matched: matched}), nil
}

// DiscardEvents implements inboxv1connect.InboxServiceHandler.
func (s *Service) DiscardEvents(ctx context.Context, req *connect.Request[inboxv1.DiscardEventsRequest]) (*connect.Response[inboxv1.DiscardEventsResponse], error) {
	results, job, matched, err := s.changeEvents(ctx, JobSpec{Kind: JobDiscard},
		req.Msg.GetEvents(), req.Msg.GetFilter(), req.Msg.GetDryRun())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&inboxv1.DiscardEventsResponse{Results: results, Job: job, Matched: matched}), nil
}

// jobStates are the states that a job's filter may name, none being one of a redelivery's.
var jobStates = map[JobKind][]State{
	JobRedeliver: {0, StateDead, StateStored},
	JobDiscard:   {StateStored, StateOrphaned, StateDead},
}

// changeEvents does what spec says to the events that a request names, or starts a job for those that its filter selects, or
// counts these.
func (s *Service) changeEvents(ctx context.Context, spec JobSpec, names []*inboxv1.EventName, filter *inboxv1.Filter, dryRun bool,
) (results []*inboxv1.EventResult, job *inboxv1.Job, matched int64, err error) {
	what := "inbox " + strings.ToLower(spec.Kind.String())
	selects := filter != nil && !proto.Equal(filter, &inboxv1.Filter{})
	switch {
	case selects && len(names) > 0:
		return nil, nil, 0, invalid(errors.New("events and filter exclude each other"))
	case len(names) > MaxChanges:
		return nil, nil, 0, invalid(fmt.Errorf("events: %d, %d are the most: use a filter", len(names), MaxChanges))
	case len(names) > 0 && dryRun:
		return nil, nil, 0, invalid(errors.New("dry_run: there is nothing to count about events that are named"))
	case len(names) > 0:
		results, err = s.changeNamed(ctx, spec.Kind, what, names)
		return results, nil, 0, err
	case !selects:
		return nil, nil, 0, invalid(errors.New("filter: something must be set, or events named"))
	}
	if spec.Filter, err = filterOf(filter); err != nil {
		return nil, nil, 0, invalid(err)
	}
	if may := jobStates[spec.Kind]; !slices.Contains(may, spec.Filter.State) {
		return nil, nil, 0, invalid(fmt.Errorf("filter.state: want %s", stateWords(may)))
	}
	if dryRun {
		counted := spec.Filter
		if counted.State == 0 {
			counted.State = StateDead // as the job takes it
		}
		if matched, err = s.cfg.Stored.Count(ctx, counted); err != nil {
			return nil, nil, 0, s.failure(ctx, what, err)
		}
		return nil, nil, matched, nil
	}
	started, err := s.cfg.Stored.StartJob(ctx, spec)
	if err != nil {
		return nil, nil, 0, s.failure(ctx, what, err)
	}
	s.audit(ctx, what, "", fmt.Sprintf("job %d over %d events", started.ID, started.Total),
		slog.Uint64("job", started.ID), slog.String("filter", filterText(started.Filter)))
	return nil, jobMessage(started), 0, nil
}

// stateWords are the states but for none.
func stateWords(list []State) string {
	var words []string
	for _, s := range list {
		if s != 0 {
			words = append(words, s.String())
		}
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// changeNamed does to the named events what kind says.
func (s *Service) changeNamed(ctx context.Context, kind JobKind, what string, names []*inboxv1.EventName) ([]*inboxv1.EventResult, error) {
	found, err := s.lookUp(ctx, what, names)
	if err != nil {
		return nil, err
	}
	var refs []StoredRef
	for i := range found {
		e := &found[i]
		switch {
		case e.err != nil:
			e.err = errNoEvent
		case e.stored != nil && e.state() == StateOrphaned && kind == JobRedeliver:
			e.err = errOrphaned
		case e.stored != nil:
			refs = append(refs, e.stored.Ref)
		default:
			e.err = s.changeClaim(ctx, kind, &e.shownEvent)
		}
	}
	if err := s.changeStored(ctx, kind, found, refs); err != nil {
		return nil, s.failure(ctx, what, err)
	}
	// What they are now is read anew: attempts go on meanwhile.
	now, err := s.storedByRef(ctx, refs)
	if err != nil {
		return nil, s.failure(ctx, what, err)
	}
	results := make([]*inboxv1.EventResult, len(found))
	for i := range found {
		results[i] = s.result(ctx, what, names[i], &found[i], now)
	}
	return results, nil
}

// result says what became of e, and writes it into the audit log.
func (s *Service) result(ctx context.Context, what string, name *inboxv1.EventName, e *looked, now map[StoredRef]*StoredRecord) *inboxv1.EventResult {
	r := &inboxv1.EventResult{Event: name, Before: stateMessage(e.state()), Now: stateMessage(e.state())}
	if e.stored != nil && now[e.stored.Ref] != nil {
		r.Now = stateMessage(now[e.stored.Ref].State)
	}
	if e.err != nil {
		r.Error = e.err.Error()
		return r
	}
	if e.stored == nil {
		r.Now = stateMessage(StateDiscarded)
	}
	s.auditEvent(ctx, what, e.state().String(), State(r.Now).String(), &e.shownEvent)
	return r
}

// Why nothing is done to an event.
var (
	errOrphaned = errors.New("it is ORPHANED: it is delivered once its source is configured in STORE again")
	errNoSource = errors.New("its source is not configured in STORE any more")
	errBodyGone = errors.New("its body is not kept any more: its sender has to deliver it again, after `sidehook inbox release`")
	errPassed   = errors.New("nothing is kept of it but its id, type and times: its sender has to deliver it again, after `sidehook inbox release`")
)

// changeClaim does what kind says to an event of which only the id is kept. It returns why nothing was done.
func (s *Service) changeClaim(ctx context.Context, kind JobKind, e *shownEvent) error {
	if kind == JobRedeliver {
		if e.record.State == StateStored {
			return errBodyGone
		}
		return errPassed
	}
	if e.state() != StateUnknown {
		return fmt.Errorf("it is %s", e.state())
	}
	err := s.cfg.Events.Discard(ctx, e.record.Key)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrState), errors.Is(err, ErrNotFound): // it was settled meanwhile
		return errors.New("it is not UNKNOWN any more")
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "admin request", slog.String("step", "discard event"), slog.Any("err", err))
	return errors.New("the store does not answer: try again, then see the log")
}

// changeStored does what kind says to the events of refs, and notes in found why it could not be done.
func (s *Service) changeStored(ctx context.Context, kind JobKind, found []looked, refs []StoredRef) error {
	if len(refs) == 0 {
		return nil
	}
	do := s.cfg.Stored.Redeliver
	if kind == JobDiscard {
		do = s.cfg.Stored.Discard
	}
	changed, err := do(ctx, refs...)
	if err != nil {
		return err
	}
	why := make(map[StoredRef]error)
	for _, c := range changed {
		why[c.Ref] = c.Err
	}
	for i := range found {
		e := &found[i]
		if e.stored == nil || e.err != nil {
			continue
		}
		switch err := why[e.stored.Ref]; {
		case errors.Is(err, ErrState) && kind == JobRedeliver && (e.state() == StateDone || e.state() == StateDiscarded):
			e.err = errBodyGone
		case errors.Is(err, ErrState) && kind == JobRedeliver:
			e.err = errNoSource
		case errors.Is(err, ErrState):
			e.err = fmt.Errorf("it is %s", e.state())
		case errors.Is(err, ErrNotFound):
			e.err = errNoEvent
		default:
			e.err = err
		}
	}
	return nil
}

// ExpungeEvent implements inboxv1connect.InboxServiceHandler.
func (s *Service) ExpungeEvent(ctx context.Context, req *connect.Request[inboxv1.ExpungeEventRequest]) (*connect.Response[inboxv1.ExpungeEventResponse], error) {
	e, err := s.lookUpOne(ctx, "inbox expunge", req.Msg.GetEvent())
	if err != nil {
		return nil, err
	}
	res := &inboxv1.ExpungeEventResponse{Event: s.eventMessage(e)}
	if e.stored == nil {
		return connect.NewResponse(res), nil // there is nothing
	}
	was, err := s.cfg.Stored.Get(ctx, e.stored.Ref)
	if err == nil {
		err = s.cfg.Stored.Expunge(ctx, e.stored.Ref)
	}
	if errors.Is(err, ErrNotFound) { // purged meanwhile
		return connect.NewResponse(res), nil
	}
	if err != nil {
		return nil, s.failure(ctx, "inbox expunge", err)
	}
	before := "no body"
	if was.HasBody {
		before = fmt.Sprintf("%d bytes", was.Bytes)
	}
	s.auditEvent(ctx, "inbox expunge", before, "no body", e)
	left, err := s.cfg.Stored.Get(ctx, e.stored.Ref)
	if err != nil {
		return nil, s.failure(ctx, "inbox expunge", err)
	}
	e.stored = &left.StoredRecord
	res.Event = s.eventMessage(e)
	detailMessage(res.GetEvent().GetDelivery(), &left)
	return connect.NewResponse(res), nil
}
