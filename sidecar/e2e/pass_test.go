package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// What a user gets: a signed webhook reaches the app once, with our headers and its own bytes; every repeat gets 200.
func TestValidWebhookReachesTheAppOnce(t *testing.T) {
	t.Parallel()
	x := start(t, setup{})
	pushed := []byte(`{"ref":"refs/heads/main","before":"6113728f27ae82c7b1a177c8d03f9e96e0adf246"}`)
	ordered := []byte(`{"id":820982911946154508,"email":"jon@example.com"}`)
	tests := []struct {
		name, source, id, eventType string
		message                     message
	}{
		{"stripe", "payments", "evt_1", "invoice.paid", stripe("evt_1", time.Now(), stripeSecret)},
		{"standard-webhooks", "standard", "msg_1", "contact.created", contact(t, "msg_1")},
		{"shopify", "shop", "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043", "orders/create", shopify("b54557e4-bdd9-4b37-8a5f-bf7d70bcd043", ordered, shopifySecret)},
		{"github", "code", "72d3162e-cc78-11e3-81ab-4c9367dc0958", "push", github("72d3162e-cc78-11e3-81ab-4c9367dc0958", pushed, githubSecret)},
		{"below the prefix, with a query", "standard", "msg_2", "contact.created", standard(t, "/webhooks/standard/eu?shop=1&b=%2F", "msg_2", []byte(`{"type":"contact.created"}`), time.Now(), standardSecret)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := x.post(test.message)
			if got.code != http.StatusOK || got.body != "thanks" || got.header.Get("Server") != "unchanged-app" {
				t.Fatalf("the sender got %v, want the app's own answer", got)
			}
			calls := x.app.of(test.id)
			if len(calls) != 1 {
				t.Fatalf("the app was called %d times, want once", len(calls))
			}
			c := calls[0]
			if c.header.Get("X-Sidehook-Source") != test.source || c.header.Get("X-Sidehook-Event-Type") != test.eventType {
				t.Errorf("the app was told source %q, type %q, want %q, %q", c.header.Get("X-Sidehook-Source"), c.header.Get("X-Sidehook-Event-Type"), test.source, test.eventType)
			}
			if !bytes.Equal(c.body, test.message.body) || c.target != test.message.target || c.method != test.message.method {
				t.Errorf("the app got %s %s %q, want %s %s %q", c.method, c.target, c.body, test.message.method, test.message.target, test.message.body)
			}
			for name, want := range test.message.header {
				if got := c.header[name]; len(got) != 1 || got[0] != want[0] {
					t.Errorf("the app got %s %q, want %q", name, got, want)
				}
			}
			x.awaitState(test.source, test.id, inboxv1.EventState_EVENT_STATE_DONE)
			for range 3 {
				if got := x.post(test.message); !got.is(http.StatusOK, "duplicate") {
					t.Errorf("a repeat got %v, want 200 duplicate", got)
				}
			}
			if n := len(x.app.of(test.id)); n != 1 {
				t.Errorf("the repeats called the app: %d calls", n)
			}
		})
	}
}

// A repeat is a repeat also when it is signed anew, as Stripe's and Svix's retries are.
func TestRepeatSignedAnewIsADuplicate(t *testing.T) {
	t.Parallel()
	x := start(t, setup{})
	body := stripe("evt_anew", time.Now(), stripeSecret).body
	if got := x.post(stripeBody(body, time.Now().Add(-time.Minute), stripeSecret)); got.body != "thanks" {
		t.Fatalf("the first got %v", got)
	}
	x.awaitState("payments", "evt_anew", inboxv1.EventState_EVENT_STATE_DONE)
	if got := x.post(stripeBody(body, time.Now(), stripeSecret)); !got.is(http.StatusOK, "duplicate") {
		t.Errorf("the retry got %v, want 200 duplicate", got)
	}
}

// Nothing that is not signed with the secret, now, as it is, reaches the app or the inbox.
func TestForgedAndLateAreRefused(t *testing.T) {
	t.Parallel()
	x := start(t, setup{})
	now := time.Now()
	with := func(m message, change func(*message)) message {
		m.header = m.header.Clone()
		m.body = bytes.Clone(m.body)
		change(&m)
		return m
	}
	tests := []struct {
		name    string
		message message
		reason  string
	}{
		{"another secret", stripe("evt_2", now, otherSecret), "bad_signature"},
		{"another body", with(stripe("evt_3", now, stripeSecret), func(m *message) { m.body[len(m.body)-2] ^= 1 }), "bad_signature"},
		{"no body", with(stripe("evt_4", now, stripeSecret), func(m *message) { m.body = nil }), "bad_signature"},
		{"no signature", with(stripe("evt_5", now, stripeSecret), func(m *message) { m.header.Del("Stripe-Signature") }), "missing_signature"},
		{"no signature in the header", with(stripe("evt_6", now, stripeSecret), func(m *message) { m.header.Set("Stripe-Signature", "t=,v1") }), "malformed_signature"},
		// Two headers are read in three ways by three frameworks; merged by Envoy they would look like one list.
		{"two signature headers", with(stripe("evt_7", now, stripeSecret), func(m *message) {
			m.header["Stripe-Signature"] = append(m.header["Stripe-Signature"], "t=1,v1=00")
		}), "malformed_signature"},
		{"ten minutes late", stripe("evt_8", now.Add(-10*time.Minute), stripeSecret), "too_old"},
		{"ten minutes early", stripe("evt_9", now.Add(10*time.Minute), stripeSecret), "too_new"},
		{"signed for another source", with(contact(t, "msg_3"), func(m *message) { m.target = "/webhooks/stripe" }), "missing_signature"},
		{"another id", with(contact(t, "msg_4"), func(m *message) { m.header.Set("Webhook-Id", "msg_5") }), "bad_signature"},
		{"standard-webhooks late", standard(t, "/webhooks/standard", "msg_6", []byte(`{}`), now.Add(-10*time.Minute), standardSecret), "too_old"},
		{"shopify forged", shopify("whk_1", []byte(`{}`), otherSecret), "bad_signature"},
		{"github forged", github("gh_1", []byte(`{}`), otherSecret), "bad_signature"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := x.post(test.message); !got.is(http.StatusUnauthorized, test.reason) {
				t.Errorf("the sender got %v, want 401 %s", got, test.reason)
			}
		})
	}
	t.Cleanup(func() {
		if calls := x.app.all(); len(calls) != 0 {
			t.Errorf("the app got %d of them, the first %s %s", len(calls), calls[0].method, calls[0].target)
		}
	})
}

// Class TENANT: the route says whose key counts, and nothing that the sender wrote: not the body, not a header, not the
// name of the host. Equal ids of two sources are two events.
func TestTheRouteSaysWhoseKeyCounts(t *testing.T) {
	t.Parallel()
	x := start(t, setup{
		sources: `
  - {name: one, match: {path: /hooks/one}, provider: stripe, secrets: [{file: FOLDER/one}]}
  - {name: two, match: {path: /hooks/two}, provider: stripe, secrets: [{file: FOLDER/two}]}
  - {name: hosted, match: {host: hosted.example, path: /hooks/one}, provider: stripe, secrets: [{file: FOLDER/hosted}]}`,
		prepare: func(x *stack) {
			for _, name := range []string{"one", "two", "hosted"} {
				x.write(name, "whsec_of_"+name+"_0123456789abcdef")
			}
		},
	})
	signed := func(by, target, account string) message {
		body := fmt.Sprintf(`{"id":"evt_shared","type":"x","account":%q,"source":%q}`, account, account)
		m := stripeBody([]byte(body), time.Now(), "whsec_of_"+by+"_0123456789abcdef")
		m.target = target
		m.header.Set("X-Tenant", account)
		m.header.Set("X-Sidehook-Source", by)
		m.header.Set("Source", by)
		return m
	}
	for _, test := range []struct{ by, target, account, host string }{
		{"one", "/hooks/two", "one", ""}, {"one", "/hooks/two", "two", ""}, {"two", "/hooks/one", "two", ""},
		{"one", "/hooks/two?source=one", "one", ""}, {"one", "/hooks/two#/hooks/one", "one", ""},
		{"one", "/hooks/one", "one", "hosted.example"}, {"hosted", "/hooks/one", "hosted", ""},
		{"one", "/hooks/one", "one", "HOSTED.example:8080"},
	} {
		m := signed(test.by, test.target, test.account)
		m.host = test.host
		got := x.post(m)
		if got.code != http.StatusUnauthorized && got.code != http.StatusBadRequest { // a fragment is refused by Envoy
			t.Errorf("%+v got %v, want a refusal", test, got)
		}
	}
	if n := len(x.app.all()) + int(x.events()); n != 0 {
		t.Errorf("%d of them reached the app or the inbox", n)
	}
	for _, test := range []struct{ by, target, host string }{
		{"one", "/hooks/one", ""}, {"two", "/hooks/two", ""}, {"hosted", "/hooks/one", "hosted.example"},
	} {
		m := signed(test.by, test.target, "anybody")
		m.host = test.host
		if got := x.post(m); got.body != "thanks" {
			t.Errorf("%+v got %v, want the app's answer", test, got)
		}
		x.awaitState(test.by, "evt_shared", inboxv1.EventState_EVENT_STATE_DONE)
	}
}

// What the client sends under our names never reaches the app, on any route; nor does the secret that GitHub once sent
// along by mistake.
func TestForgedHeadersNeverReachTheApp(t *testing.T) {
	t.Parallel()
	x := start(t, setup{open: "[{path_prefix: /api}]"})
	forge := func(m message) message {
		if m.header = m.header.Clone(); m.header == nil {
			m.header = http.Header{}
		}
		for _, name := range []string{"X-Sidehook-Source", "X-Sidehook-Event-Id", "X-Sidehook-Event-Type", "X-Sidehook-Report", "X-Sidehook-Anything"} {
			m.header[name] = []string{"forged", "forged again"}
		}
		m.header.Set("X-Github-Encoded-Secret", "c2VjcmV0")
		return m
	}
	if got := x.post(forge(contact(t, "msg_forged"))); got.body != "thanks" {
		t.Fatalf("the webhook got %v", got)
	}
	if got := x.post(forge(message{method: http.MethodGet, target: "/api/orders"})); got.body != "thanks" {
		t.Fatalf("the open path got %v", got)
	}
	want := map[string]string{"X-Sidehook-Source": "standard", "X-Sidehook-Event-Id": "msg_forged", "X-Sidehook-Event-Type": "contact.created"}
	for _, c := range x.app.all() {
		for name, values := range c.header {
			if !strings.HasPrefix(name, "X-Sidehook") && name != "X-Github-Encoded-Secret" {
				continue
			}
			if c.target == "/api/orders" || len(values) != 1 || values[0] != want[name] {
				t.Errorf("%s: the app got %s %q", c.target, name, values)
			}
		}
	}
	// Frameworks that make X_SIDEHOOK_SOURCE of both see no difference; Envoy refuses the request.
	under := contact(t, "msg_underscore")
	under.header["X_Sidehook_Source"] = []string{"forged"}
	if got := x.post(under); got.code != http.StatusBadRequest {
		t.Errorf("a header with an underscore got %v, want 400", got)
	}
	if n := len(x.app.all()); n != 2 {
		t.Errorf("the app was called %d times, want 2", n)
	}
}

func TestUnmatchedIsRefusedAndOpenPasses(t *testing.T) {
	t.Parallel()
	x := start(t, setup{open: "[{path_prefix: /api}, {path: /webhooks/stripe/health}]"})
	tests := []struct {
		method, target string
		word           string // of the gate's refusal; empty: the app answers
	}{
		{http.MethodGet, "/api", ""},
		{http.MethodDelete, "/api/orders/1?x=%20", ""},
		{http.MethodGet, "/webhooks/stripe/health", ""}, // an open path inside a source's
		{http.MethodGet, "/", "unmatched"},
		{http.MethodGet, "/apiary", "unmatched"},
		{http.MethodPost, "/webhooks", "unmatched"},
		{http.MethodGet, "/webhooks/github", "unmatched"}, // the source takes POST
	}
	for _, test := range tests {
		t.Run(test.method+" "+test.target, func(t *testing.T) {
			t.Parallel()
			got := x.post(message{method: test.method, target: test.target})
			if test.word == "" && got.body != "thanks" {
				t.Errorf("got %v, want the app's answer", got)
			}
			if test.word != "" && !got.is(http.StatusForbidden, test.word) {
				t.Errorf("got %v, want 403 %s", got, test.word)
			}
		})
	}
}

// Case SIZE 56: what is no webhook is not held back and not limited.
func TestUploadOnAnOpenRouteIsNotBuffered(t *testing.T) {
	t.Parallel()
	x := start(t, setup{open: "[{path_prefix: /api}]"})
	upload := bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16*16) // 48 MiB, more than any source takes
	if got := x.post(message{method: http.MethodPut, target: "/api/files/1", body: upload}); got.body != "thanks" {
		t.Fatalf("got %v", got)
	}
	if got := x.app.all()[0].body; !bytes.Equal(got, upload) {
		t.Errorf("the app got %d bytes, want all %d", len(got), len(upload))
	}
}

// Everything that some server would read as a source's path, and that is not it, is refused: the app might be that
// server. The catch-all open shows that nothing slips through as "no source's".
func TestAmbiguousPathsAreRefused(t *testing.T) {
	t.Parallel()
	x := start(t, setup{open: "[{path_prefix: /}]"})
	body := contact(t, "msg_path")
	for _, path := range []string{
		"//webhooks/standard", "/webhooks//standard", "/api/../webhooks/standard", "/./webhooks/standard",
		"/webhooks/%73tandard", "/webhooks/%2573tandard", "/WEBHOOKS/Standard", "/webhooks;v=1/standard",
		"/webhooks\\standard", "/webhooks%5Cstandard", "/webhooks%2Fstandard", "/api/%2e%2e/webhooks/standard",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			m := body
			m.target = path
			got := x.post(m)
			// Escaped slashes are refused by Envoy, in its own words.
			if !got.is(http.StatusBadRequest, "ambiguous_path") && (got.code != http.StatusBadRequest || !strings.Contains(path, "%5C") && !strings.Contains(path, "%2F")) {
				t.Errorf("got %v, want 400 ambiguous_path", got)
			}
		})
	}
	t.Cleanup(func() {
		if calls := x.app.all(); len(calls) != 0 {
			t.Errorf("the app got %s %s", calls[0].method, calls[0].target)
		}
	})
}

// Case URL 47: the query is signed as it was sent, and some senders' own encoding is odd.
func TestSignedURLReachesTheGateAsSent(t *testing.T) {
	t.Parallel()
	x := start(t, setup{})
	for i, target := range []string{
		"/webhooks/square?b=1&a=2&m=Couldn%27t+find", "/webhooks/square/a%7Eb?x=%7e&&y", "/webhooks/square/it's@home:1?q=//x/../y",
	} {
		body := fmt.Appendf(nil, `{"event_id":"sq_%d","type":"payment.updated"}`, i)
		if got := x.post(square(target, body, squareSecret)); got.body != "thanks" {
			t.Errorf("%s: got %v, want the app's answer", target, got)
		}
		if calls := x.app.of(fmt.Sprintf("sq_%d", i)); len(calls) != 1 || calls[0].target != target {
			t.Errorf("%s: the app got %+v", target, calls)
		}
	}
	forged := square("/webhooks/square?a=1", []byte(`{"event_id":"sq_9","type":"x"}`), squareSecret)
	forged.target = "/webhooks/square?a=2"
	forged.header.Set("X-Forwarded-Host", "shop.example")
	if got := x.post(forged); !got.is(http.StatusForbidden, "bad_signature") && !got.is(http.StatusUnauthorized, "bad_signature") {
		t.Errorf("another query got %v, want a refusal with bad_signature", got)
	}
}
