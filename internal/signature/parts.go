package signature

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"slices"
	"strings"
	"time"
)

const (
	maxItems  = 1024 // elements of Spec.Each: the most that any sender puts into a request, twice over
	maxListed = 64   // headers that a sender lists as signed
	maxFields = 64   // fields of a multipart form
)

// readDocument finds the JSON that paths are read from. Where a signature covers fields of it and not the bytes, every
// reader has to find the same fields: a name that comes twice is refused, and so is what follows the document.
func (r *reader) readDocument() Reason {
	r.doc = r.body
	if name := r.s.spec.Document; name != "" {
		text, found, isForm := r.m.formField(r.body, name)
		switch {
		case found == repeated:
			return r.twice(place{kind: placeForm, name: name})
		case isForm && found == absent:
			r.note("form %s is missing", name)
			return ReasonMissingSignature
		case isForm:
			r.doc = text
		}
	}
	if r.s.names != nil && looksJSON(r.doc) && !unambiguous(r.doc, r.s.names) {
		r.note("the JSON can be read in more than one way: a name comes twice, or it does not end where it should")
		return ReasonMalformedSignature
	}
	return ReasonOK
}

// formField returns a field of a form of either kind, and whether there is a form at all.
func (m *Message) formField(body []byte, name string) (value []byte, found presence, isForm bool) {
	header, _ := m.field("content-type")
	if strings.HasPrefix(header, "application/json") {
		return nil, absent, false // nearly all: parsing it takes as long as a signature
	}
	kind, params, err := mime.ParseMediaType(header)
	switch {
	case err != nil:
		return nil, absent, false
	case kind == "application/x-www-form-urlencoded":
		text, found := findPair(string(body), name)
		return []byte(text), found, true
	case kind != "multipart/form-data":
		return nil, absent, false
	}
	form := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for range maxFields {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			return value, found, true
		}
		if err != nil {
			break
		}
		if part.FormName() != name {
			continue
		}
		if found != absent {
			break
		}
		if value, err = io.ReadAll(part); err != nil { // within the body, whose length is bounded
			break
		}
		found = present
	}
	return nil, repeated, true // no reading of it is certain
}

// unambiguous reports whether doc is JSON in which no object has a name twice, nor one of names in two spellings that
// differ in case, which some readers take for one.
func unambiguous(doc []byte, names map[string]bool) bool {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(doc, []byte("\xef\xbb\xbf"))))
	d.UseNumber()
	type level struct {
		seen map[string]bool // of an object; nil for an array
		name bool            // a name is next
	}
	var open []level
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return len(open) == 0
		}
		if err != nil || len(open) > maxJSONDepth {
			return false
		}
		delim, isDelim := token.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			open = open[:len(open)-1]
		} else if n := len(open); n > 0 && open[n-1].name {
			name, _ := token.(string)
			if folded := foldName(name); names[folded] {
				name = folded
			}
			if open[n-1].seen[name] {
				return false
			}
			open[n-1].seen[name], open[n-1].name = true, false
			continue
		} else if isDelim {
			next := level{}
			if delim == '{' {
				next = level{seen: map[string]bool{}, name: true}
			}
			open = append(open, next)
			continue
		}
		// A value has ended: the object around it goes on with a name; without one the document is over.
		if n := len(open); n > 0 {
			open[n-1].name = open[n-1].seen != nil
		} else if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return false
		} else {
			return true
		}
	}
}

// foldName makes names equal that differ in case only.
func foldName(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// verifyEach judges every element of the array at Spec.Each by itself; one that does not verify decides.
func (r *reader) verifyEach(keys []Key, now time.Time, tolerance time.Duration) Verdict {
	items, ok := elementsAt(bytes.TrimPrefix(r.doc, []byte("\xef\xbb\xbf")), r.s.each)
	switch {
	case !ok || len(items) == 0:
		r.note("json %s has no element", r.s.spec.Each)
		return Verdict{Reason: ReasonMissingSignature, Key: -1}
	case len(items) > maxItems:
		r.note("json %s has %d elements; %d are the most", r.s.spec.Each, len(items), maxItems)
		return Verdict{Reason: ReasonMalformedSignature, Key: -1}
	}
	var first Verdict
	contents := sha256.New()
	for i, item := range items {
		one := newReader(r.m, r.s, r.trace)
		one.body, one.doc = item, item
		verdict := one.judge(keys, now, tolerance)
		one.free()
		if verdict.Reason != ReasonOK {
			r.note("element %d of json %s decides", i+1, r.s.spec.Each)
			return verdict
		}
		contents.Write(verdict.ContentHash[:])
		if i == 0 {
			first = verdict
		}
	}
	contents.Sum(first.ContentHash[:0])
	if r.s.spec.ID.Hash && r.s.id.kind == placeNone {
		first.ID = "sha256:" + hex.EncodeToString(first.ContentHash[:])
	}
	return first
}

// readListed returns what is signed of the headers that the sender lists.
func (r *reader) readListed() ([]byte, Reason) {
	spec := r.s.spec.Headers
	list := r.listed
	if spec.Header != "" {
		text, found := r.m.field(spec.Header)
		if found == repeated {
			return nil, r.twice(place{kind: placeHeader, name: spec.Header})
		}
		list = text
	}
	names := strings.SplitN(strings.ToLower(list), spec.Separator, maxListed+1)
	if len(names) > maxListed {
		r.note("more than %d headers are listed as signed", maxListed)
		return nil, ReasonMalformedSignature
	}
	for _, name := range spec.Require {
		if !slices.Contains(names, name) {
			r.note("header %s is not among those that are listed as signed", name)
			return nil, ReasonMalformedSignature
		}
	}
	var b []byte
	for i, name := range names {
		value, found := r.m.field(name)
		switch {
		case list == "":
			continue
		case found == repeated:
			return nil, r.twice(place{kind: placeHeader, name: name})
		case found == absent:
			r.note("header %q is listed as signed, and missing", name)
			return nil, ReasonMissingSignature
		}
		if i > 0 {
			b = append(b, spec.Between...)
		}
		if spec.Named {
			b = append(append(b, name...), ':')
		}
		b = append(b, value...)
		if slices.Contains(spec.Require, name) && name != spec.Header && (r.s.timestamp.kind != placeHeader || name != r.s.timestamp.name) {
			r.required = append(append(r.required, value...), 0)
		}
	}
	return b, ReasonOK
}
