package signature

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// peerRule says whose certificate the client has to show.
type peerRule struct {
	subjects []string
	roots    []*x509.Certificate // authorities beside those among the keys; none: the proxy's word counts
}

// Bounds of a rule.
const (
	maxSubjects     = 64
	maxSubjectBytes = 512
	maxRoots        = 16
	maxPeerBytes    = 64 << 10 // of a certificate as the proxy writes it
)

// checkSubjects refuses subjects that no certificate could have, or that any could.
func checkSubjects(subjects []string) error {
	if len(subjects) > maxSubjects {
		return fmt.Errorf("subjects: %d are the most", maxSubjects)
	}
	for i, s := range subjects {
		if s == "" || len(s) > maxSubjectBytes || strings.TrimSpace(s) != s || strings.Contains(s, "*") {
			return fmt.Errorf("subjects[%d]: write a URI, a DNS name or a whole subject of a certificate, without a *", i)
		}
	}
	return nil
}

// RequirePeer returns a Verifier that also asks the client for a certificate of one of subjects. With roots, which are
// certificates in PEM, it checks itself that one of these authorities issued it; without, it takes the word of the proxy
// that ended the connection. Errors name the field.
func (v *Verifier) RequirePeer(subjects []string, roots []byte) (*Verifier, error) {
	if len(subjects) == 0 {
		return nil, errors.New("subjects: one is needed")
	}
	if err := checkSubjects(subjects); err != nil {
		return nil, err
	}
	rule := &peerRule{subjects: slices.Clone(subjects)}
	if len(roots) > 0 {
		var err error
		if rule.roots, err = parseCertificates(roots, maxRoots); err != nil {
			return nil, err
		}
	}
	if v.peer != nil {
		return nil, errors.New("subjects: the scheme has some already")
	}
	w := *v
	w.peer = rule
	return &w, nil
}

// NeedsKey reports whether v verifies nothing without a key: all do but MTLS, for which keys are authorities beside the
// proxy's.
func (v *Verifier) NeedsKey() bool {
	return slices.ContainsFunc(v.kinds, func(k kind) bool { return k.algorithm != MTLS })
}

// WantsPeer reports whether v asks for a certificate of the client.
func (v *Verifier) WantsPeer() bool { return v.peer != nil }

// judge reports whether the client of m is one of the subjects. No header of the message is looked at: whoever is not the
// proxy could have written it.
func (p *peerRule) judge(m *Message, keys []Key, now time.Time, trace *Explanation) Reason {
	if m.Peer == (Peer{}) {
		trace.note("the client showed no certificate, or the proxy does not pass it on")
		return ReasonMissingSignature
	}
	roots, checked := slices.Clone(p.roots), len(p.roots) > 0
	for i := range keys {
		if k := &keys[i]; k.m != nil && k.m.kind.algorithm == MTLS {
			if checked = true; k.live(now) {
				roots = append(roots, k.m.roots...)
			}
		}
	}
	names := []string{m.Peer.Principal}
	if m.Peer.Certificate != "" || checked {
		c, err := peerCertificate(m.Peer.Certificate)
		if err != nil {
			trace.note("the client's certificate: %v", err)
			return ReasonMalformedSignature
		}
		names = certificateNames(c[0])
		if checked {
			if err := verifyPeer(c, roots, now); err != nil {
				trace.note("the client's certificate: %v", err)
				return ReasonBadSignature
			}
		}
	}
	for _, name := range names {
		if name != "" && slices.Contains(p.subjects, name) {
			return ReasonOK
		}
	}
	trace.note("the client's certificate is for %q", names)
	return ReasonBadSignature
}

// peerCertificate reads Peer.Certificate.
func peerCertificate(text string) ([]*x509.Certificate, error) {
	if text == "" {
		return nil, errors.New("the proxy does not pass it on (include_peer_certificate)")
	}
	if len(text) > maxPeerBytes {
		return nil, fmt.Errorf("it has more than %d bytes", maxPeerBytes)
	}
	raw, err := url.PathUnescape(text) // not QueryUnescape: a + is base64's
	if err != nil {
		return nil, errors.New("its escapes cannot be read")
	}
	return parseCertificates([]byte(raw), maxChain)
}

func verifyPeer(chain, roots []*x509.Certificate, now time.Time) error {
	anchors, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range roots {
		anchors.AddCert(c)
	}
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: anchors, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// certificateNames are all names of a certificate: the alternative ones, and the subject as RFC 2253 writes it.
func certificateNames(c *x509.Certificate) []string {
	var names []string
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	names = append(names, c.DNSNames...)
	return append(names, c.Subject.String())
}
