package signature

import (
	"fmt"
	"strings"
	"time"
)

// Explanation is how Verify came to its verdict, for a person who looks for a mistake. It holds neither secrets nor
// what a right signature would be.
type Explanation struct {
	Verdict Verdict
	// Steps are lines of text: which headers were read, what they held by kind and length, what was compared.
	Steps []string
	// Signed are the forms of the signed content that were tried, the most likely first, as hashed: one form but where
	// the sender signs a URL in several. A secret that is hashed along is replaced by "[redacted]". Empty where the
	// message did not get that far.
	Signed [][]byte
}

// Explain verifies as Verify does, and says how.
func (v *Verifier) Explain(m *Message, keys []Key, now time.Time, tolerance time.Duration) Explanation {
	e := &Explanation{}
	e.note("schemes: %s", v)
	e.Verdict = v.verify(m, keys, now, tolerance, e)
	e.note("verdict: %s", e.Verdict.Reason)
	return *e
}

// String lists the schemes: algorithm, key format and the place of the signature of each.
func (v *Verifier) String() string {
	if v.beside != nil {
		return v.beside.String()
	}
	var all []string
	for _, s := range v.schemes {
		all = append(all, fmt.Sprintf("%s (key %s) in %s", s.spec.Algorithm, s.spec.Key, s.signature))
	}
	return strings.Join(all, "; ")
}

// note adds a step; a nil Explanation takes none.
func (e *Explanation) note(format string, args ...any) {
	if e != nil {
		e.Steps = append(e.Steps, fmt.Sprintf(format, args...))
	}
}

// signed keeps what is about to be hashed.
func (e *Explanation) signed(r *reader) {
	s := r.s
	e.note("template: %s", s.spec.Signed)
	if s.timed {
		e.note("timestamp: %q", r.timestamp)
	}
	if s.needsURL && r.m.URL == "" {
		e.note("no public URL is configured, and the sender signs it")
	}
	e.Signed = e.Signed[:0]
	for _, url := range r.urls {
		e.Signed = append(e.Signed, r.append(nil, url, []byte(redacted)))
	}
}
