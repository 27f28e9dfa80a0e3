package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/sidehook/sidehook/extauthz"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

var (
	// methodToken is a method as RFC 9110 section 5.6.2 spells a token, in the capitals that all registered ones have.
	methodToken = regexp.MustCompile(`^[A-Z][A-Z-]{0,31}$`)
	// hostName is what stands in a Host header: labels, and a port perhaps.
	hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?(:[0-9]{1,5})?$`)
)

// match checks one match of open and compiles it.
func (l *loader) match(path string, m *configv1.Match) extauthz.Match {
	return l.matchOf(path, m, "an open path is nobody's: write path_prefix, or the path as it is sent")
}

// sourceMatch is match for a source, whose path may have a tenant in it.
func (l *loader) sourceMatch(path string, m *configv1.Match) extauthz.Match {
	return l.matchOf(path, m, "")
}

// matchOf is match; noTenant says why there cannot be a tenant, or nothing where there can.
func (l *loader) matchOf(path string, m *configv1.Match, noTenant string) extauthz.Match {
	out := extauthz.Match{
		Host: strings.ToLower(m.GetHost()), Path: m.GetPath(), PathPrefix: m.GetPathPrefix(), Method: m.GetMethod(),
	}
	switch {
	case out.Path == "" && out.PathPrefix == "":
		l.errorf(path, "write one of path and path_prefix; path_prefix: / is every path")
	case out.Path != "" && out.PathPrefix != "":
		l.errorf(path, "path and path_prefix exclude each other; remove one")
	case out.Path != "":
		l.matchPath(path+".path", out.Path, noTenant)
	default:
		l.matchPath(path+".path_prefix", out.PathPrefix, cmp.Or(noTenant, "{tenant} is for path, which says what is behind it too"))
	}
	if out.Host != "" && !validHost(out.Host) {
		l.errorf(path+".host", "%s is no host; write a name such as hooks.example.com, without scheme, path or wildcard",
			quote(out.Host))
	}
	if out.Method != "" && !methodToken.MatchString(out.Method) {
		l.errorf(path+".method", "%s is no method; write one in capital letters, such as POST", quote(out.Method))
	}
	return out
}

func validHost(h string) bool {
	if hostName.MatchString(h) {
		return true
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(h, "["), "]"))
	if err == nil {
		return ip.Is6() && strings.HasPrefix(h, "[") && ip.Zone() == ""
	}
	_, err = netip.ParseAddrPort(h)
	return err == nil
}

// matchPath refuses paths that no request can have, or that could be meant in two ways.
func (l *loader) matchPath(at, p, noTenant string) {
	why := ""
	literal := p
	if strings.Contains(p, extauthz.TenantSegment) {
		if noTenant != "" {
			l.errorf(at, "%s: %s", quote(p), noTenant)
			return
		}
		literal = withoutTenant(p)
	}
	switch i := strings.IndexFunc(p, func(c rune) bool { return c <= ' ' || c >= 0x7f }); {
	case !strings.HasPrefix(p, "/"):
		why = "begin it with /"
	case i >= 0:
		why = "write it as it is sent: blanks and letters beyond ASCII are percent-encoded"
	case strings.ContainsAny(p, "?#"):
		why = "leave query and fragment out: only the path is compared"
	case strings.ContainsAny(literal, "{}"):
		why = "the one thing in braces is {tenant}, once, as a whole segment: /hooks/{tenant}"
	case strings.ContainsAny(p, "*"):
		why = "there are no wildcards; path_prefix covers all below a path"
	case strings.Contains(p, `\`), strings.Contains(p, ";"), strings.Contains(p, "//"):
		why = `leave out \, ; and //: servers read them in more than one way`
	default:
		for segment := range strings.SplitSeq(p, "/") {
			if segment == "." || segment == ".." {
				why = "leave out the segments . and ..: clients and proxies resolve them"
			}
		}
	}
	if why != "" {
		l.errorf(at, "%s: %s", quote(p), why)
	}
}

// withoutTenant takes the first segment away that is {tenant} and nothing else.
func withoutTenant(path string) string {
	segments := strings.Split(path, "/")
	if i := slices.Index(segments, extauthz.TenantSegment); i >= 0 {
		segments[i] = "tenant"
	}
	return strings.Join(segments, "/")
}

// sameMatch reports whether a and b take exactly the same requests.
func sameMatch(a, b extauthz.Match) bool { return coversMatch(a, b) && coversMatch(b, a) }

// coversMatch reports whether every request that b takes is also taken by a.
func coversMatch(a, b extauthz.Match) bool {
	return (a.Host == "" || a.Host == b.Host) && (a.Method == "" || a.Method == b.Method) && coversPath(a, b)
}

// coversPath is coversMatch for the paths alone.
func coversPath(a, b extauthz.Match) bool {
	if a.PathPrefix == "" {
		_, tenant := a.Tenant(b.Path)
		return b.PathPrefix == "" && (a.Path == b.Path || tenant)
	}
	prefix := strings.TrimSuffix(a.PathPrefix, "/")
	p := b.Path
	if p == "" {
		p = strings.TrimSuffix(b.PathPrefix, "/")
	}
	rest, ok := strings.CutPrefix(p, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// overlap reports whether some request is taken by both.
func overlap(a, b extauthz.Match) bool {
	return (a.Host == "" || b.Host == "" || a.Host == b.Host) &&
		(a.Method == "" || b.Method == "" || a.Method == b.Method) &&
		pathsMeet(a, b)
}

// pathsMeet reports whether some path is taken by both.
func pathsMeet(a, b extauthz.Match) bool {
	if a.PathPrefix == "" && b.PathPrefix != "" {
		a, b = b, a
	}
	left := strings.Split(strings.TrimSuffix(a.PathPrefix, "/")+a.Path, "/")
	right := strings.Split(strings.TrimSuffix(b.PathPrefix, "/")+b.Path, "/")
	if b.PathPrefix != "" && len(left) > len(right) {
		left, right = right, left
	}
	if len(left) > len(right) || a.PathPrefix == "" && len(left) < len(right) {
		return false
	}
	for i, segment := range left {
		other := right[i]
		switch {
		case segment == other:
		case segment == extauthz.TenantSegment && extauthz.ValidTenant(other):
		case other == extauthz.TenantSegment && extauthz.ValidTenant(segment):
		default:
			return false
		}
	}
	return true
}

// outranks reports whether a goes before b where both take a request: a host before none, path before path_prefix, more
// segments before fewer, a literal segment before {tenant}, a method before none.
func outranks(a, b extauthz.Match) bool {
	rank := func(m extauthz.Match) [5]int {
		segments := strings.Count(strings.TrimSuffix(m.PathPrefix, "/")+m.Path, "/")
		return [5]int{min(len(m.Host), 1), min(len(m.Path), 1), segments, m.TenantAt(), min(len(m.Method), 1)}
	}
	ra, rb := rank(a), rank(b)
	return slices.Compare(ra[:], rb[:]) > 0
}

// describeMatch shows a match in a message.
func describeMatch(m extauthz.Match) string {
	s := "path " + m.Path
	if m.PathPrefix != "" {
		s = "path_prefix " + m.PathPrefix
	}
	if m.Host != "" {
		s = fmt.Sprintf("host %s, %s", m.Host, s)
	}
	if m.Method != "" {
		s = fmt.Sprintf("%s, method %s", s, m.Method)
	}
	return s
}
