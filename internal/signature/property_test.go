package signature

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// secretFor returns a secret of each provider, able to sign where the scheme can.
func secretFor(t *testing.T, p *Provider) string {
	t.Helper()
	switch k := p.Verifier().kinds[0]; {
	case k.algorithm == Basic:
		return "user:" + testSecret
	case k.symmetric() && k.format == KeyHex:
		return sha256Hex([]byte(testSecret))
	case k.symmetric():
		return testSecret
	}
	for _, c := range publicKeyCases(t) {
		if c.spec.Algorithm == p.Specs[0].Algorithm && c.spec.Key == p.Specs[0].Key && c.private != "" {
			return c.private
		}
	}
	t.Fatalf("%s: no private key of its kind", p.Name)
	return ""
}

// signedBeside are fields that a sender signs, or sends, beside what Sign adds.
var signedBeside = map[string][]string{
	"cloudevents": {"ce-specversion: 1.0", "ce-source: /a", "ce-id: 1", "ce-type: a"},
	"airship":     {"x-ua-timestamp: 1"},
	"contentful":  {"x-contentful-topic: ContentManagement.Entry.publish"},
	"daily":       {"x-webhook-timestamp: 1"},
	"lago-hmac":   {"x-lago-signature-algorithm: hmac"},
	"lark":        {"x-lark-request-nonce: n"},
	"lark-card":   {"x-lark-request-nonce: n"},
	"oura":        {"x-oura-timestamp: 1"},
	"plivo-v2":    {"x-plivo-signature-v2-nonce: n"},
	"pusher":      {"x-pusher-key: k"},
	"wechat-pay":  {"wechatpay-nonce: n", "wechatpay-serial: s"},
}

// onlyVerified have signatures in the body or over what only the sender can choose.
var onlyVerified = []string{"adyen", "aircall", "braintree", "coinbase-cdp", "dropbox-sign", "figma", "lever", "mailgun", "microsoft-graph", "pandadoc",
	"prismic", "travis"}

// TestSignThenVerify: what Sign makes, Verify accepts, for every provider and scheme that can be signed; and no bit of
// what is signed can be another.
func TestSignThenVerify(t *testing.T) {
	t.Parallel()
	for _, p := range Providers() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			v := p.Verifier()
			if kind := v.kinds[0]; p.Native != "" || p.JWT != nil && !kind.symmetric() || kind.format == KeyJWKS {
				return // public keys alone; its vectors are what there is
			}
			keys := parseKeys(t, v, secretFor(t, p))
			body := fmt.Sprintf(`{"id":"evt_1","event_id":"evt_1","event":{"id":"evt_1"},"webhookTimestamp":%d}`, receivedAt.UnixMilli())
			m := Message{Method: "POST", URL: "https://example.com/hook", Target: "/hook", Body: []byte(body), Header: headers("content-type: application/json")}
			m.Header = append(m.Header, headers(signedBeside[p.Name]...)...)
			if len(p.Specs) > 0 && strings.Contains(p.Specs[0].Signed, "{form:sorted}") && p.Name != "twilio" {
				m.Header, m.Body = headers("content-type: application/x-www-form-urlencoded"), []byte("a=1&b=2")
			}
			if p.Name == "twilio" {
				m.URL += "?bodySHA256=" + sha256Hex(m.Body)
				m.Target += "?bodySHA256=" + sha256Hex(m.Body)
			}
			fields, err := v.Sign(&m, keys[0], "id_1", receivedAt)
			if slices.Contains(onlyVerified, p.Name) || len(p.Specs) == 0 {
				if !errors.Is(err, ErrCannotSign) {
					t.Fatalf("Sign: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			unsigned := len(m.Header)
			m.Header = append(m.Header, fields...)
			got := v.Verify(&m, keys, receivedAt, p.Tolerance.Std())
			if got.Reason != ReasonOK || got.Key != 0 {
				t.Fatalf("Verify: %+v", got)
			}
			if p.RequireID && got.ID == "" {
				t.Error("no id where the provider promises one")
			}
			flipBits(t, v, keys, m, unsigned)
		})
	}
}

// flipBits changes each bit of the body and of the fields that carry the signature, its time and a signed id.
func flipBits(t *testing.T, v *Verifier, keys []Key, m Message, unsigned int) {
	t.Helper()
	s := v.schemes[0]
	try := func(what string, m *Message, mayStand func() bool) {
		if got := v.Verify(m, keys, receivedAt, 24*365*100*time.Hour); got.Reason == ReasonOK && !mayStand() {
			t.Errorf("%s: accepted", what)
		}
	}
	if s.bodySigned {
		for i := range 8 * len(m.Body) {
			changed := m
			changed.Body = append([]byte(nil), m.Body...)
			changed.Body[i/8] ^= 1 << (i % 8)
			try(fmt.Sprintf("bit %d of the body", i), &changed, func() bool { return false })
		}
	}
	for f := unsigned; f < len(m.Header); f++ {
		field := m.Header[f]
		if s.id.kind == placeHeader && field.Name == s.id.name && !s.idSigned {
			continue
		}
		for i := range 8 * len(field.Value) {
			changed := m
			changed.Header = append([]Field(nil), m.Header...)
			b := []byte(field.Value)
			b[i/8] ^= 1 << (i % 8)
			changed.Header[f].Value = string(b)
			// The case of a hex digit, and of the word Basic, says nothing.
			try(fmt.Sprintf("bit %d of %s", i, field.Name), &changed, func() bool {
				return s.spec.Signature.Encoding == Hex && i%8 == 5 && unhex(b[i/8]) == unhex(field.Value[i/8]) ||
					s.spec.Algorithm == Basic && i%8 == 5 && i/8 < len("Basic")
			})
		}
	}
}

// TestRandomSchemes: sign then verify holds for schemes put together at random from the language.
func TestRandomSchemes(t *testing.T) {
	t.Parallel()
	const seed = 1
	r := rand.New(rand.NewPCG(seed, seed))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	header := func(name string) ValueSpec { return ValueSpec{Header: name} }
	for i := range 2000 {
		spec := Spec{
			Algorithm: Algorithm(pick("HMAC_SHA1", "HMAC_SHA256", "HMAC_SHA384", "HMAC_SHA512")),
			Signed:    pick("{body}", "{method}.{body}", "v0:{body}{{", "{url}{body}", "{path}?{query}|{sha256:body}", "{header:x-a}{body}", "{if header:x-b}{header:x-b}{end}{json:id}{body}"),
			Signature: SignatureSpec{ValueSpec: header("s"), Encoding: Encoding(pick("", "HEX", "BASE64", "BASE64URL"))},
			Body:      BodyForm(pick("", "WIRE", "DECODED")),
		}
		switch r.IntN(4) {
		case 0:
			spec.Signature.Prefix = pick("v0=", "sha256=", "x ")
		case 1:
			spec.Signature.List, spec.Signature.KeyValue = pick(",", ";", "|"), "v1"
			spec.Signature.Blanks = r.IntN(2) == 0
			if r.IntN(2) == 0 {
				spec.Timestamp = &TimestampSpec{SignatureKey: "t", Unit: Unit(pick("SECONDS", "MILLISECONDS"))}
			}
		case 2:
			spec.Signature.List, spec.Signature.Skip = ",", 1+r.IntN(2)
			spec.Timestamp = &TimestampSpec{SignatureIndex: 1, Unit: Unit(pick("SECONDS", "RFC3339"))}
		}
		if spec.Timestamp == nil && r.IntN(2) == 0 {
			spec.Timestamp = &TimestampSpec{ValueSpec: header("t"), Unit: Unit(pick("", "MILLISECONDS", "RFC3339", "ISO8601"))}
		}
		if spec.Timestamp != nil {
			spec.Signed = "{timestamp}." + spec.Signed
		}
		if r.IntN(2) == 0 {
			spec.ID = &IDSpec{ValueSpec: header("id")}
			spec.Signed = "{id}" + spec.Signed
		}
		v := compileTest(t, spec)
		keys := parseKeys(t, v, "another secret", testSecret)
		m := Message{Method: "POST", URL: "https://h/p?q=1", Target: "/p?q=1", Body: []byte(`{"id":"e"}`), Header: headers("x-a: 1")}
		m = signed(t, v, m, keys[1], "id_1", receivedAt)
		if got := v.Verify(&m, keys, receivedAt, time.Second); got.Reason != ReasonOK || got.Key != 1 {
			t.Fatalf("scheme %d, seed %d: %+v: %s by key %d with %v", i, seed, spec, got.Reason, got.Key, m.Header)
		}
		m.Body = append(m.Body, ' ')
		if got := v.Verify(&m, keys, receivedAt, time.Second); got.Reason != ReasonBadSignature {
			t.Fatalf("scheme %d, seed %d: %+v: a changed body: %s", i, seed, spec, got.Reason)
		}
	}
}
