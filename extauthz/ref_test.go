package extauthz

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestRefRoundTrip(t *testing.T) {
	t.Parallel()
	token := Token{1, 2, 3, 0xff, 0, '\n'}
	for name, key := range map[string]Key{
		"plain":         {Source: "payments", ID: "evt_1"},
		"tenant":        {Source: "payments", Tenant: "acme", ID: "evt_1"},
		"binary id":     {Source: "s", ID: "\x00\xff\n|:"},
		"longest":       {Source: strings.Repeat("s", 63), Tenant: strings.Repeat("t", 128), ID: keyID(strings.Repeat("i", maxIDLen))},
		"hashed id":     {Source: "s", ID: keyID(strings.Repeat("i", maxIDLen+1))},
		"parts look so": {Source: "a\x01b", Tenant: "\x01", ID: "\x01b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ref := encodeRef(key, token)
			if len(ref) > maxRefLen {
				t.Errorf("reference of %d bytes", len(ref))
			}
			gotKey, gotToken, ok := parseRef(ref)
			if !ok || gotKey != key || gotToken != token {
				t.Errorf("parseRef(encodeRef(%+v)) = %+v, %v, %v", key, gotKey, gotToken, ok)
			}
		})
	}
}

func TestParseRefRefuses(t *testing.T) {
	t.Parallel()
	good := encodeRef(Key{Source: "payments", ID: "evt_1"}, Token{9})
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	with := func(at int, c byte) string {
		b := append([]byte(nil), raw...)
		b[at] = c
		return encode(b)
	}
	for name, ref := range map[string]string{
		"empty":                  "",
		"not base64":             "ä",
		"padded":                 good + "=",
		"line end inside":        good[:4] + "\n" + good[4:],
		"other alphabet":         "+/" + good[2:],
		"short token":            encode(raw[:10]),
		"token alone":            encode(raw[:17]),
		"other version":          with(0, 2),
		"source longer than all": with(17, 200),
		// One more than is left behind the length, but no more than with the length itself.
		"source longer by one": with(17, byte(len(raw)-17)),
		"length of two bytes":  encode(append(append(append([]byte(nil), raw[:17]...), 0x88, 0x00), raw[18:]...)),
		"no source":            encodeRef(Key{ID: "x"}, Token{}),
		"no id":                encodeRef(Key{Source: "x"}, Token{}),
		"too long":             encodeRef(Key{Source: "x", ID: strings.Repeat("y", 1000)}, Token{}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if key, _, ok := parseRef(ref); ok {
				t.Errorf("parseRef(%q) = %+v, want refused", ref, key)
			}
		})
	}
}

// Whatever parses is what encodeRef would have written: a claim has one name.
func FuzzParseRef(f *testing.F) {
	f.Add(encodeRef(Key{Source: "payments", ID: "evt_1"}, Token{1}))
	f.Add(encodeRef(Key{Source: "a", Tenant: "b", ID: "\xff"}, Token{}))
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, ref string) {
		key, token, ok := parseRef(ref)
		if ok && encodeRef(key, token) != ref {
			t.Errorf("%q parses to %+v, which is written %q", ref, key, encodeRef(key, token))
		}
	})
}

func TestKeyID(t *testing.T) {
	t.Parallel()
	edge := strings.Repeat("x", maxIDLen)
	if got := keyID(edge); got != edge {
		t.Errorf("an id of %d bytes became %q", maxIDLen, got)
	}
	// printf 'x%.0s' $(seq 257) | sha256sum
	const want = "sha256:15eb95a462ee20bd91a415ae2d4aed341288186ddaa2b37908f7d592f0c3f85f"
	if got := keyID(edge + "x"); got != want {
		t.Errorf("keyID of %d bytes = %q, want %q", maxIDLen+1, got, want)
	}
}
