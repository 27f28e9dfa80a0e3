package config

import (
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

// match checks one match and compiles it.
func (l *loader) match(path string, m *configv1.Match) extauthz.Match {
	out := extauthz.Match{
		Host: strings.ToLower(m.GetHost()), Path: m.GetPath(), PathPrefix: m.GetPathPrefix(), Method: m.GetMethod(),
	}
	switch {
	case out.Path == "" && out.PathPrefix == "":
		l.errorf(path, "write one of path and path_prefix; path_prefix: / is every path")
	case out.Path != "" && out.PathPrefix != "":
		l.errorf(path, "path and path_prefix exclude each other; remove one")
	case out.Path != "":
		l.matchPath(path+".path", out.Path)
	default:
		l.matchPath(path+".path_prefix", out.PathPrefix)
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
func (l *loader) matchPath(at, p string) {
	why := ""
	switch i := strings.IndexFunc(p, func(c rune) bool { return c <= ' ' || c >= 0x7f }); {
	case !strings.HasPrefix(p, "/"):
		why = "begin it with /"
	case i >= 0:
		why = "write it as it is sent: blanks and letters beyond ASCII are percent-encoded"
	case strings.ContainsAny(p, "?#"):
		why = "leave query and fragment out: only the path is compared"
	case strings.ContainsAny(p, "{}"):
		why = "{tenant} is not in this version; write the whole path, or a source for each tenant"
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

// sameMatch reports whether a and b take exactly the same requests.
func sameMatch(a, b extauthz.Match) bool { return coversMatch(a, b) && coversMatch(b, a) }

// coversMatch reports whether every request that b takes is also taken by a.
func coversMatch(a, b extauthz.Match) bool {
	return (a.Host == "" || a.Host == b.Host) && (a.Method == "" || a.Method == b.Method) && coversPath(a, b)
}

// coversPath is coversMatch for the paths alone.
func coversPath(a, b extauthz.Match) bool {
	if a.PathPrefix == "" {
		return b.PathPrefix == "" && a.Path == b.Path
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
		(coversPath(a, b) || coversPath(b, a))
}

// outranks reports whether a goes before b where both take a request: a host before none, path before path_prefix, more
// segments before fewer, a method before none.
func outranks(a, b extauthz.Match) bool {
	rank := func(m extauthz.Match) [4]int {
		segments := strings.Count(strings.TrimSuffix(m.PathPrefix, "/")+m.Path, "/")
		return [4]int{min(len(m.Host), 1), min(len(m.Path), 1), segments, min(len(m.Method), 1)}
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
