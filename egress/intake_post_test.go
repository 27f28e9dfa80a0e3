package egress

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sidehook/sidehook/internal/signature"
)

func TestValidEventID(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, id string
		want     bool
	}{
		{"a UUID", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", true},
		{"the first and the last character", "!~", true},
		{"as long as may be", strings.Repeat("x", 256), true},
		{"longer", strings.Repeat("x", 257), false},
		{"empty", "", false},
		{"a blank", "a b", false},
		{"a comma: ids are listed", "a,b", false},
		{"a full stop: id.timestamp.body is signed", "a.b", false},
		{"a line end: it goes into a header", "a\nb", false},
		{"DEL", "a\x7f", false},
		{"no ASCII", "é", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := validEventID(tt.id); got != tt.want {
				t.Errorf("validEventID(%q) = %t, want %t", tt.id, got, tt.want)
			}
		})
	}
}

func TestValidEventType(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, eventType string
		want            bool
	}{
		{"one segment", "ping", true},
		{"Standard Webhooks' own example", "user.created", true},
		{"CloudEvents' own example", "com.github.pull_request.opened", true},
		{"a slash, as shops have it", "orders/create", true},
		{"a colon", "customer:created", true},
		{"a version", "order.created@v2", true},
		{"as long as may be", strings.Repeat("x", 256), true},
		{"longer", strings.Repeat("x", 257), false},
		{"empty", "", false},
		{"a full stop at the start", ".a", false},
		{"a full stop at the end", "a.", false},
		{"two full stops", "a..b", false},
		{"a full stop alone", ".", false},
		{"a pattern", "invoice.*", false},
		{"a blank", "a b", false},
		{"a comma", "a,b", false},
		{"a quotation mark", `a"b`, false},
		{"a backslash", `a\b`, false},
		{"no ASCII", "ü", false},
		{"a control character", "a\tb", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := ValidEventType(tt.eventType); got != tt.want {
				t.Errorf("ValidEventType(%q) = %t, want %t", tt.eventType, got, tt.want)
			}
		})
	}
	// The body is put together without quoting a type, so each character has to stand for itself in JSON.
	for c := range 128 {
		if s := string(rune(c)); ValidEventType(s) {
			if b, err := json.Marshal(s); err != nil || !strings.Contains(`<>&`, s) && string(b) != `"`+s+`"` {
				t.Errorf("%q is %s in JSON, %v", s, b, err)
			}
		}
	}
}

func TestValidTenant(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, tenant string
		want         bool
	}{
		{"all kinds", "Aa0._-", true},
		{"as long as may be", strings.Repeat("x", 128), true},
		{"longer", strings.Repeat("x", 129), false},
		{"empty", "", false},
		{"a slash", "a/b", false},
		{"a blank", "a b", false},
		{"no ASCII", "é", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := ValidTenant(tt.tenant); got != tt.want {
				t.Errorf("ValidTenant(%q) = %t, want %t", tt.tenant, got, tt.want)
			}
		})
	}
}

// Whatever the app says differently is another content; the id is not content.
func TestPostContent(t *testing.T) {
	t.Parallel()
	posts := map[string]post{
		"plain":                   {form: formRaw},
		"another form":            {form: formJSON},
		"a type":                  {form: formRaw, eventType: "a"},
		"an endpoint":             {form: formRaw, endpoint: "a"},
		"a tenant":                {form: formRaw, tenant: "a"},
		"a content type":          {form: formRaw, contentType: "a"},
		"data":                    {form: formRaw, data: []byte("a")},
		"a header":                {form: formRaw, headers: []signature.Field{{Name: "a"}}},
		"a header with a value":   {form: formRaw, headers: []signature.Field{{Name: "a", Value: "b"}}},
		"its border moved":        {form: formRaw, headers: []signature.Field{{Name: "ab"}}},
		"two headers":             {form: formRaw, headers: []signature.Field{{Name: "a"}, {Name: "b"}}},
		"type and endpoint":       {form: formRaw, eventType: "a", endpoint: "b"},
		"the border moved":        {form: formRaw, eventType: "ab"},
		"the border moved to end": {form: formRaw, endpoint: "ab"},
	}
	seen := make(map[[32]byte]string)
	for name, p := range posts {
		sum := p.content()
		if other, ok := seen[sum]; ok {
			t.Errorf("%q and %q have the same content", name, other)
		}
		seen[sum] = name
		p.id = "another"
		if p.content() != sum {
			t.Errorf("%q: the id is part of the content", name)
		}
	}
}

// FuzzEnvelope holds the reader of an event to encoding/json: what it takes is an object of the fields, each once, and
// it says the same of them.
func FuzzEnvelope(f *testing.F) {
	for _, seed := range []string{
		`{"type":"a","data":1}`, `{"id":"i","type":"a.b","tenant":"t","endpoint":"e","data":{"a":[1,2]}}`, `{"id":null,"type":"a","data":null}`,
		`{"type":"a","type":"a","data":1}`, `{"\u0074ype":"a","data":1}`, `{"type":"a","data":1} `, `{"type":"a","data":1}x`, `{"Type":"a","data":1}`,
		`{"type":1,"data":1}`, `[]`, ``, `{`, `{"type":"a","data":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, refusal := readEnvelope(b)
		if refusal != nil {
			if problems[refusal.code].status != 400 {
				t.Fatalf("%q: %+v", b, refusal)
			}
			return
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(b, &keys); err != nil {
			t.Fatalf("%q is taken: %v", b, err)
		}
		want := struct {
			ID, Type, Tenant, Endpoint *string
			Data                       json.RawMessage
		}{}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatalf("%q is taken: %v", b, err)
		}
		for key := range keys {
			if !strings.Contains("id type tenant endpoint data", key) {
				t.Fatalf("%q is taken with a field %q", b, key)
			}
		}
		text := func(s *string) string {
			if s == nil {
				return ""
			}
			return *s
		}
		if p.id != text(want.ID) || p.eventType != text(want.Type) || p.tenant != text(want.Tenant) || p.endpoint != text(want.Endpoint) ||
			string(p.data) != string(want.Data) {
			t.Fatalf("%q is read as %+v", b, p)
		}
		var sent struct {
			Type string
			Data json.RawMessage
		}
		if err := json.Unmarshal(p.event(testTime).Body, &sent); err != nil || sent.Type != p.eventType || string(sent.Data) != string(p.data) {
			t.Fatalf("%q is sent as %s: %v", b, p.event(testTime).Body, err)
		}
	})
}
