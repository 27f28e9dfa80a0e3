package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/secret"
	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// maxTenantFindings is how many files of a folder are named in warnings: of ten thousand nobody reads more.
const maxTenantFindings = 8

// EachTenant looks at the secret of each tenant, and warns of those that are not fit. Otherwise only their folder is looked
// at: they are read on use.
func EachTenant() Option { return func(l *loader) { l.eachTenant = true } }

// folder returns the index of the folder among the secrets of a source, or -1.
func folder(m *configv1.Source) int {
	for i, s := range m.GetSecrets() {
		if _, ok := s.GetSource().(*configv1.Secret_Folder); ok {
			return i
		}
	}
	return -1
}

// tenants checks what a source says of its tenants, and compiles where their secrets are, nil for nowhere, and where a
// message names its own.
func (l *loader) tenants(path, owner string, m *configv1.Source, p preset) (*extauthz.TenantSecrets, extauthz.TenantValue) {
	value := l.tenantValue(path+".tenant", owner, m, p)
	inPath := strings.Contains(m.GetMatch().GetPath(), extauthz.TenantSegment)
	i := folder(m)
	if i < 0 {
		switch {
		case !inPath:
		case p.verifier == nil && m.GetVerify() != "":
			l.errorf(path+".match.path", "%s: nobody vouches for the tenant of a request that is not verified; write path_prefix", owner)
		case m.GetTenant() == nil:
			l.errorf(path+".match.path", "%s: {tenant} needs a secret for each tenant, in secrets: [{folder: /run/secrets/…}]: with one for all, "+
				"who holds an event of one tenant could post it as another's", owner)
		}
		return nil, value
	}
	at := fmt.Sprintf("%s.secrets[%d]", path, i)
	dir := m.GetSecrets()[i].GetFolder()
	switch {
	case p.verifier == nil:
		return nil, value // that secrets are there at all has been said
	case len(m.GetSecrets()) > 1:
		l.errorf(at+".folder", "%s: a folder stands alone: a secret beside it would count for all tenants, and who holds it could sign as each of them", owner)
	case m.GetSecrets()[i].GetUntil() != nil:
		l.errorf(at+".until", "%s: is for single secrets; a tenant's secret ends when its file is removed", owner)
	case !inPath:
		l.errorf(at+".folder", "%s: needs {tenant} in match.path, such as /hooks/{tenant}: it names the file", owner)
	case !filepath.IsAbs(dir):
		l.errorf(at+".folder", "%s: write an absolute path", owner)
	default:
		t := &extauthz.TenantSecrets{Folder: secret.NewFolder(filepath.Clean(dir)), Parse: p.tenantKey}
		if !l.withoutSecrets {
			l.tenantFiles(at+".folder", owner, t)
		}
		return t, value
	}
	return nil, value
}

// tenantKey makes a key of a tenant's secret.
func (p preset) tenantKey(text secret.Secret) (signature.Key, error) {
	key, err := p.verifier.ParseKey(text.Bytes())
	if err == nil && len(text.Bytes()) < p.minSecret {
		return signature.Key{}, p.tooShort(len(text.Bytes()))
	}
	return key, err
}

// tenantFiles notes a folder that cannot be read or is empty, and files of it that are of no use.
func (l *loader) tenantFiles(at, owner string, t *extauthz.TenantSecrets) {
	entries, err := os.ReadDir(t.Folder.Path())
	if err != nil {
		l.errorf(at, "%s: %v", owner, err)
		return
	}
	files, unfit := 0, 0
	for _, e := range entries {
		// A volume of Kubernetes has folders and a link of its own, whose names begin so.
		if strings.HasPrefix(e.Name(), "..") || e.IsDir() {
			continue
		}
		files++
		if !l.eachTenant {
			break
		}
		if err := fitTenant(e.Name(), t); err != nil {
			if unfit++; unfit <= maxTenantFindings {
				l.warnf(at, "%s: %v", owner, err)
			}
		}
	}
	if files == 0 {
		l.warnf(at, "%s: the folder is empty: every request gets 401 unknown_tenant until a file is there", owner)
	}
	if unfit > maxTenantFindings {
		l.warnf(at, "%s: and %d more files of the folder are not fit", owner, unfit-maxTenantFindings)
	}
}

// fitTenant says what is wrong with a file of a folder of secrets.
func fitTenant(name string, t *extauthz.TenantSecrets) error {
	tenant := strings.TrimSuffix(name, extauthz.NextSuffix)
	if !extauthz.ValidTenant(tenant) || strings.HasSuffix(tenant, extauthz.NextSuffix) {
		return fmt.Errorf("file %s is no tenant's: names are 1 to %d of A-Z, a-z, 0-9, full stop, _ and -, and a secret that is to come ends in %s",
			quote(name), extauthz.MaxTenantLen, extauthz.NextSuffix)
	}
	if tenant != name {
		if p, err := t.Folder.Stat(tenant); err == nil && p[0].Same(secret.Print{}) {
			return fmt.Errorf("file %s has no effect without file %s, the secret in force", quote(name), quote(tenant))
		}
	}
	text, _, err := t.Folder.Load(name)
	if err != nil {
		return err
	}
	if _, err := t.Parse(text); err != nil {
		return fmt.Errorf("file %s: %w", quote(name), err)
	}
	return nil
}

// tenantValue checks where a message names its tenant.
func (l *loader) tenantValue(path, owner string, m *configv1.Source, p preset) extauthz.TenantValue {
	in := m.GetTenant()
	if in == nil {
		return extauthz.TenantValue{}
	}
	if p.verifier == nil {
		if m.GetVerify() != "" {
			l.errorf(path, "%s: nobody vouches for the tenant of a request that is not verified; leave this out", owner)
		}
		return extauthz.TenantValue{}
	}
	if name := strings.ToLower(in.GetHeader()); name != "" {
		if !p.verifier.CoversHeader(name) {
			l.errorf(path+".header", "%s: the signature of %s does not cover this header, so that anybody could change it; "+
				"write a header that is signed, or json", owner, p.name)
		}
		return extauthz.TenantValue{Header: name}
	}
	at, err := signature.ParsePath(in.GetJson())
	switch {
	case err != nil:
		l.errorf(path+".json", "%s: %s", owner, strings.TrimPrefix(err.Error(), "json: "))
	case !p.verifier.CoversBody():
		err = errors.New("not covered")
		l.errorf(path+".json", "%s: the signature of %s does not cover the whole body, so that anybody could change the tenant in it", owner, p.name)
	case !p.verifier.ReadsBody():
		err = errors.New("not read")
		l.errorf(path+".json", "%s: %s sends its JSON zipped or inside of a form, where this is not read", owner, p.name)
	}
	if err != nil {
		return extauthz.TenantValue{}
	}
	return extauthz.TenantValue{JSON: at}
}
