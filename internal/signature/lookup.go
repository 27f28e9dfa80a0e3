package signature

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Path is where a value stands in the JSON of a message, in the words of ValueSpec.JSON. The zero value stands for the
// document itself. It is immutable.
type Path struct {
	text  string
	paths []jsonPath
}

// ParsePath reads a path; "" gives the zero value.
func ParsePath(s string) (Path, error) {
	if s == "" {
		return Path{}, nil
	}
	paths, err := parseJSONPaths(s)
	return Path{text: s, paths: paths}, err
}

// String returns the path as it was written.
func (p Path) String() string { return p.text }

// IsZero reports whether p is the zero value.
func (p Path) IsZero() bool { return p.text == "" }

// Equal reports whether o was written like p.
func (p Path) Equal(o Path) bool { return p.text == o.text }

// Find returns the value at p in doc, as ValueSpec.JSON says. It reports false where there is none, and for the zero path.
func (p Path) Find(doc []byte) (string, bool) {
	if p.IsZero() {
		return "", false
	}
	return lookupJSON(doc, p.paths)
}

// Array is an array in a document, of which it holds views.
type Array struct {
	doc   []byte
	first int // offset of what follows the opening bracket
	last  int // offset of the closing one
	items [][]byte
}

// Elements finds the array at p in doc. It reports false where there is none, and where it has more elements than the most that
// any sender puts into a request, twice over. A p of several paths finds none.
func (p Path) Elements(doc []byte) (Array, bool) {
	if len(p.paths) > 1 {
		return Array{}, false
	}
	mark := len(doc) - len(bytes.TrimPrefix(doc, []byte("\xef\xbb\xbf")))
	s := scanner{b: doc, i: mark}
	if len(p.paths) == 1 {
		for _, name := range p.paths[0] {
			if !s.enter(name) {
				return Array{}, false
			}
		}
	}
	if s.peek() != '[' {
		return Array{}, false
	}
	s.i++
	a := Array{doc: doc, first: s.i}
	for s.peek() != ']' {
		raw, ok := s.skip()
		if !ok || len(raw) == 0 || len(a.items) == maxItems {
			return Array{}, false
		}
		a.items = append(a.items, raw)
		switch s.peek() {
		case ',':
			s.i++
			if s.peek() == ']' {
				return Array{}, false
			}
		case ']':
		default:
			return Array{}, false
		}
	}
	a.last = s.i
	return a, true
}

// Len is the number of elements.
func (a Array) Len() int { return len(a.items) }

// Item returns an element as it is written.
func (a Array) Item(i int) []byte { return a.items[i] }

// Around is the number of bytes that the document has beside the elements of the array.
func (a Array) Around() int { return len(a.doc) - (a.last - a.first) }

// Alone returns a copy of the document in which the array holds that element alone. All other bytes are the same.
func (a Array) Alone(i int) []byte {
	b := make([]byte, 0, a.Around()+len(a.items[i]))
	b = append(b, a.doc[:a.first]...)
	b = append(b, a.items[i]...)
	return append(b, a.doc[a.last:]...)
}

// ReadsBody reports whether paths are read from the body as it was received, for every scheme of v: it is neither unzipped nor
// a field of a form.
func (v *Verifier) ReadsBody() bool {
	for _, s := range v.schemes {
		if s.spec.Body == Decoded || s.spec.Document != "" {
			return false
		}
	}
	return true
}

// Document returns what paths are read from in a message that Verify found to be good: the body, but where a scheme unzips it, or
// finds it in a form. It may be a view of the message's body.
func (v *Verifier) Document(m *Message) []byte {
	for _, s := range v.schemes {
		if s.spec.Body != Decoded && s.spec.Document == "" {
			continue
		}
		r := newReader(m, s, nil)
		ok := r.readBody() == ReasonOK && r.readDocument() == ReasonOK
		doc := r.doc
		r.free()
		if ok {
			return doc
		}
	}
	return m.Body
}

// within reports whether a value at the scheme's id stands in an element of the array at p.
func (p Path) within(id place) bool {
	if id.kind != placeJSON {
		return false
	}
	var array jsonPath
	if len(p.paths) == 1 {
		array = p.paths[0]
	}
	for _, one := range id.paths {
		if len(one) <= len(array) {
			continue
		}
		inside := true
		for i := range array {
			inside = inside && one[i] == array[i]
		}
		if _, err := strconv.Atoi(one[len(array)]); inside && err == nil {
			return true
		}
	}
	return false
}

// compileReading checks what the scheme says for its users.
func (s *scheme) compileReading() error {
	if e := s.spec.Events; e != nil {
		paths := make(map[string]Path)
		for _, f := range []struct{ name, text string }{{"json", e.JSON}, {"id", e.ID}, {"type", e.Type}} {
			p, err := ParsePath(f.text)
			if err != nil {
				return fmt.Errorf("events.%s: %w", f.name, err)
			}
			paths[f.name] = p
		}
		if err := s.checkEvents(paths["json"]); err != nil {
			return err
		}
	}
	if l := s.spec.Live; l != nil {
		if _, err := ParsePath(l.JSON); err != nil {
			return fmt.Errorf("live.json: %w", err)
		}
	}
	return nil
}

// checkEvents says what is wrong with p as the path of the array of events: the request needs an id of its own then.
func (s *scheme) checkEvents(p Path) error {
	switch {
	case len(p.paths) > 1:
		return errors.New("events.json: one path, without +")
	case s.spec.ID.None:
		return errors.New("events: the request needs an id too; write id: {hash: true}")
	case p.within(s.id):
		return errors.New("id: stands in one event of the request; write what is the whole request's, or hash: true")
	}
	return nil
}

// HasID reports whether every scheme gives a message an id, its hash counted.
func (v *Verifier) HasID() bool {
	return !slices.ContainsFunc(v.schemes, func(s *scheme) bool { return s.spec.ID.None })
}
