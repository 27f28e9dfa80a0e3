package signature

import "time"

// Field is one header field as received. Name is lower case; Value is the raw bytes between the colon and the end
// of the line, outer blanks stripped. A field that came twice stands twice, in order.
type Field struct {
	Name  string
	Value string
}

// Message is what a signature can cover. Body is the exact bytes received; nobody parses it before Verify succeeds.
// The verifier keeps no reference to it after return.
type Message struct {
	Method string
	// Target is the request target as received: path and query, neither decoded nor normalised.
	Target string
	// URL is the public URL that the sender signs: the configured origin plus Target. Empty when none is configured.
	URL    string
	Header []Field
	Body   []byte
	// MaxBody bounds what a body is unzipped to for a scheme with body: DECODED, in bytes. Zero means DefaultMaxBody.
	MaxBody int64
	// Peer is who sent, as far as the connection tells.
	Peer Peer
	// Published are keys that senders publish; nil: none are at hand.
	Published Published
}

// Peer is the other end of a connection with mutual TLS, in the words of the proxy that ended it. The zero Peer is nobody.
type Peer struct {
	// Principal is the name in the client's certificate: the first URI of its alternative names, else the first DNS name,
	// else its subject.
	Principal string
	// Certificate is the client's certificate in PEM, each byte that is not safe in a URL written as %XX; or empty.
	Certificate string
}

// Reason says why a message was refused. ReasonOK is a success; the zero Reason is invalid.
type Reason uint8

// The reasons of a refusal; String gives the code that users see.
const (
	_ Reason = iota
	ReasonOK
	ReasonMissingSignature
	ReasonBadSignature
	ReasonMalformedSignature
	ReasonTooOld
	ReasonTooNew
	ReasonBadTimestamp
	ReasonWrongScheme
	// ReasonMissingID is for callers that want an id of every message: Verify itself leaves Verdict.ID empty.
	ReasonMissingID
	// ReasonTooLarge: the body unzips to more than Message.MaxBody.
	ReasonTooLarge
	// ReasonKeyUnavailable: the message names a key of its sender's that we do not have, and that may be the next one.
	ReasonKeyUnavailable
)

var reasonCodes = [...]string{
	ReasonOK:                 "ok",
	ReasonMissingSignature:   "missing_signature",
	ReasonBadSignature:       "bad_signature",
	ReasonMalformedSignature: "malformed_signature",
	ReasonTooOld:             "too_old",
	ReasonTooNew:             "too_new",
	ReasonBadTimestamp:       "bad_timestamp",
	ReasonWrongScheme:        "wrong_scheme",
	ReasonMissingID:          "missing_id",
	ReasonTooLarge:           "too_large",
	ReasonKeyUnavailable:     "key_unavailable",
}

// String returns the code that users see, such as "bad_signature".
func (r Reason) String() string {
	if int(r) < len(reasonCodes) && reasonCodes[r] != "" {
		return reasonCodes[r]
	}
	return "invalid"
}

// Verdict is the outcome of Verify.
type Verdict struct {
	Reason Reason
	// Key is the index in the keys of the first that matched; -1 when none did. Also set for ReasonTooOld and
	// ReasonTooNew, which only rightly signed messages get.
	Key int
	// ID is the sender's event id; empty when the scheme has none (see Provider and Spec.ID).
	ID string
	// IDSigned reports whether the signature covers ID.
	IDSigned bool
	// Type is the event type, or empty.
	Type string
	// Time is the signed time; zero when the scheme has none.
	Time time.Time
	// Want is the document of keys that was not at hand, with ReasonKeyUnavailable, or a newer version of which could have
	// the key, with ReasonBadSignature. Its URL is empty: none.
	Want KeyRequest
	// ContentHash is SHA-256 of what was signed, without its timestamp: equal for a replay under another id. Where the
	// signature covers ID no replay can have another, and it is SHA-256 of ID.
	ContentHash [32]byte
}
