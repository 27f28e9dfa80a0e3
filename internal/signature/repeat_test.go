package signature

import (
	"slices"
	"strings"
	"testing"
)

// TestRepeatedHeaders: stripe-node refuses two signature headers, Envoy joins them with a comma, Go takes the first:
// three readings of one request. Every header that matters is refused when it comes twice, as two fields or as one, with
// itself or with something else, in either order. Only where the sender's own list has commas is a joined one a list.
func TestRepeatedHeaders(t *testing.T) {
	t.Parallel()
	for _, vec := range readVectors(t) {
		if vec.expect != "accept" {
			continue
		}
		v, tolerance := verifierOf(t, vec)
		var keys []Key
		for _, s := range vec.secrets {
			keys = append(keys, parseKeys(t, v, s)...)
		}
		for i, f := range vec.message.Header {
			matters, list := usesHeader(v, f.Name)
			if !matters {
				continue
			}
			for _, other := range []string{f.Value, "x", ""} {
				for _, pair := range [][2]string{{f.Value, other}, {other, f.Value}} {
					twice := vec.message
					twice.Header = slices.Clone(twice.Header)
					twice.Header[i].Value = pair[0]
					twice.Header = append(twice.Header, Field{strings.ToUpper(f.Name), pair[1]})
					if got := v.Verify(&twice, keys, vec.now, tolerance); got.Reason == ReasonOK {
						t.Errorf("%s: %s as %q and %q is accepted", vec.name, f.Name, pair[0], pair[1])
					}
					if list && other != "" {
						continue
					}
					joined := vec.message
					joined.Header = slices.Clone(joined.Header)
					joined.Header[i].Value = pair[0] + "," + pair[1]
					if got := v.Verify(&joined, keys, vec.now, tolerance); got.Reason == ReasonOK {
						t.Errorf("%s: %s as %q is accepted", vec.name, f.Name, joined.Header[i].Value)
					}
				}
			}
		}
	}
}

// usesHeader reports whether some scheme reads a header, and whether one has a list with commas there.
func usesHeader(v *Verifier, name string) (reads, list bool) {
	for _, s := range v.schemes {
		for _, p := range []place{s.signature, s.timestamp, s.id, s.typ} {
			if p.kind == placeHeader && strings.EqualFold(p.name, name) {
				reads = true
				list = list || p.name == s.signature.name && s.spec.Signature.List == ","
			}
		}
	}
	return reads, list
}

// A secret that is listed twice is counted under its first place: the other one is the dead one.
func TestFirstOfEqualKeysCounts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"stripe", "gitlab"} {
		v := provider(t, name).Verifier()
		keys := parseKeys(t, v, testSecret, testSecret)
		m := signed(t, v, Message{Body: []byte(`{"id":"evt_1"}`)}, keys[1], "evt_1", receivedAt)
		if got := v.Verify(&m, keys, receivedAt, DefaultTolerance); got.Reason != ReasonOK || got.Key != 0 {
			t.Errorf("%s: %s by key %d, want ok by key 0", name, got.Reason, got.Key)
		}
	}
}
