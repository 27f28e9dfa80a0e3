package config

import (
	"strings"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// What ends a secret's file, and often nobody sees (stripe-node#1980 and many more). Never a silent mismatch: what is
// taken verifies, what is not taken is refused with the source's name.
func TestSecretFileEndings(t *testing.T) {
	t.Parallel()
	const secret = "whsec_6d2b7f1e0a9c4835"
	tests := []struct {
		name, content string
		refused       string // empty: taken as secret
	}{
		{"nothing", secret, ""},
		{"newline", secret + "\n", ""},
		{"newline of Windows", secret + "\r\n", ""},
		{"blank", secret + " ", "white space"},
		{"two newlines", secret + "\n\n", "white space"},
		{"blank and newline", secret + " \n", "white space"},
		{"newline in front", "\n" + secret, "white space"},
		{"empty", "", "empty"},
		{"newline only", "\n", "empty"},
		{"blanks only", " \t\n", "empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			key := writeFile(t, dir, "key", tt.content)
			c, err := Load(writeFile(t, dir, "sidehook.yaml", oneSource("/s", key)))
			if tt.refused == "" {
				if err != nil {
					t.Fatal(err)
				}
				if !accepts(t, c, secret) || accepts(t, c, secret+"\n") {
					t.Error("the secret is not the one in the file")
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range []string{"sidehook.yaml:5:", `source "a"`, key, tt.refused} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error says nothing of %q: %v", part, err)
				}
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error repeats the secret: %v", err)
			}
		})
	}
}

// One URL, two endpoints, two secrets (stripe_event#98): both count, and it is told which one did.
func TestTwoSecrets(t *testing.T) {
	t.Parallel()
	const a, b, other = "the-secret-of-the-account", "the-secret-of-connect", "the-secret-of-somebody-else"
	dir := t.TempDir()
	c, err := Load(writeFile(t, dir, "sidehook.yaml", oneSource("/s", writeFile(t, dir, "a", a), writeFile(t, dir, "b", b))))
	if err != nil {
		t.Fatal(err)
	}
	source := c.Gate.Sources[0]
	for _, tt := range []struct {
		secret string
		reason signature.Reason
		key    int
	}{{a, signature.ReasonOK, 0}, {b, signature.ReasonOK, 1}, {other, signature.ReasonBadSignature, -1}} {
		m := signedWith(tt.secret)
		v := source.Verifier.Verify(&m, source.Keys, time.Now(), source.Tolerance)
		if v.Reason != tt.reason || v.Key != tt.key {
			t.Errorf("signed with %s: reason %v by key %d, want %v by key %d", tt.secret, v.Reason, v.Key, tt.reason, tt.key)
		}
	}
}

// A command that only looks at routes runs where the secrets are not.
func TestWithoutSecrets(t *testing.T) {
	t.Parallel()
	c := mustParse(t, oneSource("/s", "/nowhere/key"), WithoutSecrets())
	if len(c.Gate.Sources) != 1 || len(c.Gate.Sources[0].Keys) != 0 || c.Gate.Table != nil || len(c.Files) != 0 {
		t.Errorf("Gate = %+v, Files %v", c.Gate, c.Files)
	}
	if _, err := Parse("f", []byte(oneSource("/s", "/nowhere/key"))); err == nil {
		t.Error("a missing secret is accepted")
	}
}
