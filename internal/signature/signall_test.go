package signature

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const otherSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"

// ed25519Pair returns a private key from a fixed seed and its public half, as the preset takes them.
func ed25519Pair(seed byte) (whsk, whpk string) {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	b64 := base64.StdEncoding.EncodeToString
	return "whsk_" + b64(private), "whpk_" + b64(private.Public().(ed25519.PublicKey))
}

func TestSignAll(t *testing.T) {
	t.Parallel()
	v := provider(t, "standard-webhooks").Verifier()
	whsk, whpk := ed25519Pair(7)
	past, future := receivedAt.Add(-time.Second), receivedAt.Add(time.Second)
	body := []byte(`{"type":"invoice.paid"}`)
	for _, c := range []struct {
		name, secrets string
		until         []time.Time
		versions      string // of the elements, in order
		accept        string // each of these keys accepts it alone
		refuse        string
	}{
		{name: "one", secrets: testSecret, versions: "v1", accept: testSecret, refuse: otherSecret},
		{name: "two of one kind", secrets: testSecret + " " + otherSecret, versions: "v1 v1", accept: testSecret + " " + otherSecret},
		{name: "both kinds", secrets: whsk + " " + testSecret, versions: "v1a v1", accept: testSecret + " " + whpk},
		{name: "old before new", secrets: otherSecret + " " + whsk + " " + testSecret, versions: "v1 v1a v1", accept: otherSecret + " " + whpk + " " + testSecret},
		{name: "one on its way out", secrets: testSecret + " " + otherSecret, until: []time.Time{future, {}}, versions: "v1 v1", accept: testSecret + " " + otherSecret},
		{name: "one that is out", secrets: testSecret + " " + otherSecret, until: []time.Time{past, {}}, versions: "v1", accept: otherSecret, refuse: testSecret},
		{name: "until is the first instant without", secrets: testSecret + " " + otherSecret, until: []time.Time{receivedAt, {}}, versions: "v1", accept: otherSecret, refuse: testSecret},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			keys := parseKeys(t, v, strings.Fields(c.secrets)...)
			for i, until := range c.until {
				keys[i].Until = until
			}
			m := Message{Body: body}
			fields, err := v.SignAll(&m, keys, "msg_1", receivedAt)
			if err != nil {
				t.Fatalf("SignAll: %v", err)
			}
			if m.Header != nil {
				t.Errorf("SignAll added %d fields to the message itself", len(m.Header))
			}
			m.Header = fields
			if len(fields) != 3 {
				t.Fatalf("SignAll gave %d fields, want id, time and signature", len(fields))
			}
			var versions []string
			for element := range strings.SplitSeq(fields[2].Value, " ") {
				version, _, _ := strings.Cut(element, ",")
				versions = append(versions, version)
			}
			if got := strings.Join(versions, " "); fields[2].Name != "webhook-signature" || got != c.versions {
				t.Errorf("%s has %q, want %q", fields[2].Name, got, c.versions)
			}
			for s := range strings.FieldsSeq(c.accept) {
				wantReason(t, v.Verify(&m, parseKeys(t, v, s), receivedAt, time.Minute), ReasonOK)
			}
			for s := range strings.FieldsSeq(c.refuse) {
				wantReason(t, v.Verify(&m, parseKeys(t, v, s), receivedAt, time.Minute), ReasonBadSignature)
			}
		})
	}
}

func TestSignAllEqualsSign(t *testing.T) {
	t.Parallel()
	v := provider(t, "stripe").Verifier()
	keys := parseKeys(t, v, testSecret)
	m := Message{Body: []byte("{}")}
	one, err := v.Sign(&m, keys[0], "", receivedAt)
	if err != nil {
		t.Fatal(err)
	}
	all, err := v.SignAll(&m, keys, "", receivedAt)
	if err != nil || len(all) != len(one) || all[0] != one[0] {
		t.Errorf("SignAll: %v, %v; want what Sign gives, %v", all, err, one)
	}
}

func TestSignAllRefuses(t *testing.T) {
	t.Parallel()
	standard, stripe := provider(t, "standard-webhooks").Verifier(), provider(t, "stripe").Verifier()
	_, whpk := ed25519Pair(7)
	out := parseKeys(t, standard, testSecret)[0]
	out.Until = receivedAt
	for _, c := range []struct {
		name string
		v    *Verifier
		keys []Key
		m    Message
	}{
		{"no keys", standard, nil, Message{}},
		{"all are out", standard, []Key{out}, Message{}},
		{"a zero key", standard, []Key{{}}, Message{}},
		{"a zero key behind a good one", standard, append(parseKeys(t, standard, testSecret), Key{}), Message{}},
		{"a public key behind a good one", standard, parseKeys(t, standard, testSecret, whpk), Message{}},
		{"a key of another scheme", standard, parseKeys(t, stripe, testSecret), Message{}},
		{"a list that has its time in it", stripe, parseKeys(t, stripe, testSecret, otherSecret), Message{}},
		{"no id", standard, parseKeys(t, standard, testSecret), Message{}},
		{"signed already", standard, parseKeys(t, standard, testSecret), Message{Header: headers("webhook-signature: v1,xx")}},
	} {
		id := "msg_1"
		if c.name == "no id" {
			id = ""
		}
		if fields, err := c.v.SignAll(&c.m, c.keys, id, receivedAt); !errors.Is(err, ErrCannotSign) {
			t.Errorf("%s: %v, %v; want ErrCannotSign", c.name, fields, err)
		}
	}
}

// The official library accepts a list under whichever of its keys the receiver has, in either order.
func TestSignAllStandardLibrary(t *testing.T) {
	t.Parallel()
	v := provider(t, "standard-webhooks").Verifier()
	whsk, _ := ed25519Pair(7)
	for _, secrets := range [][]string{{testSecret, whsk, otherSecret}, {otherSecret, whsk, testSecret}} {
		for _, body := range bodies {
			fields, err := v.SignAll(&Message{Body: []byte(body)}, parseKeys(t, v, secrets...), "msg_1", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{testSecret, otherSecret} {
				hook, err := standardwebhooks.NewWebhook(secret)
				if err != nil {
					t.Fatal(err)
				}
				if err := hook.Verify([]byte(body), httpHeader(fields)); err != nil {
					t.Errorf("the library of Standard Webhooks on %q: %v", body, err)
				}
				if err := hook.Verify([]byte(body+" "), httpHeader(fields)); err == nil {
					t.Errorf("the library of Standard Webhooks accepts a changed %q", body)
				}
			}
		}
	}
}

func BenchmarkSignAll(b *testing.B) {
	v := provider(b, "standard-webhooks").Verifier()
	whsk, _ := ed25519Pair(7)
	m := Message{Body: bytes.Repeat([]byte("x"), 1024)}
	for name, secrets := range map[string][]string{"v1": {testSecret}, "v1 v1": {testSecret, otherSecret}, "v1a": {whsk}} {
		b.Run(name, func(b *testing.B) {
			keys := parseKeys(b, v, secrets...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.SignAll(&m, keys, "msg_1", receivedAt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
