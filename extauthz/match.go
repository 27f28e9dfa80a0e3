package extauthz

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Errors of NewSources; the message names the source.
var (
	ErrDuplicateName  = errors.New("source name is taken")
	ErrDuplicateMatch = errors.New("match is taken")
	ErrInvalidSource  = errors.New("invalid source")
)

// Sources is the immutable table of what the gate knows: every source by name, and every match in its order.
// A reload builds another one and swaps it in. It is safe for concurrent use.
type Sources struct {
	sources []*Source
	byName  map[string]int
	// routes are all matches of sources and of open, most particular first: the first that fits decides.
	routes []route
	// loose: some match is not in its loose form, so that even a plain path may be loosely one's that it is not.
	loose bool
	// tenants: some match has a tenant in its path.
	tenants bool
}

// route is one match, compiled.
type route struct {
	host, method string // host in lower case; empty: every one
	port         bool   // host names a port too
	path         string // of a prefix without its final slash: "/" is ""
	loose        string // path as loosePath has it
	prefix       bool
	tenant       int // see Match.TenantAt
	segments     int
	source       int // index in Sources.sources, or openRoute
	match        Match
}

// What a lookup finds beside the index of a source.
const (
	noRoute   = -1
	openRoute = -2
)

// NewSources builds the table. The sources and open must not change afterwards. Problems are joined:
// ErrInvalidSource, ErrDuplicateName, ErrDuplicateMatch.
func NewSources(sources []*Source, open []Match) (*Sources, error) {
	s := &Sources{sources: slices.Clone(sources), byName: make(map[string]int, len(sources))}
	var errs []error
	for i, src := range sources {
		if err := src.validate(); err != nil {
			errs = append(errs, err)
		}
		for _, name := range append([]string{src.Name}, src.Was...) {
			if _, taken := s.byName[name]; taken {
				errs = append(errs, fmt.Errorf("source %q: %w: %q", src.Name, ErrDuplicateName, name))
			}
			s.byName[name] = i
		}
		for _, m := range src.Matches {
			errs = append(errs, s.addRoute(m, i))
		}
	}
	for _, m := range open {
		errs = append(errs, s.addRoute(m, openRoute))
	}
	// An earlier name finds old claims; it is no name that a route may use.
	for _, src := range sources {
		for _, was := range src.Was {
			delete(s.byName, was)
		}
	}
	slices.SortStableFunc(s.routes, route.compare)
	for i := 1; i < len(s.routes); i++ {
		a, b := &s.routes[i-1], &s.routes[i]
		if a.source >= 0 && b.source >= 0 && a.source != b.source && a.equal(b) {
			errs = append(errs, fmt.Errorf("source %q: %w: source %q has the same", sources[b.source].Name, ErrDuplicateMatch, sources[a.source].Name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// validate checks what a wrong value of would make the gate misbehave silently; the rest is the configuration's to check.
func (s *Source) validate() error {
	var why string
	switch {
	case s.Name == "" || len(s.Name) > maxIDLen || percentEncode(s.Name) != s.Name:
		why = "name must be printable ASCII"
	case s.Name == unconfigured:
		why = "name stands for requests of no source in metrics"
	case s.Enforce != EnforceOn && s.Enforce != EnforceReport:
		why = "enforce is not set"
	case s.OnUnknown != OnUnknownRetry && s.OnUnknown != OnUnknownHold:
		why = "on_unknown is not set"
	case s.Lease <= 0:
		why = "lease must be positive"
	case s.Verifier != nil && s.Verifier.NeedsKey() && len(s.Keys) == 0 && s.Tenants == nil:
		why = "no key"
	case s.Tenants != nil && (s.Verifier == nil || len(s.Keys) > 0):
		why = "secrets of tenants stand alone, and verify"
	case s.Reply.Status != 0 && (s.Reply.Status < 200 || s.Reply.Status > 599):
		why = "reply status out of range"
	case !utf8.ValidString(s.Reply.Body):
		why = "reply body is not UTF-8, which Envoy's API cannot carry"
	case percentEncode(s.Reply.ContentType) != s.Reply.ContentType:
		why = "reply content type must be printable ASCII"
	case s.RefusalStatus != 0 && (s.RefusalStatus < 400 || s.RefusalStatus > 499):
		why = "refusal status is no 4xx"
	default:
		return nil
	}
	return fmt.Errorf("source %q: %w: %s", s.Name, ErrInvalidSource, why)
}

// addRoute compiles m for the source of that index.
func (s *Sources) addRoute(m Match, source int) error {
	r := route{host: strings.ToLower(m.Host), method: m.Method, path: m.Path, source: source, match: m}
	r.port = hasPort(r.host)
	if m.PathPrefix != "" {
		r.prefix, r.path = true, strings.TrimSuffix(m.PathPrefix, "/")
	}
	why := ""
	switch {
	case m.Path != "" && m.PathPrefix != "" || m.Path == "" && m.PathPrefix == "" || r.path != "" && r.path[0] != '/':
		why = "match needs one of path and path_prefix, starting with a slash"
	case strings.ContainsAny(r.path, "{}") && (source < 0 || r.prefix || !validPattern(r.path)):
		why = "match may hold {tenant} once, as a whole segment of a source's path"
	}
	if why != "" {
		name := "open"
		if source >= 0 {
			name = fmt.Sprintf("source %q", s.sources[source].Name)
		}
		return fmt.Errorf("%s: %w: %s", name, ErrInvalidSource, why)
	}
	r.segments, r.tenant = strings.Count(r.path, "/"), m.TenantAt()
	if r.path != "" {
		r.loose = loosePath(r.path)
	}
	// What stands for a tenant and is no tenant's name fits loosely, however plain it is.
	s.loose = s.loose || r.loose != r.path || r.tenanted()
	s.tenants = s.tenants || r.tenanted()
	s.routes = append(s.routes, r)
	return nil
}

// compare puts the more particular route first: a host before none (with a port before without), a path before a
// prefix, the longer path, a literal segment before {tenant}, a method before none, a source before open. The rest of it
// only makes the order, and so the finding of equals, certain.
func (r route) compare(o route) int {
	named := func(s string) int { return min(len(s), 1) }
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(
		-cmp.Compare(named(r.host)+flag(r.port), named(o.host)+flag(o.port)),
		cmp.Compare(flag(r.prefix), flag(o.prefix)),
		-cmp.Compare(r.segments, o.segments),
		-cmp.Compare(r.tenant, o.tenant),
		-cmp.Compare(named(r.method), named(o.method)),
		cmp.Compare(min(o.source, 0), min(r.source, 0)),
		cmp.Compare(r.host, o.host),
		cmp.Compare(r.path, o.path),
		cmp.Compare(r.method, o.method),
		cmp.Compare(r.source, o.source),
	)
}

// equal reports whether both routes fit exactly the same requests.
func (r *route) equal(o *route) bool {
	return r.host == o.host && r.method == o.method && r.path == o.path && r.prefix == o.prefix
}

// tenanted reports whether a segment of the route's path names the tenant.
func (r *route) tenanted() bool { return r.tenant != math.MaxInt }

// fits reports whether the route takes a raw path.
func (r *route) fits(path string) bool {
	if r.tenanted() {
		segment, ok := cutTenant(path, r.path)
		return ok && ValidTenant(segment)
	}
	return r.covers(path, r.path)
}

// fitsLoosely is fits for path in its loose form. Any segment may stand for a tenant there: an app that takes it for one
// must not get it unverified.
func (r *route) fitsLoosely(path string) bool {
	if r.tenanted() {
		_, ok := cutTenant(path, r.loose)
		return ok
	}
	return r.covers(path, r.loose)
}

// covers reports whether a route without tenant takes a path in the form that want is.
func (r *route) covers(path, want string) bool {
	if !r.prefix {
		return path == want
	}
	return len(path) > len(want) && path[len(want)] == '/' && path[:len(want)] == want || path == want && path != ""
}

// takes reports whether the route takes host, with and without its port, and method.
func (r *route) takes(host, bare, method string) bool {
	if r.method != "" && r.method != method {
		return false
	}
	if r.host == "" {
		return true
	}
	if r.port {
		return r.host == host
	}
	return r.host == bare
}

// Lookup returns the source that the table finds for a request by its raw path, nil when none does; open reports
// that the path needs no signature. It neither decodes nor cleans: see Ambiguous.
func (s *Sources) Lookup(host, method, path string) (source *Source, open bool) {
	switch i := s.find(host, method, path); i {
	case noRoute:
		return nil, false
	case openRoute:
		return nil, true
	default:
		return s.sources[i], false
	}
}

// Named returns the source of that name, or nil.
func (s *Sources) Named(name string) *Source {
	if i, ok := s.byName[name]; ok {
		return s.sources[i]
	}
	return nil
}

// All returns the sources in the order of the configuration. The caller must not change the slice.
func (s *Sources) All() []*Source { return s.sources }

// Order yields every match with its source, nil for one of open, in the order in which they are tried: the first that
// fits decides.
func (s *Sources) Order() iter.Seq2[Match, *Source] {
	return func(yield func(Match, *Source) bool) {
		for i := range s.routes {
			r := &s.routes[i]
			var source *Source
			if r.source >= 0 {
				source = s.sources[r.source]
			}
			if !yield(r.match, source) {
				return
			}
		}
	}
}

// find returns the index of the source that takes the raw path, openRoute or noRoute.
func (s *Sources) find(host, method, path string) int {
	host, bare := hostForms(host)
	return s.findExact(host, bare, method, path)
}

func (s *Sources) findExact(host, bare, method, path string) int {
	for i := range s.routes {
		if r := &s.routes[i]; r.fits(path) && r.takes(host, bare, method) {
			return r.source
		}
	}
	return noRoute
}

// findLoose is findExact for path and matches in their loose forms.
func (s *Sources) findLoose(host, bare, method, path string) int {
	path = loosePath(path)
	for i := range s.routes {
		if r := &s.routes[i]; r.fitsLoosely(path) && r.takes(host, bare, method) {
			return r.source
		}
	}
	return noRoute
}

// findTenant is findLoose for a path that is a source's already: another one's only if it has a tenant where the path has
// something.
func (s *Sources) findTenant(host, bare, method, path string, source int) int {
	if !s.tenants {
		return source
	}
	path = loosePath(path)
	for i := range s.routes {
		if r := &s.routes[i]; r.fitsLoosely(path) && r.takes(host, bare, method) {
			if r.tenanted() && r.source >= 0 {
				return r.source
			}
			break
		}
	}
	return source
}

// hostForms returns host in lower case, and that without port and final dot.
func hostForms(host string) (lower, bare string) {
	lower = strings.ToLower(host)
	bare = lower
	if hasPort(bare) {
		bare = bare[:strings.LastIndexByte(bare, ':')]
	}
	return lower, strings.TrimSuffix(bare, ".")
}

// hasPort reports whether host ends in a port; the colons of a bracketed IPv6 address are none.
func hasPort(host string) bool {
	colon := strings.LastIndexByte(host, ':')
	return colon >= 0 && colon > strings.LastIndexByte(host, ']')
}
