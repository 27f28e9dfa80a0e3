package signature

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxTokenBytes bounds a token in a header; one that is the event may be as large as a body.
const maxTokenBytes = maxSignatureBytes

// jwt is a token that was taken apart, and its message.
type jwt struct {
	m         *Message
	alg, kid  string
	chain     []string // x5c
	signed    []byte   // header and payload, as signed
	payload   []byte
	signature []byte
	trace     *Explanation

	want KeyRequest // a document of keys that may have the token's
	away bool       // and that is not at hand
}

func (s *jwtScheme) verify(m *Message, keys []Key, now time.Time, tolerance time.Duration, trace *Explanation) Verdict {
	t := &jwt{m: m, trace: trace}
	refuse := func(r Reason) Verdict { return Verdict{Reason: r, Key: -1} }
	if reason := s.read(t); reason != ReasonOK {
		return refuse(reason)
	}
	for _, p := range []place{s.id, s.typ} {
		if p.kind != placeHeader {
			continue
		}
		if _, found := m.field(p.name); found == repeated {
			trace.note("%s came more than once", p)
			return refuse(ReasonMalformedSignature)
		}
	}
	if trace != nil {
		trace.Signed = [][]byte{t.signed}
	}
	index := s.match(t, keys, now)
	switch {
	case index < 0 && t.away:
		return Verdict{Reason: ReasonKeyUnavailable, Key: -1, Want: t.want}
	case index < 0:
		return Verdict{Reason: ReasonBadSignature, Key: -1, Want: t.want}
	case !s.forUs(t), !s.coversURL(t), !s.coversBody(t):
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

// text finds the token.
func (s *jwtScheme) text(t *jwt) (string, Reason) {
	if s.header == "" {
		if s.json == nil {
			return string(bytes.TrimSpace(t.m.Body)), ReasonOK
		}
		body := bytes.TrimPrefix(t.m.Body, []byte("\xef\xbb\xbf"))
		text, ok := lookupJSON(body, s.json)
		if ok && !namedOnce(body, s.spec.JSON) {
			t.trace.note("the body has json %s more than once, or something else that could be read in two ways", s.spec.JSON)
			return "", ReasonMalformedSignature
		}
		if !ok {
			t.trace.note("json %s is missing", s.spec.JSON)
			return "", ReasonMissingSignature
		}
		return text, ReasonOK
	}
	text, found := t.m.field(s.header)
	switch {
	case found == absent:
		t.trace.note("header %s is missing", s.header)
		return "", ReasonMissingSignature
	case found == repeated, strings.IndexByte(text, ',') >= 0, len(text) > maxTokenBytes:
		t.trace.note("header %s came more than once, or is too long", s.header)
		return "", ReasonMalformedSignature
	}
	if s.spec.Bearer {
		word, rest, ok := strings.Cut(text, " ")
		if !ok || !strings.EqualFold(word, "bearer") {
			t.trace.note("header %s does not begin with Bearer", s.header)
			return "", ReasonWrongScheme
		}
		text = rest
	}
	return text, ReasonOK
}

// tokenHead is what is read of a token's header. Neither a key nor where to find one is ever taken from it: kid only names
// one among those of the source, and x5c has to lead to one.
type tokenHead struct {
	Alg  string          `json:"alg"`
	Kid  string          `json:"kid"`
	X5C  []string        `json:"x5c"`
	Crit json.RawMessage `json:"crit"`
	B64  *bool           `json:"b64"`
}

// read takes the token of the message apart.
func (s *jwtScheme) read(t *jwt) Reason {
	text, reason := s.text(t)
	if reason != ReasonOK {
		return reason
	}
	first, rest, _ := strings.Cut(text, ".")
	second, third, ok := strings.Cut(rest, ".")
	detached := s.spec.Detached != ""
	header, okHead := decodeBase64(nil, first, strictRawURL)
	var okBody, okSignature bool
	t.payload, okBody = decodeBase64(nil, second, strictRawURL)
	t.signature, okSignature = decodeBase64(nil, third, strictRawURL)
	var head tokenHead
	okHead = okHead && namedOnce(header, "alg", "kid", "x5c", "crit", "b64") && json.Unmarshal(header, &head) == nil
	okBody = okBody && (looksJSON(t.payload) && !detached || detached && second == "")
	if !ok || !okHead || !okBody || !okSignature {
		t.trace.note("%s holds no token of three parts in base64url", s.where())
		return ReasonMalformedSignature
	}
	raw := s.spec.Detached == "RAW"
	if understood := head.Crit == nil && head.B64 == nil || raw && string(head.Crit) == `["b64"]` && head.B64 != nil && !*head.B64; !understood || raw && head.B64 == nil {
		t.trace.note("the token has extensions that must be understood (crit), or lacks one")
		return ReasonMalformedSignature
	}
	t.alg, t.kid, t.chain = head.Alg, head.Kid, head.X5C
	if !slices.Contains(s.spec.Algorithms, t.alg) {
		t.trace.note("the token's algorithm is %q", t.alg)
		return ReasonWrongScheme
	}
	switch {
	case raw:
		t.signed = slices.Concat([]byte(first+"."), t.m.Body)
	case detached:
		t.signed = base64.RawURLEncoding.AppendEncode([]byte(first+"."), t.m.Body)
	default:
		t.signed = []byte(text[:len(first)+1+len(second)])
	}
	return ReasonOK
}

// namedOnce reports whether object is a JSON object with nothing behind it that has no name twice and those of names in
// the right case only: what reads it after us may read the other one.
func namedOnce(object []byte, names ...string) bool {
	d := json.NewDecoder(bytes.NewReader(object))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return false
	}
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil || len(seen) == maxSNSFields {
			return false
		}
		text, _ := name.(string)
		folded := foldName(text)
		if seen[folded] || !slices.Contains(names, text) && slices.ContainsFunc(names, func(n string) bool { return foldName(n) == folded }) {
			return false
		}
		seen[folded] = true
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return false
		}
	}
	if _, err := d.Token(); err != nil {
		return false
	}
	_, err := d.Token()
	return err == io.EOF
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
		if s.fits(t, k.m, now, &checks) && found < 0 {
			found = i
		}
	}
	t.trace.note("tried %d keys", tried)
	return found
}

func (s *jwtScheme) fits(t *jwt, m *material, now time.Time, checks *int) bool {
	a := jwtAlgorithms[t.alg]
	var public []crypto.PublicKey
	switch {
	case a.kind.symmetric():
		h := hmac.New(a.hash.New, m.text)
		h.Write(t.signed)
		return hmac.Equal(h.Sum(nil), t.signature)
	case s.spec.X5C != nil:
		public = s.certified(t, m.roots, now)
	case m.url != "":
		public = t.published(m.url, a.kind.algorithm)
	default:
		public = m.public
	}
	ok := false
	for _, p := range public {
		if *checks == maxPublicChecks {
			break
		}
		*checks++
		ok = checkToken(p, a.kind.algorithm, a.hash, t.signed, t.signature) || ok
	}
	return ok
}

// checkToken checks a signature of RFC 7518 or 8037.
func checkToken(p crypto.PublicKey, alg Algorithm, hashed crypto.Hash, signed, signature []byte) bool {
	if hashed == 0 {
		return checkPublic(p, alg, Raw, signed, nil, signature)
	}
	h := hashed.New()
	h.Write(signed)
	switch hashed {
	case crypto.SHA384:
		return checkRSA(p, hashed, h.Sum(nil), signature)
	case crypto.SHA512:
		alg = RSAPKCS1SHA512
	}
	return checkPublic(p, alg, Raw, nil, h.Sum(nil), signature)
}

// published returns the keys at an address that may have made the token's signature.
func (t *jwt) published(at string, alg Algorithm) []crypto.PublicKey {
	want := KeyRequest{URL: at, KeyID: t.kid}
	document := t.m.publishedBy(at)
	if document == nil {
		t.trace.note("the keys of %s are not at hand", at)
		t.want, t.away = want, true
		return nil
	}
	public := document.choose(alg, t.kid, t.alg)
	if len(public) == 0 {
		t.trace.note("%s has no key %q", at, t.kid)
		t.away = true
	}
	if t.kid == "" || !document.names(t.kid) {
		t.want = want
	}
	return public
}

// certified returns the key of the first certificate in the token's header, if they lead to one of roots: each issued by
// the next, valid now, and with the extensions that say that they are for this end.
func (s *jwtScheme) certified(t *jwt, roots []*x509.Certificate, now time.Time) []crypto.PublicKey {
	if len(t.chain) != s.spec.X5C.Length {
		t.trace.note("x5c holds %d certificates, not %d", len(t.chain), s.spec.X5C.Length)
		return nil
	}
	chain := make([]*x509.Certificate, len(t.chain))
	for i, text := range t.chain {
		der, err := base64.StdEncoding.Strict().DecodeString(text)
		if err == nil {
			chain[i], err = x509.ParseCertificate(der)
		}
		if err != nil {
			t.trace.note("x5c[%d] is no certificate", i)
			return nil
		}
	}
	anchors, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range roots {
		anchors.AddCert(c)
	}
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: anchors, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil || !hasExtension(chain[0], s.leaf) || !hasExtension(chain[1], s.issuer) || chain[0].CheckSignatureFrom(chain[1]) != nil {
		t.trace.note("x5c leads to no authority among the keys, or is for another end")
		return nil
	}
	if fits(chain[0].PublicKey, s.kind.algorithm) != nil {
		return nil
	}
	return []crypto.PublicKey{chain[0].PublicKey}
}

func hasExtension(c *x509.Certificate, oid asn1.ObjectIdentifier) bool {
	for _, e := range c.Extensions {
		if e.Id.Equal(oid) {
			return true
		}
	}
	return false
}

// claim returns a text, number or truth value of the payload as text; empty: it has none.
func (t *jwt) claim(path ...string) string {
	v, _ := scalarAt(t.payload, path)
	return v
}

// forUs judges who made the token, for whom, and of whom it speaks.
func (s *jwtScheme) forUs(t *jwt) bool {
	issuers := s.spec.Issuers
	if one := cmp.Or(s.claims.Issuer, s.spec.Issuer); one != "" {
		issuers = []string{one}
	}
	if len(issuers) > 0 && !slices.Contains(issuers, t.claim("iss")) {
		t.trace.note("iss is not one of %q", issuers)
		return false
	}
	if want := s.claims.Audience; want != "" && !t.holds(s.spec.Audience, want) {
		t.trace.note("%s is not %q", s.spec.Audience, want)
		return false
	}
	if s.spec.Bearing && s.claims.Audience == "" {
		t.trace.note("the source names no audience, and the token may be made for anyone")
		return false
	}
	subject, claim := s.claims.Subject, "sub"
	if strings.Contains(subject, "@") {
		claim = "email"
	}
	if subject != "" && (t.claim(claim) != subject || claim == "email" && t.claim("email_verified") != "true") {
		t.trace.note("%s is not %q, or not verified", claim, subject)
		return false
	}
	return true
}

// holds reports whether a claim, or a member of it where it is a list (RFC 7519, section 4.1.3), is that text. The name is a
// path.
func (t *jwt) holds(claim, want string) bool {
	path := strings.Split(claim, ".")
	if t.claim(path...) == want {
		return true
	}
	for i := range maxAudiences {
		if member := t.claim(append(slices.Clone(path), strconv.Itoa(i))...); member == "" || member == want {
			return member == want
		}
	}
	return false
}

// maxAudiences bounds the members of a list that are looked at.
const maxAudiences = 32

// coversBody compares the body's hash.
func (s *jwtScheme) coversBody(t *jwt) bool {
	if s.spec.BodyClaim == "" {
		return true // the token is the body, or was made over it, or says nothing of it
	}
	text := t.claim(s.spec.BodyClaim)
	if s.spec.BodyEncoding == bodyText {
		if subtle.ConstantTimeCompare([]byte(text), t.m.Body) != 1 {
			t.trace.note("%s is not the body", s.spec.BodyClaim)
			return false
		}
		return true
	}
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

// identify reads id and type of a message whose token holds. What stands in the body is vouched for by its hash, and what
// stands in the token by the token.
func (s *jwtScheme) identify(t *jwt, v *Verdict) {
	switch {
	case s.typeClaim != nil:
		v.Type = t.claim(s.typeClaim...)
	case s.typ.kind != placeNone:
		v.Type, _ = s.typ.find(t.m, t.m.Body)
	}
	v.ContentHash = sha256.Sum256(t.signed)
	bodySigned := !s.spec.Bearing && s.json == nil
	if s.spec.Bearing {
		// A token is made anew for a repeat, and may be the same for many events.
		v.ContentHash = sha256.Sum256(t.m.Body)
	}
	switch {
	case s.idClaim != nil:
		v.ID, v.IDSigned = t.claim(s.idClaim...), true
	case s.id.kind != placeNone:
		v.ID, _ = s.id.find(t.m, t.m.Body)
		v.IDSigned = s.id.kind == placeJSON && bodySigned
	default:
		v.ID, v.IDSigned = "sha256:"+encode(v.ContentHash[:], Hex), !s.spec.Bearing
	}
	if v.ID == "" {
		v.IDSigned = false
	} else if v.IDSigned {
		v.ContentHash = sha256.Sum256([]byte(v.ID))
	}
}
