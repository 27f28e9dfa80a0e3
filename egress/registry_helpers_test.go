package egress

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/internal/store"
	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

const (
	kindHMAC = egressv1.KeyKind_KEY_KIND_HMAC_SHA256
	kindPair = egressv1.KeyKind_KEY_KIND_ED25519
)

// registryKeeper is an outbox that notes which endpoints it was told of; err is what it answers. It has known from before.
type registryKeeper struct {
	known []string
	mu    sync.Mutex
	calls [][]string
	err   error
}

func (k *registryKeeper) Known() []string { return k.known }

func (k *registryKeeper) SetEndpoints(_ context.Context, ids []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	k.calls = append(k.calls, ids)
	return nil
}

func (k *registryKeeper) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

// knows are the ids that it was told of last.
func (k *registryKeeper) knows() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.calls) == 0 {
		return nil
	}
	return k.calls[len(k.calls)-1]
}

// registryRig is a registry on a store of its own.
type registryRig struct {
	*Registry
	store  *store.Store
	outbox *registryKeeper
	log    *bytes.Buffer
	close  func()
}

// openRegistry opens the store in folder and a registry on it. The caller closes it, or the test's end does.
func openRegistry(t *testing.T, folder string, sealer *Sealer, known ...string) *registryRig {
	t.Helper()
	return openRegistryWithin(t, folder, 0, sealer, known...)
}

// openRegistryWithin is openRegistry with a store of at most limit bytes.
func openRegistryWithin(t *testing.T, folder string, limit int64, sealer *Sealer, known ...string) *registryRig {
	t.Helper()
	st, err := store.Open(t.Context(), store.Options{Folder: folder, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	r := &registryRig{store: st, outbox: &registryKeeper{known: known}, log: new(bytes.Buffer)}
	r.Registry, err = NewRegistry(RegistryConfig{Store: st, Outbox: r.outbox, Sealer: sealer, Logger: slog.New(slog.NewJSONHandler(r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := st.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.close = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		report, err := store.Check(context.WithoutCancel(t.Context()), st.Path(), new(RowCheck))
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("the store is broken: %v %v", err, report.Problems)
		}
	})
	t.Cleanup(r.close)
	return r
}

// newTestRegistry is openRegistry with a configuration of no endpoints in force.
func newTestRegistry(t *testing.T) *registryRig {
	t.Helper()
	r := openRegistry(t, t.TempDir(), testSealer(t, sealKeyA))
	r.configure(t)
	return r
}

func (r *registryRig) configure(t *testing.T, list ...*Endpoint) {
	t.Helper()
	if err := r.SetConfig(t.Context(), registryConfig(t, list...)); err != nil {
		t.Fatal(err)
	}
}

func (r *registryRig) add(t *testing.T, id string, spec *egressv1.EndpointSpec) string {
	t.Helper()
	_, shown, err := r.Add(t.Context(), id, spec, kindHMAC)
	if err != nil {
		t.Fatal(err)
	}
	return shown
}

func registryConfig(t *testing.T, list ...*Endpoint) ConfigEndpoints {
	t.Helper()
	f, err := netguard.New(netguard.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return ConfigEndpoints{
		List: list, Filter: f,
		Policy: Policy{Timeout: 15 * time.Second, Schedule: DefaultSchedule(), OnGone: GoneDisables, MaxInFlight: 8, DisableAfter: 120 * time.Hour},
	}
}

func configured(id string) *Endpoint { return &Endpoint{ID: id, Origin: OriginConfig} }

func specOf(url string) *egressv1.EndpointSpec { return &egressv1.EndpointSpec{Url: url} }

// verifies reports whether what e signs at now is accepted with the key that the receiver was shown.
func verifies(t *testing.T, e *Endpoint, shown string, now time.Time) bool {
	t.Helper()
	scheme := endpointScheme()
	key, err := scheme.ParseKey([]byte(shown))
	if err != nil {
		t.Fatalf("what was shown is no key: %v", err)
	}
	for _, k := range e.Keys {
		if !k.Until.IsZero() && !now.Before(k.Until) {
			continue
		}
		m := &signature.Message{Method: "POST", Body: []byte(`{"a":1}`)}
		fields, err := scheme.Sign(m, k, "evt_1", now)
		if err != nil {
			t.Fatal(err)
		}
		m.Header = fields
		if scheme.Verify(m, []signature.Key{key}, now, time.Minute).Reason == signature.ReasonOK {
			return true
		}
	}
	return false
}

func inForce(r *Registry) []string {
	var ids []string
	for _, e := range r.Endpoints().All() {
		ids = append(ids, e.ID)
	}
	return ids
}
