package extauthz

import (
	"slices"
	"strings"
	"testing"
)

func TestAmbiguous(t *testing.T) {
	t.Parallel()
	reporting := openSource("reporting", Match{PathPrefix: "/reports"})
	reporting.Enforce = EnforceReport
	table := mustSources(t, []*Source{
		openSource("stripe", Match{PathPrefix: "/webhooks/stripe"}),
		openSource("github", Match{Path: "/webhooks/github"}),
		openSource("hosted", Match{Host: "hooks.example", Path: "/in"}),
		reporting,
	}, Match{PathPrefix: "/"}, Match{Path: "/webhooks/stripe/health"})
	for _, tt := range []struct {
		name, path string
		host       string
		want       string // the source that another reading belongs to
	}{
		{name: "raw path of a source", path: "/webhooks/stripe/v1"},
		{name: "plain open path", path: "/api/v1/users"},
		{name: "open path with everything, far from a source", path: "/a;b/..//c%20d\\E"},
		{name: "open path below a source", path: "/webhooks/stripe/health"},
		{name: "open path below a source, escaped", path: "/webhooks/stripe/health%20x"},
		{name: "escaped letter", path: "/webhooks/%73tripe", want: "stripe"},
		{name: "escaped slash", path: "/webhooks%2fstripe", want: "stripe"},
		{name: "escaped slash, capital", path: "/webhooks%2Fstripe", want: "stripe"},
		{name: "escaped twice", path: "/webhooks%252fstripe", want: "stripe"},
		{name: "escaped three times is no reading", path: "/webhooks%25252fstripe"},
		{name: "dot segments", path: "/open/../webhooks/stripe", want: "stripe"},
		{name: "single dot", path: "/./webhooks/stripe", want: "stripe"},
		{name: "more dots than segments", path: "/../../webhooks/stripe", want: "stripe"},
		{name: "escaped dots", path: "/open/%2e%2e/webhooks/stripe", want: "stripe"},
		{name: "dots escaped twice", path: "/open/%252e%252E/webhooks/stripe", want: "stripe"},
		{name: "double slash", path: "/webhooks//stripe", want: "stripe"},
		{name: "double slash in front", path: "//webhooks/stripe", want: "stripe"},
		// Go's url.Parse takes //x for a host and leaves the rest as the path.
		{name: "authority", path: "//x/webhooks/stripe", want: "stripe"},
		{name: "authority after unescaping", path: "/%2fx/webhooks/stripe", want: "stripe"},
		{name: "absolute form", path: "http://x/webhooks/stripe", want: "stripe"},
		{name: "backslash", path: `/webhooks\stripe`, want: "stripe"},
		{name: "escaped backslash", path: `/webhooks%5cstripe`, want: "stripe"},
		{name: "parameter", path: "/webhooks;v=1/stripe", want: "stripe"},
		{name: "escaped parameter", path: "/webhooks%3bv=1/stripe", want: "stripe"},
		{name: "parameter that hides dots", path: "/open/..;x/webhooks/stripe", want: "stripe"},
		{name: "case", path: "/Webhooks/STRIPE", want: "stripe"},
		{name: "case of another script", path: "/webhoo\u212as/stripe", want: "stripe"},
		{name: "case after unescaping", path: "/webhooks/%53tripe", want: "stripe"},
		{name: "all at once", path: `/x/%252e%252e\Webhooks;a=b%2f/%53TRIPE`, want: "stripe"},
		{name: "final slash of an exact path", path: "/webhooks/github/", want: "github"},
		{name: "final dot of an exact path", path: "/webhooks/github/.", want: "github"},
		{name: "parameter of an exact path", path: "/webhooks/github;x", want: "github"},
		// A proxy that decodes a path and sends it on as a target makes a query of it; C ends a string at a zero byte.
		{name: "escaped query", path: "/webhooks/github%3fx", want: "github"},
		{name: "escaped query, twice", path: "/webhooks/stripe%253Fx", want: "stripe"},
		{name: "escaped fragment", path: "/webhooks/github%23x", want: "github"},
		{name: "escaped zero byte", path: "/webhooks/github%00.json", want: "github"},
		{name: "escaped query of an open path", path: "/api/search%3Fpath=/webhooks/github"},
		{name: "escaped newline at the end", path: "/webhooks/github%0a", want: "github"},
		{name: "escaped blank at the end, twice", path: "/webhooks/stripe%2520", want: "stripe"},
		{name: "escaped blank within", path: "/webhooks/git%20hub"},
		// Rails' routes end in (.:format) unless told otherwise.
		{name: "format", path: "/webhooks/github.json", want: "github"},
		{name: "format of a prefix", path: "/webhooks/stripe.tar.gz", want: "stripe"},
		{name: "format, escaped", path: "/webhooks/github%2ejson", want: "github"},
		{name: "format and other case", path: "/webhooks/GitHub.JSON", want: "github"},
		{name: "empty format", path: "/webhooks/github.", want: "github"},
		{name: "format before a slash", path: "/webhooks/github.json/", want: "github"},
		{name: "format far from a source", path: "/assets/app.min.js"},
		{name: "file that begins with a dot", path: "/webhooks/.github"},
		{name: "format of a path of another source", path: "/webhooks/stripe/github.json"},
		// Stripe's secret must not vouch for what the app takes for GitHub's.
		{name: "from one source to another", path: "/webhooks/stripe/../github", want: "github"},
		{name: "within one source", path: "/webhooks/stripe/../stripe/x"},
		{name: "out of a source into the open", path: "/webhooks/stripe/../../api"},
		{name: "source of a host", host: "hooks.example", path: "//in", want: "hosted"},
		{name: "source of another host", host: "api.example", path: "//in"},
		{name: "source that reports", path: "//reports", want: "reporting"},
		{name: "not a path", path: "*"},
		{name: "broken escapes", path: "/webhooks/%zz%7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			raw := table.find(tt.host, "POST", tt.path)
			i, overflow := table.ambiguous(tt.host, "POST", tt.path, raw)
			got := ""
			if i >= 0 {
				got = table.sources[i].Name
			}
			if got != tt.want || overflow {
				t.Errorf("ambiguous(%q) = %q, overflow %v; want %q", tt.path, got, overflow, tt.want)
			}
		})
	}
}

// Matches with capitals: a path in small letters is then the loose form of something too.
func TestAmbiguousCapitalMatch(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{
		openSource("capital", Match{Path: "/Hook"}),
		openSource("small", Match{Path: "/other"}, Match{Path: "/both"}),
		openSource("both", Match{Path: "/Both"}),
	}, Match{PathPrefix: "/"})
	for path, want := range map[string]int{
		"/hook":  0,
		"/HOOK":  0,
		"/Hook":  noRoute, // its own
		"/other": noRoute,
		"/both":  noRoute, // two sources that differ in case only are what the user wrote
		"/Both":  noRoute,
	} {
		if got, _ := table.ambiguous("", "POST", path, table.find("", "POST", path)); got != want {
			t.Errorf("ambiguous(%q) = %d, want %d", path, got, want)
		}
	}
}

// Two sources that differ in a format only are what the user wrote.
func TestAmbiguousFormatOfTwoSources(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{
		openSource("plain", Match{Path: "/hook"}),
		openSource("eu", Match{Path: "/hook.eu"}),
	}, Match{PathPrefix: "/"})
	for path, want := range map[string]int{
		"/hook":    noRoute,
		"/hook.eu": noRoute,
		"/hook.us": 0,
		"/Hook.eu": 1,
	} {
		if got, _ := table.ambiguous("", "POST", path, table.find("", "POST", path)); got != want {
			t.Errorf("ambiguous(%q) = %d, want %d", path, got, want)
		}
	}
}

// One that enforces counts before one that reports, whichever reading comes first.
func TestAmbiguousPrefersEnforced(t *testing.T) {
	t.Parallel()
	reporting := openSource("reporting", Match{Path: "/a/b"})
	reporting.Enforce = EnforceReport
	enforced := openSource("enforced", Match{Path: "/A%2Fb"})
	table := mustSources(t, []*Source{reporting, enforced}, Match{PathPrefix: "/"})
	if got, _ := table.ambiguous("", "POST", "/A%252Fb", openRoute); got != 1 {
		t.Errorf("ambiguous = %d, want the source that enforces", got)
	}
}

// A path that could cost without bound is refused, in bounded time.
func TestAmbiguousIsBounded(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{openSource("a", Match{Path: "/a"})}, Match{PathPrefix: "/"})
	path := "/" + strings.Repeat(`x%25252e;p//..\`, 4000)
	i, overflow := table.ambiguous("", "POST", path, openRoute)
	if i != noRoute || !overflow {
		t.Errorf("ambiguous = %d, overflow %v; want none, true", i, overflow)
	}
	long := "/" + strings.Repeat("é", 20000)
	if i, overflow := table.ambiguous("", "POST", long, openRoute); i != noRoute || overflow {
		t.Errorf("ambiguous of a long path = %d, overflow %v; want none, false", i, overflow)
	}
}

func TestEachReading(t *testing.T) {
	t.Parallel()
	var got []string
	if whole := eachReading("/a%2f..%2fb", func(p string) bool { got = append(got, p); return true }); !whole {
		t.Fatal("not all readings were shown")
	}
	want := []string{"/a%2f..%2fb", "/a/../b", "/b"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(slices.Compact(got), slices.Compact(want)) {
		t.Errorf("readings %q, want %q", got, want)
	}
}

// What is said to be plain has no other reading, letters aside: the fast way must not hide one.
func FuzzPlain(f *testing.F) {
	for _, seed := range []string{"/", "/a", "/a/", "/a//b", "/a/./b", "/.well-known", "/a..b", "//h/a", "/a;b", "/%41", "*", "", "/A", "h://x/y",
		"/ ", "/a\n", "/a\x00b", "/a?b", "/a#b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if one, _ := plain(path); !one {
			return
		}
		eachReading(path, func(p string) bool {
			if p != path {
				t.Errorf("%q is plain, but reads %q too", path, p)
			}
			return true
		})
	})
}
