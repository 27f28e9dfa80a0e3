package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/internal/store"
	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

func TestRegistryAdd(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := openRegistry(t, folder, testSealer(t, sealKeyA))
	r.configure(t, configured("filed"))
	spec := specOf("https://hooks.acme.example/in?token=t0ken")
	spec.Tenant, spec.EventTypes, spec.Owner = "acme", []string{"invoice.*"}, "ops@acme.example"
	spec.Headers = []*egressv1.Header{{Name: "Authorization", Value: "Bearer s3cr3t-of-acme"}}
	g, shown, err := r.Add(t.Context(), "acme", spec, kindHMAC)
	if err != nil {
		t.Fatal(err)
	}
	_, pair, err := r.Add(t.Context(), "pair", specOf("https://pair.example/"), kindPair)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(shown, "whsec_") || !strings.HasPrefix(pair, "whpk_") {
		t.Errorf("shown %q and %q, want whsec_… and whpk_…", shown, pair)
	}
	if got, want := inForce(r.Registry), []string{"filed", "acme", "pair"}; !slices.Equal(got, want) {
		t.Errorf("in force: %q, want %q", got, want)
	}
	if got, want := r.outbox.knows(), []string{"acme", "filed", "pair"}; !slices.Equal(got, want) {
		t.Errorf("the outbox knows %q, want %q", got, want)
	}
	if !g.Wants("invoice.paid", "acme") || g.Wants("invoice.paid", "") || g.Owner != "ops@acme.example" ||
		g.Policy.MaxInFlight != 8 || g.Target.Host != "hooks.acme.example" {
		t.Errorf("in force as %+v", g.Endpoint)
	}
	// It is the same after a restart, and nothing secret lies in the file.
	r.close()
	file, err := os.ReadFile(r.store.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{strings.TrimPrefix(shown, "whsec_"), "s3cr3t-of-acme"} {
		if bytes.Contains(file, []byte(s)) {
			t.Errorf("the store holds %q", s)
		}
	}
	if !bytes.Contains(file, []byte("hooks.acme.example")) {
		t.Error("the test does not see what lies in the file")
	}
	r = openRegistry(t, folder, testSealer(t, sealKeyA))
	r.configure(t)
	if got, want := inForce(r.Registry), []string{"acme", "pair"}; !slices.Equal(got, want) {
		t.Fatalf("in force after a restart: %q, want %q", got, want)
	}
	e := r.Endpoints().ByID("acme")
	if !verifies(t, e, shown, time.Now()) || !verifies(t, r.Endpoints().ByID("pair"), pair, time.Now()) {
		t.Error("after a restart the keys are others")
	}
	if diff := cmp.Diff([]signature.Field{{Name: "Authorization", Value: "Bearer s3cr3t-of-acme"}}, e.Headers); diff != "" {
		t.Errorf("headers after a restart (-want +got):\n%s", diff)
	}
}

func TestRegistryRefuses(t *testing.T) {
	t.Parallel()
	r := newTestRegistry(t)
	r.configure(t, configured("filed"))
	r.add(t, "taken", specOf("https://taken.example/"))
	for _, tc := range []struct {
		name, id string
		spec     *egressv1.EndpointSpec
		want     error
		text     string // of the error
	}{
		{"taken", "taken", specOf("https://a.example/"), ErrExists, ""},
		{"taken by the configuration", "filed", specOf("https://a.example/"), ErrExists, ""},
		{"no id", "", specOf("https://a.example/"), ErrSpec, "id:"},
		{"id in capitals", "Acme", specOf("https://a.example/"), ErrSpec, "id:"},
		{"id that ends with a dash", "acme-", specOf("https://a.example/"), ErrSpec, "id:"},
		{"id of 64 characters", strings.Repeat("a", 64), specOf("https://a.example/"), ErrSpec, "id:"},
		// It would be the row that says whether sending is paused.
		{"id of the pause", "!paused", specOf("https://a.example/"), ErrSpec, "id:"},
		{"no spec", "a", nil, ErrSpec, "url: required"},
		{"http", "a", specOf("http://a.example/"), ErrSpec, "url:"},
		{"private address", "a", specOf("https://10.0.0.1/"), ErrSpec, "url:"},
		{"userinfo", "a", specOf("https://u:pa55@a.example/"), ErrSpec, "url:"},
		{"long url", "a", specOf("https://a.example/" + strings.Repeat("a", 2048)), ErrSpec, "url:"},
		{"tenant", "a", &egressv1.EndpointSpec{Url: "https://a.example/", Tenant: "a b"}, ErrSpec, "tenant:"},
		{"type with a star inside", "a", &egressv1.EndpointSpec{Url: "https://a.example/", EventTypes: []string{"a", "b*"}}, ErrSpec, "event_types[1]:"},
		{"type of nothing but a star behind a dot", "a", &egressv1.EndpointSpec{Url: "https://a.example/", EventTypes: []string{".*"}}, ErrSpec, "event_types[0]:"},
		{"owner with a name", "a", &egressv1.EndpointSpec{Url: "https://a.example/", Owner: "Ops <ops@a.example>"}, ErrSpec, "owner:"},
		{"owner with a line end", "a", &egressv1.EndpointSpec{Url: "https://a.example/", Owner: "ops@a.example\r\nBcc: x@y.example"}, ErrSpec, "owner:"},
		{"our header", "a", withHeader("Webhook-Signature", "v1,x"), ErrSpec, "headers[0]"},
		{"header that ends a line", "a", withHeader("X-A", "b\r\nHost: c"), ErrSpec, "headers[0]"},
		{"header twice", "a", &egressv1.EndpointSpec{Url: "https://a.example/", Headers: []*egressv1.Header{{Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}}}, ErrSpec, "headers[1].name:"},
		{"header of 5000 bytes", "a", withHeader("X-A", strings.Repeat("a", 5000)), ErrSpec, "headers[0].value:"},
		{"40 KiB in all", "a", &egressv1.EndpointSpec{Url: "https://a.example/", EventTypes: slices.Repeat([]string{strings.Repeat("a", 200)}, 200)}, ErrSpec, "spec:"},
		{"policy", "a", &egressv1.EndpointSpec{Url: "https://a.example/", Policy: &egressv1.DeliveryPolicy{Rate: new(-1.0)}}, ErrSpec, "invalid endpoint: policy.rate: -1 is not within 0 to 1000000"},
		{"everything at once", "a", &egressv1.EndpointSpec{Url: "http://a.example/", Tenant: "a b", Owner: "x"}, ErrSpec, "owner:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, shown, err := r.Add(t.Context(), tc.id, tc.spec, kindHMAC)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) || shown != "" {
				t.Errorf("Add: %v, want %v naming %q", err, tc.want, tc.text)
			}
			for _, secret := range []string{"pa55", "Host: c", "v1,x"} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("the error repeats a value: %v", err)
				}
			}
		})
	}
	t.Run("kind", func(t *testing.T) {
		t.Parallel()
		if _, _, err := r.Add(t.Context(), "k", specOf("https://a.example/"), 99); !errors.Is(err, ErrSpec) {
			t.Errorf("an unknown kind of key: %v, want ErrSpec", err)
		}
	})
}

func withHeader(name, value string) *egressv1.EndpointSpec {
	return &egressv1.EndpointSpec{Url: "https://a.example/", Headers: []*egressv1.Header{{Name: name, Value: value}}}
}

func TestRegistryWithoutSealKey(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := openRegistry(t, folder, testSealer(t, sealKeyA))
	r.configure(t)
	shown := r.add(t, "acme", withHeader("X-A", "b"))
	r.close()

	for _, tc := range []struct {
		name   string
		sealer *Sealer
		want   error // of Add and Rotate
	}{
		{"none", nil, ErrNoSealer},
		{"another", testSealer(t, sealKeyB), nil},
	} {
		r := openRegistry(t, folder, tc.sealer)
		r.configure(t)
		e := r.Endpoints().ByID("acme")
		if e == nil || e.Unusable == "" || len(e.Keys) > 0 || !e.Wants("a", "") {
			t.Fatalf("%s: in force as %+v, want it unusable, and wanting events still", tc.name, e)
		}
		if got := r.Unusable(); !slices.Equal(got, []string{"acme"}) {
			t.Errorf("%s: Unusable() = %q", tc.name, got)
		}
		if !strings.Contains(r.log.String(), `"endpoint":"acme"`) {
			t.Errorf("%s: the log says nothing: %s", tc.name, r.log)
		}
		if _, _, err := r.Add(t.Context(), "more", specOf("https://a.example/"), kindHMAC); !errors.Is(err, tc.want) {
			t.Errorf("%s: Add: %v, want %v", tc.name, err, tc.want)
		}
		if next, err := r.tidy(t.Context()); err != nil || next != tidyStep {
			t.Errorf("%s: tidy = %s, %v", tc.name, next, err)
		}
		r.close()
	}
	// Nothing was lost: with the key at hand it is as before, and a new seal key takes over what is there.
	r = openRegistry(t, folder, testSealer(t, sealKeyB, sealKeyA))
	r.configure(t)
	if !verifies(t, r.Endpoints().ByID("acme"), shown, time.Now()) {
		t.Error("with its seal key again it signs otherwise")
	}
	if _, err := r.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.close()
	r = openRegistry(t, folder, testSealer(t, sealKeyB))
	r.configure(t)
	e := r.Endpoints().ByID("acme")
	if !verifies(t, e, shown, time.Now()) || len(e.Headers) != 1 || e.Headers[0].Value != "b" {
		t.Error("with the new seal key alone it cannot be opened")
	}
}

// Who has lost the seal key makes new secrets, and goes on with the endpoint and its queue.
func TestRegistryLostSealKey(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := openRegistry(t, folder, testSealer(t, sealKeyA))
	r.configure(t)
	r.add(t, "acme", withHeader("X-A", "b"))
	r.close()
	r = openRegistry(t, folder, testSealer(t, sealKeyB))
	r.configure(t)
	g, shown, err := r.Rotate(t.Context(), "acme", 0, 0)
	if err != nil || !strings.Contains(g.Endpoint.Unusable, "endpoint update") {
		t.Fatalf("rotated: %q, %v; want only the headers unreadable", g.Endpoint.Unusable, err)
	}
	if _, _, err := r.Update(t.Context(), "acme", withHeader("X-A", "c"), []string{"headers"}); err != nil {
		t.Fatal(err)
	}
	if e := r.Endpoints().ByID("acme"); e.Unusable != "" || !verifies(t, e, shown, time.Now()) || e.Headers[0].Value != "c" {
		t.Errorf("in force as %+v, want it usable with the new secret", e)
	}
}

// A row that somebody with the file gave to another endpoint must not sign for it.
func TestRegistryMovedRow(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := openRegistry(t, folder, testSealer(t, sealKeyA))
	r.configure(t)
	r.add(t, "acme", specOf("https://acme.example/"))
	g, _ := r.Get("acme")
	value, err := encodeDefinition(g.Stored)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.write(definitionRow{[]byte("evil"), value}); err != nil {
		t.Fatal(err)
	}
	r.close()
	r = openRegistry(t, folder, testSealer(t, sealKeyA))
	r.configure(t)
	if got := r.Unusable(); !slices.Equal(got, []string{"evil"}) {
		t.Errorf("Unusable() = %q, want the copy alone", got)
	}
}

// Where both have an id the configuration's endpoint is in force, the other one comes back when that goes.
func TestRegistryShadow(t *testing.T) {
	t.Parallel()
	r := newTestRegistry(t)
	r.add(t, "acme", specOf("https://api.example/"))
	filed := configured("acme")
	r.configure(t, filed)
	if got := r.Endpoints().ByID("acme"); got != filed || len(r.Endpoints().All()) != 1 {
		t.Errorf("in force: %+v, want the configuration's alone", got)
	}
	if list := r.List(); len(list) != 2 || list[0].Shadowed || !list[0].Shadows || !list[1].Shadowed {
		t.Errorf("listed: %+v", list)
	}
	if got := r.Shadowed(); !slices.Equal(got, []string{"acme"}) {
		t.Errorf("Shadowed() = %q", got)
	}
	if strings.Count(r.log.String(), "shadowed") != 1 {
		t.Errorf("the log must say it once: %s", r.log)
	}
	if _, _, err := r.Update(t.Context(), "acme", specOf("https://x.example/"), []string{"url"}); !errors.Is(err, ErrConfigured) {
		t.Errorf("Update: %v, want ErrConfigured", err)
	}
	r.configure(t)
	if got := r.Endpoints().ByID("acme"); got == nil || got.Target.Host != "api.example" {
		t.Errorf("after the configuration's has gone: %+v", got)
	}
	r.configure(t, filed)
	if _, err := r.Remove(t.Context(), "acme"); err != nil {
		t.Errorf("remove the shadowed one: %v", err)
	}
	if _, err := r.Remove(t.Context(), "acme"); !errors.Is(err, ErrConfigured) || r.Endpoints().ByID("acme") != filed {
		t.Errorf("Remove of the configuration's: %v, want ErrConfigured", err)
	}
	for _, ids := range r.outbox.calls {
		if !slices.Equal(ids, []string{"acme"}) && len(ids) > 0 {
			t.Errorf("the outbox was told %q: its queue must go on under the same id", ids)
		}
	}
}

func TestRegistryConfigChanges(t *testing.T) {
	t.Parallel()
	r := newTestRegistry(t)
	r.add(t, "default", specOf("https://a.example/"))
	own := specOf("https://b.example:8443/")
	if _, _, err := r.Add(t.Context(), "port", own, kindHMAC); !errors.Is(err, ErrSpec) {
		t.Fatalf("a port that the filter does not list: %v", err)
	}
	c := registryConfig(t)
	c.Policy.MaxInFlight = 3
	var err error
	if c.Filter, err = netguard.New(netguard.Config{Ports: []uint16{443, 8443}}); err != nil {
		t.Fatal(err)
	}
	if err := r.SetConfig(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	r.add(t, "port", own)
	if e := r.Endpoints().ByID("default"); e.Policy.MaxInFlight != 3 || e.Filter != c.Filter {
		t.Errorf("a new default does not reach it: %+v", e.Policy)
	}
	r.configure(t) // and the port goes again
	if got := r.Unusable(); !slices.Equal(got, []string{"port"}) {
		t.Errorf("Unusable() = %q, want the one whose port is not allowed any more", got)
	}
}

// An endpoint is in force only once the outbox knows it, and Run makes good what it could not be told.
func TestRegistryOutboxFails(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := openRegistry(t, folder, testSealer(t, sealKeyA))
		r.configure(t, configured("a"))
		down := errors.New("disk on fire")
		r.outbox.fail(down)
		if _, _, err := r.Add(t.Context(), "new", specOf("https://a.example/"), kindHMAC); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Add: %v, want ErrUnavailable", err)
		}
		if _, ok := r.Get("new"); ok {
			t.Error("it was added all the same")
		}
		if err := r.SetConfig(t.Context(), registryConfig(t, configured("b"))); !errors.Is(err, down) {
			t.Errorf("SetConfig: %v, want the outbox's error", err)
		}
		if got := inForce(r.Registry); len(got) != 0 {
			t.Errorf("in force: %q, want none that the outbox does not know", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		synctest.Wait()
		r.outbox.fail(nil)
		time.Sleep(tidyRetry + time.Second)
		synctest.Wait()
		if got := inForce(r.Registry); !slices.Equal(got, []string{"b"}) || !slices.Equal(r.outbox.knows(), []string{"b"}) {
			t.Errorf("in force: %q, the outbox knows %q; want b in both", got, r.outbox.knows())
		}
		cancel()
		running.Wait()
		r.close()
	})
}

// After a restart what the outbox knows is in force before it is told of anything: it does not answer on a full disk.
func TestRegistryRestartWithOutboxThatCannotWrite(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		known      []string
		configured []string
		inForce    []string // at once
		knows      []string // once the outbox answers
	}{
		{name: "the same set needs no answer", known: []string{"a", "b"}, configured: []string{"a", "b"}, inForce: []string{"a", "b"}},
		{name: "one is new", known: []string{"a"}, configured: []string{"a", "b"}, inForce: []string{"a"}, knows: []string{"a", "b"}},
		{name: "one is gone", known: []string{"a", "b"}, configured: []string{"a"}, inForce: []string{"a"}, knows: []string{"a"}},
		{name: "one takes the other's place", known: []string{"a", "b"}, configured: []string{"b", "c"}, inForce: []string{"b"}, knows: []string{"b", "c"}},
		{name: "none is known", configured: []string{"a"}, knows: []string{"a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := openRegistry(t, folder, testSealer(t, sealKeyA), tt.known...)
				r.outbox.fail(errors.New("disk full"))
				var list []*Endpoint
				for _, id := range tt.configured {
					list = append(list, configured(id))
				}
				if err := r.SetConfig(t.Context(), registryConfig(t, list...)); (err != nil) != (tt.knows != nil) {
					t.Errorf("SetConfig: %v, want an error where the outbox must be told: %v", err, tt.knows != nil)
				}
				if got := inForce(r.Registry); !slices.Equal(got, tt.inForce) {
					t.Errorf("in force with the disk full: %q, want %q", got, tt.inForce)
				}
				for _, id := range tt.configured {
					if got, want := r.Endpoints().awaits(id, "", ""), !slices.Contains(tt.inForce, id); got != want {
						t.Errorf("events for %s have to wait: %v, want %v", id, got, want)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { _ = r.Run(ctx) })
				synctest.Wait()
				r.outbox.fail(nil)
				time.Sleep(tidyRetry + time.Second)
				synctest.Wait()
				if got := inForce(r.Registry); !slices.Equal(got, tt.configured) || !slices.Equal(r.outbox.knows(), tt.knows) {
					t.Errorf("with room again in force: %q, the outbox was told %q; want %q and %q", got, r.outbox.knows(), tt.configured, tt.knows)
				}
				if r.Endpoints().pending != nil {
					t.Error("with room again events have to wait")
				}
				cancel()
				running.Wait()
				r.close()
			})
		})
	}
}

// The outbox hears of a new endpoint before it is in force, and of one that is gone after.
func TestRegistryOrder(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), store.Options{Folder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var r *Registry
	var seen []string
	keeper := keeperFunc(func(ids []string) error {
		seen = append(seen, fmt.Sprintf("told %q with %q in force", ids, inForce(r)))
		return nil
	})
	changed := func() { seen = append(seen, fmt.Sprintf("changed to %q", inForce(r))) }
	if r, err = NewRegistry(RegistryConfig{Store: st, Outbox: keeper, Changed: changed}); err != nil {
		t.Fatal(err)
	}
	for _, ids := range [][]string{{"a"}, {"b"}} {
		if err := r.SetConfig(t.Context(), registryConfig(t, configured(ids[0]))); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`changed to []`, `told ["a"] with [] in force`, `changed to ["a"]`,
		`changed to []`, `told ["a" "b"] with [] in force`, `changed to ["b"]`, `told ["b"] with ["b"] in force`,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

type keeperFunc func(ids []string) error

func (f keeperFunc) Known() []string { return nil }

func (f keeperFunc) SetEndpoints(_ context.Context, ids []string) error { return f(ids) }

func TestRegistryPause(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, want := range []bool{false, true, false} {
		r := openRegistry(t, folder, nil)
		if got := r.Paused(); got != want {
			t.Errorf("Paused() = %t, want %t as before the restart", got, want)
		}
		if err := r.SetPaused(t.Context(), !want); err != nil {
			t.Fatal(err)
		}
		if r.Paused() == want {
			t.Error("SetPaused changed nothing")
		}
		r.close()
	}
}

func TestDecodeDefinition(t *testing.T) {
	t.Parallel()
	r := newTestRegistry(t)
	r.add(t, "acme", specOf("https://acme.example/"))
	g, _ := r.Get("acme")
	good, err := encodeDefinition(g.Stored)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]struct {
		key   string
		value []byte
		ok    bool
	}{
		"endpoint":         {"acme", good, true},
		"paused":           {"!paused", []byte{1}, true},
		"pause of 2":       {"!paused", []byte{2}, false},
		"pause of nothing": {"!paused", nil, false},
		"no id":            {"Acme", good, false},
		"empty":            {"acme", nil, false},
		"cut short":        {"acme", good[:len(good)-1], false},
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		row := rows[name]
		if _, _, err := decodeDefinition([]byte(row.key), row.value); (err == nil) != row.ok {
			t.Errorf("%s: %v, want read: %t", name, err, row.ok)
		}
	}
}
