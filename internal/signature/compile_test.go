package signature

import (
	"strings"
	"testing"
)

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	const known = "; there are body, form:sorted, headers, headers:list, id, method, path, query, secret, sha256:body, target, timestamp, " +
		"url, url:base, and header:, json:, form: and query: with a name"
	header := func(name string) SignatureSpec { return SignatureSpec{ValueSpec: ValueSpec{Header: name}} }
	base := func(change func(s *Spec)) Spec {
		s := Spec{Algorithm: HMACSHA256, Signature: header("s")}
		change(&s)
		return s
	}
	timed := &TimestampSpec{ValueSpec: ValueSpec{Header: "t"}}
	for _, c := range []struct {
		want string
		spec Spec
	}{
		{"algorithm: one is needed", Spec{Signature: header("s")}},
		{`algorithm: unknown "NONE"`, base(func(s *Spec) { s.Algorithm = "NONE" })},
		{"key: PEM does not go with HMAC_SHA256", base(func(s *Spec) { s.Key = KeyPEM })},
		{"key: TEXT does not go with ED25519", base(func(s *Spec) { s.Algorithm, s.Key = Ed25519, KeyText })},
		{"key: HEX does not go with TOKEN", base(func(s *Spec) { s.Algorithm, s.Key = Token, KeyHex })},
		{"signed: unknown placeholder {foo}" + known, base(func(s *Spec) { s.Signed = "{foo}" })},
		{"signed: unknown placeholder {}" + known, base(func(s *Spec) { s.Signed = "{}" })},
		{"signed: placeholder {body has no closing brace; {{ is a brace", base(func(s *Spec) { s.Signed = "{body" })},
		{"signed: placeholder {header:}: a name is missing", base(func(s *Spec) { s.Signed = "{header:}" })},
		{`signed: placeholder {header:a b}: header: "a b" is no header name`, base(func(s *Spec) { s.Signed = "{header:a b}" })},
		{`signed: placeholder {json:a..b}: json: an empty name in "a..b"`, base(func(s *Spec) { s.Signed = "{json:a..b}" })},
		{`each: json: leave $. out of "$.a": a path begins at the outermost value`, base(func(s *Spec) { s.Each = "$.a" })},
		{`each: json: an element of an array is written a.0 and not a[0], as in "a[0].b"`, base(func(s *Spec) { s.Each = "a[0].b" })},
		{"signed: {timestamp} needs a timestamp", base(func(s *Spec) { s.Signed = "{timestamp}{body}" })},
		{"signed: {id} needs an id in a header, json, form or query", base(func(s *Spec) { s.Signed = "{id}{body}" })},
		{"signed: covers nothing of the message", base(func(s *Spec) { s.Signed = "constant" })},
		{"signed: covers nothing of the message", base(func(s *Spec) { s.Signed, s.Timestamp = "{timestamp}", timed })},
		{"signed: {if …} without {end}", base(func(s *Spec) { s.Signed = "{if header:x}{body}" })},
		{"signed: {end} without {if …}", base(func(s *Spec) { s.Signed = "{body}{end}" })},
		{"signed: {if …} within {if …}", base(func(s *Spec) { s.Signed = "{if header:x}{if header:y}{end}{end}{body}" })},
		{"signed: {if body}: only header:, json:, form: and query: can be absent", base(func(s *Spec) { s.Signed = "{if body}{end}" })},
		{"signed: {secret} is for SHA256 and SHA1, and needed there", base(func(s *Spec) { s.Signed = "{secret}{body}" })},
		{"signed: {secret} is for SHA256 and SHA1, and needed there", base(func(s *Spec) { s.Algorithm = SHA256 })},
		{"signature: exactly one of header, json, form, query is needed", base(func(s *Spec) { s.Signature = SignatureSpec{} })},
		{"signature: exactly one of header, json, form, query is needed", base(func(s *Spec) { s.Signature.JSON = "a" })},
		{`signature: header: "x:" is no header name`, base(func(s *Spec) { s.Signature.Header = "x:" })},
		{`signature.encoding: unknown "B64"`, base(func(s *Spec) { s.Signature.Encoding = "B64" })},
		{"signature.encoding: TOKEN has none", base(func(s *Spec) { s.Algorithm, s.Signature.Encoding = Token, Hex })},
		{"signature.layout: only for ECDSA_P256", base(func(s *Spec) { s.Signature.Layout = DER })},
		{"signature.list: a separator of 1 to 4 bytes", base(func(s *Spec) { s.Signature.List = "12345" })},
		{"signature.blanks: only with list", base(func(s *Spec) { s.Signature.Blanks = true })},
		{"signature.prefix: not with key_value", base(func(s *Spec) { s.Signature.KeyValue, s.Signature.Prefix = "v1", "x" })},
		{"signature.prefix_optional: only with prefix", base(func(s *Spec) { s.Signature.PrefixOptional = true })},
		{"signature.key_separator: the same as list", base(func(s *Spec) { s.Signature.List, s.Signature.KeyValue = "=", "v1" })},
		{"signature.skip: only with list, and not negative", base(func(s *Spec) { s.Signature.Skip = 1 })},
		{`signature.others[0]: header: a name is needed`, base(func(s *Spec) { s.Signature.Others = []string{""} })},
		{"timestamp: exactly one of header, json, form, query, signature_key, signature_index is needed", base(func(s *Spec) { s.Timestamp = &TimestampSpec{} })},
		{"timestamp: what is not in signed protects nothing; add {timestamp}", base(func(s *Spec) { s.Timestamp = timed })},
		{"timestamp: what is not in signed protects nothing; add {timestamp}", base(func(s *Spec) { s.Algorithm, s.Timestamp = Token, timed })},
		{`timestamp.unit: unknown "S"`, base(func(s *Spec) {
			s.Signed, s.Timestamp = "{timestamp}{body}", &TimestampSpec{ValueSpec: ValueSpec{Header: "t"}, Unit: "S"}
		})},
		{`timestamp.window: unknown "W"`, base(func(s *Spec) {
			s.Signed, s.Timestamp = "{timestamp}{body}", &TimestampSpec{ValueSpec: ValueSpec{Header: "t"}, Window: "W"}
		})},
		{"timestamp.signature_key: needs signature.list and another signature.key_value", base(func(s *Spec) { s.Timestamp = &TimestampSpec{SignatureKey: "t"} })},
		{"timestamp.signature_index: counts from 1, within signature.skip", base(func(s *Spec) { s.Timestamp = &TimestampSpec{SignatureIndex: 1} })},
		{"id: one of header, json, form, query, hash, none is needed", base(func(s *Spec) { s.ID = &IDSpec{} })},
		{"id.none: stands alone", base(func(s *Spec) { s.ID = &IDSpec{Hash: true, None: true} })},
		{"type: exactly one of header, json, form, query is needed", base(func(s *Spec) { s.Type = &ValueSpec{} })},
		{`body: unknown "RAW"`, base(func(s *Spec) { s.Body = "RAW" })},
		{`url: unknown "ANY"`, base(func(s *Spec) { s.URL = "ANY" })},
		{"url: only with {url} in signed", base(func(s *Spec) { s.URL = URLTwilio })},
		{"body_hash: what is not in signed protects nothing", base(func(s *Spec) { s.BodyHash = &BodyHashSpec{ValueSpec: ValueSpec{Query: "h"}} })},
		{"body_hash: exactly one of header, query is needed", base(func(s *Spec) { s.BodyHash = &BodyHashSpec{} })},
		{"signature.also: only with header", base(func(s *Spec) { s.Signature = SignatureSpec{ValueSpec: ValueSpec{JSON: "a"}, Also: []string{"b"}} })},
		{`signature.also[0]: header: "a b" is no header name`, base(func(s *Spec) { s.Signature.Also = []string{"a b"} })},
		{"signature.also: not with a timestamp in the signature's list", base(func(s *Spec) {
			s.Signed, s.Timestamp = "{timestamp}{body}", &TimestampSpec{SignatureKey: "t"}
			s.Signature.List, s.Signature.KeyValue, s.Signature.Also = ",", "v1", []string{"b"}
		})},
		{"signed: {headers} needs headers, and they need it", base(func(s *Spec) { s.Signed = "{headers}{body}" })},
		{"signed: {headers} needs headers, and they need it", base(func(s *Spec) { s.Headers = &HeadersSpec{Header: "h"} })},
		{"signed: {headers:list} needs headers.signature_key; {header:…} is a list in a header", base(func(s *Spec) {
			s.Signed, s.Headers = "{headers:list}{headers}", &HeadersSpec{Header: "h"}
		})},
		{"headers: exactly one of header, signature_key is needed", base(func(s *Spec) { s.Signed, s.Headers = "{headers}", &HeadersSpec{} })},
		{`headers: header: "a b" is no header name`, base(func(s *Spec) { s.Signed, s.Headers = "{headers}", &HeadersSpec{Header: "a b"} })},
		{"headers.signature_key: needs signature.list and signature.key_value", base(func(s *Spec) {
			s.Signed, s.Headers = "{headers}", &HeadersSpec{SignatureKey: "h"}
		})},
		{"headers.require[0]: header: a name is needed", base(func(s *Spec) {
			s.Signed, s.Headers = "{headers}", &HeadersSpec{Header: "h", Require: []string{""}}
		})},
		{`each: json: an empty name in "a..b"`, base(func(s *Spec) { s.Each = "a..b" })},
		{"each: one path is wanted", base(func(s *Spec) { s.Each = "a+b" })},
		{"each: the id cannot be a JSON path, for there may be several; write id: {hash: true}", base(func(s *Spec) {
			s.Each, s.ID = "a", &IDSpec{ValueSpec: ValueSpec{JSON: "id"}}
		})},
		{"each: not with BASIC", base(func(s *Spec) { s.Algorithm, s.Each = Basic, "a" })},
		{"require[0]: header: a name is needed", base(func(s *Spec) { s.Require = []RequireSpec{{}} })},
	} {
		if _, err := Compile(c.spec); err == nil || err.Error() != c.want {
			t.Errorf("Compile(%+v):\n got %v\nwant %s", c.spec, err, c.want)
		}
	}
}

func TestCompileAlternatives(t *testing.T) {
	t.Parallel()
	good := Spec{Algorithm: HMACSHA256, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}}
	bad := good
	bad.Signed = "{foo}"
	if _, err := Compile(good, bad); err == nil || !strings.HasPrefix(err.Error(), "[1].signed: unknown placeholder {foo}; there are body, ") {
		t.Errorf("Compile: %v", err)
	}
	hexKey := good
	hexKey.Key = KeyHex
	if _, err := Compile(good, hexKey); err == nil || !strings.HasPrefix(err.Error(), "key: ") {
		t.Errorf("Compile of keys that cannot be told apart: %v", err)
	}
	if _, err := Compile(); err == nil {
		t.Error("Compile of nothing")
	}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	m := Message{Method: "PUT", Target: "/a/b?x=1&y=%20", URL: "https://h/a/b?x=1&y=%20", Body: []byte(`{"a":{"b":7}}`),
		Header: headers("x-one: 1", "content-type: application/json")}
	for _, c := range []struct{ signed, want string }{
		{"{method} {path} {query} {url}", "PUT /a/b x=1&y=%20 https://h/a/b?x=1&y=%20"},
		{"{{body}{body}", `{body}{"a":{"b":7}}`},
		{"{header:X-One}|{json:a.b}|{query:y}", "1|7| "},
		{"{sha256:body}", sha256Hex(m.Body)},
		{"{if header:x-one}one={header:x-one};{end}{if header:x-two}two={header:x-two};{end}{body}", `one=1;{"a":{"b":7}}`},
		{"}{path}}", "}/a/b}"},
	} {
		v := compileTest(t, Spec{Algorithm: HMACSHA256, Signed: c.signed, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}})
		signedMessage := signed(t, v, m, parseKeys(t, v, testSecret)[0], "", receivedAt)
		if got := signedMessage.Header[len(m.Header)].Value; got != formulaMAC("hex256", testSecret, []byte(c.want)) {
			e := v.Explain(&signedMessage, parseKeys(t, v, testSecret), receivedAt, 0)
			t.Errorf("%s: signed %q, want %q", c.signed, e.Signed, c.want)
		}
	}
}
