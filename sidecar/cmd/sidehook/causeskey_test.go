package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
)

// Each end that a secret has on one side alone is named, and nothing else is.
func TestLikelyCausesOfASecret(t *testing.T) {
	t.Parallel()
	spec := signature.Spec{
		Algorithm: signature.HMACSHA256, Key: signature.KeyText,
		Signature: signature.SignatureSpec{ValueSpec: signature.ValueSpec{Header: "X-Sig"}},
	}
	for _, tc := range []struct{ name, ours, theirs, want string }{
		{"newline", "0123456789abcdef", "0123456789abcdef\n", "the sender's secret ends in a newline, which is not there here"},
		{"CR LF", "0123456789abcdef", "0123456789abcdef\r\n", "the sender's secret ends in CR LF, which is not there here"},
		{"blank", "0123456789abcdef", "0123456789abcdef ", "the sender's secret ends in a blank, which is not there here"},
		{"prefix left out", "whsec_0123456789!abcdef", "0123456789!abcdef", "the sender leaves whsec_ out of the secret"},
		{"prefix put before", "0123456789!abcdef", "whsec_0123456789!abcdef", "the sender has whsec_ before the secret"},
		{"another secret", "0123456789abcdef", "fedcba9876543210", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1700000000, 0)
			m := signature.Message{Method: "POST", Target: "/", Body: []byte(`{"a":1}`)}
			m.Header = []signature.Field{{Name: "x-sig", Value: hexMAC(tc.theirs, m.Body)}}
			v, secrets := compile(t, spec), [][]byte{[]byte(tc.ours)}
			s := &signed{specs: []signature.Spec{spec}, verifier: v, secrets: secrets, keys: parseKeys(v, secrets), message: m, now: now}
			var got, want []string
			for _, c := range likelyCauses(s) {
				got = append(got, c.text)
			}
			if tc.want != "" {
				want = []string{tc.want}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
		})
	}
}

// A time in another unit is named; one that is wrong in every unit is not.
func TestLikelyCauseOfATime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1700000000, 0)
	for _, tc := range []struct {
		name string
		unit signature.Unit
		time string
		want string
	}{
		{"milliseconds for seconds", signature.Seconds, "1700000000123", "the sender writes the time as MILLISECONDS"},
		{"seconds for milliseconds", signature.Milliseconds, "1700000000", "the sender writes the time as SECONDS"},
		{"a date for seconds", signature.Seconds, "2023-11-14T22:13:20Z", "the sender writes the time as RFC3339"},
		{"late", signature.Seconds, "1600000000", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := signature.Spec{
				Algorithm: signature.HMACSHA256, Key: signature.KeyText, Signed: "{timestamp}.{body}",
				Signature: signature.SignatureSpec{ValueSpec: signature.ValueSpec{Header: "X-Sig"}},
				Timestamp: &signature.TimestampSpec{ValueSpec: signature.ValueSpec{Header: "X-Time"}, Unit: tc.unit},
			}
			const secret = "0123456789abcdef"
			m := signature.Message{Method: "POST", Target: "/", Body: []byte(`{"a":1}`)}
			m.Header = []signature.Field{{Name: "x-time", Value: tc.time}, {Name: "x-sig", Value: hexMAC(secret, []byte(tc.time+`.{"a":1}`))}}
			v, secrets := compile(t, spec), [][]byte{[]byte(secret)}
			s := &signed{specs: []signature.Spec{spec}, verifier: v, secrets: secrets, keys: parseKeys(v, secrets), message: m, now: now, tolerance: time.Minute}
			switch r := v.Verify(&m, s.keys, now, time.Minute).Reason; r {
			case signature.ReasonTooOld, signature.ReasonTooNew, signature.ReasonBadTimestamp:
			default:
				t.Fatalf("refused as %s, want for its time", r)
			}
			if got := unitCause(s); got != tc.want {
				t.Errorf("cause %q, want %q", got, tc.want)
			}
		})
	}
}

// hexMAC is the HMAC-SHA256 of content in hex, by the standard library alone.
func hexMAC(secret string, content []byte) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}
