package config

import (
	"strings"

	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// expected adds to a source's verifier what the source says of tokens and of the client's certificate. What is wrong is noted;
// the verifier is usable all the same.
func (l *loader) expected(path string, m *configv1.Source, p preset) *signature.Verifier {
	v := p.verifier
	c, peer := m.GetJwt(), m.GetClientCertificate()
	switch {
	case v == nil:
		if c != nil {
			l.errorf(path+".jwt", "nothing is verified here; remove it")
		}
		if peer != nil {
			l.errorf(path+".client_certificate", "nothing is verified here; write scheme: {algorithm: MTLS, subjects: […]} for the certificate alone")
		}
		return nil
	case c != nil && !v.TakesClaims():
		l.errorf(path+".jwt", "%s signs with no token that has claims; remove it", p.name)
	case c.GetAudience() == "" && v.NeedsAudience():
		l.errorf(path+".jwt.audience", "is required: %s makes tokens of the same key for others too; write your own, as `sidehook providers %s` says",
			p.name, p.name)
	case c != nil:
		var err error
		if v, err = v.Expect(signature.Claims{Issuer: c.GetIssuer(), Audience: c.GetAudience(), Subject: c.GetSubject()}); err != nil {
			l.errorf(path+".jwt", "%v", err)
			return p.verifier
		}
	}
	if peer != nil {
		v = l.peer(path+".client_certificate", peer, v)
	}
	return v
}

// peer adds the client's certificate.
func (l *loader) peer(path string, m *configv1.ClientCertificate, v *signature.Verifier) *signature.Verifier {
	roots := l.pemFile(path+".ca_file", m.GetCaFile())
	with, err := v.RequirePeer(m.GetSubjects(), roots)
	if err != nil {
		at, text := path, err.Error()
		if field, rest, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(field, "subjects") {
			at, text = path+"."+field, rest
		}
		l.errorf(at, "%s", text)
		return v
	}
	if m.GetCaFile() == "" {
		l.unchecked(path + ".ca_file")
	}
	return with
}

// unchecked notes that nobody but Envoy asks who issued the client's certificate.
func (l *loader) unchecked(path string) {
	l.warnf(path, "is empty, so who issued the client's certificate is asked by Envoy alone: its listener needs require_client_certificate and a "+
		"validation_context with trusted_ca, without which any certificate under that name would do")
}

// presetKeys are the keys of a source without secrets: those that the sender is known to publish.
func (l *loader) presetKeys(path, owner string, p preset) []signature.Key {
	own := p.verifier.OwnKeys()
	switch {
	case len(own) > 0:
	case !p.verifier.NeedsKey():
		l.unchecked(path)
	default:
		l.errorf(path, "%s: a secret is required; write secrets: [{file: /run/secrets/…}]", owner)
	}
	return own
}

// confirms reports whether the gate confirms subscriptions.
func (l *loader) confirms(path string, m *configv1.Source, p preset) bool {
	yes := m.GetHandshake().GetConfirm()
	if yes && p.name != "sns" {
		l.errorf(path+".confirm", "is for sns alone: other senders ask for no subscription to be confirmed")
	}
	return yes
}
