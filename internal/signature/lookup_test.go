package signature

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustPath(t testing.TB, s string) Path {
	t.Helper()
	p, err := ParsePath(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPathFind(t *testing.T) {
	t.Parallel()
	const doc = `{"data":{"object":{"id":"cus_1"}},"created":1614265330,"n":12345678901234567890.50,"none":null,"list":["a"]}`
	for _, tt := range []struct{ name, path, want string }{
		{"nested", "data.object.id", "cus_1"},
		{"a number as it is written", "n", "12345678901234567890.50"},
		{"several", "data.object.id+created", "cus_1.1614265330"},
		{"one of several missing", "data.object.id+gone", ""},
		{"null", "none", ""},
		{"no scalar", "data", ""},
		{"an element", "list.0", "a"},
		{"the document itself", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, mark := range []string{"", "\xef\xbb\xbf"} {
				got, ok := mustPath(t, tt.path).Find([]byte(mark + doc))
				if got != tt.want || ok != (tt.want != "") {
					t.Errorf("got %q, %v, want %q", got, ok, tt.want)
				}
			}
		})
	}
}

func TestElements(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, doc string
		want            []string
		alone           string // the document with the last element alone
		not             bool
	}{
		{name: "below a name", path: "events", doc: `{"events" : [ {"id":"a"} , {"id":"b"} ],"meta":{}}`,
			want: []string{`{"id":"a"}`, `{"id":"b"}`}, alone: `{"events" : [{"id":"b"}],"meta":{}}`},
		{name: "the body", doc: "[{\"id\":\"a\"},\r\n{\"id\":\"b\"}]\r\n", want: []string{`{"id":"a"}`, `{"id":"b"}`}, alone: "[{\"id\":\"b\"}]\r\n"},
		{name: "behind a byte order mark", doc: "\xef\xbb\xbf[1, 2 ]", want: []string{"1", "2"}, alone: "\xef\xbb\xbf[2]"},
		{name: "a bracket in a text", path: "a.b", doc: `{"a":{"b":["]","\"]"]}}`, want: []string{`"]"`, `"\"]"`}, alone: `{"a":{"b":["\"]"]}}`},
		{name: "empty", path: "events", doc: `{"events":[ ]}`},
		{name: "no array", path: "events", doc: `{"events":{}}`, not: true},
		{name: "missing", path: "events", doc: `{}`, not: true},
		{name: "cut off", doc: `[1,2`, not: true},
		{name: "no value behind a comma", doc: `[1,]`, not: true},
		{name: "several paths", path: "a+b", doc: `{"a":[],"b":[]}`, not: true},
		{name: "as many as are read", doc: "[" + strings.Repeat("0,", maxItems-1) + "1]", want: append(slices.Repeat([]string{"0"}, maxItems-1), "1"), alone: "[1]"},
		{name: "one more", doc: "[" + strings.Repeat("0,", maxItems) + "1]", not: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, ok := mustPath(t, tt.path).Elements([]byte(tt.doc))
			if ok == tt.not || a.Len() != len(tt.want) {
				t.Fatalf("found %v, %d elements, want %d", ok, a.Len(), len(tt.want))
			}
			for i, want := range tt.want {
				if got := string(a.Item(i)); got != want {
					t.Errorf("element %d: %s, want %s", i, got, want)
				}
			}
			if n := a.Len(); n > 0 {
				if got := string(a.Alone(n - 1)); got != tt.alone {
					t.Errorf("alone: %q, want %q", got, tt.alone)
				}
				if want := len(tt.alone) - len(a.Item(n-1)); a.Around() != want {
					t.Errorf("%d bytes around, want %d", a.Around(), want)
				}
			}
		})
	}
}

// TestElementsAreEncodingJSONs: another reader finds the same elements, and in Alone only the one.
func TestElementsAreEncodingJSONs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]string{`1`, `"],["`, `{"a":[1,{"b":"}"}]}`, `[[],[2]]`, `null`, `"\\"`})
		blank := rapid.SampledFrom([]string{"", " ", "\n\t"})
		var b strings.Builder
		b.WriteString(`{"x":[9],"events":[`)
		for i := range rapid.IntRange(0, 5).Draw(t, "n") {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(blank.Draw(t, "before") + value.Draw(t, "value") + blank.Draw(t, "after"))
		}
		b.WriteString(`],"y":{"events":[7]}}`)
		doc := []byte(b.String())
		var want struct{ Events []json.RawMessage }
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatal(err)
		}
		p, err := ParsePath("events")
		if err != nil {
			t.Fatal(err)
		}
		a, ok := p.Elements(doc)
		if !ok || a.Len() != len(want.Events) {
			t.Fatalf("%s: found %v, %d elements, want %d", doc, ok, a.Len(), len(want.Events))
		}
		for i, e := range want.Events {
			var alone struct {
				X      []int
				Events []json.RawMessage
				Y      json.RawMessage
			}
			if err := json.Unmarshal(a.Alone(i), &alone); err != nil {
				t.Fatalf("%s: %v", a.Alone(i), err)
			}
			if !bytes.Equal(a.Item(i), e) || len(alone.Events) != 1 || !bytes.Equal(alone.Events[0], e) || len(alone.X) != 1 || string(alone.Y) != `{"events":[7]}` {
				t.Fatalf("%s: element %d: %s, alone %s", doc, i, a.Item(i), a.Alone(i))
			}
		}
	})
}

func TestEventsNeedAnIDOfTheRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, array string
		id          IDSpec
		bad         bool
	}{
		{"an id of the request", "events", IDSpec{ValueSpec: ValueSpec{JSON: "meta.id"}}, false},
		{"a hash", "events", IDSpec{Hash: true}, false},
		{"a header", "events", IDSpec{ValueSpec: ValueSpec{Header: "x-id"}}, false},
		{"the first event's", "events", IDSpec{ValueSpec: ValueSpec{JSON: "meta.id+events.0.id"}}, true},
		{"the first event's, of a body that is the array", "", IDSpec{ValueSpec: ValueSpec{JSON: "0.id"}, Hash: true}, true},
		{"none", "events", IDSpec{None: true}, true},
		{"several arrays", "a+b", IDSpec{Hash: true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := Spec{Algorithm: HMACSHA256, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "x-sig"}}, ID: &tt.id, Events: &EventsSpec{JSON: tt.array}}
			if _, err := Compile(spec); (err != nil) != tt.bad {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDocumentOfAMessage(t *testing.T) {
	t.Parallel()
	const doc = `{"a":"b"}`
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte(doc)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, contentType, encoding, body string
		spec                              Spec
		own                               bool // the document is the body, and read from it alone
	}{
		{name: "the body", body: doc, own: true},
		{name: "in a form", contentType: "application/x-www-form-urlencoded", body: "x=1&payload=%7B%22a%22%3A%22b%22%7D", spec: Spec{Document: "payload"}},
		{name: "no form after all", contentType: "application/json", body: doc, spec: Spec{Document: "payload"}},
		{name: "unzipped", encoding: "gzip", body: zipped.String(), spec: Spec{Body: Decoded}},
		{name: "not zipped", body: doc, spec: Spec{Body: Decoded}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.spec.Algorithm, tt.spec.Signature.Header = HMACSHA256, "x-sig"
			v, err := Compile(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			m := &Message{Method: "POST", Target: "/", Body: []byte(tt.body)}
			for name, value := range map[string]string{"content-type": tt.contentType, "content-encoding": tt.encoding} {
				if value != "" {
					m.Header = append(m.Header, Field{Name: name, Value: value})
				}
			}
			if got := string(v.Document(m)); got != doc {
				t.Errorf("got %q", got)
			}
			if got := v.ReadsBody(); got != tt.own {
				t.Errorf("reads the body alone: %v", got)
			}
		})
	}
}

// TestProvidersIDsAreTheRequests: a request of several events is not known by one of them.
func TestProvidersIDsAreTheRequests(t *testing.T) {
	t.Parallel()
	for _, p := range Providers() {
		if p.Events == nil {
			continue
		}
		array := mustPath(t, p.Events.JSON)
		for _, s := range p.Verifier().schemes {
			if err := s.checkEvents(array); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	}
}
