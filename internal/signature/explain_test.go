package signature

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestExplainTells what a person needs in order to find a mistake.
func TestExplainTells(t *testing.T) {
	t.Parallel()
	v := provider(t, "stripe").Verifier()
	keys := parseKeys(t, v, testSecret)
	m := Message{Body: []byte(`{"id":"evt_1"}`), Header: headers("stripe-signature: t=1700000000,v1=" + strings.Repeat("ab", 32) + ",v0=x")}
	e := v.Explain(&m, keys, receivedAt, time.Minute)
	if len(e.Signed) != 1 || string(e.Signed[0]) != `1700000000.{"id":"evt_1"}` {
		t.Errorf("Signed: %q", e.Signed)
	}
	steps := strings.Join(e.Steps, "\n")
	for _, want := range []string{"HMAC_SHA256 (key TEXT) in header stripe-signature", "3 elements, 1 signatures", "1 of other versions",
		"template: {timestamp}.{body}", `timestamp: "1700000000"`, "tried 1 keys", "verdict: bad_signature"} {
		if !strings.Contains(steps, want) {
			t.Errorf("no %q in\n%s", want, steps)
		}
	}
}

// TestExplainKeepsSecrets: neither the secret nor what would have been right is told, whatever is wrong. What the sender
// wrote into the body itself is shown (Notion's handshake, Graph's clientState).
func TestExplainKeepsSecrets(t *testing.T) {
	t.Parallel()
	for _, vec := range readVectors(t) {
		v, tolerance := verifierOf(t, vec)
		var keys []Key
		for _, s := range vec.secrets {
			if k, err := v.ParseKey([]byte(s)); err == nil {
				keys = append(keys, k)
			}
		}
		e := v.Explain(&vec.message, keys, vec.now, tolerance)
		told := append([]byte(strings.Join(e.Steps, "\n")), bytes.Join(e.Signed, nil)...)
		for _, s := range vec.secrets {
			if len(s) >= 8 && bytes.Contains(told, []byte(s)) && !bytes.Contains(vec.message.Body, []byte(s)) {
				t.Errorf("%s: the secret is told:\n%s", vec.name, told)
			}
		}
		if want := e.Verdict; want != v.Verify(&vec.message, keys, vec.now, tolerance) {
			t.Errorf("%s: Explain and Verify differ", vec.name)
		}
		if len(keys) == 0 || e.Verdict.Reason == ReasonOK || v.beside != nil {
			continue
		}
		bare := vec.message
		bare.Header = nil
		for _, h := range vec.message.Header {
			if _, found := bare.field(h.Name); found == absent && h.Name != v.schemes[0].signature.name {
				bare.Header = append(bare.Header, h)
			}
		}
		right, err := v.Sign(&bare, keys[0], "", vec.now)
		if err != nil || v.schemes[0].kind.algorithm == Token {
			continue
		}
		if value := right[len(right)-1].Value; bytes.Contains(told, []byte(value)) {
			t.Errorf("%s: the right signature is told:\n%s", vec.name, told)
		}
	}
}

func TestSignRefuses(t *testing.T) {
	t.Parallel()
	sw, twilio, square := provider(t, "standard-webhooks").Verifier(), provider(t, "twilio").Verifier(), provider(t, "square").Verifier()
	swKey := parseKeys(t, sw, testSecret)[0]
	json := headers("content-type: application/json")
	for _, c := range []struct {
		name string
		v    *Verifier
		k    Key
		m    Message
		want string
	}{
		{"no key", sw, Key{}, Message{}, "no key"},
		{"key of another scheme", twilio, swKey, Message{}, "another scheme"},
		{"no id", sw, swKey, Message{}, "an id is needed in header webhook-id"},
		{"signed already", sw, swKey, Message{Header: headers("webhook-signature: x")}, "already"},
		{"no URL", square, parseKeys(t, square, testSecret)[0], Message{}, "the public URL is needed"},
		{"no hash of the body", twilio, parseKeys(t, twilio, testSecret)[0], Message{URL: "https://h/", Header: json, Body: []byte("{}")},
			"query bodySHA256 must be the hash of the body, " + sha256Hex([]byte("{}"))},
	} {
		if _, err := c.v.Sign(&c.m, c.k, "", receivedAt); !errors.Is(err, ErrCannotSign) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	m := Message{Header: headers("webhook-id: msg_1")}
	if _, err := sw.Sign(&m, swKey, "msg_2", receivedAt); !errors.Is(err, ErrCannotSign) {
		t.Errorf("two ids: %v", err)
	}
	// An id that is there already is signed as it is, and not added.
	fields, err := sw.Sign(&m, swKey, "", receivedAt)
	if err != nil || len(fields) != 2 || fields[0].Name != "webhook-timestamp" {
		t.Errorf("Sign: %v, %v", fields, err)
	}
}

func TestReasonString(t *testing.T) {
	t.Parallel()
	for r := ReasonOK; r <= ReasonKeyUnavailable; r++ {
		if s := r.String(); s == "" || s == "invalid" {
			t.Errorf("reason %d has no code", r)
		}
	}
	for _, r := range []Reason{0, ReasonKeyUnavailable + 1, 255} {
		if r.String() != "invalid" {
			t.Errorf("reason %d: %s", r, r)
		}
	}
}
