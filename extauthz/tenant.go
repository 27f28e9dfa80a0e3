package extauthz

import (
	"math"
	"strings"

	"github.com/sidehook/sidehook/internal/signature"
)

const (
	// TenantSegment is what stands in Match.Path for the segment that names the tenant.
	TenantSegment = "{tenant}"
	// MaxTenantLen bounds a tenant's name, in bytes.
	MaxTenantLen = 128
)

// TenantValue is where a verified message names its tenant; at most one of both is set, none: nowhere. The signature
// covers it, and a message in which it does not stand has no tenant.
type TenantValue struct {
	JSON   signature.Path
	Header string // in lower case
}

// ValidTenant reports whether name may be a tenant's: 1 to 128 of A-Z, a-z, 0-9, full stop, _ and -, and neither "." nor
// "..", which are no names.
func ValidTenant(name string) bool {
	if name == "" || len(name) > MaxTenantLen || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// Tenant returns the tenant that a path names by the match's {tenant}. It reports false for a path that does not fit, and
// where the match has none.
func (m Match) Tenant(path string) (string, bool) {
	segment, ok := cutTenant(path, m.Path)
	return segment, ok && ValidTenant(segment)
}

// TenantAt returns how many segments, itself included, lead to the match's {tenant}; where there is none, more than any
// path has. Of two paths of as many segments the one with the greater number has a literal where the other has the tenant.
func (m Match) TenantAt() int { return tenantAt(m.Path) }

func tenantAt(pattern string) int {
	before, _, ok := strings.Cut(pattern, TenantSegment)
	if !ok {
		return math.MaxInt
	}
	return strings.Count(before, "/")
}

// cutTenant returns what stands in path where pattern has {tenant}: one segment, not empty. It reports false where the rest
// differs, and where pattern has no {tenant}.
func cutTenant(path, pattern string) (segment string, ok bool) {
	before, after, ok := strings.Cut(pattern, TenantSegment)
	if !ok || len(path) <= len(before)+len(after) || path[:len(before)] != before || path[len(path)-len(after):] != after {
		return "", false
	}
	segment = path[len(before) : len(path)-len(after)]
	return segment, strings.IndexByte(segment, '/') < 0
}

// validPattern reports whether a path has one {tenant}, a whole segment.
func validPattern(path string) bool {
	before, after, ok := strings.Cut(path, TenantSegment)
	return ok && !strings.ContainsAny(before+after, "{}") && strings.HasSuffix(before, "/") && (after == "" || after[0] == '/')
}

// tenant returns whose the request is by its path: empty for a source whose path says nothing of it. ok is false for a path
// in which one is missing; the route must have named the source.
func (b *bound) tenant(path string) (tenant string, ok bool) {
	ok = true
	for _, m := range b.source.Matches {
		if m.TenantAt() == math.MaxInt {
			continue
		}
		if tenant, ok = m.Tenant(path); ok {
			return tenant, true
		}
	}
	return "", ok
}

// named returns the tenant that a verified message of the tenant's own path names; msg is req's. ok is false where the two differ, and
// where the name is none.
func (b *bound) named(req *request, msg *signature.Message, path string) (tenant string, ok bool) {
	in := &b.source.Tenant
	var value string
	switch {
	case in.Header != "":
		value = req.get(in.Header)
	case !in.JSON.IsZero():
		value, _ = in.JSON.Find(b.source.Verifier.Document(msg))
	default:
		return path, true
	}
	switch {
	case path != "":
		return path, value == path
	case value == "":
		return "", true
	default:
		return strings.Clone(value), ValidTenant(value)
	}
}
