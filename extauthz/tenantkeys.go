package extauthz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidehook/sidehook/internal/secret"
	"github.com/sidehook/sidehook/internal/signature"
)

const (
	// NextSuffix ends the name of the file with a tenant's next secret, which is accepted beside the one in force. No
	// tenant's name ends so: who holds one's next secret would be another one too.
	NextSuffix = ".next"
	// tenantPeriod is how long a tenant's files are taken to be as they were.
	tenantPeriod = time.Second
	// maxTenantsKept bounds the tenants of a source whose keys are kept. More cost a read each time that one is thrown out,
	// not more memory. Names without a file are not kept at all: strangers can make as many as they like.
	maxTenantsKept = 1 << 15
)

// TenantSecrets says where the secrets of a source's tenants are, and what they have to be like.
type TenantSecrets struct {
	// Folder holds a tenant's secret in the file of its name, and perhaps its next one in that with NextSuffix.
	Folder secret.Folder
	// Parse makes a key of a secret, or says why the source cannot take it, without a byte of it.
	Parse func(secret.Secret) (signature.Key, error)
}

// tenantKeys are the keys of a source's tenants, read on use and looked after on use. Nothing runs between requests.
// It is safe for concurrent use.
type tenantKeys struct {
	from *TenantSecrets
	// alarm is told, once for each state of the files, that a tenant's secret is not fit; kept: the one before stays in use.
	alarm func(tenant string, err error, kept bool)
	began time.Time

	mu   sync.RWMutex // covers kept
	kept map[string]*tenant
}

// tenant is what is known of one tenant. All but due is written before it is shared.
type tenant struct {
	due     atomic.Int64    // when the files are looked at again, as a time since tenantKeys.began
	keys    []signature.Key // of the file in force and, if there is one, of the next; none: not fit, and never was
	secrets []secret.Secret // that keys were made of
	prints  [2]secret.Print // of both files as they were read
	err     error           // why they are not fit; nil: they are
	read    bool            // false: handed on by another tenantKeys, to be read before it is used
}

// newTenantKeys goes on from what before, if it is of the same folder, knew: a tenant whose file is not fit any more keeps
// its last good secret through a reload.
func newTenantKeys(from *TenantSecrets, before *tenantKeys, alarm func(string, error, bool)) *tenantKeys {
	k := &tenantKeys{from: from, alarm: alarm, began: time.Now(), kept: make(map[string]*tenant)}
	if before == nil || before.from.Folder != from.Folder {
		return k
	}
	before.mu.RLock()
	defer before.mu.RUnlock()
	for name, t := range before.kept {
		// The scheme may be another one, so the keys are not handed on.
		k.kept[name] = &tenant{secrets: t.secrets, err: t.err}
	}
	return k
}

// of returns the keys of a tenant; the reason is zero, ReasonUnknownTenant or ReasonKeyUnavailable.
func (k *tenantKeys) of(name string, now time.Time) ([]signature.Key, Reason, error) {
	if !ValidTenant(name) || hasNextSuffix(name) {
		return nil, ReasonUnknownTenant, nil
	}
	k.mu.RLock()
	t := k.kept[name]
	k.mu.RUnlock()
	at := int64(now.Sub(k.began))
	if t == nil || t.mayHaveChanged(at) {
		next, err := k.look(name, t)
		if err != nil && (t == nil || len(t.keys) == 0) {
			return nil, ReasonKeyUnavailable, err
		}
		if err == nil {
			k.keep(name, t, next, at)
			t = next
		}
	}
	switch {
	case t == nil:
		return nil, ReasonUnknownTenant, nil
	case len(t.keys) == 0:
		return nil, ReasonKeyUnavailable, t.err
	default:
		return t.keys, 0, nil
	}
}

func hasNextSuffix(name string) bool {
	return len(name) >= len(NextSuffix) && name[len(name)-len(NextSuffix):] == NextSuffix
}

// mayHaveChanged reports, to one caller in a period, that it shall look at the files. The others go on with what is known.
func (t *tenant) mayHaveChanged(at int64) bool {
	due := t.due.Load()
	return !t.read || at >= due && t.due.CompareAndSwap(due, at+int64(tenantPeriod))
}

// keep puts next, nil for none, in the place of before.
func (k *tenantKeys) keep(name string, before, next *tenant, at int64) {
	if next == before {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if next == nil {
		if k.kept[name] == before {
			delete(k.kept, name)
		}
		return
	}
	next.due.Store(at + int64(tenantPeriod))
	if _, known := k.kept[name]; !known && len(k.kept) >= maxTenantsKept {
		for other := range k.kept { // any one
			delete(k.kept, other)
			break
		}
	}
	k.kept[name] = next
}

// look returns what the files say of a tenant of whom before, or nothing, is known: before itself where they are the same,
// nil where there is no file. An error is the folder's.
func (k *tenantKeys) look(name string, before *tenant) (*tenant, error) {
	names := [2]string{name, name + NextSuffix}
	switch prints, err := k.from.Folder.Stat(names[:]...); {
	case err != nil: // Load says it better
	case prints[0].Same(secret.Print{}):
		return nil, nil
	case before != nil && before.read && before.prints[0].Same(prints[0]) && before.prints[1].Same(prints[1]):
		return before, nil
	}
	t := &tenant{read: true}
	// The next one first: if it is being moved into the other's place, it is found there, and not nowhere.
	var unfit [2]error
	var found [2]secret.Secret
	for i := len(names) - 1; i >= 0; i-- {
		found[i], t.prints[i], unfit[i] = k.from.Folder.Load(names[i])
		if errors.Is(unfit[i], secret.ErrFolder) {
			k.alarm("", unfit[i], before != nil && len(before.keys) > 0)
			return nil, unfit[i]
		}
	}
	if errors.Is(unfit[0], secret.ErrNoFile) {
		return nil, nil
	}
	for i := range names {
		if i > 0 && errors.Is(unfit[i], secret.ErrNoFile) {
			continue
		}
		key, err := signature.Key{}, unfit[i]
		if err == nil {
			if key, err = k.from.Parse(found[i]); err != nil {
				err = fmt.Errorf("file %s: %w", names[i], err)
			}
		}
		if err != nil {
			t.err = err
			break
		}
		t.keys, t.secrets = append(t.keys, key), append(t.secrets, found[i])
	}
	if t.err != nil {
		k.stay(name, t, before)
	}
	return t, nil
}

// stay gives t, whose files are not fit, the keys of before. They are made anew, for the scheme may have changed.
func (k *tenantKeys) stay(name string, t, before *tenant) {
	t.keys, t.secrets = nil, nil
	told := false
	if before != nil {
		told = before.err != nil && before.err.Error() == t.err.Error()
		for _, s := range before.secrets {
			if key, err := k.from.Parse(s); err == nil {
				t.keys, t.secrets = append(t.keys, key), append(t.secrets, s)
			}
		}
	}
	if !told {
		k.alarm(name, t.err, len(t.keys) > 0)
	}
}

// bindTenants gives the sources among all the keys of their tenants. Swap calls it, under swapping.
func (s *Server) bindTenants(all []bound) {
	for i := range all {
		b := &all[i]
		if b.source.Tenants != nil {
			b.tenants = newTenantKeys(b.source.Tenants, b.state.tenants, s.tenantAlarm(b.source.Name, b.state))
		}
		b.state.tenants = b.tenants
	}
}

// tenantAlarm counts and logs what is wrong with the secrets of a source's tenants.
func (s *Server) tenantAlarm(source string, state *sourceState) func(string, error, bool) {
	return func(tenant string, err error, kept bool) {
		state.tenantFaults.Inc()
		say := func(left int64) {
			effect := "its events get 503 key_unavailable"
			if kept {
				effect = "the secret before it stays in use"
			}
			s.log.LogAttrs(context.Background(), slog.LevelError, "secret of a tenant is not fit: "+effect,
				slog.String(keySource, source), slog.String(keyTenant, tenant), slog.Any(keyErr, err), slog.Int64(keySuppressed, left))
		}
		if tenant == "" { // the folder's own fault comes again with every request
			state.tenantLog.do(say)
			return
		}
		say(0)
	}
}

// secretCount is how many secrets of a source have counters of their own: of its tenants, the ones in force and the next.
func (s *Source) secretCount() int {
	if s.Tenants != nil {
		return len(tenant{}.prints)
	}
	return len(s.Keys)
}
