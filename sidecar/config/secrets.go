package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/secret"
	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// shortSecret is the length in bytes below which a secret can be guessed by trying, where the provider states none.
const shortSecret = 16

// keys reads the secrets of a source and makes keys of them.
func (l *loader) keys(path, owner string, m *configv1.Source, p preset) []signature.Key {
	if p.verifier == nil {
		if len(m.GetSecrets()) > 0 && m.GetVerify() != "" {
			l.errorf(path+".secrets", "%s: secrets and verify: none exclude each other; remove one", owner)
		}
		return nil
	}
	if len(m.GetSecrets()) == 0 {
		return l.presetKeys(path+".secrets", owner, p)
	}
	if folder(m) >= 0 {
		return nil // its secrets are the tenants'
	}
	var keys []signature.Key
	texts := map[string]int{}
	for i, s := range m.GetSecrets() {
		at := fmt.Sprintf("%s.secrets[%d]", path, i)
		if s.GetUrl() != "" {
			key, err := p.verifier.ParseKeyURL(s.GetUrl())
			if err != nil {
				l.errorf(at+".url", "%s: %v", owner, err)
				continue
			}
			key.Until = until(s)
			keys = append(keys, key)
			continue
		}
		text, ok := l.secret(at, owner, s)
		if !ok {
			continue
		}
		if j, twice := texts[string(text.Bytes())]; twice {
			l.warnf(at, "%s: is the same secret as secrets[%d]", owner, j)
		}
		texts[string(text.Bytes())] = i
		key, err := p.verifier.ParseKey(text.Bytes())
		if err != nil {
			l.errorf(at, "%s: %v", owner, err)
			continue
		}
		l.secretLength(at, owner, len(text.Bytes()), p)
		key.Until = until(s)
		keys = append(keys, key)
	}
	l.untils(path, owner, m)
	return keys
}

// until is when a secret ends; zero: never.
func until(s *configv1.Secret) time.Time {
	if s.GetUntil() == nil {
		return time.Time{}
	}
	return s.GetUntil().AsTime()
}

func (l *loader) secretLength(at, owner string, n int, p preset) {
	switch {
	case p.minSecret > 0 && n < p.minSecret:
		l.errorf(at, "%s: %v", owner, p.tooShort(n))
	case p.minSecret == 0 && n < shortSecret:
		l.warnf(at, "%s: the secret has fewer than %d characters and can be guessed by trying", owner, shortSecret)
	}
}

// tooShort is what is wrong with a secret of n bytes.
func (p preset) tooShort(n int) error {
	return fmt.Errorf("the secret has %d characters; those of %s have at least %d: is it whole, and the right one?", n, p.name, p.minSecret)
}

// untils notes secrets that are past their time already.
func (l *loader) untils(path, owner string, m *configv1.Source) {
	live := 0
	for i, s := range m.GetSecrets() {
		if s.GetUntil() != nil && !l.now.Before(s.GetUntil().AsTime()) {
			l.warnf(fmt.Sprintf("%s.secrets[%d].until", path, i), "%s: this time has passed; the secret is not accepted any more, remove it", owner)
			continue
		}
		live++
	}
	if live == 0 {
		l.warnf(path+".secrets", "%s: no secret is accepted any more, so every request is refused", owner)
	}
}

// secret reads the secret at path for owner, which is named in messages. The second result is false if there is none
// to go on with.
func (l *loader) secret(path, owner string, m *configv1.Secret) (secret.Secret, bool) {
	var from secret.Source
	switch s := m.GetSource().(type) {
	case *configv1.Secret_File:
		if !filepath.IsAbs(s.File) {
			l.errorf(path+".file", "%s: write an absolute path", owner)
			return secret.Secret{}, false
		}
		from.File = s.File
		if !l.withoutSecrets {
			l.saw(s.File)
		}
	case *configv1.Secret_Env:
		if strings.ContainsAny(s.Env, "= $") {
			l.errorf(path+".env", "%s: write the name of a variable alone, without $ or =", owner)
			return secret.Secret{}, false
		}
		from.Env = s.Env
	case *configv1.Secret_Value:
		from.Value = secret.New([]byte(s.Value))
		l.warnf(path+".value", "%s: the secret stands in the configuration, where every reader of it sees it; "+
			"outside tests write {file: …} or {env: …}", owner)
	case *configv1.Secret_Folder:
		l.errorf(path+".folder", "%s: is for a source whose match.path has {tenant}; write {file: …}", owner)
		return secret.Secret{}, false
	case *configv1.Secret_Url:
		l.errorf(path+".url", "%s: is for the secrets of a source whose sender publishes its keys; write one of file, env and value", owner)
		return secret.Secret{}, false
	default:
		return secret.Secret{}, false // the schema's rule has said so
	}
	if l.withoutSecrets {
		return secret.Secret{}, false
	}
	s, err := from.Load()
	if errors.Is(err, secret.ErrUnset) {
		// The name is not repeated: it may be the secret itself, in the wrong field.
		l.errorf(path+".env", "%s: the environment has no variable of this name", owner)
		return secret.Secret{}, false
	}
	if err != nil {
		l.errorf(path, "%s: %v", owner, err)
		return secret.Secret{}, false
	}
	return s, true
}

// token reads a secret that callers show as it is.
func (l *loader) token(path, owner string, m *configv1.Secret) secret.Secret {
	if m.GetUntil() != nil {
		l.errorf(path+".until", "is for the secrets of a source; remove it")
	}
	s, ok := l.secret(path, owner, m)
	if ok && len(s.Bytes()) < shortSecret {
		l.warnf(path, "%s: the token has fewer than %d characters and can be guessed by trying", owner, shortSecret)
	}
	return s
}
