package extauthz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// ListEvents implements inboxv1connect.InboxServiceHandler.
func (s *Service) ListEvents(ctx context.Context, req *connect.Request[inboxv1.ListEventsRequest]) (*connect.Response[inboxv1.ListEventsResponse], error) {
	l, err := listingOf(req.Msg)
	if err != nil {
		return nil, invalid(err)
	}
	var list []shownEvent
	var next string
	if l.stored {
		list, next, err = s.listStored(ctx, &l)
	} else {
		list, next, err = s.listClaims(ctx, &l)
	}
	if err != nil {
		return nil, s.failure(ctx, "list events", err)
	}
	res := &inboxv1.ListEventsResponse{Events: make([]*inboxv1.Event, len(list)), NextPageToken: l.token(next)}
	for i := range list {
		res.Events[i] = s.eventMessage(&list[i])
	}
	return connect.NewResponse(res), nil
}

// listClaims lists rows of the inbox. Whether one that is STORED belongs to the selection its delivery says.
func (s *Service) listClaims(ctx context.Context, l *listing) (list []shownEvent, next string, err error) {
	page, err := s.cfg.Events.List(ctx, l.claims(), l.cursor, l.rows)
	if err != nil {
		return nil, "", err
	}
	var refs []StoredRef
	for i := range page.Records {
		if page.Records[i].State == StateStored {
			refs = append(refs, page.Records[i].Ref)
		}
	}
	stored, err := s.storedByRef(ctx, refs)
	if err != nil {
		return nil, "", err
	}
	for _, r := range page.Records {
		e := shownEvent{record: r, known: true}
		if r.State == StateStored {
			e.stored = stored[r.Ref]
		}
		if l.State == 0 || l.State == e.state() {
			list = append(list, e)
		}
	}
	return list, page.Next, nil
}

// listStored lists events that are kept for the app, with what the inbox knows of their ids.
func (s *Service) listStored(ctx context.Context, l *listing) (list []shownEvent, next string, err error) {
	page, err := s.cfg.Stored.List(ctx, l.StoredFilter, l.cursor, l.rows)
	if err != nil {
		return nil, "", err
	}
	for i := range page.Records {
		e := shownEvent{stored: &page.Records[i]}
		if err := s.addClaim(&e); err != nil {
			return nil, "", err
		}
		list = append(list, e)
	}
	return list, page.Next, nil
}

// GetEvent implements inboxv1connect.InboxServiceHandler.
func (s *Service) GetEvent(ctx context.Context, req *connect.Request[inboxv1.GetEventRequest]) (*connect.Response[inboxv1.GetEventResponse], error) {
	m := req.Msg
	e, err := s.lookUpOne(ctx, "get event", &inboxv1.EventName{Source: m.GetSource(), Id: m.GetId(), Tenant: m.GetTenant(), Delivery: m.GetDelivery()})
	if err != nil {
		return nil, err
	}
	if e.stored == nil {
		return connect.NewResponse(&inboxv1.GetEventResponse{Event: s.eventMessage(e)}), nil
	}
	d, err := s.cfg.Stored.Get(ctx, e.stored.Ref)
	switch {
	case errors.Is(err, ErrNotFound): // purged meanwhile
		e.stored = nil
		return connect.NewResponse(&inboxv1.GetEventResponse{Event: s.eventMessage(e)}), nil
	case err != nil:
		return nil, s.failure(ctx, "get event", err)
	}
	e.stored = &d.StoredRecord
	res := &inboxv1.GetEventResponse{Event: s.eventMessage(e), Attempts: attemptMessages(d.Attempts)}
	detailMessage(res.GetEvent().GetDelivery(), &d)
	if !m.GetIncludeBody() {
		return connect.NewResponse(res), nil
	}
	res.Request = requestMessage(&d)
	if d.HasBody {
		res.Request.Body, err = s.cfg.Stored.Body(ctx, d.Ref)
		switch {
		case errors.Is(err, ErrState), errors.Is(err, ErrNotFound): // it went meanwhile
			res.Event.Delivery.BodyKept = false
		case err != nil:
			return nil, s.failure(ctx, "get body", err)
		}
	}
	s.auditEvent(ctx, "inbox show body", "", "", e)
	return connect.NewResponse(res), nil
}

// ReleaseEvent implements inboxv1connect.InboxServiceHandler.
func (s *Service) ReleaseEvent(ctx context.Context, req *connect.Request[inboxv1.ReleaseEventRequest]) (*connect.Response[inboxv1.ReleaseEventResponse], error) {
	m := req.Msg
	e, err := s.lookUpOne(ctx, "release event", &inboxv1.EventName{Source: m.GetSource(), Id: m.GetId(), Tenant: m.GetTenant()})
	if err != nil {
		return nil, err
	}
	switch state := e.state(); state {
	case StateStored, StateDelivering, StateOrphaned:
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(
			"it is %s: the app is still to get it, and would get it twice; discard it first (`sidehook inbox discard`), then release it", state))
	}
	if err := s.cfg.Events.Release(ctx, e.record.Key); err != nil {
		return nil, s.failure(ctx, "release event", err)
	}
	s.auditEvent(ctx, "inbox release", e.state().String(), StateReleased.String(), e)
	return connect.NewResponse(&inboxv1.ReleaseEventResponse{Event: s.eventMessage(e)}), nil
}

// shownEvent is an event as people see it: its row in the inbox, and what is kept of it for the app.
type shownEvent struct {
	record Record
	known  bool          // there is a row
	stored *StoredRecord // nil: it is in PASS, or gone
}

// state is where the event stands.
func (e *shownEvent) state() State {
	switch {
	case e.stored != nil:
		return e.stored.State
	case e.record.State == StateStored:
		return StateDone // what the app has not taken is not purged
	}
	return e.record.State
}

// name is the event as a request may name it.
func (e *shownEvent) name() (source, id, tenant string) {
	if e.known {
		return e.record.Key.Source, percentEncode(e.record.Key.ID), percentEncode(e.record.Key.Tenant)
	}
	return e.stored.Source, e.stored.Shown, percentEncode(e.stored.Tenant)
}

// addClaim finds the row of an event that is kept for the app, if it is of this one still.
func (s *Service) addClaim(e *shownEvent) error {
	id, err := unescape(e.stored.Shown)
	if err != nil {
		return nil // not an id of ours: it has no row
	}
	r, err := s.cfg.Events.Get(Key{Source: e.stored.Source, Tenant: e.stored.Tenant, ID: keyID(id)})
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case r.State == StateStored && r.Ref == e.stored.Ref:
		e.record, e.known = r, true
	}
	return nil
}

// storedByRef returns those of the events that are there.
func (s *Service) storedByRef(ctx context.Context, refs []StoredRef) (map[StoredRef]*StoredRecord, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	found, err := s.cfg.Stored.Find(ctx, refs...)
	if err != nil {
		return nil, err
	}
	byRef := make(map[StoredRef]*StoredRecord, len(found))
	for i := range found {
		byRef[found[i].Ref] = &found[i]
	}
	return byRef, nil
}

// looked is one of the events that a request names. Its err is ErrNotFound where there is none.
type looked struct {
	shownEvent
	err error
}

// lookUp finds the events that a request names, at most MaxPageRows. Its error is for the client.
func (s *Service) lookUp(ctx context.Context, step string, names []*inboxv1.EventName) ([]looked, error) {
	out := make([]looked, len(names))
	at := make(map[int]StoredRef)
	var refs []StoredRef
	for i, n := range names {
		ref, err := s.lookAt(&out[i], n)
		switch {
		case errors.Is(err, ErrNotFound):
			out[i].err = ErrNotFound
		case errors.Is(err, errName) && len(names) > 1:
			return nil, invalid(fmt.Errorf("events[%d]: %w", i, err))
		case errors.Is(err, errName):
			return nil, invalid(err)
		case err != nil:
			return nil, s.failure(ctx, step, err)
		case ref != StoredRef{}:
			at[i] = ref
			refs = append(refs, ref)
		}
	}
	stored, err := s.storedByRef(ctx, refs)
	if err != nil {
		return nil, s.failure(ctx, step, err)
	}
	for i, ref := range at {
		o := &out[i]
		if o.stored = stored[ref]; o.known {
			continue
		}
		if o.stored == nil {
			o.err = ErrNotFound
			continue
		}
		if err := s.addClaim(&o.shownEvent); err != nil {
			return nil, s.failure(ctx, step, err)
		}
	}
	return out, nil
}

// lookAt reads the row of the event that n names, and returns the reference of what is kept of it, if there is any. Its
// error is errName, ErrNotFound or the store's.
func (s *Service) lookAt(o *looked, n *inboxv1.EventName) (ref StoredRef, err error) {
	if text := n.GetDelivery(); text != "" {
		if n.GetSource() != "" || n.GetId() != "" || n.GetTenant() != "" {
			return ref, &nameError{errors.New("delivery stands instead of source, id and tenant")}
		}
		if ref, err = s.cfg.Stored.ParseRef(text); err != nil {
			return ref, &nameError{fmt.Errorf("delivery: %w", err)}
		}
		if ref == (StoredRef{}) {
			return ref, ErrNotFound
		}
		return ref, nil
	}
	key, err := eventKey(n.GetSource(), n.GetId(), n.GetTenant())
	if err != nil {
		return ref, &nameError{err}
	}
	if o.record, err = s.cfg.Events.Get(key); err != nil {
		return ref, err
	}
	o.known = true
	return o.record.Ref, nil
}

// lookUpOne finds the one event that a request names. Its error is for the client.
func (s *Service) lookUpOne(ctx context.Context, step string, n *inboxv1.EventName) (*shownEvent, error) {
	found, err := s.lookUp(ctx, step, []*inboxv1.EventName{n})
	switch {
	case err != nil:
		return nil, err
	case found[0].err != nil && n.GetDelivery() != "":
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("the inbox keeps no delivery %s", n.GetDelivery()))
	case found[0].err != nil:
		return nil, s.failure(ctx, step, found[0].err)
	}
	return &found[0].shownEvent, nil
}

// errName marks errors of how a request names an event.
var errName = errors.New("not the name of an event")

type nameError struct{ error }

// Is makes it an errName.
func (*nameError) Is(target error) bool { return target == errName }

// auditEvent is audit of what was done to an event.
func (s *Service) auditEvent(ctx context.Context, what, before, after string, e *shownEvent) {
	source, id, tenant := e.name()
	target := []slog.Attr{slog.String("source", source), slog.String("event_id", id)}
	if tenant != "" {
		target = append(target, slog.String("tenant", tenant))
	}
	if e.stored != nil {
		target = append(target, slog.String("delivery", s.cfg.Stored.RefText(e.stored.Ref)))
	}
	s.audit(ctx, what, before, after, target...)
}

// rowsOf is the size of a page.
func rowsOf(size int32) int { return int(cmp.Or(size, DefaultPageRows)) }
