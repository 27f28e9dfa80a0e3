package egress

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sidehook/sidehook/internal/secret"
)

const (
	sealKeyA = "seal-key-a-0123456789abcdef0123456789abcdef"
	sealKeyB = "seal-key-b-0123456789abcdef0123456789abcdef"
)

func testSealer(t *testing.T, keys ...string) *Sealer {
	t.Helper()
	var secrets []secret.Secret
	for _, k := range keys {
		secrets = append(secrets, secret.New([]byte(k)))
	}
	s, err := NewSealer(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSeal(t *testing.T) {
	t.Parallel()
	const plain = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	a, b := testSealer(t, sealKeyA), testSealer(t, sealKeyB)
	sealed := a.seal([]byte(plain), "acme", "key", "k1")
	if bytes.Contains(sealed, []byte(plain[6:12])) {
		t.Fatal("the sealed form holds the secret")
	}
	if bytes.Equal(sealed, a.seal([]byte(plain), "acme", "key", "k1")) {
		t.Error("sealed twice it is the same: the nonce is not random")
	}
	for _, tc := range []struct {
		name   string
		opener *Sealer
		sealed []byte
		where  []string
		want   error
	}{
		{"as sealed", a, sealed, []string{"acme", "key", "k1"}, nil},
		{"the key is the second of two", testSealer(t, sealKeyB, sealKeyA), sealed, []string{"acme", "key", "k1"}, nil},
		{"another key", b, sealed, []string{"acme", "key", "k1"}, ErrNoSealKey},
		{"no key", nil, sealed, []string{"acme", "key", "k1"}, ErrNoSealKey},
		{"moved to another endpoint", a, sealed, []string{"evil", "key", "k1"}, ErrSealBroken},
		{"moved to another secret", a, sealed, []string{"acme", "key", "k2"}, ErrSealBroken},
		// The words of the place join to the same text: only their lengths tell them apart.
		{"words cut otherwise", a, sealed, []string{"acmek", "ey", "k1"}, ErrSealBroken},
		{"place cut short", a, sealed, []string{"acme", "key"}, ErrSealBroken},
		{"empty", a, nil, []string{"acme", "key", "k1"}, ErrSealBroken},
		{"head alone", a, sealed[:9], []string{"acme", "key", "k1"}, ErrSealBroken},
		{"cut short", a, sealed[:len(sealed)-1], []string{"acme", "key", "k1"}, ErrSealBroken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.opener.open(tc.sealed, tc.where...)
			if !errors.Is(err, tc.want) {
				t.Fatalf("open: %v, want %v", err, tc.want)
			}
			if tc.want == nil && string(got) != plain {
				t.Errorf("open = %q, want what was sealed", got)
			}
		})
	}
	t.Run("every byte counts", func(t *testing.T) {
		t.Parallel()
		for i := range sealed {
			changed := bytes.Clone(sealed)
			changed[i] ^= 1
			if got, err := a.open(changed, "acme", "key", "k1"); err == nil {
				t.Errorf("with byte %d flipped it opens as %q", i, got)
			}
		}
	})
}

func TestSealFresh(t *testing.T) {
	t.Parallel()
	sealed := testSealer(t, sealKeyA).seal([]byte("x"), "p")
	if !testSealer(t, sealKeyA, sealKeyB).fresh(sealed) {
		t.Error("sealed under the first key, and not fresh")
	}
	if testSealer(t, sealKeyB, sealKeyA).fresh(sealed) {
		t.Error("sealed under the second key, and fresh")
	}
}

func TestNewSealer(t *testing.T) {
	t.Parallel()
	if s, err := NewSealer(); s != nil || err != nil {
		t.Errorf("NewSealer() = %v, %v; want none", s, err)
	}
	short := strings.Repeat("k", MinSealKeyBytes-1)
	_, err := NewSealer(secret.New([]byte(sealKeyA)), secret.New([]byte(short)))
	if err == nil || strings.Contains(err.Error(), short) {
		t.Errorf("a short key: %v, want an error without it", err)
	}
}

func TestSealerNeverPrints(t *testing.T) {
	t.Parallel()
	s := testSealer(t, sealKeyA)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
		if got := fmt.Sprintf(format, s); got != "[redacted]" {
			t.Errorf("under %s: %s", format, got)
		}
	}
}
