package e2e

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// Each tenant has its own secret and its own ids: the same id of two of them is two events, and the app is told whose each is.
func TestStoreTenants(t *testing.T) {
	t.Parallel()
	x := start(t, setup{
		sources: `
  - {name: hooks, match: {path: "/hooks/{tenant}"}, provider: standard-webhooks, secrets: [{folder: FOLDER/tenants}], mode: STORE, delivery: {url: "http://APP"}}`,
		prepare: func(x *stack) {
			if err := os.Mkdir(filepath.Join(x.folder, "tenants"), 0o700); err != nil {
				t.Fatal(err)
			}
			x.write("tenants/acme", standardSecret)
			x.write("tenants/globex", otherSecret)
		},
	})
	x.app.down()
	of := map[string]string{"acme": standardSecret, "globex": otherSecret}
	for tenant, secret := range of {
		m := standard(t, "/hooks/"+tenant, "msg_same", []byte(`{"type":"a","of":"`+tenant+`"}`), time.Now(), secret)
		x.mustStore(m)
		if got := x.post(m); !got.is(http.StatusOK, "duplicate") {
			t.Errorf("%s: a repeat got %v, want 200 duplicate", tenant, got)
		}
	}
	for name, m := range map[string]message{
		"a stranger's":          standard(t, "/hooks/initech", "msg_1", []byte(`{}`), time.Now(), standardSecret),
		"with another's secret": standard(t, "/hooks/globex", "msg_1", []byte(`{}`), time.Now(), standardSecret),
	} {
		if got := x.post(m); got.code != http.StatusUnauthorized {
			t.Errorf("%s got %v, want 401", name, got)
		}
	}
	x.app.up(t)
	for _, c := range x.awaitCalls("msg_same", 2) {
		tenant := c.header.Get("X-Sidehook-Tenant")
		if c.target != "/hooks/"+tenant || !strings.Contains(string(c.body), `"of":"`+tenant+`"`) {
			t.Errorf("the app got %s with %s for the tenant %q", c.target, c.body, tenant)
		}
		delete(of, tenant)
	}
	if len(of) != 0 || len(x.app.all()) != 2 {
		t.Errorf("the app was called %d times, and got nothing of %v", len(x.app.all()), of)
	}
	for _, tenant := range []string{"acme", "globex"} {
		eventually(t, tenant+"'s event is DONE", func() bool {
			res, err := x.admin.GetEvent(t.Context(), connect.NewRequest(&inboxv1.GetEventRequest{Source: "hooks", Id: "msg_same", Tenant: tenant}))
			return err == nil && res.Msg.GetEvent().GetState() == done
		})
	}
}

// Each event of a request that carries several goes its own way: one that the app refuses comes again alone, and one that was
// kept before does not come again in another request.
func TestStoreSplit(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: `
  - {name: payouts, match: {path: /webhooks/gocardless}, provider: gocardless, secrets: [{file: FOLDER/github}], mode: STORE, split: true, delivery: {url: "http://APP", waits: [100ms, 100ms]}}`})
	event := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"resource_type":"payments","action":"confirmed"}`, id)
	}
	request := func(id string, events ...string) message {
		body := []byte(`{"events":[` + strings.Join(events, ", ") + `],"meta":{"webhook_id":"` + id + `"}}`)
		return message{method: http.MethodPost, target: "/webhooks/gocardless", body: body, header: http.Header{
			"Content-Type": {"application/json"}, "Webhook-Signature": {hex.EncodeToString(mac(githubSecret, body))},
		}}
	}
	x.app.answer(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Sidehook-Event-Id") == "EV2" && r.Header.Get("X-Sidehook-Attempt") == "1" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	x.mustStore(request("WB1", event("EV1"), event("EV2"), event("EV3")))
	x.mustStore(request("WB2", event("EV3"), event("EV4")))
	if got := x.post(request("WB3", event("EV1"), event("EV4"))); !got.is(http.StatusOK, "duplicate") {
		t.Errorf("a request of events that were all kept before got %v, want 200 duplicate", got)
	}
	for id, calls := range map[string]int{"EV1": 1, "EV2": 2, "EV3": 1, "EV4": 1} {
		x.awaitState("payouts", id, done)
		got := x.app.of(id)
		if len(got) != calls {
			t.Errorf("%s came %d times, want %d", id, len(got), calls)
		}
		for _, c := range got {
			if n := strings.Count(string(c.body), `"id"`); n != 1 || !strings.Contains(string(c.body), event(id)) || c.header.Get("X-Sidehook-Event-Type") != "payments.confirmed" {
				t.Errorf("%s came as %s of type %q", id, c.body, c.header.Get("X-Sidehook-Event-Type"))
			}
		}
	}
}
