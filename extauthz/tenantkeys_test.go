package extauthz

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/secret"
	"github.com/sidehook/sidehook/internal/signature"
)

// secretOf is the secret of a tenant in the tests, by its version.
func secretOf(tenant string, version int) string {
	return fmt.Sprintf("secret %d of the tenant %s", version, tenant)
}

// writeSecret writes dir/name whole or not at all.
func writeSecret(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.WriteFile(path+"~", []byte(text+"\n"), 0o600), os.Rename(path+"~", path)); err != nil {
		t.Fatal(err)
	}
}

func removeSecret(t testing.TB, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// tenantMAC is a signature of testScheme's form.
func tenantMAC(secret, text string) string {
	return "v1," + base64.StdEncoding.EncodeToString(macOf(secret, text))
}

// tenantSource is a source for /hooks/{tenant} with testScheme and the secrets in dir.
func tenantSource(t testing.TB, dir string, change ...func(*Source)) *Source {
	t.Helper()
	return signedSource(t, "hooks", append([]func(*Source){func(s *Source) {
		s.Matches, s.Keys = []Match{{Path: "/hooks/{tenant}"}}, nil
		s.Tenants = &TenantSecrets{Folder: secret.NewFolder(dir), Parse: func(text secret.Secret) (signature.Key, error) {
			if strings.HasPrefix(string(text.Bytes()), "sk_") {
				return signature.Key{}, errors.New("an API key")
			}
			return s.Verifier.ParseKey(text.Bytes())
		}}
	}}, change...)...)
}

func tenantHook(tenant string, version int, id string) hook {
	return hook{target: "/hooks/" + tenant, secret: secretOf(tenant, version), id: id}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"acme", "globex"} {
		writeSecret(t, dir, name, secretOf(name, 1))
	}
	writeSecret(t, dir, "acme.next", secretOf("acme", 2))
	writeSecret(t, dir, "blank", "  ")
	writeSecret(t, dir, "kind", "sk_live_0123456789abcdef")
	writeSecret(t, dir, "halfway", secretOf("halfway", 1))
	writeSecret(t, dir, "halfway.next", "sk_live_0123456789abcdef")
	writeSecret(t, dir, "alone.next", secretOf("alone", 2))
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	table := mustSources(t, []*Source{tenantSource(t, dir)}, Match{PathPrefix: "/"})
	for _, tt := range []struct {
		name   string
		h      hook
		status int // 0: it passes
		code   string
	}{
		{"its own", tenantHook("acme", 1, ""), 0, ""},
		{"its next", tenantHook("acme", 2, ""), 0, ""},
		{"of another one", hook{target: "/hooks/globex", secret: secretOf("acme", 1)}, 401, "bad_signature"},
		{"next of another one", hook{target: "/hooks/globex", secret: secretOf("acme", 2)}, 401, "bad_signature"},
		{"nobody's", hook{target: "/hooks/initech", secret: secretOf("acme", 1)}, 401, "unknown_tenant"},
		// Who has the next secret of acme is not a tenant of that name.
		{"a next one as a tenant", hook{target: "/hooks/acme.next", secret: secretOf("acme", 2)}, 401, "unknown_tenant"},
		{"a next one alone", tenantHook("alone", 2, ""), 401, "unknown_tenant"},
		{"a folder", tenantHook("folder", 1, ""), 401, "unknown_tenant"},
		{"dots", hook{target: "/hooks/..", secret: secretOf("acme", 1)}, 400, "ambiguous_path"},
		{"out of the folder", hook{target: "/hooks/..%2facme", secret: secretOf("acme", 1)}, 400, "ambiguous_path"},
		{"escaped", hook{target: "/hooks/%61cme", secret: secretOf("acme", 1)}, 400, "ambiguous_path"},
		{"no name", hook{target: "/hooks/ac~me", secret: secretOf("acme", 1)}, 400, "ambiguous_path"},
		{"an empty secret", tenantHook("blank", 1, ""), 503, "key_unavailable"},
		{"a secret of another kind", hook{target: "/hooks/kind", secret: "sk_live_0123456789abcdef"}, 503, "key_unavailable"},
		{"a next secret of another kind", tenantHook("halfway", 1, ""), 503, "key_unavailable"},
		{"unsigned, of a tenant", hook{target: "/hooks/acme", drop: []string{"webhook-signature"}}, 401, "missing_signature"},
		// What the mesh lost is not the sender's fault, whoever it is.
		{"without its body", hook{target: "/hooks/initech", headers: [][2]string{{"x-envoy-auth-partial-body", "true"}}}, 500, "body_not_forwarded"},
		{"named by the route", hook{source: "hooks", target: "/hooks/acme?x=1", secret: secretOf("acme", 1)}, 0, ""},
		{"named by the route, on another path", hook{source: "hooks", target: "/other/acme", secret: secretOf("acme", 1)}, 401, "unknown_tenant"},
		{"named by the route, escaped", hook{source: "hooks", target: "/hooks/%61cme", secret: secretOf("acme", 1)}, 401, "unknown_tenant"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, table)
			got := g.ask(tt.h)
			if got.pass != (tt.status == 0) || got.status != tt.status || tt.code != "" && got.body != `{"status":"`+tt.code+`"}` {
				t.Fatalf("answer %+v", got)
			}
			tenant := ""
			if tt.status == 0 {
				tenant = "acme"
			}
			if got.headers[headerTenant] != tenant {
				t.Errorf("headers %v, want tenant %q", got.headers, tenant)
			}
			if key, _, ok := parseRef(got.ref); ok != (tenant != "") || key.Tenant != tenant {
				t.Errorf("claim of %+v", key)
			}
			if strings.Contains(g.log.String(), "secret 1") || strings.Contains(g.log.String(), "sk_live") {
				t.Errorf("a secret in the log:\n%s", g.log)
			}
		})
	}
}

// The tenant is a part of the key, of the second key, and of what is listed: equal events of two tenants are two events.
func TestTenantsApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"acme", "globex"} {
		writeSecret(t, dir, name, secretOf("both", 1)) // the worst case: both have the same
	}
	spec := testScheme
	spec.Signed = "{timestamp}.{body}" // which leaves the id out
	g := newGate(t, mustSources(t, []*Source{tenantSource(t, dir, func(s *Source) {
		var err error
		if s.Verifier, err = signature.Compile(spec); err != nil {
			t.Fatal(err)
		}
		s.ContentWindow = time.Hour
	})}))
	send := func(tenant, id string) answer {
		now := time.Now()
		sig := tenantMAC(secretOf("both", 1), fmt.Sprintf("%d.%s", now.Unix(), `{"type":"x"}`))
		return g.ask(hook{target: "/hooks/" + tenant, id: id, at: now, body: `{"type":"x"}`, drop: []string{"webhook-signature"}, headers: [][2]string{{"webhook-signature", sig}}})
	}
	for _, tenant := range []string{"acme", "globex"} {
		a := send(tenant, "evt_1")
		if !a.pass || a.headers[headerTenant] != tenant {
			t.Fatalf("first of %s: %+v", tenant, a)
		}
		g.end(a, EndDone)
		if a := send(tenant, "evt_1"); a.body != `{"status":"duplicate"}` {
			t.Errorf("again of %s: %+v", tenant, a)
		}
		if a := send(tenant, "evt_2"); a.body != `{"status":"duplicate"}` {
			t.Errorf("the same content under another id of %s: %+v", tenant, a)
		}
	}
	page, err := g.inbox.List(t.Context(), Filter{}, "", 10)
	if err != nil || len(page.Records) != 2 || page.Records[0].Key.Tenant != "acme" || page.Records[1].Key.Tenant != "globex" {
		t.Errorf("listed %+v, %v", page.Records, err)
	}
	if !strings.Contains(g.log.String(), `"tenant":"globex"`) {
		t.Errorf("no tenant in the log:\n%s", g.log)
	}
	// By source, whatever the tenants are called.
	if n := g.counter("sidehook_extauthz_secret_uses_total", "source", "hooks", "secret", "0"); n != 6 {
		t.Errorf("%v uses of the secret in force", n)
	}
}

// The tenant that a message names counts where the signature covers it, and must be the path's where that names one.
func TestTenantOfTheMessage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeSecret(t, dir, "acme", testSecret)
	account, err := signature.ParsePath("account")
	if err != nil {
		t.Fatal(err)
	}
	inBody := func(s *Source) { s.Tenant = TenantValue{JSON: account} }
	inHeader := func(s *Source) { s.Tenant = TenantValue{Header: "webhook-id"} } // which testScheme signs
	byPath := func(change func(*Source)) *Source { return tenantSource(t, dir, change) }
	decoded, inForm := testScheme, testScheme
	decoded.Body, inForm.Document = signature.Decoded, "payload"
	plain := hook{id: "evt_1", at: time.Now(), body: `{"account":"acme"}`, secret: testSecret}
	zipped := hook{id: plain.id, at: plain.at, body: gzipOf(t, []byte(plain.body)), drop: []string{"webhook-signature"},
		headers: [][2]string{{"webhook-signature", plain.sign()}, {"content-encoding", "gzip"}}}
	form := hook{body: "payload=%7B%22account%22%3A%22acme%22%7D", drop: []string{"content-type"},
		headers: [][2]string{{"content-type", "application/x-www-form-urlencoded"}}}
	alone := func(change func(*Source)) *Source { return signedSource(t, "hooks", change) }
	for _, tt := range []struct {
		name   string
		source *Source
		h      hook
		want   string // the tenant, or the code of a refusal
	}{
		{"body", alone(inBody), hook{body: `{"account":"acme"}`}, "acme"},
		{"number in the body", alone(inBody), hook{body: `{"account":12345}`}, "12345"},
		{"body without", alone(inBody), hook{body: `{"type":"x"}`}, ""},
		{"body with no name", alone(inBody), hook{body: `{"account":"a/b"}`}, "unknown_tenant"},
		{"body with a name too long", alone(inBody), hook{body: `{"account":"` + strings.Repeat("a", MaxTenantLen+1) + `"}`}, "unknown_tenant"},
		{"body that is forged", alone(inBody), hook{body: `{"account":"acme"}`, secret: "guess of a guess"}, "bad_signature"},
		{"body that is zipped", sourceOf(t, "hooks", decoded, inBody), zipped, "acme"},
		{"body in a form", sourceOf(t, "hooks", inForm, inBody), form, "acme"},
		{"header", alone(inHeader), hook{id: "acme"}, "acme"},
		{"path and body agree", byPath(inBody), hook{body: `{"account":"acme"}`}, "acme"},
		// The secret of one tenant, and a message that says that it is another's.
		{"path and body differ", byPath(inBody), hook{body: `{"account":"globex"}`}, "unknown_tenant"},
		{"path and no word of it in the body", byPath(inBody), hook{body: `{"type":"x"}`}, "unknown_tenant"},
		{"path and header agree", byPath(inHeader), hook{id: "acme"}, "acme"},
		{"path and header differ", byPath(inHeader), hook{id: "globex"}, "unknown_tenant"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, mustSources(t, []*Source{tt.source}))
			tt.h.target = "/hooks/acme"
			if tt.source.Tenants == nil {
				tt.h.target = "/hooks/hooks"
			}
			got := g.ask(tt.h)
			if got.pass {
				key, _, _ := parseRef(got.ref)
				if got.headers[headerTenant] != tt.want || key.Tenant != tt.want {
					t.Errorf("tenant %q, key %+v; want %q", got.headers[headerTenant], key, tt.want)
				}
			} else if got.status != 401 || got.body != `{"status":"`+tt.want+`"}` {
				t.Errorf("answer %+v, want %q", got, tt.want)
			}
		})
	}
}

// Files come, change, turn bad and go while the gate runs: each shows within a second, and the last good secret of a file
// that has turned bad stays.
func TestTenantFilesChange(t *testing.T) {
	t.Parallel()
	dir, folder := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGateIn(t, folder, mustSources(t, []*Source{tenantSource(t, dir)}))
		n := 0
		expect := func(when string, version int, want string) {
			t.Helper()
			n++
			a := g.ask(tenantHook("acme", version, fmt.Sprint("evt_", n)))
			if got := a.body; a.pass && want != "passes" || !a.pass && got != `{"status":"`+want+`"}` {
				t.Errorf("%s: %+v, want %s", when, a, want)
			}
		}
		faults := func(want float64) {
			t.Helper()
			if got := g.counter("sidehook_extauthz_tenant_secret_faults_total", "source", "hooks"); got != want {
				t.Errorf("%v faults, want %v", got, want)
			}
			if got := strings.Count(g.log.String(), "secret of a tenant is not fit"); got != int(want) {
				t.Errorf("%d lines of faults, want %v", got, want)
			}
		}
		pause := func() { time.Sleep(tenantPeriod) }

		expect("before", 1, "unknown_tenant")
		writeSecret(t, dir, "acme", secretOf("acme", 1))
		expect("at once", 1, "passes") // a stranger's name is not kept
		writeSecret(t, dir, "acme.next", secretOf("acme", 2))
		expect("next, not yet seen", 2, "bad_signature")
		pause()
		expect("next", 2, "passes")
		expect("the one before it", 1, "passes")
		if err := os.Rename(filepath.Join(dir, "acme.next"), filepath.Join(dir, "acme")); err != nil {
			t.Fatal(err)
		}
		pause()
		expect("moved", 2, "passes")
		expect("gone", 1, "bad_signature")
		faults(0)
		writeSecret(t, dir, "acme", " ")
		pause()
		expect("the last good one", 2, "passes")
		faults(1)
		pause()
		expect("the last good one, later", 2, "passes")
		faults(1)
		g.Swap(mustSources(t, []*Source{tenantSource(t, dir)}))
		expect("the last good one, after a reload", 2, "passes")
		faults(1)
		writeSecret(t, dir, "acme", "sk_live_0123456789abcdef")
		pause()
		expect("bad in another way", 2, "passes")
		faults(2)
		removeSecret(t, dir, "acme")
		pause()
		expect("removed", 2, "unknown_tenant")
		writeSecret(t, dir, "acme", " ")
		expect("bad from the start", 2, "key_unavailable")
		expect("and still", 2, "key_unavailable")
		faults(3)
		writeSecret(t, dir, "acme", secretOf("acme", 3))
		pause()
		expect("mended", 3, "passes")
		// Another folder is other tenants.
		g.Swap(mustSources(t, []*Source{tenantSource(t, t.TempDir())}))
		expect("in another folder", 3, "unknown_tenant")
		faults(3)
	})
}

// A folder that is not there says nothing about who is a tenant.
func TestTenantFolderGone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeSecret(t, dir, "acme", secretOf("acme", 1))
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGateIn(t, folder, mustSources(t, []*Source{tenantSource(t, dir)}))
		if a := g.ask(tenantHook("acme", 1, "evt_1")); !a.pass {
			t.Fatalf("answer %+v", a)
		}
		if err := os.Rename(dir, dir+"~"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(tenantPeriod)
		for range 3 {
			if a := g.ask(tenantHook("globex", 1, "evt_2")); a.status != 503 || a.body != `{"status":"key_unavailable"}` {
				t.Errorf("answer %+v", a)
			}
		}
		if a := g.ask(tenantHook("acme", 1, "evt_3")); !a.pass {
			t.Errorf("known tenant: %+v", a)
		}
		// What comes with every request is not told with every request.
		if n := strings.Count(g.log.String(), "secret of a tenant is not fit"); n != 1 {
			t.Errorf("%d lines:\n%s", n, g.log)
		}
		if err := os.Rename(dir+"~", dir); err != nil {
			t.Fatal(err)
		}
		writeSecret(t, dir, "globex", secretOf("globex", 1))
		if a := g.ask(tenantHook("globex", 1, "evt_4")); !a.pass {
			t.Errorf("answer %+v", a)
		}
	})
}

// keysOf makes keys of the tenants in dir, without a gate.
func keysOf(t testing.TB, dir string) *tenantKeys {
	t.Helper()
	return newTenantKeys(tenantSource(t, dir).Tenants, nil, func(string, error, bool) {})
}

// Strangers' names take no memory, and those of real tenants no more than is set.
func TestTenantsKept(t *testing.T) {
	t.Parallel()
	k := keysOf(t, t.TempDir())
	for i := range 2000 {
		if _, reason, err := k.of(fmt.Sprint("stranger", i), k.began); reason != ReasonUnknownTenant || err != nil {
			t.Fatalf("stranger: %v, %v", reason, err)
		}
	}
	if len(k.kept) != 0 {
		t.Errorf("%d names of strangers are kept", len(k.kept))
	}
	for i := range maxTenantsKept + 100 {
		k.keep(fmt.Sprint("tenant", i), nil, &tenant{read: true}, 0)
	}
	if len(k.kept) != maxTenantsKept {
		t.Errorf("%d tenants are kept", len(k.kept))
	}
}

// Secrets come and go, are moved and swapped as a volume's are, while many ask and the table is swapped. A tenant who always
// has a file is never unknown, and nobody ever gets a key of another one. Run it with -race.
func TestTenantsRace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := tenantSource(t, dir)
	version := func(n int) string { return fmt.Sprintf("..v%d", n) }
	swap := func(n int) error {
		at := filepath.Join(dir, version(n))
		errs := []error{os.Mkdir(at, 0o700)}
		for _, name := range []string{"always", "sometimes"} {
			if name == "always" || n%2 == 0 {
				errs = append(errs, os.WriteFile(filepath.Join(at, name), []byte(secretOf(name, n)), 0o600))
			}
		}
		link := filepath.Join(dir, "..data_tmp")
		errs = append(errs, os.Symlink(version(n), link), os.Rename(link, filepath.Join(dir, "..data")))
		if n > 0 {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, version(n-1))))
		}
		return errors.Join(errs...)
	}
	if err := swap(0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"always", "sometimes"} {
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex // covers both below
	keys := newTenantKeys(source.Tenants, nil, func(name string, err error, _ bool) { t.Errorf("%s: %v", name, err) })
	swapped := 0
	const rounds = 300
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				mu.Lock()
				k := keys
				mu.Unlock()
				// Each asks as if a period had passed, so that each looks.
				now := k.began.Add(time.Duration(i) * tenantPeriod)
				for _, name := range []string{"always", "sometimes", "never"} {
					got, reason, err := k.of(name, now)
					switch {
					case err != nil, name == "always" && reason != 0, name == "never" && reason != ReasonUnknownTenant,
						reason != 0 && reason != ReasonUnknownTenant, (reason == 0) != (len(got) > 0):
						t.Errorf("%s: %d keys, %v, %v", name, len(got), reason, err)
						return
					}
					if reason == 0 && !ofTenant(got[0], name, rounds) {
						t.Errorf("a key of %s is another one's", name)
						return
					}
				}
			}
		})
	}
	for n := 1; n < rounds; n++ {
		if err := swap(n); err != nil {
			t.Error(err)
			break
		}
		if n%20 == 0 {
			mu.Lock()
			keys = newTenantKeys(source.Tenants, keys, keys.alarm)
			swapped++
			mu.Unlock()
		}
	}
	close(done)
	wg.Wait()
	// At rest what is on disk is what counts.
	if got, reason, _ := keys.of("always", time.Now().Add(time.Hour)); reason != 0 || !sameKey(got[0], secretOf("always", rounds-1)) {
		t.Errorf("at the end: %v", reason)
	}
	if _, reason, _ := keys.of("sometimes", time.Now().Add(time.Hour)); reason != ReasonUnknownTenant {
		t.Errorf("at the end, gone: %v", reason)
	}
	if swapped == 0 {
		t.Error("no table was swapped")
	}
}

// sameKey reports whether k was made of text.
func sameKey(k signature.Key, text string) bool {
	sum, ok := k.MAC([]byte("x"))
	return ok && string(sum) == string(macOf(text, "x"))
}

// ofTenant reports whether k is a version of the tenant's secret.
func ofTenant(k signature.Key, tenant string, versions int) bool {
	for n := range versions {
		if sameKey(k, secretOf(tenant, n)) {
			return true
		}
	}
	return false
}

// The counter is there from the start, also for sources without tenants.
func TestTenantFaultsFromTheStart(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}))
	if n := g.counter("sidehook_extauthz_tenant_secret_faults_total", "source", "payments"); n != 0 {
		t.Errorf("%v faults", n)
	}
}
