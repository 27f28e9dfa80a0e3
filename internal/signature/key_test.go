package signature

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestParseKeyRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("tell-no-one-", 3)
	for _, c := range []struct {
		name, provider, secret string
		want                   error
	}{
		{"empty", "stripe", "", ErrKeyEmpty},
		{"blank", "stripe", " \t\n", ErrKeyEmpty},
		{"blank at the end", "stripe", long + " ", ErrKeySpace},
		{"line feed at the end", "stripe", long + "\n", ErrKeySpace},
		{"CR LF at the end", "stripe", long + "\r\n", ErrKeySpace},
		{"tab before", "stripe", "\t" + long, ErrKeySpace},
		{"no-break space at the end", "slack", long + "\u00a0", ErrKeySpace},
		{"byte order mark", "slack", "\ufeff" + long, ErrKeySpace},
		{"zero byte at the end", "slack", long + "\x00", ErrKeySpace},
		{"API key", "stripe", "sk_live_" + long, ErrKeyKind},
		{"restricted key", "stripe", "rk_live_" + long, ErrKeyKind},
		{"publishable key", "stripe", "pk_live_" + long, ErrKeyKind},
		{"pasted whole", "standard-webhooks", "v1," + testSecret, ErrKeyKind},
		{"pasted whole", "stripe", "v1," + testSecret, ErrKeyKind},
		{"prefix alone", "standard-webhooks", "whsec_", ErrKeyEmpty},
		{"prefix alone", "stripe", "whsec_", ErrKeyEmpty},
		{"public prefix alone", "svix", "whpk_", ErrKeyEmpty},
		{"padding alone", "svix", "whsec_==", ErrKeyEmpty},
		{"no base64", "svix", "whsec_$ecret", ErrKeyForm},
		{"public key where only HMAC is", "openai", "whpk_" + base64.StdEncoding.EncodeToString(make([]byte, 32)), ErrKeyKind},
		{"public key too short", "svix", "whpk_" + base64.StdEncoding.EncodeToString(make([]byte, 31)), ErrKeyForm},
		{"private key with another public half", "svix", "whsk_" + base64.StdEncoding.EncodeToString(make([]byte, 64)), ErrKeyForm},
		{"no hex", "discord", "tell-no-one", ErrKeyForm},
		{"hex too short", "discord", "a1b2", ErrKeyForm},
		{"no DER", "sendgrid", base64.StdEncoding.EncodeToString([]byte("tell-no-one")), ErrKeyForm},
	} {
		t.Run(c.name+" for "+c.provider, func(t *testing.T) {
			t.Parallel()
			_, err := provider(t, c.provider).Verifier().ParseKey([]byte(c.secret))
			if !errors.Is(err, c.want) {
				t.Fatalf("ParseKey: %v, want %v", err, c.want)
			}
			secret := strings.TrimSpace(c.secret)
			for i := 0; i+8 <= len(secret); i++ {
				if part := secret[i : i+8]; strings.Contains(err.Error(), part) {
					t.Fatalf("the error tells %q: %v", part, err)
				}
			}
		})
	}
}

func TestParseKeyRefusesBasicWithoutUser(t *testing.T) {
	t.Parallel()
	v := compileTest(t, Spec{Algorithm: Basic})
	for _, s := range []string{"password", ":password"} {
		if _, err := v.ParseKey([]byte(s)); !errors.Is(err, ErrKeyForm) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestKeyPrintsNothing goes through every way in which values get into logs.
func TestKeyPrintsNothing(t *testing.T) {
	t.Parallel()
	const secret = "whsec_tell-no-one-1234567890"
	k := parseKeys(t, provider(t, "stripe").Verifier(), secret)[0]
	holder := struct {
		Key  Key
		key  Key
		keys []Key
	}{k, k, []Key{k}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb, k, holder)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", k, "holder", holder)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "key", k, "holder", holder)
	b, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(b)
	for _, told := range []string{"tell-no-one", hex.EncodeToString([]byte("tell")), "[116 101 108 108", "116, 101"} {
		if strings.Contains(out.String(), told) {
			t.Errorf("printed %q: %s", told, out.String())
		}
	}
	if fmt.Sprint(k) != redacted {
		t.Errorf("Sprint: %v", k)
	}
}

func TestKeyUntil(t *testing.T) {
	t.Parallel()
	v := provider(t, "github").Verifier()
	keys := parseKeys(t, v, testSecret, "another-secret-of-length")
	m := signed(t, v, Message{Body: []byte("{}")}, keys[0], "d", receivedAt)
	keys[0].Until = receivedAt
	wantReason(t, v.Verify(&m, keys, receivedAt.Add(-time.Nanosecond), time.Minute), ReasonOK)
	wantReason(t, v.Verify(&m, keys, receivedAt, time.Minute), ReasonBadSignature)
	wantReason(t, v.Verify(&m, []Key{{}}, receivedAt, time.Minute), ReasonBadSignature)
	wantReason(t, v.Verify(&m, nil, receivedAt, time.Minute), ReasonBadSignature)

	// A sender of several schemes without any live key: the message is as wrong as it is, and no more.
	sw := provider(t, "svix").Verifier()
	expired := parseKeys(t, sw, testSecret)
	m = signed(t, sw, Message{Body: []byte("{}")}, expired[0], "msg_1", receivedAt)
	expired[0].Until = receivedAt
	wantReason(t, sw.Verify(&m, expired, receivedAt, time.Minute), ReasonBadSignature)
	wantReason(t, sw.Verify(&Message{}, expired, receivedAt, time.Minute), ReasonMissingSignature)
}

// TestRotation: account and Connect endpoints share a URL; which key matched is told.
func TestRotation(t *testing.T) {
	t.Parallel()
	v := provider(t, "stripe").Verifier()
	keys := parseKeys(t, v, "whsec_aaaaaaaaaaaaaaaa", "whsec_bbbbbbbbbbbbbbbb")
	stranger := parseKeys(t, v, "whsec_cccccccccccccccc")[0]
	for i, k := range []Key{keys[0], keys[1], stranger} {
		m := signed(t, v, Message{Body: []byte("{}")}, k, "", receivedAt)
		got := v.Verify(&m, keys, receivedAt, time.Minute)
		if want := []int{0, 1, -1}[i]; got.Key != want || (got.Reason == ReasonOK) != (want >= 0) {
			t.Errorf("signed by key %d: %s by key %d", i, got.Reason, got.Key)
		}
	}
	// Past eight keys the work is not done any more.
	many := make([]Key, 0, 9)
	for range 8 {
		many = append(many, stranger)
	}
	m := signed(t, v, Message{Body: []byte("{}")}, keys[0], "", receivedAt)
	wantReason(t, v.Verify(&m, append(many[:7:7], keys[0]), receivedAt, time.Minute), ReasonOK)
	wantReason(t, v.Verify(&m, append(many, keys[0]), receivedAt, time.Minute), ReasonBadSignature)
}

// A key is of use only under the scheme that it was made for, even where its bytes would fit another one.
func TestKeysOfAnotherKind(t *testing.T) {
	t.Parallel()
	header := SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}
	text := compileTest(t, Spec{Algorithm: HMACSHA256, Signature: header})
	const secret = "thirty-two characters, as a hash" // so that it decodes as a signature
	inHex := parseKeys(t, compileTest(t, Spec{Algorithm: HMACSHA256, Key: KeyHex, Signature: header}), hex.EncodeToString([]byte(secret)))
	token := parseKeys(t, compileTest(t, Spec{Algorithm: Token, Signature: header}), secret)
	body := []byte("{}")
	for _, c := range []struct {
		name, signature string
		keys            []Key
	}{
		{"the same bytes from hex", formulaMAC("hex256", secret, body), inHex},
		{"a token sent as the signature", hex.EncodeToString([]byte(secret)), token},
	} {
		m := Message{Body: body, Header: []Field{{"s", c.signature}}}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wantReason(t, text.Verify(&m, c.keys, receivedAt, time.Minute), ReasonBadSignature)
		})
	}
}

// publicKeyCase is one algorithm with a pair of keys in every format that it can have.
type publicKeyCase struct {
	spec            Spec
	private, public string
}

func publicKeyCases(t *testing.T) []publicKeyCase {
	t.Helper()
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.StdEncoding.EncodeToString
	raw := base64.RawURLEncoding.EncodeToString
	der := func(private bool, key any) []byte {
		b, err := x509.MarshalPKIXPublicKey(key)
		if private {
			b, err = x509.MarshalPKCS8PrivateKey(key)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	pemText := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	edPub := ed.Public().(ed25519.PublicKey)
	ecPoint, err := ec.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	jwkEC := fmt.Sprintf(`{"keys":[{"kty":"oct","k":"AAAA"},{"kty":"EC","crv":"P-256","x":%q,"y":%q}]}`, raw(ecPoint[1:33]), raw(ecPoint[33:]))
	jwkEd := fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","x":%q}`, raw(edPub))
	jwkRSA := fmt.Sprintf(`{"keys":[{"kty":"RSA","n":%q,"e":%q}]}`, raw(rs.N.Bytes()), raw(big.NewInt(int64(rs.E)).Bytes()))
	edPEM, ecPEM, rsaPEM := pemText("PRIVATE KEY", der(true, ed)), pemText("PRIVATE KEY", der(true, ec)), pemText("PRIVATE KEY", der(true, rs))
	spec := func(a Algorithm, f KeyFormat, l SignatureForm) Spec {
		return Spec{Algorithm: a, Key: f, Signed: "{timestamp}.{body}", Timestamp: &TimestampSpec{ValueSpec: ValueSpec{Header: "t"}},
			Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}, Encoding: Base64, Layout: l}}
	}
	return []publicKeyCase{
		{spec(Ed25519, KeyHex, ""), hex.EncodeToString(ed), hex.EncodeToString(edPub)},
		{spec(Ed25519, KeyBase64, ""), b64(ed), b64(edPub)},
		{spec(Ed25519, KeyWhsec, ""), "whsk_" + b64(ed), "whpk_" + b64(edPub)},
		{spec(Ed25519, KeyPEM, ""), edPEM, pemText("PUBLIC KEY", der(false, edPub))},
		{spec(Ed25519, KeyJWKS, ""), "", jwkEd},
		{spec(ECDSAP256, KeyPEM, DER), ecPEM, pemText("PUBLIC KEY", der(false, &ec.PublicKey))},
		{spec(ECDSAP256, KeyBase64, Raw), b64(der(true, ec)), b64(der(false, &ec.PublicKey))},
		{spec(ECDSAP256, KeyJWKS, ""), "", jwkEC},
		{spec(RSAPKCS1SHA256, KeyPEM, ""), rsaPEM, pemText("PUBLIC KEY", der(false, &rs.PublicKey)) + "\n"},
		{spec(RSAPKCS1SHA1, KeyPEM, ""), rsaPEM, pemText("PUBLIC KEY", der(false, &rs.PublicKey))},
		{spec(RSAPKCS1SHA512, KeyPEM, ""), rsaPEM, strings.ReplaceAll(pemText("PUBLIC KEY", der(false, &rs.PublicKey)), "\n", "")},
		{spec(RSAPSSSHA256, KeyBase64, ""), b64(der(true, rs)), b64(der(false, &rs.PublicKey))},
		{spec(RSAPSSSHA256, KeyJWKS, ""), "", jwkRSA},
		{spec(RSAPSSSHA256, KeyJWKS, ""), "", pemText("PUBLIC KEY", der(false, &rs.PublicKey))},
	}
}

// TestPublicKeys signs with a private key and checks with the public one, in every format.
func TestPublicKeys(t *testing.T) {
	t.Parallel()
	type written struct {
		secret string
		format KeyFormat
	}
	private := map[Algorithm]written{}
	for _, c := range publicKeyCases(t) {
		t.Run(string(c.spec.Algorithm)+" "+string(c.spec.Key), func(t *testing.T) {
			v := compileTest(t, c.spec)
			public := parseKeys(t, v, c.public)
			m := Message{Body: []byte(`{"a":1}`)}
			if _, err := v.Sign(&m, public[0], "", receivedAt); !errors.Is(err, ErrCannotSign) {
				t.Errorf("Sign with a public key: %v", err)
			}
			if c.private != "" {
				private[c.spec.Algorithm] = written{c.private, c.spec.Key}
			}
			signer := private[c.spec.Algorithm] // that of an earlier case, for a JWK set holds no private key
			format := c.spec
			format.Key = signer.format
			sv := compileTest(t, format)
			m = signed(t, sv, m, parseKeys(t, sv, signer.secret)[0], "", receivedAt)
			wantReason(t, v.Verify(&m, public, receivedAt, time.Minute), ReasonOK)
			m.Body[0] ^= 1
			wantReason(t, v.Verify(&m, public, receivedAt, time.Minute), ReasonBadSignature)
		})
	}
}

func TestPublicKeysRefused(t *testing.T) {
	t.Parallel()
	weak := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 1023, 1), E: 65537}
	der, err := x509.MarshalPKIXPublicKey(weak)
	if err != nil {
		t.Fatal(err)
	}
	v := compileTest(t, Spec{Algorithm: RSAPKCS1SHA256, Key: KeyBase64, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}})
	if _, err := v.ParseKey([]byte(base64.StdEncoding.EncodeToString(der))); !errors.Is(err, ErrKeyForm) {
		t.Errorf("RSA of 1024 bits: %v", err)
	}
	ec := compileTest(t, Spec{Algorithm: ECDSAP256, Key: KeyBase64, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}})
	if _, err := ec.ParseKey([]byte(base64.StdEncoding.EncodeToString(der))); !errors.Is(err, ErrKeyKind) {
		t.Errorf("RSA key for ECDSA: %v", err)
	}
	set := compileTest(t, Spec{Algorithm: Ed25519, Key: KeyJWKS, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}})
	for _, c := range []struct {
		text string
		want error
	}{
		{`{"keys":[]}`, ErrKeyKind},
		{`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`, ErrKeyKind},
		{`{"kty":"OKP","crv":"Ed25519","x":"AAAA"}`, ErrKeyForm},
		{`{"kty":"OKP","crv":"Ed25519","x":"AAAA","d":"AAAA"}`, ErrKeyKind},
		{`[`, ErrKeyForm},
	} {
		if _, err := set.ParseKey([]byte(c.text)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.text, err, c.want)
		}
	}
}

// TestKeyMAC is Zoom's answer to url_validation, with the plain token of its page.
func TestKeyMAC(t *testing.T) {
	t.Parallel()
	k := parseKeys(t, provider(t, "zoom").Verifier(), testSecret)[0]
	got, ok := k.MAC([]byte("qgg8vlvZRS6UYooatFL8Aw"))
	if want := formulaMAC("hex256", testSecret, []byte("qgg8vlvZRS6UYooatFL8Aw")); !ok || hex.EncodeToString(got) != want {
		t.Errorf("MAC %x, %v, want %s", got, ok, want)
	}
	token := parseKeys(t, compileTest(t, Spec{Algorithm: Token, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}}), testSecret)[0]
	for _, k := range []Key{{}, token} {
		if _, ok := k.MAC(nil); ok {
			t.Error("MAC with a key that has none")
		}
	}
}

func TestEd25519Public(t *testing.T) {
	t.Parallel()
	// RFC 8032, section 7.1, test 1: seed, public key.
	seed, _ := hex.DecodeString("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
	want, _ := hex.DecodeString("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
	v := provider(t, "standard-webhooks").Verifier()
	for _, tc := range []struct {
		name, raw string
		want      []byte
	}{
		{"pair", "whsk_" + base64.StdEncoding.EncodeToString(append(seed, want...)), want},
		{"public key", "whpk_" + base64.StdEncoding.EncodeToString(want), want},
		{"shared secret", testSecret, nil},
	} {
		k, err := v.ParseKey([]byte(tc.raw))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if got, ok := k.Ed25519Public(); ok != (tc.want != nil) || !bytes.Equal(got, tc.want) {
			t.Errorf("%s: Ed25519Public() = %x, %t; want %x", tc.name, got, ok, tc.want)
		}
	}
	if _, ok := (Key{}).Ed25519Public(); ok {
		t.Error("the zero Key has a public key")
	}
}
