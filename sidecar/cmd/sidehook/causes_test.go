package main

import (
	"bytes"
	"compress/gzip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// Each accident that happens to a message on its way is named, and an honest mismatch gets no invented cause.
func TestLikelyCauses(t *testing.T) {
	t.Parallel()
	const (
		body = "{\"a\":1,\"s\":\"\u00fc/\"}"
		url  = "https://hooks.example.com/in?x=1"
		raw  = "c2VjcmV0LXRoYXQtaXMtYmFzZTY0LXRleHQ="
	)
	spec := signature.Spec{
		Algorithm: signature.HMACSHA256,
		Signed:    "{url}.{body}",
		Signature: signature.SignatureSpec{ValueSpec: signature.ValueSpec{Header: "X-Sig"}, Prefix: "sha256="},
	}
	for _, tc := range []struct {
		name string
		// sender changes what the sender signs; receiver what we are given.
		sender   func(*signature.Spec, *signature.Message)
		receiver func(*signature.Message)
		want     string // a part of the first cause
	}{
		{"nothing in common", nil, func(m *signature.Message) { m.Body = []byte("{}") }, ""},
		{"newline added", nil, func(m *signature.Message) { m.Body = append(m.Body, '\n') }, "has got a newline"},
		{"newline added to plain JSON", func(_ *signature.Spec, m *signature.Message) { m.Body = []byte(`{"a":1}`) },
			func(m *signature.Message) { m.Body = []byte("{\"a\":1}\n") }, "has got a newline"},
		{"newline lost", func(_ *signature.Spec, m *signature.Message) { m.Body = append(m.Body, '\n') }, nil, "has lost the newline"},
		{"CR LF lost", func(_ *signature.Spec, m *signature.Message) { m.Body = append(m.Body, "\r\n"...) }, nil, "has lost the CR LF"},
		{"byte order mark lost", func(_ *signature.Spec, m *signature.Message) { m.Body = append([]byte("\ufeff"), m.Body...) }, nil, "has lost the byte order mark"},
		{"JSON indented", nil, func(m *signature.Message) { m.Body = indentJSON(m.Body, "\t") }, "without blanks"},
		{"JSON compacted", func(_ *signature.Spec, m *signature.Message) { m.Body = indentJSON(m.Body, "  ") }, nil, "indented by 2"},
		{"JSON of Python compacted", func(_ *signature.Spec, m *signature.Message) {
			m.Body = []byte("{\"a\": 1, \"s\": \"\u00fc/\"}")
		}, nil, "blank after each comma"},
		{"JSON of Python compacted and its escapes resolved", func(_ *signature.Spec, m *signature.Message) {
			m.Body = []byte(`{"a": 1, "s": "\u00fc/"}`)
		}, nil, "after each comma and colon, and in ASCII"},
		{"escaped slashes lost", func(_ *signature.Spec, m *signature.Message) {
			m.Body = []byte("{\"a\":1,\"s\":\"\u00fc\\/\"}")
		}, nil, `signed / as \/`},
		{"escapes resolved", func(_ *signature.Spec, m *signature.Message) { m.Body = []byte(`{"a":1,"s":"\u00fc/"}`) }, nil, `as \u escapes`},
		{"body quoted once more", nil, func(m *signature.Message) { m.Body = []byte(`"{\"a\":1,\"s\":\"ü/\"}"`) }, "a quoted string"},
		{"TLS ended before us", nil, func(m *signature.Message) { m.URL = strings.Replace(m.URL, "https", "http", 1) }, "URL: " + url},
		{"port added", nil, func(m *signature.Message) { m.URL = strings.Replace(m.URL, ".com", ".com:443", 1) }, "URL: " + url},
		{"slash added", nil, func(m *signature.Message) { m.URL = strings.Replace(m.URL, "/in", "/in/", 1) }, "URL: " + url},
		{"secret is base64", func(s *signature.Spec, _ *signature.Message) { s.Key = signature.KeyBase64 }, nil, "reads it as BASE64"},
		{"other hash", func(s *signature.Spec, _ *signature.Message) { s.Algorithm = signature.HMACSHA512 }, nil, "HMAC_SHA512"},
		{"zipped after it was signed", nil, func(m *signature.Message) {
			m.Body = zipped(t, m.Body)
			m.Header = []signature.Field{{Name: "content-encoding", Value: "gzip"}}
		}, "before it is zipped"},
		{"body alone is signed", func(s *signature.Spec, _ *signature.Message) { s.Signed = "{body}" }, nil, "the body alone"},
		{"no prefix", func(s *signature.Spec, _ *signature.Message) { s.Signature.Prefix = "" }, nil, "without \"sha256=\" before it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
			message := func() signature.Message {
				return signature.Message{Method: "POST", Target: "/in?x=1", URL: url, Body: []byte(body)}
			}
			theirs, sent := spec, message()
			if tc.sender != nil {
				tc.sender(&theirs, &sent)
			}
			v := compile(t, theirs)
			fields, err := v.Sign(&sent, parseKeys(v, [][]byte{[]byte(raw)})[0], "", now)
			if err != nil {
				t.Fatal(err)
			}
			got := message()
			if tc.receiver != nil {
				tc.receiver(&got)
			}
			got.Header = append(got.Header, fields...)
			ours := compile(t, spec)
			secrets := [][]byte{[]byte(raw)}
			s := &signed{specs: []signature.Spec{spec}, verifier: ours, secrets: secrets, keys: parseKeys(ours, secrets), message: got, now: now}
			if r := ours.Verify(&got, s.keys, now, time.Minute).Reason; r != signature.ReasonBadSignature && r != signature.ReasonMalformedSignature {
				t.Fatalf("the message is refused as %v, want bad_signature or malformed_signature", r)
			}
			causes := likelyCauses(s)
			switch {
			case tc.want == "" && len(causes) > 0:
				t.Errorf("causes %q, want none", causes)
			case tc.want != "" && (len(causes) == 0 || !strings.Contains(causes[0].text, tc.want)):
				t.Errorf("causes %q, want first one with %q", causes, tc.want)
			case len(causes) > 1 && strings.Contains(causes[0].text, "the body has got"):
				t.Errorf("causes %q, want the first alone: the others come to the same body", causes)
			}
		})
	}
}

// TestCausesOfSignedTime: what is signed beside the time is tried out too, and the body without it.
func TestCausesOfSignedTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	secrets := [][]byte{[]byte("topsecret-topsecret")}
	spec := signature.Spec{
		Algorithm: signature.HMACSHA256,
		Signed:    "{timestamp}.{body}",
		Signature: signature.SignatureSpec{ValueSpec: signature.ValueSpec{Header: "X-Sig"}},
		Timestamp: &signature.TimestampSpec{ValueSpec: signature.ValueSpec{Header: "X-Time"}},
	}
	ours := compile(t, spec)
	for form, want := range map[string]string{
		"{timestamp}:{body}":  `the sender signs "{timestamp}:{body}"`,
		"{timestamp}{body}":   `the sender signs "{timestamp}{body}"`,
		"{timestamp}\n{body}": `the sender signs "{timestamp}\n{body}"`,
		"{body}":              "the sender signs the body alone",
	} {
		theirs := spec
		theirs.Signed = form
		got := signature.Message{Method: "POST", Target: "/in", Body: []byte("{}")}
		got.Header = []signature.Field{{Name: "X-Time", Value: strconv.FormatInt(now.Unix(), 10)}}
		if form == "{body}" {
			theirs.Timestamp = nil
		}
		v := compile(t, theirs)
		fields, err := v.Sign(&got, parseKeys(v, secrets)[0], "", now)
		if err != nil {
			t.Fatal(err)
		}
		got.Header = append(got.Header, fields...)
		s := &signed{specs: []signature.Spec{spec}, verifier: ours, secrets: secrets, keys: parseKeys(ours, secrets), message: got, now: now}
		if causes := likelyCauses(s); len(causes) != 1 || causes[0].text != want {
			t.Errorf("signed %q: causes %q, want %q alone", form, causes, want)
		}
	}
}

func zipped(t *testing.T, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func compile(t *testing.T, spec signature.Spec) *signature.Verifier {
	t.Helper()
	v, err := signature.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestParted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ have, signed, want string }{
		{`{"a":1}`, `{"a": 1}`, `they part at byte 5: the body at hand goes on "1}" (hex 31 7d); the signed one goes on " 1}" (hex 20 31 7d)`},
		{"{}\n", "{}", `they part at byte 2: the body at hand goes on "\n" (hex 0a); the signed one ends there, after "{}"`},
		{"", "{}", `they part at byte 0: the body at hand ends there, after ""; the signed one goes on "{}" (hex 7b 7d)`},
		{strings.Repeat("a", 100) + "\x00", strings.Repeat("a", 100), `they part at byte 100: the body at hand goes on "\x00" (hex 00); the signed one ends there, after "aaaaaaaaaaaa"`},
		{"\xff" + strings.Repeat("b", 100), "\xef\xbb\xbf", `they part at byte 0: the body at hand goes on "\xffbbbbbbbbbbbbbbbbbbbbbbb" (hex ff 62 62 62 62 62 62 62); the signed one goes on "\ufeff" (hex ef bb bf)`},
	} {
		if got := parted([]byte(tc.have), []byte(tc.signed)); got != tc.want {
			t.Errorf("parted(%q, %q) =\n%s, want\n%s", tc.have, tc.signed, got, tc.want)
		}
	}
}
