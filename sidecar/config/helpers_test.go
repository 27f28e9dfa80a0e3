package config

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidehook/sidehook/internal/signature"
)

// strongSecret is long enough for every provider that states no length.
const strongSecret = "0123456789abcdefghijklmnopqrstuv"

// scheme is the smallest scheme of one's own, as a source has it.
const scheme = `scheme: {algorithm: HMAC_SHA256, signature: {header: X-Signature}}`

// testCA is a certificate that signs itself, made by openssl for these tests.
const testCA = `-----BEGIN CERTIFICATE-----
MIIBTDCB/6ADAgECAhRs/q0yba+xsolgc3vr6nlLSSbnHDAFBgMrZXAwGzEZMBcG
A1UEAwwQc2lkZWhvb2sgdGVzdCBDQTAgFw0yNjExMzAyMDA0MjhaGA8yMTI2MTEw
NjIwMDQyOFowGzEZMBcGA1UEAwwQc2lkZWhvb2sgdGVzdCBDQTAqMAUGAytlcAMh
AB3vJtuHOHi4ZrnxmMudGkmvS2Bu9oBhAj/2M70k05Qho1MwUTAdBgNVHQ4EFgQU
mk/PExTCi0AkSTix0KoikDHUozkwHwYDVR0jBBgwFoAUmk/PExTCi0AkSTix0Koi
kDHUozkwDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXADQQDquC6NIuOuK+8J9wtwkYAi
/3XpVRZFnLB6IIqq7EjOht6mB5ylAE5F+XvTp6eRvslh0DP5UqRcleIScpUDe78D
-----END CERTIFICATE-----
`

// writeFile writes a file into a folder of the test's and returns its path.
func writeFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// mustParse parses a configuration that has to be valid.
func mustParse(t *testing.T, text string, options ...Option) *Config {
	t.Helper()
	c, err := Parse("sidehook.yaml", []byte(text), options...)
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, text)
	}
	return c
}

// gateWith is a whole configuration with these sources, written as items of a list that is not indented.
func gateWith(sources string) string {
	return "store: {bolt: {path: /var/lib/sidehook}}\n" +
		"extauthz:\n  open: [{path_prefix: /}]\n  sources:\n" + indent(sources)
}

func indent(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return "  " + strings.Join(lines, "\n  ") + "\n"
}

// texts are the messages of findings, without their place.
func texts(fs []Finding) []string {
	var all []string
	for _, f := range fs {
		all = append(all, f.Path+": "+f.Message)
	}
	return all
}

// signedWith is a message that was signed with secret under the scheme above, by nobody's code but the standard library's.
func signedWith(secret string) signature.Message {
	body := []byte(`{"id":"evt_1"}`)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return signature.Message{
		Method: "POST", Target: "/a", Body: body,
		Header: []signature.Field{{Name: "x-signature", Value: hex.EncodeToString(mac.Sum(nil))}},
	}
}
