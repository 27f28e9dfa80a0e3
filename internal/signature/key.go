package signature

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Errors of ParseKey. They never hold any part of the secret.
var (
	ErrKeyEmpty = errors.New("secret is empty")
	ErrKeySpace = errors.New("secret begins or ends with white space")
	ErrKeyKind  = errors.New("secret is of the wrong kind")
	ErrKeyForm  = errors.New("secret is malformed")
)

// Key is a parsed secret or public key. It never prints itself and is safe for concurrent use.
// The zero Key matches nothing.
type Key struct {
	// Until is when the key stops being accepted; zero: never. Verify ignores keys past it.
	Until time.Time
	m     *material
}

// kind binds a key to the schemes it was made for: a key of one kind is never used under another.
type kind struct {
	algorithm Algorithm
	format    KeyFormat
}

func (k kind) symmetric() bool {
	switch k.algorithm {
	case Ed25519, ECDSAP256, RSAPKCS1SHA1, RSAPKCS1SHA256, RSAPKCS1SHA512, RSAPSSSHA256, MTLS:
		return false
	}
	return true
}

const redacted = "[redacted]"

// String returns "[redacted]".
func (k Key) String() string { return redacted }

// GoString returns "[redacted]".
func (k Key) GoString() string { return redacted }

// Format writes "[redacted]" under every verb.
func (k Key) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redacted) }

// MarshalText returns "[redacted]".
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]".
func (k Key) LogValue() slog.Value { return slog.StringValue(redacted) }

// Ed25519Public returns the public key of an Ed25519 key or pair. It reports false for every other key.
func (k Key) Ed25519Public() (ed25519.PublicKey, bool) {
	if k.m == nil || len(k.m.public) != 1 {
		return nil, false
	}
	public, ok := k.m.public[0].(ed25519.PublicKey)
	return public, ok
}

// live reports whether the key may be used at now.
func (k Key) live(now time.Time) bool {
	return k.m != nil && (k.Until.IsZero() || now.Before(k.Until))
}

// ParseKey reads a secret as it was configured, for the schemes of v. Where they want keys of several kinds the
// secret's own prefix decides. It returns ErrKeyEmpty, ErrKeySpace, ErrKeyKind or ErrKeyForm, wrapped with what to do.
// The caller has dropped the final newline of a file.
func (v *Verifier) ParseKey(raw []byte) (Key, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return Key{}, ErrKeyEmpty
	}
	if err := v.refuseWrong(string(raw)); err != nil {
		return Key{}, err
	}
	k, err := v.kindOf(string(raw))
	if err != nil {
		return Key{}, err
	}
	if k.format != KeyPEM && k.format != KeyJWKS && k.format != keyX5C && hasOuterSpace(string(raw)) {
		return Key{}, fmt.Errorf("%w; remove it", ErrKeySpace)
	}
	m, err := parseMaterial(k, raw)
	if err != nil {
		return Key{}, err
	}
	return Key{m: m}, nil
}

// hasOuterSpace also looks for a byte order mark, which editors put in front, and other invisible characters.
func hasOuterSpace(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	for _, r := range []rune{first, last} {
		if unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) || unicode.IsControl(r) {
			return true
		}
	}
	return false
}

// refuseWrong refuses what is certainly another thing than a webhook secret.
func (v *Verifier) refuseWrong(s string) error {
	s = strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(s, "v1,"); ok && hasWhsecPrefix(rest) {
		return fmt.Errorf("%w: leave out the v1, before whsec_", ErrKeyKind)
	}
	for _, w := range v.wrongSecrets {
		if strings.HasPrefix(s, w.Prefix) {
			return fmt.Errorf("%w: %s… is %s", ErrKeyKind, w.Prefix, w.What)
		}
	}
	if hasWhsecPrefix(s) && strings.IndexByte(s, '_') == len(s)-1 {
		return fmt.Errorf("%w: the prefix stands alone", ErrKeyEmpty)
	}
	return nil
}

func hasWhsecPrefix(s string) bool {
	return strings.HasPrefix(s, "whsec_") || strings.HasPrefix(s, "whpk_") || strings.HasPrefix(s, "whsk_")
}

// kindOf picks the kind of key that s is meant to be.
func (v *Verifier) kindOf(s string) (kind, error) {
	if hasWhsecPrefix(s) {
		for _, k := range v.kinds {
			if k.format == KeyWhsec && k.symmetric() == strings.HasPrefix(s, "whsec_") {
				return k, nil
			}
		}
	}
	// Among other formats only one may be without a prefix of its own; Compile has seen to that.
	for _, k := range v.kinds {
		if k.format != KeyWhsec {
			return k, nil
		}
	}
	for _, k := range v.kinds {
		if k.symmetric() && !hasWhsecPrefix(s) {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("%w: %s wants %s", ErrKeyKind, v.kinds[0].algorithm, whsecWant(v.kinds))
}

func whsecWant(kinds []kind) string {
	var want []string
	for _, k := range kinds {
		if k.symmetric() {
			want = append(want, "whsec_…")
		} else {
			want = append(want, "whpk_… or whsk_…")
		}
	}
	return strings.Join(want, " or ")
}
