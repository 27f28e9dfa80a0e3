package extauthz

import (
	"fmt"
	"testing"
	"time"
)

// benchTenants writes as many tenants and returns their paths.
func benchTenants(b *testing.B, dir string, n int) (targets []string) {
	b.Helper()
	for i := range n {
		name := fmt.Sprintf("tenant-%05d", i)
		writeSecret(b, dir, name, testSecret)
		targets = append(targets, "/hooks/"+name)
	}
	return targets
}

// BenchmarkExamineTenants compares what a request costs of a source with one secret, and of one with ten thousand tenants
// that all send. Files are read before the clock runs, and looked at again while it does.
func BenchmarkExamineTenants(b *testing.B) {
	const tenants = 10_000
	dir := b.TempDir()
	targets := benchTenants(b, dir, tenants)
	for _, bench := range []struct {
		name    string
		source  *Source
		targets []string
	}{
		{"one secret", signedSource(b, "hooks", func(s *Source) { s.Matches, s.Keys = []Match{{PathPrefix: "/hooks"}}, s.Keys[:1] }), targets},
		{"ten thousand tenants", tenantSource(b, dir), targets},
	} {
		b.Run(bench.name, func(b *testing.B) {
			g := newGate(b, mustSources(b, []*Source{bench.source}))
			at := &g.table.Load().bound[0]
			checks := make([]request, len(bench.targets))
			for i, target := range bench.targets {
				checks[i].reset()
				checks[i].fill(b.Context(), hook{target: target}.check(true))
				if _, d := at.examine(b.Context(), nil, &checks[i], time.Now()); d.reason != 0 {
					b.Fatalf("%s: %v, %v", target, d.reason, d.err)
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, d := at.examine(b.Context(), nil, &checks[i], time.Now()); d.reason != 0 {
					b.Fatal(d.reason)
				}
				if i++; i == len(checks) {
					i = 0
				}
			}
		})
	}
}

// BenchmarkTenantStranger is what a name costs that somebody made up.
func BenchmarkTenantStranger(b *testing.B) {
	k := keysOf(b, b.TempDir())
	now := time.Now()
	for b.Loop() {
		if _, reason, _ := k.of("stranger", now); reason != ReasonUnknownTenant {
			b.Fatal(reason)
		}
	}
}
