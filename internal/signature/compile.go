package signature

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Verifier checks and makes the signatures of one sender. It is immutable and safe for concurrent use.
type Verifier struct {
	schemes []*scheme
	kinds   []kind
	sets    []headerSet
	// others are headers of schemes that are never accepted; see SignatureSpec.Others.
	others       []string
	wrongSecrets []WrongSecret
	// beside is a scheme that the language cannot say; then there are no others.
	beside beside
	// own are keys that the sender publishes and that its row knows.
	own []Key
	// peer is who must have sent, as far as the connection tells; nil: anyone may have.
	peer *peerRule
}

// scheme is a compiled Spec: all names in lower case, all defaults filled in.
type scheme struct {
	spec      Spec
	kind      kind
	signature place
	timestamp place // placeNone where the time stands in the signature's own list
	timed     bool  // a timestamp is signed
	id        place
	typ       place
	bodyHash  place
	require   []RequireSpec // names in lower case
	each      jsonPath      // nil: the message is signed as one
	// names are those on the way to JSON values without which a signature of fields says nothing, in lower case; nil where
	// the body is signed as a whole.
	names    map[string]bool
	parts    []part
	needsURL bool
	// bodySigned: a value in the body is vouched for by the signature.
	bodySigned bool
	idSigned   bool
}

// headerSet are the headers that belong together: alternatives of one sender with other names for the same things
// (svix-id and webhook-id) are other sets, and a message must not mix them.
type headerSet struct {
	signature, timestamp, id string // empty: not in a header
	also                     []string
	schemes                  []int
}

// Compile checks specs and makes a Verifier of them. Several are alternatives of one sender: other header names, or
// other versions of its scheme. Errors name the field, as in "signed: unknown placeholder {foo}".
func Compile(specs ...Spec) (*Verifier, error) {
	if len(specs) == 0 {
		return nil, errors.New("a scheme is needed")
	}
	v := &Verifier{}
	var errs []error
	for i := range specs {
		s, err := compile(specs[i])
		if err != nil {
			if len(specs) > 1 {
				err = fmt.Errorf("[%d].%w", i, err)
			}
			errs = append(errs, err)
			continue
		}
		v.add(s)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i := range specs {
		if len(specs[i].Subjects) == 0 {
			continue
		}
		if len(specs) > 1 {
			return nil, errors.New("subjects: not with alternatives")
		}
		v.peer = &peerRule{subjects: slices.Clone(specs[i].Subjects)}
	}
	plain := 0
	for _, k := range v.kinds {
		if k.format != KeyWhsec {
			plain++
		}
	}
	if plain > 1 {
		return nil, errors.New("key: alternatives want keys that cannot be told apart")
	}
	return v, nil
}

func (v *Verifier) add(s *scheme) {
	v.schemes = append(v.schemes, s)
	if !slices.Contains(v.kinds, s.kind) {
		v.kinds = append(v.kinds, s.kind)
	}
	v.others = append(v.others, s.spec.Signature.Others...)
	set := s.headers()
	for i := range v.sets {
		if o := &v.sets[i]; o.signature == set.signature && o.timestamp == set.timestamp && o.id == set.id && slices.Equal(o.also, set.also) {
			o.schemes = append(o.schemes, len(v.schemes)-1)
			return
		}
	}
	set.schemes = []int{len(v.schemes) - 1}
	v.sets = append(v.sets, set)
}

func (s *scheme) headers() headerSet {
	var set headerSet
	if s.signature.kind == placeHeader {
		set.signature, set.also = s.signature.name, s.spec.Signature.Also
	}
	if s.timestamp.kind == placeHeader {
		set.timestamp = s.timestamp.name
	}
	if s.id.kind == placeHeader && uses(s.parts, partID) {
		set.id = s.id.name
	}
	return set
}

// NeedsURL reports whether a scheme signs the public URL, which then has to be configured.
func (v *Verifier) NeedsURL() bool {
	return v.beside != nil && v.beside.needsURL() || slices.ContainsFunc(v.schemes, func(s *scheme) bool { return s.needsURL })
}

// SignsTime reports whether every scheme has a signed time, so that a tolerance means something.
func (v *Verifier) SignsTime() bool {
	if v.beside != nil {
		return v.beside.signsTime()
	}
	return !slices.ContainsFunc(v.schemes, func(s *scheme) bool { return !s.timed })
}

// HasType reports whether every scheme says where the event type stands.
func (v *Verifier) HasType() bool {
	if v.beside != nil {
		return v.beside.hasType()
	}
	return !slices.ContainsFunc(v.schemes, func(s *scheme) bool { return s.typ.kind == placeNone })
}

// DecodesBody reports whether some scheme unzips bodies, each of which then takes up to Message.MaxBody of memory more.
func (v *Verifier) DecodesBody() bool {
	return slices.ContainsFunc(v.schemes, func(s *scheme) bool { return s.spec.Body == Decoded })
}

// compile fills defaults in and checks one spec.
func compile(spec Spec) (*scheme, error) {
	spec.defaults()
	s := &scheme{spec: spec, kind: kind{spec.Algorithm, spec.Key}}
	if err := checkWords(&spec); err != nil {
		return nil, err
	}
	steps := []func() error{s.compileSignature, s.compileTimestamp, s.compileID, s.compileSigned, s.compileRest,
		s.compileHeaders, s.compileParts, s.compileReading, s.checkCover}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (spec *Spec) defaults() {
	covers := !spec.Algorithm.bearer()
	format := KeyText
	if !(kind{algorithm: spec.Algorithm}).symmetric() {
		format = KeyPEM
	}
	spec.Key = cmp.Or(spec.Key, format)
	spec.Signed = cmp.Or(spec.Signed, "{body}")
	spec.Body = cmp.Or(spec.Body, Wire)
	spec.URL = cmp.Or(spec.URL, URLExact)
	sig := &spec.Signature
	if covers {
		sig.Encoding = cmp.Or(sig.Encoding, Hex)
	}
	if spec.Algorithm == Basic && sig.ValueSpec == (ValueSpec{}) {
		sig.Header = "authorization"
	}
	if spec.Algorithm == ECDSAP256 {
		sig.Layout = cmp.Or(sig.Layout, DER)
	}
	if sig.KeyValue != "" || spec.Timestamp != nil && spec.Timestamp.SignatureKey != "" {
		sig.KeySeparator = cmp.Or(sig.KeySeparator, "=")
	}
	if spec.Timestamp != nil {
		t := *spec.Timestamp
		t.Unit, t.Window = cmp.Or(t.Unit, Seconds), cmp.Or(t.Window, Both)
		spec.Timestamp = &t
	}
	if spec.Headers != nil {
		h := *spec.Headers
		h.Separator = cmp.Or(h.Separator, ",")
		spec.Headers = &h
	}
	if spec.BodyHash != nil {
		h := *spec.BodyHash
		h.Encoding = cmp.Or(h.Encoding, Hex)
		spec.BodyHash = &h
	}
	if spec.ID == nil {
		spec.ID = &IDSpec{Hash: true}
	}
}

// checkWords refuses words that are not of the language.
func checkWords(spec *Spec) error {
	formats := []KeyFormat{KeyText, KeyBase64, KeyHex, KeyWhsec}
	switch spec.Algorithm {
	case HMACSHA1, HMACSHA256, HMACSHA384, HMACSHA512:
		formats = append(formats, KeySHA1)
	case SHA256, SHA1, Token, Basic:
		formats = []KeyFormat{KeyText}
	case MTLS:
		formats = []KeyFormat{KeyPEM}
	case Ed25519:
		formats = []KeyFormat{KeyHex, KeyBase64, KeyWhsec, KeyPEM, KeyJWKS}
	case ECDSAP256, RSAPKCS1SHA1, RSAPKCS1SHA256, RSAPKCS1SHA512, RSAPSSSHA256:
		formats = []KeyFormat{KeyBase64, KeyPEM, KeyJWKS}
	case "":
		return errors.New("algorithm: one is needed")
	default:
		return fmt.Errorf("algorithm: unknown %q", spec.Algorithm)
	}
	if !slices.Contains(formats, spec.Key) {
		return fmt.Errorf("key: %s does not go with %s", spec.Key, spec.Algorithm)
	}
	sig := &spec.Signature
	switch {
	case spec.Body != Wire && spec.Body != Decoded:
		return fmt.Errorf("body: unknown %q", spec.Body)
	case spec.URL != URLExact && spec.URL != URLTwilio && spec.URL != URLHubSpot:
		return fmt.Errorf("url: unknown %q", spec.URL)
	case sig.Layout != "" && spec.Algorithm != ECDSAP256:
		return errors.New("signature.layout: only for ECDSA_P256")
	case sig.Layout != "" && sig.Layout != DER && sig.Layout != Raw:
		return fmt.Errorf("signature.layout: unknown %q", sig.Layout)
	case spec.Algorithm.bearer() && sig.Encoding != "":
		return fmt.Errorf("signature.encoding: %s has none", spec.Algorithm)
	case sig.Encoding != "" && sig.Encoding != Hex && sig.Encoding != Base64 && sig.Encoding != Base64URL:
		return fmt.Errorf("signature.encoding: unknown %q", sig.Encoding)
	}
	return nil
}

func (s *scheme) compileSignature() (err error) {
	sig := &s.spec.Signature
	if err := checkSubjects(s.spec.Subjects); err != nil {
		return err
	}
	if s.spec.Algorithm == MTLS {
		if len(s.spec.Subjects) == 0 {
			return errors.New("subjects: MTLS needs one: whose certificate the client has to show")
		}
		if !reflect.DeepEqual(*sig, SignatureSpec{}) || s.spec.Timestamp != nil {
			return errors.New("signature: MTLS has none, and no timestamp")
		}
		return nil
	}
	if s.signature, err = compilePlace(sig.ValueSpec); err == nil && s.signature.kind == placeNone {
		err = errOnePlace
	}
	if err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	switch {
	case len(sig.List) > 4:
		return errors.New("signature.list: a separator of 1 to 4 bytes")
	case sig.Blanks && sig.List == "":
		return errors.New("signature.blanks: only with list")
	case sig.KeyValue != "" && sig.Prefix != "":
		return errors.New("signature.prefix: not with key_value")
	case len(sig.Also) > 0 && s.signature.kind != placeHeader:
		return errors.New("signature.also: only with header")
	case sig.PrefixOptional && sig.Prefix == "":
		return errors.New("signature.prefix_optional: only with prefix")
	case sig.KeySeparator != "" && sig.KeySeparator == sig.List:
		return errors.New("signature.key_separator: the same as list")
	case sig.Skip < 0 || sig.Skip > 0 && sig.List == "":
		return errors.New("signature.skip: only with list, and not negative")
	case s.spec.Algorithm == Basic && (sig.List != "" || sig.KeyValue != "" || sig.Prefix != ""):
		return errors.New("signature: BASIC has only a place")
	}
	sig.Also = slices.Clone(sig.Also)
	for i, a := range sig.Also {
		if sig.Also[i], err = headerName(a); err != nil {
			return fmt.Errorf("signature.also[%d]: %w", i, err)
		}
	}
	sig.Others = slices.Clone(sig.Others)
	for i, o := range sig.Others {
		if sig.Others[i], err = headerName(o); err != nil {
			return fmt.Errorf("signature.others[%d]: %w", i, err)
		}
	}
	return nil
}

func (s *scheme) compileTimestamp() (err error) {
	t := s.spec.Timestamp
	if t == nil {
		return nil
	}
	if s.timestamp, err = compilePlace(t.ValueSpec); err != nil {
		return fmt.Errorf("timestamp: %w", err)
	}
	n := 0
	for _, set := range []bool{s.timestamp.kind != placeNone, t.SignatureKey != "", t.SignatureIndex != 0} {
		if set {
			n++
		}
	}
	sig := &s.spec.Signature
	switch {
	case n != 1:
		return errors.New("timestamp: exactly one of header, json, form, query, signature_key, signature_index is needed")
	case t.SignatureKey != "" && (sig.List == "" || sig.KeyValue == "" || sig.KeyValue == t.SignatureKey):
		return errors.New("timestamp.signature_key: needs signature.list and another signature.key_value")
	case (t.SignatureKey != "" || t.SignatureIndex != 0) && len(sig.Also) > 0:
		return errors.New("signature.also: not with a timestamp in the signature's list")
	case t.SignatureIndex < 0 || t.SignatureIndex > sig.Skip:
		return errors.New("timestamp.signature_index: counts from 1, within signature.skip")
	case t.Unit != Seconds && t.Unit != Milliseconds && t.Unit != RFC3339 && t.Unit != ISO8601:
		return fmt.Errorf("timestamp.unit: unknown %q", t.Unit)
	case t.Window != Both && t.Window != Past:
		return fmt.Errorf("timestamp.window: unknown %q", t.Window)
	}
	s.timed = true
	return nil
}

func (s *scheme) compileID() (err error) {
	id := s.spec.ID
	if s.id, err = compilePlace(id.ValueSpec); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	if s.id.kind == placeNone && !id.Hash && !id.None {
		return errors.New("id: one of header, json, form, query, hash, none is needed")
	}
	if id.None && (id.Hash || s.id.kind != placeNone) {
		return errors.New("id.none: stands alone")
	}
	return nil
}

func (s *scheme) compileSigned() (err error) {
	if s.parts, err = parseTemplate(s.spec.Signed); err != nil {
		return fmt.Errorf("signed: %w", err)
	}
	switch {
	case uses(s.parts, partTimestamp) && !s.timed:
		return errors.New("signed: {timestamp} needs a timestamp")
	case uses(s.parts, partID) && s.id.kind == placeNone:
		return errors.New("signed: {id} needs an id in a header, json, form or query")
	case uses(s.parts, partSecret) != s.spec.Algorithm.plain():
		return errors.New("signed: {secret} is for SHA256 and SHA1, and needed there")
	case uses(s.parts, partNames) && (s.spec.Headers == nil || s.spec.Headers.SignatureKey == ""):
		return errors.New("signed: {headers:list} needs headers.signature_key; {header:…} is a list in a header")
	case uses(s.parts, partHeaders) != (s.spec.Headers != nil):
		return errors.New("signed: {headers} needs headers, and they need it")
	}
	s.needsURL = uses(s.parts, partURL) || uses(s.parts, partURLBase)
	if s.spec.URL != URLExact && !uses(s.parts, partURL) {
		return errors.New("url: only with {url} in signed")
	}
	return nil
}

func (s *scheme) compileRest() (err error) {
	if s.spec.Type != nil {
		if s.typ, err = compilePlace(*s.spec.Type); err == nil && s.typ.kind == placeNone {
			err = errOnePlace
		}
		if err != nil {
			return fmt.Errorf("type: %w", err)
		}
	}
	if h := s.spec.BodyHash; h != nil {
		if s.bodyHash, err = compilePlace(h.ValueSpec); err == nil && s.bodyHash.kind != placeHeader && s.bodyHash.kind != placeQuery {
			err = errors.New("exactly one of header, query is needed")
		}
		if err != nil {
			return fmt.Errorf("body_hash: %w", err)
		}
		if h.Encoding != Hex && h.Encoding != Base64 && h.Encoding != Base64URL {
			return fmt.Errorf("body_hash.encoding: unknown %q", h.Encoding)
		}
	}
	s.require = slices.Clone(s.spec.Require)
	for i := range s.require {
		if s.require[i].Header, err = headerName(s.require[i].Header); err != nil {
			return fmt.Errorf("require[%d]: %w", i, err)
		}
	}
	return nil
}

// querySigned reports whether the signature covers the query.
func (s *scheme) querySigned() bool {
	return uses(s.parts, partURL) || uses(s.parts, partQuery) || uses(s.parts, partTarget)
}

// checkCover works out what the signature vouches for, and refuses what would only look safe.
func (s *scheme) checkCover() error {
	bearer := s.spec.Algorithm.bearer()
	s.bodySigned = !bearer && (uses(s.parts, partBody) || uses(s.parts, partBodyHash) || uses(s.parts, partForm))
	if s.bodyHash.kind != placeNone {
		hashSigned := usesPlace(s.parts, s.bodyHash) ||
			s.bodyHash.kind == placeQuery && s.querySigned()
		if bearer || !hashSigned {
			return errors.New("body_hash: what is not in signed protects nothing")
		}
		s.bodySigned = true
	}
	signed := func(p place, kind partKind) bool {
		switch {
		case bearer:
			return false
		case kind != partLiteral && uses(s.parts, kind), usesPlace(s.parts, p):
			return true
		case p.kind == placeJSON, p.kind == placeForm:
			return s.bodySigned
		case p.kind == placeQuery:
			return s.querySigned()
		case p.kind == placeHeader:
			return s.spec.Headers != nil && slices.Contains(s.spec.Headers.Require, p.name)
		}
		return false
	}
	s.idSigned = s.id.kind != placeNone && signed(s.id, partID)
	if s.timed && !signed(s.timestamp, partTimestamp) {
		return errors.New("timestamp: what is not in signed protects nothing; add {timestamp}")
	}
	if !bearer {
		covers := slices.ContainsFunc(s.parts, func(p part) bool {
			return p.kind != partLiteral && p.kind != partSecret && p.kind != partIf && p.kind != partTimestamp
		})
		if !covers {
			return errors.New("signed: covers nothing of the message")
		}
	}
	if strings.ContainsAny(s.spec.Signature.KeySeparator+s.spec.Signature.List, "\r\n") {
		return errors.New("signature: a line break cannot separate")
	}
	return nil
}

// Reads reports whether v looks at a header of that name, in lower case, so that whoever changes it on the way breaks a
// signature or an event id.
func (v *Verifier) Reads(header string) bool {
	is := func(p place) bool { return p.kind == placeHeader && p.name == header }
	for _, s := range v.schemes {
		if is(s.signature) || is(s.timestamp) || is(s.id) || is(s.typ) || is(s.bodyHash) || usesPlace(s.parts, place{kind: placeHeader, name: header}) {
			return true
		}
	}
	return false
}
