package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	svix "github.com/svix/svix-webhooks/go"
)

// corpusSources take the same payloads, each signed in another way.
const corpusSources = `
  - {name: code, match: {path: /webhooks/github, method: POST}, provider: github, secrets: [{file: FOLDER/github}], accept_loss: true, max_body: 25Mi}
  - {name: payments, match: {path_prefix: /webhooks/stripe}, provider: stripe, secrets: [{file: FOLDER/stripe}]}
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}]}
  - {name: svix, match: {path: /webhooks/svix}, provider: svix, secrets: [{file: FOLDER/standard}]}
`

// svixMessage is a message signed by Svix's own library.
func svixMessage(t *testing.T, id string, body []byte) message {
	t.Helper()
	hook, err := svix.NewWebhook(standardSecret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signature, err := hook.Sign(id, now, body)
	if err != nil {
		t.Fatal(err)
	}
	return message{method: http.MethodPost, target: "/webhooks/svix", body: body, header: http.Header{
		"Content-Type": {"application/json"}, "Svix-Id": {id}, "Svix-Timestamp": {strconv.FormatInt(now.Unix(), 10)}, "Svix-Signature": {signature},
	}}
}

// Payloads as GitHub sends them, signed by the libraries of Stripe, Standard Webhooks and Svix and by GitHub's formula, reach an
// app that sends back what it got: the bytes are those that were sent, there and back. The same payload of another layout is
// refused under the first one's signature.
func TestPublicPayloadsPassByteForByte(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/octokit/*.json")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d payloads: %v", len(files), err)
	}
	x := start(t, setup{sources: corpusSources})
	x.app.answer(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		if _, err := body.ReadFrom(r.Body); err != nil {
			t.Errorf("the app reads: %v", err)
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(body.Bytes()) // the sender may have gone
	})
	for _, file := range files {
		indented, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, indented); err != nil {
			t.Fatal(err)
		}
		event := strings.TrimSuffix(filepath.Base(file), ".json")
		// GitHub sends JSON without blanks; the corpus has it indented.
		for layout, body := range map[string][]byte{"compact": compact.Bytes(), "indented": indented} {
			other := indented
			if layout == "indented" {
				other = compact.Bytes()
			}
			id := event + "-" + layout
			hub := github("delivery-"+id, body, githubSecret)
			hub.header.Set("X-Github-Event", event)
			for name, m := range map[string]message{
				"github":            hub,
				"stripe":            stripeBody([]byte(`{"id":"evt_`+id+`","type":"github.`+event+`","data":`+string(body)+`}`), time.Now(), stripeSecret),
				"standard-webhooks": standard(t, "/webhooks/standard", "msg_"+id, body, time.Now(), standardSecret),
				"svix":              svixMessage(t, "msg_"+id, body),
			} {
				t.Run(name+"/"+id, func(t *testing.T) {
					t.Parallel()
					if name != "stripe" {
						changed := m
						changed.body = other
						if got := x.post(changed); !got.is(http.StatusUnauthorized, "bad_signature") {
							t.Errorf("of another layout: got %d %.60q, want 401 bad_signature", got.code, got.body)
						}
					}
					if got := x.post(m); got.code != http.StatusOK || got.body != string(m.body) {
						t.Errorf("got %d and %d bytes, want those %d back that were sent: %.80q", got.code, len(got.body), len(m.body), got.body)
					}
				})
			}
		}
	}
}
