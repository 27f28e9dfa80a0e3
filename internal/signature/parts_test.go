package signature

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"testing"
)

// TestEach: every element is signed by itself, so every element must hold, and no reader may find other elements.
func TestEach(t *testing.T) {
	t.Parallel()
	v := compileTest(t, Spec{Algorithm: HMACSHA256, Each: "items", Signed: "{json:a.id}:{if json:ref}{json:ref}{end}",
		Signature: SignatureSpec{ValueSpec: ValueSpec{JSON: "sig"}}, Type: &ValueSpec{JSON: "kind"}})
	keys := parseKeys(t, v, testSecret)
	item := func(id, signedID string) string {
		return `{"a":{"id":"` + id + `"},"kind":"k-` + id + `","sig":"` + formulaMAC("hex256", testSecret, []byte(signedID+":")) + `"}`
	}
	body := func(s string) Message { return Message{Body: []byte(s)} }
	one, two := item("1", "1"), item("2", "2")
	runRows(t, v, keys, []row{
		{"one", body(`{"items":[` + one + `]}`), ReasonOK},
		{"two", body(`{"items":[` + one + `,` + two + `]}`), ReasonOK},
		{"byte order mark", body("\xef\xbb\xbf" + `{"items":[` + one + `]}`), ReasonOK},
		{"two, the second changed", body(`{"items":[` + one + `,` + item("3", "2") + `]}`), ReasonBadSignature},
		{"two, the first changed", body(`{"items":[` + item("3", "1") + `,` + two + `]}`), ReasonBadSignature},
		{"two, the second without a signature", body(`{"items":[` + one + `,{"a":{"id":"2"}}]}`), ReasonMissingSignature},
		{"an element that is no object", body(`{"items":[` + one + `,7]}`), ReasonMissingSignature},
		{"none", body(`{"items":[]}`), ReasonMissingSignature},
		{"no array", body(`{"items":` + one + `}`), ReasonMissingSignature},
		{"no JSON", body(`items=1`), ReasonMissingSignature},
		{"elements twice", body(`{"items":[` + one + `],"items":[` + two + `]}`), ReasonMalformedSignature},
		{"elements twice, in capitals", body(`{"items":[` + one + `],"ITEMS":[{"a":{"id":"x"}}]}`), ReasonMalformedSignature},
		{"a signed field twice", body(`{"items":[` + strings.Replace(one, `"kind"`, `"A":{"id":"x"},"kind"`, 1) + `]}`), ReasonMalformedSignature},
		{"a name twice elsewhere", body(`{"x":1,"x":2,"items":[` + one + `]}`), ReasonMalformedSignature},
		{"other names may differ in case", body(`{"x":1,"X":2,"items":[` + one + `]}`), ReasonOK},
		{"a second document", body(`{"items":[` + one + `]}{"items":[]}`), ReasonMalformedSignature},
		{"cut off", body(`{"items":[` + one), ReasonMalformedSignature},
		{"a comma too many", body(`{"items":[` + one + `,]}`), ReasonMalformedSignature},
		{"1024", body(`{"items":[` + strings.Repeat(one+",", maxItems-1) + two + `]}`), ReasonOK},
		{"1025", body(`{"items":[` + strings.Repeat(one+",", maxItems) + two + `]}`), ReasonMalformedSignature},
	})

	verify := func(s string) Verdict {
		m := body(s)
		return v.Verify(&m, keys, receivedAt, 0)
	}
	a, b, c := verify(`{"items":[`+one+`]}`), verify(`{ "items":[`+one+`] }`), verify(`{"items":[`+one+`,`+two+`]}`)
	if a.ID == "" || a.ID != b.ID || !a.IDSigned || a.Type != "k-1" {
		t.Errorf("one element: %+v and %+v", a, b)
	}
	if c.ID == a.ID || c.ContentHash == a.ContentHash || c.Type != "k-1" {
		t.Errorf("another element changes nothing: %+v", c)
	}
}

// TestAlso: of several headers one that fits is enough, and each comes at most once.
func TestAlso(t *testing.T) {
	t.Parallel()
	v := compileTest(t, Spec{Algorithm: HMACSHA256, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s-1"}, Also: []string{"S-2", "s-3"}}})
	keys := parseKeys(t, v, testSecret)
	good, bad := formulaMAC("hex256", testSecret, []byte("{}")), strings.Repeat("ab", 32)
	msg := func(lines ...string) Message { return Message{Body: []byte("{}"), Header: headers(lines...)} }
	runRows(t, v, keys, []row{
		{"first alone", msg("s-1: " + good), ReasonOK},
		{"second alone", msg("s-2: " + good), ReasonOK},
		{"last alone", msg("s-3: " + good), ReasonOK},
		{"last of three", msg("s-1: "+bad, "s-2: "+bad, "s-3: "+good), ReasonOK},
		{"all wrong", msg("s-1: "+bad, "s-2: "+bad), ReasonBadSignature},
		{"first twice", msg("s-1: "+good, "s-1: "+good), ReasonMalformedSignature},
		{"second twice", msg("s-1: "+good, "s-2: "+bad, "s-2: "+bad), ReasonMalformedSignature},
		{"none", msg(), ReasonMissingSignature},
		{"another", msg("s-4: " + good), ReasonMissingSignature},
	})
}

// TestListedHeaders: the sender says which headers it signs; what the scheme relies on has to be among them.
func TestListedHeaders(t *testing.T) {
	t.Parallel()
	spec := Spec{Algorithm: HMACSHA256, Signed: "{method}\n{target}\n{headers}\n{body}", Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}},
		Timestamp: &TimestampSpec{ValueSpec: ValueSpec{Header: "x-time"}},
		Headers:   &HeadersSpec{Header: "x-list", Named: true, Between: ";", Require: []string{"x-list", "X-Time", "x-topic"}}}
	v := compileTest(t, spec)
	keys := parseKeys(t, v, testSecret)
	msg := func(list, signedHeaders string, lines ...string) Message {
		mac := formulaMAC("hex256", testSecret, []byte("POST\n/h?a=1\n"+signedHeaders+"\n{}"))
		return Message{Method: "POST", Target: "/h?a=1", Body: []byte("{}"), Header: append(headers(lines...), Field{"x-list", list}, Field{"s", mac})}
	}
	const list, want = "x-list,x-time,x-topic", "x-list:x-list,x-time,x-topic;x-time:1700000000;x-topic:t"
	more, wantMore := list+",x-try", "x-list:"+list+",x-try;x-time:1700000000;x-topic:t;x-try:2"
	runRows(t, v, keys, []row{
		{"right", msg(list, want, "x-time: 1700000000", "x-topic: t"), ReasonOK},
		{"one more", msg(more, wantMore, "x-time: 1700000000", "x-topic: t", "x-try: 2"), ReasonOK},
		{"one more, and changed", msg(more, wantMore, "x-time: 1700000000", "x-topic: t", "x-try: 3"), ReasonBadSignature},
		{"the topic changed", msg(list, want, "x-time: 1700000000", "x-topic: u"), ReasonBadSignature},
		{"the topic not listed", msg("x-list,x-time", "x-list:x-list,x-time;x-time:1700000000", "x-time: 1700000000", "x-topic: t"), ReasonMalformedSignature},
		{"the time not listed", msg("x-list,x-topic", "x-list:x-list,x-topic;x-topic:t", "x-time: 1700000000", "x-topic: t"), ReasonMalformedSignature},
		{"listed and missing", msg(list, want, "x-time: 1700000000"), ReasonMissingSignature},
		{"listed and twice", msg(list, want, "x-time: 1700000000", "x-topic: t", "x-topic: t"), ReasonMalformedSignature},
		{"no list", msg("", "", "x-time: 1700000000", "x-topic: t"), ReasonMalformedSignature},
		{"a long list", msg(list+strings.Repeat(",x-list", maxListed), want, "x-time: 1700000000", "x-topic: t"), ReasonMalformedSignature},
		{"old", msg(list, strings.Replace(want, "1700", "1600", 1), "x-time: 1600000000", "x-topic: t"), ReasonTooOld},
	})
	id := func(m Message) string { return v.Verify(&m, keys, receivedAt, DefaultTolerance).ID }
	first := id(msg(list, want, "x-time: 1700000000", "x-topic: t"))
	if again := id(msg(more, strings.Replace(wantMore, "1700000000", "1700000009", 1), "x-time: 1700000009", "x-topic: t", "x-try: 2")); again != first || first == "" {
		t.Errorf("a second try has the id %q, the first %q", again, first)
	}
	if other := id(msg(list, strings.Replace(want, "topic:t", "topic:u", 1), "x-time: 1700000000", "x-topic: u")); other == first {
		t.Error("another topic has the same id")
	}

	m := signed(t, v, Message{Method: "POST", Target: "/h?a=1", Body: []byte("{}"), Header: headers("x-topic: t")}, keys[0], "", receivedAt)
	wantReason(t, v.Verify(&m, keys, receivedAt, 0), ReasonOK)
}

// TestDocument: the JSON stands in a field of a form of either kind.
func TestDocument(t *testing.T) {
	t.Parallel()
	v := compileTest(t, Spec{Algorithm: HMACSHA256, Document: "json", Signed: "{json:e.time}{json:e.type}",
		Signature: SignatureSpec{ValueSpec: ValueSpec{JSON: "e.hash"}}, ID: &IDSpec{ValueSpec: ValueSpec{JSON: "e.id"}}})
	keys := parseKeys(t, v, testSecret)
	doc := `{"e":{"id":"i","time":"1","type":"t","hash":"` + formulaMAC("hex256", testSecret, []byte("1t")) + `"}}`
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	multi := func(parts ...string) Message {
		return Message{Header: headers("content-type: multipart/form-data; boundary=b"), Body: []byte(strings.Join(parts, "") + "--b--\r\n")}
	}
	form := func(s string) Message {
		return Message{Header: headers("content-type: application/x-www-form-urlencoded"), Body: []byte(s)}
	}
	escaped := strings.NewReplacer(`{`, "%7B", `"`, "%22").Replace(doc)
	runRows(t, v, keys, []row{
		{"multipart", multi(part("json", doc)), ReasonOK},
		{"multipart, second field", multi(part("a", "b"), part("json", doc)), ReasonOK},
		{"multipart, twice", multi(part("json", doc), part("json", doc)), ReasonMalformedSignature},
		{"multipart, none", multi(part("jso", doc)), ReasonMissingSignature},
		{"multipart, cut off", Message{Header: multi().Header, Body: []byte(part("json", doc))}, ReasonMalformedSignature},
		{"multipart without boundary", Message{Header: headers("content-type: multipart/form-data"), Body: multi(part("json", doc)).Body}, ReasonMalformedSignature},
		{"multipart, changed", multi(part("json", strings.Replace(doc, `"t"`, `"u"`, 1))), ReasonBadSignature},
		{"multipart, a signed name twice", multi(part("json", strings.Replace(doc, `"type"`, `"type":"x","Type"`, 1))), ReasonMalformedSignature},
		{"form", form("json=" + escaped), ReasonOK},
		{"form, twice", form("json=" + escaped + "&json=" + escaped), ReasonMalformedSignature},
		{"form, none", form("j=1"), ReasonMissingSignature},
		{"bare", Message{Header: headers("content-type: application/json"), Body: []byte(doc)}, ReasonOK},
	})
	m := multi(part("json", doc))
	if got := v.Verify(&m, keys, receivedAt, 0); got.ID != "i" || got.IDSigned {
		t.Errorf("the id, which is not signed: %+v", got)
	}
}

// TestKeysOfTheSender: each element names the key that it is of, and the key is a hash of the secret (Braintree).
func TestKeysOfTheSender(t *testing.T) {
	t.Parallel()
	v := compileTest(t, Spec{Algorithm: HMACSHA1, Key: KeySHA1, Signed: "{form:payload}",
		Signature: SignatureSpec{ValueSpec: ValueSpec{Form: "sig"}, List: "&", KeySeparator: "|", KeyValue: "*"}})
	keys := parseKeys(t, v, testSecret)
	sum := sha1.Sum([]byte(testSecret))
	h := hmac.New(sha1.New, sum[:])
	h.Write([]byte("p\n"))
	good := hex.EncodeToString(h.Sum(nil))
	msg := func(sig string) Message {
		return Message{Header: headers("content-type: application/x-www-form-urlencoded"),
			Body: []byte("sig=" + strings.NewReplacer("|", "%7C", "&", "%26").Replace(sig) + "&payload=p%0A")}
	}
	runRows(t, v, keys, []row{
		{"one", msg("key1|" + good), ReasonOK},
		{"second of two", msg("key0|" + strings.Repeat("0", 40) + "&key1|" + good), ReasonOK},
		{"wrong", msg("key1|" + strings.Repeat("0", 40)), ReasonBadSignature},
		{"no key", msg(good), ReasonMalformedSignature},
		{"the secret's own text as the key", msg("key1|" + formulaMAC("hex1", testSecret, []byte("p\n"))), ReasonBadSignature},
	})
}

// TestPlainSHA1 is Cloudinary's form, as its page puts it: the hash of body, time and secret.
func TestPlainSHA1(t *testing.T) {
	t.Parallel()
	v := compileTest(t, Spec{Algorithm: SHA1, Signed: "{body}{timestamp}{secret}", Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}},
		Timestamp: &TimestampSpec{ValueSpec: ValueSpec{Header: "t"}}})
	keys := parseKeys(t, v, "secret")
	sum := sha1.Sum([]byte("{}1700000000secret"))
	m := Message{Body: []byte("{}"), Header: headers("t: 1700000000", "s: "+hex.EncodeToString(sum[:]))}
	wantReason(t, v.Verify(&m, keys, receivedAt, 0), ReasonOK)
	if mac, ok := keys[0].MAC([]byte("x")); ok {
		t.Errorf("a plain hash is no MAC: %x", mac)
	}
	m.Body = []byte("[]")
	wantReason(t, v.Verify(&m, keys, receivedAt, 0), ReasonBadSignature)
	other := signed(t, v, Message{Body: []byte("{}")}, keys[0], "", receivedAt)
	if got := other.Header[len(other.Header)-1].Value; got != hex.EncodeToString(sum[:]) {
		t.Errorf("Sign: %s", got)
	}
}

// TestTargetAndBase are the two cuts of a URL that senders sign beside the whole.
func TestTargetAndBase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ signed, want string }{
		{"{target}", "/a/b?x=%20"},
		{"{url:base}{body}", "https://h/a/b{}"},
	} {
		v := compileTest(t, Spec{Algorithm: HMACSHA256, Signed: c.signed, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}})
		m := Message{Method: "POST", Target: "/a/b?x=%20", URL: "https://h/a/b?x=%20#f", Body: []byte("{}"),
			Header: []Field{{"s", formulaMAC("hex256", testSecret, []byte(c.want))}}}
		wantReason(t, v.Verify(&m, parseKeys(t, v, testSecret), receivedAt, 0), ReasonOK)
		if v.NeedsURL() != (c.signed != "{target}") {
			t.Errorf("%s: NeedsURL %v", c.signed, v.NeedsURL())
		}
	}
}
