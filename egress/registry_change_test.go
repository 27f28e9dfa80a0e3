package egress

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// During the overlap both keys sign, after it the new one alone, and then the old one is no longer in the store.
func TestRegistryRotate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := openRegistry(t, folder, testSealer(t, sealKeyA))
		r.configure(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		defer running.Wait()
		defer cancel()
		signs := func() *Endpoint { return r.Endpoints().ByID("acme") }
		first := r.add(t, "acme", specOf("https://acme.example/"))
		_, second, err := r.Rotate(t.Context(), "acme", 0, 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Hour)
		_, third, err := r.Rotate(t.Context(), "acme", kindPair, 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			name                 string
			wait                 time.Duration
			first, second, third bool
			kept                 int
		}{
			// The first ends when its own overlap does, not with that of the second.
			{"12 h", 0, true, true, true, 3},
			{"just before 24 h", 12*time.Hour - time.Second, true, true, true, 3},
			{"just after 24 h", 2 * time.Second, false, true, true, 2},
			{"just before 36 h", 12*time.Hour - 3*time.Second, false, true, true, 2},
			{"just after 36 h", 4 * time.Second, false, false, true, 1},
		} {
			time.Sleep(tc.wait)
			synctest.Wait()
			now := time.Now()
			got := [3]bool{verifies(t, signs(), first, now), verifies(t, signs(), second, now), verifies(t, signs(), third, now)}
			if got != [3]bool{tc.first, tc.second, tc.third} {
				t.Errorf("%s: the three keys sign: %t; want %t %t %t", tc.name, got, tc.first, tc.second, tc.third)
			}
			if g, _ := r.Get("acme"); len(g.Stored.GetKeys()) != tc.kept {
				t.Errorf("%s: %d keys are kept, want %d", tc.name, len(g.Stored.GetKeys()), tc.kept)
			}
		}
		// A leak: nothing signs with the old one any more.
		_, fourth, err := r.Rotate(t.Context(), "acme", kindHMAC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if now := time.Now(); verifies(t, signs(), third, now) || !verifies(t, signs(), fourth, now) {
			t.Error("rotated without overlap, the old key signs on, or the new one does not")
		}
		cancel()
		running.Wait()
		r.close()
	})
}

func TestRegistryRotateRefuses(t *testing.T) {
	t.Parallel()
	r := newTestRegistry(t)
	r.configure(t, configured("filed"))
	r.add(t, "acme", specOf("https://acme.example/"))
	for _, tc := range []struct {
		name, id string
		overlap  time.Duration
		want     error
	}{
		{"nobody", "nobody", 0, ErrNotFound},
		{"of the configuration", "filed", 0, ErrConfigured},
		{"negative", "acme", -time.Second, ErrSpec},
		{"too long", "acme", MaxOverlap + time.Second, ErrSpec},
	} {
		if _, shown, err := r.Rotate(t.Context(), tc.id, 0, tc.overlap); !errors.Is(err, tc.want) || shown != "" {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	for i := range maxKeys + 1 {
		_, _, err := r.Rotate(t.Context(), "acme", 0, time.Hour)
		if want := i+2 > maxKeys; errors.Is(err, ErrLimit) != want {
			t.Fatalf("rotation %d: %v, want refused: %t", i+1, err, want)
		}
	}
}

func TestRegistryUpdate(t *testing.T) {
	t.Parallel()
	r := newTestRegistry(t)
	spec := withHeader("X-Token", "kept")
	spec.Owner, spec.EventTypes = "a@a.example", []string{"a"}
	spec.Policy = policyOf(map[string]any{"timeout": 3 * time.Second, "max": 4})
	shown := r.add(t, "acme", spec)
	change := &egressv1.EndpointSpec{
		Url: "https://new.example/", Owner: "b@b.example", EventTypes: []string{"b.*", "c"}, Tenant: "other",
		Headers: []*egressv1.Header{{Name: "X-New", Value: "n"}}, Policy: policyOf(map[string]any{"timeout": 9 * time.Second}),
	}
	for _, step := range []struct {
		paths []string
		check func(e *Endpoint) bool
	}{
		{[]string{"url"}, func(e *Endpoint) bool {
			return e.Target.Host == "new.example" && e.Owner == "a@a.example" && e.Headers[0].Value == "kept"
		}},
		{[]string{"owner", "event_types"}, func(e *Endpoint) bool { return e.Owner == "b@b.example" && e.Wants("b.x", "") && !e.Wants("a", "") }},
		{[]string{"policy.timeout"}, func(e *Endpoint) bool { return e.Policy.Timeout == 9*time.Second && e.Policy.MaxInFlight == 4 }},
		// What spec does not set is the configuration's again.
		{[]string{"policy.max_in_flight"}, func(e *Endpoint) bool { return e.Policy.Timeout == 9*time.Second && e.Policy.MaxInFlight == 8 }},
		{[]string{"headers"}, func(e *Endpoint) bool {
			return cmp.Equal(e.Headers, []signature.Field{{Name: "X-New", Value: "n"}})
		}},
	} {
		before, after, err := r.Update(t.Context(), "acme", change, step.paths)
		if err != nil {
			t.Fatalf("%q: %v", step.paths, err)
		}
		if step.check(before.Endpoint) || !step.check(after.Endpoint) || !step.check(r.Endpoints().ByID("acme")) {
			t.Errorf("%q: before %+v, after %+v", step.paths, before.Endpoint, after.Endpoint)
		}
	}
	if !verifies(t, r.Endpoints().ByID("acme"), shown, time.Now()) {
		t.Error("an update changed the key")
	}
	for _, paths := range [][]string{nil, {"tenant"}, {"id"}, {"policy.nothing"}, {"url", "keys"}} {
		if _, _, err := r.Update(t.Context(), "acme", change, paths); !errors.Is(err, ErrSpec) {
			t.Errorf("%q: %v, want ErrSpec", paths, err)
		}
	}
	if _, _, err := r.Update(t.Context(), "acme", specOf("http://plain.example/"), []string{"url"}); !errors.Is(err, ErrSpec) {
		t.Errorf("a URL that the filter refuses: %v, want ErrSpec", err)
	}
	if got := r.Endpoints().ByID("acme").Target.Host; got != "new.example" {
		t.Errorf("a refused update left %s", got)
	}
}

// On a full store no endpoint is added: what is left of it is for settling what was accepted. One can be removed.
func TestRegistryFull(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := openRegistry(t, folder, testSealer(t, sealKeyA))
	r.configure(t)
	r.add(t, "before", specOf("https://acme.example/"))
	r.close()
	b := openBoltOutbox(t, folder, 0, nil)
	for range 200 {
		b.mustAccept(t, boltEvent("", strings.Repeat("x", 10_000)), "a")
	}
	if err := b.end(); err != nil {
		t.Fatal(err)
	}

	r = openRegistryWithin(t, folder, 1<<20, testSealer(t, sealKeyA)) // less than there is
	r.configure(t)
	calls := len(r.outbox.calls)
	if _, _, err := r.Add(t.Context(), "more", specOf("https://acme.example/"), kindHMAC); !errors.Is(err, ErrFull) {
		t.Errorf("add: %v, want ErrFull", err)
	}
	if len(r.outbox.calls) != calls {
		t.Error("the outbox was told of it")
	}
	if _, err := r.Remove(t.Context(), "before"); err != nil {
		t.Errorf("remove: %v", err)
	}
}
