package e2e

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// replaySources are the presets whose ids, or their lack, make a replay something of its own.
const replaySources = `
  - {name: shop, match: {path: /webhooks/shopify}, provider: shopify, secrets: [{file: FOLDER/shopify}]}
  - {name: code, match: {path: /webhooks/github}, provider: github, secrets: [{file: FOLDER/github}], accept_loss: true}
  - {name: slack, match: {path: /slack}, provider: slack, secrets: [{file: FOLDER/github}]}
  - {name: calls, match: {path_prefix: /twilio}, provider: twilio, secrets: [{file: FOLDER/github}], accept_loss: true,
     public_url: "https://hooks.example.com#rc=2", reply: {content_type: text/xml, body: "<Response/>"}}
`

// Class DUP: what makes an event the same one, preset by preset. Each row is sent in its turn; passes says which of its
// messages reach the app, the others get the answer of a duplicate. It is the same in both modes.
func TestWhatIsTheSameEvent(t *testing.T) {
	t.Parallel()
	t.Run("PASS", func(t *testing.T) {
		t.Parallel()
		sameEvents(t, replaySources, "thanks")
	})
	t.Run("STORE", func(t *testing.T) {
		t.Parallel()
		sources := strings.ReplaceAll(strings.ReplaceAll(replaySources, ", accept_loss: true", ""), "provider:", `mode: STORE, delivery: {url: "http://APP"}, provider:`)
		sameEvents(t, sources, storedForTheApp)
	})
}

// sameEvents is TestWhatIsTheSameEvent with these sources; taken is what the sender gets for an event that reaches the app.
func sameEvents(t *testing.T, sources, taken string) {
	x := start(t, setup{sources: sources})
	with := func(m message, header, value string) message {
		m.header = m.header.Clone()
		m.header.Set(header, value)
		return m
	}
	order := []byte(`{"id":820982911946154508}`)
	first := shopify("b54557e4-bdd9-4b37-8a5f-bf7d70bcd043", order, shopifySecret)
	other := shopify("00000000-bdd9-4b37-8a5f-bf7d70bcd043", []byte(`{"id":1}`), shopifySecret)
	push := github("72d3162e-cc78-11e3-81ab-4c9367dc0958", []byte(`{"ref":"refs/heads/main"}`), githubSecret)
	slack := func(id, text string) message {
		return slackMessage("/slack", `{"type":"event_callback","event_id":"`+id+`","event":{"type":"message","ts":"1355517523.000005","text":"`+text+`"}}`, githubSecret)
	}
	call := twilioForm("/twilio/voice", "CallSid=CA1&From=%2B14155550100&Digits=1", "CallSidCA1Digits1From+14155550100")
	tests := []struct {
		name     string
		messages []message
		passes   []bool
	}{
		// ShopifySharp#919: several topics share X-Shopify-Event-Id.
		{"one merchant's action, two topics", []message{
			with(first, "X-Shopify-Event-Id", "e1"),
			with(with(with(first, "X-Shopify-Event-Id", "e1"), "X-Shopify-Topic", "orders/updated"), "X-Shopify-Webhook-Id", "b2"),
		}, []bool{true, true}},
		// get-engram#454: neither id is signed, so that a replay can have any.
		{"shopify replayed", []message{other, other, with(other, "X-Shopify-Webhook-Id", "new")}, []bool{true, false, false}},
		{"github replayed", []message{push, push, with(push, "X-Github-Delivery", "new")}, []bool{true, false, false}},
		{"github, another event with that body", []message{with(with(push, "X-Github-Delivery", "d2"), "X-Github-Event", "create")}, []bool{true}},
		// cf-think-slack-bot#7: an edit has the time of what it edits.
		{"slack message and its edit", []message{slack("Ev1", "a"), slack("Ev2", "b")}, []bool{true, true}},
		{"slack message replayed, marked as a retry", []message{slack("Ev3", "a"), with(slack("Ev3", "a"), "X-Slack-Retry-Num", "1")}, []bool{true, false}},
		// vercel/chat#667: the first try may never have arrived.
		{"slack, only the retry arrives", []message{with(slack("Ev4", "a"), "X-Slack-Retry-Num", "3")}, []bool{true}},
		// openclaw#87497: an answer that is wanted on the spot is no reason to answer a replay in the app's place anew.
		{"twilio replayed", []message{call, call}, []bool{true, false}},
		{"twilio, another digit", []message{twilioForm("/twilio/voice", "CallSid=CA1&From=%2B14155550100&Digits=2", "CallSidCA1Digits2From+14155550100")}, []bool{true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for i, m := range test.messages {
				before := len(x.app.all())
				got := x.post(m)
				wantBody := taken
				switch {
				case strings.HasPrefix(m.target, "/twilio") && (!test.passes[i] || taken == storedForTheApp):
					wantBody = "<Response/>"
				case test.passes[i]:
				default:
					wantBody = `{"status":"duplicate"}`
				}
				if test.passes[i] && taken == storedForTheApp {
					eventually(t, "the app is called", func() bool { return len(x.app.all()) > before })
				}
				passed := len(x.app.all()) == before+1
				if passed != test.passes[i] || got.code != http.StatusOK || strings.TrimSpace(got.body) != wantBody {
					t.Fatalf("message %d got %v, and reached the app: %v; want %q, %v", i, got, passed, wantBody, test.passes[i])
				}
				if passed {
					calls := x.app.all()
					c := calls[len(calls)-1]
					x.awaitState(c.header.Get("X-Sidehook-Source"), c.id(), done)
				}
			}
		})
	}
}

// A redelivery of what the app refused passes, under its own id and under a new one: the body is no second key of what
// was never done (providers that keep the id, and those that do not).
func TestRefusedContentPassesAgain(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: replaySources})
	body := []byte(`{"ref":"refs/heads/again"}`)
	x.app.answerOnce(status(http.StatusInternalServerError))
	if got := x.post(github("try-1", body, githubSecret)); got.code != http.StatusInternalServerError {
		t.Fatalf("the first got %v, want the app's 500", got)
	}
	x.awaitFree("code", "try-1")
	if got := x.post(github("try-2", body, githubSecret)); got.body != "thanks" {
		t.Errorf("the second got %v, want the app's answer", got)
	}
	x.awaitState("code", "try-2", done)
	if got := x.post(github("try-1", body, githubSecret)); !got.is(http.StatusOK, "duplicate") {
		t.Errorf("the first again got %v, want 200 duplicate", got)
	}
}

// Events of a type that the source leaves out never reach the app; once it lets them through, the next delivery does.
func TestTypesLeftOut(t *testing.T) {
	t.Parallel()
	const only = "types: [\"charge.*\"]"
	x := start(t, setup{sources: `
  - {name: payments, match: {path_prefix: /webhooks/stripe}, provider: stripe, secrets: [{file: FOLDER/stripe}], ` + only + `}`})
	m := stripe("evt_left_out", time.Now(), stripeSecret) // an invoice.paid
	for range 2 {
		if got := x.post(m); !got.is(http.StatusOK, "ignored") {
			t.Fatalf("got %v, want 200 ignored", got)
		}
	}
	x.awaitState("payments", "evt_left_out", inboxv1.EventState_EVENT_STATE_IGNORED)
	if n := len(x.app.all()); n != 0 {
		t.Fatalf("the app was called %d times", n)
	}
	config, err := os.ReadFile(filepath.Join(x.folder, "sidehook.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	x.write("sidehook.yaml", replaceOnce(t, string(config), only, "types: [\"charge.*\", invoice.paid]"))
	eventually(t, "the event passes", func() bool { return x.post(m).body == "thanks" })
	x.awaitState("payments", "evt_left_out", done)
}

// twilioOrigin is the public origin of the source calls, as Twilio has it.
const twilioOrigin = "https://hooks.example.com"

// twilioForm is a form of Twilio's; fields are what it signs of it: names and values, sorted by name.
func twilioForm(target, form, fields string) message {
	return twilio(http.MethodPost, target, "application/x-www-form-urlencoded", form, twilioOrigin+target+fields)
}

// twilio is signed as Twilio's page says: base64 of HMAC-SHA1.
func twilio(method, target, contentType, body, signed string) message {
	h := hmac.New(sha1.New, []byte(githubSecret))
	h.Write([]byte(signed))
	m := message{method: method, target: target, body: []byte(body), header: http.Header{
		"X-Twilio-Signature": {base64.StdEncoding.EncodeToString(h.Sum(nil))},
	}}
	if contentType != "" {
		m.header.Set("Content-Type", contentType)
	}
	return m
}

// Class URL: the configured origin and the target as it was sent make the URL that Twilio signed, in the few forms that
// its libraries write; nothing that a client says of its URL counts.
func TestTwilioURLs(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: replaySources})
	const (
		form   = "application/x-www-form-urlencoded"
		json   = `{"property": "value", "boolean": true}`
		hash   = "/twilio?bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
		target = "/twilio/sms?n="
	)
	forwarded := twilio(http.MethodPost, target+"f", form, "A=1", "https://evil.example"+target+"fA1")
	for name, value := range map[string]string{
		"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "X-Forwarded-Port": "443", "Forwarded": "host=evil.example;proto=https", "X-Original-Url": target,
	} {
		forwarded.header.Set(name, value)
	}
	for _, test := range []struct {
		name    string
		message message
		refused bool
	}{
		{"as configured", twilioForm(target+"1", "A=1", "A1"), false},
		{"the standard port signed", twilio(http.MethodPost, target+"2", form, "A=1", "https://hooks.example.com:443"+target+"2A1"), false},
		{"another port signed", twilio(http.MethodPost, target+"3", form, "A=1", "https://hooks.example.com:8443"+target+"3A1"), true},
		{"http signed, as it looks inside", twilio(http.MethodPost, target+"4", form, "A=1", "http://hooks.example.com"+target+"4A1"), true},
		{"a forwarded host", forwarded, true},
		{"order and escapes of the query", twilioForm("/twilio?b=1&a=2&m=Couldn%27t+find", "A=1", "A1"), false},
		{"a query in another order", twilio(http.MethodPost, "/twilio?b=1&a=2", form, "A=1", twilioOrigin+"/twilio?a=2&b=1A1"), true},
		{"apostrophe, at and colon", twilioForm("/twilio?m=Couldn't@:find", "A=1", "A1"), false},
		{"the same escaped", twilioForm("/twilio?m=%40%3a%27", "A=1", "A1"), false},
		{"signed as escaped, sent as it is", twilio(http.MethodPost, "/twilio?m=a@b:c", form, "A=1", twilioOrigin+"/twilio?m=a%40b%3AcA1"), false},
		{"GET", twilio(http.MethodGet, "/twilio?From=%2B14155550100", "", "", twilioOrigin+"/twilio?From=%2B14155550100"), false},
		{"GET with another number", twilio(http.MethodGet, "/twilio?From=%2B14155550101", "", "", twilioOrigin+"/twilio?From=%2B14155550100"), true},
		{"repeated and empty fields", twilioForm(target+"5", "b=%20&a=&b=2&b=2&c=x+y", "ab b2cx y"), false},
		{"JSON", twilio(http.MethodPost, hash, "application/json", json, twilioOrigin+hash), false},
		{"JSON changed", twilio(http.MethodPost, hash, "application/json", json+" ", twilioOrigin+hash), true},
		{"JSON that nothing covers", twilio(http.MethodPost, target+"6", "application/json", json, twilioOrigin+target+"6"), true},
		{"JSON said to be a form", twilio(http.MethodPost, target+"7", form, json, twilioOrigin+target+"7"), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := len(x.app.all())
			got := x.post(test.message)
			reached := len(x.app.all()) > before
			if reached == test.refused || !test.refused && got.body != "thanks" || test.refused && !got.is(http.StatusUnauthorized, "bad_signature") {
				t.Errorf("got %v, reached the app: %v, want refused: %v", got, reached, test.refused)
			}
		})
	}
}
