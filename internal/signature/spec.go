package signature

// Algorithm names how a signature is made. The zero value is invalid.
type Algorithm string

// The algorithms of the scheme language.
const (
	HMACSHA1       Algorithm = "HMAC_SHA1"
	HMACSHA256     Algorithm = "HMAC_SHA256"
	HMACSHA384     Algorithm = "HMAC_SHA384"
	HMACSHA512     Algorithm = "HMAC_SHA512"
	Ed25519        Algorithm = "ED25519"
	ECDSAP256      Algorithm = "ECDSA_P256" // over SHA-256
	RSAPKCS1SHA256 Algorithm = "RSA_PKCS1_SHA256"
	RSAPKCS1SHA512 Algorithm = "RSA_PKCS1_SHA512"
	// RSAPKCS1SHA1 is for senders that have nothing better: Postal.
	RSAPKCS1SHA1 Algorithm = "RSA_PKCS1_SHA1"
	RSAPSSSHA256 Algorithm = "RSA_PSS_SHA256"
	// SHA256 is a plain hash with the secret as a part of what is hashed ({secret} in Signed): HubSpot v1 and v2.
	SHA256 Algorithm = "SHA256"
	// SHA1 is the same with SHA-1, for senders that have nothing better: the secret should stand last in Signed, for
	// in front of it anyone can go on hashing.
	SHA1 Algorithm = "SHA1"
	// Token compares the secret itself with the field that stands in for a signature. It covers nothing.
	Token Algorithm = "TOKEN"
	// Basic compares user:password of HTTP Basic authentication with the secret. It covers nothing.
	Basic Algorithm = "BASIC"
	// MTLS asks of the connection alone that the client's certificate is for one of Spec.Subjects. It covers nothing.
	MTLS Algorithm = "MTLS"
)

// KeyFormat says how the text of a secret becomes a key. Empty means TEXT, or PEM for a public-key algorithm.
type KeyFormat string

// The key formats of the scheme language.
const (
	// KeyText is the secret's own bytes.
	KeyText KeyFormat = "TEXT"
	// KeyBase64 is base64; of DER (PKIX or PKCS #8) for ECDSA and RSA, of raw bytes otherwise.
	KeyBase64 KeyFormat = "BASE64"
	// KeyHex is hex in either case.
	KeyHex KeyFormat = "HEX"
	// KeyWhsec is Standard Webhooks: whsec_ and base64 (or the base64 alone) for HMAC; whpk_ or whsk_ and base64 for
	// ED25519.
	KeyWhsec KeyFormat = "WHSEC"
	// KeyPEM is a public key (PKIX) or private key (PKCS #8) in PEM.
	KeyPEM KeyFormat = "PEM"
	// KeyJWKS is a JWK or a JWK set of public keys (RFC 7517), or a public key in PEM; those of another type than the
	// algorithm's are left out. ParseKeyURL takes the address where the sender publishes them.
	KeyJWKS KeyFormat = "JWKS"
	// KeySHA1 is the SHA-1 of the secret's own bytes: Braintree.
	KeySHA1 KeyFormat = "SHA1"
)

// Encoding is how a signature is written. Empty means HEX, or none for TOKEN and BASIC.
type Encoding string

// The encodings of the scheme language. Only canonical forms are accepted.
const (
	Hex       Encoding = "HEX"       // either case
	Base64    Encoding = "BASE64"    // padded
	Base64URL Encoding = "BASE64URL" // padded or not
)

// Unit is how a time is written. Empty means SECONDS.
type Unit string

// The units of the scheme language.
const (
	Seconds      Unit = "SECONDS"      // ASCII digits, since the Unix epoch
	Milliseconds Unit = "MILLISECONDS" // ASCII digits, since the Unix epoch
	RFC3339      Unit = "RFC3339"      // with a zone; fractions of any length
	ISO8601      Unit = "ISO8601"      // as RFC3339, and without a zone, which then means UTC
)

// Window says which directions of a signed time are bounded by the tolerance. Empty means BOTH.
type Window string

// The windows of the scheme language.
const (
	Both Window = "BOTH" // neither too old nor too new
	Past Window = "PAST" // not too old; the future is not looked at
)

// BodyForm says which form of the body was signed. Empty means WIRE.
type BodyForm string

// The body forms of the scheme language.
const (
	Wire    BodyForm = "WIRE"    // as received
	Decoded BodyForm = "DECODED" // before Content-Encoding: gzip, unzipped within Message.MaxBody
)

// URLForm says in which forms a sender may have signed {url}. Each is tried. Empty means EXACT.
type URLForm string

// The URL forms of the scheme language. A fragment is always removed.
const (
	URLExact URLForm = "EXACT"
	// URLTwilio is Twilio's four: without port and with the port (the standard one if none was given), each with its
	// query as it stands and encoded anew.
	URLTwilio URLForm = "TWILIO"
	// URLHubSpot is HubSpot's two: as it stands, and with the escapes that its page lists decoded.
	URLHubSpot URLForm = "HUBSPOT"
)

// SignatureForm is how an ECDSA signature lays out its two numbers. Empty means DER.
type SignatureForm string

// The signature forms of the scheme language.
const (
	DER SignatureForm = "DER"
	Raw SignatureForm = "RAW" // r and s, 32 bytes each, as in JOSE
)

// Spec is one scheme as data: how a signature is made and checked. Its JSON is the scheme language of the
// configuration, name for name. The zero value of an optional field is its documented default.
type Spec struct {
	Algorithm Algorithm `json:"algorithm"`
	Key       KeyFormat `json:"key,omitempty"`
	// Signed is the template of the signed content; see the package comment. Empty means "{body}".
	Signed    string         `json:"signed,omitempty"`
	Signature SignatureSpec  `json:"signature"`
	Timestamp *TimestampSpec `json:"timestamp,omitempty"`
	// ID is where the event id stands. Nil means the hash of what was signed.
	ID   *IDSpec    `json:"id,omitempty"`
	Type *ValueSpec `json:"type,omitempty"`
	Body BodyForm   `json:"body,omitempty"`
	URL  URLForm    `json:"url,omitempty"`
	// BodyHash is a hash of the body that the sender puts into what it signs, and that is checked beside the signature.
	BodyHash *BodyHashSpec `json:"body_hash,omitempty"`
	// Require lists headers that must be there, with these values if given.
	Require []RequireSpec `json:"require,omitempty"`
	// Each is the path of a JSON array of which every element is signed by itself: JSON paths of the signature, the time
	// and the template begin in the element, {body} is the element as it is written. All elements must verify. The type
	// is that of the first; the id is no JSON path.
	Each string `json:"each,omitempty"`
	// Document is the form field, of either kind of form, that holds the JSON which paths are read from. Empty: the body
	// is. A body that is no form is read as it is.
	Document string `json:"document,omitempty"`
	// Headers are header fields that the sender names itself: {headers} of Signed.
	Headers *HeadersSpec `json:"headers,omitempty"`
	// Events and Live are for the users of a scheme, like those of a Provider: nothing is verified by them.
	Events *EventsSpec `json:"events,omitempty"`
	Live   *LiveSpec   `json:"live,omitempty"`
	// Subjects are those whose certificate the client has to show, whatever the algorithm: a URI, a DNS name or the subject
	// as in Message.Peer. Needed for MTLS; empty elsewhere: no certificate is asked for.
	Subjects []string `json:"subjects,omitempty"`
}

// ValueSpec is where one value stands. Exactly one field is set.
type ValueSpec struct {
	// Header is a header's name, in any case.
	Header string `json:"header,omitempty"`
	// JSON is a path into a JSON body: names and indexes joined by full stops ("events.0.id"; `\.` is a full stop in a
	// name). Several paths joined by "+" give their values joined by full stops; all must be there.
	JSON string `json:"json,omitempty"`
	// Form is a field of a form body.
	Form string `json:"form,omitempty"`
	// Query is a parameter of the request target.
	Query string `json:"query,omitempty"`
}

// SignatureSpec is where the signatures stand and how they are written.
type SignatureSpec struct {
	ValueSpec
	Encoding Encoding `json:"encoding,omitempty"`
	// List separates several elements, such as "," or " ". Empty: the whole value is one element.
	List string `json:"list,omitempty"`
	// Blanks permits blanks after the separator of a list.
	Blanks bool `json:"blanks,omitempty"`
	// Also names further headers that hold signatures in the same form, one of which is enough: a sender with two keys
	// (Box), or with one header for each (DocuSign).
	Also []string `json:"also,omitempty"`
	// KeyValue is the key of the elements that are signatures ("v1" in "t=…,v1=…"); elements under other keys are
	// skipped, so that a sender can add versions. "*" is every key: where it names a key of the sender's (Braintree).
	KeyValue string `json:"key_value,omitempty"`
	// KeySeparator stands between key and value. Empty means "=".
	KeySeparator string `json:"key_separator,omitempty"`
	// Prefix stands before each signature ("sha256="). It is only text and chooses no algorithm.
	Prefix string `json:"prefix,omitempty"`
	// PrefixOptional accepts signatures without Prefix as well.
	PrefixOptional bool `json:"prefix_optional,omitempty"`
	// Skip is the number of elements at the head of the list that are no signatures (Recurly: the time).
	Skip int `json:"skip,omitempty"`
	// Layout is that of an ECDSA signature.
	Layout SignatureForm `json:"layout,omitempty"`
	// Others names headers of the sender's other schemes: where only one of these comes, the reason is wrong_scheme
	// rather than missing_signature. They are never accepted.
	Others []string `json:"others,omitempty"`
}

// TimestampSpec is where the signed time stands. Exactly one place is set.
type TimestampSpec struct {
	ValueSpec
	// SignatureKey is a key of the signature's list ("t" in "t=…,v1=…").
	SignatureKey string `json:"signature_key,omitempty"`
	// SignatureIndex is the place in the signature's list, counted from 1; it must be within SignatureSpec.Skip.
	SignatureIndex int    `json:"signature_index,omitempty"`
	Unit           Unit   `json:"unit,omitempty"`
	Window         Window `json:"window,omitempty"`
}

// IDSpec is where the event id stands.
type IDSpec struct {
	ValueSpec
	// Hash makes the id the hash of what was signed. Beside a place it is used where the place has no value.
	Hash bool `json:"hash,omitempty"`
	// None means that the sender gives no id and that every request is new. It stands alone.
	None bool `json:"none,omitempty"`
}

// BodyHashSpec is where the sender puts a SHA-256 of the body.
type BodyHashSpec struct {
	ValueSpec
	Encoding Encoding `json:"encoding,omitempty"`
}

// RequireSpec is a header that must be there, once.
type RequireSpec struct {
	Header string `json:"header"`
	// Value is compared byte for byte. Empty: any value.
	Value string `json:"value,omitempty"`
}

// HeadersSpec is where the sender lists the headers that it signs, and how it writes them. Exactly one of Header and
// SignatureKey is set.
type HeadersSpec struct {
	// Header holds the list.
	Header string `json:"header,omitempty"`
	// SignatureKey is the key of the signature's list that holds it ("h" in "t=…,h=a b,v1=…").
	SignatureKey string `json:"signature_key,omitempty"`
	// Separator stands between the names. Empty means ",".
	Separator string `json:"separator,omitempty"`
	// Named writes "name:value" instead of the value alone.
	Named bool `json:"named,omitempty"`
	// Between stands between what is signed of two headers. Empty: nothing.
	Between string `json:"between,omitempty"`
	// Require are headers that must be on the list, for a sender that could leave out what matters. What else is on it may
	// change from one try to the next, and is no part of a hash that serves as an id.
	Require []string `json:"require,omitempty"`
}
