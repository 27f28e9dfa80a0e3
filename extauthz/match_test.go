package extauthz

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// openSource is a valid source without a verifier.
func openSource(name string, matches ...Match) *Source {
	return &Source{Name: name, Matches: matches, Enforce: EnforceOn, OnUnknown: OnUnknownRetry, Lease: time.Minute}
}

// mustSources builds a table that is expected to be good.
func mustSources(t testing.TB, sources []*Source, open ...Match) *Sources {
	t.Helper()
	s, err := NewSources(sources, open)
	if err != nil {
		t.Fatalf("NewSources: %v", err)
	}
	return s
}

func TestLookupOrder(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{
		openSource("everything", Match{PathPrefix: "/hooks"}),
		openSource("longer", Match{PathPrefix: "/hooks/stripe/"}),
		openSource("exact", Match{Path: "/hooks/a"}),
		openSource("host", Match{Host: "Hooks.Example", PathPrefix: "/"}),
		openSource("port", Match{Host: "hooks.example:8443", PathPrefix: "/"}),
		openSource("method", Match{PathPrefix: "/hooks/stripe", Method: "PUT"}),
		openSource("shared", Match{Path: "/shared"}),
		openSource("slash", Match{Path: "/with/"}),
	}, Match{PathPrefix: "/"}, Match{Path: "/hooks/a/health"}, Match{Path: "/shared"})
	for _, tt := range []struct {
		name, host, method, path string
		want                     string // a source, "open", or nothing
	}{
		{name: "prefix itself", path: "/hooks", want: "everything"},
		{name: "prefix and a slash", path: "/hooks/", want: "everything"},
		// A prefix ends at a segment: the next route's name may begin with it.
		{name: "no whole segment", path: "/hooksmith", want: "open"},
		{name: "longer prefix first", path: "/hooks/stripe/v1", want: "longer"},
		{name: "path before prefix", path: "/hooks/a", want: "exact"},
		{name: "path is exact", path: "/hooks/a/", want: "everything"},
		{name: "open may be more particular", path: "/hooks/a/health", want: "open"},
		{name: "source before open", path: "/shared", want: "shared"},
		{name: "host before longer path", host: "hooks.example", path: "/hooks/stripe", want: "host"},
		{name: "host in any case", host: "HOOKS.example", path: "/x", want: "host"},
		{name: "host with a port nobody named", host: "hooks.example:443", path: "/x", want: "host"},
		{name: "host with its final dot", host: "hooks.example.", path: "/x", want: "host"},
		{name: "host with the port that a match names", host: "hooks.example:8443", path: "/x", want: "port"},
		{name: "IPv6 host", host: "[::1]:80", path: "/hooks", want: "everything"},
		{name: "method before none", method: "PUT", path: "/hooks/stripe", want: "method"},
		{name: "method is exact", method: "put", path: "/hooks/stripe", want: "longer"},
		{name: "raw path only: case", path: "/Hooks", want: "open"},
		{name: "raw path only: escape", path: "/%68ooks", want: "open"},
		{name: "final slash is part of an exact path", path: "/with/", want: "slash"},
		{name: "rest", path: "/", want: "open"},
		{name: "no path", path: "*"},
		{name: "empty path", path: ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			source, open := table.Lookup(tt.host, tt.method, tt.path)
			got := ""
			switch {
			case source != nil:
				got = source.Name
			case open:
				got = "open"
			}
			if got != tt.want {
				t.Errorf("Lookup(%q, %q, %q) = %q, want %q", tt.host, tt.method, tt.path, got, tt.want)
			}
		})
	}
}

func TestNewSourcesRefuses(t *testing.T) {
	t.Parallel()
	with := func(change func(*Source)) []*Source {
		s := openSource("a", Match{Path: "/a"})
		change(s)
		return []*Source{s}
	}
	for _, tt := range []struct {
		name    string
		sources []*Source
		open    []Match
		want    error
	}{
		{name: "same name", sources: []*Source{openSource("a", Match{Path: "/a"}), openSource("a", Match{Path: "/b"})}, want: ErrDuplicateName},
		// Claims under the earlier name would be taken for the other source's.
		{name: "earlier name of a living one", sources: append(with(func(s *Source) { s.Was = []string{"b"} }), openSource("b", Match{Path: "/b"})), want: ErrDuplicateName},
		{name: "own name as an earlier one", sources: with(func(s *Source) { s.Was = []string{"a"} }), want: ErrDuplicateName},
		{name: "same match", sources: []*Source{openSource("a", Match{Path: "/a"}), openSource("b", Match{Path: "/a"})}, want: ErrDuplicateMatch},
		{name: "same prefix, one with a slash", sources: []*Source{openSource("a", Match{PathPrefix: "/a"}), openSource("b", Match{PathPrefix: "/a/"})}, want: ErrDuplicateMatch},
		{name: "same match, host in other letters", sources: []*Source{openSource("a", Match{Host: "h", Path: "/a"}), openSource("b", Match{Host: "H", Path: "/a"})}, want: ErrDuplicateMatch},
		{name: "match without path", sources: with(func(s *Source) { s.Matches = []Match{{Host: "h"}} }), want: ErrInvalidSource},
		{name: "match with both", sources: with(func(s *Source) { s.Matches = []Match{{Path: "/a", PathPrefix: "/a"}} }), want: ErrInvalidSource},
		{name: "relative path", sources: with(func(s *Source) { s.Matches = []Match{{Path: "a"}} }), want: ErrInvalidSource},
		{name: "relative open", open: []Match{{PathPrefix: "a"}}, want: ErrInvalidSource},
		{name: "no name", sources: with(func(s *Source) { s.Name = "" }), want: ErrInvalidSource},
		{name: "name with a line end", sources: with(func(s *Source) { s.Name = "a\nb" }), want: ErrInvalidSource},
		{name: "name of the rest", sources: with(func(s *Source) { s.Name = "unknown" }), want: ErrInvalidSource},
		{name: "no enforce", sources: with(func(s *Source) { s.Enforce = 0 }), want: ErrInvalidSource},
		{name: "no on_unknown", sources: with(func(s *Source) { s.OnUnknown = 0 }), want: ErrInvalidSource},
		{name: "no lease", sources: with(func(s *Source) { s.Lease = 0 }), want: ErrInvalidSource},
		{name: "reply that no message can carry", sources: with(func(s *Source) { s.Reply = Reply{Status: 200, Body: "\xff"} }), want: ErrInvalidSource},
		{name: "reply type with a line end", sources: with(func(s *Source) { s.Reply = Reply{ContentType: "a\r\nx: y"} }), want: ErrInvalidSource},
		{name: "refusal that says success", sources: with(func(s *Source) { s.RefusalStatus = 200 }), want: ErrInvalidSource},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := NewSources(tt.sources, tt.open); !errors.Is(err, tt.want) {
				t.Errorf("NewSources: %v, want %v", err, tt.want)
			}
		})
	}
}

// One source may say the same twice, and so may open: nothing is ambiguous about it.
func TestNewSourcesTakesRepeats(t *testing.T) {
	t.Parallel()
	mustSources(t, []*Source{openSource("a", Match{Path: "/a"}, Match{Path: "/a"})}, Match{PathPrefix: "/"}, Match{PathPrefix: "/"})
}

func TestNamed(t *testing.T) {
	t.Parallel()
	a := openSource("a", Match{Path: "/a"})
	a.Was = []string{"old"}
	table := mustSources(t, []*Source{a})
	if got := table.Named("a"); got != a {
		t.Errorf("Named(a) = %v", got)
	}
	// An earlier name finds claims; a route that still uses it is a mistake that must show.
	if got := table.Named("old"); got != nil {
		t.Errorf("Named(old) = %v, want none", got.Name)
	}
}

// The order that is shown is the order that counts: every request goes to the first match that takes it.
func TestOrder(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{
		openSource("wide", Match{PathPrefix: "/hooks"}),
		openSource("named", Match{Host: "A.example", PathPrefix: "/"}),
		openSource("deep", Match{PathPrefix: "/hooks/a/b"}),
		openSource("posted", Match{PathPrefix: "/hooks", Method: "POST"}),
		openSource("exact", Match{Path: "/hooks"}),
		openSource("routed"),
	}, Match{PathPrefix: "/"}, Match{Path: "/hooks/open"})
	var got []string
	for m, s := range table.Order() {
		name := "open"
		if s != nil {
			name = s.Name
		}
		got = append(got, name+" "+m.Host+m.Path+m.PathPrefix)
	}
	want := []string{"named A.example/", "open /hooks/open", "exact /hooks", "deep /hooks/a/b", "posted /hooks", "wide /hooks", "open /"}
	if !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
	for range table.Order() {
		break // a range may end early
	}
}
