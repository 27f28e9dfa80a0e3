package signature

import (
	"fmt"
	"slices"
	"time"
)

// CanSign reports whether Resign can sign what came from this sender, with one of keys if there are any: nil, or ErrCannotSign
// with the reason.
func (v *Verifier) CanSign(keys []Key) error {
	if v.beside != nil {
		return fmt.Errorf("%w: this sender's signatures are only checked", ErrCannotSign)
	}
	if len(keys) == 0 {
		for _, k := range v.kinds {
			if !k.symmetric() {
				return fmt.Errorf("%w: only the sender has the private key of %s", ErrCannotSign, k.algorithm)
			}
			if err := v.canSignAs(k); err != nil {
				return err
			}
		}
		return nil
	}
	var first error
	for _, k := range keys {
		_, err := v.schemeOf(k)
		switch {
		case err != nil:
		case !k.signs():
			err = fmt.Errorf("%w: a public key only checks", ErrCannotSign)
		default:
			err = v.canSignAs(k.m.kind)
		}
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// canSignAs is CanSign for a key of kind k. Every scheme of the kind has to allow it, for nobody knows which one the next message
// comes under.
func (v *Verifier) canSignAs(k kind) error {
	var idle error
	signs := false
	for _, s := range v.schemes {
		if s.kind != k {
			continue
		}
		switch t := s.timestamp; {
		case s.bearsSecret() && s.signature.kind != placeHeader:
			idle = fmt.Errorf("%w: the secret stands in %s, and goes on with the message as it came", ErrCannotSign, s.signature)
			continue
		case s.signature.kind == placeNone:
			return fmt.Errorf("%w: nothing is signed", ErrCannotSign)
		case s.signature.kind != placeHeader:
			return fmt.Errorf("%w: the signature stands in %s", ErrCannotSign, s.signature)
		case t.kind != placeNone && t.kind != placeHeader:
			return fmt.Errorf("%w: the signed time stands in %s", ErrCannotSign, t)
		case s.spec.Headers != nil && s.spec.Headers.SignatureKey != "":
			return fmt.Errorf("%w: the sender chooses the headers that it signs", ErrCannotSign)
		}
		signs = true
	}
	if !signs {
		return idle
	}
	return nil
}

// bearsSecret reports whether the secret itself stands in place of a signature.
func (s *scheme) bearsSecret() bool { return s.spec.Algorithm == Token || s.spec.Algorithm == Basic }

// stillBears reports whether m has a secret outside its headers: in its body or URL, which are as they came.
func (v *Verifier) stillBears(m *Message) bool {
	return slices.ContainsFunc(v.schemes, func(s *scheme) bool {
		if !s.bearsSecret() || s.signature.kind == placeHeader {
			return false
		}
		_, found := s.signature.find(m, m.Body)
		return found == present
	})
}

// signs reports whether k can make signatures.
func (k Key) signs() bool { return k.m != nil && (k.m.kind.symmetric() || k.m.signer != nil) }

// Resign returns the header of a message that once was verified, with fresh signatures and a fresh time in place of those that it
// came with; id and all else stay. It is signed under the header names that it came with, each with the first of keys that is
// in force and fits; where it has none, as secrets are not kept, under those of the first key. The fields that were made are
// the last ones, from index made on. The header of m is not changed. ErrCannotSign, wrapped, where CanSign says so, where no
// key is in force, and where something that is signed is missing.
func (v *Verifier) Resign(m *Message, keys []Key, now time.Time) (header []Field, made int, err error) {
	if v.beside != nil {
		return nil, 0, v.CanSign(keys)
	}
	signed := *m
	signed.Header = make([]Field, 0, len(m.Header)+5)
	var came []string
	for _, f := range m.Header {
		switch use := v.Header(f.Name); {
		case !use.Signature && !use.replaced:
			signed.Header = append(signed.Header, f)
		case use.Signature && !slices.Contains(came, f.Name):
			came = append(came, f.Name)
		}
	}
	made = len(signed.Header)
	for _, name := range came {
		k, s := v.signing(keys, now, name)
		if s == nil {
			continue
		}
		fresh, err := s.sign(&signed, k, "", now)
		if err != nil {
			return nil, 0, err
		}
		signed.Header = append(signed.Header, fresh...)
	}
	if len(signed.Header) > made || v.stillBears(m) {
		return signed.Header, made, nil
	}
	k, s := v.signing(keys, now, "")
	if s == nil {
		return nil, 0, fmt.Errorf("%w: no key is in force", ErrCannotSign)
	}
	fresh, err := s.sign(&signed, k, "", now)
	return append(signed.Header, fresh...), made, err
}

// signing returns the first key in force that can sign, and its first scheme that has its signature in the header of that name;
// "": in any.
func (v *Verifier) signing(keys []Key, now time.Time, name string) (Key, *scheme) {
	for _, k := range keys {
		if !k.live(now) || !k.signs() {
			continue
		}
		for _, s := range v.schemes {
			if s.kind == k.m.kind && s.signature.kind == placeHeader && (name == "" || s.signature.name == name) {
				return k, s
			}
		}
	}
	return Key{}, nil
}
