package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

var (
	// withRequestBody is the setting wherever it stands, filterBody where it stands on a line of the filter's depth.
	withRequestBody = regexp.MustCompile(`with_request_body: \{[^}]*\}`)
	filterBody      = regexp.MustCompile(`(?m)^ {14}with_request_body: .*$`)
)

// Settings of an Envoy by which it loses the body of a webhook: they must not look like a forgery, for then the sender
// is told 401 and an operator looks at the secret. And nothing may pass.
func TestEnvoyThatLosesTheBodyIsToldFromForgery(t *testing.T) {
	t.Parallel()
	const whole = "allow_partial_message: false, pack_as_bytes: true}"
	tests := []struct {
		name    string
		envoy   func(*testing.T, string) string
		body    string
		setting string // in the gate's log
	}{
		{"buffering off", func(t *testing.T, b string) string {
			return withRequestBody.ReplaceAllString(filterBody.ReplaceAllString(b, ""), "disable_request_body_buffering: true")
		}, `{"type":"x"}`, "with_request_body"},
		{"text instead of bytes", func(t *testing.T, b string) string {
			return replaceAll(t, b, whole, "allow_partial_message: false, pack_as_bytes: false}")
		}, "{\"type\":\"\xff\"}", "pack_as_bytes"},
		{"text that would have survived", func(t *testing.T, b string) string {
			return replaceAll(t, b, whole, "allow_partial_message: false, pack_as_bytes: false}")
		}, `{"type":"x"}`, "pack_as_bytes"},
		{"half of it", func(t *testing.T, b string) string {
			return withRequestBody.ReplaceAllString(b, "with_request_body: {max_request_bytes: 16, allow_partial_message: true, pack_as_bytes: true}")
		}, `{"type":"longer than sixteen bytes"}`, "allow_partial_message"},
		// Per-route settings are found by the filter's name; under another one they are ignored, that of our own too.
		{"another filter name and no buffering", func(t *testing.T, b string) string {
			b = replaceOnce(t, b, "- name: envoy.filters.http.ext_authz\n", "- name: my-gate\n")
			return filterBody.ReplaceAllString(b, "")
		}, `{"type":"x"}`, "with_request_body"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := start(t, setup{envoy: func(b string) string { return test.envoy(t, b) }})
			m := standard(t, "/webhooks/standard", "msg_lost", []byte(test.body), time.Now(), standardSecret)
			if got := x.post(m); !got.is(http.StatusInternalServerError, "body_not_forwarded") {
				t.Errorf("the sender got %v, want 500 body_not_forwarded", got)
			}
			if n := len(x.app.all()); n != 0 {
				t.Errorf("the app was called %d times", n)
			}
			if n := x.events(); n != 0 {
				t.Errorf("the inbox has %d events", n)
			}
			log, err := os.ReadFile(filepath.Join(x.logs, "sidehook.log"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(log), test.setting) {
				t.Errorf("the log does not name %s:\n%s", test.setting, log)
			}
		})
	}
}

// What differs from our configuration and loses nothing works.
func TestEnvoyConfiguredOtherwiseWorks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		envoy func(*testing.T, string) string
	}{
		// The gate finds the source by its match, and the confirm by Envoy's namespace, which has not the filter's name.
		{"another filter name", func(t *testing.T, b string) string {
			return replaceOnce(t, b, "- name: envoy.filters.http.ext_authz\n", "- name: my-gate\n")
		}},
		{"merged headers", func(t *testing.T, b string) string {
			return replaceOnce(t, b, "encode_raw_headers: true", "encode_raw_headers: false")
		}},
		{"partial bodies allowed, this one whole", func(t *testing.T, b string) string {
			return replaceAll(t, b, "allow_partial_message: false", "allow_partial_message: true")
		}},
		{"single access log entries", func(t *testing.T, b string) string {
			return replaceOnce(t, b, "buffer_size_bytes: 65536", "buffer_size_bytes: 0")
		}},
		{"access log without our filter", func(t *testing.T, b string) string {
			return replaceOnce(t, b, "value: {present_match: true}\n                match_if_key_not_found: false", "value: {present_match: true}\n                match_if_key_not_found: true")
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := start(t, setup{envoy: func(b string) string { return test.envoy(t, b) }})
			m := contact(t, "msg_other")
			if got := x.post(m); got.body != "thanks" {
				t.Fatalf("the sender got %v", got)
			}
			x.awaitState("standard", "msg_other", done)
			if got := x.post(m); !got.is(http.StatusOK, "duplicate") {
				t.Errorf("a repeat got %v, want 200 duplicate", got)
			}
		})
	}
}

// An Envoy that reports nothing, or loses the claim's token on the way: webhooks go on, each free again after its lease,
// and the gate says what is wrong without taking the app out of its Service.
func TestConfirmsThatDoNotArriveAreTold(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		envoy func(*testing.T, string) string
	}{
		{"no token in the metadata", func(t *testing.T, b string) string {
			return replaceOnce(t, b, "enable_dynamic_metadata_ingestion: true", "enable_dynamic_metadata_ingestion: false")
		}},
		{"no access log", func(t *testing.T, b string) string {
			return replaceOnce(t, b, "path: [{key: sidehook}]", "path: [{key: something-else}]")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := start(t, setup{envoy: func(b string) string { return test.envoy(t, b) }})
			for i := range 20 {
				if got := x.post(contact(t, fmt.Sprintf("msg_%d", i))); got.body != "thanks" {
					t.Fatalf("the sender got %v", got)
				}
			}
			if e := x.event("standard", "msg_0"); e.GetState() != inboxv1.EventState_EVENT_STATE_PENDING {
				t.Errorf("without a confirm the event is %v", e)
			}
			health := unixClient(x.socket("health"))
			defer health.CloseIdleConnections()
			eventually(t, "/readyz names the source without confirms, and says yes", func() bool {
				res, err := health.Get("http://localhost/readyz")
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != http.StatusOK {
					t.Fatalf("/readyz says %s, %v", res.Status, err)
				}
				return strings.Contains(string(text), "standard")
			})
		})
	}
}

// The gate on a port, as it is by default; the other tests have it on a Unix socket.
func TestGateOnAPort(t *testing.T) {
	t.Parallel()
	x := start(t, setup{tcp: true, workers: 2})
	for _, m := range []message{contact(t, "msg_tcp"), standard(t, "/webhooks/sync", "msg_tcp", []byte(`{}`), time.Now(), standardSecret)} {
		if got := x.post(m); got.body != "thanks" {
			t.Errorf("the sender got %v", got)
		}
	}
	x.awaitState("standard", "msg_tcp", done)
	x.awaitState("sync", "msg_tcp", done)
}

// An Envoy that holds back more than any source takes announces so much: the gate says 413 before it receives that.
func TestEnvoyThatTakesMoreThanTheGate(t *testing.T) {
	t.Parallel()
	x := start(t, setup{envoy: func(b string) string {
		return replaceAll(t, b, "max_request_bytes: 26214400", "max_request_bytes: 52428800")
	}})
	for name, chunked := range map[string]bool{"with its length": false, "in chunks": true} {
		m := github("delivery", bytes.Repeat([]byte("x"), 26<<20), githubSecret)
		var body io.Reader = bytes.NewReader(m.body)
		if chunked {
			body = io.MultiReader(body)
		}
		got, err := sendFrom(t.Context(), client, x.url, m, body)
		if err != nil || !got.is(http.StatusRequestEntityTooLarge, "too_large") {
			t.Errorf("%s: got %v, %v, want 413 too_large", name, got, err)
		}
	}
	if n := len(x.app.all()); n != 0 {
		t.Errorf("the app was called %d times", n)
	}
}
