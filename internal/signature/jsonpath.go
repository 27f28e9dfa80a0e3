package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// maxJSONDepth bounds how deeply nested a body is read. Payloads of senders nest less than a tenth of it.
const maxJSONDepth = 100

// jsonPath is a parsed path: names and indexes from the outermost value inwards.
type jsonPath []string

// parseJSONPaths parses paths joined by "+". In a name, a backslash takes the next character literally. What is written as
// in JSONPath or JavaScript, $.a or a[0], would be a name that no body has: it is refused.
func parseJSONPaths(s string) ([]jsonPath, error) {
	var (
		paths []jsonPath
		path  jsonPath
		name  []byte

		escaped bool // name has a backslash
	)
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] == '\\' && i+1 < len(s) {
			i++
			name, escaped = append(name, s[i]), true
			continue
		}
		if i < len(s) && s[i] != '.' && s[i] != '+' {
			name = append(name, s[i])
			continue
		}
		switch {
		case len(name) == 0:
			return nil, errors.New("json: an empty name in " + strconv.Quote(s))
		case len(path) == 0 && !escaped && string(name) == "$":
			return nil, errors.New("json: leave $. out of " + strconv.Quote(s) + ": a path begins at the outermost value")
		case !escaped && bracketed(name):
			return nil, errors.New("json: an element of an array is written a.0 and not a[0], as in " + strconv.Quote(s))
		}
		path, name, escaped = append(path, string(name)), nil, false
		if i == len(s) || s[i] == '+' {
			paths, path = append(paths, path), nil
		}
	}
	return paths, nil
}

// bracketed reports whether name ends in an index in brackets.
func bracketed(name []byte) bool {
	open := bytes.LastIndexByte(name, '[')
	if open < 0 || name[len(name)-1] != ']' {
		return false
	}
	_, err := strconv.ParseUint(string(name[open+1:len(name)-1]), 10, 16)
	return err == nil
}

// lookupJSON returns the scalars at paths joined by full stops: strings decoded, numbers and booleans as written. It
// reports false if one is missing, null, empty or no scalar. A byte order mark at the head is skipped.
func lookupJSON(body []byte, paths []jsonPath) (string, bool) {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	if len(paths) == 1 {
		return scalarAt(body, paths[0])
	}
	values := make([]string, len(paths))
	for i, p := range paths {
		v, ok := scalarAt(body, p)
		if !ok {
			return "", false
		}
		values[i] = v
	}
	return strings.Join(values, "."), true
}

// looksJSON reports whether body begins like a JSON object or array.
func looksJSON(body []byte) bool {
	s := scanner{b: bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))}
	c := s.peek()
	return c == '{' || c == '['
}

func scalarAt(body []byte, path jsonPath) (string, bool) {
	s := scanner{b: body}
	for _, name := range path {
		if !s.enter(name) {
			return "", false
		}
	}
	raw, ok := s.skip()
	if !ok || len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		text := raw[1 : len(raw)-1]
		if bytes.IndexByte(text, '\\') < 0 {
			return string(text), len(text) > 0
		}
		var v string
		if err := json.Unmarshal(raw, &v); err != nil {
			return "", false
		}
		return v, v != ""
	case '{', '[', 'n':
		return "", false
	}
	return string(raw), true
}

// scanner walks JSON without building it. It checks only what it needs to find its way: the bytes are a sender's own,
// already verified, and the app parses them again.
type scanner struct {
	b []byte
	i int
}

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// enter moves to the value of a member of the object, or of an element of the array, that begins here.
func (s *scanner) enter(name string) bool {
	switch s.peek() {
	case '{':
		return s.member(name)
	case '[':
		n, err := strconv.Atoi(name)
		return err == nil && n >= 0 && s.element(n)
	}
	return false
}

func (s *scanner) member(name string) bool {
	s.i++
	for s.peek() == '"' {
		key, ok := s.skip()
		if !ok || s.peek() != ':' {
			return false
		}
		s.i++
		if sameKey(key, name) {
			return true
		}
		if _, ok := s.skip(); !ok || s.peek() != ',' {
			return false
		}
		s.i++
	}
	return false
}

// sameKey compares a quoted key with a name.
func sameKey(key []byte, name string) bool {
	text := key[1 : len(key)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text) == name
	}
	var v string
	return json.Unmarshal(key, &v) == nil && v == name
}

func (s *scanner) element(n int) bool {
	s.i++
	if s.peek() == ']' {
		return false
	}
	for range n {
		if _, ok := s.skip(); !ok || s.peek() != ',' {
			return false
		}
		s.i++
	}
	return true
}

// skip returns the raw value that begins here and moves behind it.
func (s *scanner) skip() ([]byte, bool) {
	c := s.peek()
	start := s.i
	switch {
	case c == '"':
		if !s.text() {
			return nil, false
		}
	case c == '{' || c == '[':
		if !s.nested() {
			return nil, false
		}
	case c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z':
		for s.i < len(s.b) && isScalarByte(s.b[s.i]) {
			s.i++
		}
	default:
		return nil, false
	}
	return s.b[start:s.i], true
}

// text moves behind the string that begins here.
func (s *scanner) text() bool {
	for i := s.i + 1; i < len(s.b); i++ {
		switch s.b[i] {
		case '\\':
			i++
		case '"':
			s.i = i + 1
			return true
		}
	}
	return false
}

// nested moves behind the object or array that begins here.
func (s *scanner) nested() bool {
	depth := 0
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '"':
			if !s.text() {
				return false
			}
			continue
		case '{', '[':
			if depth++; depth > maxJSONDepth {
				return false
			}
		case '}', ']':
			if depth--; depth == 0 {
				s.i++
				return true
			}
		}
		s.i++
	}
	return false
}

// elementsAt returns the raw elements of the array at path.
func elementsAt(body []byte, path jsonPath) ([][]byte, bool) {
	s := scanner{b: body}
	for _, name := range path {
		if !s.enter(name) {
			return nil, false
		}
	}
	if s.peek() != '[' {
		return nil, false
	}
	s.i++
	var elements [][]byte
	for s.peek() != ']' {
		raw, ok := s.skip()
		if !ok {
			return nil, false
		}
		elements = append(elements, raw)
		switch s.peek() {
		case ',':
			s.i++
		case ']':
		default:
			return nil, false
		}
	}
	return elements, true
}

// isScalarByte reports whether c can stand in a number, true, false or null.
func isScalarByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}
