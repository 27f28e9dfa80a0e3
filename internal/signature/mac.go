package signature

import (
	"crypto"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"sync"
)

// hashes of the keyed algorithms.
var hashes = map[Algorithm]func() hash.Hash{
	HMACSHA1:   sha1.New,
	HMACSHA256: sha256.New,
	HMACSHA384: sha512.New384,
	HMACSHA512: sha512.New,
	SHA256:     sha256.New,
	SHA1:       sha1.New,
}

// macKey keeps keyed hash states, so that a verification neither allocates one nor hashes the key again.
// It is safe for concurrent use.
type macKey struct {
	states sync.Pool
}

// plain reports whether the algorithm is a hash of content that holds the secret, rather than a MAC.
func (a Algorithm) plain() bool { return a == SHA256 || a == SHA1 }

// bearer reports whether the algorithm asks only for who sends, and so covers nothing of a message.
func (a Algorithm) bearer() bool { return a == Token || a == Basic || a == MTLS }

// rsa reports whether the algorithm's keys are RSA's.
func (a Algorithm) rsa() bool {
	return a == RSAPKCS1SHA1 || a == RSAPKCS1SHA256 || a == RSAPKCS1SHA512 || a == RSAPSSSHA256
}

// hash returns what a public-key algorithm hashes with.
func (a Algorithm) hash() crypto.Hash {
	switch a {
	case RSAPKCS1SHA1:
		return crypto.SHA1
	case RSAPKCS1SHA512:
		return crypto.SHA512
	}
	return crypto.SHA256
}

func newMACKey(alg Algorithm, key []byte) *macKey {
	newHash := hashes[alg]
	return &macKey{states: sync.Pool{New: func() any {
		if alg.plain() {
			return newHash()
		}
		return hmac.New(newHash, key)
	}}}
}

// get returns a state in which nothing has been written; it goes back with put.
func (k *macKey) get() hash.Hash {
	h := k.states.Get().(hash.Hash)
	h.Reset()
	return h
}

func (k *macKey) put(h hash.Hash) { k.states.Put(h) }
