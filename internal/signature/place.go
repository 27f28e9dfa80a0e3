package signature

import (
	"errors"
	"fmt"
	"strings"
)

// presence says whether a place has a value in a message.
type presence uint8

const (
	absent presence = iota
	present
	repeated // present more than once, and so refused
)

type placeKind uint8

const (
	placeNone placeKind = iota
	placeHeader
	placeJSON
	placeForm
	placeQuery
)

// place is a compiled ValueSpec.
type place struct {
	kind  placeKind
	name  string // of a header in lower case, of a form field or query parameter as written
	paths []jsonPath
}

var errOnePlace = errors.New("exactly one of header, json, form, query is needed")

// compilePlace returns placeNone for an empty spec.
func compilePlace(v ValueSpec) (place, error) {
	n := 0
	for _, s := range []string{v.Header, v.JSON, v.Form, v.Query} {
		if s != "" {
			n++
		}
	}
	switch {
	case n == 0:
		return place{}, nil
	case n > 1:
		return place{}, errOnePlace
	case v.Header != "":
		name, err := headerName(v.Header)
		return place{kind: placeHeader, name: name}, err
	case v.JSON != "":
		paths, err := parseJSONPaths(v.JSON)
		return place{kind: placeJSON, name: v.JSON, paths: paths}, err
	case v.Form != "":
		return place{kind: placeForm, name: v.Form}, nil
	default:
		return place{kind: placeQuery, name: v.Query}, nil
	}
}

// String names the place for errors and explanations.
func (p place) String() string {
	switch p.kind {
	case placeHeader:
		return "header " + p.name
	case placeJSON:
		return "json " + p.name
	case placeForm:
		return "form " + p.name
	case placeQuery:
		return "query " + p.name
	}
	return "nowhere"
}

// headerName checks a field name (RFC 9110, token) and returns it in lower case.
func headerName(s string) (string, error) {
	if s == "" {
		return "", errors.New("header: a name is needed")
	}
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return "", fmt.Errorf("header: %q is no header name", s)
		}
	}
	return strings.ToLower(s), nil
}

// field finds a header field by its lower-case name.
func (m *Message) field(name string) (string, presence) {
	value, found := "", absent
	for i := range m.Header {
		f := &m.Header[i]
		if len(f.Name) != len(name) || !strings.EqualFold(f.Name, name) {
			continue
		}
		if found != absent {
			return "", repeated
		}
		value, found = f.Value, present
	}
	return value, found
}

// query returns the raw query of the target, or of the URL where no target is given.
func (m *Message) query() string {
	target := m.Target
	if target == "" {
		target = m.URL
	}
	target, _, _ = strings.Cut(target, "#")
	_, q, _ := strings.Cut(target, "?")
	return q
}

// path returns the raw path of the target.
func (m *Message) path() string {
	p, _, _ := strings.Cut(m.Target, "?")
	return p
}

// mediaType returns the media type of Content-Type in lower case, without parameters.
func (m *Message) mediaType() (string, presence) {
	ct, found := m.field("content-type")
	ct, _, _ = strings.Cut(ct, ";")
	return strings.ToLower(strings.TrimSpace(ct)), found
}

// isForm reports whether the body is to be read as form fields. A body without a type is, as in Twilio's libraries.
func (m *Message) isForm() bool {
	mt, found := m.mediaType()
	return found == absent || found == present && mt == "application/x-www-form-urlencoded"
}

// isJSONType reports whether Content-Type promises JSON.
func (m *Message) isJSONType() bool {
	mt, found := m.mediaType()
	return found == absent || mt == "application/json" || strings.HasSuffix(mt, "+json")
}

// find reads the value at p. Form fields and JSON are read from body, which is the form of it that was signed.
func (p place) find(m *Message, body []byte) (string, presence) {
	switch p.kind {
	case placeHeader:
		return m.field(p.name)
	case placeJSON:
		v, ok := lookupJSON(body, p.paths)
		if !ok {
			return "", absent
		}
		return v, present
	case placeForm:
		if !m.isForm() {
			return "", absent
		}
		return findPair(string(body), p.name)
	case placeQuery:
		return findPair(m.query(), p.name)
	}
	return "", absent
}
