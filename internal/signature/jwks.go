package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
)

// maxJWKs bounds the keys of a set: each costs a public-key check for a signature.
const maxJWKs = 8

// jwk is a public key of RFC 7517; other members are ignored, as the RFC asks.
type jwk struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	Use string `json:"use"`
	Alg string `json:"alg"`
	Kid string `json:"kid"`
	X   string `json:"x"`
	Y   string `json:"y"`
	N   string `json:"n"`
	E   string `json:"e"`
	D   string `json:"d"`
}

// parseJWKS returns the keys of a JWK set, or the one JWK, that suit the algorithm.
func parseJWKS(raw []byte, alg Algorithm) ([]crypto.PublicKey, error) {
	keys, err := readJWKS(raw)
	if err != nil {
		return nil, err
	}
	var public []crypto.PublicKey
	for _, k := range keys {
		if fits(k.public, alg) == nil {
			public = append(public, k.public)
		}
	}
	if len(public) == 0 {
		return nil, fmt.Errorf("%w: the JWK set has no key for %s", ErrKeyKind, alg)
	}
	if len(public) > maxJWKs {
		return nil, fmt.Errorf("%w: the JWK set has %d keys for %s; %d are the most", ErrKeyForm, len(public), alg, maxJWKs)
	}
	return public, nil
}

// readJWKS returns the keys of a JWK set, or the one JWK, of types that a scheme could use.
func readJWKS(raw []byte) ([]publishedKey, error) {
	var set struct {
		Keys []jwk `json:"keys"`
		jwk
	}
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, fmt.Errorf("%w: no JWK set", ErrKeyForm)
	}
	keys := set.Keys
	if keys == nil {
		keys = []jwk{set.jwk}
	}
	var public []publishedKey
	for i, k := range keys {
		if k.D != "" {
			return nil, fmt.Errorf("%w: keys[%d] of the JWK set is a private key", ErrKeyKind, i)
		}
		if k.Use == "enc" {
			continue
		}
		p, err := k.public()
		if err != nil {
			return nil, fmt.Errorf("%w: keys[%d] of the JWK set", err, i)
		}
		if p != nil {
			public = append(public, publishedKey{id: k.Kid, alg: k.Alg, public: p})
		}
	}
	return public, nil
}

// public returns nil for a type that no scheme uses.
func (k jwk) public() (crypto.PublicKey, error) {
	part := func(s string) []byte {
		b, err := base64.RawURLEncoding.Strict().DecodeString(s)
		if err != nil {
			return nil
		}
		return b
	}
	switch k.Kty + " " + k.Crv {
	case "OKP Ed25519":
		x := part(k.X)
		if len(x) != ed25519.PublicKeySize {
			return nil, ErrKeyForm
		}
		return ed25519.PublicKey(x), nil
	case "EC P-256":
		x, y := part(k.X), part(k.Y)
		if len(x) != 32 || len(y) != 32 {
			return nil, ErrKeyForm
		}
		p, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
		if err != nil {
			return nil, ErrKeyForm
		}
		return p, nil
	case "RSA ":
		n, e := new(big.Int).SetBytes(part(k.N)), new(big.Int).SetBytes(part(k.E))
		if n.Sign() == 0 || e.Sign() == 0 || e.BitLen() > 31 {
			return nil, ErrKeyForm
		}
		return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
	}
	return nil, nil
}
