package signature

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stripe/stripe-go/v83/webhook"
	svix "github.com/svix/svix-webhooks/go"
	twilio "github.com/twilio/twilio-go/client"
)

// Official libraries sign what we verify, and verify what we sign. They look at the real time, so the tests do too.

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// bodies are signed as they are: no body, other encodings, bytes that are no UTF-8, line ends.
var bodies = []string{"", `{"id":"evt_1","type":"a.b"}`, "{ \"b\":1,  \"a\":2.0 }\r\n", `{"url":"https:\/\/h\/x"}`, "\xff\xfe{\"a\":1}", "\xef\xbb\xbf{\"id\":\"x\"}"}

func httpHeader(fields []Field) http.Header {
	h := http.Header{}
	for _, f := range fields {
		h.Add(f.Name, f.Value)
	}
	return h
}

func wantReason(t *testing.T, got Verdict, want Reason) {
	t.Helper()
	if got.Reason != want {
		t.Errorf("Verify: %s, want %s", got.Reason, want)
	}
}

func TestStripeLibrary(t *testing.T) {
	t.Parallel()
	v := provider(t, "stripe").Verifier()
	keys := parseKeys(t, v, testSecret)
	now := time.Now()
	for _, body := range bodies {
		theirs := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: testSecret, Timestamp: now})
		m := Message{Body: []byte(body), Header: []Field{{"stripe-signature", theirs.Header}}}
		wantReason(t, v.Verify(&m, keys, now, time.Minute), ReasonOK)

		ours := signed(t, v, Message{Body: []byte(body)}, keys[0], "", now)
		if err := webhook.ValidatePayload(ours.Body, ours.Header[0].Value, testSecret); err != nil {
			t.Errorf("stripe-go of %q: %v", body, err)
		}
		ours.Body = append(slices.Clone(ours.Body), ' ')
		if err := webhook.ValidatePayload(ours.Body, ours.Header[0].Value, testSecret); err == nil {
			t.Errorf("stripe-go accepts a changed %q", body)
		}
		wantReason(t, v.Verify(&ours, keys, now, time.Minute), ReasonBadSignature)
	}
}

// webhookLibrary is what the libraries of Svix and Standard Webhooks have in common.
type webhookLibrary interface {
	Sign(id string, timestamp time.Time, payload []byte) (string, error)
	Verify(payload []byte, headers http.Header) error
}

func TestStandardWebhooksLibraries(t *testing.T) {
	t.Parallel()
	standard, err := standardwebhooks.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	theSvix, err := svix.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	for _, lib := range []struct {
		provider, prefix string
		webhookLibrary
	}{{"standard-webhooks", "webhook-", standard}, {"svix", "svix-", theSvix}} {
		t.Run(lib.provider, func(t *testing.T) {
			t.Parallel()
			v := provider(t, lib.provider).Verifier()
			keys := parseKeys(t, v, testSecret)
			now := time.Now().Truncate(time.Second)
			for _, body := range bodies {
				sig, err := lib.Sign("msg_1", now, []byte(body))
				if err != nil {
					t.Fatal(err)
				}
				ours := signed(t, v, Message{Body: []byte(body)}, keys[0], "msg_1", now)
				if got := ours.Header[len(ours.Header)-1]; got.Name != lib.prefix+"signature" || got.Value != sig {
					t.Errorf("Sign of %q: %v, want %s", body, got, sig)
				}
				got := v.Verify(&ours, keys, now, time.Minute)
				if got.Reason != ReasonOK || got.ID != "msg_1" || !got.IDSigned {
					t.Errorf("Verify of %q: %+v", body, got)
				}
				if err := lib.Verify(ours.Body, httpHeader(ours.Header)); err != nil {
					t.Errorf("library of %q: %v", body, err)
				}
			}
		})
	}
}

func TestSlackLibrary(t *testing.T) {
	t.Parallel()
	const secret = "e6b19c573432dcc6b075501d51b51bb8"
	v := provider(t, "slack").Verifier()
	keys := parseKeys(t, v, secret)
	now := time.Now()
	for _, body := range bodies {
		ours := signed(t, v, Message{Body: []byte(body)}, keys[0], "", now)
		check := func(body []byte) error {
			verifier, err := slack.NewSecretsVerifier(httpHeader(ours.Header), secret)
			if err != nil {
				return err
			}
			_, _ = verifier.Write(body)
			return verifier.Ensure()
		}
		if err := check(ours.Body); err != nil {
			t.Errorf("slack-go of %q: %v", body, err)
		}
		if check([]byte(body+"x")) == nil {
			t.Errorf("slack-go accepts a changed %q", body)
		}
	}
}

func TestTwilioLibrary(t *testing.T) {
	t.Parallel()
	const token = "12345"
	v := provider(t, "twilio").Verifier()
	keys := parseKeys(t, v, token)
	lib := twilio.NewRequestValidator(token)
	form := headers("content-type: application/x-www-form-urlencoded")
	for _, c := range []struct {
		name, url, body string
		header          []Field
	}{
		{"form", "https://example.com/sms?b=1&a=2", "To=%2B1800&From=%2B1415&Body=a+b%20c&Empty=", form},
		{"port", "https://example.com:8443/sms", "A=1", form},
		{"no body", "https://example.com/sms?Body=Couldn%27t+find&From=%2B1415", "", form},
		{"json", "https://example.com/sms?bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620",
			`{"property": "value", "boolean": true}`, headers("content-type: application/json")},
	} {
		m := Message{Method: "POST", URL: c.url, Target: targetOf(c.url), Header: c.header, Body: []byte(c.body)}
		m = signed(t, v, m, keys[0], "", time.Now())
		sig := m.Header[len(m.Header)-1].Value
		wantReason(t, v.Verify(&m, keys, time.Now(), time.Minute), ReasonOK)
		if !lib.ValidateBody(c.url, []byte(c.body), sig) {
			t.Errorf("%s: twilio-go refuses our signature", c.name)
		}
		if lib.ValidateBody(c.url, []byte(c.body+"&x=1"), sig) {
			t.Errorf("%s: twilio-go accepts another body", c.name)
		}
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		m.URL = strings.Replace(c.url, u.Host, "other.example", 1)
		wantReason(t, v.Verify(&m, keys, time.Now(), time.Minute), ReasonBadSignature)
	}
}

// TestFormulas holds the providers against the formulas of their pages, written down once more with crypto/hmac alone.
func TestFormulas(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-20-bytes"
	now := time.Unix(1700000000, 0)
	body := []byte(`{"id":"x","webhookTimestamp":1700000000123,"a":"Zürich ✓"}`)
	cat := func(parts ...string) []byte { return []byte(strings.Join(parts, "") + string(body)) }
	for _, c := range []struct {
		provider, sign string
		content        []byte
		fields         []Field // with %s for the MAC
	}{
		{"github", "hex256", body, headers("x-github-delivery: d", "x-hub-signature-256: sha256=%s")},
		{"meta", "hex256", body, headers("x-hub-signature-256: sha256=%s")},
		{"bitbucket", "hex256", body, headers("x-request-uuid: d", "x-hub-signature: sha256=%s")},
		{"intercom", "hex1", body, headers("x-hub-signature: sha1=%s")},
		{"linear", "hex256", body, headers("linear-signature: %s")},
		{"pagerduty", "hex256", body, headers("x-pagerduty-signature: v1=%s")},
		{"shopify", "base64", body, headers("x-shopify-webhook-id: d", "x-shopify-hmac-sha256: %s")},
		{"line", "base64", body, headers("x-line-signature: %s")},
		{"slack", "hex256", cat("v0:1700000000:"), headers("x-slack-request-timestamp: 1700000000", "x-slack-signature: v0=%s")},
		{"zoom", "hex256", cat("v0:1700000000:"), headers("x-zm-request-timestamp: 1700000000", "x-zm-signature: v0=%s")},
		{"paddle", "hex256", cat("1700000000:"), headers("paddle-signature: ts=1700000000;h1=%s")},
		{"workos", "hex256", cat("1700000000000."), headers("workos-signature: t=1700000000000, v1=%s")},
		{"twitch", "hex256", cat("id-1", "2023-11-14T22:13:20.123456789Z"), headers("twitch-eventsub-message-id: id-1",
			"twitch-eventsub-message-timestamp: 2023-11-14T22:13:20.123456789Z", "twitch-eventsub-message-signature: sha256=%s")},
		{"square", "base64", cat("https://example.com/hook"), headers("x-square-hmacsha256-signature: %s")},
		{"hubspot", "base64", []byte("POSThttps://example.com/hook" + string(body) + "1700000000000"),
			headers("x-hubspot-request-timestamp: 1700000000000", "x-hubspot-signature-v3: %s")},
	} {
		v := provider(t, c.provider).Verifier()
		fields := slices.Clone(c.fields)
		last := &fields[len(fields)-1]
		last.Value = strings.Replace(last.Value, "%s", formulaMAC(c.sign, secret, c.content), 1)
		m := Message{Method: "POST", URL: "https://example.com/hook", Target: "/hook", Header: fields, Body: bytes.Clone(body)}
		if got := v.Verify(&m, parseKeys(t, v, secret), now, time.Minute); got.Reason != ReasonOK {
			t.Errorf("%s: %s", c.provider, got.Reason)
		}
	}
}
