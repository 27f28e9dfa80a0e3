package signature

import (
	"slices"
	"strings"
	"time"
)

// Verify reports whether m was signed with one of keys under one of the schemes of v, and what the sender says of it.
// Only keys that this Verifier's ParseKey, or that of an equal scheme, made are ever used, and at most 8 live ones.
// now is compared with the signed time at a resolution of one second, |now-t| <= tolerance; a message whose time is out
// of the window and whose signature is bad has a bad signature. It keeps no reference to m and never panics.
func (v *Verifier) Verify(m *Message, keys []Key, now time.Time, tolerance time.Duration) Verdict {
	return v.verify(m, keys, now, tolerance, nil)
}

func (v *Verifier) verify(m *Message, keys []Key, now time.Time, tolerance time.Duration, trace *Explanation) Verdict {
	if v.peer != nil {
		if reason := v.peer.judge(m, keys, now, trace); reason != ReasonOK {
			return Verdict{Reason: reason, Key: -1}
		}
	}
	if v.beside != nil {
		return v.beside.verify(m, keys, now, tolerance, trace)
	}
	chosen, reason := v.choose(m, keys, now, trace)
	if reason != ReasonOK {
		return Verdict{Reason: reason, Key: -1}
	}
	refusal := Verdict{Reason: ReasonWrongScheme, Key: -1}
	for _, i := range chosen.schemes {
		s := v.schemes[i]
		if len(chosen.schemes) > 1 && !v.usable(keys, now, i) {
			continue
		}
		r := newReader(m, s, trace)
		verdict := r.verify(keys, now, tolerance)
		r.free()
		if verdict.Reason == ReasonOK {
			return verdict
		}
		// Of several versions in one header the one that came says more than the one that did not.
		if refusal.Reason == ReasonWrongScheme {
			refusal = verdict
		}
	}
	return refusal
}

// usable reports whether one of the schemes has a live key of its kind. Where no scheme has one, all are usable: what
// is wrong with the message is then told as always, up to a signature that no key fits.
func (v *Verifier) usable(keys []Key, now time.Time, schemes ...int) bool {
	none := true
	for i := range keys {
		if !keys[i].live(now) {
			continue
		}
		for j, s := range v.schemes {
			if keys[i].m.kind == s.kind {
				none = false
				if slices.Contains(schemes, j) {
					return true
				}
			}
		}
	}
	return none
}

// choose picks the header set that the message was signed under, among those that there is a key for. Of two sets
// that are there whole the first counts, if both say the same; a set that is there in part beside another is refused.
func (v *Verifier) choose(m *Message, keys []Key, now time.Time, trace *Explanation) (*headerSet, Reason) {
	var whole, part *headerSet
	foreign := false
	for i := range v.sets {
		set := &v.sets[i]
		have, want := set.count(m)
		switch {
		case len(v.sets) > 1 && !v.usable(keys, now, set.schemes...):
			foreign = foreign || have > 0
		case want > 0 && have == 0:
		case have < want && part == nil:
			part = set
		case have < want || whole != nil && !whole.agrees(set, m):
			trace.note("headers of several schemes are mixed")
			return nil, ReasonMalformedSignature
		case whole == nil:
			whole = set
		}
	}
	switch {
	case whole != nil && part != nil:
		trace.note("headers of several schemes are mixed")
		return nil, ReasonMalformedSignature
	case whole != nil:
		return whole, ReasonOK
	case part != nil && part.signature != "":
		if _, found := m.field(part.signature); found != absent {
			return part, ReasonOK // goes on to say what is missing
		}
	}
	if foreign || v.otherScheme(m) {
		trace.note("only headers of another scheme came")
		return nil, ReasonWrongScheme
	}
	trace.note("no signature came")
	return nil, ReasonMissingSignature
}

// count returns how many headers of the set are there, and how many there are in a whole one.
func (set *headerSet) count(m *Message) (have, want int) {
	for i, name := range [...]string{set.signature, set.timestamp, set.id} {
		if name == "" {
			continue
		}
		want++
		_, found := m.field(name)
		for j := 0; i == 0 && found == absent && j < len(set.also); j++ {
			_, found = m.field(set.also[j])
		}
		if found != absent {
			have++
		}
	}
	return have, want
}

// agrees reports whether two whole sets say the same of id and time, where both have them.
func (set *headerSet) agrees(other *headerSet, m *Message) bool {
	for _, names := range [...][2]string{{set.timestamp, other.timestamp}, {set.id, other.id}} {
		if names[0] == "" || names[1] == "" {
			continue
		}
		a, foundA := m.field(names[0])
		b, foundB := m.field(names[1])
		if foundA != present || foundB != present || a != b {
			return false
		}
	}
	return true
}

func (v *Verifier) otherScheme(m *Message) bool {
	for _, name := range v.others {
		if _, found := m.field(name); found != absent {
			return true
		}
	}
	return false
}

// verify judges the message under the reader's scheme.
func (r *reader) verify(keys []Key, now time.Time, tolerance time.Duration) Verdict {
	if reason := r.open(); reason != ReasonOK {
		return Verdict{Reason: reason, Key: -1}
	}
	if r.s.each != nil {
		return r.verifyEach(keys, now, tolerance)
	}
	return r.judge(keys, now, tolerance)
}

// judge does so for what has been opened: the message, or one element of it.
func (r *reader) judge(keys []Key, now time.Time, tolerance time.Duration) Verdict {
	refuse := func(reason Reason) Verdict { return Verdict{Reason: reason, Key: -1} }
	reason := r.read()
	if reason != ReasonOK {
		return refuse(reason)
	}
	var signed time.Time
	if t := r.s.spec.Timestamp; t != nil {
		var ok bool
		if signed, ok = parseTime(r.timestamp, t.Unit); !ok {
			r.note("the timestamp is no time in %s", t.Unit)
			return refuse(ReasonBadTimestamp)
		}
	}
	if r.trace != nil {
		r.trace.signed(r)
	}
	index := 0 // MTLS: who sent was judged before
	if r.s.spec.Algorithm != MTLS {
		index = r.match(keys, now)
	}
	switch {
	case index < 0 && r.away:
		return Verdict{Reason: ReasonKeyUnavailable, Key: -1, Want: r.want}
	case index < 0:
		return Verdict{Reason: ReasonBadSignature, Key: -1, Want: r.want}
	}
	if !r.bodyHashMatches() {
		return refuse(ReasonBadSignature)
	}
	if t := r.s.spec.Timestamp; t != nil {
		if reason := judgeTime(signed, now, tolerance, t.Window); reason != ReasonOK {
			r.note("the signed time is %s; now is %s, the tolerance %s", signed.Format(time.RFC3339), now.UTC().Format(time.RFC3339), tolerance)
			return Verdict{Reason: reason, Key: index}
		}
	}
	verdict := Verdict{Reason: ReasonOK, Key: index, Time: signed}
	r.identify(&verdict)
	return verdict
}

// open checks what holds for the whole message, and finds its body and document.
func (r *reader) open() Reason {
	s := r.s
	for i := range s.require {
		value, found := r.m.field(s.require[i].Header)
		switch {
		case found == repeated:
			return r.twice(place{kind: placeHeader, name: s.require[i].Header})
		case found == absent:
			r.note("header %s is missing", s.require[i].Header)
			return ReasonMissingSignature
		case s.require[i].Value != "" && value != s.require[i].Value:
			r.note("header %s has another value than the scheme's", s.require[i].Header)
			return ReasonWrongScheme
		}
	}
	if reason := r.readBody(); reason != ReasonOK {
		return reason
	}
	return r.readDocument()
}

// read finds everything that the signature is checked against. Nothing is parsed but what the scheme signs field by
// field.
func (r *reader) read() Reason {
	s := r.s
	if s.spec.Algorithm == MTLS {
		if reason := r.readHeaders(); reason != ReasonOK {
			return reason
		}
		return r.resolve()
	}
	found := false
	for i := -1; i < len(s.spec.Signature.Also); i++ {
		p := s.signature
		if i >= 0 {
			p = place{kind: placeHeader, name: s.spec.Signature.Also[i]}
		}
		field, have := r.find(p)
		switch have {
		case absent:
			continue
		case repeated:
			return r.twice(p)
		}
		found = true
		if s.spec.Algorithm == Basic {
			return r.readBasic(field)
		}
		if reason := r.readSignatures(field); reason != ReasonOK {
			return reason
		}
	}
	if !found {
		r.note("%s is missing", s.signature)
		return ReasonMissingSignature
	}
	if reason := r.readTimestamp(); reason != ReasonOK {
		return reason
	}
	if reason := r.readHeaders(); reason != ReasonOK {
		return reason
	}
	return r.resolve()
}

func (r *reader) twice(p place) Reason {
	r.note("%s came more than once", p)
	return ReasonMalformedSignature
}

// readBasic takes "Basic dXNlcjpwYXNz" apart (RFC 7617); the word is in any case.
func (r *reader) readBasic(field string) Reason {
	word, credentials, ok := strings.Cut(field, " ")
	if !ok || !strings.EqualFold(word, "basic") {
		r.note("%s is not of Basic authentication", r.s.signature)
		return ReasonWrongScheme
	}
	n := len(r.arena)
	out, ok := decode(r.arena, credentials, Base64)
	if len(field) > maxSignatureBytes || !ok {
		return ReasonMalformedSignature
	}
	r.arena = out
	r.sigs = append(r.sigs, out[n:len(out):len(out)])
	if reason := r.readHeaders(); reason != ReasonOK {
		return reason
	}
	return r.resolve()
}

func (r *reader) readTimestamp() Reason {
	p := r.s.timestamp
	if p.kind == placeNone {
		return ReasonOK
	}
	text, found := r.find(p)
	switch {
	case found == repeated, found == present && strings.IndexByte(text, ',') >= 0:
		return r.twice(p)
	case found == absent:
		r.note("%s is missing", p)
		return ReasonBadTimestamp
	}
	r.timestamp = text
	return ReasonOK
}

// readHeaders looks at the headers that tell id and type. No sender's ids or types hold a comma: that is two fields
// that someone joined.
func (r *reader) readHeaders() Reason {
	for _, p := range [...]*place{&r.s.id, &r.s.typ} {
		if p.kind != placeHeader {
			continue
		}
		value, found := r.m.field(p.name)
		if found == repeated || strings.IndexByte(value, ',') >= 0 {
			return r.twice(*p)
		}
	}
	if !uses(r.s.parts, partID) {
		return ReasonOK
	}
	id, found := r.find(r.s.id)
	switch {
	case found == repeated:
		return r.twice(r.s.id)
	case found == absent || id == "":
		r.note("%s is missing, and signed", r.s.id)
		return ReasonMissingSignature
	}
	r.id = id
	return ReasonOK
}
