package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/secret"
)

// tenantGate is a configuration with one source of that match and those fields.
func tenantGate(match, fields string) string {
	return gateWith("- {name: hooks, match: " + match + ", " + fields + "}")
}

func TestTenantRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "acme", strongSecret)
	folder := "secrets: [{folder: " + dir + "}]"
	file := "secrets: [{file: " + filepath.Join(dir, "acme") + "}]"
	const path = "{path: '/hooks/{tenant}'}"
	signs := func(signed string) string {
		return `scheme: {algorithm: HMAC_SHA256, signed: "` + signed + `", signature: {header: X-Signature}}`
	}
	for _, tt := range []struct{ name, match, fields, want string }{
		{"a folder", path, scheme + ", " + folder, ""},
		{"in the middle", "{path: '/t/{tenant}/in', method: POST}", scheme + ", " + folder, ""},
		{"no folder", path, scheme + ", " + file, "match.path: source \"hooks\": {tenant} needs a secret for each tenant"},
		{"no folder, but the message says it too", path, scheme + ", " + file + ", tenant: {json: account}", ""},
		{"not verified", path, "verify: none", "match.path: source \"hooks\": nobody vouches for the tenant"},
		{"a folder without a tenant", "{path: /hooks}", scheme + ", " + folder, "secrets[0].folder: source \"hooks\": needs {tenant} in match.path"},
		{"a folder for a prefix", "{path_prefix: /hooks}", scheme + ", " + folder, "secrets[0].folder: source \"hooks\": needs {tenant}"},
		{"beside a file", path, scheme + ", secrets: [{folder: " + dir + "}, {file: " + dir + "/acme}]", "secrets[0].folder: source \"hooks\": a folder stands alone"},
		{"behind a file", path, scheme + ", secrets: [{file: " + dir + "/acme}, {folder: " + dir + "}]", "secrets[1].folder: source \"hooks\": a folder stands alone"},
		{"until", path, scheme + ", secrets: [{folder: " + dir + ", until: 2027-01-31T00:00:00Z}]", "secrets[0].until: source \"hooks\": is for single secrets"},
		{"relative", path, scheme + ", secrets: [{folder: secrets}]", "secrets[0].folder: source \"hooks\": write an absolute path"},
		{"not there", path, scheme + ", secrets: [{folder: " + dir + "/nowhere}]", "secrets[0].folder: source \"hooks\": open " + dir + "/nowhere: no such file"},
		{"a file", path, scheme + ", secrets: [{folder: " + dir + "/acme}]", "secrets[0].folder: source \"hooks\": "},
		{"prefix", "{path_prefix: '/hooks/{tenant}'}", scheme + ", " + folder, "match.path_prefix: \"/hooks/{tenant}\": {tenant} is for path"},
		{"twice", "{path: '/{tenant}/{tenant}'}", scheme + ", " + folder, "match.path: \"/{tenant}/{tenant}\": the one thing in braces"},
		{"a part of a segment", "{path: '/t-{tenant}'}", scheme + ", " + folder, "match.path: \"/t-{tenant}\": the one thing in braces"},
		{"another word", "{path: '/{customer}'}", scheme + ", " + file, "match.path: \"/{customer}\": the one thing in braces"},
		{"in the body", "{path: /hooks}", scheme + ", " + file + ", tenant: {json: data.account}", ""},
		{"in a header that is signed", "{path: /hooks}", signs("{header:x-tenant}.{body}") + ", " + file + ", tenant: {header: X-Tenant}", ""},
		{"in a header that is not", "{path: /hooks}", scheme + ", " + file + ", tenant: {header: X-Tenant}", "tenant.header: source \"hooks\": the signature of custom does not cover this header"},
		{"in a header signed at times", "{path: /hooks}", signs("{if header:x-tenant}{header:x-tenant}{end}{body}") + ", " + file + ", tenant: {header: X-Tenant}", "tenant.header: "},
		{"in a body that is not signed", "{path: /hooks}", signs("{header:x-a}") + ", " + file + ", tenant: {json: a}", "tenant.json: source \"hooks\": the signature of custom does not cover the whole body"},
		{"under a token", "{path: /hooks}", "scheme: {algorithm: TOKEN, signature: {header: X-Token}}, " + file + ", tenant: {json: a}", "tenant.json: "},
		{"in a zipped body", "{path: /hooks}", `scheme: {algorithm: HMAC_SHA256, body: DECODED, signature: {header: X-Signature}}, ` + file + ", tenant: {json: a}", "tenant.json: source \"hooks\": custom sends its JSON zipped"},
		{"at no path", "{path: /hooks}", scheme + ", " + file + ", tenant: {json: a..b}", "tenant.json: source \"hooks\": an empty name"},
		{"in both", "{path: /hooks}", scheme + ", " + file + ", tenant: {json: a, header: b}", "tenant: write one of json and header"},
		{"in neither", "{path: /hooks}", scheme + ", " + file + ", tenant: {}", "tenant: write one of json and header"},
		{"of nobody", "{path: /hooks}", "verify: none, tenant: {json: a}", "tenant: source \"hooks\": nobody vouches"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse("f", []byte(tenantGate(tt.match, tt.fields)))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), "extauthz.sources[0]."+tt.want)):
				t.Errorf("%v, want %q", err, tt.want)
			case tt.want == "" && c.Gate.Table == nil:
				t.Error("no table")
			}
			// Commands that read no secrets say the same of the rest.
			if _, bare := Parse("f", []byte(tenantGate(tt.match, tt.fields)), WithoutSecrets()); (bare != nil) != (tt.want != "") && !strings.Contains(tt.want, dir) && tt.name != "a file" {
				t.Errorf("without secrets: %v", bare)
			}
		})
	}
}

// A folder is for sources alone.
func TestFolderElsewhere(t *testing.T) {
	t.Parallel()
	for field, text := range map[string]string{
		"admin.token.folder":       "admin: {token: {folder: /run/secrets}}",
		"store.seal_key[0].folder": "store: {bolt: {path: /s, volume: DURABLE}, seal_key: [{folder: /run/secrets}]}",
		"egress.endpoints[0].secrets[0].folder": "store: {bolt: {path: /s, volume: DURABLE}}\n" +
			"egress: {endpoints: [{id: a, url: 'https://a.example', secrets: [{folder: /run/secrets}]}]}",
	} {
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := Parse("f", []byte("store: {bolt: {path: /s}}\nextauthz: {open: [{path: '/t/{tenant}'}]}")); err == nil || !strings.Contains(err.Error(), "an open path is nobody's") {
		t.Errorf("open: %v", err)
	}
}

// `check` looks at every file, run at none: a bad one is one tenant's affair.
func TestTenantFindings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := tenantGate("{path: '/hooks/{tenant}'}", "provider: stripe, secrets: [{folder: "+dir+"}]")
	warnings := func(options ...Option) []string {
		t.Helper()
		return texts(mustParse(t, config, options...).Warnings)
	}
	const at = `extauthz.sources[0].secrets[0].folder: source "hooks": `
	if diff := cmp.Diff([]string{at + "the folder is empty: every request gets 401 unknown_tenant until a file is there"}, warnings()); diff != "" {
		t.Errorf("empty (-want +got):\n%s", diff)
	}
	good := "whsec_" + strongSecret
	for name, text := range map[string]string{
		"acme": good, "acme.next": good + "\n", "..data/x": "", "folder/x": "",
		"blank": " ", "lost.next": good, "other": "sk_live_" + strongSecret, "spa ce": good,
	} {
		writeFile(t, dir, name, text)
	}
	if got := warnings(); len(got) != 0 {
		t.Errorf("without EachTenant: %q", got)
	}
	got := warnings(EachTenant())
	for i, want := range []string{"file " + dir + "/blank: the secret is empty", `file "lost.next" has no effect without file "lost"`, `file "other": `, `file "spa ce" is no tenant's`} {
		if i >= len(got) || !strings.HasPrefix(got[i], at+want) || strings.Contains(got[i], strongSecret) {
			t.Errorf("warnings %q, want %q at %d", got, want, i)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d warnings: %q", len(got), got)
	}
	for i := range 20 {
		writeFile(t, dir, fmt.Sprintf("a%d", i), " ")
	}
	if got := warnings(EachTenant()); len(got) != maxTenantFindings+1 || !strings.Contains(got[maxTenantFindings], "and 16 more files") {
		t.Errorf("%d warnings, the last %q", len(got), got[len(got)-1])
	}
}

// The rules for the length and kind of a secret are those of every other one.
func TestTenantParse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tt := range []struct {
		provider, text, want string // empty: a key
	}{
		{"stripe", "whsec_" + strongSecret, ""},
		{"stripe", "sk_live_" + strongSecret, "wrong kind"},
		{"twitch", strongSecret, ""},
		{"twitch", "short", "at least 10"},
	} {
		c := mustParse(t, tenantGate("{path: '/hooks/{tenant}'}", "provider: "+tt.provider+", secrets: [{folder: "+dir+"/}]"))
		s := c.Gate.Sources[0]
		if s.Tenants == nil || s.Tenants.Folder.Path() != dir || len(s.Keys) != 0 {
			t.Fatalf("source %+v", s)
		}
		_, err := s.Tenants.Parse(secret.New([]byte(tt.text)))
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), strongSecret)) {
			t.Errorf("%s of %s: %v, want %q", tt.text, tt.provider, err, tt.want)
		}
	}
}

// What is said of matches that overlap agrees with the gate also where there is a tenant.
func TestTenantMatches(t *testing.T) {
	t.Parallel()
	paths := []string{"/a", "/b", "/x", "/a/b", "/a/x", "/x/b", "/a/b/c"}
	all := []extauthz.Match{{PathPrefix: "/"}, {PathPrefix: "/a"}, {PathPrefix: "/a/b"}, {PathPrefix: "/x"}}
	for _, p := range append([]string{"/{tenant}", "/a/{tenant}", "/{tenant}/b", "/a/{tenant}/c", "/a/b/{tenant}"}, paths...) {
		all = append(all, extauthz.Match{Path: p})
	}
	takes := func(m extauthz.Match) (got []bool) {
		table, err := extauthz.NewSources([]*extauthz.Source{{
			Name: "s", Matches: []extauthz.Match{m}, Lease: time.Minute, Enforce: extauthz.EnforceOn, OnUnknown: extauthz.OnUnknownRetry,
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range append([]string{"/", "/z", "/z/z", "/a/z", "/z/b", "/a/z/c", "/a/b/z", "/a/b/c/d", "/x/z/z"}, paths...) {
			source, _ := table.Lookup("", "GET", p)
			got = append(got, source != nil)
		}
		return got
	}
	for _, a := range all {
		for _, b := range all {
			covers, meet := true, false
			for i, inA := range takes(a) {
				inB := takes(b)[i]
				covers, meet = covers && (inA || !inB), meet || inA && inB
			}
			if got := coversMatch(a, b); got != covers {
				t.Errorf("coversMatch(%s, %s) = %v", describeMatch(a), describeMatch(b), got)
			}
			if got := overlap(a, b); got != meet {
				t.Errorf("overlap(%s, %s) = %v", describeMatch(a), describeMatch(b), got)
			}
		}
	}
}
