package signature

import "time"

// beside is a scheme that the language cannot say: its verifier is code. It makes no signatures.
type beside interface {
	// keyKind is the kind of its keys; their form is its own, or one of the language's.
	keyKind() kind
	needsURL() bool
	signsTime() bool
	hasType() bool
	// String is its line in an Explanation.
	String() string
	verify(m *Message, keys []Key, now time.Time, tolerance time.Duration, trace *Explanation) Verdict
}

// besideVerifier is the Verifier of one scheme beside the language.
func besideVerifier(s beside) *Verifier { return &Verifier{beside: s, kinds: []kind{s.keyKind()}} }
