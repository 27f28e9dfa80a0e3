package config

import (
	"fmt"
	"slices"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// gate checks and compiles the inbound half.
func (l *loader) gate(m *configv1.Extauthz) *Gate {
	g := &Gate{
		Listen: l.listen("extauthz.listen", &m.Listen, reachPod), MaxBodyBytes: signature.DefaultMaxBodyBytes,
		Apps: make(map[string]*App),
	}
	for i, s := range m.GetSources() {
		path := fmt.Sprintf("extauthz.sources[%d]", i)
		source, app := l.source(path, s)
		g.Sources = append(g.Sources, source)
		if app != nil {
			g.Apps[source.Name] = app
		}
		g.MaxBodyBytes = max(g.MaxBodyBytes, source.MaxBodyBytes)
	}
	for i, o := range m.GetOpen() {
		g.Open = append(g.Open, l.match(fmt.Sprintf("extauthz.open[%d]", i), o))
	}
	l.namesApart(m.GetSources())
	l.matchesApart(g)
	if len(g.Open) == 0 {
		l.warnf("extauthz", "no open is written: all that no source claims gets 403, the app's own routes and probes too; "+
			"open: [{path_prefix: /}] lets it through")
	}
	if l.withoutSecrets || l.failed("extauthz") {
		return g
	}
	table, err := extauthz.NewSources(g.Sources, g.Open)
	if err != nil {
		l.errorf("extauthz.sources", "%v", err)
	}
	g.Table = table
	return g
}

// namesApart notes names, and earlier names, that are not one source's alone.
func (l *loader) namesApart(sources []*configv1.Source) {
	taken := map[string]string{}
	take := func(name, path string) {
		if first, ok := taken[name]; ok && name != "" {
			l.errorf(path, "%s is taken by %s; a name, also an earlier one, belongs to one source", quote(name), first)
			return
		}
		taken[name] = path
	}
	for i, s := range sources {
		take(s.GetName(), fmt.Sprintf("extauthz.sources[%d].name", i))
	}
	for i, s := range sources {
		for j, was := range s.GetWas() {
			take(was, fmt.Sprintf("extauthz.sources[%d].was[%d]", i, j))
		}
	}
}

// matchesApart notes matches of which one can never be the one that is taken.
func (l *loader) matchesApart(g *Gate) {
	for i, b := range g.Sources {
		for _, a := range g.Sources[:i] {
			if len(a.Matches) > 0 && len(b.Matches) > 0 && sameMatch(a.Matches[0], b.Matches[0]) {
				l.errorf(fmt.Sprintf("extauthz.sources[%d].match", i),
					"sources %s and %s match the same requests (%s); tell them apart by host, path or method",
					quote(a.Name), quote(b.Name), describeMatch(b.Matches[0]))
			}
		}
	}
	for i, o := range g.Open {
		l.openApart(g, i, o)
	}
}

// everyHost reports whether a source takes the paths of m under whatever host.
func (g *Gate) everyHost(m extauthz.Match) bool {
	return slices.ContainsFunc(g.Sources, func(s *extauthz.Source) bool {
		return len(s.Matches) > 0 && s.Matches[0].Host == "" && coversPath(s.Matches[0], m)
	})
}

// openApart notes what an entry of open does to sources, or that it does nothing.
func (l *loader) openApart(g *Gate, i int, o extauthz.Match) {
	path := fmt.Sprintf("extauthz.open[%d]", i)
	claimed := false
	for _, s := range g.Sources {
		if len(s.Matches) == 0 || !overlap(s.Matches[0], o) {
			continue
		}
		m := s.Matches[0]
		claimed = claimed || coversPath(m, o) || outranks(o, m)
		switch {
		case sameMatch(m, o):
			l.warnf(path, "has no effect: source %s matches the same requests (%s), and goes first", quote(s.Name), describeMatch(o))
		case outranks(o, m):
			l.warnf(path, "goes before source %s, being more exact (%s): requests that both match are let through unsigned",
				quote(s.Name), describeMatch(o))
		case m.Host != "" && o.Host == "" && !g.everyHost(m):
			l.warnf(path, "lets the path of source %s (%s) through unsigned under every other Host header, and who sends writes "+
				"that: leave host out of the source's match, or name the app's own host here", quote(s.Name), describeMatch(m))
		}
	}
	for j, other := range g.Open {
		// Inside a source's paths, or before it, even an entry that another one covers takes something from that source.
		if j != i && !claimed && coversMatch(other, o) && (!coversMatch(o, other) || j < i) {
			l.warnf(path, "has no effect beside extauthz.open[%d], which covers it (%s)", j, describeMatch(other))
			return
		}
	}
}
