// Package signature verifies and makes webhook signatures. It is pure: bytes, keys and a time in, a verdict out.
//
// A Spec describes one scheme as data. Compile turns one or several (alternatives of one sender) into a Verifier,
// ParseKey turns a secret into a Key, Verify judges a Message. A Provider is a row of the embedded table
// providers/*.json: schemes, in the same language, plus the facts a gate needs (retention, refusal status, handshake).
// Only the schemes that the caller names are ever accepted: neither algorithm nor key is taken from the message.
//
//	Spec ── Compile ──▶ Verifier ── ParseKey ──▶ Key
//	                       │                      │
//	           Message ──▶ Verify ◀───────────────┘ ──▶ Verdict
//
// # The scheme language
//
// A scheme says what is signed, where the signature stands, and what else the message tells:
//
//	algorithm: HMAC_SHA256                  # HMAC_SHA1|256|384|512, ED25519, ECDSA_P256, RSA_PKCS1_SHA1|256|512,
//	                                        # RSA_PSS_SHA256, SHA256 and SHA1 (plain, with {secret}), TOKEN, BASIC, MTLS
//	key: TEXT                               # TEXT, BASE64, HEX, WHSEC, PEM, JWKS, SHA1
//	signed: "{timestamp}.{body}"
//	signature: {header: X-Acme-Signature, encoding: HEX, list: ",", key_value: v1}
//	timestamp: {signature_key: t, unit: SECONDS}
//	id: {json: id}                          # or header:, form:, query:; hash: true; none: true
//	type: {json: type}
//	body: WIRE                              # DECODED: signed before compression
//	url: EXACT                              # TWILIO, HUBSPOT: the forms of {url} that are tried
//	body_hash: {query: bodySHA256}          # a hash that is signed in place of the body
//	require: [{header: X-Acme-Version, value: "1"}]
//	each: items                             # every element of this array is signed by itself
//	document: payload                       # the form field that holds the JSON
//	subjects: [spiffe://acme.example/hooks] # whose certificate the client has to show
//	headers: {header: X-Acme-Signed, named: true, between: ";", require: [x-acme-time]}   # for {headers}
//
// Signed is a template of text and placeholders:
//
//	{timestamp} {id}     the texts as they came, never formatted anew
//	{method} {path}      of the request; {path} is raw and without query
//	{query} {target}     the raw query; path and query
//	{url} {url:base}     the public URL with its target, without fragment; the same without query
//	{body} {sha256:body} the body, or its hash in hex
//	{header:X} {json:a.b} {form:f} {query:q}   one value; it must be there
//	{form:sorted}        a form's names and values glued, sorted, without repeats; nothing for another body
//	{headers}            those that the sender lists; {headers:list} is a list within the signature's
//	{secret}             for SHA256 and SHA1
//	{if header:X}…{end}  left out where X has no value
//	{{                   a brace
//
// A signature stands in a header, or in a JSON field, a form field or the query. With list the value holds several
// elements, and with also further headers hold some; with key_value those are pairs ("v1=…" or, with key_separator,
// "v1,…") and only pairs under that key are signatures; with prefix each begins with a text; with skip the first
// elements are something else, of which signature_index can name the time (Recurly).
//
// Where a signature covers fields of a JSON body instead of its bytes, that body has one reading only: no object has a
// name twice, none of the names that matter stands there in two spellings, and nothing follows the document.
//
// A place in the body, for id and type, is read after the signature was found to hold. One for the signature, the time
// or the template has to be read before.
//
// What it cannot say stands beside it and only verifies: a JWTSpec for tokens that hold the body's hash, are the event, or
// only say who sends; Amazon SNS and PayPal, whose keys are a topic or webhook and a certificate; eBay; Unisender Go.
//
// # Keys that senders publish
//
// A key can be the address of a document: of a JWK set (ParseKeyURL), or, for SNS and PayPal, of a certificate that the
// message names and that must be at the service's own host. Nothing is fetched here: Message.Published says what is at hand,
// and Verdict.Want which document is not, or could have changed. The caller gets that one and verifies again.
//
// # What is refused
//
// A header that matters and comes twice, or holds two values that somebody joined, is malformed_signature; so is what
// the grammar of the sender cannot produce, while single signatures that do not decode are skipped, for senders add new
// ones. Encodings are canonical. Signatures under other keys, or in the headers of SignatureSpec.Others, are
// wrong_scheme if there is no other. A time that is out of the window is too_old or too_new only if rightly signed.
// A template that leaves the time out, or a hash of the body that is not signed, is refused by Compile.
//
// # Work
//
// A Verify costs at most 8 keys by 16 signatures, one MAC for each key and form of the URL, and 16 checks of public-key
// signatures. All keys are tried, whichever fits, and compared in constant time over bytes of equal length. Readers and
// keyed hash states are pooled; a verification of a short HMAC message allocates only what it returns.
package signature
