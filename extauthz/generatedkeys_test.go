package extauthz

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"
)

// otherRSA is a key that nobody publishes.
var otherRSA = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// madeKeys are public keys, and secrets, that sign nothing of the examples, in the forms in which rows take them.
var madeKeys = sync.OnceValues(func() (map[string]string, error) {
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	prime, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	factored, err := otherRSA()
	if err != nil {
		return nil, err
	}
	made := map[string]string{
		"text":          "a secret that nobody has: 0123456789abcdef",
		"base64":        base64.StdEncoding.EncodeToString(edwards),
		"hex":           hex.EncodeToString(edwards),
		"whsec_":        "whsec_" + base64.StdEncoding.EncodeToString(edwards),
		"whpk_":         "whpk_" + base64.StdEncoding.EncodeToString(edwards),
		"user:password": "nobody:0123456789abcdef",
	}
	for name, public := range map[string]any{"Ed25519": edwards, "P-256": &prime.PublicKey, "RSA": &factored.PublicKey} {
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			return nil, err
		}
		made["base64 of "+name] = base64.StdEncoding.EncodeToString(der)
		made["PEM of "+name] = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sns.amazonaws.com"}, DNSNames: []string{"sns.amazonaws.com"},
		NotAfter: time.Unix(1<<33, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &factored.PublicKey, factored)
	if err != nil {
		return nil, err
	}
	made["certificate"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return made, nil
})

func generatedKeys(t *testing.T) map[string]string {
	t.Helper()
	made, err := madeKeys()
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// republished is a document of keys with other keys under the same names.
func republished(t *testing.T, document string) string {
	t.Helper()
	key, err := otherRSA()
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode([]byte(document)); block != nil {
		like, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		like.PublicKey, like.Issuer, like.SignatureAlgorithm = nil, like.Subject, x509.UnknownSignatureAlgorithm
		der, err := x509.CreateCertificate(rand.Reader, like, like, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	if err := json.Unmarshal([]byte(document), &set); err != nil || len(set.Keys) == 0 {
		t.Fatalf("no key in %q: %v", document, err)
	}
	for _, k := range set.Keys {
		if k["kty"] != "RSA" {
			t.Fatalf("a key of type %v: make one here", k["kty"])
		}
		k["n"] = base64.RawURLEncoding.EncodeToString(key.N.Bytes())
	}
	changed, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return string(changed)
}

// resigned is a body whose one member is a token of ES256, signed by a key that nobody knows.
func resigned(t *testing.T, body []byte) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dot := bytes.LastIndexByte(body, '.')
	first := bytes.LastIndexByte(body[:dot], '"') + 1
	sum := sha256.Sum256(body[first:dot])
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	sig := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	end := dot + 1 + bytes.IndexByte(body[dot+1:], '"')
	return slices.Concat(body[:dot+1], base64.RawURLEncoding.AppendEncode(nil, sig), body[end:])
}
