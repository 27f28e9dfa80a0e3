package egress

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sidehook/sidehook/internal/signature"
	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// endpointMessage shows g without anything of its secrets, and without the values of its headers, which may be some.
func (s *Service) endpointMessage(g Registration) *egressv1.Endpoint {
	m := &egressv1.Endpoint{
		Id:          g.ID,
		Origin:      egressv1.EndpointOrigin(g.Origin),
		Tenant:      g.Tenant,
		Url:         endpointURL(g),
		EventTypes:  g.EventTypes,
		HeaderNames: headerNames(g),
		Owner:       g.Owner,
		Policy:      policyMessage(&g.Policy),
		Keys:        keyMessages(g, time.Now()),
		State:       egressv1.EndpointState_ENDPOINT_STATE_ACTIVE,
		CreateTime:  g.Stored.GetCreateTime(),
		UpdateTime:  g.Stored.GetUpdateTime(),
	}
	if g.Shadowed {
		m.State = egressv1.EndpointState_ENDPOINT_STATE_SHADOWED
		m.Problem = "the configuration has an endpoint of this id, which is in force: rename that one, or remove this one"
		return m
	}
	health, _ := s.cfg.Switch.HealthOf(g.ID)
	m.Health = &egressv1.EndpointHealth{
		Disabled:        egressv1.DisableReason(health.Disabled),
		DisableTime:     timeMessage(health.DisabledAt),
		HeldUntil:       timeMessage(health.HeldUntil),
		FailingSince:    timeMessage(health.FailingSince),
		LastSuccessTime: timeMessage(health.LastSuccess),
		LastAttemptTime: timeMessage(health.LastAttempt),
	}
	switch {
	case g.Unusable != "":
		m.State, m.Problem = egressv1.EndpointState_ENDPOINT_STATE_UNUSABLE, g.Unusable
	case health.Disabled != NotDisabled:
		m.State = egressv1.EndpointState_ENDPOINT_STATE_DISABLED
	case health.Held():
		m.State = egressv1.EndpointState_ENDPOINT_STATE_HELD
	}
	if m.Problem == "" && g.Shadows {
		m.Problem = "an endpoint of this id that was added through the API is kept and not in force: `sidehook endpoint remove` removes it"
	}
	return m
}

// endpointURL is what was written; an unusable endpoint of the API has no Target.
func endpointURL(g Registration) string {
	if g.Stored != nil {
		return g.Stored.GetSpec().GetUrl()
	}
	return g.Target.URL
}

// headerNames reads the names from the row too: the values of an unusable endpoint cannot be read.
func headerNames(g Registration) []string {
	var names []string
	if g.Stored != nil {
		for _, h := range g.Stored.GetSpec().GetHeaders() {
			names = append(names, h.GetName())
		}
		return names
	}
	for _, h := range g.Headers {
		names = append(names, h.Name)
	}
	return names
}

// keyMessages shows the keys that sign at now.
func keyMessages(g Registration, now time.Time) []*egressv1.EndpointKey {
	var keys []*egressv1.EndpointKey
	if g.Stored != nil {
		for _, k := range g.Stored.GetKeys() {
			if signs(k, now) {
				keys = append(keys, &egressv1.EndpointKey{
					Kind: k.GetKind(), PublicKey: k.GetPublicKey(), CreateTime: k.GetCreateTime(), UntilTime: k.GetUntilTime(),
				})
			}
		}
		return keys
	}
	for _, k := range g.Keys {
		if k.Until.IsZero() || now.Before(k.Until) {
			keys = append(keys, keyMessage(k))
		}
	}
	return keys
}

func keyMessage(k signature.Key) *egressv1.EndpointKey {
	m := &egressv1.EndpointKey{Kind: egressv1.KeyKind_KEY_KIND_HMAC_SHA256, UntilTime: timeMessage(k.Until)}
	if public, ok := k.Ed25519Public(); ok {
		m.Kind, m.PublicKey = egressv1.KeyKind_KEY_KIND_ED25519, publicKeyText(public)
	}
	return m
}

// policyMessage shows p whole.
func policyMessage(p *Policy) *egressv1.DeliveryPolicy {
	m := &egressv1.DeliveryPolicy{
		Timeout:           durationpb.New(p.Timeout),
		RespectRetryAfter: new(p.RespectRetryAfter),
		OnGone:            egressv1.OnGone(p.OnGone),
		MaxInFlight:       int32(p.MaxInFlight),
		Rate:              new(p.Rate),
		DisableAfter:      durationpb.New(p.DisableAfter),
	}
	for _, code := range p.StopOn {
		m.StopOn = append(m.StopOn, int32(code))
	}
	if x := p.Schedule.Exponential; x != nil {
		m.Exponential = &egressv1.Exponential{
			Base: durationpb.New(x.Base), Factor: x.Factor, Cap: durationpb.New(x.Cap), Attempts: int32(x.Attempts),
		}
		return m
	}
	m.JitterPercent = new(int32(p.Schedule.JitterPercent))
	for _, w := range p.Schedule.Waits {
		m.Waits = append(m.Waits, durationpb.New(w))
	}
	return m
}

// policyText is what an endpoint says of its own policy, for the audit log.
func policyText(p *egressv1.DeliveryPolicy) string {
	if p == nil {
		return ""
	}
	text, err := prototext.MarshalOptions{}.Marshal(p)
	if err != nil {
		return fmt.Sprintf("unreadable: %v", err)
	}
	return "{" + strings.Join(strings.Fields(string(text)), " ") + "}"
}
