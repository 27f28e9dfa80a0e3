package config

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/extauthz"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := writeFile(t, dir, "key", strongSecret+"\n")
	next := writeFile(t, dir, "next", "another-secret-of-some-length")
	path := writeFile(t, dir, "sidehook.yaml", `
store:
  bolt: {path: /var/lib/sidehook/}
  limit: 2Gi
extauthz:
  listen: localhost:9191
  open: [{host: app.example.com, path_prefix: /}]
  sources:
  - name: payments
    was: [money]
    match: {host: Hooks.Example.com, path_prefix: /webhooks/acme, method: POST}
    scheme:
      algorithm: HMAC_SHA256
      signed: "{timestamp}.{body}"
      signature: {header: X-Acme-Signature, list: ",", key_value: v1}
      timestamp: {header: X-Acme-Time}
      id: {header: X-Acme-Id}
      type: {json: type}
    types: [invoice.*, charge.refunded]
    secrets:
    - {file: `+key+`}
    - {file: `+next+`, until: 2027-01-31T00:00:00Z}
    tolerance: 2m
    retention: 30d
    lease: 1m30s
    in_flight_wait: 5s
    confirm: EXT_PROC
    on_unknown: HOLD
    dedupe: {content_window: 1d12h}
    enforce: REPORT
    reply: {status: 204}
    max_body: 2Mi
admin: {listen: "unix:/run/sidehook/admin.sock", token: {file: `+next+`}}
health: {listen: "0.0.0.0:9394"}
limits: {bodies_in_flight: 64Mi, source_percent: 80}
log: {level: WARN, format: TEXT}
`)
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.Path != path || !cmp.Equal(c.Files, []string{path, key, next}) && !cmp.Equal(c.Files, []string{path, next, key}) {
		t.Errorf("Path %s, Files %s", c.Path, c.Files)
	}
	if c.Store.Path != "/var/lib/sidehook" || c.Store.LimitBytes != 2<<30 {
		t.Errorf("Store = %+v", c.Store)
	}
	if c.Admin.Listen != "unix:/run/sidehook/admin.sock" || string(c.Admin.Token.Bytes()) != "another-secret-of-some-length" {
		t.Errorf("Admin = %+v", c.Admin)
	}
	if c.Health.Listen != "0.0.0.0:9394" || c.Limits != (Limits{BodiesInFlightBytes: 64 << 20, SourcePercent: 80}) || c.Log.Level != 4 || !c.Log.Text {
		t.Errorf("Health %+v, Limits %+v, Log %+v", c.Health, c.Limits, c.Log)
	}
	g := c.Gate
	if g.Listen != "127.0.0.1:9191" || g.MaxBodyBytes != 2<<20 || !cmp.Equal(g.Open, []extauthz.Match{{Host: "app.example.com", PathPrefix: "/"}}) {
		t.Errorf("Gate: listen %s, max body %d, open %v", g.Listen, g.MaxBodyBytes, g.Open)
	}
	s := g.Sources[0]
	want := extauthz.Source{
		Name: "payments", Was: []string{"money"}, Provider: "custom", Mode: extauthz.ModePass,
		Matches:   []extauthz.Match{{Host: "hooks.example.com", PathPrefix: "/webhooks/acme", Method: "POST"}},
		Tolerance: 2 * time.Minute, Enforce: extauthz.EnforceReport,
		Lease: 90 * time.Second, InFlightWait: 5 * time.Second, Retention: 30 * 24 * time.Hour, ContentWindow: 36 * time.Hour,
		Confirm: extauthz.ConfirmExtProc, OnUnknown: extauthz.OnUnknownHold,
		MaxBodyBytes: 2 << 20, RefusalStatus: 401, Reply: extauthz.Reply{Status: 204}, RequireID: true,
		Types: []string{"invoice.*", "charge.refunded"},
	}
	plain := *s
	plain.Verifier, plain.Keys = nil, nil // they are looked at by what they do
	if diff := cmp.Diff(want, plain); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if got, _ := g.Table.Lookup("hooks.example.com", "POST", "/webhooks/acme/x"); got != s {
		t.Errorf("the table finds %v for the source's own path", got)
	}
	if len(s.Keys) != 2 || !s.Keys[0].Until.IsZero() || !s.Keys[1].Until.Equal(time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("Keys = %d, until %v", len(s.Keys), s.Keys)
	}
	if len(c.Warnings) != 0 {
		t.Errorf("warnings where none is due: %q", c.Warnings)
	}
}

func TestLoadNoFile(t *testing.T) {
	t.Parallel()
	_, err := Load(filepath.Join(t.TempDir(), "sidehook.yaml"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "read config: ") {
		t.Errorf("Load() = %v, want that there is no such file", err)
	}
}

// A file that is cut off must not be taken for the whole: what is too large is refused, whatever its beginning says.
func TestLoadRefusesALargeFile(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	text := func(size int) string {
		const config = "health: {listen: \":9394\"}\n"
		return config + strings.Repeat("#", size-len(config)-1) + "\n"
	}
	dir := t.TempDir()
	if _, err := Load(writeFile(t, dir, "whole.yaml", text(most))); err != nil {
		t.Errorf("%d bytes: %v", most, err)
	}
	for _, size := range []int{most + 1, 2 * most} {
		_, err := Load(writeFile(t, dir, "large.yaml", text(size)))
		if err == nil || !strings.Contains(err.Error(), "a configuration has at most 1Mi") {
			t.Errorf("%d bytes: %v, want what is the most", size, err)
		}
	}
}
