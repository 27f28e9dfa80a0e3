package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"math/big"
	"time"
)

// match tries every live key with every signature and returns the index of the first key that fits, or -1. However
// early one fits, the others are tried as well, so that time tells nothing of which it was.
func (r *reader) match(keys []Key, now time.Time) int {
	found, tried, checks := -1, 0, 0
	for i := range keys {
		k := &keys[i]
		if !k.live(now) || k.m.kind != r.s.kind || tried == maxKeys {
			continue
		}
		tried++
		var ok bool
		switch {
		case k.m.url != "":
			ok = r.matchPublished(k.m, &checks)
		case k.m.mac != nil:
			ok = r.matchMAC(k.m)
		case k.m.public != nil:
			ok = r.matchPublic(k.m.public, &checks)
		default:
			ok = r.matchToken(k.m)
		}
		if ok && found < 0 {
			found = i
		}
	}
	r.note("tried %d keys with %d signatures", tried, len(r.sigs))
	return found
}

func (r *reader) matchMAC(m *material) bool {
	equal := 0
	h := m.mac.get()
	for i, url := range r.urls {
		if i > 0 {
			h.Reset()
		}
		r.writeTo(h, url, m.text)
		r.sum = h.Sum(r.sum[:0])
		for _, sig := range r.sigs {
			equal |= subtle.ConstantTimeCompare(sig, r.sum)
		}
	}
	m.mac.put(h)
	return equal == 1
}

// matchToken compares hashes, for the length of a secret is no one's business either.
func (r *reader) matchToken(m *material) bool {
	equal := 0
	for _, sig := range r.sigs {
		sum := sha256.Sum256(sig)
		equal |= subtle.ConstantTimeCompare(sum[:], m.digest[:])
	}
	return equal == 1
}

// matchPublic checks each signature with each public key, as far as checks allows: they cost a thousand times a MAC.
func (r *reader) matchPublic(public []crypto.PublicKey, checks *int) bool {
	ok, alg := false, r.s.spec.Algorithm
	for _, url := range r.urls {
		var content, sum []byte
		if alg == Ed25519 {
			content = r.append(nil, url, nil)
		} else {
			h := alg.hash().New()
			r.writeTo(h, url, nil)
			sum = h.Sum(nil)
		}
		for _, sig := range r.sigs {
			for _, p := range public {
				if *checks == maxPublicChecks {
					return ok
				}
				*checks++
				ok = checkPublic(p, alg, r.s.spec.Signature.Layout, content, sum, sig) || ok
			}
		}
	}
	return ok
}

// matchPublished does so with the keys that the sender publishes. The signature does not say which of them made it, so
// where none fits a newer document may.
func (r *reader) matchPublished(m *material, checks *int) bool {
	r.want = KeyRequest{URL: m.url}
	document := r.m.publishedBy(m.url)
	if document == nil {
		r.note("the keys of %s are not at hand", m.url)
		r.away = true
		return false
	}
	return r.matchPublic(document.choose(r.s.spec.Algorithm, "", ""), checks)
}

// checkPublic checks a signature of content, or of its hash, which is in sum.
func checkPublic(p crypto.PublicKey, alg Algorithm, layout SignatureForm, content, sum, sig []byte) bool {
	switch p := p.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(p, content, sig)
	case *ecdsa.PublicKey:
		if layout == Raw {
			if len(sig) != 64 {
				return false
			}
			return ecdsa.Verify(p, sum, new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:]))
		}
		return ecdsa.VerifyASN1(p, sum, sig)
	case *rsa.PublicKey:
		if alg == RSAPSSSHA256 {
			return rsa.VerifyPSS(p, crypto.SHA256, sum, sig, nil) == nil
		}
		return checkRSA(p, alg.hash(), sum, sig)
	}
	return false
}

// checkRSA checks a signature of PKCS #1 v1.5.
func checkRSA(p crypto.PublicKey, hashed crypto.Hash, sum, sig []byte) bool {
	key, ok := p.(*rsa.PublicKey)
	return ok && rsa.VerifyPKCS1v15(key, hashed, sum, sig) == nil
}

// bodyHashMatches checks the hash of the body that the sender signed in place of the body. A body that the template
// does not cover, because it is no form, needs one; and one that is there is checked whatever the content type says,
// for the content type is not signed.
func (r *reader) bodyHashMatches() bool {
	spec := r.s.spec.BodyHash
	covered := uses(r.s.parts, partBody) || uses(r.s.parts, partBodyHash) || uses(r.s.parts, partForm) && r.m.isForm()
	if spec == nil {
		return covered || !uses(r.s.parts, partForm)
	}
	text, found := r.s.bodyHash.find(r.m, r.body)
	if found == absent {
		if !covered {
			r.note("%s is missing: nothing signs this body", r.s.bodyHash)
		}
		return covered
	}
	n := len(r.arena)
	want, ok := decode(r.arena, text, spec.Encoding)
	if found == repeated || !ok {
		return false
	}
	r.arena = want
	sum := sha256.Sum256(r.body)
	if subtle.ConstantTimeCompare(sum[:], want[n:]) != 1 {
		r.note("%s is not the hash of the body", r.s.bodyHash)
		return false
	}
	return true
}
