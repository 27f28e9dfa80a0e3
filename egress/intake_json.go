package egress

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// maxJSONDepth bounds how deep arrays and objects may nest in each other, the envelope counted. Deeper ones have no use
// in an event, and many a receiver's parser refuses them: 128 is the default of serde_json, one of the strictest.
const maxJSONDepth = 128

// What breaks JSON, as told to the caller. "" is: nothing does.
const (
	faultUTF8    = "it is not UTF-8"
	faultBOM     = "it begins with a byte order mark"
	faultEnd     = "it ends too early"
	faultToken   = "it is not JSON"
	faultObject  = "it is not a JSON object"
	faultString  = "a string is not JSON"
	faultEscape  = "an escape in a string is not JSON"
	faultNumber  = "a number is not JSON"
	faultDepth   = "it nests deeper than 128 levels"
	faultTrail   = "more follows after its end"
	faultNoValue = "a value is missing"
)

// jsonText is a text that is read once from left to right. It checks what it passes over against RFC 8259 to the letter
// and keeps no copy: what it returns are parts of b. encoding/json does the same at a tenth of the speed, and an intake
// spends most of its time here.
type jsonText struct {
	b []byte
	// at is the next byte to read; after a fault, where it lies.
	at int
	// fault is the first thing that was wrong; nothing is read after it.
	fault string
}

// openJSON begins to read b, of which the whole must be UTF-8 without a byte order mark.
func openJSON(b []byte) jsonText {
	t := jsonText{b: b}
	switch {
	case len(b) >= 3 && b[0] == 0xef && b[1] == 0xbb && b[2] == 0xbf:
		t.fault = faultBOM
	case !utf8.Valid(b):
		for t.at < len(b) {
			r, n := utf8.DecodeRune(b[t.at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			t.at += n
		}
		t.fault = faultUTF8
	}
	return t
}

// fail notes a fault at the present byte and reports false.
func (t *jsonText) fail(fault string) bool {
	if t.fault == "" {
		if t.at >= len(t.b) {
			fault = faultEnd
		}
		t.fault = fault
	}
	return false
}

// blanks passes over white space and returns the byte after it, 0 at the end (a byte 0 is no JSON either).
func (t *jsonText) blanks() byte {
	for ; t.at < len(t.b); t.at++ {
		switch c := t.b[t.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// object begins to read an object; false if there is none.
func (t *jsonText) object() bool {
	if t.fault != "" {
		return false
	}
	if t.blanks() != '{' {
		return t.fail(faultObject)
	}
	t.at++
	return true
}

// member returns the next member of an object: its name and value as they stand, quotes included. first says that none
// was read before. It reports false at the object's end, and at a fault.
func (t *jsonText) member(first bool) (name, value []byte, ok bool) {
	if t.fault != "" {
		return nil, nil, false
	}
	c := t.blanks()
	if c == '}' {
		t.at++
		return nil, nil, false
	}
	if !first {
		if c != ',' {
			return nil, nil, t.fail(faultToken)
		}
		t.at++
		c = t.blanks()
	}
	if c != '"' {
		return nil, nil, t.fail(faultToken)
	}
	start := t.at
	if !t.str() {
		return nil, nil, false
	}
	name = t.b[start:t.at]
	if t.blanks() != ':' {
		return nil, nil, t.fail(faultToken)
	}
	t.at++
	t.blanks()
	start = t.at
	if !t.value(1) {
		return nil, nil, false
	}
	return name, t.b[start:t.at], true
}

// end reports that nothing but white space follows.
func (t *jsonText) end() bool {
	if t.fault != "" {
		return false
	}
	if t.blanks(); t.at < len(t.b) {
		return t.fail(faultTrail)
	}
	return true
}

// value passes over one value that stands depth levels deep; white space before it is none of its.
func (t *jsonText) value(depth int) bool {
	if t.at >= len(t.b) {
		return t.fail(faultEnd)
	}
	switch c := t.b[t.at]; c {
	case '"':
		return t.str()
	case '{':
		return t.members(depth + 1)
	case '[':
		return t.elements(depth + 1)
	case 't':
		return t.word("true")
	case 'f':
		return t.word("false")
	case 'n':
		return t.word("null")
	case '}', ']', ',', ':':
		return t.fail(faultNoValue)
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return t.number()
		}
		return t.fail(faultToken)
	}
}

// members passes over the object that begins here.
func (t *jsonText) members(depth int) bool {
	if depth > maxJSONDepth {
		return t.fail(faultDepth)
	}
	t.at++
	if t.blanks() == '}' {
		t.at++
		return true
	}
	for {
		if t.blanks() != '"' {
			return t.fail(faultToken)
		}
		if !t.str() {
			return false
		}
		if t.blanks() != ':' {
			return t.fail(faultToken)
		}
		t.at++
		t.blanks()
		if !t.value(depth) {
			return false
		}
		switch t.blanks() {
		case ',':
			t.at++
		case '}':
			t.at++
			return true
		default:
			return t.fail(faultToken)
		}
	}
}

// elements passes over the array that begins here.
func (t *jsonText) elements(depth int) bool {
	if depth > maxJSONDepth {
		return t.fail(faultDepth)
	}
	t.at++
	if t.blanks() == ']' {
		t.at++
		return true
	}
	for {
		t.blanks()
		if !t.value(depth) {
			return false
		}
		switch t.blanks() {
		case ',':
			t.at++
		case ']':
			t.at++
			return true
		default:
			return t.fail(faultToken)
		}
	}
}

// plain are the bytes that stand for themselves in a string. Those of UTF-8 do: openJSON has judged them.
var plain = func() (set [256]bool) {
	for c := range set {
		set[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return set
}()

// str passes over the string that begins here.
func (t *jsonText) str() bool {
	b, i := t.b, t.at+1
	for {
		for i < len(b) && plain[b[i]] {
			i++
		}
		if t.at = i; i >= len(b) {
			return t.fail(faultEnd)
		}
		switch b[i] {
		case '"':
			t.at++
			return true
		case '\\':
			n := escape(b[i:])
			if n == 0 {
				return t.fail(faultEscape)
			}
			i += n
		default:
			return t.fail(faultString)
		}
	}
}

// escape returns the length of the escape at the start of b, 0 if it is none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return 0
			}
		}
		return 6
	}
	return 0
}

// word passes over a literal name.
func (t *jsonText) word(w string) bool {
	if len(t.b)-t.at < len(w) || string(t.b[t.at:t.at+len(w)]) != w {
		return t.fail(faultToken)
	}
	t.at += len(w)
	return true
}

// number passes over the number that begins here.
func (t *jsonText) number() bool {
	if t.b[t.at] == '-' {
		t.at++
	}
	if t.at < len(t.b) && t.b[t.at] == '0' {
		t.at++
	} else if !t.digits() {
		return t.fail(faultNumber)
	}
	if t.at < len(t.b) && t.b[t.at] == '.' {
		t.at++
		if !t.digits() {
			return t.fail(faultNumber)
		}
	}
	if t.at < len(t.b) && t.b[t.at]|0x20 == 'e' {
		t.at++
		if t.at < len(t.b) && (t.b[t.at] == '+' || t.b[t.at] == '-') {
			t.at++
		}
		if !t.digits() {
			return t.fail(faultNumber)
		}
	}
	return true
}

// digits passes over decimal digits and reports whether there was one.
func (t *jsonText) digits() bool {
	start := t.at
	for t.at < len(t.b) && '0' <= t.b[t.at] && t.b[t.at] <= '9' {
		t.at++
	}
	return t.at > start
}

// unquote returns what a string that jsonText passed over stands for, and false for any other value.
func unquote(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	inner := value[1 : len(value)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	var text string
	err := json.Unmarshal(value, &text)
	return text, err == nil
}

// isNull reports that a value which jsonText passed over is null.
func isNull(value []byte) bool { return value[0] == 'n' }
