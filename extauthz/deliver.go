package extauthz

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// Headers of a delivery to the app beside those of a request that passes.
const (
	headerAttempt     = "x-sidehook-attempt"
	headerRedelivered = "x-sidehook-redelivered"
)

// DeliveryInfo is what is told of a stored event beside its request.
type DeliveryInfo struct {
	// ID is the event id as the app gets it, Type the event type as the message had it; either may be empty.
	ID, Type string
	// Tenant is whose it is; "": nobody's.
	Tenant string
	// Attempt numbers the tries of the delivery from 1.
	Attempt int
	// Redelivered: somebody asked for it to be sent again.
	Redelivered bool
}

// DeliveryRequest is a stored event as the app gets it; its body is the one that was stored.
type DeliveryRequest struct {
	// Method, Target and Host are as received, but for the path where Source.DeliveryPath replaces it.
	Method, Target, Host string
	// Header is in order, names in lower case.
	Header []signature.Field
	// Secrets are those of Header that bear one of the source's secrets.
	Secrets []signature.Field
}

// Errors of Source.DeliveryRequest beside signature.ErrCannotSign.
var (
	errNoMethod = errors.New("the stored event has no method")
	errNoTarget = errors.New("the stored event has no path")
	// errNoTenantKey: the file with the tenant's secret is not there, or not fit.
	errNoTenantKey = errors.New("the tenant's secret cannot be had")
)

// DeliveryRequest makes the request of one attempt to deliver an event of the source in STORE. headers are its
// StoredEvent.Fields. It changes neither headers nor body, and keeps nothing
// of them beyond the result.
func (s *Source) DeliveryRequest(headers []signature.Field, body []byte, d DeliveryInfo, now time.Time) (DeliveryRequest, error) {
	r := DeliveryRequest{Header: make([]signature.Field, 0, len(headers)+8)}
	for _, f := range headers {
		switch {
		case f.Name == PseudoMethod:
			r.Method = f.Value
		case f.Name == PseudoPath:
			r.Target = f.Value
		case f.Name == PseudoAuthority:
			r.Host = f.Value
		case strings.HasPrefix(f.Name, ":"), NeverKept(f.Name) != "":
			// of another version, whose rules were others
		default:
			r.Header = append(r.Header, f)
		}
	}
	switch {
	case r.Method == "":
		return DeliveryRequest{}, errNoMethod
	case r.Target == "":
		return DeliveryRequest{}, errNoTarget
	}
	if s.DeliveryPath != "" {
		_, query, found := strings.Cut(r.Target, "?")
		if r.Target = s.DeliveryPath; found {
			r.Target += "?" + query
		}
	}
	if s.Resign {
		if err := s.resign(&r, body, d.Tenant, now); err != nil {
			return DeliveryRequest{}, err
		}
	}
	add := func(name, value string) { r.Header = append(r.Header, signature.Field{Name: name, Value: value}) }
	add(headerSource, s.Name)
	if d.ID != "" {
		add(headerEventID, d.ID)
	}
	if d.Type != "" {
		add(headerEventType, headerText(d.Type))
	}
	if d.Tenant != "" {
		add(headerTenant, d.Tenant)
	}
	add(headerAttempt, strconv.Itoa(d.Attempt))
	if d.Redelivered {
		add(headerRedelivered, "true")
	}
	add(headerDelivery, "1")
	return r, nil
}

// resign has r signed as the sender would sign it now. What is signed is what the app gets: the path that it has there, under
// the public URL of the source.
func (s *Source) resign(r *DeliveryRequest, body []byte, tenant string, now time.Time) error {
	if s.Verifier == nil {
		return signature.ErrCannotSign
	}
	keys, err := s.keysOf(tenant)
	if err != nil {
		return err
	}
	m := signature.Message{Method: r.Method, Target: r.Target, Header: r.Header, Body: body, MaxBody: s.MaxBodyBytes}
	if origin := s.origin(); origin != "" {
		m.URL = origin + r.Target
	}
	header, made, err := s.Verifier.Resign(&m, keys, now)
	if err != nil {
		return err
	}
	r.Header = header
	for _, f := range header[made:] {
		if s.Verifier.Header(f.Name).Secret {
			r.Secrets = append(r.Secrets, f)
		}
	}
	return nil
}

// keysOf returns the keys with which the source's messages of the tenant are verified now.
func (s *Source) keysOf(tenant string) ([]signature.Key, error) {
	if s.Tenants == nil {
		return s.Keys, nil
	}
	if !ValidTenant(tenant) || hasNextSuffix(tenant) {
		return nil, errNoTenantKey
	}
	k := tenantKeys{from: s.Tenants, alarm: func(string, error, bool) {}} // the gate tells what is wrong with the files
	t, err := k.look(tenant, nil)
	if err != nil || t == nil || len(t.keys) == 0 {
		return nil, errNoTenantKey
	}
	return t.keys, nil
}

// origin is the public URL without fragment and final slash; empty: none.
func (s *Source) origin() string {
	origin, _, _ := strings.Cut(s.PublicURL, "#")
	return strings.TrimRight(origin, "/")
}
