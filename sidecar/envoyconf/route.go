package envoyconf

import (
	"cmp"
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
	// Path or Prefix (whole segments) matches; both empty: every path.
	Path, Prefix string
	Method       string  // empty: every one
	Source       *source // nil: no source's
}

// everyHost is the domain that Envoy takes when no other fits.
const everyHost = "*"

// rule is a route before it is known for which hosts it holds.
type rule struct {
	host string // lower case, perhaps with a port; empty: every one
	route
}

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
// more segments before fewer; a method before none; a source before an open entry.
func sortedRules(gate Gate, sources map[string]source) []rule {
	var rules []rule
	add := func(m extauthz.Match, s *source) {
		rules = append(rules, rule{strings.ToLower(m.Host), route{
			Path: m.Path, Prefix: strings.TrimSuffix(m.PathPrefix, "/"), Method: m.Method, Source: s,
		}})
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
	segments := func(r rule) int { return strings.Count(r.Path+r.Prefix, "/") }
	slices.SortStableFunc(rules, func(a, b rule) int {
		return cmp.Or(
			cmp.Compare(exactness(b.host), exactness(a.host)),
			last(a.Path == "", b.Path == ""),
			cmp.Compare(segments(b), segments(a)),
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
