package signature

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestPublicChecksAreBounded: sixteen checks a message, however many keys and signatures there are.
func TestPublicChecksAreBounded(t *testing.T) {
	t.Parallel()
	v := provider(t, "standard-webhooks").Verifier()
	var keys []Key
	for i := range byte(3) {
		private := ed25519.NewKeyFromSeed(append(make([]byte, 31), i))
		keys = append(keys, parseKeys(t, v, "whsk_"+base64.StdEncoding.EncodeToString(private))...)
	}
	m := signed(t, v, Message{Body: []byte("{}")}, keys[1], "msg_1", receivedAt)
	sig := &m.Header[len(m.Header)-1].Value
	wantReason(t, v.Verify(&m, keys, receivedAt, time.Minute), ReasonOK)
	bad := "v1a," + base64.StdEncoding.EncodeToString(make([]byte, 64)) + " "
	right := *sig
	*sig = strings.Repeat(bad, 7) + right // 8 checks for each of the first two keys
	wantReason(t, v.Verify(&m, keys, receivedAt, time.Minute), ReasonOK)
	*sig = strings.Repeat(bad, 15) + right // the first key uses all
	wantReason(t, v.Verify(&m, keys, receivedAt, time.Minute), ReasonBadSignature)
}

// TestRequire: companion headers say which scheme it is.
func TestRequire(t *testing.T) {
	t.Parallel()
	v := provider(t, "box").Verifier()
	keys := parseKeys(t, v, testSecret)
	m := signed(t, v, Message{Body: []byte("{}")}, keys[0], "d", receivedAt)
	msg := func(lines ...string) Message { return Message{Body: m.Body, Header: with(m.Header, lines...)} }
	runRows(t, v, keys, []row{
		{"as signed", m, ReasonOK},
		{"another version", msg("box-signature-version: 2"), ReasonWrongScheme},
		{"another algorithm", msg("box-signature-algorithm: HmacSHA1"), ReasonWrongScheme},
		{"no version", msg("box-signature-version:"), ReasonMissingSignature},
		{"version twice", Message{Body: m.Body, Header: append(with(m.Header), Field{"box-signature-version", "1"})}, ReasonMalformedSignature},
	})
}

// TestConcurrentVerify shares one Verifier and one Key among goroutines; the race detector looks on.
func TestConcurrentVerify(t *testing.T) {
	t.Parallel()
	v, m, keys, now := benchMessage(t, "stripe")
	other := m
	other.Body = []byte(`{"id":"evt_2"}`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if got := v.Verify(&m, keys, now, time.Minute); got.Reason != ReasonOK || got.Type != "invoice.paid" {
					t.Errorf("%+v", got)
					return
				}
				if got := v.Verify(&other, keys, now, time.Minute); got.Reason != ReasonBadSignature {
					t.Errorf("%+v", got)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestVerifyChangesNothing: the message is the caller's.
func TestVerifyChangesNothing(t *testing.T) {
	t.Parallel()
	for _, vec := range readVectors(t) {
		v, tolerance := verifierOf(t, vec)
		again := vec.message
		again.Body = append([]byte(nil), vec.message.Body...)
		again.Header = append([]Field(nil), vec.message.Header...)
		var keys []Key
		for _, s := range vec.secrets {
			if k, err := v.ParseKey([]byte(s)); err == nil {
				keys = append(keys, k)
			}
		}
		first := v.Verify(&vec.message, keys, vec.now, tolerance)
		if second := v.Verify(&again, keys, vec.now, tolerance); first != second || string(again.Body) != string(vec.message.Body) {
			t.Errorf("%s: %+v, then %+v", vec.name, first, second)
		}
	}
}
