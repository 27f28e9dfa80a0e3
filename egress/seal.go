package egress

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/sidehook/sidehook/internal/secret"
)

// MinSealKeyBytes is the least length of a seal key, which guards every secret in the store: HKDF spreads what is random
// in it and adds nothing.
const MinSealKeyBytes = 32

// Errors of opening what a Sealer has sealed. None of their texts holds a byte of it.
var (
	// ErrNoSealKey: none of the seal keys at hand is the one that it was sealed under.
	ErrNoSealKey = errors.New("sealed under a key that store.seal_key does not hold")
	// ErrSealBroken: it was changed since it was sealed, or stands in another place.
	ErrSealBroken = errors.New("what was sealed has been changed or moved")
)

// The purposes that separate the values drawn from one seal key. They are part of the format on disk.
const (
	sealKeyPurpose = "sidehook seal v1: AES-256-GCM"
	sealIDPurpose  = "sidehook seal v1: key id"
)

const (
	sealVersion = 1
	sealIDBytes = 8
)

// Sealer keeps secrets unreadable in the store: AES-256-GCM under keys that HKDF-SHA256 draws from store.seal_key. What
// is sealed is bound to the place where it lies, and opens in no other. Format: version (1), id of the key (8), nonce
// (12), ciphertext and tag.
//
// A Sealer is immutable and safe for concurrent use; it never prints itself. The nil Sealer opens nothing.
type Sealer struct {
	keys []sealKey
}

type sealKey struct {
	id   [sealIDBytes]byte
	aead cipher.AEAD
}

// NewSealer returns a Sealer that seals under the first of keys and opens under all of them, so that a key can be
// replaced: put the new one first, and take the old one out once nothing is sealed under it. Without keys it returns nil.
func NewSealer(keys ...secret.Secret) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	s := &Sealer{}
	for i, k := range keys {
		if n := len(k.Bytes()); n < MinSealKeyBytes {
			return nil, fmt.Errorf("seal key %d: %d bytes, want at least %d", i+1, n, MinSealKeyBytes)
		}
		material, err := hkdf.Key(sha256.New, k.Bytes(), nil, sealKeyPurpose, 32)
		if err != nil {
			return nil, fmt.Errorf("seal key %d: %w", i+1, err)
		}
		id, err := hkdf.Key(sha256.New, k.Bytes(), nil, sealIDPurpose, sealIDBytes)
		if err != nil {
			return nil, fmt.Errorf("seal key %d: %w", i+1, err)
		}
		block, err := aes.NewCipher(material)
		if err != nil {
			return nil, fmt.Errorf("seal key %d: %w", i+1, err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("seal key %d: %w", i+1, err)
		}
		s.keys = append(s.keys, sealKey{id: [sealIDBytes]byte(id), aead: aead})
	}
	return s, nil
}

// Format keeps every verb from reaching the keys.
func (s *Sealer) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// seal returns plain sealed for the place that the words of where name. s is not nil.
func (s *Sealer) seal(plain []byte, where ...string) []byte {
	k := &s.keys[0]
	head := append([]byte{sealVersion}, k.id[:]...)
	return k.aead.Seal(head, nil, plain, sealPlace(head, where))
}

// open is the inverse of seal. It returns ErrNoSealKey or ErrSealBroken.
func (s *Sealer) open(sealed []byte, where ...string) ([]byte, error) {
	const headBytes = 1 + sealIDBytes
	if len(sealed) < headBytes || sealed[0] != sealVersion {
		return nil, ErrSealBroken
	}
	head := sealed[:headBytes]
	if s == nil {
		return nil, ErrNoSealKey
	}
	for i := range s.keys {
		if !bytes.Equal(s.keys[i].id[:], head[1:]) {
			continue
		}
		plain, err := s.keys[i].aead.Open(nil, nil, sealed[headBytes:], sealPlace(head, where))
		if err != nil {
			return nil, ErrSealBroken
		}
		return plain, nil
	}
	return nil, ErrNoSealKey
}

// fresh reports whether sealed was sealed under the first key. s is not nil.
func (s *Sealer) fresh(sealed []byte) bool {
	return len(sealed) > 1 && bytes.HasPrefix(sealed[1:], s.keys[0].id[:])
}

// sealPlace is the additional data that binds a seal to its place. Lengths stand before the words, so that no two places
// read alike.
func sealPlace(head []byte, where []string) []byte {
	place := bytes.Clone(head)
	for _, word := range where {
		place = binary.AppendUvarint(place, uint64(len(word)))
		place = append(place, word...)
	}
	return place
}
