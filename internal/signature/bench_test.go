package signature

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"
)

// benchMessage is an event of 1 KiB, signed in Stripe's way: a list with a time, an id and a type in the body.
func benchMessage(tb testing.TB, name string) (*Verifier, Message, []Key, time.Time) {
	tb.Helper()
	v := provider(tb, name).Verifier()
	now := time.Unix(1700000000, 0)
	keys := parseKeys(tb, v, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	body := []byte(`{"id":"evt_1PgafyC8bPzTLxxxYyZzAaBb","type":"invoice.paid","data":{"object":"`)
	body = append(body, bytes.Repeat([]byte("x"), 1024-len(body)-3)...)
	body = append(body, `"}}`...)
	m := Message{Method: "POST", Target: "/webhooks", Body: body, Header: headers(
		":authority: example.com", "content-type: application/json", "user-agent: sender/1.0", "accept: */*",
		"x-request-id: 4f0c6d9e-9d0a-4b6b-8b0e-7c1d2e3f4a5b", "content-length: 1024")}
	return v, signed(tb, v, m, keys[0], "msg_p5jXN8AQM9LWM0D4loKWxJek", now), keys, now
}

func BenchmarkVerify(b *testing.B) {
	for _, name := range []string{"stripe", "standard-webhooks", "github"} {
		b.Run(name, func(b *testing.B) {
			v, m, keys, now := benchMessage(b, name)
			b.ReportAllocs()
			for b.Loop() {
				if got := v.Verify(&m, keys, now, time.Minute); got.Reason != ReasonOK {
					b.Fatal(got.Reason)
				}
			}
		})
	}
}

// BenchmarkBareHMAC is the yardstick: what an app without us would do to the same bytes.
func BenchmarkBareHMAC(b *testing.B) {
	_, m, _, _ := benchMessage(b, "stripe")
	key := []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	want := bareHMAC(key, m.Body)
	header := hex.EncodeToString(want)
	b.ReportAllocs()
	for b.Loop() {
		sig, err := hex.DecodeString(header)
		if err != nil || !hmac.Equal(bareHMAC(key, m.Body), sig) {
			b.Fatal("no match")
		}
	}
}

// BenchmarkVerifyOverBare takes turns with its yardstick, so that a busy machine slows both: x-bare is Verify's time
// divided by that of bare crypto/hmac, at most 1.5 by our own rule.
func BenchmarkVerifyOverBare(b *testing.B) {
	v, m, keys, now := benchMessage(b, "stripe")
	key := []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	const turn = 50
	var ours, bare time.Duration
	for b.Loop() {
		start := time.Now()
		for range turn {
			v.Verify(&m, keys, now, time.Minute)
		}
		middle := time.Now()
		for range turn {
			hmac.Equal(bareHMAC(key, m.Body), key)
		}
		ours, bare = ours+middle.Sub(start), bare+time.Since(middle)
	}
	b.ReportMetric(float64(ours)/float64(bare), "x-bare")
}

func bareHMAC(key, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(body)
	return h.Sum(nil)
}

// TestVerifyAllocations keeps Verify within three allocations of bare crypto/hmac, of which it has none to spare:
// keyed states and buffers are pooled.
func TestVerifyAllocations(t *testing.T) {
	v, m, keys, now := benchMessage(t, "stripe")
	key := []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	bare := testing.AllocsPerRun(1000, func() { bareHMAC(key, m.Body) })
	ours := testing.AllocsPerRun(1000, func() { v.Verify(&m, keys, now, time.Minute) })
	if ours > bare+3 {
		t.Errorf("%v allocations, bare crypto/hmac has %v", ours, bare)
	}
}
