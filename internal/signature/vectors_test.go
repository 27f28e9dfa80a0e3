package signature

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestVectors runs every vector: examples of vendors, of the tests of their libraries, and hostile ones.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, vec := range readVectors(t) {
		t.Run(vec.name, func(t *testing.T) {
			t.Parallel()
			v, tolerance := verifierOf(t, vec)
			var keys []Key
			var refused error
			for _, s := range vec.secrets {
				k, err := v.ParseKey([]byte(s))
				if err != nil {
					refused = err
				}
				keys = append(keys, k)
			}
			if len(vec.secrets) == 0 {
				keys = v.OwnKeys()
			}
			if (refused != nil) != (vec.expect == "refuse-config") {
				t.Fatalf("ParseKey: %v, want %s", refused, vec.expect)
			}
			got := v.Verify(&vec.message, keys, vec.now, tolerance)
			if (got.Reason == ReasonOK) != (vec.expect == "accept") {
				t.Errorf("Verify: %s, want %s\n%s", got.Reason, vec.expect,
					strings.Join(v.Explain(&vec.message, keys, vec.now, tolerance).Steps, "\n"))
			}
			if (got.Key >= 0) != (vec.expect == "accept") && got.Reason != ReasonTooOld && got.Reason != ReasonTooNew {
				t.Errorf("Key %d with %s", got.Key, got.Reason)
			}
		})
	}
}

// TestVectorsSpoiled: what is accepted is not any more with another secret, without its signature, or at another time;
// TestRepeatedHeaders and TestSignThenVerify see to the rest.
func TestVectorsSpoiled(t *testing.T) {
	t.Parallel()
	for _, vec := range readVectors(t) {
		if vec.expect != "accept" {
			continue
		}
		v, tolerance := verifierOf(t, vec)
		keys := parseKeys(t, v, vec.secrets...)
		if got := v.Verify(&vec.message, nil, vec.now, tolerance); got.Reason == ReasonOK {
			t.Errorf("%s: accepted without a key", vec.name)
		}
		for i, s := range vec.secrets {
			// Of a text of any kind the last letter but one is no padding, and belongs to the key.
			b := []byte(s)
			if b[len(b)-2] ^= 1; keys[i].m.public != nil {
				continue // there is hardly a public key one bit away
			}
			if k, err := v.ParseKey(b); err == nil {
				other := append(slices.Clone(keys[:i]), k)
				if got := v.Verify(&vec.message, other, vec.now, tolerance); got.Reason == ReasonOK && got.Key == i {
					t.Errorf("%s: accepted with another secret", vec.name)
				}
			}
		}
		if v.SignsTime() && len(v.schemes) > 0 && len(v.own) == 0 {
			late := v.Verify(&vec.message, keys, vec.now.Add(tolerance+24*time.Hour), tolerance)
			if late.Reason != ReasonTooOld {
				t.Errorf("%s: a day late: %s", vec.name, late.Reason)
			}
		}
		if len(v.schemes) > 0 && !slices.ContainsFunc(v.schemes, func(s *scheme) bool { return s.signature.kind != placeHeader }) {
			bare := vec.message
			bare.Header = slices.DeleteFunc(slices.Clone(bare.Header), func(f Field) bool {
				return slices.ContainsFunc(v.schemes, func(s *scheme) bool {
					return strings.EqualFold(f.Name, s.signature.name) || slices.Contains(s.spec.Signature.Also, strings.ToLower(f.Name))
				})
			})
			if got := v.Verify(&bare, keys, vec.now, tolerance); got.Reason != ReasonMissingSignature && got.Reason != ReasonWrongScheme {
				t.Errorf("%s: without its signature: %s", vec.name, got.Reason)
			}
		}
	}
}

// TestVectorsCoverProviders wants an accepted and a refused example for every provider.
func TestVectorsCoverProviders(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, vec := range readVectors(t) {
		seen[vec.provider+" "+vec.expect] = true
	}
	for _, p := range Providers() {
		for _, expect := range []string{"accept", "reject"} {
			if !seen[p.Name+" "+expect] {
				t.Errorf("%s: no vector to %s", p.Name, expect)
			}
		}
	}
}

// TestVectorsComeFromVendors wants for every provider an example to accept that its vendor published, that a tool of the
// vendor made, or that a library of the vendor took. What was computed from a formula alone does not count: such a row
// says that its signature is unconfirmed, and no other row does.
func TestVectorsComeFromVendors(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, vec := range readVectors(t) {
		if vec.expect == "accept" && vec.source != "" && !strings.HasPrefix(vec.source, "computed") {
			seen[vec.provider] = true
		}
	}
	for _, p := range Providers() {
		doubts := p.FormulaOnly()
		if seen[p.Name] == doubts {
			t.Errorf("%s: a vector of its vendor is there: %t; the row says that there is none: %t", p.Name, seen[p.Name], doubts)
		}
	}
}
