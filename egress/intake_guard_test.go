package egress

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func TestIntakeGuard(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		host  string
		pairs []string
		code  string // "" is: let in
	}{
		{"a loopback name", "localhost:9292", nil, ""},
		{"a loopback address", "127.0.0.1:9292", nil, ""},
		{"IPv6", "[::1]:9292", nil, ""},
		{"a configured name, with a port and in another case", "Sidehook.internal:9292", nil, ""},
		{"a name that ends like a configured one", "x.sidehook.internal", nil, "forwarded_request"},
		{"a page that rebinds its name", "evil.example:9292", nil, "forwarded_request"},
		{"the pod's address", "10.1.2.3:9292", nil, "forwarded_request"},
		{"no host", "", nil, "forwarded_request"},
		{"a browser", "localhost", []string{"Origin", "https://evil.example"}, "forwarded_request"},
		{"a browser's page without an origin", "localhost", []string{"Origin", "null"}, "forwarded_request"},
		{"an empty Origin", "localhost", []string{"Origin", ""}, "forwarded_request"},
		{"a page of another site", "localhost", []string{"Sec-Fetch-Site", "cross-site"}, "forwarded_request"},
		{"a page of localhost on another port", "localhost", []string{"Sec-Fetch-Site", "same-site"}, "forwarded_request"},
		{"Sec-Fetch-Site twice", "localhost", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Site", "none"}, "forwarded_request"},
		{"a person's own doing", "localhost", []string{"Sec-Fetch-Site", "none"}, ""},
		{"fetch of Node, which sends the mode alone", "localhost", []string{"Sec-Fetch-Mode", "cors"}, ""},
		{"Forwarded", "localhost", []string{"Forwarded", "for=192.0.2.1"}, "forwarded_request"},
		{"Via", "localhost", []string{"Via", "1.1 proxy"}, "forwarded_request"},
		{"X-Forwarded-For", "localhost", []string{"X-Forwarded-For", "192.0.2.1"}, "forwarded_request"},
		{"X-Forwarded-Proto", "localhost", []string{"x-forwarded-proto", "https"}, "forwarded_request"},
		{"any other of them", "localhost", []string{"X-FORWARDED-PREFIX", ""}, "forwarded_request"},
		{"a delivery of ours", "localhost", []string{"Webhook-Signature", "v1,x", "User-Agent", "sidehook/1.2.0"}, "forwarded_request"},
		{"a delivery of ours without a version", "localhost", []string{"Webhook-Signature", "v1,x", "User-Agent", "sidehook"}, "forwarded_request"},
		{"a delivery of ours, renamed on its way", "localhost", []string{"Webhook-Signature", "v1,x", "Webhook-Attempt", "1", "User-Agent", "proxy"}, "forwarded_request"},
		{"another sender's signature that an app passes on", "localhost", []string{"Webhook-Signature", "v1,x", "User-Agent", "app/1"}, ""},
		{"our name without a signature", "localhost", []string{"User-Agent", "sidehook/1.2.0"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := new(intakeOutbox)
			var log bytes.Buffer
			in, counts := newTestIntake(o, func(c *IntakeConfig) {
				c.Settings.Hosts = []string{"sidehook.internal"}
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			r := intakeJSON(`{"type":"a","data":1}`, tt.pairs...)
			r.Host = tt.host
			w := serveIntake(in, r)
			if tt.code == "" {
				if w.Code != http.StatusAccepted || log.Len() > 0 {
					t.Errorf("%d %s, log %q", w.Code, w.Body, log.String())
				}
				return
			}
			checkProblem(t, w, http.StatusForbidden, tt.code)
			if counts.get()[tt.code] != 1 || !strings.Contains(log.String(), "intake request refused") {
				t.Errorf("counted %v, log %q", counts.get(), log.String())
			}
		})
	}
}

func TestIntakeToken(t *testing.T) {
	t.Parallel()
	token := []byte("first-token-of-the-intake")
	in, _ := newTestIntake(new(intakeOutbox), func(c *IntakeConfig) { c.Token = func() []byte { return token } })
	post := func(pairs ...string) int {
		w := serveIntake(in, intakeJSON(`{"type":"a","data":1}`, pairs...))
		if w.Code != http.StatusAccepted {
			checkProblem(t, w, http.StatusUnauthorized, "unauthorized")
			if got := w.Header().Get("WWW-Authenticate"); got != `Bearer realm="sidehook"` {
				t.Errorf("WWW-Authenticate %q", got)
			}
			if strings.Contains(w.Body.String(), string(token)) {
				t.Errorf("the answer tells the token: %s", w.Body)
			}
		}
		return w.Code
	}
	if got := post("Authorization", "Bearer first-token-of-the-intake"); got != http.StatusAccepted {
		t.Errorf("the token: %d", got)
	}
	if got := post(); got != http.StatusUnauthorized {
		t.Errorf("no token: %d", got)
	}
	if got := post("Authorization", "Bearer wrong"); got != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", got)
	}
	token = []byte("second-token-of-the-intake")
	if got := post("Authorization", "Bearer first-token-of-the-intake"); got != http.StatusUnauthorized {
		t.Errorf("the old token after a reload: %d", got)
	}
	if got := post("Authorization", "Bearer second-token-of-the-intake"); got != http.StatusAccepted {
		t.Errorf("the new token after a reload: %d", got)
	}
	w := serveIntake(in, intakeJSON(`{"type":"a","data":1}`, "Origin", "null", "Authorization", "Bearer wrong"))
	checkProblemNamed(t, "what is refused anyway learns nothing about its token", w, http.StatusForbidden, "forwarded_request")
}
