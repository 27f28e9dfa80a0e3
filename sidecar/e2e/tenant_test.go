package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// One source for many customers: each has a secret of its own, in a file that may come, change and go while all runs.
func TestTenantsHaveSecretsOfTheirOwn(t *testing.T) {
	t.Parallel()
	secretOf := func(tenant string) string { return "whsec_of_" + tenant + "_0123456789abcdef" }
	x := start(t, setup{
		open: "[{path_prefix: /}]",
		sources: `
  - {name: hooks, match: {path: '/hooks/{tenant}'}, provider: stripe, secrets: [{folder: FOLDER/tenants}]}
  - {name: literal, match: {path: /hooks/status}, provider: stripe, secrets: [{file: FOLDER/literal}]}`,
		prepare: func(x *stack) {
			if err := os.Mkdir(filepath.Join(x.folder, "tenants"), 0o700); err != nil {
				x.t.Fatal(err)
			}
			for _, tenant := range []string{"acme", "globex"} {
				x.write("tenants/"+tenant, secretOf(tenant)+"\n")
			}
			x.write("literal", secretOf("literal"))
		},
	})
	send := func(by, target, id string) answer {
		m := stripeBody(fmt.Appendf(nil, `{"id":%q,"type":"x"}`, id), time.Now(), by)
		m.target = target
		m.header.Set("X-Sidehook-Tenant", "forged")
		return x.post(m)
	}
	// The same id of two tenants is two events.
	for _, tenant := range []string{"acme", "globex"} {
		if got := send(secretOf(tenant), "/hooks/"+tenant, "evt_shared"); got.body != "thanks" {
			t.Fatalf("%s got %v, want the app's answer", tenant, got)
		}
		calls := x.app.all()
		last := calls[len(calls)-1].header
		if got := last.Values("X-Sidehook-Tenant"); len(got) != 1 || got[0] != tenant || last.Get("X-Sidehook-Source") != "hooks" {
			t.Errorf("the app was told tenant %q of source %q", got, last.Get("X-Sidehook-Source"))
		}
	}
	eventually(t, "duplicates are known", func() bool {
		return send(secretOf("acme"), "/hooks/acme", "evt_shared").is(http.StatusOK, "duplicate") &&
			send(secretOf("globex"), "/hooks/globex", "evt_shared").is(http.StatusOK, "duplicate")
	})
	if n := len(x.app.all()); n != 2 {
		t.Errorf("the app got %d calls, want 2", n)
	}
	for _, test := range []struct {
		by, target string
		code       int
		status     string
	}{
		{"acme", "/hooks/globex", http.StatusUnauthorized, "bad_signature"},
		{"acme", "/hooks/initech", http.StatusUnauthorized, "unknown_tenant"},
		{"acme", "/hooks/acme.next", http.StatusUnauthorized, "unknown_tenant"},
		{"acme", "/hooks/status", http.StatusUnauthorized, "bad_signature"},
		// None of these may reach the app as an open path: it may know its customers by less than we ask of a name.
		{"acme", "/hooks/%61cme", http.StatusBadRequest, "ambiguous_path"},
		{"acme", "/hooks/acme/", http.StatusBadRequest, "ambiguous_path"},
		{"acme", "/hooks/ac~me", http.StatusBadRequest, "ambiguous_path"},
		{"acme", "/hooks/ac%20me", http.StatusBadRequest, "ambiguous_path"},
		{"acme", "/Hooks/acme", http.StatusBadRequest, "ambiguous_path"},
		{"acme", "/x/../hooks/acme", http.StatusBadRequest, "ambiguous_path"},
	} {
		if got := send(secretOf(test.by), test.target, "evt_other"); !got.is(test.code, test.status) {
			t.Errorf("%s as %s got %v, want %d %s", test.target, test.by, got, test.code, test.status)
		}
	}
	if got := send(secretOf("literal"), "/hooks/status", "evt_literal"); got.body != "thanks" {
		t.Errorf("the literal path got %v", got)
	}
	if got := x.post(message{method: http.MethodGet, target: "/api/orders"}); got.body != "thanks" {
		t.Errorf("an open path got %v", got)
	}

	// No restart and no reload: a customer comes, changes the secret with an overlap, and goes.
	x.write("tenants/initech", secretOf("initech"))
	eventually(t, "a new tenant passes", func() bool { return send(secretOf("initech"), "/hooks/initech", "evt_first").body == "thanks" })
	x.write("tenants/initech.next", secretOf("initech-next"))
	eventually(t, "its next secret passes", func() bool { return send(secretOf("initech-next"), "/hooks/initech", "evt_second").body == "thanks" })
	if got := send(secretOf("initech"), "/hooks/initech", "evt_third"); got.body != "thanks" {
		t.Errorf("the secret before it got %v", got)
	}
	at := filepath.Join(x.folder, "tenants", "initech")
	if err := os.Rename(at+".next", at); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old secret is refused", func() bool {
		return send(secretOf("initech"), "/hooks/initech", "evt_fourth").is(http.StatusUnauthorized, "bad_signature")
	})
	if got := send(secretOf("initech-next"), "/hooks/initech", "evt_fifth"); got.body != "thanks" {
		t.Errorf("the new secret got %v", got)
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a tenant that is gone is refused", func() bool {
		return send(secretOf("initech-next"), "/hooks/initech", "evt_sixth").is(http.StatusUnauthorized, "unknown_tenant")
	})
}
