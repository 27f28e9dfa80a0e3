package signature

import (
	"fmt"
	"strings"
	"time"
)

// SignAll is Sign with several keys at once, as a sender does it while a secret is rotated: the one field of the
// signature holds those of all keys whose Until has not passed, in the order of keys. The schemes of the keys have to
// sign the same things into the same list, as v1 and v1a of Standard Webhooks do. It returns ErrCannotSign, wrapped,
// where Sign does, and where no key is in force.
func (v *Verifier) SignAll(m *Message, keys []Key, id string, now time.Time) ([]Field, error) {
	var (
		first *scheme
		r     *reader
		added []Field
		value strings.Builder
	)
	for _, k := range keys {
		if k.m != nil && !k.live(now) {
			continue
		}
		s, err := v.schemeOf(k)
		if err != nil {
			return nil, err
		}
		if first == nil {
			if r, added, err = s.signer(m, id, now); err != nil {
				return nil, err
			}
			defer r.free()
			first = s
		} else {
			if !first.listsWith(s) {
				return nil, fmt.Errorf("%w: the signatures of the keys do not go into one list", ErrCannotSign)
			}
			value.WriteString(first.spec.Signature.List)
		}
		r.s = s
		sig, err := r.makeSignature(k.m)
		if err != nil {
			return nil, err
		}
		value.WriteString(s.signatureField(sig, r.timestamp))
	}
	if first == nil {
		return nil, fmt.Errorf("%w: no key is in force", ErrCannotSign)
	}
	return append(added, Field{Name: first.signature.name, Value: value.String()}), nil
}

// listsWith reports whether signatures of s and o over one message can stand in one field.
func (s *scheme) listsWith(o *scheme) bool {
	a, b := &s.spec, &o.spec
	list := a.Signature.List != "" && a.Signature.List == b.Signature.List && a.Signature.Blanks == b.Signature.Blanks &&
		a.Signature.Skip == 0 && b.Signature.Skip == 0
	content := a.Signed == b.Signed && a.Body == b.Body && s.timed == o.timed &&
		(!s.timed || a.Timestamp.Unit == b.Timestamp.Unit && a.Timestamp.SignatureKey == "" && b.Timestamp.SignatureKey == "")
	places := s.signature.String() == o.signature.String() && s.timestamp.String() == o.timestamp.String() && s.id.String() == o.id.String()
	return list && content && places
}
