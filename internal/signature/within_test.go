package signature

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

func TestKeyWithin(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-of-32-bytes-\xff\xfe?>-0123456"
	raw := []byte(secret)
	token := Spec{Algorithm: Token, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "x-token"}}}
	hmac := func(format KeyFormat) Spec {
		return Spec{Algorithm: HMACSHA256, Key: format, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}}
	}
	b64 := base64.StdEncoding.EncodeToString
	_, whpk := ed25519Pair(7)
	for _, c := range []struct {
		name    string
		spec    Spec
		written string
		text    string
		want    bool
	}{
		{"itself", token, secret, secret, true},
		{"behind a word", token, secret, "Bearer " + secret, true},
		{"within a list", token, secret, "a=1, key=" + secret + "; b", true},
		{"hex", token, secret, "x" + hex.EncodeToString(raw), true},
		{"hex in upper case", token, secret, strings.ToUpper(hex.EncodeToString(raw)), true},
		{"base64", token, secret, b64(raw), true},
		{"base64 for URLs, without padding", token, secret, base64.RawURLEncoding.EncodeToString(raw), true},
		{"another secret", token, secret, "s3cr3t-of-32-bytes-\xff\xfe?>-0123457", false},
		{"a part of it", token, secret, secret[:len(secret)-1], false},
		{"nothing", token, secret, "", false},
		{"an HMAC key", hmac(KeyText), secret, "x " + secret, true},
		{"a key in hex, as it is written", hmac(KeyHex), strings.ToUpper(hex.EncodeToString(raw)), strings.ToUpper(hex.EncodeToString(raw)), true},
		{"a key in hex, its bytes in base64", hmac(KeyHex), hex.EncodeToString(raw), b64(raw), true},
		{"a key in base64, as it is written", hmac(KeyBase64), b64(raw), b64(raw), true},
		{"a key in base64, its bytes", hmac(KeyBase64), b64(raw), secret, true},
		{"whsec_ as it is written", hmac(KeyWhsec), "whsec_" + b64(raw), "whsec_" + b64(raw), true},
		{"whsec_ in base64 once more", hmac(KeyWhsec), "whsec_" + b64(raw), b64([]byte("whsec_" + b64(raw))), true},
		{"a key that is hashed, as it is written", hmac(KeySHA1), secret, secret, true},
		{"user and password", Spec{Algorithm: Basic}, "user:a long password", "Basic " + b64([]byte("user:a long password")), true},
		{"the password alone", Spec{Algorithm: Basic}, "user:a long password", "x=a long password", true},
		{"the user alone", Spec{Algorithm: Basic}, "user:a long password", "user", false},
		// A short secret is a word that turns up elsewhere; only where it stands alone is it one.
		{"a short one", token, "push", "push", true},
		{"a short one behind a word", token, "push", "Bearer push", true},
		{"a short one in base64", token, "push", "Basic " + b64([]byte("push")), true},
		{"a short one in hex", token, "push", hex.EncodeToString([]byte("push")), true},
		{"a short one within a word", token, "push", "pushed", false},
		{"a public key is none", Spec{Algorithm: Ed25519, Key: KeyWhsec, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}}, whpk, whpk, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := parseKeys(t, compileTest(t, c.spec), c.written)[0]
			if got := k.Within(c.text); got != c.want {
				t.Errorf("Within(%q) = %t, want %t", c.text, got, c.want)
			}
		})
	}
	if (Key{}).Within("") {
		t.Error("the zero Key is within nothing")
	}
}

// In base64 a secret looks different by where it begins in what was encoded, and by its length.
func TestKeyWithinBase64AtAnyOffset(t *testing.T) {
	t.Parallel()
	v := compileTest(t, Spec{Algorithm: Token, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "x-token"}}})
	for length := leastWithin; length < leastWithin+6; length++ {
		secret := "0123456789abcdef"[:length]
		k := parseKeys(t, v, secret)[0]
		for before := range 7 {
			for behind := range 7 {
				plain := strings.Repeat("<", before) + secret + strings.Repeat("~", behind)
				for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
					if text := e.EncodeToString([]byte(plain)); !k.Within(text) {
						t.Errorf("%d bytes, %d before and %d behind: not found in %s", length, before, behind, text)
					}
				}
			}
		}
	}
}

func BenchmarkKeyWithin(b *testing.B) {
	v := provider(b, "github").Verifier()
	k := parseKeys(b, v, testSecret)[0]
	for _, n := range []int{16, 71, 500} {
		text := strings.Repeat("0123456789abcdef", n/16+1)[:n]
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = k.Within(text)
			}
		})
	}
}
