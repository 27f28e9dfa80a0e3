package main

import (
	"strings"

	"github.com/sidehook/sidehook/extauthz"
)

// reading says what a source reads of an event beside its id and type, and what that keeps from the app.
func (p *explainer) reading(s *extauthz.Source) {
	if !s.Live.JSON.IsZero() {
		p.item("live only", "where json %s is %s; what says otherwise is answered like duplicates and kept as IGNORED", s.Live.JSON, s.Live.Value)
	}
	if v := s.Version; !v.At.IsZero() {
		kind := "number"
		if v.Time {
			kind = "time"
		}
		p.item("newest", "by the %s in json %s, for each json %s; what is older is answered like duplicates and kept as STALE", kind, v.At, v.Object)
		p.item("", "while a newer one is with the app: 503")
	}
	if c := s.Change; c.Window > 0 {
		p.item("one change", "%s, of one json %s within %s: the second is answered like duplicates and kept as DUPLICATE_CHANGE",
			strings.Join(c.Types, ", "), c.Object, days(c.Window))
	}
	switch e := s.Events; {
	case e == nil:
	case s.Split:
		p.item("events", "several in a request, each kept and delivered by itself")
	case s.Mode == extauthz.ModeStore:
		p.item("events", "several in a request, which is kept and delivered as one")
	case e.ID.IsZero():
		p.item("events", "several in a request, which passes as one")
	default:
		p.item("events", "several in a request, which passes as one; those that the app has are named in x-sidehook-seen-ids")
	}
}
