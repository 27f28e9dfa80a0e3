package main

import (
	"encoding/base64"
	"strings"

	"github.com/sidehook/sidehook/internal/signature"
)

// otherEnds are what a secret of text has at its ends with one of the two sides and not with the other.
var otherEnds = []struct {
	cause string
	key   func(string) string
}{
	{"the sender's secret ends in a newline, which is not there here", func(s string) string { return s + "\n" }},
	{"the sender's secret ends in CR LF, which is not there here", func(s string) string { return s + "\r\n" }},
	{"the sender's secret ends in a blank, which is not there here", func(s string) string { return s + " " }},
	{"the sender leaves whsec_ out of the secret", func(s string) string { return strings.TrimPrefix(s, "whsec_") }},
	{"the sender has whsec_ before the secret", func(s string) string { return "whsec_" + s }},
}

// endCauses are the ends of a secret with which the signature would match. No gate takes such a secret: it is tried in base64.
func endCauses(s *signed) []string {
	var causes []string
	for _, spec := range s.specs {
		if spec.Key != "" && spec.Key != signature.KeyText {
			continue
		}
		spec.Key = signature.KeyBase64
		v, err := signature.Compile(spec)
		if err != nil {
			continue
		}
		for _, end := range otherEnds {
			var secrets [][]byte
			for _, secret := range s.secrets {
				if key := end.key(string(secret)); key != string(secret) {
					secrets = append(secrets, base64.StdEncoding.AppendEncode(nil, []byte(key)))
				}
			}
			if accepts(v, parseKeys(v, secrets), &s.message, s.now) {
				causes = append(causes, end.cause)
			}
		}
	}
	return causes
}

// unitCause says in which unit the signed time would be now, where its own unit makes it too old, too new or no time at all;
// empty: in none.
func unitCause(s *signed) string {
	for _, spec := range s.specs {
		if spec.Timestamp == nil {
			continue
		}
		for _, unit := range []signature.Unit{signature.Seconds, signature.Milliseconds, signature.RFC3339} {
			changed, stamp := spec, *spec.Timestamp
			stamp.Unit = unit
			changed.Timestamp = &stamp
			v, err := signature.Compile(changed)
			if err != nil {
				continue
			}
			if v.Verify(&s.message, parseKeys(v, s.secrets), s.now, s.tolerance).Reason == signature.ReasonOK {
				return "the sender writes the time as " + string(unit)
			}
		}
	}
	return ""
}
