package signature

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestURLForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url  string
		form URLForm
		want []string
	}{
		{"https://h/p?a=1#rc=2", URLExact, []string{"https://h/p?a=1"}},
		{"https://h/p?a=1#rc=2", URLTwilio, []string{"https://h/p?a=1", "https://h:443/p?a=1"}},
		{"http://h/p", URLTwilio, []string{"http://h/p", "http://h:80/p"}},
		{"https://h:8443/p", URLTwilio, []string{"https://h:8443/p", "https://h/p"}},
		{"https://[::1]:8443/p", URLTwilio, []string{"https://[::1]:8443/p", "https://[::1]/p"}},
		{"https://[::1]/p", URLTwilio, []string{"https://[::1]/p", "https://[::1]:443/p"}},
		{"https://user:pass@h/p", URLTwilio, []string{"https://user:pass@h/p", "https://user:pass@h:443/p"}},
		{"https://h?a=b c", URLTwilio, []string{"https://h?a=b c", "https://h:443?a=b c", "https://h:443?a=b%20c", "https://h?a=b%20c"}},
		{"https://h/p?a=don't+@:", URLTwilio, []string{"https://h/p?a=don't+@:", "https://h:443/p?a=don't+@:", "https://h:443/p?a=don't%20%40%3A", "https://h/p?a=don't%20%40%3A"}},
		{"https://h/p?a=%zz", URLTwilio, []string{"https://h/p?a=%zz", "https://h:443/p?a=%zz"}},
		{"no url", URLTwilio, []string{"no url"}},
		{"", URLTwilio, []string{""}},
		{"https://h/p?r=%2Fa%3ab&n=J%C3%BC%20%26", URLHubSpot, []string{"https://h/p?r=%2Fa%3ab&n=J%C3%BC%20%26", "https://h/p?r=/a:b&n=J%C3%BC%20%26"}},
	} {
		if got := urlForms(nil, c.url, c.form); !slices.Equal(got, c.want) {
			t.Errorf("urlForms(%q, %s):\n got %q\nwant %q", c.url, c.form, got, c.want)
		}
	}
}

func TestSortedForm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body, want string
		ok         bool
	}{
		{"b=2&a=1", "a1b2", true},
		{"a=&b=%20", "ab ", true},
		{"a=x+y&A=z", "Azax y", true},
		{"Digits=5678&Digits=1234&Digits=1234", "Digits1234Digits5678", true},
		{"a", "a", true},
		{"", "", true},
		{"&&", "", true},
		{"a=%2B1415&a=%2b1415", "a+1415", true},
		{"a=1;b=2", "a1;b=2", true}, // a semicolon separates nothing
		{"a=%", "", false},
		{"a=%4", "", false},
		{"a=%zz", "", false},
	} {
		got, ok := sortedForm(nil, []byte(c.body))
		if ok != c.ok || ok && string(got) != c.want {
			t.Errorf("sortedForm(%q) = %q, %v, want %q, %v", c.body, got, ok, c.want, c.ok)
		}
	}
}

// TestTwilioBody: what ties the body to the signature cannot be taken off by changing what is not signed.
func TestTwilioBody(t *testing.T) {
	t.Parallel()
	v := provider(t, "twilio").Verifier()
	keys := parseKeys(t, v, "12345")
	const (
		base = "https://example.com/sms?a=1"
		json = `{"property": "value", "boolean": true}`
		hash = "&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
	)
	// What Twilio signs is the URL alone but for the fields of a form.
	msg := func(url, signedContent, contentType, body string) Message {
		h := []Field{{"x-twilio-signature", twilioMAC("12345", signedContent)}}
		if contentType != "" {
			h = append(h, Field{"content-type", contentType})
		}
		return Message{Method: "POST", URL: url, Target: targetOf(url), Header: h, Body: []byte(body)}
	}
	const form = "application/x-www-form-urlencoded"
	runRows(t, v, keys, []row{
		{"json", msg(base+hash, base+hash, "application/json", json), ReasonOK},
		{"json, hash in upper case", msg(base+"&bodySHA256=0A1FF7634D9AB3B95DB5C9A2DFE9416E41502B283A80C7CF19632632F96E6620", base+"&bodySHA256=0A1FF7634D9AB3B95DB5C9A2DFE9416E41502B283A80C7CF19632632F96E6620", "application/json; charset=utf-8", json), ReasonOK},
		{"json changed", msg(base+hash, base+hash, "application/json", json+" "), ReasonBadSignature},
		{"json without a hash", msg(base, base, "application/json", json), ReasonBadSignature},
		{"hash given twice", msg(base+hash+hash, base+hash+hash, "application/json", json), ReasonBadSignature},
		{"json replaced by an empty form", msg(base+hash, base+hash, form, ""), ReasonBadSignature},
		{"an empty form replaced by json", msg(base, base, "application/json", json), ReasonBadSignature},
		{"a form said to be text", msg(base, base+"A1", "text/plain", "A=1"), ReasonBadSignature},
		{"form", msg(base, base+"A1", form+"; charset=UTF-8", "A=1"), ReasonOK},
		{"form without a type", msg(base, base+"A1", "", "A=1"), ReasonOK},
		{"form that does not decode", msg(base, base+"A%", form, "A=%"), ReasonMalformedSignature},
		{"fragment of the configured URL", msg(base+"#rc=2", base, form, ""), ReasonOK},
		{"no public URL", Message{Method: "POST", Target: "/sms?a=1", Header: headers("x-twilio-signature: " + twilioMAC("12345", base))}, ReasonBadSignature},
	})
	get := Message{Method: "GET", URL: base + "&From=%2B1415", Target: "/sms?a=1&From=%2B1415",
		Header: headers("x-twilio-signature: " + twilioMAC("12345", base+"&From=%2B1415"))}
	wantReason(t, v.Verify(&get, keys, receivedAt, time.Minute), ReasonOK)
}

// TestFormSchemeWithoutBodyHash: a scheme of fields alone, without a hash beside them, covers forms and nothing else.
func TestFormSchemeWithoutBodyHash(t *testing.T) {
	t.Parallel()
	v := compileTest(t, Spec{Algorithm: HMACSHA256, Signed: "{path}{form:sorted}", Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}})
	keys := parseKeys(t, v, testSecret)
	msg := func(contentType, body, signed string) Message {
		return Message{Method: "POST", Target: "/in", Body: []byte(body),
			Header: headers("content-type: "+contentType, "s: "+formulaMAC("hex256", testSecret, []byte(signed)))}
	}
	const form = "application/x-www-form-urlencoded"
	runRows(t, v, keys, []row{
		{"form", msg(form, "b=2&a=1", "/ina1b2"), ReasonOK},
		{"empty form", msg(form, "", "/in"), ReasonOK},
		{"json that nothing covers", msg("application/json", `{"amount":1}`, "/in"), ReasonBadSignature},
		{"form said to be json", msg("application/json", "a=1", "/in"), ReasonBadSignature},
	})
}

// TestFormFieldsAreBounded: what is sorted is no more than 4096 fields.
func TestFormFieldsAreBounded(t *testing.T) {
	t.Parallel()
	v := compileTest(t, Spec{Algorithm: HMACSHA256, Signed: "{form:sorted}", Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}})
	keys := parseKeys(t, v, testSecret)
	msg := func(fields int) Message {
		var body, signed strings.Builder
		for i := range fields {
			fmt.Fprintf(&body, "f%04d=x&", i)
			fmt.Fprintf(&signed, "f%04dx", i)
		}
		return Message{Method: "POST", Body: []byte(body.String()), Header: headers("content-type: application/x-www-form-urlencoded",
			"s: "+formulaMAC("hex256", testSecret, []byte(signed.String())))}
	}
	runRows(t, v, keys, []row{
		{"4096", msg(4096), ReasonOK},
		{"4097", msg(4097), ReasonMalformedSignature},
	})
}

// TestForwardedHeaders: only the configured URL is signed; what a client says of its URL is not read.
func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
	v := provider(t, "square").Verifier()
	keys := parseKeys(t, v, testSecret)
	m := Message{Method: "POST", URL: "https://example.com/sq", Target: "/sq", Body: []byte("{}")}
	m = signed(t, v, m, keys[0], "", receivedAt)
	m.URL = "https://internal/sq"
	m.Header = append(m.Header, headers("host: example.com", "x-forwarded-host: example.com", "x-forwarded-proto: https", "forwarded: host=example.com")...)
	wantReason(t, v.Verify(&m, keys, receivedAt, time.Minute), ReasonBadSignature)
}
