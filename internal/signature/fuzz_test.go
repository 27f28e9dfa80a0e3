package signature

import (
	"strings"
	"testing"
	"time"
)

// FuzzVerify throws whole messages at every provider: no panic, a valid reason, and nothing accepted without the key.
func FuzzVerify(f *testing.F) {
	for _, v := range readVectors(f) {
		var h strings.Builder
		for _, field := range v.message.Header {
			h.WriteString(field.Name + ": " + field.Value + "\n")
		}
		f.Add(h.String(), v.message.Body, v.message.Method, v.message.URL, v.now.Unix())
	}
	type target struct {
		v    *Verifier
		keys []Key
	}
	var targets []target
	for _, p := range Providers() {
		secret := "a secret that no seed was signed with"
		if len(p.Specs) == 0 {
			continue
		}
		switch p.Specs[0].Key {
		case KeyWhsec:
			secret = "whsec_YSBzZWNyZXQgdGhhdCBubyBzZWVkIHdhcyBzaWduZWQgd2l0aA=="
		case KeyHex:
			secret = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
		case KeyBase64:
			secret = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqgZ5n2Zt0uP0OB7s7VvJmJv3nq3PEFk0iCFWzcm9q7nTY0yYqcIY2BYuWWpZWnWQHDBqmJGvvNwXEvsoKsBFCg=="
		}
		if k, err := p.Verifier().ParseKey([]byte(secret)); err == nil {
			targets = append(targets, target{p.Verifier(), []Key{k}})
		}
	}
	if len(targets) < 20 {
		f.Fatalf("%d providers have a key", len(targets))
	}
	f.Fuzz(func(t *testing.T, header string, body []byte, method, url string, now int64) {
		m := Message{Method: method, URL: url, Target: targetOf(url), Body: body, MaxBody: 1 << 16}
		for line := range strings.Lines(header) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			m.Header = append(m.Header, Field{strings.ToLower(name), value})
		}
		for _, target := range targets {
			got := target.v.Verify(&m, target.keys, time.Unix(now, 0), 5*time.Minute)
			if got.Reason == ReasonOK || got.Reason.String() == "invalid" {
				t.Errorf("%s: %s", target.v, got.Reason)
			}
			if e := target.v.Explain(&m, target.keys, time.Unix(now, 0), 5*time.Minute); e.Verdict != got {
				t.Errorf("%s: Explain says %+v, Verify %+v", target.v, e.Verdict, got)
			}
		}
	})
}

// FuzzSignatureField: a field is taken apart within bounds, and what is accepted was really in it.
func FuzzSignatureField(f *testing.F) {
	names := []string{"stripe", "svix", "github", "shopify", "workos", "paddle", "pagerduty", "discord", "sendgrid"}
	for _, v := range readVectors(f) {
		for _, h := range v.message.Header {
			f.Add(h.Value)
		}
	}
	f.Fuzz(func(t *testing.T, field string) {
		for _, name := range names {
			for _, s := range provider(t, name).Verifier().schemes {
				r := newReader(&Message{}, s, nil)
				reason := r.readSignatures(field)
				if reason == ReasonOK && len(r.sigs) == 0 || len(r.sigs) > maxSignatures {
					t.Errorf("%s: %s with %d signatures", name, reason, len(r.sigs))
				}
				for _, sig := range r.sigs {
					text := encode(sig, s.spec.Signature.Encoding)
					if !strings.Contains(strings.ToLower(field), strings.ToLower(text)) {
						t.Errorf("%s: %x is not in %q", name, sig, field)
					}
				}
				r.free()
			}
		}
	})
}

// FuzzTime: what is read as a time is written again as the same time.
func FuzzTime(f *testing.F) {
	for _, s := range []string{"0", "1700000000", "1700000000123", "2023-11-14T22:13:20.123456789Z", "2023-11-14T22:13:20.5+01:00", "2024-03-27T15:42:29.551", "-1", "1e9", " 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, unit := range []Unit{Seconds, Milliseconds, RFC3339, ISO8601} {
			got, ok := parseTime(text, unit)
			if !ok {
				continue
			}
			again, ok := parseTime(formatTime(got, unit), unit)
			if !ok || again.Unix() != got.Unix() {
				t.Errorf("%s: %q is %s, and again %s", unit, text, got, again)
			}
			if (unit == Seconds || unit == Milliseconds) && formatTime(got, unit) != text {
				t.Errorf("%s: %q is written %q", unit, text, formatTime(got, unit))
			}
		}
	})
}

// FuzzJSON: looking for a value never fails badly, and agrees with encoding/json where that reads the document.
func FuzzJSON(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add(v.message.Body, "id")
	}
	f.Add([]byte(`{"a":{"b":[1,{"c":"x\u0041"}]}}`), "a.b.1.c")
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		paths, err := parseJSONPaths(path)
		if err != nil {
			return
		}
		got, ok := lookupJSON(body, paths)
		want, valid := standardLookup(body, paths)
		if valid && want != got {
			t.Errorf("%q in %q: %q, %v, want %q", path, body, got, ok, want)
		}
	})
}

// FuzzCompile: templates and places of any text are compiled or refused.
func FuzzCompile(f *testing.F) {
	f.Add("{if query:data.id}id:{query:data.id};{end}{body}", "x-signature", ",", "v1", "events.0.id")
	f.Add("{timestamp}.{body}", "x", " ", "", `a\.b+c`)
	f.Fuzz(func(t *testing.T, signed, header, list, key, id string) {
		v, err := Compile(Spec{Algorithm: HMACSHA256, Signed: signed, ID: &IDSpec{ValueSpec: ValueSpec{JSON: id}},
			Signature: SignatureSpec{ValueSpec: ValueSpec{Header: header}, List: list, KeyValue: key}})
		if err != nil {
			return
		}
		m := Message{Body: []byte(`{"a":1}`), Header: []Field{{strings.ToLower(header), strings.Repeat("ab", 32)}}}
		k, err := v.ParseKey([]byte("a secret that is long enough"))
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Verify(&m, []Key{k}, receivedAt, time.Minute); got.Reason == ReasonOK {
			t.Errorf("accepted under %q", signed)
		}
	})
}
