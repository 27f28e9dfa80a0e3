package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"connectrpc.com/connect"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// ListEndpoints implements egressv1connect.EgressServiceHandler.
func (s *Service) ListEndpoints(_ context.Context, req *connect.Request[egressv1.ListEndpointsRequest]) (*connect.Response[egressv1.ListEndpointsResponse], error) {
	n := int(req.Msg.GetPageSize())
	if n < 0 || n > MaxPageRows {
		return nil, invalid(fmt.Errorf("page_size: %d is not within 0 to %d", n, MaxPageRows))
	}
	after := req.Msg.GetPageToken()
	if after != "" && !strings.Contains(after, " ") {
		return nil, invalid(errors.New("page_token: not one that this API gave"))
	}
	n = cmp.Or(n, DefaultPageRows)
	res := &egressv1.ListEndpointsResponse{Paused: s.cfg.Registry.Paused()}
	last := ""
	for _, g := range s.cfg.Registry.List() {
		at := endpointToken(g)
		if at <= after {
			continue
		}
		if len(res.Endpoints) == n {
			res.NextPageToken = last
			break
		}
		res.Endpoints, last = append(res.Endpoints, s.endpointMessage(g)), at
	}
	return connect.NewResponse(res), nil
}

// endpointToken is the place of g in a listing. Tokens in order are endpoints in the order of List: a blank is below all
// that an id holds.
func endpointToken(g Registration) string { return fmt.Sprintf("%s %d", g.ID, g.Origin) }

// GetEndpoint implements egressv1connect.EgressServiceHandler.
func (s *Service) GetEndpoint(_ context.Context, req *connect.Request[egressv1.GetEndpointRequest]) (*connect.Response[egressv1.GetEndpointResponse], error) {
	g, err := s.endpoint(req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&egressv1.GetEndpointResponse{Endpoint: s.endpointMessage(g)}), nil
}

// AddEndpoint implements egressv1connect.EgressServiceHandler.
func (s *Service) AddEndpoint(ctx context.Context, req *connect.Request[egressv1.AddEndpointRequest]) (*connect.Response[egressv1.AddEndpointResponse], error) {
	kind := cmp.Or(req.Msg.GetKeyKind(), egressv1.KeyKind_KEY_KIND_HMAC_SHA256)
	g, shown, err := s.cfg.Registry.Add(ctx, req.Msg.GetId(), req.Msg.GetSpec(), kind)
	if err != nil {
		return nil, s.failure(ctx, "endpoint add", err)
	}
	s.audit(ctx, "endpoint add", "", endpointText(g), slog.String("endpoint", g.ID))
	return connect.NewResponse(&egressv1.AddEndpointResponse{Endpoint: s.endpointMessage(g), Secret: shown}), nil
}

// UpdateEndpoint implements egressv1connect.EgressServiceHandler.
func (s *Service) UpdateEndpoint(ctx context.Context, req *connect.Request[egressv1.UpdateEndpointRequest]) (*connect.Response[egressv1.UpdateEndpointResponse], error) {
	before, after, err := s.cfg.Registry.Update(ctx, req.Msg.GetId(), req.Msg.GetSpec(), req.Msg.GetUpdateMask().GetPaths())
	if err != nil {
		return nil, s.missing(ctx, "endpoint update", err, noEndpointText(req.Msg.GetId()))
	}
	s.audit(ctx, "endpoint update", endpointText(before), endpointText(after), slog.String("endpoint", after.ID),
		slog.String("fields", strings.Join(req.Msg.GetUpdateMask().GetPaths(), ",")))
	return connect.NewResponse(&egressv1.UpdateEndpointResponse{Endpoint: s.endpointMessage(after)}), nil
}

// RemoveEndpoint implements egressv1connect.EgressServiceHandler.
func (s *Service) RemoveEndpoint(ctx context.Context, req *connect.Request[egressv1.RemoveEndpointRequest]) (*connect.Response[egressv1.RemoveEndpointResponse], error) {
	g, err := s.cfg.Registry.Remove(ctx, req.Msg.GetId())
	if err != nil {
		return nil, s.missing(ctx, "endpoint remove", err, noEndpointText(req.Msg.GetId()))
	}
	s.audit(ctx, "endpoint remove", endpointText(g), "", slog.String("endpoint", g.ID))
	return connect.NewResponse(&egressv1.RemoveEndpointResponse{Endpoint: s.endpointMessage(g)}), nil
}

// EnableEndpoint implements egressv1connect.EgressServiceHandler.
func (s *Service) EnableEndpoint(ctx context.Context, req *connect.Request[egressv1.EnableEndpointRequest]) (*connect.Response[egressv1.EnableEndpointResponse], error) {
	m, err := s.turn(ctx, "endpoint enable", req.Msg.GetId(), s.cfg.Switch.Enable)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&egressv1.EnableEndpointResponse{Endpoint: m}), nil
}

// DisableEndpoint implements egressv1connect.EgressServiceHandler.
func (s *Service) DisableEndpoint(ctx context.Context, req *connect.Request[egressv1.DisableEndpointRequest]) (*connect.Response[egressv1.DisableEndpointResponse], error) {
	m, err := s.turn(ctx, "endpoint disable", req.Msg.GetId(), func(ctx context.Context, id string) error {
		return s.cfg.Switch.Disable(ctx, id, DisabledPerson)
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&egressv1.DisableEndpointResponse{Endpoint: m}), nil
}

// turn applies do to the endpoint in force under id, writes the audit line and returns the endpoint as it is then.
func (s *Service) turn(ctx context.Context, what, id string, do func(ctx context.Context, id string) error) (*egressv1.Endpoint, error) {
	g, err := s.endpoint(id)
	if err != nil {
		return nil, err
	}
	s.change.Lock()
	defer s.change.Unlock()
	before := s.endpointMessage(g)
	if err := do(ctx, id); err != nil {
		return nil, s.missing(ctx, what, err, noEndpointText(id))
	}
	after := s.endpointMessage(g)
	s.audit(ctx, what, endpointStateText(before), endpointStateText(after), slog.String("endpoint", id))
	return after, nil
}

// RotateEndpoint implements egressv1connect.EgressServiceHandler.
func (s *Service) RotateEndpoint(ctx context.Context, req *connect.Request[egressv1.RotateEndpointRequest]) (*connect.Response[egressv1.RotateEndpointResponse], error) {
	overlap := DefaultOverlap
	if d := req.Msg.GetOverlap(); d != nil {
		if err := d.CheckValid(); err != nil {
			return nil, invalid(fmt.Errorf("overlap: %w", err))
		}
		overlap = d.AsDuration()
	}
	before, _ := s.cfg.Registry.Get(req.Msg.GetId())
	g, shown, err := s.cfg.Registry.Rotate(ctx, req.Msg.GetId(), req.Msg.GetKeyKind(), overlap)
	if err != nil {
		return nil, s.missing(ctx, "endpoint rotate", err, noEndpointText(req.Msg.GetId()))
	}
	s.audit(ctx, "endpoint rotate", keysText(before.Endpoint), keysText(g.Endpoint), slog.String("endpoint", g.ID),
		slog.String("overlap", overlap.String()))
	return connect.NewResponse(&egressv1.RotateEndpointResponse{Endpoint: s.endpointMessage(g), Secret: shown}), nil
}

// endpoint returns the endpoint of that id.
func (s *Service) endpoint(id string) (Registration, error) {
	if id == "" {
		return Registration{}, invalid(errors.New("id: required"))
	}
	g, ok := s.cfg.Registry.Get(id)
	if !ok {
		return g, noEndpoint(id)
	}
	return g, nil
}

func noEndpoint(id string) error {
	return connect.NewError(connect.CodeNotFound, errors.New(noEndpointText(id)))
}

func noEndpointText(id string) string {
	return fmt.Sprintf("no endpoint %q: `sidehook endpoint list` shows those that there are", id)
}

// endpointStateText is the state of an endpoint for the audit log.
func endpointStateText(m *egressv1.Endpoint) string {
	state := strings.TrimPrefix(m.GetState().String(), "ENDPOINT_STATE_")
	if reason := m.GetHealth().GetDisabled(); reason != 0 {
		state += " " + strings.TrimPrefix(reason.String(), "DISABLE_REASON_")
	}
	return state
}

// endpointText describes an endpoint for the audit log: nothing in it is secret, not even the path of the URL.
func endpointText(g Registration) string {
	words := []string{"url=" + LoggedURL(endpointURL(g))}
	add := func(name, value string) {
		if value != "" {
			words = append(words, name+"="+value)
		}
	}
	add("tenant", g.Tenant)
	add("event_types", strings.Join(g.EventTypes, ","))
	add("headers", strings.Join(headerNames(g), ","))
	add("owner", g.Owner)
	add("policy", policyText(g.Stored.GetSpec().GetPolicy()))
	add("keys", keysText(g.Endpoint))
	return strings.Join(words, " ")
}

// keysText counts the keys that sign.
func keysText(e *Endpoint) string {
	if e == nil {
		return ""
	}
	n, now := 0, time.Now()
	for _, k := range e.Keys {
		if k.Until.IsZero() || now.Before(k.Until) {
			n++
		}
	}
	return fmt.Sprintf("%d signing", n)
}
