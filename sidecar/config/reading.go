package config

import (
	"fmt"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// reading checks what a source reads of an event beside its id and type, and compiles it into s. The paths that a provider gives
// are filled into m.
func (l *loader) reading(path string, m *configv1.Source, p preset, s *extauthz.Source) {
	s.Events = l.events(path, p)
	s.Version = l.version(path+".version", m, p)
	s.Change = l.sameChange(path+".dedupe.also", m, p)
	s.Live = l.liveOnly(path+".live_only", m, p)
	s.Split = l.split(path+".split", m, p)
}

// events compiles where the events of a request stand; nil: a request is one.
func (l *loader) events(path string, p preset) *extauthz.EventsRule {
	if p.events == nil || p.verifier == nil {
		return nil
	}
	return &extauthz.EventsRule{Array: l.jsonPath(path, p.events.JSON), ID: l.jsonPath(path, p.events.ID), Type: l.jsonPath(path, p.events.Type)}
}

// jsonPath compiles a path, and notes what is wrong with it.
func (l *loader) jsonPath(path, text string) signature.Path {
	compiled, err := signature.ParsePath(text)
	if err != nil {
		l.errorf(path, "%v", err)
	}
	return compiled
}

// oneEvent notes why a rule about one event cannot hold for the requests of a source, and reports whether it can.
func (l *loader) oneEvent(path string, m *configv1.Source, p preset) bool {
	switch {
	case p.verifier == nil && m.GetVerify() == "": // noted elsewhere
	case p.verifier == nil:
		l.errorf(path, "nobody vouches for what a request says that is not verified; leave this out")
	case !p.verifier.HasID():
		l.errorf(path, "the events have no id under which one could be kept; leave this out, or write a scheme with an id")
	case p.events != nil && !m.GetSplit():
		l.errorf(path, "a request of %s may carry several events, and this reads one; leave this out, or keep each by itself: "+
			"mode: STORE with split: true", p.name)
	default:
		return true
	}
	return false
}

// version compiles which events are too old.
func (l *loader) version(path string, m *configv1.Source, p preset) extauthz.VersionRule {
	v := m.GetVersion()
	if v == nil || !l.oneEvent(path, m, p) {
		return extauthz.VersionRule{}
	}
	if v.GetObject() == "" {
		v.Object = p.object
	}
	if v.GetNumber() == "" && v.GetTime() == "" && p.version != nil {
		v.Number, v.Time = p.version.Number, p.version.Time
	}
	switch {
	case v.GetNumber() != "" && v.GetTime() != "":
		l.errorf(path, "number and time exclude each other; remove one")
	case v.GetObject() == "" && v.GetNumber()+v.GetTime() == "":
		l.errorf(path, "%s does not say where an event tells its object and version; write object, and number or time, or leave this out", p.name)
	case v.GetObject() == "":
		l.errorf(path+".object", "is required: %s does not say where an event tells its object; write a path, such as data.object.id", p.name)
	case v.GetNumber()+v.GetTime() == "":
		l.errorf(path, "%s does not say where an event tells how new it is; write number or time, such as time: updated_at", p.name)
	}
	rule := extauthz.VersionRule{Object: l.jsonPath(path+".object", v.GetObject()), Time: v.GetTime() != ""}
	if rule.Time {
		rule.At = l.jsonPath(path+".time", v.GetTime())
	} else {
		rule.At = l.jsonPath(path+".number", v.GetNumber())
	}
	return rule
}

// sameChange compiles which events tell of one change.
func (l *loader) sameChange(path string, m *configv1.Source, p preset) extauthz.ChangeRule {
	also := m.GetDedupe().GetAlso()
	if also == nil || !l.oneEvent(path, m, p) {
		return extauthz.ChangeRule{}
	}
	for i, t := range also.GetTypes() {
		if why := badTypePattern(t); why != "" {
			l.errorf(fmt.Sprintf("%s.types[%d]", path, i), "%s: %s", quote(t), why)
		}
	}
	if !p.verifier.HasType() {
		l.errorf(path, "%s says nothing of an event's type; leave this out, or write a scheme with a type", p.name)
	}
	window := also.GetWindow().AsDuration()
	if retention := m.GetRetention().AsDuration(); window > retention {
		l.errorf(path+".window", "%s is above the retention, %s; write at most that", formatDuration(window), formatDuration(retention))
	}
	return extauthz.ChangeRule{Object: l.jsonPath(path+".object", also.GetObject()), Types: also.GetTypes(), Window: window}
}

// liveOnly compiles what tells events of the real world from others, where only they are to reach the app.
func (l *loader) liveOnly(path string, m *configv1.Source, p preset) extauthz.LiveRule {
	switch {
	case !m.GetLiveOnly() || p.verifier == nil && m.GetVerify() == "":
	case p.verifier == nil:
		l.errorf(path, "nobody vouches for the mode of a request that is not verified; leave this out")
	case p.live == nil:
		l.errorf(path, "%s says nothing of an event's mode; leave this out, or write a scheme with live", p.name)
	default:
		value := p.live.Value
		if value == "" {
			value = "true"
		}
		return extauthz.LiveRule{JSON: l.jsonPath(path, p.live.JSON), Value: value}
	}
	return extauthz.LiveRule{}
}

// split checks that the events of a request can be kept each by itself.
func (l *loader) split(path string, m *configv1.Source, p preset) bool {
	switch {
	case !m.GetSplit() || p.verifier == nil && m.GetVerify() == "":
		return false
	case m.GetMode() != configv1.Mode_MODE_STORE:
		l.errorf(path, "is for mode: STORE: in PASS the request itself goes to the app")
	case p.events == nil:
		l.errorf(path, "%s sends one event in a request; leave this out, or write a scheme with events", p.name)
	case !p.verifier.ReadsBody():
		l.errorf(path, "the events of %s do not stand in the body as it is received; leave this out", p.name)
	}
	return true
}
