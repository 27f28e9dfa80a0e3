package signature

import (
	"crypto/ecdsa"
	"crypto/sha1" // what eBay signs
	"crypto/sha256"
	"encoding/json"
	"time"
)

// ebayScheme is that of eBay's event notifications: a header of JSON in base64 that names algorithm and key, with an ECDSA
// signature over the body's SHA-1. The keys come from an API that wants a token, so a user takes them from there. Which of
// them signed is told by kid, which is only a name: all are tried.
type ebayScheme struct{}

// ebayKind is the kind of the keys: public ones in PEM.
var ebayKind = kind{algorithm: ECDSAP256, format: KeyPEM}

func (ebayScheme) keyKind() kind { return ebayKind }

func (ebayScheme) needsURL() bool  { return false }
func (ebayScheme) signsTime() bool { return false }
func (ebayScheme) hasType() bool   { return true }

// String describes the scheme as the one of a Spec is described.
func (ebayScheme) String() string {
	return "ECDSA_P256 over SHA-1 (key PEM) in header x-ebay-signature"
}

func (ebayScheme) verify(m *Message, keys []Key, now time.Time, _ time.Duration, trace *Explanation) Verdict {
	refuse := func(reason Reason, why string) Verdict {
		trace.note("%s", why)
		return Verdict{Reason: reason, Key: -1}
	}
	text, found := m.field("x-ebay-signature")
	switch {
	case found == absent:
		return refuse(ReasonMissingSignature, "header x-ebay-signature is missing")
	case found == repeated, len(text) > maxSignatureBytes:
		return refuse(ReasonMalformedSignature, "header x-ebay-signature came more than once, or is too long")
	}
	var head struct{ Alg, Kid, Signature, Digest string }
	raw, ok := decode(nil, text, Base64)
	if !ok || !namedOnce(raw, "alg", "kid", "signature", "digest") || json.Unmarshal(raw, &head) != nil {
		return refuse(ReasonMalformedSignature, "header x-ebay-signature holds no JSON in base64")
	}
	signature, ok := decode(nil, head.Signature, Base64)
	switch {
	case !ok || len(signature) > 72:
		return refuse(ReasonMalformedSignature, "the signature is no base64")
	case head.Alg != "ecdsa" && head.Alg != "ECDSA", head.Digest != "SHA1":
		return refuse(ReasonWrongScheme, "the signature is not of ECDSA over SHA-1")
	}
	if trace != nil {
		trace.Signed = [][]byte{m.Body}
	}
	sum := sha1.Sum(m.Body)
	index, tried := -1, 0
	for i := range keys {
		k := &keys[i]
		if !k.live(now) || k.m.kind != ebayKind || tried == maxKeys {
			continue
		}
		tried++
		p, _ := k.m.public[0].(*ecdsa.PublicKey)
		if ecdsa.VerifyASN1(p, sum[:], signature) && index < 0 {
			index = i
		}
	}
	trace.note("tried %d keys", tried)
	if index < 0 {
		return Verdict{Reason: ReasonBadSignature, Key: -1}
	}
	v := Verdict{Reason: ReasonOK, Key: index}
	v.ID, _ = lookupJSON(m.Body, []jsonPath{{"notification", "notificationId"}})
	v.Type, _ = lookupJSON(m.Body, []jsonPath{{"metadata", "topic"}})
	if v.IDSigned = v.ID != ""; v.IDSigned {
		v.ContentHash = sha256.Sum256([]byte(v.ID))
	} else {
		v.ContentHash = sha256.Sum256(m.Body)
	}
	return v
}
