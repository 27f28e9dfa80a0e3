package e2e

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	chatSecret   = "8f742231b10e8888abcd99yyyzzz85a5"
	verifyToken  = "meatyhamhock-meatyhamhock"
	challengeFor = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkO7FXYAP7XMoCs"
)

// chatSources are those that prove their URLs. Slack's is also there as one that takes unsigned challenges.
const chatSources = `
  - {name: slack, match: {path: /slack}, provider: slack, secrets: [{file: FOLDER/chat}]}
  - {name: slack-open, match: {path: /slack-open}, provider: slack, secrets: [{file: FOLDER/chat}], handshake: {unsigned: true}}
  - {name: twitch, match: {path: /twitch}, provider: twitch, secrets: [{file: FOLDER/chat}]}
  - {name: zoom, match: {path: /zoom}, provider: zoom, secrets: [{file: FOLDER/chat}]}
  - {name: meta, match: {path: /meta}, provider: meta, secrets: [{file: FOLDER/chat}], handshake: {verify_token: {file: FOLDER/verify}}}
  - {name: discord, match: {path: /discord}, provider: discord, secrets: [{file: FOLDER/discord}]}
`

// stamped is a message signed with hex of HMAC-SHA256 over "v0:time:body", as by Slack and by Zoom.
func stamped(target, timeHeader, signatureHeader, body, secret string) message {
	at := fmt.Sprint(time.Now().Unix())
	return message{method: http.MethodPost, target: target, body: []byte(body), header: http.Header{
		"Content-Type": {"application/json"}, timeHeader: {at},
		signatureHeader: {"v0=" + hex.EncodeToString(mac(secret, []byte("v0:"+at+":"+body)))},
	}}
}

func slackMessage(target, body, secret string) message {
	return stamped(target, "X-Slack-Request-Timestamp", "X-Slack-Signature", body, secret)
}

func zoomMessage(body, secret string) message {
	return stamped("/zoom", "X-Zm-Request-Timestamp", "X-Zm-Signature", body, secret)
}

func twitchMessage(body, secret string) message {
	const id = "e76c6bd4-55c9-4987-8304-da1588d8988b"
	at := time.Now().UTC().Format(time.RFC3339Nano)
	return message{method: http.MethodPost, target: "/twitch", body: []byte(body), header: http.Header{
		"Content-Type":                      {"application/json"},
		"Twitch-Eventsub-Message-Id":        {id},
		"Twitch-Eventsub-Message-Timestamp": {at},
		"Twitch-Eventsub-Message-Type":      {"webhook_callback_verification"},
		"Twitch-Eventsub-Message-Signature": {"sha256=" + hex.EncodeToString(mac(secret, []byte(id+at+body)))},
	}}
}

func discordMessage(body string, key ed25519.PrivateKey) message {
	at := fmt.Sprint(time.Now().Unix())
	return message{method: http.MethodPost, target: "/discord", body: []byte(body), header: http.Header{
		"Content-Type": {"application/json"}, "X-Signature-Timestamp": {at},
		"X-Signature-Ed25519": {hex.EncodeToString(ed25519.Sign(key, []byte(at+body)))},
	}}
}

func without(m message, header string) message {
	m.header = m.header.Clone()
	m.header.Del(header)
	return m
}

// Class HAND: what each provider gets for its challenge, to the byte and with its type, through Envoy; and that nothing
// else is answered. The bodies are those of the providers' pages.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	forger := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
	x := start(t, setup{sources: chatSources, prepare: func(x *stack) {
		x.write("chat", chatSecret)
		x.write("verify", verifyToken)
		x.write("discord", hex.EncodeToString(key.Public().(ed25519.PublicKey)))
	}})
	const (
		slackBody  = `{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"` + challengeFor + `","type":"url_verification"}`
		twitchBody = `{"challenge":"pogchamp-kappa-360noscope-vohiyo","subscription":{"id":"f1c2a387","type":"channel.follow","version":"1"}}`
		zoomBody   = `{"payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"},"event_ts":1654503849680,"event":"endpoint.url_validation"}`
		pingBody   = `{"application_id":"1","id":"2","token":"t","type":1,"version":1}`
		metaQuery  = "?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token="
	)
	// The plain token's HMAC is made here by other code than the gate's.
	zoomWants := `{"plainToken":"qgg8vlvZRS6UYooatFL8Aw","encryptedToken":"` + hex.EncodeToString(mac(chatSecret, []byte("qgg8vlvZRS6UYooatFL8Aw"))) + `"}`
	get := func(target string) message { return message{method: http.MethodGet, target: target} }
	tests := []struct {
		name        string
		message     message
		status      int
		contentType string
		body        string
	}{
		{"slack", slackMessage("/slack", slackBody, chatSecret), 200, "text/plain", challengeFor},
		{"slack forged", slackMessage("/slack", slackBody, otherSecret), 401, "application/json", `{"status":"bad_signature"}`},
		{"slack unsigned", without(slackMessage("/slack", slackBody, chatSecret), "X-Slack-Signature"), 401, "application/json", `{"status":"missing_signature"}`},
		{"slack unsigned, where that is allowed", message{method: http.MethodPost, target: "/slack-open", body: []byte(slackBody)}, 200, "text/plain", challengeFor},
		{"slack unsigned markup", message{method: http.MethodPost, target: "/slack-open", body: []byte(`{"type":"url_verification","challenge":"<script>alert(1)</script>"}`)}, 401, "application/json", `{"status":"missing_signature"}`},
		{"slack unsigned, 64 KiB", message{method: http.MethodPost, target: "/slack-open", body: []byte(`{"type":"url_verification","challenge":"` + strings.Repeat("a", 64<<10) + `"}`)}, 401, "application/json", `{"status":"missing_signature"}`},
		{"slack forged, where unsigned is allowed", slackMessage("/slack-open", slackBody, otherSecret), 401, "application/json", `{"status":"bad_signature"}`},
		{"twitch", twitchMessage(twitchBody, chatSecret), 200, "text/plain", "pogchamp-kappa-360noscope-vohiyo"},
		{"twitch forged", twitchMessage(twitchBody, otherSecret), 403, "application/json", `{"status":"bad_signature"}`},
		{"zoom", zoomMessage(zoomBody, chatSecret), 200, "application/json", zoomWants},
		{"zoom forged", zoomMessage(zoomBody, otherSecret), 401, "application/json", `{"status":"bad_signature"}`},
		{"meta", get("/meta" + metaQuery + verifyToken), 200, "text/plain", "1158201444"},
		{"meta, another token", get("/meta" + metaQuery + "guess"), 401, "application/json", `{"status":"bad_signature"}`},
		{"discord interaction", discordMessage(pingBody, key), 200, "application/json", `{"type":1}`},
		// Without a body Envoy takes our content type away.
		{"discord event", discordMessage(`{"version":1,"application_id":"1234560123453231555","type":0}`, key), 204, "", ""},
		{"discord forged", discordMessage(pingBody, forger), 401, "application/json", `{"status":"bad_signature"}`},
	}
	t.Run("answers", func(t *testing.T) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				got := x.post(test.message)
				if got.code != test.status || got.body != test.body || got.header.Get("Content-Type") != test.contentType {
					t.Errorf("got %d, %q, %q, want %d, %q, %q", got.code, got.header.Get("Content-Type"), got.body, test.status, test.contentType, test.body)
				}
				if test.status < 300 && got.header.Get("X-Content-Type-Options") != "nosniff" {
					t.Error("a browser may guess the type of the challenge")
				}
			})
		}
	})
	if calls := x.app.all(); len(calls) != 0 {
		t.Errorf("the app got %s %s", calls[0].method, calls[0].target)
	}
	if n := x.events(); n != 0 {
		t.Errorf("the inbox has %d events", n)
	}
}
