package signature

import (
	"errors"
	"fmt"
	"slices"
)

// compileHeaders checks the headers that the sender lists itself.
func (s *scheme) compileHeaders() (err error) {
	h := s.spec.Headers
	if h == nil {
		return nil
	}
	switch {
	case (h.Header == "") == (h.SignatureKey == ""):
		return errors.New("headers: exactly one of header, signature_key is needed")
	case h.SignatureKey != "" && (s.spec.Signature.List == "" || s.spec.Signature.KeyValue == ""):
		return errors.New("headers.signature_key: needs signature.list and signature.key_value")
	}
	if h.Header != "" {
		if h.Header, err = headerName(h.Header); err != nil {
			return fmt.Errorf("headers: %w", err)
		}
	}
	h.Require = slices.Clone(h.Require)
	for i, name := range h.Require {
		if h.Require[i], err = headerName(name); err != nil {
			return fmt.Errorf("headers.require[%d]: %w", i, err)
		}
	}
	return nil
}

// compileParts checks each and document, and finds the names that must not come twice.
func (s *scheme) compileParts() error {
	if s.spec.Each != "" {
		paths, err := parseJSONPaths(s.spec.Each)
		switch {
		case err != nil:
			return fmt.Errorf("each: %w", err)
		case len(paths) > 1:
			return errors.New("each: one path is wanted")
		case s.id.kind == placeJSON:
			return errors.New("each: the id cannot be a JSON path, for there may be several; write id: {hash: true}")
		case s.spec.Algorithm == Basic:
			return errors.New("each: not with BASIC")
		}
		s.each = paths[0]
	}
	if uses(s.parts, partBody) && s.each == nil {
		return nil
	}
	names := map[string]bool{}
	add := func(p place) {
		for _, path := range p.paths {
			for _, name := range path {
				names[foldName(name)] = true
			}
		}
	}
	add(s.signature)
	add(s.timestamp)
	add(place{paths: []jsonPath{s.each}})
	for i := range s.parts {
		add(s.parts[i].place)
	}
	if len(names) > 0 {
		s.names = names
	}
	return nil
}
