package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	t.Setenv("CONFIG_TEST_STRONG", strongSecret)
	base := gateWith(custom + "- {name: b, verify: none}\n")
	tests := []struct {
		name   string
		change func(string) string
		want   []string
	}{
		{"nothing", func(s string) string { return s }, nil},
		{"a comment and a default that is written out", func(s string) string { return s + "admin: {} # on\n" }, nil},
		{"a value", func(s string) string { return strings.Replace(s, "path_prefix: /hooks/a", "path_prefix: /hooks/b", 1) },
			[]string{"extauthz.sources[a].match.path_prefix: /hooks/a -> /hooks/b"}},
		{"read at start", func(s string) string { return strings.Replace(s, "/var/lib/sidehook", "/data", 1) },
			[]string{"store.bolt.path: /var/lib/sidehook -> /data (needs restart)"}},
		{"a default that is left", func(s string) string { return s + "health: {listen: \":1\"}\nlimits: {source_percent: 60}\n" },
			[]string{"health.listen: :9394 -> :1 (needs restart)", "limits.source_percent: 50 -> 60 (needs restart)"}},
		{"a source is renamed and keeps its claims", func(s string) string { return strings.Replace(s, "{name: b,", "{name: c, was: [b],", 1) },
			[]string{"extauthz.sources[b].name: removed: b; its claims count for c", "extauthz.sources[c].name: added: c; a new source"}},
		{"a source is removed", func(s string) string { return strings.Replace(s, "  - {name: b, verify: none}\n", "", 1) },
			[]string{"extauthz.sources[b].name: removed: b; a removed source: its events are kept as orphaned; to rename it, write was: [b] at the new one"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			changed := tt.change(base)
			if changed == base && tt.want != nil {
				t.Fatal("the test changes nothing")
			}
			var got []string
			for _, c := range Diff(mustParse(t, base), mustParse(t, changed)) {
				got = append(got, c.String())
			}
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("%q is missing in %q", want, got)
				}
			}
			if len(tt.want) == 0 && len(got) > 0 {
				t.Errorf("changes %q, want none", got)
			}
		})
	}
}

// What a change of the mode does to what is under way is said before it is made.
func TestDiffMode(t *testing.T) {
	t.Setenv("CONFIG_TEST_STRONG", strongSecret)
	pass := gateWith(custom)
	pass = strings.Replace(pass, "path: /var/lib/sidehook", "path: /var/lib/sidehook, volume: DURABLE", 1)
	store := pass + "    mode: STORE\n    delivery: {url: http://app.internal, allow: [10.1.2.0/24]}\n"
	tests := []struct {
		name, old, new, want string
	}{
		{"PASS to STORE", pass, store, "extauthz.sources[a].mode: PASS -> STORE; senders are answered by sidehook, and the app gets the events " +
			"from it; claims that are open end as they were made"},
		{"STORE to PASS", store, pass, "extauthz.sources[a].mode: STORE -> PASS; what is stored and not delivered yet waits as orphaned: " +
			"let it be delivered first, or discard it"},
	}
	for _, tt := range tests {
		var got []string
		for _, c := range Diff(mustParse(t, tt.old), mustParse(t, tt.new)) {
			got = append(got, c.String())
		}
		if !slices.Contains(got, tt.want) {
			t.Errorf("%s: %q is missing in %q", tt.name, tt.want, got)
		}
	}
	want := Weakening{Path: "extauthz.sources[0].delivery.allow[0]", Source: "a", What: "allow 10.1.2.0/24"}
	if got := Weakenings(mustParse(t, store)); !slices.Contains(got, want) {
		t.Errorf("Weakenings() = %v; %v is missing", got, want)
	}
}

// What a change does to deliveries is said before it is made.
func TestDiffEgress(t *testing.T) {
	t.Setenv("CONFIG_TEST_SIGNING", signing('a', 32))
	const a = "egress.endpoints[acme]"
	base := endpointWith("")
	tests := []struct {
		name, old, new string
		want           []string
	}{
		{"an endpoint's URL", "/in", "/out",
			[]string{a + ".url: https://hooks.acme.example/in -> https://hooks.acme.example/out; holds from the next attempt, also for what is queued"}},
		{"an endpoint is gone", "id: acme", "id: acme-2", []string{
			"egress.endpoints[acme-2].id: added: acme-2; a new endpoint",
			a + ".id: removed: acme; a removed endpoint: its deliveries are cancelled, and kept as such; a new one of this id does not send them",
		}},
		{"the tenant", "id: acme\n", "id: acme\n    tenant: t\n",
			[]string{a + ".tenant: added: t; holds for new events; what is queued goes to the endpoint all the same"}},
		{"a schedule that all endpoints have", "egress:\n", "egress:\n  delivery: {waits: [7s]}\n",
			[]string{"egress.delivery.waits[0]: 5s -> 7s", a + ".delivery.waits[0]: 5s -> 7s", a + ".delivery.waits[1]: removed: 5m"}},
		{"the listener", "egress:\n", "egress:\n  listen: unix:/run/s.sock\n", []string{"egress.listen: 127.0.0.1:9292 -> unix:/run/s.sock (needs restart)"}},
		{"the volume", "DURABLE", "EPHEMERAL", []string{"store.bolt.volume: DURABLE -> EPHEMERAL (needs restart)"}},
		{"how long it is kept", "egress:\n", "keep: {log: 1d}\negress:\n", []string{"keep.log: 30d -> 1d"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			changed := strings.Replace(base, tt.old, tt.new, 1)
			if changed == base {
				t.Fatal("the test changes nothing")
			}
			var got []string
			for _, c := range Diff(mustParse(t, base), mustParse(t, changed)) {
				got = append(got, c.String())
				if c.IsURL() != strings.Contains(c.String(), "https://") {
					t.Errorf("IsURL() = %t of %s", c.IsURL(), c)
				}
			}
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("%q is missing in\n%s", want, strings.Join(got, "\n"))
				}
			}
		})
	}
}

func TestWeakenings(t *testing.T) {
	t.Setenv("CONFIG_TEST_STRONG", strongSecret)
	t.Setenv("CONFIG_TEST_SIGNING", signing('a', 32))
	c := mustParse(t, "store: {bolt: {path: /s, volume: DURABLE}}\nextauthz:\n  open: [{path: /healthz}, {path_prefix: /}]\n  sources:\n"+
		indent(custom+"  enforce: REPORT\n- {name: b, verify: none}\n")+`egress:
  filter: {allow: [10.0.0.0/8], allow_http: true, allow_nat64: true, allow_names: [hooks.internal], enforce: REPORT}
  endpoints:
  - id: e
    url: https://e.example
    secrets: [{env: CONFIG_TEST_SIGNING}]
    filter: {allow: [127.0.0.1/32], proxy: {url: http://proxy.example:3128, by_name: true}, deny: [10.9.0.0/16], ports: [8443]}
`)
	want := []Weakening{
		{Path: "extauthz.open[1]", What: "open /"},
		{Path: "extauthz.sources[0].enforce", Source: "a", What: "enforce: REPORT"},
		{Path: "extauthz.sources[1].verify", Source: "b", What: "verify: none"},
		{Path: "egress.filter.allow[0]", What: "allow 10.0.0.0/8"},
		{Path: "egress.filter.allow_names[0]", What: "allow_names hooks.internal"},
		{Path: "egress.filter.allow_http", What: "allow_http: true"},
		{Path: "egress.filter.allow_nat64", What: "allow_nat64: true"},
		{Path: "egress.filter.enforce", What: "enforce: REPORT"},
		{Path: "egress.endpoints[0].filter.allow[0]", Endpoint: "e", What: "allow 127.0.0.1/32"},
		{Path: "egress.endpoints[0].filter.proxy.by_name", Endpoint: "e", What: "proxy.by_name: true"},
	}
	if diff := cmp.Diff(want, Weakenings(c)); diff != "" {
		t.Errorf("Weakenings() (-want +got):\n%s", diff)
	}
	if w := Weakenings(mustParse(t, "{}")); len(w) != 0 {
		t.Errorf("Weakenings of nothing = %v", w)
	}
}
