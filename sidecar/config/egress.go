package config

import (
	"cmp"
	"fmt"
	"net/mail"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// maxEventType is the most bytes that an event's type may have (egress.Event).
const maxEventType = 256

// egress checks and compiles the outbound half.
func (l *loader) egress(m *configv1.Egress) *Egress {
	e := &Egress{
		Listen: l.listen("egress.listen", &m.Listen, reachPod),
		Hosts:  m.GetHosts(), MaxEventBytes: m.GetMaxEvent(),
	}
	if a := m.GetAuth(); a != nil {
		e.Token = l.token("egress.auth.token", "egress", a.GetToken())
	}
	var global netguard.Config
	global, e.Filter = l.filter("egress.filter", m.GetFilter(), nil)
	e.Policy = l.delivery("egress.delivery", m.GetDelivery(), defaultDelivery())
	ids, owners := map[string]string{}, map[string]string{}
	for i, p := range m.GetEndpoints() {
		path := fmt.Sprintf("egress.endpoints[%d]", i)
		if first, taken := ids[p.GetId()]; taken {
			l.errorf(path+".id", "%s is taken by %s; an id belongs to one endpoint", quote(p.GetId()), first)
		} else {
			ids[p.GetId()] = path
		}
		e.Endpoints = append(e.Endpoints, l.endpoint(path, p, m, global, e.Filter, owners))
	}
	return e
}

// endpoint checks one endpoint, fills its defaults into m and compiles it. It is never nil. secrets are those of the
// endpoints before it, and whose they are.
func (l *loader) endpoint(path string, m *configv1.Endpoint, all *configv1.Egress, global netguard.Config, filter *netguard.Filter, secrets map[string]string) *egress.Endpoint {
	owner := "endpoint " + quote(m.GetId())
	e := &egress.Endpoint{
		ID: m.GetId(), Origin: egress.OriginConfig, Tenant: m.GetTenant(), EventTypes: m.GetEventTypes(),
		Filter: filter, Owner: m.GetOwner(),
	}
	for i, t := range m.GetEventTypes() {
		if why := badEventType(t); why != "" {
			l.errorf(fmt.Sprintf("%s.event_types[%d]", path, i), "%s: %s", quote(t), why)
		}
	}
	if m.GetFilter() != nil {
		_, e.Filter = l.filter(path+".filter", m.GetFilter(), &global)
	}
	if e.Filter != nil && m.GetUrl() != "" {
		target, err := e.Filter.Check(m.GetUrl())
		if err != nil {
			l.errorf(path+".url", "%s: %v", owner, err)
		}
		e.Target = target
	}
	if m.Delivery == nil {
		m.Delivery = &configv1.Delivery{}
	}
	e.Policy = l.delivery(path+".delivery", m.GetDelivery(), all.GetDelivery())
	e.Keys = l.signingKeys(path, owner, m.GetSecrets(), secrets)
	e.Headers = l.headers(path+".headers", owner, m.GetHeaders())
	if e.Owner != "" && !isMailAddress(e.Owner) {
		l.errorf(path+".owner", "%s is no mail address; write one alone, such as webhooks@acme.example", quote(e.Owner))
	}
	return e
}

// badEventType says what is wrong with a pattern of event_types; "" for nothing.
func badEventType(t string) string {
	switch {
	case t == "*":
		return ""
	case t == "":
		return `write a type, such as invoice.paid, or "*" for all`
	case len(t) > maxEventType:
		return fmt.Sprintf("a type has at most %d bytes", maxEventType)
	case strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "a type is printable ASCII without blanks"
	}
	if badStar(t, ".") {
		return "a * stands alone, or as the last segment: invoice.*"
	}
	return ""
}

// badStar reports whether the pattern t has a * elsewhere than alone, or as its last segment, behind one of separators.
func badStar(t, separators string) bool {
	head, open := strings.CutSuffix(t, "*")
	return strings.Contains(head, "*") || open && head != "" && (len(head) == 1 || !strings.ContainsAny(head[len(head)-1:], separators))
}

// headers checks and compiles the headers of an endpoint.
func (l *loader) headers(path, owner string, list []*configv1.EndpointHeader) []signature.Field {
	var fields []signature.Field
	for i, h := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if h.GetValue() != "" && bearsSecret(h.GetName()) {
			h.Is = &configv1.EndpointHeader_Secret{Secret: &configv1.Secret{Source: &configv1.Secret_Value{Value: h.GetValue()}}}
		}
		value := h.GetValue()
		if h.GetSecret() != nil {
			if h.GetSecret().GetUntil() != nil {
				l.errorf(at+".secret.until", "is for the secrets that sign; remove it")
			}
			s, ok := l.secret(at+".secret", owner, h.GetSecret())
			if !ok {
				continue
			}
			value = string(s.Bytes())
		}
		if err := egress.ForbiddenHeader(h.GetName(), value); err != nil {
			l.errorf(at, "%s: %v", owner, err)
			continue
		}
		if slices.ContainsFunc(fields, func(f signature.Field) bool { return strings.EqualFold(f.Name, h.GetName()) }) {
			l.errorf(at+".name", "%s: %s stands twice; receivers disagree on which of them counts", owner, quote(h.GetName()))
		}
		fields = append(fields, signature.Field{Name: h.GetName(), Value: value})
	}
	return fields
}

// secretWords stand in the names of headers whose value is a secret by custom.
var secretWords = []string{"auth", "token", "secret", "password", "credential", "api-key", "apikey"}

// bearsSecret reports whether a header of that name bears a secret by custom: what is written as its value is then shown
// no more than a secret.
func bearsSecret(name string) bool {
	plain := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(plain, word) })
}

// isMailAddress reports whether s is one address, without a name or comment beside it.
func isMailAddress(s string) bool {
	a, err := mail.ParseAddress(s)
	return err == nil && a.Address == s && a.Name == "" && !strings.ContainsAny(s, "\r\n")
}

// fillEgress writes the defaults of the outbound half into m, but for those of its endpoints.
func fillEgress(m *configv1.Config) {
	duration := func(d **durationpb.Duration, otherwise *durationpb.Duration) { *d = cmp.Or(*d, otherwise) }
	if e := m.GetEgress(); e != nil {
		e.Listen = cmp.Or(e.GetListen(), DefaultEgressListen)
		e.MaxEvent = cmp.Or(e.GetMaxEvent(), egress.DefaultMaxEventBytes)
		e.Filter = cmp.Or(e.GetFilter(), &configv1.AddressFilter{})
		if len(e.Filter.GetPorts()) == 0 {
			e.Filter.Ports = []int32{netguard.DefaultPort}
		}
		e.Filter.Enforce = cmp.Or(e.Filter.GetEnforce(), configv1.Enforce_ENFORCE_ENFORCE)
		e.Delivery = cmp.Or(e.GetDelivery(), &configv1.Delivery{})
	}
	if m.GetEgress() != nil || stores(m) {
		m.Keep = cmp.Or(m.GetKeep(), &configv1.Keep{})
	}
	if k := m.GetKeep(); k != nil {
		duration(&k.Delivered, durationpb.New(egress.DefaultKeepDelivered))
		duration(&k.Dead, durationpb.New(egress.DefaultKeepDead))
		duration(&k.Log, durationpb.New(egress.DefaultKeepLog))
	}
	if s := m.GetNotify().GetSmtp(); s != nil {
		s.Tls = cmp.Or(s.GetTls(), configv1.SmtpTls_SMTP_TLS_STARTTLS)
	}
}
