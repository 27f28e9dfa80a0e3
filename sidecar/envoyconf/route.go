package envoyconf

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/sidehook/sidehook/extauthz"
)

// host is one virtual host: the routes of requests for it, the most exact first.
type host struct {
	Name    string
	Domains []string
	Routes  []route
}

// route sends what matches to the app, after the gate.
type route struct {
	// Path, Regex or Prefix (whole segments) matches; all empty: every path.
	Path, Regex, Prefix string
	Method              string  // empty: every one
	Source              *source // nil: no source's
}

// everyHost is the domain that Envoy takes when no other fits.
const everyHost = "*"

// rule is a route before it is known for which hosts it holds.
type rule struct {
	host     string // lower case, perhaps with a port; empty: every one
	segments int    // of its path
	tenant   int    // see extauthz.Match.TenantAt
	route
}

// tenantRegex is extauthz.ValidTenant in RE2, which takes the whole path (Envoy: RouteMatch.safe_regex). It leaves the length
// open, for a bound of 128 makes a large program: the gate refuses a longer name as it does an unknown one.
const tenantRegex = `(?:\.{0,2}[A-Za-z0-9_-][A-Za-z0-9._-]*|\.{3}[A-Za-z0-9._-]*)`

// hosts lays out the routes by which Envoy names the source of a request to the gate. What the route names goes before
// what the gate would match itself, so a source must win here exactly where it wins there.
func hosts(gate Gate, sources map[string]source) []host {
	rules := sortedRules(gate, sources)
	names := []string{""}
	for _, r := range rules {
		if !slices.Contains(names, r.host) {
			names = append(names, r.host)
		}
	}
	slices.Sort(names)
	all := make([]host, 0, len(names))
	for _, name := range names {
		h := host{Name: cmp.Or(name, "every-host"), Domains: domains(name)}
		bare, _, hasPort := cutPort(name)
		for _, r := range rules {
			// A virtual host is taken alone: it has to hold the less exact rules too.
			if r.host == "" || r.host == name || hasPort && r.host == bare {
				h.Routes = append(h.Routes, r.route)
			}
		}
		// Whatever nothing else claims goes past the gate too, which refuses it.
		if n := len(h.Routes); n == 0 || h.Routes[n-1] != (route{}) {
			h.Routes = append(h.Routes, route{})
		}
		all = append(all, h)
	}
	return all
}

// sortedRules returns all matches in the gate's order: a host before none, one with a port first; path before path_prefix;
// more segments before fewer; a literal segment before {tenant}; a method before none; a source before an open entry.
func sortedRules(gate Gate, sources map[string]source) []rule {
	var rules []rule
	add := func(m extauthz.Match, s *source) {
		r := route{Path: m.Path, Prefix: strings.TrimSuffix(m.PathPrefix, "/"), Method: m.Method, Source: s}
		if before, after, ok := strings.Cut(m.Path, extauthz.TenantSegment); ok {
			r.Path, r.Regex = "", regexp.QuoteMeta(before)+tenantRegex+regexp.QuoteMeta(after)
		}
		rules = append(rules, rule{host: strings.ToLower(m.Host), segments: strings.Count(m.Path+r.Prefix, "/"), tenant: m.TenantAt(), route: r})
	}
	for _, s := range gate.Sources {
		compiled := sources[s.Name]
		for _, m := range s.Matches {
			add(m, &compiled)
		}
	}
	for _, m := range gate.Open {
		add(m, nil)
	}
	slices.SortStableFunc(rules, func(a, b rule) int {
		return cmp.Or(
			cmp.Compare(exactness(b.host), exactness(a.host)),
			last(a.Path+a.Regex == "", b.Path+b.Regex == ""),
			cmp.Compare(b.segments, a.segments),
			cmp.Compare(b.tenant, a.tenant),
			last(a.Method == "", b.Method == ""),
			last(a.Source == nil, b.Source == nil),
		)
	})
	return rules
}

// domains returns the :authority values of a host as Envoy compares them: with their port, where the gate ignores a port
// that the match does not name, and with the final dot of an absolute name.
func domains(name string) []string {
	if name == "" {
		return []string{everyHost}
	}
	if bare, port, ok := cutPort(name); ok {
		return []string{bare + ":" + port}
	}
	return []string{name, name + ":*", name + ".", name + ".:*"}
}

// cutPort splits a host that ends in a port; the colons of a bracketed IPv6 address are none.
func cutPort(name string) (bare, port string, ok bool) {
	colon := strings.LastIndexByte(name, ':')
	if colon <= strings.LastIndexByte(name, ']') {
		return name, "", false
	}
	return name[:colon], name[colon+1:], true
}

// exactness is higher for a host that fits fewer requests.
func exactness(host string) int {
	if host == "" {
		return 0
	}
	if _, _, port := cutPort(host); port {
		return 2
	}
	return 1
}

// last orders what is true behind what is false.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}
