package signature

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// leastWithin is the length from which a secret is looked for within other text: a shorter one would be found where it means
// something else, and only counts where it stands alone.
const leastWithin = 8

// Within reports whether text bears the secret of k: as it is, in hex, or in base64 of either alphabet, also in the midst of
// something longer that was encoded. A public or private key is not looked for: nobody sends it.
func (k Key) Within(text string) bool {
	if k.m == nil || len(k.m.text) == 0 {
		return false
	}
	if inText(text, k.m.text) || len(k.m.written) > 0 && inText(text, k.m.written) {
		return true
	}
	if _, password, ok := bytes.Cut(k.m.text, []byte(":")); ok && k.m.kind.algorithm == Basic && len(password) > 0 {
		return inText(text, password)
	}
	return false
}

// standardBase64 writes base64 of the alphabet for URLs in the other one.
var standardBase64 = strings.NewReplacer("-", "+", "_", "/")

func inText(text string, secret []byte) bool {
	switch {
	case len(text) < len(secret):
		return false // every form is at least as long
	case len(secret) < leastWithin:
		return standsAlone(text, secret)
	case strings.Contains(text, string(secret)):
		return true
	case len(text) >= hex.EncodedLen(len(secret)) && strings.Contains(strings.ToLower(text), hex.EncodeToString(secret)):
		return true
	}
	text = standardBase64.Replace(text)
	for shift := range 3 {
		if strings.Contains(text, base64Within(secret, shift)) {
			return true
		}
	}
	return false
}

// base64Within is what base64 makes of secret, wherever it begins in what was encoded: shift bytes behind a multiple of three.
// Characters that also hold bits of what stands before or behind it are left out.
func base64Within(secret []byte, shift int) string {
	encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift, shift+len(secret)), secret...))
	if (shift+len(secret))%3 != 0 {
		encoded = encoded[:len(encoded)-1]
	}
	if shift > 0 {
		encoded = encoded[shift+1:]
	}
	return encoded
}

// standsAlone reports whether a word of text is secret, in one of its forms.
func standsAlone(text string, secret []byte) bool {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(" \t,;:=\"", r) }) {
		b64 := standardBase64.Replace(word)
		if word == string(secret) || strings.EqualFold(word, hex.EncodeToString(secret)) || b64 == base64.RawStdEncoding.EncodeToString(secret) {
			return true
		}
	}
	return strings.TrimSpace(text) == string(secret)
}
