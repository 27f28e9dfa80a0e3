package envoyconf

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sidehook/sidehook/extauthz"
)

// Whatever the matches are, Envoy's routes name the source that the gate itself finds, and none where it finds none:
// a route that named another would have a request judged by the wrong sender's keys, or ask a signature of an open path.
func TestRoutesNameWhatTheGateFinds(t *testing.T) {
	t.Parallel()
	pick := func(t *rapid.T, label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	match := func(t *rapid.T) extauthz.Match {
		m := extauthz.Match{Host: pick(t, "host", "", "", "A.example", "a.example:8443", "b.example", "[::1]"), Method: pick(t, "method", "", "", "POST", "PUT")}
		if rapid.Bool().Draw(t, "exact") {
			m.Path = pick(t, "path", "/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/a/{tenant}", "/{tenant}/b", "/{tenant}", "/a/{tenant}/c")
		} else {
			m.PathPrefix = pick(t, "prefix", "/", "/a", "/a/", "/a/b", "/a/b/c/", "/ab")
		}
		return m
	}
	rapid.Check(t, func(t *rapid.T) {
		var gate Gate
		for _, name := range []string{"one", "two", "three"} {
			gate.Sources = append(gate.Sources, &extauthz.Source{
				Name: name, Lease: time.Minute, Enforce: extauthz.EnforceOn, OnUnknown: extauthz.OnUnknownRetry,
				Matches: rapid.SliceOfN(rapid.Custom(match), 0, 3).Draw(t, name),
			})
		}
		gate.Open = rapid.SliceOfN(rapid.Custom(match).Filter(func(m extauthz.Match) bool { return !strings.Contains(m.Path, "{") }), 0, 3).Draw(t, "open")
		table, err := extauthz.NewSources(gate.Sources, gate.Open)
		if errors.Is(err, extauthz.ErrDuplicateMatch) {
			t.Skip(err) // rapid's: this drawing does not count. With too many such the test fails.
		}
		if err != nil {
			t.Fatal(err)
		}
		compiled := map[string]source{}
		for _, s := range gate.Sources {
			compiled[s.Name] = source{Name: s.Name}
		}
		layout := hosts(gate, compiled)
		for range 30 {
			authority := pick(t, "authority", "a.example", "A.EXAMPLE:8443", "a.example:80", "a.example.", "b.example", "b.example.:1", "[::1]", "[::1]:80", "c.example", "x.a.example")
			method := pick(t, "request method", "POST", "PUT", "GET")
			path := pick(t, "request path", "/", "/a", "/a/", "/a/b", "/a/bc", "/a/b/", "/a/b/c", "/a/b/c/d", "/ab", "/ab/c", "/z",
				"/a/x.y_z-1", "/a/.", "/a/..", "/a/...", "/a/.x", "/a/..x", "/a/x*", "/a/%62", "/a/x/c", "/a/../c", "/x/b", "/./b", "/a/x/", "/a//c")
			want := ""
			if s, _ := table.Lookup(authority, method, path); s != nil {
				want = s.Name
			}
			if got := routed(t, layout, authority, method, path); got != want {
				t.Fatalf("%s %s%s: the route names %q, the gate finds %q\n%+v", method, authority, path, got, want, layout)
			}
		}
	})
}

// routed returns the source of the route that Envoy takes: exact domain, then longest prefix of a domain, then all; in
// the virtual host the first route (Envoy: config.route.v3.VirtualHost domains and routes).
func routed(t *rapid.T, layout []host, authority, method, path string) string {
	authority = strings.ToLower(authority)
	var taken *host
	longest := -1
	for i, h := range layout {
		for _, d := range h.Domains {
			length := -1
			switch prefix, wild := strings.CutSuffix(d, "*"); {
			case d == authority:
				length = 1 << 20
			case wild && strings.HasPrefix(authority, prefix) && (prefix == "" || len(authority) > len(prefix)):
				length = len(prefix)
			}
			if length > longest {
				taken, longest = &layout[i], length
			}
		}
	}
	if taken == nil {
		t.Fatalf("no virtual host for %s", authority)
	}
	i := slices.IndexFunc(taken.Routes, func(r route) bool {
		rest, ok := strings.CutPrefix(path, r.Prefix)
		return (r.Method == "" || r.Method == method) &&
			(r.Path != "" && r.Path == path || r.Path+r.Regex == "" && ok && (rest == "" || rest[0] == '/') ||
				r.Regex != "" && regexp.MustCompile(`\A(?:`+r.Regex+`)\z`).MatchString(path))
	})
	if i < 0 {
		t.Fatalf("no route for %s %s%s", method, authority, path)
	}
	if s := taken.Routes[i].Source; s != nil {
		return s.Name
	}
	return ""
}
