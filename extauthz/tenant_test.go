package extauthz

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// tenantName is what a tenant may be called, in a language of its own.
var tenantName = regexp.MustCompile(`\A[A-Za-z0-9._-]{1,128}\z`)

func TestMatchTenant(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("t", MaxTenantLen)
	for _, tt := range []struct {
		pattern, path string
		want          string // empty: it does not fit
	}{
		{"/hooks/{tenant}", "/hooks/acme", "acme"},
		{"/hooks/{tenant}", "/hooks/Acme_2.eu-1", "Acme_2.eu-1"},
		{"/hooks/{tenant}", "/hooks/" + long, long},
		{"/hooks/{tenant}", "/hooks/" + long + "t", ""},
		{"/hooks/{tenant}", "/hooks/...", "..."},
		{"/hooks/{tenant}", "/hooks/.hidden", ".hidden"},
		{"/hooks/{tenant}", "/hooks/.", ""},
		{"/hooks/{tenant}", "/hooks/..", ""},
		{"/hooks/{tenant}", "/hooks/", ""},
		{"/hooks/{tenant}", "/hooks", ""},
		{"/hooks/{tenant}", "/hooks/acme/", ""},
		{"/hooks/{tenant}", "/hooks/acme/x", ""},
		{"/hooks/{tenant}", "/hooks//acme", ""},
		{"/hooks/{tenant}", "/Hooks/acme", ""},
		{"/hooks/{tenant}", "/hooks/ac%6de", ""},
		{"/hooks/{tenant}", "/hooks/ac me", ""},
		{"/hooks/{tenant}", "/hooks/acmé", ""},
		{"/hooks/{tenant}", "/hooks/{tenant}", ""},
		{"/{tenant}/hooks", "/acme/hooks", "acme"},
		{"/{tenant}/hooks", "/hooks", ""},
		{"/{tenant}/hooks", "//hooks", ""},
		{"/a/{tenant}/a", "/a/a/a", "a"},
		{"/a/{tenant}/a", "/a/a", ""}, // what is before and behind must not share bytes
		{"/a/{tenant}/a", "/a/b/c/a", ""},
		{"/hooks/acme", "/hooks/acme", ""},
		{"", "/hooks/acme", ""},
	} {
		got, ok := Match{Path: tt.pattern}.Tenant(tt.path)
		if !ok {
			got = ""
		}
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s of %s: %q, %v; want %q", tt.pattern, tt.path, got, ok, tt.want)
		}
	}
}

// Whatever the path: what is found is a tenant's name, a whole segment, and in its place the path is the pattern.
func FuzzMatchTenant(f *testing.F) {
	for _, seed := range [][2]string{
		{"/hooks/{tenant}", "/hooks/acme"}, {"/{tenant}/hooks", "/a/hooks"}, {"/a/{tenant}/a", "/a/a"},
		{"/hooks/{tenant}", "/hooks/.."}, {"{tenant}", ""}, {"/{tenant}{tenant}", "/x{tenant}"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		got, ok := Match{Path: pattern}.Tenant(path)
		if ok && strings.Replace(pattern, TenantSegment, got, 1) != path {
			t.Errorf("%q of %q: %q", pattern, path, got)
		}
		if ok && (!tenantName.MatchString(got) || got == "." || got == "..") {
			t.Errorf("%q of %q: %q is no tenant", pattern, path, got)
		}
		// The other way round: a name put into a good pattern is found.
		if tenantName.MatchString(path) && path != "." && path != ".." && validPattern(pattern) {
			filled := strings.Replace(pattern, TenantSegment, path, 1)
			if got, ok := (Match{Path: pattern}).Tenant(filled); !ok || got != path {
				t.Errorf("%q of %q: %q, %v", pattern, filled, got, ok)
			}
		}
	})
}

func TestNewSourcesRefusesTenants(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]Match{
		"twice":          {Path: "/{tenant}/{tenant}"},
		"part of one":    {Path: "/hooks/t-{tenant}"},
		"with a suffix":  {Path: "/hooks/{tenant}.json"},
		"another word":   {Path: "/hooks/{customer}"},
		"brace alone":    {Path: "/hooks/{tenant"},
		"prefix":         {PathPrefix: "/hooks/{tenant}"},
		"no slash":       {Path: "{tenant}"},
		"and more brace": {Path: "/{tenant}/{x}"},
	} {
		if _, err := NewSources([]*Source{openSource("a", m)}, nil); !errors.Is(err, ErrInvalidSource) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Nobody vouches for a tenant of an open path.
	if _, err := NewSources(nil, []Match{{Path: "/hooks/{tenant}"}}); !errors.Is(err, ErrInvalidSource) {
		t.Errorf("open: %v", err)
	}
	if _, err := NewSources([]*Source{openSource("a", Match{Path: "/t/{tenant}"}), openSource("b", Match{Path: "/t/{tenant}"})}, nil); !errors.Is(err, ErrDuplicateMatch) {
		t.Errorf("same: %v", err)
	}
	mustSources(t, []*Source{openSource("a", Match{Path: "/t/{tenant}"}), openSource("b", Match{Path: "/t/{tenant}", Method: "PUT"})})
}

// The order: more segments, then a literal before {tenant}, then a method; a prefix after every path.
func TestTenantOrder(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{
		openSource("prefix", Match{PathPrefix: "/hooks"}),
		openSource("second", Match{Path: "/hooks/{tenant}"}),
		openSource("first", Match{Path: "/{tenant}/acme"}),
		openSource("posted", Match{Path: "/hooks/{tenant}", Method: "POST"}),
		openSource("literal", Match{Path: "/hooks/acme"}),
		openSource("longer", Match{Path: "/{tenant}/acme/in"}),
		openSource("hosted", Match{Host: "h.example", PathPrefix: "/"}),
	}, Match{Path: "/hooks/status"})
	var got []string
	for _, s := range table.Order() {
		name := "open"
		if s != nil {
			name = s.Name
		}
		got = append(got, name)
	}
	want := []string{"hosted", "longer", "literal", "open", "posted", "second", "first", "prefix"}
	if !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
	for path, want := range map[string]string{
		"GET /hooks/acme": "literal", "GET /hooks/other": "second", "POST /hooks/other": "posted", "GET /x/acme": "first",
		"GET /x/acme/in": "longer", "GET /hooks/a/b": "prefix", "GET /hooks": "prefix",
	} {
		method, path, _ := strings.Cut(path, " ")
		if s, _ := table.Lookup("", method, path); s == nil || s.Name != want {
			t.Errorf("%s %s: %v, want %s", method, path, s, want)
		}
	}
	if _, open := table.Lookup("", "GET", "/hooks/status"); !open {
		t.Error("the literal open path is not open")
	}
}

// What an app may take for a tenant's hook, and we do not, is refused before open lets it through.
func TestAmbiguousTenant(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{
		openSource("hooks", Match{Path: "/hooks/{tenant}"}),
		openSource("deep", Match{Path: "/t/{tenant}/in"}),
		openSource("wide", Match{PathPrefix: "/wide"}),
		openSource("inner", Match{Path: "/wide/{tenant}"}),
		openSource("capital", Match{Path: "/wide/Lit"}),
		openSource("small", Match{Path: "/wide/lit"}),
	}, Match{PathPrefix: "/"}, Match{Path: "/hooks/status"})
	for _, tt := range []struct{ path, want string }{
		{"/hooks/acme", ""},
		{"/hooks/ACME", ""}, // another tenant, or none
		{"/hooks/acme.json", ""},
		{"/hooks/status", ""},
		{"/hooks", ""},
		{"/hooks/", ""},
		{"/hooks/a/b", ""},
		{"/hooks/%61cme", "hooks"},
		{"/hooks/%2561cme", "hooks"},
		{"/hooks/acme%20", "hooks"},
		{"/hooks/ac%20me", "hooks"},
		{"/hooks/ac%C3%A9", "hooks"},
		{"/hooks/acme/", "hooks"},
		{"/hooks/acme;v=1", "hooks"},
		{"/hooks//acme", "hooks"},
		{"/hooks/x/../acme", "hooks"},
		{"/hooks/x%2f..%2facme", "hooks"},
		{"/hooks/acme%3fx", "hooks"},
		{"/hooks/acme%00", "hooks"},
		{`/hooks\acme`, "hooks"},
		{"/Hooks/acme", "hooks"},
		// Plain characters that no tenant's name has.
		{"/hooks/acme*", "hooks"},
		{"/hooks/acme~1", "hooks"},
		{"/hooks/a,b", "hooks"},
		{"/hooks/a@b", "hooks"},
		{"/hooks/a:b", "hooks"},
		{"/hooks/" + strings.Repeat("a", MaxTenantLen+1), "hooks"},
		{"/t/a/in", ""},
		{"/t/a/in/", "deep"},
		{"/t/a*/in", "deep"},
		{"/t/a/IN", "deep"},
		{"/t/a%2fin", "deep"},
		{"/t/a/in.json", "deep"},
		// One source's key must not vouch for what the app takes for another's.
		{"/wide/acme*", "inner"},
		{"/wide/acme/x", ""},
		// Two sources that differ in letters only are what the user wrote.
		{"/wide/Lit", ""},
		{"/wide/lit", ""},
	} {
		t.Run(tt.path, func(t *testing.T) {
			t.Parallel()
			i, overflow := table.ambiguous("", "POST", tt.path, table.find("", "POST", tt.path))
			got := ""
			if i >= 0 {
				got = table.sources[i].Name
			}
			if got != tt.want || overflow {
				t.Errorf("ambiguous = %q, overflow %v; want %q", got, overflow, tt.want)
			}
		})
	}
}

// The table finds what a plain reading of the rules finds: of all matches that fit, the one that no other goes before.
func TestTenantLookupModel(t *testing.T) {
	t.Parallel()
	paths := []string{"/a", "/a/b", "/a/{tenant}", "/{tenant}/b", "/{tenant}", "/a/b/c", "/a/{tenant}/c", "/{tenant}/b/c", "/a/b/{tenant}"}
	match := rapid.Custom(func(t *rapid.T) Match {
		m := Match{Method: rapid.SampledFrom([]string{"", "", "PUT"}).Draw(t, "method")}
		if rapid.IntRange(0, 3).Draw(t, "prefix") == 0 {
			m.PathPrefix = rapid.SampledFrom([]string{"/", "/a", "/a/b"}).Draw(t, "path_prefix")
		} else {
			m.Path = rapid.SampledFrom(paths).Draw(t, "path")
		}
		return m
	})
	fits := func(m Match, method, path string) bool {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(m.Path), regexp.QuoteMeta(TenantSegment), `[A-Za-z0-9._-]{1,128}`)
		if m.PathPrefix != "" {
			pattern = strings.TrimSuffix(m.PathPrefix, "/") + "(/.*)?"
		}
		return regexp.MustCompile(`\A`+pattern+`\z`).MatchString(path) && (m.Method == "" || m.Method == method)
	}
	// rank is the rules as a list: path, segments, literals from the left, method.
	rank := func(m Match) []int {
		r := []int{0, 0}
		segments := strings.Split(strings.TrimSuffix(m.Path+m.PathPrefix, "/"), "/")
		if m.Path != "" {
			r[0] = 1
		}
		r[1] = len(segments)
		for _, s := range segments {
			if s == TenantSegment {
				r = append(r, 0)
			} else {
				r = append(r, 1)
			}
		}
		if m.Method != "" {
			return append(r, 1)
		}
		return append(r, 0)
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(match, 1, 6, func(m Match) string { return fmt.Sprint(m) }).Draw(t, "matches")
		var sources []*Source
		for i, m := range all {
			sources = append(sources, openSource(fmt.Sprint("s", i), m))
		}
		table, err := NewSources(sources, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			var path strings.Builder
			for range rapid.IntRange(1, 4).Draw(t, "segments") {
				path.WriteString("/" + rapid.SampledFrom([]string{"a", "b", "c", "x", "x*"}).Draw(t, "segment"))
			}
			method := rapid.SampledFrom([]string{"GET", "PUT"}).Draw(t, "request")
			want := ""
			var best []int
			for i, m := range all {
				if fits(m, method, path.String()) && (best == nil || slices.Compare(rank(m), best) > 0) {
					want, best = sources[i].Name, rank(m)
				}
			}
			got := ""
			if s, _ := table.Lookup("", method, path.String()); s != nil {
				got = s.Name
			}
			if got != want {
				t.Fatalf("%s %s: %q, want %q of %+v", method, path.String(), got, want, all)
			}
		}
	})
}

func TestTenantAt(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{"/a": math.MaxInt, "": math.MaxInt, "/{tenant}": 1, "/a/{tenant}": 2, "/a/{tenant}/b": 2} {
		if got := (Match{Path: path}).TenantAt(); got != want {
			t.Errorf("TenantAt(%q) = %d, want %d", path, got, want)
		}
	}
}
