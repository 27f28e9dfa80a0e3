package signature

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// KeyRequest names a document in which a sender publishes its keys.
type KeyRequest struct {
	URL string
	// KeyID is the key that is wanted of it; empty: any, or a certificate.
	KeyID string
}

// Published gives documents of keys as they were fetched last. It must neither block nor fetch, and is safe for concurrent
// use.
type Published interface {
	// Keys returns the document at url; nil where none is at hand.
	Keys(url string) *PublishedKeys
}

// PublishedKeys is a document in which a sender publishes its keys: a JWK set, a public key in PEM, or a certificate in PEM
// with those that lead to its authority. It is immutable.
type PublishedKeys struct {
	keys  []publishedKey
	chain []*x509.Certificate // the sender's own first; nil for keys
}

// publishedKey is a key of a JWK set.
type publishedKey struct {
	id, alg string
	public  crypto.PublicKey
}

// Bounds on a document.
const (
	maxPublishedKeys = 64
	maxChain         = 8
)

var errPublished = errors.New("no JWK set, and no public key or certificate in PEM")

// ParsePublished reads a document of keys. Keys of types that no scheme uses are left out.
func ParsePublished(raw []byte) (*PublishedKeys, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) > 0 && raw[0] == '{':
		keys, err := readJWKS(raw)
		if err != nil {
			return nil, err
		}
		if len(keys) == 0 || len(keys) > maxPublishedKeys {
			return nil, fmt.Errorf("the JWK set has %d keys that a scheme could use; 1 to %d are taken", len(keys), maxPublishedKeys)
		}
		return &PublishedKeys{keys: keys}, nil
	case bytes.HasPrefix(raw, []byte("-----BEGIN PUBLIC KEY-----")):
		m := &material{}
		if err := m.parsePEM(raw); err != nil {
			return nil, err
		}
		return &PublishedKeys{keys: []publishedKey{{public: m.public[0]}}}, nil
	case bytes.HasPrefix(raw, []byte("-----BEGIN CERTIFICATE-----")):
		chain, err := parseCertificates(raw, maxChain)
		if err != nil {
			return nil, err
		}
		return &PublishedKeys{chain: chain}, nil
	}
	return nil, errPublished
}

// parseCertificates reads certificates in PEM, 1 to most of them.
func parseCertificates(raw []byte, most int) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for len(bytes.TrimSpace(raw)) > 0 {
		block, rest := pem.Decode(raw)
		if block == nil || block.Type != "CERTIFICATE" || len(chain) == most {
			return nil, fmt.Errorf("%w: 1 to %d certificates in PEM are wanted, and nothing else", ErrKeyForm, most)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: a certificate cannot be read", ErrKeyForm)
		}
		chain, raw = append(chain, c), rest
	}
	if len(chain) == 0 {
		return nil, fmt.Errorf("%w: no certificate in PEM", ErrKeyForm)
	}
	return chain, nil
}

// VerifyChain reports whether the document's certificate leads to one of roots at now; nil: the system's. A certificate
// that came alone leads nowhere and is left to the connection that it came by; keys have no certificate. Both give nil.
func (p *PublishedKeys) VerifyChain(roots *x509.CertPool, now time.Time) error {
	if len(p.chain) < 2 {
		return nil
	}
	between := x509.NewCertPool()
	for _, c := range p.chain[1:] {
		between.AddCert(c)
	}
	_, err := p.chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// certificate returns the public key of the document's certificate if it is valid at now and is for a name that named
// accepts, else nil.
func (p *PublishedKeys) certificate(now time.Time, named func(string) bool) crypto.PublicKey {
	if len(p.chain) == 0 {
		return nil
	}
	c := p.chain[0]
	if now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return nil
	}
	if !slices.ContainsFunc(c.DNSNames, named) && !named(c.Subject.CommonName) {
		return nil
	}
	return c.PublicKey
}

// choose returns the keys of the document that may have made a signature of that kind and, where an id is given, those
// under it. Keys without an id may be any.
func (p *PublishedKeys) choose(alg Algorithm, id, jwa string) []crypto.PublicKey {
	var chosen []crypto.PublicKey
	for _, k := range p.keys {
		if fits(k.public, alg) == nil && (id == "" || k.id == "" || k.id == id) && (jwa == "" || k.alg == "" || k.alg == jwa) {
			chosen = append(chosen, k.public)
		}
	}
	return chosen
}

// names reports whether the document has a key under that id: then no newer one tells more of it.
func (p *PublishedKeys) names(id string) bool {
	return slices.ContainsFunc(p.keys, func(k publishedKey) bool { return k.id == id })
}

// publishedBy returns the document of a key that is an address; nil where it is not at hand.
func (m *Message) publishedBy(at string) *PublishedKeys {
	if m.Published == nil {
		return nil
	}
	return m.Published.Keys(at)
}

// maxKeyURL bounds an address of keys, in bytes.
const maxKeyURL = 1024

// ParseKeyURL makes a key of the address where the sender publishes its keys, a JWK set as a rule. It returns ErrKeyKind
// where the schemes of v want no such keys, and ErrKeyForm for what is no https URL.
func (v *Verifier) ParseKeyURL(at string) (Key, error) {
	i := slices.IndexFunc(v.kinds, func(k kind) bool { return k.format == KeyJWKS })
	if i < 0 {
		return Key{}, fmt.Errorf("%w: this scheme has no keys that are published at a URL", ErrKeyKind)
	}
	u, err := url.Parse(at)
	if err != nil || len(at) > maxKeyURL || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Opaque != "" || strings.Contains(at, "#") {
		return Key{}, fmt.Errorf("%w: write the address of a JWK set, such as https://example.com/.well-known/jwks.json", ErrKeyForm)
	}
	return Key{m: &material{kind: v.kinds[i], url: at}}, nil
}

// OwnKeys are the keys that the sender publishes and that its row knows; where there are some, a source needs no secrets.
func (v *Verifier) OwnKeys() []Key { return slices.Clone(v.own) }
