package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"
)

// minRSABits is the least modulus that is accepted: below it a signature proves nothing (NIST SP 800-131A).
const minRSABits = 2048

// material is behind a pointer so that no formatting of a struct that holds a Key can reach it.
type material struct {
	kind   kind
	mac    *macKey
	text   []byte   // TOKEN, BASIC, SHA256
	digest [32]byte // of text, for comparisons that do not tell its length
	// written is the secret as it was configured, where text is what was made of it.
	written []byte
	public  []crypto.PublicKey
	signer  crypto.Signer // nil for a public key
	sns     *snsKey
	url     string              // where the sender publishes the keys; then there are none here
	roots   []*x509.Certificate // of X5C and MTLS
}

func parseMaterial(k kind, raw []byte) (*material, error) {
	m := &material{kind: k}
	if k == snsKind {
		key, err := parseSNSKey(raw)
		if err != nil {
			return nil, err
		}
		m.sns = key
		return m, nil
	}
	if k.algorithm == MTLS || k.format == keyX5C {
		var err error
		m.roots, err = parseCertificates(raw, maxRoots)
		return m, err
	}
	if k.symmetric() {
		key, err := symmetricKey(k.format, raw)
		if err != nil {
			return nil, err
		}
		if k.format != KeyText {
			m.written = bytes.Clone(raw)
		}
		switch k.algorithm {
		case Token, Basic:
			if k.algorithm == Basic && bytes.IndexByte(key, ':') < 1 {
				return nil, fmt.Errorf("%w: BASIC wants user:password", ErrKeyForm)
			}
			m.text, m.digest = key, sha256.Sum256(key)
		default:
			m.text, m.mac = key, newMACKey(k.algorithm, key)
		}
		return m, nil
	}
	var err error
	switch k.format {
	case KeyPEM:
		err = m.parsePEM(raw)
	case KeyJWKS:
		if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("-----BEGIN ")) {
			err = m.parsePEM(raw)
		} else {
			m.public, err = parseJWKS(raw, k.algorithm)
		}
	default:
		err = m.parseRaw(k, raw)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range m.public {
		if err := fits(p, k.algorithm); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func symmetricKey(f KeyFormat, raw []byte) ([]byte, error) {
	var (
		key []byte
		err error
	)
	switch f {
	case KeyBase64:
		key, err = decodeKeyBase64(string(raw))
	case KeyWhsec:
		key, err = decodeKeyBase64(strings.TrimPrefix(string(raw), "whsec_"))
	case KeyHex:
		if key, err = hex.DecodeString(string(raw)); err != nil {
			err = fmt.Errorf("%w: no hex", ErrKeyForm)
		}
	case KeySHA1:
		sum := sha1.Sum(raw)
		key = sum[:]
	default:
		key = bytes.Clone(raw)
	}
	if err == nil && len(key) == 0 {
		err = ErrKeyEmpty
	}
	return key, err
}

// decodeKeyBase64 takes either alphabet, with or without padding, for keys come by hand and have no replay to fear.
func decodeKeyBase64(s string) ([]byte, error) {
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	if strings.ContainsAny(s, "\r\n") {
		return nil, fmt.Errorf("%w: no base64", ErrKeyForm)
	}
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		// The library's error would tell characters of the secret.
		return nil, fmt.Errorf("%w: no base64", ErrKeyForm)
	}
	return b, nil
}

// parseRaw reads keys written as one line: raw Ed25519 bytes, or DER for ECDSA and RSA.
func (m *material) parseRaw(k kind, raw []byte) error {
	text := string(raw)
	var (
		b   []byte
		err error
	)
	switch k.format {
	case KeyHex:
		if b, err = hex.DecodeString(text); err != nil {
			return fmt.Errorf("%w: no hex", ErrKeyForm)
		}
	case KeyWhsec:
		public := strings.HasPrefix(text, "whpk_")
		if b, err = decodeKeyBase64(text[len("whpk_"):]); err != nil {
			return err
		}
		if public != (len(b) == ed25519.PublicKeySize) {
			return fmt.Errorf("%w: whpk_ holds %d bytes, whsk_ %d", ErrKeyForm, ed25519.PublicKeySize, ed25519.PrivateKeySize)
		}
	default:
		if b, err = decodeKeyBase64(text); err != nil {
			return err
		}
	}
	if k.algorithm != Ed25519 {
		return m.parseDER(b)
	}
	switch len(b) {
	case ed25519.PublicKeySize:
		m.public = []crypto.PublicKey{ed25519.PublicKey(b)}
	case ed25519.PrivateKeySize:
		private := ed25519.NewKeyFromSeed(b[:ed25519.SeedSize])
		if !bytes.Equal(private[ed25519.SeedSize:], b[ed25519.SeedSize:]) {
			return fmt.Errorf("%w: the halves of the private key do not fit", ErrKeyForm)
		}
		m.setSigner(private)
	default:
		return fmt.Errorf("%w: an Ed25519 key has %d bytes (public) or %d (private)", ErrKeyForm, ed25519.PublicKeySize, ed25519.PrivateKeySize)
	}
	return nil
}

func (m *material) setSigner(s crypto.Signer) {
	m.signer, m.public = s, []crypto.PublicKey{s.Public()}
}

func (m *material) parsePEM(raw []byte) error {
	block, rest := pem.Decode(brokenPEM(raw))
	if block == nil {
		return fmt.Errorf("%w: no PEM", ErrKeyForm)
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return fmt.Errorf("%w: more than one PEM block; list each key on its own", ErrKeyForm)
	}
	return m.parseDER(block.Bytes)
}

// brokenPEM puts the line breaks in that some APIs leave out between the PEM of a public key and its first and last line.
func brokenPEM(raw []byte) []byte {
	const first, last = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
	text, ok := strings.CutPrefix(strings.TrimSpace(string(raw)), first)
	if text, whole := strings.CutSuffix(text, last); ok && whole && !strings.ContainsAny(text, "\r\n-") {
		return []byte(first + "\n" + text + "\n" + last + "\n")
	}
	return raw
}

// parseDER reads a PKIX public key, an X.509 certificate's key or a PKCS #8, PKCS #1 or SEC 1 private key.
func (m *material) parseDER(der []byte) error {
	if p, err := x509.ParsePKIXPublicKey(der); err == nil {
		m.public = []crypto.PublicKey{p}
		return nil
	}
	if p, err := x509.ParsePKCS1PublicKey(der); err == nil {
		m.public = []crypto.PublicKey{p}
		return nil
	}
	if s, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		if signer, ok := s.(crypto.Signer); ok {
			m.setSigner(signer)
			return nil
		}
	}
	if s, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		m.setSigner(s)
		return nil
	}
	if s, err := x509.ParseECPrivateKey(der); err == nil {
		m.setSigner(s)
		return nil
	}
	if c, err := x509.ParseCertificate(der); err == nil {
		m.public = []crypto.PublicKey{c.PublicKey}
		return nil
	}
	return fmt.Errorf("%w: neither a public key (PKIX) nor a private one (PKCS #8)", ErrKeyForm)
}

// fits reports whether a public key is of the algorithm's type and strong enough.
func fits(p crypto.PublicKey, alg Algorithm) error {
	ok := false
	switch p := p.(type) {
	case ed25519.PublicKey:
		ok = alg == Ed25519
	case *ecdsa.PublicKey:
		ok = alg == ECDSAP256 && p.Curve == elliptic.P256()
	case *rsa.PublicKey:
		ok = alg.rsa()
		if ok && p.N.BitLen() < minRSABits {
			return fmt.Errorf("%w: an RSA key of %d bits; %d are the least", ErrKeyForm, p.N.BitLen(), minRSABits)
		}
	}
	if !ok {
		return fmt.Errorf("%w: no key for %s", ErrKeyKind, alg)
	}
	return nil
}
