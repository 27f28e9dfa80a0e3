package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"
	"testing"
	"time"
)

const jwksURL = "https://keys.example.com/jwks.json"

// documents are what senders publish, by URL.
type documents map[string]*PublishedKeys

func (d documents) Keys(url string) *PublishedKeys { return d[url] }

func published(t testing.TB, text string) *PublishedKeys {
	t.Helper()
	p, err := ParsePublished([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ecKey is a key of P-256 and its JWK.
func ecKey(t testing.TB, kid string) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return key, fmt.Sprintf(`{"kty":"EC","crv":"P-256","kid":%q,"alg":"ES256","x":%q,"y":%q}`, kid,
		base64.RawURLEncoding.EncodeToString(point[1:33]), base64.RawURLEncoding.EncodeToString(point[33:]))
}

// token makes a compact JWS of RFC 7515 with ES256.
func token(t testing.TB, key *ecdsa.PrivateKey, header, payload string) string {
	t.Helper()
	signed := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	return signed + "." + base64.RawURLEncoding.EncodeToString(rawSignature(t, key, signed))
}

func rawSignature(t testing.TB, key *ecdsa.PrivateKey, signed string) []byte {
	t.Helper()
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 64)
	r.FillBytes(raw[:32])
	s.FillBytes(raw[32:])
	return raw
}

// What a key that is an address says depends on the document alone: where there is none, or none under the token's kid,
// that is nobody's fault.
func TestJWTPublished(t *testing.T) {
	t.Parallel()
	key, jwk := ecKey(t, "one")
	other, otherJWK := ecKey(t, "two")
	v := jwtVerifier(t, JWTSpec{Header: "authorization", Bearer: true, Algorithms: []string{"ES256"}, Audience: "aud", Bearing: true, Time: "EXP"})
	v, err := v.Expect(Claims{Issuer: "https://issuer.example.com", Audience: "https://app.example.com/push", Subject: "push@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	k, err := v.ParseKeyURL(jwksURL)
	if err != nil {
		t.Fatal(err)
	}
	claims := func(change ...any) string {
		c := map[string]any{"iss": "https://issuer.example.com", "aud": "https://app.example.com/push", "email": "push@example.com",
			"email_verified": true, "iat": receivedAt.Unix(), "exp": receivedAt.Unix() + 3600}
		for i := 0; i < len(change); i += 2 {
			c[change[i].(string)] = change[i+1]
		}
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	good := token(t, key, `{"alg":"ES256","kid":"one"}`, claims())
	want := KeyRequest{URL: jwksURL, KeyID: "one"}
	both, foreign := documents{jwksURL: published(t, `{"keys":[`+otherJWK+`,`+jwk+`]}`)}, documents{jwksURL: published(t, `{"keys":[`+otherJWK+`]}`)}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"one"}`)) + "." + strings.Split(good, ".")[1] + "."
	for _, c := range []struct {
		name, token string
		have        Published
		reason      Reason
		want        KeyRequest
	}{
		{name: "good", token: good, have: both, reason: ReasonOK},
		{name: "nothing at hand", token: good, have: documents{}, reason: ReasonKeyUnavailable, want: want},
		{name: "nobody to ask", token: good, reason: ReasonKeyUnavailable, want: want},
		{name: "a key that is not published", token: good, have: foreign, reason: ReasonKeyUnavailable, want: want},
		{name: "the kid of another key", token: token(t, other, `{"alg":"ES256","kid":"one"}`, claims()), have: both, reason: ReasonBadSignature},
		{name: "no kid", token: token(t, key, `{"alg":"ES256"}`, claims()), have: both, reason: ReasonOK},
		{name: "one of several audiences", token: token(t, key, `{"alg":"ES256","kid":"one"}`, claims("aud", []string{"a", "https://app.example.com/push"})), have: both, reason: ReasonOK},
		{name: "another audience", token: token(t, key, `{"alg":"ES256","kid":"one"}`, claims("aud", "https://other.example.com")), have: both, reason: ReasonBadSignature},
		{name: "no audience", token: token(t, key, `{"alg":"ES256","kid":"one"}`, claims("aud", nil)), have: both, reason: ReasonBadSignature},
		{name: "another issuer", token: token(t, key, `{"alg":"ES256","kid":"one"}`, claims("iss", "https://evil.example.com")), have: both, reason: ReasonBadSignature},
		{name: "another subject", token: token(t, key, `{"alg":"ES256","kid":"one"}`, claims("email", "eve@example.com")), have: both, reason: ReasonBadSignature},
		{name: "a subject that nobody verified", token: token(t, key, `{"alg":"ES256","kid":"one"}`, claims("email_verified", false)), have: both, reason: ReasonBadSignature},
		{name: "past its time", token: token(t, key, `{"alg":"ES256","kid":"one"}`, claims("exp", receivedAt.Unix()-3600)), have: both, reason: ReasonTooOld},
		{name: "before its time", token: token(t, key, `{"alg":"ES256","kid":"one"}`, claims("nbf", receivedAt.Unix()+3600)), have: both, reason: ReasonTooNew},
		{name: "no end", token: token(t, key, `{"alg":"ES256","kid":"one"}`, claims("exp", nil)), have: both, reason: ReasonBadTimestamp},
		{name: "no algorithm at all", token: none, have: both, reason: ReasonWrongScheme},
		{name: "a shared secret for the public key", token: token(t, key, `{"alg":"HS256","kid":"one"}`, claims()), have: both, reason: ReasonWrongScheme},
		{name: "an extension", token: token(t, key, `{"alg":"ES256","kid":"one","crit":["exp"]}`, claims()), have: both, reason: ReasonMalformedSignature},
		{name: "a payload that is not encoded", token: token(t, key, `{"alg":"ES256","kid":"one","b64":false}`, claims()), have: both, reason: ReasonMalformedSignature},
		{name: "two algorithms", token: token(t, key, `{"alg":"ES256","alg":"none","kid":"one"}`, claims()), have: both, reason: ReasonMalformedSignature},
		{name: "an algorithm in another case", token: token(t, key, `{"Alg":"none","alg":"ES256","kid":"one"}`, claims()), have: both, reason: ReasonMalformedSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := Message{Header: headers("authorization: Bearer " + c.token), Body: []byte(`{"message":{"messageId":"1"}}`), Published: c.have}
			got := v.Verify(&m, []Key{k}, receivedAt, time.Minute)
			if got.Reason != c.reason || got.Want != c.want {
				t.Errorf("%s, wants %+v; want %s, %+v", got.Reason, got.Want, c.reason, c.want)
			}
		})
	}
}

// Without an audience of the source's own, a token that anyone can have made for himself would do.
func TestJWTNeedsAudience(t *testing.T) {
	t.Parallel()
	key, jwk := ecKey(t, "one")
	v := jwtVerifier(t, JWTSpec{Header: "authorization", Bearer: true, Algorithms: []string{"ES256"}, Audience: "aud", Bearing: true})
	if !v.NeedsAudience() {
		t.Error("no audience is asked for")
	}
	m := Message{Header: headers("authorization: Bearer " + token(t, key, `{"alg":"ES256"}`, `{"aud":"a"}`))}
	wantReason(t, v.Verify(&m, parseKeys(t, v, jwk), receivedAt, time.Minute), ReasonBadSignature)
	if _, err := compileTest(t, Spec{Algorithm: HMACSHA256, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}}).Expect(Claims{Audience: "a"}); err == nil {
		t.Error("claims are expected of what is no token")
	}
}

// A token without its payload is made over the body (RFC 7515, appendix F, and RFC 7797).
func TestJWTDetached(t *testing.T) {
	t.Parallel()
	key, jwk := ecKey(t, "one")
	body := `{"id":"a"}`
	head := func(h string) string { return base64.RawURLEncoding.EncodeToString([]byte(h)) }
	made := func(header, payload string) string {
		return head(header) + ".." + base64.RawURLEncoding.EncodeToString(rawSignature(t, key, head(header)+"."+payload))
	}
	encoded, unencoded := `{"alg":"ES256"}`, `{"alg":"ES256","b64":false,"crit":["b64"]}`
	for _, c := range []struct {
		name, form, token, body string
		want                    Reason
	}{
		{"encoded", "BASE64URL", made(encoded, head(body)), body, ReasonOK},
		{"another body", "BASE64URL", made(encoded, head(body)), body + " ", ReasonBadSignature},
		{"not encoded", "RAW", made(unencoded, body), body, ReasonOK},
		{"not encoded, another body", "RAW", made(unencoded, body), body + " ", ReasonBadSignature},
		{"not encoded, and not said to be", "RAW", made(encoded, body), body, ReasonMalformedSignature},
		{"not said to be critical", "RAW", made(`{"alg":"ES256","b64":false}`, body), body, ReasonMalformedSignature},
		{"a payload after all", "RAW", token(t, key, unencoded, body), body, ReasonMalformedSignature},
		{"not encoded where it must be", "BASE64URL", made(unencoded, body), body, ReasonMalformedSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := jwtVerifier(t, JWTSpec{Header: "s", Algorithms: []string{"ES256"}, Detached: c.form, ID: &ValueSpec{JSON: "id"}})
			m := Message{Header: headers("s: " + c.token), Body: []byte(c.body)}
			got := v.Verify(&m, parseKeys(t, v, jwk), receivedAt, time.Minute)
			if wantReason(t, got, c.want); c.want == ReasonOK && (got.ID != "a" || !got.IDSigned) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A scheme of the language takes keys from an address too. Its signatures have no kid: where none fits, a newer document may.
func TestPublishedKeysOfTheLanguage(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	v := compileTest(t, Spec{Algorithm: Ed25519, Key: KeyJWKS, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}})
	k, err := v.ParseKeyURL(jwksURL)
	if err != nil {
		t.Fatal(err)
	}
	okp := `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + base64.RawURLEncoding.EncodeToString(public) + `"}]}`
	_, ec := ecKey(t, "one")
	m := Message{Body: []byte("a"), Header: headers("s: " + hex.EncodeToString(ed25519.Sign(private, []byte("a"))))}
	for _, c := range []struct {
		name   string
		have   documents
		reason Reason
		want   KeyRequest
	}{
		{"good", documents{jwksURL: published(t, okp)}, ReasonOK, KeyRequest{}},
		{"none at hand", documents{}, ReasonKeyUnavailable, KeyRequest{URL: jwksURL}},
		{"keys of another kind", documents{jwksURL: published(t, ec)}, ReasonBadSignature, KeyRequest{URL: jwksURL}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := m
			m.Published = c.have
			if got := v.Verify(&m, []Key{k}, receivedAt, time.Minute); got.Reason != c.reason || got.Want != c.want {
				t.Errorf("%s, wants %+v; want %s, %+v", got.Reason, got.Want, c.reason, c.want)
			}
		})
	}
	for _, at := range []string{"http://example.com/jwks", "https://", "https://u@example.com/", "https://example.com/#a", "jwks.json", "https://example.com/" + strings.Repeat("a", maxKeyURL)} {
		if _, err := v.ParseKeyURL(at); !errors.Is(err, ErrKeyForm) {
			t.Errorf("%.40s: %v", at, err)
		}
	}
	if _, err := provider(t, "stripe").Verifier().ParseKeyURL(jwksURL); !errors.Is(err, ErrKeyKind) {
		t.Errorf("Stripe: %v", err)
	}
}

// certified is an RSA key with a certificate for a name, under an authority of its own.
func certified(t testing.TB, name string, template x509.Certificate) (key *rsa.PrivateKey, leaf, authority string) {
	t.Helper()
	made := func(template, parent *x509.Certificate, public crypto.PublicKey, by *rsa.PrivateKey) ([]byte, *x509.Certificate) {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), c
	}
	keys := [2]*rsa.PrivateKey{}
	for i := range keys {
		var err error
		if keys[i], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			t.Fatal(err)
		}
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: receivedAt.Add(-time.Hour), NotAfter: receivedAt.Add(time.Hour)}
	rootPEM, rootCert := made(root, root, keys[0].Public(), keys[0])
	template.SerialNumber, template.Subject = big.NewInt(2), pkix.Name{CommonName: name}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = receivedAt.Add(-time.Hour), receivedAt.Add(time.Hour)
	}
	leafPEM, _ := made(&template, rootCert, keys[1].Public(), keys[0])
	return keys[1], string(leafPEM), string(rootPEM)
}

// TestSNSFetched: with the topic alone the certificate is what SNS publishes, if it is SNS's own.
func TestSNSFetched(t *testing.T) {
	t.Parallel()
	v := besideVerifier(snsScheme{})
	keys := parseKeys(t, v, snsTestTopic)
	for _, c := range []struct {
		name, certified string
		notAfter        time.Time
		fetched         bool
		want            Reason
	}{
		{"good", "sns.amazonaws.com", time.Time{}, true, ReasonOK},
		{"of a region", "sns-signing.us-west-2.amazonaws.com", time.Time{}, true, ReasonOK},
		{"not at hand", "sns.amazonaws.com", time.Time{}, false, ReasonKeyUnavailable},
		{"of another service", "s3.amazonaws.com", time.Time{}, true, ReasonBadSignature},
		{"of another domain", "sns.amazonaws.com.example.com", time.Time{}, true, ReasonBadSignature},
		{"past its time", "sns.amazonaws.com", receivedAt.Add(-time.Minute), true, ReasonBadSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			template := x509.Certificate{NotAfter: c.notAfter}
			key, leaf, authority := certified(t, c.certified, template)
			m := snsMessage(t, key)
			if have := (documents{}); c.fetched {
				have[snsTestURL] = published(t, leaf+authority)
				m.Published = have
			}
			got := v.Verify(&m, keys, receivedAt, time.Minute)
			if got.Reason != c.want || (got.Want.URL == snsTestURL) != (c.want == ReasonKeyUnavailable) {
				t.Errorf("%+v, want %s", got, c.want)
			}
			for _, at := range []string{"https://sns.us-west-2.amazonaws.com.example.com/a.pem", "https://example.com/a.pem", "http://sns.us-west-2.amazonaws.com/a.pem"} {
				m := snsMessage(t, key, "SigningCertURL", at)
				m.Published = documents{at: published(t, leaf)}
				if got := v.Verify(&m, keys, receivedAt, time.Minute); got.Reason != ReasonBadSignature || got.Want.URL != "" {
					t.Errorf("%s: %+v", at, got)
				}
			}
		})
	}
}

// payPalMessage is signed by the formula of PayPal's page.
func payPalMessage(t testing.TB, key *rsa.PrivateKey, webhook, at, body string) Message {
	t.Helper()
	const id, when = "dfb3be50-fd74-11e4-8bf3-77339302725b", "2015-05-18T15:45:13Z"
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%s|%d", id, when, webhook, crc32.ChecksumIEEE([]byte(body))))
	sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return Message{Method: "POST", Body: []byte(body), Header: headers("paypal-transmission-id: "+id, "paypal-transmission-time: "+when,
		"paypal-transmission-sig: "+base64.StdEncoding.EncodeToString(sig), "paypal-cert-url: "+at, "paypal-auth-algo: SHA256withRSA")}
}

func TestPayPal(t *testing.T) {
	t.Parallel()
	const at, webhook, body = "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-a5cafa77", "4JH86294D6297924G", `{"id":"WH-1","event_type":"PAYMENT.AUTHORIZATION.CREATED"}`
	p := provider(t, "paypal")
	key, leaf, authority := certified(t, "messageverificationcerts.paypal.com", x509.Certificate{})
	other, otherLeaf, _ := certified(t, "www.paypal.com", x509.Certificate{})
	keys := parseKeys(t, p.Verifier(), webhook)
	good := func() Message { return payPalMessage(t, key, webhook, at, body) }
	without := func(name string) Message {
		m := good()
		for i, f := range m.Header {
			if f.Name == name {
				m.Header = append(m.Header[:i:i], m.Header[i+1:]...)
			}
		}
		return m
	}
	changed := good()
	changed.Body = []byte(body + " ")
	for _, c := range []struct {
		name string
		m    Message
		leaf string
		want Reason
	}{
		{"good", good(), leaf, ReasonOK},
		{"another body", changed, leaf, ReasonBadSignature},
		{"another webhook", payPalMessage(t, key, "OTHER", at, body), leaf, ReasonBadSignature},
		{"another key", payPalMessage(t, other, webhook, at, body), leaf, ReasonBadSignature},
		{"a certificate for another name", payPalMessage(t, other, webhook, at, body), otherLeaf, ReasonBadSignature},
		{"the certificate is not at hand", good(), "", ReasonKeyUnavailable},
		{"of another host", payPalMessage(t, key, webhook, strings.Replace(at, "api.", "evil.", 1), body), leaf, ReasonBadSignature},
		{"of the sandbox", payPalMessage(t, key, webhook, strings.Replace(at, "api.", "api.sandbox.", 1), body), leaf, ReasonBadSignature},
		{"from elsewhere on the host", payPalMessage(t, key, webhook, "https://api.paypal.com/v1/other/a", body), leaf, ReasonBadSignature},
		{"from above", payPalMessage(t, key, webhook, "https://api.paypal.com/v1/notifications/certs/../../a", body), leaf, ReasonBadSignature},
		{"no signature", without("paypal-transmission-sig"), leaf, ReasonMissingSignature},
		{"no certificate", without("paypal-cert-url"), leaf, ReasonMissingSignature},
		{"no time", without("paypal-transmission-time"), leaf, ReasonMissingSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			have := documents{}
			if c.leaf != "" {
				url, _ := c.m.field("paypal-cert-url")
				have[url] = published(t, c.leaf+authority)
			}
			c.m.Published = have
			got := p.Verifier().Verify(&c.m, keys, receivedAt, time.Minute)
			if wantReason(t, got, c.want); c.want == ReasonOK && (got.ID != "WH-1" || got.IDSigned || got.Type != "PAYMENT.AUTHORIZATION.CREATED") {
				t.Errorf("%+v", got)
			}
		})
	}
	if p.ContentWindow == 0 {
		t.Error("the body is covered by a checksum alone, so that an id can be swapped: PayPal needs a content window")
	}
}

func TestParsePublishedRefuses(t *testing.T) {
	t.Parallel()
	_, jwk := ecKey(t, "one")
	_, leaf, authority := certified(t, "a", x509.Certificate{})
	for name, text := range map[string]string{
		"nothing": "", "a page": "<html></html>", "no keys": `{"keys":[]}`, "keys of no use": `{"keys":[{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}]}`,
		"a private key": strings.Replace(jwk, `"kty"`, `"d":"AA","kty"`, 1), "too many keys": `{"keys":[` + strings.Repeat(jwk+",", maxPublishedKeys) + jwk + `]}`,
		"text behind a certificate": leaf + "text", "many certificates": strings.Repeat(leaf, maxChain+1),
		"a broken certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	} {
		if _, err := ParsePublished([]byte(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(authority))
	_, _, foreign := certified(t, "b", x509.Certificate{})
	for _, c := range []struct {
		name, text string
		ok         bool
	}{{"leads to the authority", leaf + authority, true}, {"alone", leaf, true}, {"with another's", leaf + foreign, true}} {
		if err := published(t, c.text).VerifyChain(roots, receivedAt); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := published(t, leaf+authority).VerifyChain(x509.NewCertPool(), receivedAt); err == nil {
		t.Error("a chain that leads to nobody is taken")
	}
}
