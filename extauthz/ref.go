package extauthz

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

const (
	refVersion = 1
	// maxRefLen bounds what parseRef looks at; encodeRef stays below it for every key that the gate makes.
	maxRefLen = 1024
	// maxIDLen is the longest event id that is kept as it is; longer ones are replaced by their hash.
	maxIDLen   = 256
	hashPrefix = "sha256:"
)

// encodeRef makes the reference under which Envoy reports the end of a claim: base64url of a version byte, the token,
// and the parts of key, source and tenant with their lengths before them, the id last. It names a claim and, by the
// token, proves that its bearer saw our answer; it holds no secret of the source.
func encodeRef(key Key, token Token) string {
	const fixed = 1 + len(token) + 2*binary.MaxVarintLen16
	var space [512]byte
	b := space[:0]
	if n := fixed + len(key.Source) + len(key.Tenant) + len(key.ID); n > len(space) {
		b = make([]byte, 0, n)
	}
	b = append(b, refVersion)
	b = append(b, token[:]...)
	b = binary.AppendUvarint(b, uint64(len(key.Source)))
	b = append(b, key.Source...)
	b = binary.AppendUvarint(b, uint64(len(key.Tenant)))
	b = append(b, key.Tenant...)
	b = append(b, key.ID...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseRef reads what encodeRef made. It is false for everything else; it accepts one spelling of each reference.
func parseRef(ref string) (Key, Token, bool) {
	var token Token
	if len(ref) > maxRefLen {
		return Key{}, token, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(ref)
	if err != nil || len(b) < 1+len(token) || b[0] != refVersion {
		return Key{}, token, false
	}
	copy(token[:], b[1:])
	b = b[1+len(token):]
	var key Key
	var ok bool
	if key.Source, b, ok = cutPart(b); !ok || key.Source == "" {
		return Key{}, Token{}, false
	}
	if key.Tenant, b, ok = cutPart(b); !ok || len(b) == 0 {
		return Key{}, Token{}, false
	}
	key.ID = string(b)
	if encodeRef(key, token) != ref { // a length written longer than need be, or a line end that base64 skips
		return Key{}, Token{}, false
	}
	return key, token, true
}

// cutPart takes a part with its length before it off the front of b.
func cutPart(b []byte) (part string, rest []byte, ok bool) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return "", nil, false
	}
	b = b[used:]
	return string(b[:n]), b[n:], true
}

// keyID returns id as keys hold it: itself, or "sha256:" and the hex of its hash when it is longer than 256 bytes.
// The result never shares memory with id.
func keyID(id string) string {
	if len(id) <= maxIDLen {
		return strings.Clone(id)
	}
	return hashed(id)
}

// hashed returns "sha256:" and the hex of the hash of s.
func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hashPrefix + hex.EncodeToString(sum[:])
}
