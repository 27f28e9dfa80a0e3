package egress

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// readJSON reads a text that holds one value of any kind, and says where which fault lies.
func readJSON(b []byte) (fault string, at int) {
	t := openJSON(b)
	if t.fault == "" {
		t.blanks()
		if t.value(0) {
			t.end()
		}
	}
	return t.fault, t.at
}

func TestJSONText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text, fault string
		at                int
	}{
		{"every kind of value", `{"a":[1,-0.5e+10,"x",true,false,null,{}],"b":[]}`, "", 48},
		{"white space everywhere", " \t\r\n{ \"a\" : [ 1 , 2 ] } \n", "", 25},
		{"every escape", `"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"`, "", 36},
		{"half of a surrogate pair is the grammar's", `"\ud83d"`, "", 8},
		{"duplicate keys below are the data's business", `{"d":{"a":1,"a":2}}`, "", 19},
		{"nothing", ``, faultEnd, 0},
		{"white space alone", "  ", faultEnd, 2},
		{"a byte order mark", "\ufeff{}", faultBOM, 0},
		{"no UTF-8", "\"a\xff\"", faultUTF8, 2},
		{"an overlong slash", "\"\xc0\xaf\"", faultUTF8, 1},
		{"a surrogate in UTF-8", "\"\xed\xa0\x80\"", faultUTF8, 1},
		{"a second value", `{} {}`, faultTrail, 3},
		{"a comma after the last member", `{"a":1,}`, faultToken, 7},
		{"a comma after the last element", `[1,]`, faultNoValue, 3},
		{"no value", `{"a":}`, faultNoValue, 5},
		{"no colon", `{"a" 1}`, faultToken, 5},
		{"a key without quotes", `{a:1}`, faultToken, 1},
		{"single quotes", `{'a':1}`, faultToken, 1},
		{"a comment", `[1 /* one */]`, faultToken, 3},
		{"NaN", `[NaN]`, faultToken, 1},
		{"a capital word", `[True]`, faultToken, 1},
		{"a cut word", `[nul`, faultToken, 1},
		{"a leading zero", `[01]`, faultToken, 2},
		{"a plus sign", `[+1]`, faultToken, 1},
		{"no digit before the point", `[.5]`, faultToken, 1},
		{"no digit after the point", `[1.]`, faultNumber, 3},
		{"no digit in the exponent", `[1e+]`, faultNumber, 4},
		{"a minus alone", `-`, faultEnd, 1},
		{"a line end in a string", "\"a\nb\"", faultString, 2},
		{"a NUL in a string", "\"a\x00b\"", faultString, 2},
		{"an escape that is none", `"\x41"`, faultEscape, 1},
		{"an escape cut short", `"\u00e`, faultEscape, 1},
		{"a string without end", `"abc`, faultEnd, 4},
		{"an array without end", `[1`, faultEnd, 2},
		{"as deep as may be", strings.Repeat("[", 128) + strings.Repeat("]", 128), "", 256},
		{"deeper", strings.Repeat("[", 129) + strings.Repeat("]", 129), faultDepth, 128},
		{"objects count as well", strings.Repeat(`{"a":`, 129) + "1" + strings.Repeat("}", 129), faultDepth, 640},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if fault, at := readJSON([]byte(tt.text)); fault != tt.fault || at != tt.at {
				t.Errorf("%q at %d, want %q at %d", fault, at, tt.fault, tt.at)
			}
		})
	}
}

// FuzzJSONText holds the reader to encoding/json, which lets pass what is no UTF-8 and nests up to 10,000 levels.
func FuzzJSONText(f *testing.F) {
	for _, seed := range []string{
		`{"type":"a","data":{"b":[1,2.5e-3,"\u00e9\n",true,false,null]}}`, `[]`, `""`, `-0`, `1e5`, `{"a":{}}`, "\ufeff1", "[1] ", `{"":0}`,
		strings.Repeat("[", 130), "\"\xff\"", `"\ud800"`, `[1,]`, `{"a":1,}`, `nul`, `01`, `--1`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fault, at := readJSON(b)
		if at < 0 || at > len(b) {
			t.Fatalf("fault at %d of %d", at, len(b))
		}
		want := json.Valid(b) && utf8.Valid(b) && deepest(b) <= maxJSONDepth
		if got := fault == ""; got != want {
			t.Fatalf("%q: %q, and it is JSON: %t", b, fault, want)
		}
		if trimmed := bytes.TrimSpace(b); want && trimmed[0] == '"' {
			var s string
			if err := json.Unmarshal(trimmed, &s); err != nil {
				t.Fatal(err)
			}
			if got, ok := unquote(bytes.Trim(b, " \t\r\n")); !ok || got != s {
				t.Fatalf("unquote(%q) = %q, %t, want %q", b, got, ok, s)
			}
		}
	})
}

// deepest returns how deep valid JSON nests.
func deepest(b []byte) int {
	d := json.NewDecoder(bytes.NewReader(b))
	depth, most := 0, 0
	for {
		token, err := d.Token()
		if err != nil {
			return most
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			depth++
			most = max(most, depth)
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
	}
}

func TestJSONNoObject(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text, fault string
		at          int
	}{
		{` []`, faultObject, 1},
		{`"a"`, faultObject, 0},
		{`type: a`, faultObject, 0},
		{` `, faultEnd, 1},
	} {
		text := openJSON([]byte(tt.text))
		if text.object() || text.fault != tt.fault || text.at != tt.at {
			t.Errorf("%q: %q at %d, want %q at %d", tt.text, text.fault, text.at, tt.fault, tt.at)
		}
	}
}

func FuzzJSONMembers(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1}`, ` { "a" : 1 , "b" : [ ] } `, `{"a":1,"a":2}`, `{"a":1,}`, `{,}`, `{"\u0061":""}`, `[]`, `{`, `{"a"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		text := openJSON(b)
		members := 0
		for first := text.object(); text.fault == ""; first = false {
			name, value, ok := text.member(first)
			if !ok {
				break
			}
			members++
			if !json.Valid(name) || !json.Valid(value) || name[0] != '"' {
				t.Fatalf("%q: member %q of %q", b, name, value)
			}
			if _, ok := unquote(name); !ok {
				t.Fatalf("%q: name %q", b, name)
			}
		}
		text.end()
		var keys map[string]json.RawMessage
		object := json.Unmarshal(b, &keys) == nil && keys != nil && utf8.Valid(b) && deepest(b) <= maxJSONDepth
		if got := text.fault == ""; got != object {
			t.Fatalf("%q: fault %q, and it is an object: %t", b, text.fault, object)
		}
		if object && members < len(keys) {
			t.Fatalf("%q: %d members of %d", b, members, len(keys))
		}
	})
}

func BenchmarkJSONText(b *testing.B) {
	text := []byte(`{"type":"invoice.paid","data":{"id":"in_1","lines":[` + strings.TrimSuffix(strings.Repeat(`{"amount":1250,"currency":"eur","text":"a line of it"},`, 18), ",") + `]}}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if fault, _ := readJSON(text); fault != "" {
			b.Fatal(fault)
		}
	}
}
