package extauthz

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// slackHandshake: Slack API, "url_verification": the challenge as the whole body.
func slackHandshake(req *request) (d decision, ok bool) {
	var body struct{ Type, Challenge string }
	if !readHandshake(req.body, `"url_verification"`, &body) || body.Type != "url_verification" || !harmless(body.Challenge) {
		return decision{}, false
	}
	return textAnswer(body.Challenge), true
}

// twitchHandshake: Twitch, "Handling Webhook Events", responding to a challenge request: the challenge as the whole
// body. The header that names the message's kind is not signed; the challenge is, and nothing else has one.
func twitchHandshake(req *request) (d decision, ok bool) {
	if req.get("twitch-eventsub-message-type") != "webhook_callback_verification" {
		return decision{}, false
	}
	var body struct{ Challenge string }
	if !readHandshake(req.body, `"challenge"`, &body) || !harmless(body.Challenge) {
		return decision{}, false
	}
	return textAnswer(body.Challenge), true
}

// zoomHandshake: Zoom, "Validate your webhook endpoint": plainToken and its HMAC under the secret token, in hex.
func zoomHandshake(req *request, key *signature.Key) (d decision, ok bool) {
	var body struct {
		Event   string
		Payload struct {
			PlainToken string `json:"plainToken"`
		}
	}
	if key == nil || !readHandshake(req.body, `"endpoint.url_validation"`, &body) || body.Event != "endpoint.url_validation" ||
		!harmless(body.Payload.PlainToken) {
		return decision{}, false
	}
	token := body.Payload.PlainToken
	mac, err := zoomToken.Sign(&signature.Message{Body: []byte(token)}, *key, "", time.Time{})
	if err != nil { // a key that makes no HMAC; a scheme of the user's own then has no such handshake
		return decision{}, false
	}
	return jsonAnswer(`{"plainToken":"` + token + `","encryptedToken":"` + mac[0].Value + `"}`), true
}

// zoomToken makes Zoom's encryptedToken: the hex of the plain token's HMAC.
var zoomToken = func() *signature.Verifier {
	v, err := signature.Compile(signature.Spec{
		Algorithm: signature.HMACSHA256,
		Signature: signature.SignatureSpec{ValueSpec: signature.ValueSpec{Header: "encrypted-token"}},
	})
	if err != nil {
		panic(err)
	}
	return v
}()

// discordHandshake: Discord, "Interactions: Receiving and Responding" (a PING of type 1 is answered by a PONG) and
// "Webhook Events" (a PING of type 0 is answered by 204; type 1 is an event there, and has one).
func discordHandshake(req *request) (d decision, ok bool) {
	var body struct {
		Type  *int
		Event json.RawMessage
	}
	if !readHandshake(req.body, `"type"`, &body) || body.Type == nil || body.Event != nil {
		return decision{}, false
	}
	switch *body.Type {
	case 0:
		d = jsonAnswer("")
		d.status = http.StatusNoContent
		return d, true
	case 1:
		return jsonAnswer(`{"type":1}`), true
	default:
		return decision{}, false
	}
}

// xeroHandshake: Xero, "Configure your webhooks", intent to receive: probes without an event, some of them wrongly
// signed. The right ones get 200 and nothing in the body, the others 401 and nothing.
func xeroHandshake(req *request) (d decision, ok bool) {
	var body struct{ Events *[]json.RawMessage }
	if !readHandshake(req.body, `"events"`, &body) || body.Events == nil || len(*body.Events) > 0 {
		return decision{}, false
	}
	return textAnswer(""), true
}

// oktaHandshake: Okta, "Event hooks", one-time verification request: a GET whose header is sent back in JSON.
func oktaHandshake(req *request) (d decision, ok bool) {
	challenge := req.only("x-okta-verification-challenge")
	if req.method != http.MethodGet || !harmless(challenge) {
		return decision{}, false
	}
	return jsonAnswer(`{"verification":"` + challenge + `"}`), true
}

// mondayHandshake: monday.com, "Webhooks", URL verification: a POST of a challenge and nothing else, which is sent back in
// JSON under the same name.
func mondayHandshake(req *request) (d decision, ok bool) {
	challenge := onlyMember(req.body, "challenge")
	if req.method != http.MethodPost || !harmless(challenge) {
		return decision{}, false
	}
	return jsonAnswer(`{"challenge":"` + challenge + `"}`), true
}

// notionHandshake: Notion, "Webhooks", verifying a subscription: a POST that brings the secret of the subscription, to be typed
// into Notion's form. It wants 2xx. The secret is neither kept nor logged nor sent back: a source with REPORT lets the app
// show it.
func notionHandshake(req *request) (d decision, ok bool) {
	if req.method != http.MethodPost || !harmless(onlyMember(req.body, "verification_token")) {
		return decision{}, false
	}
	return textAnswer(""), true
}
