package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// DefaultLease is how long the app has for an event; other defaults of a source are its provider's.
const DefaultLease = time.Minute

var (
	modes = map[configv1.Mode]extauthz.Mode{
		configv1.Mode_MODE_PASS:  extauthz.ModePass,
		configv1.Mode_MODE_STORE: extauthz.ModeStore,
	}
	enforces = map[configv1.Enforce]extauthz.Enforce{
		configv1.Enforce_ENFORCE_ENFORCE: extauthz.EnforceOn,
		configv1.Enforce_ENFORCE_REPORT:  extauthz.EnforceReport,
	}
	confirms = map[configv1.Confirm]extauthz.ConfirmMode{
		configv1.Confirm_CONFIRM_ACCESS_LOG: extauthz.ConfirmAccessLog,
		configv1.Confirm_CONFIRM_EXT_PROC:   extauthz.ConfirmExtProc,
	}
	onUnknowns = map[configv1.OnUnknown]extauthz.OnUnknown{
		configv1.OnUnknown_ON_UNKNOWN_RETRY: extauthz.OnUnknownRetry,
		configv1.OnUnknown_ON_UNKNOWN_HOLD:  extauthz.OnUnknownHold,
	}
)

// source checks one source, fills its defaults into m and compiles it. It is never nil; the App is, in PASS.
func (l *loader) source(path string, m *configv1.Source) (*extauthz.Source, *App) {
	owner := fmt.Sprintf("source %s", quote(m.GetName()))
	p := l.preset(path, owner, m)
	l.checkTimes(path, m, p)
	fillSource(m, p)
	l.types(path+".types", m, p)
	l.checkLoss(path, m, p)
	s := &extauthz.Source{
		Name: m.GetName(), Was: m.GetWas(), Provider: p.name, Mode: modes[m.GetMode()],
		Verifier:  p.verifier,
		Tolerance: m.GetTolerance().AsDuration(), Enforce: enforces[m.GetEnforce()],
		Lease: m.GetLease().AsDuration(), InFlightWait: m.GetInFlightWait().AsDuration(),
		Retention: m.GetRetention().AsDuration(), ContentWindow: m.GetDedupe().GetContentWindow().AsDuration(),
		Confirm: confirms[m.GetConfirm()], OnUnknown: onUnknowns[m.GetOnUnknown()],
		PublicURL:    l.publicURL(path+".public_url", m, p),
		MaxBodyBytes: m.GetMaxBody(), RefusalStatus: p.refusalStatus,
		Handshake: p.handshake, UnsignedHandshake: m.GetHandshake().GetUnsigned(), RequireID: p.requireID,
		Types: m.GetTypes(),
	}
	if m.GetMatch() != nil {
		s.Matches = []extauthz.Match{l.sourceMatch(path+".match", m.GetMatch())}
	}
	if r := m.GetReply(); r != nil {
		s.Reply = extauthz.Reply{Status: int(r.GetStatus()), ContentType: r.GetContentType(), Body: r.GetBody()}
	}
	s.Tenants, s.Tenant = l.tenants(path, owner, m, p)
	s.Keys = l.keys(path, owner, m, p)
	s.ConfirmSubscription = l.confirms(path+".handshake", m, p)
	s.HandshakeToken = l.handshake(path+".handshake", owner, m, p)
	l.reading(path, m, p, s)
	return s, l.stored(path, owner, m, p, s)
}

// types checks which event types a source lets through.
func (l *loader) types(path string, m *configv1.Source, p preset) {
	for i, t := range m.GetTypes() {
		if why := badTypePattern(t); why != "" {
			l.errorf(fmt.Sprintf("%s[%d]", path, i), "%s: %s", quote(t), why)
		}
	}
	switch {
	case len(m.GetTypes()) == 0 || p.verifier == nil && m.GetVerify() == "":
	case p.verifier == nil:
		l.errorf(path, "nobody vouches for the type of a request that is not verified; leave this out")
	case !p.verifier.HasType():
		l.errorf(path, "%s says nothing of an event's type; leave this out, or write a scheme with a type", p.name)
	}
}

// badTypePattern says what is wrong with an entry of types; "" for nothing.
func badTypePattern(t string) string {
	switch {
	case t == "":
		return `write a type, such as invoice.paid, or "*" for all`
	case len(t) > maxEventType:
		return fmt.Sprintf("a type has at most %d bytes", maxEventType)
	case strings.TrimSpace(t) != t, strings.ContainsFunc(t, unicode.IsControl), strings.Contains(t, ","):
		return "a type has no comma and no control character, and no blank at an end; write each as an entry of its own"
	case badStar(t, "./"):
		return "a * stands alone, or at the end after a full stop or a slash: invoice.*"
	}
	return ""
}

// fillSource writes the defaults of a source into m.
func fillSource(m *configv1.Source, p preset) {
	duration := func(d **durationpb.Duration, otherwise time.Duration) {
		if *d == nil {
			*d = durationpb.New(otherwise)
		}
	}
	m.Mode = cmp.Or(m.GetMode(), configv1.Mode_MODE_PASS)
	duration(&m.Tolerance, p.tolerance)
	duration(&m.Retention, p.retention)
	duration(&m.Lease, DefaultLease)
	duration(&m.InFlightWait, 0)
	m.Confirm = cmp.Or(m.GetConfirm(), configv1.Confirm_CONFIRM_ACCESS_LOG)
	m.OnUnknown = cmp.Or(m.GetOnUnknown(), configv1.OnUnknown_ON_UNKNOWN_RETRY)
	m.Dedupe = cmp.Or(m.GetDedupe(), &configv1.Dedupe{})
	duration(&m.Dedupe.ContentWindow, p.contentWindow)
	m.Enforce = cmp.Or(m.GetEnforce(), configv1.Enforce_ENFORCE_ENFORCE)
	m.MaxBody = cmp.Or(m.GetMaxBody(), p.maxBody)
	if r := m.GetReply(); r != nil {
		r.Status = cmp.Or(r.GetStatus(), 200)
		if r.GetBody() != "" {
			r.ContentType = cmp.Or(r.GetContentType(), "text/plain; charset=utf-8")
		}
	}
}

// checkTimes notes times that contradict each other or what the provider does. It sees m before its defaults are filled
// in, to tell what somebody wrote from what nobody did.
func (l *loader) checkTimes(path string, m *configv1.Source, p preset) {
	or := func(d *durationpb.Duration, otherwise time.Duration) time.Duration {
		if d == nil {
			return otherwise
		}
		return d.AsDuration()
	}
	tolerance, retention := or(m.GetTolerance(), p.tolerance), or(m.GetRetention(), p.retention)
	lease, wait := or(m.GetLease(), DefaultLease), or(m.GetInFlightWait(), 0)
	window := or(m.GetDedupe().GetContentWindow(), p.contentWindow)
	switch {
	case m.GetTolerance() == nil:
	case tolerance == 0:
		l.errorf(path+".tolerance", "0 would refuse every request: sending takes time, and clocks differ; write a duration, such as 5m")
	case p.verifier != nil && !p.verifier.SignsTime():
		l.warnf(path+".tolerance", "has no effect: this sender signs no time")
	}
	if retention < tolerance {
		l.errorf(path+".retention", "%s is below the tolerance, %s: a request could be sent again after its id was forgotten; "+
			"write at least the tolerance", formatDuration(retention), formatDuration(tolerance))
	} else if retention < p.horizon {
		l.warnf(path+".retention", "%s is below the %s over which %s sends again: a late repeat would reach the app as new",
			formatDuration(retention), formatDuration(p.horizon), p.name)
	}
	if window > retention {
		l.errorf(path+".dedupe.content_window", "%s is above the retention, %s; write at most that",
			formatDuration(window), formatDuration(retention))
	}
	switch {
	case wait >= lease:
		l.errorf(path+".in_flight_wait", "%s is not below the lease, %s; when the lease has ended there is nothing to wait for",
			formatDuration(wait), formatDuration(lease))
	case p.deadline > 0 && wait >= p.deadline:
		l.warnf(path+".in_flight_wait", "%s is not below the %s after which %s gives up; write less, or leave it out",
			formatDuration(wait), formatDuration(p.deadline), p.name)
	}
	if lease < p.deadline {
		l.warnf(path+".lease", "%s is below the %s for which %s waits for an answer: the app may still be at work when "+
			"the next request of the same id goes through", formatDuration(lease), formatDuration(p.deadline), p.name)
	}
}

// checkLoss holds accept_loss to providers that need it said. In STORE what was answered 200 is kept, whoever sent it.
func (l *loader) checkLoss(path string, m *configv1.Source, p preset) {
	switch {
	case m.GetMode() == configv1.Mode_MODE_STORE:
		if m.GetAcceptLoss() {
			l.warnf(path+".accept_loss", "has no effect: STORE keeps events until the app has taken them")
		}
		if m.GetOnUnknown() == configv1.OnUnknown_ON_UNKNOWN_HOLD {
			l.warnf(path+".on_unknown", "has no effect: in STORE an attempt that nobody learns the end of is made again")
		}
		if m.GetConfirm() == configv1.Confirm_CONFIRM_EXT_PROC {
			l.warnf(path+".confirm", "has no effect: in STORE the app does not answer through Envoy")
		}
	case p.retries == signature.RetriesYes && m.GetAcceptLoss():
		l.warnf(path+".accept_loss", "has no effect: it is for senders that never send again")
	case m.GetAcceptLoss():
	case p.retries == signature.RetriesNo:
		l.errorf(path+".accept_loss", "%s never sends again, so an event is lost when the app fails or is away; "+
			"write mode: STORE with delivery, which keeps events until the app has taken them, or accept the loss with accept_loss: true", p.name)
	case p.retries == signature.RetriesUnknown:
		l.warnf(path+".mode", "whether %s sends again is not known: an event may be lost when the app fails or is away; "+
			"write mode: STORE with delivery, or accept_loss: true if that is acceptable", p.name)
	}
}

// publicURL checks the origin that the sender signs and returns it as requests are appended to it.
func (l *loader) publicURL(path string, m *configv1.Source, p preset) string {
	ebay := p.handshake == extauthz.HandshakeEBay // its challenge covers the URL
	needed := p.verifier != nil && p.verifier.NeedsURL() || ebay && m.GetHandshake().GetVerifyToken() != nil
	if m.GetPublicUrl() == "" {
		if needed {
			l.errorf(path, "is required: %s signs the URL that it calls; write its origin as the sender knows it, "+
				"such as https://hooks.example.com", p.name)
		}
		return ""
	}
	origin, err := parseOrigin(m.GetPublicUrl())
	if err != nil {
		l.errorf(path, "%s: %v", quote(m.GetPublicUrl()), err)
		return ""
	}
	if !needed && !ebay {
		l.warnf(path, "has no effect: this sender does not sign the URL")
	}
	m.PublicUrl = origin
	return origin
}

func parseOrigin(s string) (string, error) {
	s, _, _ = strings.Cut(s, "#")
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", errors.New("is no URL; write one such as https://hooks.example.com")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		return "", errors.New("write scheme and host, such as https://hooks.example.com")
	case u.User != nil:
		return "", errors.New("leave user and password out")
	case u.RawQuery != "" || u.ForceQuery:
		return "", errors.New("leave the query out: the request's own is taken")
	}
	return strings.TrimSuffix(s, "/"), nil
}

// handshake checks what a handshake needs and returns the verify token of Meta or eBay.
func (l *loader) handshake(path, owner string, m *configv1.Source, p preset) []byte {
	h := m.GetHandshake()
	if h.GetUnsigned() && p.handshake != extauthz.HandshakeSlack {
		l.errorf(path+".unsigned", "is for slack alone: what other senders leave unsigned is answered without it")
	}
	if method, by := m.GetMatch().GetMethod(), handshakeMethods[p.handshake]; by != "" && method != "" && method != by {
		l.warnf(path, "%s: the challenge of %s comes by %s, which match.method: %s keeps from this source", owner, p.name, by, method)
	}
	takes := map[extauthz.Handshake]string{extauthz.HandshakeMeta: "Meta", extauthz.HandshakeEBay: "eBay"}[p.handshake]
	if h.GetVerifyToken() == nil {
		if takes != "" {
			l.warnf(path, "%s: without verify_token %s's challenge is refused, and its form does not accept the URL", owner, takes)
		}
		return nil
	}
	if takes == "" {
		l.errorf(path+".verify_token", "is for meta and ebay: other senders have none")
		return nil
	}
	return l.token(path+".verify_token", owner, h.GetVerifyToken()).Bytes()
}
