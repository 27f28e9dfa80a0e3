package signature

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzUnambiguous: what is taken for unambiguous is one JSON document, in which every path leads where encoding/json leads,
// which takes the last of equal names and does not mind their case.
func FuzzUnambiguous(f *testing.F) {
	for _, s := range []string{`{"a":{"b":1}}`, `{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"a":[{"b":1},{"b":2}]}`, `{"a":1}{"a":2}`, `{"a":"\u0061"}`, `{"\u0061":1,"a":2}`, `[1,{"a":{"b":"x"}}]`, `{"a":{"b":1,"B":2}}`} {
		f.Add([]byte(s))
	}
	names := map[string]bool{"a": true, "b": true}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !looksJSON(doc) || !unambiguous(doc, names) {
			return
		}
		plain := bytes.TrimPrefix(doc, []byte("\xef\xbb\xbf"))
		if !json.Valid(plain) {
			t.Fatalf("%q is no JSON", doc)
		}
		var theirs struct {
			A struct{ B json.RawMessage }
		}
		if json.Unmarshal(plain, &theirs) != nil {
			return // another type than the path wants
		}
		ours, ok := lookupJSON(doc, []jsonPath{{"a", "b"}})
		var text string
		switch raw := theirs.A.B; {
		case len(raw) == 0, raw[0] == '{', raw[0] == '[', raw[0] == 'n':
			text = ""
		case raw[0] == '"':
			if json.Unmarshal(raw, &text) != nil || !json.Valid(raw) {
				return
			}
		default:
			text = string(raw)
		}
		if !ok && text != "" && bytes.Contains(plain, []byte(`"a"`)) && bytes.Contains(plain, []byte(`"b"`)) {
			t.Errorf("%q: nothing found, %q there", doc, text)
		}
		if ok && ours != text {
			t.Errorf("%q: %q found, %q there", doc, ours, text)
		}
	})
}
