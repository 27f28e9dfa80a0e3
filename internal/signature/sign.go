package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// ErrCannotSign means that a scheme or key is for checking only.
var ErrCannotSign = errors.New("cannot sign")

// Sign returns the header fields to add to m so that Verify accepts it at now. Fields that m has already are not
// repeated: a signed time or id that it has is signed as it is, unless id is given. id may be empty where the scheme
// signs none. It returns ErrCannotSign, wrapped, for public keys and for schemes whose signature is a part of the
// body or the URL.
func (v *Verifier) Sign(m *Message, k Key, id string, now time.Time) ([]Field, error) {
	s, err := v.schemeOf(k)
	if err != nil {
		return nil, err
	}
	return s.sign(m, k, id, now)
}

// sign is Sign with a key of the scheme.
func (s *scheme) sign(m *Message, k Key, id string, now time.Time) ([]Field, error) {
	r, added, err := s.signer(m, id, now)
	if err != nil {
		return nil, err
	}
	defer r.free()
	sig, err := r.makeSignature(k.m)
	if err != nil {
		return nil, err
	}
	return append(added, Field{Name: s.signature.name, Value: s.signatureField(sig, r.timestamp)}), nil
}

// schemeOf returns the scheme that k was parsed for.
func (v *Verifier) schemeOf(k Key) (*scheme, error) {
	if k.m == nil {
		return nil, fmt.Errorf("%w: no key", ErrCannotSign)
	}
	if v.beside != nil {
		return nil, fmt.Errorf("%w: this sender's signatures are only checked", ErrCannotSign)
	}
	for _, s := range v.schemes {
		if s.kind == k.m.kind {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%w: the key is of another scheme", ErrCannotSign)
}

// signer returns a reader with the signed content resolved, which the caller frees, and the fields that m wants beside
// the signature.
func (s *scheme) signer(m *Message, id string, now time.Time) (*reader, []Field, error) {
	if s.signature.kind != placeHeader {
		return nil, nil, fmt.Errorf("%w: the signature stands in %s", ErrCannotSign, s.signature)
	}
	if h := s.spec.Headers; h != nil && h.SignatureKey != "" {
		return nil, nil, fmt.Errorf("%w: the sender chooses the headers that it signs", ErrCannotSign)
	}
	if _, found := m.field(s.signature.name); found != absent {
		return nil, nil, fmt.Errorf("%w: the message has a %s already", ErrCannotSign, s.signature)
	}
	const most = 5 // required header, id, time, list of headers, and the signature, which the caller adds
	signed := *m
	signed.Header = append(make([]Field, 0, len(m.Header)+most), m.Header...)
	added := make([]Field, 0, most)
	add := func(name, value string) {
		f := Field{Name: name, Value: value}
		signed.Header, added = append(signed.Header, f), append(added, f)
	}
	for _, q := range s.require {
		if _, found := m.field(q.Header); found == absent && q.Value != "" {
			add(q.Header, q.Value)
		}
	}
	if id != "" && s.id.kind == placeHeader {
		if have, found := m.field(s.id.name); found == absent {
			add(s.id.name, id)
		} else if have != id {
			return nil, nil, fmt.Errorf("%w: %s has another value already", ErrCannotSign, s.id)
		}
	}
	if h := s.spec.Headers; h != nil {
		if _, found := m.field(h.Header); found == absent {
			add(h.Header, strings.Join(h.Require, h.Separator))
		}
	}
	r := newReader(&signed, s, nil)
	if s.timed {
		r.timestamp = formatTime(now, s.spec.Timestamp.Unit)
		if s.timestamp.kind == placeHeader {
			if have, found := m.field(s.timestamp.name); found == absent {
				add(s.timestamp.name, r.timestamp)
			} else {
				r.timestamp = have
			}
		}
	}
	if err := r.prepareSign(); err != nil {
		r.free()
		return nil, nil, err
	}
	return r, added, nil
}

// prepareSign resolves the signed content of a message that has everything but its signature.
func (r *reader) prepareSign() error {
	s := r.s
	reason := r.readBody()
	if reason == ReasonOK {
		reason = r.readDocument()
	}
	if reason == ReasonOK && s.timestamp.kind != placeNone {
		reason = r.readTimestamp()
	}
	if reason != ReasonOK {
		return fmt.Errorf("%w: the body or its time cannot be read (%s)", ErrCannotSign, reason)
	}
	if reason = r.readHeaders(); reason != ReasonOK {
		return fmt.Errorf("%w: an id is needed in %s", ErrCannotSign, s.id)
	}
	if s.needsURL && r.m.URL == "" {
		return fmt.Errorf("%w: the public URL is needed", ErrCannotSign)
	}
	if reason = r.resolve(); reason != ReasonOK {
		return fmt.Errorf("%w: something that is signed is missing from the message", ErrCannotSign)
	}
	if !r.bodyHashMatches() {
		sum := sha256.Sum256(r.body)
		return fmt.Errorf("%w: %s must be the hash of the body, %s", ErrCannotSign, s.bodyHash, encode(sum[:], s.bodyHashEncoding()))
	}
	return nil
}

func (s *scheme) bodyHashEncoding() Encoding {
	if s.spec.BodyHash == nil {
		return Hex
	}
	return s.spec.BodyHash.Encoding
}

// makeSignature returns the bytes of a signature over the resolved content.
func (r *reader) makeSignature(k *material) ([]byte, error) {
	switch {
	case k.mac != nil:
		h := k.mac.get()
		defer k.mac.put(h)
		r.writeTo(h, r.urls[0], k.text)
		return h.Sum(nil), nil
	case k.kind.symmetric():
		return k.text, nil
	case k.signer == nil:
		return nil, fmt.Errorf("%w: a public key only checks", ErrCannotSign)
	}
	content := r.append(nil, r.urls[0], nil)
	hashed := r.s.spec.Algorithm.hash()
	h := hashed.New()
	h.Write(content)
	var opts crypto.SignerOpts = hashed
	message := h.Sum(nil)
	switch k.signer.(type) {
	case ed25519.PrivateKey:
		opts, message = crypto.Hash(0), content
	case *rsa.PrivateKey:
		if r.s.spec.Algorithm == RSAPSSSHA256 {
			opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
		}
	}
	sig, err := k.signer.Sign(rand.Reader, message, opts)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	if _, ok := k.signer.(*ecdsa.PrivateKey); ok && r.s.spec.Signature.Layout == Raw {
		return rawECDSA(sig)
	}
	return sig, nil
}

// rawECDSA turns a DER signature into its two numbers of 32 bytes each.
func rawECDSA(der []byte) ([]byte, error) {
	var n struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &n); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	out := make([]byte, 64)
	n.R.FillBytes(out[:32])
	n.S.FillBytes(out[32:])
	return out, nil
}

// signatureField writes a signature as the sender would.
func (s *scheme) signatureField(sig []byte, timestamp string) string {
	spec := &s.spec.Signature
	if s.spec.Algorithm == Basic {
		return "Basic " + base64.StdEncoding.EncodeToString(sig)
	}
	element := spec.Prefix + encode(sig, spec.Encoding)
	if spec.KeyValue != "" {
		element = spec.KeyValue + spec.KeySeparator + element
	}
	list := spec.List
	if spec.Blanks && list != " " {
		list += " "
	}
	t := s.spec.Timestamp
	switch {
	case t != nil && t.SignatureKey != "":
		return t.SignatureKey + spec.KeySeparator + timestamp + list + element
	case spec.Skip > 0:
		var field strings.Builder
		for i := range spec.Skip {
			head := "-"
			if t != nil && t.SignatureIndex == i+1 {
				head = timestamp
			}
			field.WriteString(head + list)
		}
		return field.String() + element
	}
	return element
}

// MAC returns the HMAC of data under a key of an HMAC scheme, for answers that prove that we have the key (Zoom's
// url_validation). It reports false for every other key.
func (k Key) MAC(data []byte) ([]byte, bool) {
	if k.m == nil || k.m.mac == nil || k.m.kind.algorithm.plain() {
		return nil, false
	}
	h := k.m.mac.get()
	defer k.m.mac.put(h)
	h.Write(data)
	return h.Sum(nil), true
}
