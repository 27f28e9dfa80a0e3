package signature

import (
	"strings"
	"testing"
	"time"
)

// TestIdentify: where ids and types are found, and whether the signature covers them.
func TestIdentify(t *testing.T) {
	t.Parallel()
	const hash = "the hash"
	jsonID := func(path string, fallback bool) *IDSpec {
		return &IDSpec{ValueSpec: ValueSpec{JSON: path}, Hash: fallback}
	}
	jsonType := headers("content-type: application/json")
	formType := headers("content-type: application/x-www-form-urlencoded")
	for _, c := range []struct {
		name, body string
		id         *IDSpec
		header     []Field
		wantID     string
		covered    bool
	}{
		{"json", `{"id":"evt_1"}`, jsonID("id", false), jsonType, "evt_1", true},
		{"json behind a byte order mark", "\xef\xbb\xbf{\"id\":\"evt_1\"}", jsonID("id", false), jsonType, "evt_1", true},
		{"json, nested", `{"a":[1,{"b":"x"}],"event":{"id":"evt_1"}}`, jsonID("event.id", false), jsonType, "evt_1", true},
		{"json, in an array", `[{"id":1},{"id":2}]`, jsonID("1.id", false), jsonType, "2", true},
		{"a number's own digits", `{"id":12345678901234567890123}`, jsonID("id", false), jsonType, "12345678901234567890123", true},
		{"a number's own form", `{"id":1.50e+3}`, jsonID("id", false), jsonType, "1.50e+3", true},
		{"escapes", `{"\u0069d":"a\u0062\/c"}`, jsonID("id", false), jsonType, "ab/c", true},
		{"two paths", `{"a":1,"b":"x"}`, jsonID("a+b", false), jsonType, "1.x", true},
		{"two paths, one missing", `{"a":1}`, jsonID("a+b", false), jsonType, "", false},
		{"a full stop in a name", `{"a.b":"x"}`, jsonID(`a\.b`, false), jsonType, "x", true},
		{"missing", `{"ID":"evt_1"}`, jsonID("id", false), jsonType, "", false},
		{"missing, with a hash to fall back on", `{"ID":"evt_1"}`, jsonID("id", true), jsonType, hash, true},
		{"null", `{"id":null}`, jsonID("id", false), jsonType, "", false},
		{"an object", `{"id":{}}`, jsonID("id", false), jsonType, "", false},
		{"empty", `{"id":""}`, jsonID("id", false), jsonType, "", false},
		{"json whose type says something else, which is not signed", `{"id":"evt_1"}`, jsonID("id", false), formType, "evt_1", true},
		{"a form has no json", `a=1`, jsonID("id", false), formType, hash, true},
		{"no json in spite of its type", `Hello, World!`, jsonID("id", false), jsonType, "", false},
		{"cut off", `{"id":"evt_1`, jsonID("id", false), jsonType, "", false},
		{"too deep", strings.Repeat(`[`, maxJSONDepth+2) + strings.Repeat(`]`, maxJSONDepth+2), jsonID("1", false), jsonType, "", false},
		{"deep enough", `{"a":` + strings.Repeat(`[`, maxJSONDepth-1) + strings.Repeat(`]`, maxJSONDepth-1) + `,"id":1}`, jsonID("id", false), jsonType, "1", true},
		{"form", `a=1&id=evt+1`, &IDSpec{ValueSpec: ValueSpec{Form: "id"}}, formType, "evt 1", true},
		{"form field twice", `id=1&id=2`, &IDSpec{ValueSpec: ValueSpec{Form: "id"}}, formType, "", false},
		{"query, which is not signed here", `{}`, &IDSpec{ValueSpec: ValueSpec{Query: "id"}}, jsonType, "q 1", false},
		{"header, which is not signed here", `{}`, &IDSpec{ValueSpec: ValueSpec{Header: "X-Id"}}, headers("x-id: h1"), "h1", false},
		{"no header", `{}`, &IDSpec{ValueSpec: ValueSpec{Header: "X-Id"}}, nil, "", false},
		{"no header, with a hash to fall back on", `{}`, &IDSpec{ValueSpec: ValueSpec{Header: "X-Id"}, Hash: true}, nil, hash, true},
		{"hash", `{}`, &IDSpec{Hash: true}, nil, hash, true},
		{"default", `{}`, nil, nil, hash, true},
		{"none", `{"id":"evt_1"}`, &IDSpec{None: true}, nil, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := compileTest(t, Spec{Algorithm: HMACSHA256, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}, ID: c.id})
			keys := parseKeys(t, v, testSecret)
			m := signed(t, v, Message{Target: "/?id=q%201", Header: c.header, Body: []byte(c.body)}, keys[0], "", receivedAt)
			want := c.wantID
			if want == hash {
				want = "sha256:" + sha256Hex([]byte(c.body))
			}
			got := v.Verify(&m, keys, receivedAt, time.Minute)
			if got.Reason != ReasonOK || got.ID != want || got.IDSigned != c.covered {
				t.Errorf("%s id %q signed %v, want %q signed %v", got.Reason, got.ID, got.IDSigned, want, c.covered)
			}
		})
	}
}

// TestContentHash: equal for a replay with another id or time, unequal for other content.
func TestContentHash(t *testing.T) {
	t.Parallel()
	hashOf := func(name, secret, body, id string, at time.Time) [32]byte {
		v := provider(t, name).Verifier()
		keys := parseKeys(t, v, secret)
		m := signed(t, v, Message{Body: []byte(body)}, keys[0], id, at)
		got := v.Verify(&m, keys, at, time.Minute)
		if got.Reason != ReasonOK {
			t.Fatalf("%s: %s", name, got.Reason)
		}
		return got.ContentHash
	}
	later := receivedAt.Add(time.Hour)
	if hashOf("github", testSecret, "{}", "a", receivedAt) != hashOf("github", testSecret, "{}", "b", receivedAt) {
		t.Error("github: another id, another hash")
	}
	if hashOf("github", testSecret, "{}", "a", receivedAt) == hashOf("github", testSecret, "{ }", "a", receivedAt) {
		t.Error("github: another body, the same hash")
	}
	if hashOf("slack", testSecret, "a=1", "", receivedAt) != hashOf("slack", testSecret, "a=1", "", later) {
		t.Error("slack: sent again later, another hash")
	}
	if hashOf("standard-webhooks", testSecret, "{}", "a", receivedAt) != hashOf("standard-webhooks", testSecret, "{}", "a", later) {
		t.Error("standard-webhooks: sent again later, another hash")
	}
	if hashOf("standard-webhooks", testSecret, "{}", "a", receivedAt) == hashOf("standard-webhooks", testSecret, "{}", "b", receivedAt) {
		t.Error("standard-webhooks: another signed id, the same hash")
	}
}

// TestBearerCoversNothing: a token vouches for its sender and for nothing in the message.
func TestBearerCoversNothing(t *testing.T) {
	t.Parallel()
	for _, spec := range []Spec{
		{Algorithm: Token, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "x-token"}}},
		{Algorithm: Basic},
	} {
		for _, id := range []*IDSpec{nil, {ValueSpec: ValueSpec{JSON: "id"}}} {
			spec.ID = id
			v := compileTest(t, spec)
			keys := parseKeys(t, v, "user:pa:ss")
			m := signed(t, v, Message{Body: []byte(`{"id":"1"}`)}, keys[0], "", receivedAt)
			got := v.Verify(&m, keys, receivedAt, time.Minute)
			if got.Reason != ReasonOK || got.ID == "" || got.IDSigned {
				t.Errorf("%s: %+v", spec.Algorithm, got)
			}
		}
	}
	v := compileTest(t, Spec{Algorithm: Basic})
	keys := parseKeys(t, v, "user:pa:ss")
	runRows(t, v, keys, []row{
		{"a colon in the password", Message{Header: headers("authorization: Basic dXNlcjpwYTpzcw==")}, ReasonOK},
		{"the word in another case", Message{Header: headers("authorization: bAsIc dXNlcjpwYTpzcw==")}, ReasonOK},
		{"another password", Message{Header: headers("authorization: Basic dXNlcjpwYQ==")}, ReasonBadSignature},
		{"no padding", Message{Header: headers("authorization: Basic dXNlcjpwYTpzcw")}, ReasonMalformedSignature},
		{"more than 8 KiB", Message{Header: headers("authorization: Basic " + strings.Repeat("dXNl", 2<<10))}, ReasonMalformedSignature},
		{"bearer", Message{Header: headers("authorization: Bearer dXNlcjpwYTpzcw==")}, ReasonWrongScheme},
		{"no word", Message{Header: headers("authorization: dXNlcjpwYTpzcw==")}, ReasonWrongScheme},
		{"none", Message{}, ReasonMissingSignature},
	})
}

// TestUnsignedTimes: Linear's header is not signed, Mailgun's and Linear's body fields are.
func TestUnsignedTimes(t *testing.T) {
	t.Parallel()
	v := provider(t, "linear").Verifier()
	keys := parseKeys(t, v, testSecret)
	msg := func(body string, lines ...string) Message {
		return Message{Body: []byte(body), Header: append(headers(lines...), Field{"linear-signature", formulaMAC("hex256", testSecret, []byte(body))})}
	}
	const atOnce = `{"webhookTimestamp":1700000000000}`
	runRows(t, v, keys, []row{
		{"the body's time", msg(atOnce), ReasonOK},
		{"the header's time is not looked at", msg(atOnce, "linear-timestamp: 1"), ReasonOK},
		{"old, whatever the header says", msg(`{"webhookTimestamp":1600000000000}`, "linear-timestamp: 1700000000000"), ReasonTooOld},
		{"no time", msg(`{}`), ReasonBadTimestamp},
		{"a text", msg(`{"webhookTimestamp":"soon"}`), ReasonBadTimestamp},
		{"a float", msg(`{"webhookTimestamp":1700000000000.5}`), ReasonBadTimestamp},
	})
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unit Unit
		text string
		want string // RFC 3339, or empty
	}{
		{Seconds, "0", "1970-01-01T00:00:00Z"},
		{Seconds, "1700000000", "2023-11-14T22:13:20Z"},
		{Seconds, "99999999999", "5138-11-16T09:46:39Z"},
		{Seconds, "", ""},
		{Seconds, "1.5", ""},
		{Seconds, "-1", ""},
		{Seconds, "+1700000000", ""},
		{Seconds, " 1700000000", ""},
		{Seconds, "01700000000", ""},
		{Seconds, "1_700_000_000", ""},
		{Seconds, "0x1", ""},
		{Seconds, "1e9", ""},
		{Seconds, "１７０００００００", ""},
		{Seconds, "100000000000", ""},
		{Seconds, "18446744073709551616", ""},
		{Seconds, "hello", ""},
		{Milliseconds, "1700000000999", "2023-11-14T22:13:20Z"},
		{Milliseconds, "100000000000000", ""},
		{RFC3339, "2023-11-14T22:13:20.123456789Z", "2023-11-14T22:13:20Z"},
		{RFC3339, "2023-11-14T15:13:20-07:00", "2023-11-14T22:13:20Z"},
		{RFC3339, "2023-11-14T22:13:20", ""},
		{RFC3339, "2023-11-14T22:13:20,5Z", ""},
		{RFC3339, "2023-11-14T2:13:20Z", ""},
		{RFC3339, "2023-11-14 22:13:20Z", ""},
		{RFC3339, "2023-11-14T22:13:20+25:00", ""},
		{RFC3339, "", ""},
		{ISO8601, "2023-11-14T22:13:20.551", "2023-11-14T22:13:20Z"},
		{ISO8601, "2023-11-14T22:13:20", "2023-11-14T22:13:20Z"},
		{ISO8601, "2023-11-14T22:13:20Z", "2023-11-14T22:13:20Z"},
		{ISO8601, "2023-11-14T15:13:20-07:00", "2023-11-14T22:13:20Z"},
		{ISO8601, "2023-11-14", ""},
	} {
		got, ok := parseTime(c.text, c.unit)
		if text := got.Format(time.RFC3339); ok != (c.want != "") || ok && text != c.want {
			t.Errorf("parseTime(%q, %s) = %s, %v, want %q", c.text, c.unit, text, ok, c.want)
		}
	}
}
