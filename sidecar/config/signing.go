package config

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// Lengths of a key of Standard Webhooks, in bytes (specification, "Signature scheme").
const (
	minSigningKey = 24
	maxSigningKey = 64
)

// signingKeys reads the secrets at path+".secrets" and makes keys of them that sign under Standard Webhooks. before holds
// the secrets of other endpoints and whose they are; those of this one are added.
func (l *loader) signingKeys(path, owner string, list []*configv1.Secret, before map[string]string) []signature.Key {
	if len(list) == 0 {
		l.errorf(path+".secrets", "%s: a secret is required; write secrets: [{file: /run/secrets/…}] (`sidehook secret new` makes one)", owner)
		return nil
	}
	provider, ok := signature.ProviderByName("standard-webhooks")
	if !ok {
		l.errorf(path, "%s: the scheme of Standard Webhooks is not in this binary", owner)
		return nil
	}
	var keys []signature.Key
	own := map[string]int{}
	for i, s := range list {
		at := fmt.Sprintf("%s.secrets[%d]", path, i)
		text, ok := l.secret(at, owner, s)
		if !ok {
			continue
		}
		value := string(text.Bytes())
		if j, twice := own[value]; twice {
			l.warnf(at, "%s: is the same secret as secrets[%d]", owner, j)
		} else if other, taken := before[value]; taken && other != owner {
			l.warnf(at, "%s: is also a secret of %s, whose receiver can forge events for this one; every endpoint has its own", owner, other)
		}
		own[value], before[value] = i, owner
		key, err := signingKey(provider.Verifier(), value)
		if err != nil {
			l.errorf(at, "%s: %v", owner, err)
			continue
		}
		if s.GetUntil() != nil {
			key.Until = s.GetUntil().AsTime()
		}
		keys = append(keys, key)
	}
	l.signingUntils(path, owner, list)
	return keys
}

// signingKey parses a secret and holds it to what the specification says of keys.
func signingKey(v *signature.Verifier, text string) (signature.Key, error) {
	key, err := v.ParseKey([]byte(text))
	if err != nil {
		return signature.Key{}, err
	}
	if _, err := v.Sign(&signature.Message{}, key, "msg", time.Unix(0, 0)); err != nil {
		return signature.Key{}, fmt.Errorf("the secret cannot sign, it is a public key; write the whsk_… that belongs to it")
	}
	if strings.HasPrefix(text, "whsk_") {
		return key, nil
	}
	raw := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimPrefix(text, "whsec_")), "=")
	if n := base64.RawStdEncoding.DecodedLen(len(raw)); n < minSigningKey || n > maxSigningKey {
		return signature.Key{}, fmt.Errorf("the secret is a key of %d bytes; Standard Webhooks has %d to %d (`sidehook secret new` makes one)",
			n, minSigningKey, maxSigningKey)
	}
	return key, nil
}

// signingUntils notes secrets that are past their time already, and an endpoint that has no other.
func (l *loader) signingUntils(path, owner string, list []*configv1.Secret) {
	live := 0
	for i, s := range list {
		if s.GetUntil() != nil && !l.now.Before(s.GetUntil().AsTime()) {
			l.warnf(fmt.Sprintf("%s.secrets[%d].until", path, i), "%s: this time has passed; nothing is signed with the secret any more, remove it", owner)
			continue
		}
		live++
	}
	if live == 0 {
		l.errorf(path+".secrets", "%s: no secret signs any more; write one without until", owner)
	}
}
