package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The examples of RFC 7515, appendix A: one payload under three algorithms.
const (
	rfcPayload = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
	rfcHS256   = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." + rfcPayload + ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	rfcRS256   = "eyJhbGciOiJSUzI1NiJ9." + rfcPayload + ".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
	rfcES256   = "eyJhbGciOiJFUzI1NiJ9." + rfcPayload + ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
	rfcSecret  = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
	rfcRSAKey  = `{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"}`
	rfcECKey   = `{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`
	rfcEnd     = 1300819380
)

func jwtVerifier(t testing.TB, spec JWTSpec) *Verifier {
	t.Helper()
	v, err := (&Provider{JWT: &spec}).compile()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// jwtSpec is a scheme that takes the RFC's tokens, which know of no body.
func jwtSpec(algorithms ...string) JWTSpec {
	return JWTSpec{Header: "X-Token", Algorithms: algorithms, Issuer: "joe", BodyClaim: "hash", BodyEncoding: Hex, EmptyBody: true, Time: "EXP"}
}

func tokenMessage(token string) Message {
	return Message{Method: "POST", Target: "/hook", Header: headers("x-token: " + token)}
}

func TestJWTExamplesOfTheRFC(t *testing.T) {
	t.Parallel()
	secret, err := base64.RawURLEncoding.DecodeString(rfcSecret)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := parseMaterial(jwtAlgorithms["HS256"].kind, secret)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Unix(rfcEnd, 0)
	for _, c := range []struct {
		algorithm, token, jwks string
	}{{"HS256", rfcHS256, ""}, {"RS256", rfcRS256, rfcRSAKey}, {"ES256", rfcES256, rfcECKey}, {"ES256", rfcES256, `{"keys":[` + rfcRSAKey + `,` + rfcECKey + `]}`}} {
		t.Run(c.algorithm, func(t *testing.T) {
			t.Parallel()
			v := jwtVerifier(t, jwtSpec(c.algorithm))
			keys := []Key{{m: shared}}
			if c.jwks != "" {
				keys = parseKeys(t, v, c.jwks)
			}
			m := tokenMessage(c.token)
			got := v.Verify(&m, keys, end, time.Minute)
			if got.Reason != ReasonOK || got.Key != 0 || !strings.HasPrefix(got.ID, "sha256:") || !got.IDSigned {
				t.Errorf("%+v", got)
			}
			for i := range c.token {
				changed := []byte(c.token)
				if changed[i]++; changed[i] == ',' || c.token[i] == '.' {
					continue
				}
				m := tokenMessage(string(changed))
				if got := v.Verify(&m, keys, end, 1000000*time.Hour); got.Reason == ReasonOK {
					t.Errorf("accepted with byte %d changed", i)
				}
			}
		})
	}
}

// madeToken signs claims with nothing but the standard library.
func madeToken(t testing.TB, secret, header string, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	signed := b64([]byte(header)) + "." + b64(payload)
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(signed))
	return signed + "." + b64(h.Sum(nil))
}

func TestJWTVerify(t *testing.T) {
	t.Parallel()
	const (
		hs256 = `{"alg":"HS256","typ":"JWT"}`
		body  = `{"id":"evt_1","type":"a"}`
	)
	now := receivedAt.Unix()
	spec := JWTSpec{
		Header: "x-token", Bearer: true, Algorithms: []string{"HS256"}, Issuer: "us", BodyClaim: "hash", BodyEncoding: Hex, Time: "IAT",
		URLClaim: "sub", ID: &ValueSpec{JSON: "id"}, Type: &ValueSpec{JSON: "type"},
	}
	v := jwtVerifier(t, spec)
	keys := parseKeys(t, v, "another secret of ours", testSecret)
	good := func(change ...any) map[string]any {
		claims := map[string]any{"iss": "us", "iat": now, "hash": sha256Hex([]byte(body)), "sub": "https://example.com/hook"}
		for i := 0; i < len(change); i += 2 {
			if claims[change[i].(string)] = change[i+1]; change[i+1] == nil {
				delete(claims, change[i].(string))
			}
		}
		return claims
	}
	message := func(token string) Message {
		return Message{URL: "https://example.com/hook", Target: "/hook", Header: headers("x-token: "+token, "content-type: application/json"), Body: []byte(body)}
	}
	made := func(change ...any) Message {
		return message("Bearer " + madeToken(t, testSecret, hs256, good(change...)))
	}
	changed := func(m Message, change func(*Message)) Message { change(&m); return m }
	m := made()
	got := v.Verify(&m, keys, receivedAt, 5*time.Minute)
	want := Verdict{Reason: ReasonOK, Key: 1, ID: "evt_1", IDSigned: true, Type: "a", Time: receivedAt.UTC(), ContentHash: sha256.Sum256([]byte("evt_1"))}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	runRows(t, v, keys, []row{
		{"the word in lower case", message("bearer " + madeToken(t, testSecret, hs256, good())), ReasonOK},
		{"no token", changed(made(), func(m *Message) { m.Header = nil }), ReasonMissingSignature},
		{"two tokens", changed(made(), func(m *Message) { m.Header = append(m.Header, m.Header[0]) }), ReasonMalformedSignature},
		{"two tokens joined", changed(made(), func(m *Message) { m.Header[0].Value += ", " + m.Header[0].Value }), ReasonMalformedSignature},
		{"without Bearer", message(madeToken(t, testSecret, hs256, good())), ReasonWrongScheme},
		{"four parts", changed(made(), func(m *Message) { m.Header[0].Value += ".e30" }), ReasonMalformedSignature},
		{"two parts", message("Bearer e30.e30"), ReasonMalformedSignature},
		{"padding", changed(made(), func(m *Message) { m.Header[0].Value += "=" }), ReasonMalformedSignature},
		{"too long", message("Bearer " + strings.Repeat("e", 9000)), ReasonMalformedSignature},
		{"no algorithm", message("Bearer " + madeToken(t, testSecret, `{"typ":"JWT"}`, good())), ReasonWrongScheme},
		{"algorithm none", message("Bearer " + strings.TrimRight(madeToken(t, testSecret, `{"alg":"none"}`, good()), "-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")), ReasonWrongScheme},
		{"another algorithm of the same key", message("Bearer " + madeToken(t, testSecret, `{"alg":"HS384"}`, good())), ReasonWrongScheme},
		{"an extension", message("Bearer " + madeToken(t, testSecret, `{"alg":"HS256","crit":["exp"],"exp":1}`, good())), ReasonMalformedSignature},
		{"another secret", message("Bearer " + madeToken(t, "another secret of theirs", hs256, good())), ReasonBadSignature},
		{"another issuer", made("iss", "them"), ReasonBadSignature},
		{"another URL", made("sub", "https://example.com/other"), ReasonBadSignature},
		{"no public URL", changed(made(), func(m *Message) { m.URL = "" }), ReasonBadSignature},
		{"another body", changed(made(), func(m *Message) { m.Body = []byte(`{"id":"evt_2"}`) }), ReasonBadSignature},
		{"no hash", made("hash", nil), ReasonBadSignature},
		{"no hash and no body", changed(made("hash", nil), func(m *Message) { m.Body = nil }), ReasonBadSignature},
		{"as old as may be", made("iat", now-300), ReasonOK},
		{"older", made("iat", now-301), ReasonTooOld},
		{"as new as may be", made("iat", now+300), ReasonOK},
		{"newer", made("iat", now+301), ReasonTooNew},
		{"a fraction", made("iat", float64(now)+0.5), ReasonOK},
		{"no iat", made("iat", nil), ReasonBadTimestamp},
		{"iat of words", made("iat", "now"), ReasonBadTimestamp},
		{"iat before all time", made("iat", -1), ReasonBadTimestamp},
		{"iat after all time", made("iat", 1e300), ReasonBadTimestamp},
		{"ended, within the leeway", made("exp", now-300), ReasonOK},
		{"ended", made("exp", now-301), ReasonTooOld},
		{"not begun", made("nbf", now+301), ReasonTooNew},
	})
}

// A public key that everybody knows is no secret: a token of HMAC under it is refused.
func TestJWTPublicKeyIsNoSecret(t *testing.T) {
	t.Parallel()
	v := jwtVerifier(t, jwtSpec("RS256"))
	keys := parseKeys(t, v, rfcRSAKey)
	m := tokenMessage(madeToken(t, rfcRSAKey, `{"alg":"HS256"}`, map[string]any{"iss": "joe", "exp": rfcEnd}))
	wantReason(t, v.Verify(&m, keys, time.Unix(rfcEnd, 0), time.Minute), ReasonWrongScheme)
	if _, err := v.ParseKey([]byte(testSecret)); err == nil {
		t.Error("a shared secret is taken for a public key")
	}
}

func TestCompileJWTRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*JWTSpec)
		want   string
	}{
		"no header":             {func(s *JWTSpec) { s.Header = "" }, "header:"},
		"no algorithm":          {func(s *JWTSpec) { s.Algorithms = nil }, "algorithms: one is needed"},
		"none":                  {func(s *JWTSpec) { s.Algorithms = []string{"none"} }, `algorithms: unknown "none"`},
		"two kinds of keys":     {func(s *JWTSpec) { s.Algorithms = []string{"HS256", "RS256"} }, "keys of several kinds"},
		"covers nothing":        {func(s *JWTSpec) { s.BodyClaim = "" }, "covers nothing"},
		"encoding of the hash":  {func(s *JWTSpec) { s.BodyEncoding = "" }, "body_encoding:"},
		"encoding without URL":  {func(s *JWTSpec) { s.URLEncoding = Hex }, "url_encoding:"},
		"time":                  {func(s *JWTSpec) { s.Time = "NBF" }, `time: unknown "NBF"`},
		"two ids":               {func(s *JWTSpec) { s.IDClaim, s.ID = "jti", &ValueSpec{JSON: "id"} }, "id:"},
		"an id without a place": {func(s *JWTSpec) { s.ID = &ValueSpec{} }, "id:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := jwtSpec("HS256")
			c.change(&spec)
			if _, err := (&Provider{JWT: &spec}).compile(); err == nil || !strings.Contains(err.Error(), "jwt: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	both := Provider{JWT: &JWTSpec{}, Specs: []Spec{{}}}
	if _, err := both.compile(); err == nil || !strings.Contains(err.Error(), "one of them alone") {
		t.Errorf("%v", err)
	}
}

// QStash's message id is not in its token: a token that was used under one id is known again under another.
func TestJWTContentHash(t *testing.T) {
	t.Parallel()
	p := provider(t, "qstash")
	keys := parseKeys(t, p.Verifier(), testSecret)
	body := []byte(`{}`)
	sum := sha256.Sum256(body)
	verify := func(id string, end int64) Verdict {
		token := madeToken(t, testSecret, `{"alg":"HS256"}`, map[string]any{
			"iss": "Upstash", "sub": "https://example.com/hook", "exp": end, "body": base64.URLEncoding.EncodeToString(sum[:]),
		})
		m := Message{URL: "https://example.com/hook", Header: headers("upstash-signature: "+token, "upstash-message-id: "+id), Body: body}
		got := p.Verifier().Verify(&m, keys, receivedAt, time.Minute)
		if got.Reason != ReasonOK || got.ID != id || got.IDSigned {
			t.Fatalf("%+v", got)
		}
		return got
	}
	end := receivedAt.Unix() + 300
	first, replayed, next := verify("msg_1", end), verify("msg_2", end), verify("msg_2", end+1)
	if first.ContentHash != replayed.ContentHash || first.ContentHash == next.ContentHash {
		t.Errorf("hashes %x, %x, %x", first.ContentHash, replayed.ContentHash, next.ContentHash)
	}
}

// Nothing that a sender can write makes the reader fail, or a token hold that no key made.
func FuzzJWT(f *testing.F) {
	v := jwtVerifier(f, jwtSpec("HS256", "HS384", "HS512"))
	keys := parseKeys(f, v, testSecret)
	for _, seed := range []string{rfcHS256, rfcES256, "..", "a.b.c", "e30.e30.", fmt.Sprintf("%s.e30.e30", base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)))} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		m := tokenMessage(token)
		if got := v.Verify(&m, keys, time.Unix(rfcEnd, 0), time.Hour); got.Reason == ReasonOK || got.Reason == 0 {
			t.Errorf("%q: %+v", token, got)
		}
	})
}
