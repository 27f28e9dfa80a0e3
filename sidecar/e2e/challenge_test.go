package e2e

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"
)

// challengeSources are those that are asked without a signature whether a URL is theirs.
const challengeSources = `
  - {name: dropbox, match: {path: /dropbox}, provider: dropbox, secrets: [{file: FOLDER/chat}]}
  - {name: x, match: {path: /x}, provider: x, secrets: [{file: FOLDER/chat}]}
  - {name: graph, match: {path: /graph}, provider: microsoft-graph, secrets: [{file: FOLDER/chat}]}
  - {name: okta, match: {path: /okta}, provider: okta, secrets: [{file: FOLDER/chat}]}
  - {name: asana, match: {path: /asana}, provider: asana, secrets: [{file: FOLDER/chat}]}
  - {name: xero, match: {path: /xero}, provider: xero, secrets: [{file: FOLDER/chat}]}
  - {name: trello, match: {path: /trello}, provider: trello, public_url: "https://hooks.example.com", secrets: [{file: FOLDER/chat}]}
  - {name: events, match: {path: /events}, provider: cloudevents, secrets: [{file: FOLDER/chat}]}
`

func xeroMessage(body, secret string) message {
	return message{method: http.MethodPost, target: "/xero", body: []byte(body), header: http.Header{
		"Content-Type": {"application/json"}, "X-Xero-Signature": {base64.StdEncoding.EncodeToString(mac(secret, []byte(body)))},
	}}
}

// Class HAND: what Envoy makes of the answers to challenges that nobody signs: to the byte, with their headers, for every
// method; once a second; and what is not answered.
func TestChallenges(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: challengeSources, prepare: func(x *stack) { x.write("chat", chatSecret) }})
	const itr = `{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"S0m3r4Nd0mt3xt"}`
	ask := func(method, target string, header ...string) message {
		m := message{method: method, target: target, header: http.Header{}}
		for i := 0; i < len(header); i += 2 {
			m.header.Set(header[i], header[i+1])
		}
		return m
	}
	event := ask(http.MethodPost, "/events", "Authorization", "Bearer "+otherSecret, "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/a", "Ce-Type", "a")
	event.body = []byte(`{}`)
	tests := []struct {
		name    string
		message message
		status  int
		body    string
		headers map[string]string
	}{
		{"dropbox", ask("GET", "/dropbox?challenge=abc-123"), 200, "abc-123", map[string]string{"Content-Type": "text/plain"}},
		{"x", ask("GET", "/x?crc_token=9b4507b3-9040-4669-9ca3-6b94edb50553"), 200,
			`{"response_token":"sha256=` + base64.StdEncoding.EncodeToString(mac(chatSecret, []byte("9b4507b3-9040-4669-9ca3-6b94edb50553"))) + `"}`,
			map[string]string{"Content-Type": "application/json"}},
		{"graph", ask("POST", "/graph?validationToken=Validation%3a+Testing+client+application"), 200, "Validation: Testing client application",
			map[string]string{"Content-Type": "text/plain"}},
		{"okta", ask("GET", "/okta", "X-Okta-Verification-Challenge", "abc"), 200, `{"verification":"abc"}`, map[string]string{"Content-Type": "application/json"}},
		{"asana", ask("POST", "/asana", "X-Hook-Secret", "b537207f20cbfa02"), 200, "", map[string]string{"X-Hook-Secret": "b537207f20cbfa02"}},
		{"xero", xeroMessage(itr, chatSecret), 200, "", nil},
		{"xero forged", xeroMessage(itr, otherSecret), 401, "", nil},
		{"trello", ask("HEAD", "/trello"), 200, "", nil},
		{"cloudevents", ask("OPTIONS", "/events", "WebHook-Request-Origin", "eventemitter.example.com", "WebHook-Request-Rate", "120"), 200, "",
			map[string]string{"Webhook-Allowed-Origin": "eventemitter.example.com", "Webhook-Allowed-Rate": "120", "Allow": "POST"}},
		{"cloudevents, another token", event, 401, `{"status":"bad_signature"}`, map[string]string{"Content-Type": "application/json"}},
	}
	t.Run("answers", func(t *testing.T) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				got := x.post(test.message)
				if got.code != test.status || got.body != test.body {
					t.Errorf("got %d, %q, want %d, %q", got.code, got.body, test.status, test.body)
				}
				for name, want := range test.headers {
					if values := got.header[name]; len(values) != 1 || values[0] != want {
						t.Errorf("%s is %q, want %q", name, values, want)
					}
				}
				if test.status < 300 && got.header.Get("X-Content-Type-Options") != "nosniff" {
					t.Error("a browser may guess the type of the challenge")
				}
			})
		}
	})
	first := time.Now()
	for asked, busy := 1, false; !busy; asked++ {
		got := x.post(ask("GET", "/dropbox?challenge=abc"))
		busy = got.code == 503 && got.header.Get("Retry-After") == "1"
		if d := time.Since(first); !busy && float64(asked) > d.Seconds()+2 {
			t.Fatalf("%d challenges were answered within %s", asked, d)
		}
	}
	if calls := x.app.all(); len(calls) != 0 {
		t.Errorf("the app got %s %s", calls[0].method, calls[0].target)
	}
	if n := x.events(); n != 0 {
		t.Errorf("the inbox has %d events", n)
	}
}
