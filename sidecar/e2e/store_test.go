package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

const (
	storedState     = inboxv1.EventState_EVENT_STATE_STORED
	delivering      = inboxv1.EventState_EVENT_STATE_DELIVERING
	deadState       = inboxv1.EventState_EVENT_STATE_DEAD
	orphanedState   = inboxv1.EventState_EVENT_STATE_ORPHANED
	discardedState  = inboxv1.EventState_EVENT_STATE_DISCARDED
	storedForTheApp = `{"status":"stored"}`
)

// storeSources are sources in STORE, one in PASS beside them, and one that keeps what others do not.
const storeSources = `
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], mode: STORE, delivery: {url: "http://APP"}}
  - {name: code, match: {path: /webhooks/github, method: POST}, provider: github, secrets: [{file: FOLDER/github}], mode: STORE, delivery: {url: "http://APP"}}
  - {name: shop, match: {path_prefix: /webhooks/shopify}, provider: shopify, secrets: [{file: FOLDER/shopify}], mode: STORE, delivery: {url: "http://APP", path: /in/orders},
     store_headers: [Authorization], reply: {status: 202, content_type: text/xml, body: "<Response/>"}}
  - {name: small, match: {path: /webhooks/small}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], mode: STORE, delivery: {url: "http://APP"}, max_body: 1Ki}
  - {name: payments, match: {path_prefix: /webhooks/stripe}, provider: stripe, secrets: [{file: FOLDER/stripe}], lease: 2s}
`

// standardIn is the source standard in STORE, with these settings of its delivery beside the URL of the app.
func standardIn(delivery string) string {
	return fmt.Sprintf(`
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], mode: STORE, delivery: {url: "http://APP", %s}}`, delivery)
}

// mustStore sends m, which must be answered as an event that was kept.
func (x *stack) mustStore(m message) {
	x.t.Helper()
	if got := x.post(m); !got.is(http.StatusOK, "stored") {
		x.t.Fatalf("the sender got %v, want 200 %s", got, storedForTheApp)
	}
}

// attempts says how the attempts of an event ended, each with a mark where it used up none.
func (x *stack) attempts(source, id string) string {
	x.t.Helper()
	var words []string
	for _, a := range x.detail(source, id).GetAttempts() {
		word := fmt.Sprint(a.GetNumber(), " ", a.GetOutcome())
		if !a.GetCounted() {
			word += " for nothing"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// awaitCalls waits until the app was called so often for an event, and returns the calls.
func (x *stack) awaitCalls(id string, n int) []call {
	x.t.Helper()
	eventually(x.t, fmt.Sprintf("the app is called %d times for %s", n, id), func() bool { return len(x.app.of(id)) >= n })
	return x.app.of(id)
}

// reload puts other sources into the configuration, and returns when it is in force.
func (x *stack) reload(sources string) {
	x.t.Helper()
	before := x.loaded()
	x.setup.sources = sources
	x.writeConfig()
	if err := x.gate.process.Signal(syscall.SIGHUP); err != nil {
		x.t.Fatal(err)
	}
	eventually(x.t, "the configuration is loaded anew", func() bool { return x.loaded().After(before) })
}

// loaded is when the configuration in force was loaded.
func (x *stack) loaded() time.Time {
	x.t.Helper()
	res, err := x.admin.GetStatus(x.t.Context(), connect.NewRequest(&inboxv1.GetStatusRequest{}))
	if err != nil {
		x.t.Fatal(err)
	}
	return res.Msg.GetConfig().GetLoadTime().AsTime()
}

// metric returns the value of a metric with its labels as it is written, "" when there is none.
func (x *stack) metric(name string) string {
	x.t.Helper()
	res, err := unixClient(x.socket("health")).Get("http://localhost/metrics")
	if err != nil {
		x.t.Fatal(err)
	}
	defer res.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(res.Body); err != nil {
		x.t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// log is what the gate has written so far.
func (x *stack) log() string {
	x.t.Helper()
	text, err := os.ReadFile(filepath.Join(x.logs, "sidehook.log"))
	if err != nil {
		x.t.Fatal(err)
	}
	return string(text)
}

// The app is down while senders send, and gets what they sent once it is up: the request as it was, byte for byte, once.
func TestStoreDeliversWhatWasSent(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: storeSources})
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	binary := github("every-byte", every, githubSecret)
	binary.header.Set("Content-Type", "application/octet-stream")
	marked := github("mark", []byte("\xef\xbb\xbf{\"a\": 1.0, \"a\":\"\\u00e9 \\/ <&> \u2028\"}\r\n\n"), githubSecret)
	chunked := github("chunked", []byte(`{"in":"single bytes"}`), githubSecret)
	chunked.chunked = true
	compressed := github("gzip", zipped(t, "", "", []byte(`{"ref":"refs/heads/main"}`), true).body, githubSecret)
	compressed.header.Set("Content-Encoding", "gzip")
	several := github("several", []byte(`{}`), githubSecret)
	several.header["X-Trace"] = []string{"first", "second"}
	several.header.Set("User-Agent", "GitHub-Hookshot/044aadd")
	several.host = "hooks.shop.example"
	large := github("large", bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16), githubSecret)
	tests := []struct {
		name, source, id, eventType string
		message                     message
	}{
		{"JSON", "standard", "msg_plain", "contact.created", contact(t, "msg_plain")},
		{"a query, below the prefix", "standard", "msg_query", "contact.created", standard(t, "/webhooks/standard/a%7Eb/~x;y?b=%2F&&a=1", "msg_query", []byte(`{"type":"contact.created"}`), time.Now(), standardSecret)},
		{"bytes that are no text", "code", "every-byte", "push", binary},
		{"a byte order mark and odd JSON", "code", "mark", "push", marked},
		{"chunks of one byte", "code", "chunked", "push", chunked},
		{"compressed", "code", "gzip", "push", compressed},
		{"repeated headers, and a host", "code", "several", "push", several},
		{"three MiB", "code", "large", "push", large},
		{"an id that has to be encoded", "standard", "msg%25%C3%A9", "a", standard(t, "/webhooks/standard", "msg%\u00e9", []byte(`{"type":"a"}`), time.Now(), standardSecret)},
	}
	x.app.down()
	for _, test := range tests {
		x.mustStore(test.message)
		if got := x.post(test.message); !got.is(http.StatusOK, "duplicate") {
			t.Errorf("%s: a repeat got %v, want 200 duplicate", test.name, got)
		}
		e := x.detail(test.source, test.id)
		if s := e.GetEvent().GetState(); s != storedState && s != delivering {
			t.Errorf("%s is %v while the app is down", test.name, s)
		}
		if r := e.GetRequest(); !bytes.Equal(r.GetBody(), test.message.body) || r.GetMethod() != test.message.method || r.GetTarget() != test.message.target {
			t.Errorf("%s is kept as %s %s with %d bytes", test.name, r.GetMethod(), r.GetTarget(), len(r.GetBody()))
		}
	}
	x.app.up(t)
	for _, test := range tests {
		x.awaitState(test.source, test.id, done)
		calls := x.app.of(test.id)
		if len(calls) != 1 {
			t.Errorf("%s: the app was called %d times, want once", test.name, len(calls))
			continue
		}
		c := calls[0]
		if c.method != test.message.method || c.target != test.message.target || !bytes.Equal(c.body, test.message.body) {
			t.Errorf("%s: the app got %s %s with %d bytes, want %s %s with %d", test.name, c.method, c.target, len(c.body), test.message.method, test.message.target, len(test.message.body))
		}
		want := test.message.header.Clone()
		want.Set("X-Sidehook-Source", test.source)
		want.Set("X-Sidehook-Event-Id", test.id)
		want.Set("X-Sidehook-Event-Type", test.eventType)
		want.Set("X-Sidehook-Redelivered", "")
		for name, values := range want {
			if got := strings.Join(c.header[name], "|"); got != strings.Join(values, "|") {
				t.Errorf("%s: the app got %s %q, want %q", test.name, name, got, values)
			}
		}
		if n := c.header.Get("X-Sidehook-Attempt"); n == "" || n == "0" {
			t.Errorf("%s: X-Sidehook-Attempt is %q", test.name, n)
		}
		if test.message.host != "" && c.host != test.message.host {
			t.Errorf("%s: the app got the host %q, want %q", test.name, c.host, test.message.host)
		}
		if got := x.post(test.message); !got.is(http.StatusOK, "duplicate") {
			t.Errorf("%s: a repeat after the delivery got %v, want 200 duplicate", test.name, got)
		}
	}
}

// What bears a secret is not kept, nor what belongs to the sender's connection or to Envoy; what store_headers names is. The
// provider's own answer stands for ours, and path for the request's.
func TestStoreKeepsNoSecrets(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: storeSources})
	dress := func(m message) message {
		for name, value := range map[string]string{
			"Authorization": "Bearer secret-in-a-header", "Cookie": "session=secret-in-a-header", "Proxy-Authorization": "Basic secret-in-a-header",
			"X-Api-Key": "secret-in-a-header", "X-Forwarded-Client-Cert": "By=secret-in-a-header",
			"X-Odd": standardSecret, "X-Sidehook-Attempt": "77", "X-Sidehook-Redelivered": "true", "X-Sidehook-Event-Id": "forged", "X-Kept": "kept",
		} {
			m.header.Set(name, value)
		}
		return m
	}
	m := dress(contact(t, "msg_dressed"))
	x.mustStore(m)
	ordered := dress(shopify("order-1", []byte(`{"id":1}`), shopifySecret))
	ordered.target += "?shop=1"
	for _, when := range []string{"at first", "again"} {
		if got := x.post(ordered); got.code != http.StatusAccepted || got.body != "<Response/>" || got.header.Get("Content-Type") != "text/xml" {
			t.Errorf("%s: the sender got %v as %q, want the source's reply", when, got, got.header.Get("Content-Type"))
		}
	}
	for source, id := range map[string]string{"standard": "msg_dressed", "shop": "order-1"} {
		x.awaitState(source, id, done)
		c := x.awaitCalls(id, 1)[0]
		for name := range c.header {
			kept := source == "shop" && name == "Authorization"
			if text := strings.Join(c.header[name], " "); !kept && (strings.Contains(text, "secret-in-a-header") || strings.Contains(text, standardSecret) && source == "standard") {
				t.Errorf("%s: the app got %s: %s", source, name, text)
			}
			if strings.HasPrefix(name, "X-Envoy-") {
				t.Errorf("%s: the app got %s, which Envoy adds: %q", source, name, c.header[name])
			}
		}
		if c.header.Get("X-Kept") != "kept" || c.header.Get("X-Sidehook-Attempt") != "1" || c.header.Get("X-Sidehook-Redelivered") != "" {
			t.Errorf("%s: the app got X-Kept %q, attempt %q, redelivered %q", source, c.header.Get("X-Kept"), c.header.Get("X-Sidehook-Attempt"), c.header.Get("X-Sidehook-Redelivered"))
		}
		for _, h := range x.detail(source, id).GetRequest().GetHeaders() {
			if strings.Contains(h.GetValue(), "secret-in-a-header") && source == "standard" {
				t.Errorf("%s: %s is kept: %s", source, h.GetName(), h.GetValue())
			}
		}
	}
	c := x.app.of("order-1")[0]
	if got := c.header.Get("Authorization"); got != "Bearer secret-in-a-header" {
		t.Errorf("store_headers: the app got Authorization %q", got)
	}
	if c.target != "/in/orders?shop=1" {
		t.Errorf("delivery.path: the app got %s", c.target)
	}
	if log := x.log(); strings.Contains(log, "secret-in-a-header") || strings.Contains(log, standardSecret) {
		t.Error("the log holds a secret")
	}
}

// What is refused is not kept, and never comes to the app.
func TestStoreRefusesAsPassDoes(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: storeSources})
	long := standard(t, "/webhooks/small", "msg_long", bytes.Repeat([]byte{'x'}, 2<<10), time.Now(), standardSecret)
	unsigned := contact(t, "msg_unsigned")
	unsigned.header.Del("Webhook-Signature")
	tests := []struct {
		name    string
		message message
		code    int
		word    string
	}{
		{"another secret", standard(t, "/webhooks/standard", "msg_other", []byte(`{}`), time.Now(), otherSecret), http.StatusUnauthorized, "bad_signature"},
		{"an old time", standard(t, "/webhooks/standard", "msg_old", []byte(`{}`), time.Now().Add(-time.Hour), standardSecret), http.StatusUnauthorized, "too_old"},
		{"no signature", unsigned, http.StatusUnauthorized, "missing_signature"},
		{"a changed body", func() message { m := contact(t, "msg_changed"); m.body = []byte(`{}`); return m }(), http.StatusUnauthorized, "bad_signature"},
		{"no source", message{method: http.MethodPost, target: "/other"}, http.StatusForbidden, "unmatched"},
	}
	for _, test := range tests {
		if got := x.post(test.message); !got.is(test.code, test.word) {
			t.Errorf("%s got %v, want %d %s", test.name, got, test.code, test.word)
		}
	}
	// Envoy buffers no more than the source takes, and says 413 itself, in its own words.
	if got := x.post(long); got.code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body beyond max_body got %v, want 413", got)
	}
	if n := x.events(); n != 0 {
		t.Errorf("%d of them are in the inbox", n)
	}
	if got := x.post(stripe("evt_beside", time.Now(), stripeSecret)); got.body != "thanks" {
		t.Errorf("a source in PASS beside those in STORE: the sender got %v, want the app's answer", got)
	}
	x.awaitState("payments", "evt_beside", done)
	x.mustStore(contact(t, "msg_beside"))
	x.awaitState("standard", "msg_beside", done)
	if all := x.app.all(); len(all) != 2 || all[0].id() != "evt_beside" || all[1].id() != "msg_beside" {
		t.Errorf("the app was called %d times, want twice", len(all))
	}
}
