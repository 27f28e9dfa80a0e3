package signature

import (
	"crypto"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// JWTSpec is the scheme of a sender that signs with a JSON Web Token or Signature (RFC 7519, 7515): what is signed is the
// token, which holds a hash of the body, or is the event, or only says who sends. The scheme language cannot say that, so
// it stands beside Spec.
type JWTSpec struct {
	// Header is where the token stands; Bearer: behind the word Bearer. JSON is a field of the body that it stands in
	// instead, and with Whole it is the body.
	Header string `json:"header,omitempty"`
	Bearer bool   `json:"bearer,omitempty"`
	JSON   string `json:"json,omitempty"`
	Whole  bool   `json:"whole,omitempty"`
	// Algorithms are those of RFC 7518 and 8037 that the sender uses, all with one kind of key: HS256, HS384, HS512; or
	// RS256, RS384, RS512; or PS256; or ES256; or EdDSA. A token that names another is refused, "none" among them.
	Algorithms []string `json:"algorithms"`
	// Issuer is what iss must be, Issuers are several of which it must be one. Neither: it is not looked at. A source may
	// say it instead.
	Issuer  string   `json:"issuer,omitempty"`
	Issuers []string `json:"issuers,omitempty"`
	// Audience is the claim that tells for whom the token is, as a rule aud: the sender makes tokens for others with the same
	// key, so that a source must say its own. Empty: it is not looked at, unless the source says one.
	Audience string `json:"audience,omitempty"`
	// Detached says that the token's payload is left out and is the body: RAW, as it is (RFC 7797), or BASE64URL.
	Detached string `json:"detached,omitempty"`
	// X5C are the certificates in the token's header: it is signed by the first of them, and the last leads to the key, which
	// is an authority. Nil: a key made the signature itself.
	X5C *X5CSpec `json:"x5c,omitempty"`
	// Bearing: the token says only who sends, and nothing of the message.
	Bearing bool `json:"bearing,omitempty"`
	// BodyClaim holds the SHA-256 of the body, in BodyEncoding, or with TEXT the body itself. EmptyBody: the sender leaves it
	// out with an empty one; else it must be there, for the same secret may make tokens for other ends.
	BodyClaim    string   `json:"body_claim,omitempty"`
	BodyEncoding Encoding `json:"body_encoding,omitempty"`
	EmptyBody    bool     `json:"empty_body,omitempty"`
	// URLClaim holds the public URL, or, with URLEncoding, its SHA-256.
	URLClaim    string   `json:"url_claim,omitempty"`
	URLEncoding Encoding `json:"url_encoding,omitempty"`
	// Time is the claim that must be there: EXP, until which the token holds, or IAT, from which it holds for the
	// tolerance. Empty: none. Those that are there are checked in any case.
	Time string `json:"time,omitempty"`
	// IDClaim is the path of the claim with the event id, ID its place elsewhere; neither: the hash of the token, or of the
	// body where the token says nothing of it. TypeClaim and Type are the same for the type.
	IDClaim   string     `json:"id_claim,omitempty"`
	ID        *ValueSpec `json:"id,omitempty"`
	TypeClaim string     `json:"type_claim,omitempty"`
	Type      *ValueSpec `json:"type,omitempty"`
}

// X5CSpec is what certificates in a token's header must be. There are as many as the sender has, two or three.
type X5CSpec struct {
	// Length is their number.
	Length int `json:"length"`
	// LeafOID and IssuerOID are extensions that the first and the second must have: an authority issues for other ends too.
	LeafOID   string `json:"leaf_oid"`
	IssuerOID string `json:"issuer_oid"`
}

// Claims are what a source expects of its sender's tokens beside what the row knows.
type Claims struct {
	Issuer   string // iss; empty: the row's
	Audience string // what the audience claim must hold
	Subject  string // sub, or, where it has an @, email, which the issuer then must have verified; empty: any
}

// jwtScheme is a compiled JWTSpec.
type jwtScheme struct {
	spec               JWTSpec
	header             string
	json               []jsonPath
	kind               kind
	id, typ            place
	idClaim, typeClaim jsonPath
	leaf, issuer       asn1.ObjectIdentifier // of X5C
	claims             Claims
}

// keyX5C is the format of keys that are authorities: certificates in PEM.
const keyX5C KeyFormat = "X5C"

// jwtAlgorithms are the algorithms that are taken: their keys, and what they hash with.
var jwtAlgorithms = map[string]struct {
	kind kind
	hash crypto.Hash
}{
	"HS256": {kind{HMACSHA256, KeyText}, crypto.SHA256},
	"HS384": {kind{HMACSHA256, KeyText}, crypto.SHA384},
	"HS512": {kind{HMACSHA256, KeyText}, crypto.SHA512},
	"RS256": {kind{RSAPKCS1SHA256, KeyJWKS}, crypto.SHA256},
	"RS384": {kind{RSAPKCS1SHA256, KeyJWKS}, crypto.SHA384},
	"RS512": {kind{RSAPKCS1SHA256, KeyJWKS}, crypto.SHA512},
	"PS256": {kind{RSAPSSSHA256, KeyJWKS}, crypto.SHA256},
	"ES256": {kind{ECDSAP256, KeyJWKS}, crypto.SHA256},
	"EdDSA": {kind{Ed25519, KeyJWKS}, 0},
}

func compileJWT(spec JWTSpec) (*jwtScheme, error) {
	s := &jwtScheme{spec: spec}
	var err error
	for _, step := range []func() error{s.compilePlace, s.compileAlgorithms, s.compileCover, s.compileClaims} {
		if err = step(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// compilePlace reads where the token stands.
func (s *jwtScheme) compilePlace() (err error) {
	spec := &s.spec
	switch {
	case spec.Header != "" && spec.JSON == "" && !spec.Whole:
		s.header, err = headerName(spec.Header)
		return err
	case spec.Header != "" || spec.Whole == (spec.JSON != "") || spec.Bearer:
		return errors.New("header: exactly one of header, json, whole is needed, and bearer goes with header")
	case spec.JSON != "":
		if s.json, err = parseJSONPaths(spec.JSON); err == nil && (len(s.json) > 1 || len(s.json[0]) > 1) {
			err = errors.New("json: a name in the body's object is wanted")
		}
		return err
	}
	return nil
}

func (s *jwtScheme) compileAlgorithms() (err error) {
	if len(s.spec.Algorithms) == 0 {
		return errors.New("algorithms: one is needed")
	}
	s.kind = jwtAlgorithms[s.spec.Algorithms[0]].kind
	for _, a := range s.spec.Algorithms {
		switch known, ok := jwtAlgorithms[a]; {
		case !ok:
			return fmt.Errorf("algorithms: unknown %q", a)
		case known.kind != s.kind:
			// A public key must never be taken for a secret that both sides know.
			return errors.New("algorithms: they want keys of several kinds")
		}
	}
	x := s.spec.X5C
	if x == nil {
		return nil
	}
	if s.kind.symmetric() || x.Length < 2 || x.Length > maxChain {
		return errors.New("x5c: not with HS256, and of 2 certificates at least")
	}
	s.kind.format = keyX5C
	if s.leaf, err = parseOID(x.LeafOID); err == nil {
		s.issuer, err = parseOID(x.IssuerOID)
	}
	return err
}

func parseOID(text string) (asn1.ObjectIdentifier, error) {
	var oid asn1.ObjectIdentifier
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("x5c: %q is no object identifier", text)
		}
		oid = append(oid, n)
	}
	return oid, nil
}

// compileCover refuses a token that says nothing of the message, unless the spec owns up to it.
func (s *jwtScheme) compileCover() error {
	spec := &s.spec
	encodings := []Encoding{Hex, Base64, Base64URL}
	covers := 0
	for _, yes := range []bool{spec.BodyClaim != "", spec.Detached != "", s.header == "", spec.Bearing} {
		if yes {
			covers++
		}
	}
	switch {
	case covers != 1:
		return errors.New("body_claim: without one the token covers nothing of the message, but where it is detached, the body, or bearing")
	case spec.Bearing && spec.Audience == "":
		return errors.New("audience: needed with bearing, for others get tokens of the same key")
	case spec.Detached != "" && spec.Detached != "RAW" && spec.Detached != string(Base64URL):
		return fmt.Errorf("detached: unknown %q", spec.Detached)
	case spec.BodyClaim != "" && !slices.Contains(append(encodings, bodyText), spec.BodyEncoding):
		return fmt.Errorf("body_encoding: unknown %q", spec.BodyEncoding)
	case spec.URLEncoding != "" && (spec.URLClaim == "" || !slices.Contains(encodings, spec.URLEncoding)):
		return fmt.Errorf("url_encoding: unknown %q, or without url_claim", spec.URLEncoding)
	}
	return nil
}

// bodyText is the BodyEncoding of a claim that is the body itself.
const bodyText Encoding = "TEXT"

func (s *jwtScheme) compileClaims() (err error) {
	spec := &s.spec
	switch {
	case !slices.Contains([]string{"", "EXP", "IAT"}, spec.Time):
		return fmt.Errorf("time: unknown %q", spec.Time)
	case spec.IDClaim != "" && spec.ID != nil:
		return errors.New("id: not with id_claim")
	case spec.TypeClaim != "" && spec.Type != nil:
		return errors.New("type: not with type_claim")
	case spec.Detached != "" && spec.Issuer+spec.Audience+spec.URLClaim+spec.Time+spec.IDClaim+spec.TypeClaim != "":
		return errors.New("detached: such a token has no claims")
	}
	for _, p := range []struct {
		name, claim string
		spec        *ValueSpec
		into        *place
		intoClaim   *jsonPath
	}{{"id", spec.IDClaim, spec.ID, &s.id, &s.idClaim}, {"type", spec.TypeClaim, spec.Type, &s.typ, &s.typeClaim}} {
		if p.claim != "" {
			paths, err := parseJSONPaths(p.claim)
			if err == nil && len(paths) > 1 {
				err = errors.New("one path is wanted")
			}
			if err != nil {
				return fmt.Errorf("%s_claim: %w", p.name, err)
			}
			*p.intoClaim = paths[0]
		}
		if p.spec == nil {
			continue
		}
		if *p.into, err = compilePlace(*p.spec); err == nil && p.into.kind == placeNone {
			err = errOnePlace
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// NeedsAudience reports whether the sender's tokens are made for others too, so that a source must say its own audience.
func (v *Verifier) NeedsAudience() bool {
	s, ok := v.beside.(*jwtScheme)
	return ok && s.spec.Audience != "" && s.claims.Audience == ""
}

// TakesClaims reports whether Expect has an effect.
func (v *Verifier) TakesClaims() bool {
	s, ok := v.beside.(*jwtScheme)
	return ok && s.spec.Detached == ""
}

// Expect returns a Verifier that wants these claims of the sender's tokens too.
func (v *Verifier) Expect(c Claims) (*Verifier, error) {
	s, ok := v.beside.(*jwtScheme)
	if !ok || s.spec.Detached != "" {
		return nil, errors.New("this sender's signature is no token with claims")
	}
	t := *s
	t.claims = c
	if t.spec.Audience == "" {
		t.spec.Audience = "aud"
	}
	w := *v
	w.beside = &t
	return &w, nil
}

func (s *jwtScheme) keyKind() kind { return s.kind }

func (s *jwtScheme) needsURL() bool { return s.spec.URLClaim != "" }

func (s *jwtScheme) signsTime() bool { return s.spec.Time != "" }
func (s *jwtScheme) hasType() bool   { return s.typ.kind != placeNone || s.typeClaim != nil }

// String describes the scheme as the one of a Spec is described.
func (s *jwtScheme) String() string {
	return fmt.Sprintf("JWT %s (key %s) in %s", strings.Join(s.spec.Algorithms, " "), s.kind.format, s.where())
}

// where names the place of the token.
func (s *jwtScheme) where() string {
	switch {
	case s.header != "":
		return "header " + s.header
	case s.json != nil:
		return "json " + s.spec.JSON
	}
	return "the body"
}
