package signature

import (
	"cmp"
	"crypto"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// JWTSpec is the scheme of a sender that signs with a JSON Web Token (RFC 7519) in a header: what is signed is the
// token, which holds a hash of the body. The scheme language cannot say that, so it stands beside Spec.
type JWTSpec struct {
	// Header is where the token stands; Bearer: behind the word Bearer.
	Header string `json:"header"`
	Bearer bool   `json:"bearer,omitempty"`
	// Algorithms are those of RFC 7518 that the sender uses, all with one kind of key: HS256, HS384, HS512; or RS256; or
	// ES256. A token that names another is refused, "none" among them.
	Algorithms []string `json:"algorithms"`
	// Issuer is what iss must be. Empty: it is not looked at.
	Issuer string `json:"issuer,omitempty"`
	// BodyClaim holds the SHA-256 of the body, in BodyEncoding. EmptyBody: the sender leaves it out with an empty one;
	// else it must be there, for the same secret may make tokens for other ends.
	BodyClaim    string   `json:"body_claim"`
	BodyEncoding Encoding `json:"body_encoding"`
	EmptyBody    bool     `json:"empty_body,omitempty"`
	// URLClaim holds the public URL, or, with URLEncoding, its SHA-256.
	URLClaim    string   `json:"url_claim,omitempty"`
	URLEncoding Encoding `json:"url_encoding,omitempty"`
	// Time is the claim that must be there: EXP, until which the token holds, or IAT, from which it holds for the
	// tolerance. Empty: none. Those that are there are checked in any case.
	Time string `json:"time,omitempty"`
	// IDClaim is the claim with the event id, ID its place elsewhere; neither: the hash of the token.
	IDClaim string     `json:"id_claim,omitempty"`
	ID      *ValueSpec `json:"id,omitempty"`
	Type    *ValueSpec `json:"type,omitempty"`
}

// jwtScheme is a compiled JWTSpec.
type jwtScheme struct {
	spec    JWTSpec
	header  string
	kind    kind
	id, typ place
}

// jwtHashes are the algorithms of RFC 7518, section 3.2; their keys are one and the same.
var jwtHashes = map[string]func() hash.Hash{"HS256": sha256.New, "HS384": sha512.New384, "HS512": sha512.New}

// jwtKinds are the keys of the algorithms that are taken.
var jwtKinds = map[string]kind{
	"HS256": {HMACSHA256, KeyText},
	"HS384": {HMACSHA256, KeyText},
	"HS512": {HMACSHA256, KeyText},
	"RS256": {RSAPKCS1SHA256, KeyJWKS},
	"ES256": {ECDSAP256, KeyJWKS},
}

func compileJWT(spec JWTSpec) (*jwtScheme, error) {
	s := &jwtScheme{spec: spec}
	var err error
	if s.header, err = headerName(spec.Header); err != nil {
		return nil, err
	}
	if len(spec.Algorithms) == 0 {
		return nil, errors.New("algorithms: one is needed")
	}
	s.kind = jwtKinds[spec.Algorithms[0]]
	for _, a := range spec.Algorithms {
		switch k, ok := jwtKinds[a]; {
		case !ok:
			return nil, fmt.Errorf("algorithms: unknown %q", a)
		case k != s.kind:
			// A public key must never be taken for a secret that both sides know.
			return nil, errors.New("algorithms: they want keys of several kinds")
		}
	}
	encodings := []Encoding{Hex, Base64, Base64URL}
	switch {
	case spec.BodyClaim == "":
		return nil, errors.New("body_claim: without one the token covers nothing of the message")
	case !slices.Contains(encodings, spec.BodyEncoding):
		return nil, fmt.Errorf("body_encoding: unknown %q", spec.BodyEncoding)
	case spec.URLEncoding != "" && (spec.URLClaim == "" || !slices.Contains(encodings, spec.URLEncoding)):
		return nil, fmt.Errorf("url_encoding: unknown %q, or without url_claim", spec.URLEncoding)
	case !slices.Contains([]string{"", "EXP", "IAT"}, spec.Time):
		return nil, fmt.Errorf("time: unknown %q", spec.Time)
	case spec.IDClaim != "" && spec.ID != nil:
		return nil, errors.New("id: not with id_claim")
	}
	for _, p := range []struct {
		name string
		spec *ValueSpec
		into *place
	}{{"id", spec.ID, &s.id}, {"type", spec.Type, &s.typ}} {
		if p.spec == nil {
			continue
		}
		if *p.into, err = compilePlace(*p.spec); err == nil && p.into.kind == placeNone {
			err = errOnePlace
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return s, nil
}

func (s *jwtScheme) keyKind() kind { return s.kind }

func (s *jwtScheme) needsURL() bool { return s.spec.URLClaim != "" }

func (s *jwtScheme) signsTime() bool { return s.spec.Time != "" }
func (s *jwtScheme) hasType() bool   { return s.typ.kind != placeNone }

// String describes the scheme as the one of a Spec is described.
func (s *jwtScheme) String() string {
	return fmt.Sprintf("JWT %s (key %s) in header %s", strings.Join(s.spec.Algorithms, " "), s.kind.format, s.header)
}

// jwt is a token that was taken apart, and its message.
type jwt struct {
	m         *Message
	alg       string
	signed    string // header and payload, as signed
	payload   []byte
	signature []byte
	trace     *Explanation
}

func (s *jwtScheme) verify(m *Message, keys []Key, now time.Time, tolerance time.Duration, trace *Explanation) Verdict {
	t := &jwt{m: m, trace: trace}
	refuse := func(r Reason) Verdict { return Verdict{Reason: r, Key: -1} }
	if reason := s.read(t); reason != ReasonOK {
		return refuse(reason)
	}
	if trace != nil {
		trace.Signed = [][]byte{[]byte(t.signed)}
	}
	index := s.match(t, keys, now)
	if index < 0 {
		return refuse(ReasonBadSignature)
	}
	if s.spec.Issuer != "" && t.claim("iss") != s.spec.Issuer {
		trace.note("iss is not %q", s.spec.Issuer)
		return refuse(ReasonBadSignature)
	}
	if !s.coversURL(t) || !s.coversBody(t) {
		return refuse(ReasonBadSignature)
	}
	at, reason := s.judgeTimes(t, now, tolerance)
	if reason == ReasonBadTimestamp {
		return refuse(reason)
	}
	verdict := Verdict{Reason: reason, Key: index, Time: at}
	if reason == ReasonOK {
		s.identify(t, &verdict)
	}
	return verdict
}

// read takes the token of the message apart. Of the token's header only alg is read: neither a key nor where to find
// one is ever taken from it.
func (s *jwtScheme) read(t *jwt) Reason {
	text, found := t.m.field(s.header)
	switch {
	case found == absent:
		t.trace.note("header %s is missing", s.header)
		return ReasonMissingSignature
	case found == repeated, strings.IndexByte(text, ',') >= 0, len(text) > maxSignatureBytes:
		t.trace.note("header %s came more than once, or is too long", s.header)
		return ReasonMalformedSignature
	}
	if s.spec.Bearer {
		word, rest, ok := strings.Cut(text, " ")
		if !ok || !strings.EqualFold(word, "bearer") {
			t.trace.note("header %s does not begin with Bearer", s.header)
			return ReasonWrongScheme
		}
		text = rest
	}
	head, rest, _ := strings.Cut(text, ".")
	body, sig, ok := strings.Cut(rest, ".")
	var okHead, okBody, okSig bool
	var header []byte
	header, okHead = decodeBase64(nil, head, strictRawURL)
	t.payload, okBody = decodeBase64(nil, body, strictRawURL)
	t.signature, okSig = decodeBase64(nil, sig, strictRawURL)
	if !ok || !okHead || !okBody || !okSig || !looksJSON(header) || !looksJSON(t.payload) {
		t.trace.note("header %s holds no token of three parts in base64url", s.header)
		return ReasonMalformedSignature
	}
	if fields := (scanner{b: header}); fields.enter("crit") {
		t.trace.note("the token has extensions that must be understood (crit)")
		return ReasonMalformedSignature
	}
	t.alg, _ = scalarAt(header, jsonPath{"alg"})
	if !slices.Contains(s.spec.Algorithms, t.alg) {
		t.trace.note("the token's algorithm is %q", t.alg)
		return ReasonWrongScheme
	}
	t.signed = text[:len(text)-len(sig)-1]
	return ReasonOK
}

// match returns the index of the first key that made the token's signature, or -1. All are tried.
func (s *jwtScheme) match(t *jwt, keys []Key, now time.Time) int {
	found, tried, checks := -1, 0, 0
	for i := range keys {
		k := &keys[i]
		if !k.live(now) || k.m.kind != s.kind || tried == maxKeys {
			continue
		}
		tried++
		if s.fits(t, k.m, &checks) && found < 0 {
			found = i
		}
	}
	t.trace.note("tried %d keys", tried)
	return found
}

// jwtPublic are the schemes that checkPublic reads: how a signature of RFC 7518 lays out its numbers.
var jwtPublic = &scheme{spec: Spec{Signature: SignatureSpec{Layout: Raw}}}

func (s *jwtScheme) fits(t *jwt, m *material, checks *int) bool {
	if newHash := jwtHashes[t.alg]; newHash != nil {
		h := hmac.New(newHash, m.text)
		h.Write([]byte(t.signed))
		return hmac.Equal(h.Sum(nil), t.signature)
	}
	sum := sha256.Sum256([]byte(t.signed))
	ok := false
	for _, p := range m.public {
		if *checks == maxPublicChecks {
			break
		}
		*checks++
		ok = checkPublic(crypto.PublicKey(p), jwtPublic, nil, sum[:], t.signature) || ok
	}
	return ok
}

// claim returns a text, number or truth value of the payload as text; empty: it has none.
func (t *jwt) claim(name string) string {
	v, _ := scalarAt(t.payload, jsonPath{name})
	return v
}

// coversBody compares the body's hash.
func (s *jwtScheme) coversBody(t *jwt) bool {
	text := t.claim(s.spec.BodyClaim)
	if text == "" && len(t.m.Body) == 0 && s.spec.EmptyBody {
		return true
	}
	sum := sha256.Sum256(t.m.Body)
	if !hashIs(text, s.spec.BodyEncoding, sum[:]) {
		t.trace.note("%s is not the hash of the body", s.spec.BodyClaim)
		return false
	}
	return true
}

func (s *jwtScheme) coversURL(t *jwt) bool {
	if s.spec.URLClaim == "" {
		return true
	}
	text := t.claim(s.spec.URLClaim)
	ok := t.m.URL != "" && text == t.m.URL
	if s.spec.URLEncoding != "" {
		sum := sha256.Sum256([]byte(t.m.URL))
		ok = t.m.URL != "" && hashIs(text, s.spec.URLEncoding, sum[:])
	}
	if !ok {
		t.trace.note("%s is of another URL than %q", s.spec.URLClaim, t.m.URL)
	}
	return ok
}

// hashIs reports whether text is sum in that encoding.
func hashIs(text string, enc Encoding, sum []byte) bool {
	got, ok := decode(nil, text, enc)
	return ok && subtle.ConstantTimeCompare(got, sum) == 1
}

// judgeTimes compares exp, nbf and iat with now (RFC 7519, section 4.1) and returns the time from which the token
// holds. The tolerance is the leeway for clocks, and how long a token without exp is taken.
func (s *jwtScheme) judgeTimes(t *jwt, now time.Time, tolerance time.Duration) (time.Time, Reason) {
	var at [3]time.Time
	exp, nbf, iat := &at[0], &at[1], &at[2]
	for i, name := range [...]string{"exp", "nbf", "iat"} {
		text := t.claim(name)
		if text == "" {
			continue
		}
		var ok bool
		if at[i], ok = numericDate(text); !ok {
			t.trace.note("%s is no time", name)
			return time.Time{}, ReasonBadTimestamp
		}
	}
	from := cmp.Or(*iat, *nbf)
	switch {
	case s.spec.Time == "EXP" && exp.IsZero(), s.spec.Time == "IAT" && iat.IsZero():
		t.trace.note("the token has no %s", strings.ToLower(s.spec.Time))
		return time.Time{}, ReasonBadTimestamp
	case !exp.IsZero() && now.Sub(*exp) > tolerance,
		s.spec.Time == "IAT" && judgeTime(*iat, now, tolerance, Past) != ReasonOK:
		return from, ReasonTooOld
	case !nbf.IsZero() && nbf.Sub(now) > tolerance, !iat.IsZero() && iat.Sub(now) > tolerance:
		return from, ReasonTooNew
	}
	return from, ReasonOK
}

// numericDate reads seconds since the epoch, with or without a fraction (RFC 7519, section 2).
func numericDate(text string) (time.Time, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f < 1<<37) || strings.ContainsAny(text, "xXpP_") {
		return time.Time{}, false
	}
	whole, part := math.Modf(f)
	return time.Unix(int64(whole), int64(part*1e9)).UTC(), true
}

// identify reads id and type of a message whose token holds. What stands in the body is vouched for by its hash.
func (s *jwtScheme) identify(t *jwt, v *Verdict) {
	if s.typ.kind != placeNone {
		v.Type, _ = s.typ.find(t.m, t.m.Body)
	}
	v.ContentHash = sha256.Sum256([]byte(t.signed))
	switch {
	case s.spec.IDClaim != "":
		v.ID, v.IDSigned = t.claim(s.spec.IDClaim), true
	case s.id.kind != placeNone:
		v.ID, _ = s.id.find(t.m, t.m.Body)
		v.IDSigned = s.id.kind == placeJSON
	default:
		v.ID, v.IDSigned = "sha256:"+encode(v.ContentHash[:], Hex), true
	}
	if v.ID == "" {
		v.IDSigned = false
	} else if v.IDSigned {
		v.ContentHash = sha256.Sum256([]byte(v.ID))
	}
}
