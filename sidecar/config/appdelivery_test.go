package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/extauthz"
)

// storesTo loads a source in STORE with that delivery.
func storesTo(t *testing.T, delivery string) (*extauthz.Source, *App) {
	t.Helper()
	c, err := Parse("store.yaml", []byte(`
store: {bolt: {path: /var/lib/sidehook, volume: DURABLE}}
extauthz:
  open: [{path_prefix: /}]
  sources:
  - name: payments
    match: {path: /in}
    provider: stripe
    secrets: [{value: whsec_dGhpcyBpcyBhIHRlc3Qgc2VjcmV0ISE}]
    mode: STORE
    store_headers: [X-Kept]
    delivery: `+delivery+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return c.Gate.Sources[0], c.Gate.Apps["payments"]
}

func TestAppDelivery(t *testing.T) {
	t.Parallel()
	source, app := storesTo(t, `{url: "http://localhost:8080"}`)
	if source.Mode != extauthz.ModeStore || len(source.StoreHeaders) != 1 || source.StoreHeaders[0] != "x-kept" {
		t.Errorf("mode %d, store_headers %v", source.Mode, source.StoreHeaders)
	}
	if e := app.Endpoint; e.ID != "payments" || e.Target.URL != "http://127.0.0.1:8080/" || e.Socket != "" {
		t.Errorf("endpoint %s goes to %q, socket %q", e.ID, e.Target.URL, e.Socket)
	}
	want := egress.Policy{
		Timeout: time.Minute, Schedule: egress.DefaultSchedule(), RespectRetryAfter: true, OnGone: egress.GoneRetries, MaxInFlight: 8,
		FirstHold: time.Second, LongestHold: 30 * time.Second, HoldOnlyUnreached: true,
	}
	if diff := cmp.Diff(want, app.Endpoint.Policy); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}

	source, app = storesTo(t, `{url: "unix:/run/app.sock", path: /in, rate: 50/s, max_in_flight: 2, timeout: 5s, waits: [1s, 2s], jitter_percent: 0,
      respect_retry_after: false, stop_on: [422], order_by: {json: data.object.id}, on_dead: STOP, resign: true}`)
	if source.DeliveryPath != "/in" || !source.Resign || source.OrderBy.JSON.String() != "data.object.id" || !app.StopOnDead {
		t.Errorf("path %q, resign %v, order by %s, stop %v", source.DeliveryPath, source.Resign, source.OrderBy.JSON, app.StopOnDead)
	}
	want = egress.Policy{
		Timeout: 5 * time.Second, Schedule: egress.Schedule{Waits: []time.Duration{time.Second, 2 * time.Second}}, OnGone: egress.GoneRetries,
		MaxInFlight: 2, Rate: 50, StopOn: []int{422}, FirstHold: time.Second, LongestHold: 30 * time.Second, HoldOnlyUnreached: true,
	}
	if diff := cmp.Diff(want, app.Endpoint.Policy); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	if app.Endpoint.Socket != "/run/app.sock" {
		t.Errorf("socket %q", app.Endpoint.Socket)
	}
}

// Nothing but what is written may be dialled, whatever a name resolves to: the app's events would go to whoever answers.
func TestAppAddress(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, delivery string
		addr           string
		want           netguard.Verdict
	}{
		{"loopback", `{url: "http://127.0.0.1:8080"}`, "127.0.0.1", netguard.VerdictAllowed},
		{"another of loopback", `{url: "http://127.0.0.1:8080"}`, "127.0.0.2", netguard.VerdictLoopback},
		{"that other one", `{url: "http://127.0.0.2:8080"}`, "127.0.0.2", netguard.VerdictAllowed},
		{"IPv6 loopback", `{url: "http://[::1]:8080"}`, "::1", netguard.VerdictAllowed},
		{"a listed network", `{url: "http://app.internal:8080", allow: [10.1.2.0/24]}`, "10.1.2.7", netguard.VerdictAllowed},
		{"beside it", `{url: "http://app.internal:8080", allow: [10.1.2.0/24]}`, "10.1.3.7", netguard.VerdictPrivate},
		{"a public address", `{url: "http://app.internal:8080", allow: [10.1.2.0/24]}`, "93.184.216.34", netguard.VerdictUnlisted},
		{"loopback for a name", `{url: "http://app.internal:8080", allow: [10.1.2.0/24]}`, "127.0.0.1", netguard.VerdictLoopback},
	}
	for _, test := range tests {
		_, app := storesTo(t, test.delivery)
		if got := app.Endpoint.Filter.Judge(netip.MustParseAddr(test.addr)); got != test.want {
			t.Errorf("%s: %s is %s; want %s", test.name, test.addr, got, test.want)
		}
	}
}

// A source with a secret for each tenant can sign anew: what a delivery is signed with is read when it is made.
func TestAppDeliveryResignedByTenant(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "acme"), []byte("0123456789abcdefghijklmnopqrstuv"), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(provider string) error {
		_, err := Parse("tenants.yaml", []byte(`
store: {bolt: {path: /var/lib/sidehook, volume: DURABLE}}
extauthz:
  open: [{path_prefix: /}]
  sources:
  - name: hooks
    match: {path: "/hooks/{tenant}"}
    provider: `+provider+`
    secrets: [{folder: `+folder+`}]
    mode: STORE
    delivery: {url: "http://127.0.0.1:8080", resign: true}
`))
		return err
	}
	if err := load("github"); err != nil {
		t.Error(err)
	}
	if err := load("sendgrid"); err == nil || !strings.Contains(err.Error(), "resign") {
		t.Errorf("public keys: %v; want that nobody can sign with them", err)
	}
}
