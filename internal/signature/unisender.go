package signature

import (
	"bytes"
	"crypto/md5" // what Unisender Go writes
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"time"
)

// unisenderScheme is that of Unisender Go: the body holds the MD5 of itself with the API key in the place of that MD5.
// Whoever finds two bodies with one MD5 beforehand can swap them; a forger without the key cannot make any.
type unisenderScheme struct{}

// unisenderKind is the kind of the key: the API key.
var unisenderKind = kind{algorithm: "UNISENDER", format: KeyText}

func (unisenderScheme) keyKind() kind { return unisenderKind }

func (unisenderScheme) needsURL() bool  { return false }
func (unisenderScheme) signsTime() bool { return false }
func (unisenderScheme) hasType() bool   { return true }

// String describes the scheme as the one of a Spec is described.
func (unisenderScheme) String() string {
	return "MD5 of the body with the API key (key TEXT) in json auth"
}

func (unisenderScheme) verify(m *Message, keys []Key, now time.Time, _ time.Duration, trace *Explanation) Verdict {
	auth, ok := lookupJSON(m.Body, []jsonPath{{"auth"}})
	if !ok {
		trace.note("json auth is missing")
		return Verdict{Reason: ReasonMissingSignature, Key: -1}
	}
	want, err := hex.DecodeString(auth)
	if err != nil || len(want) != md5.Size || !namedOnce(m.Body, "auth") || bytes.Count(m.Body, []byte(auth)) != 1 {
		trace.note("json auth is no MD5 in hex, or stands in the body more than once")
		return Verdict{Reason: ReasonMalformedSignature, Key: -1}
	}
	before, after, _ := bytes.Cut(m.Body, []byte(auth))
	found, tried := -1, 0
	for i := range keys {
		k := &keys[i]
		if !k.live(now) || k.m.kind != unisenderKind || tried == maxKeys {
			continue
		}
		tried++
		h := md5.New()
		for _, part := range [][]byte{before, k.m.text, after} {
			h.Write(part)
		}
		if subtle.ConstantTimeCompare(h.Sum(nil), want) == 1 && found < 0 {
			found = i
		}
	}
	trace.note("tried %d keys", tried)
	if found < 0 {
		return Verdict{Reason: ReasonBadSignature, Key: -1}
	}
	v := Verdict{Reason: ReasonOK, Key: found, ContentHash: sha256.Sum256(m.Body)}
	v.ID, v.IDSigned = "sha256:"+encode(v.ContentHash[:], Hex), true
	v.ContentHash = sha256.Sum256([]byte(v.ID))
	v.Type, _ = lookupJSON(m.Body, []jsonPath{{"events_by_user", "0", "events", "0", "event_name"}})
	return v
}
