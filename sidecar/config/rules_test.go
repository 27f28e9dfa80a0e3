package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/extauthz"
)

// custom is a source of the user's own that is right in all; more fields can follow.
const custom = `- name: a
  match: {path_prefix: /hooks/a}
  scheme:
    algorithm: HMAC_SHA256
    signed: "{timestamp}.{body}"
    signature: {header: X-Signature}
    timestamp: {header: X-Time}
    id: {header: X-Id}
  secrets: [{env: CONFIG_TEST_STRONG}]
`

// Each rule between fields: what is said, and whether it is an error. Rows name the whole set of findings.
func TestRules(t *testing.T) {
	t.Setenv("CONFIG_TEST_STRONG", strongSecret)
	t.Setenv("CONFIG_TEST_SHORT", "0123456789abcde")
	const source = "extauthz.sources[0]"
	tests := []struct {
		name   string
		config string
		errs   []string
		warns  []string
	}{
		{name: "right in all", config: gateWith(custom)},
		{
			name:   "tolerance of nothing refuses everything",
			config: gateWith(custom + "  tolerance: 0\n"),
			errs:   []string{source + ".tolerance: 0 would refuse every request: sending takes time, and clocks differ; write a duration, such as 5m"},
		},
		{
			// The id must be known for as long as the signed request can be sent again.
			name:   "retention below tolerance",
			config: gateWith(custom + "  tolerance: 1h\n  retention: 59m\n"),
			errs:   []string{source + ".retention: 59m is below the tolerance, 1h: a request could be sent again after its id was forgotten; write at least the tolerance"},
		},
		{name: "retention as the tolerance", config: gateWith(custom + "  tolerance: 1h\n  retention: 1h\n")},
		{
			name:   "retention below the tolerance that nobody wrote",
			config: gateWith(custom + "  retention: 4m59s\n"),
			errs:   []string{source + ".retention: 4m59s is below the tolerance, 5m: a request could be sent again after its id was forgotten; write at least the tolerance"},
		},
		{
			name:   "content window above retention",
			config: gateWith(custom + "  retention: 1d\n  dedupe: {content_window: 1d1s}\n"),
			errs:   []string{source + ".dedupe.content_window: 1d1s is above the retention, 1d; write at most that"},
		},
		{
			name:   "waiting as long as the lease",
			config: gateWith(custom + "  lease: 10s\n  in_flight_wait: 10s\n"),
			errs:   []string{source + ".in_flight_wait: 10s is not below the lease, 10s; when the lease has ended there is nothing to wait for"},
		},
		{
			name: "tolerance without a signed time",
			config: gateWith(`- name: a
  ` + scheme + `
  secrets: [{env: CONFIG_TEST_STRONG}]
  tolerance: 1m
`),
			warns: []string{source + ".tolerance: has no effect: this sender signs no time"},
		},
		{
			name:   "loss accepted where none is to be feared",
			config: gateWith(custom + "  accept_loss: true\n"),
			warns:  []string{source + ".accept_loss: has no effect: it is for senders that never send again"},
		},
		{
			name:   "an end in STORE that only PASS has",
			config: storing(stripeFields + kept + "on_unknown: HOLD, confirm: EXT_PROC, accept_loss: true"),
			warns: []string{
				source + ".on_unknown: has no effect: in STORE an attempt that nobody learns the end of is made again",
				source + ".confirm: has no effect: in STORE the app does not answer through Envoy",
				source + ".accept_loss: has no effect: STORE keeps events until the app has taken them",
			},
		},
		{
			name:   "verification switched off",
			config: gateWith("- {name: a, verify: none}\n"),
			warns:  []string{source + `.verify: source "a" lets every request through: nobody checks who sent it`},
		},
		{
			name:   "no secret",
			config: gateWith("- {name: a, " + scheme + "}\n"),
			errs:   []string{source + `.secrets: source "a": a secret is required; write secrets: [{file: /run/secrets/…}]`},
		},
		{
			name:   "secret in the file, and short",
			config: gateWith("- {name: a, " + scheme + ", secrets: [{value: 0123456789abcde}]}\n"),
			warns: []string{
				source + `.secrets[0]: source "a": the secret has fewer than 16 characters and can be guessed by trying`,
				source + `.secrets[0].value: source "a": the secret stands in the configuration, where every reader of it sees it; outside tests write {file: …} or {env: …}`,
			},
		},
		{
			name:   "secret from nowhere",
			config: gateWith("- {name: a, " + scheme + ", secrets: [{env: CONFIG_TEST_UNSET}, {file: key}, {env: $CONFIG_TEST_STRONG}]}\n"),
			errs: []string{
				source + `.secrets[0].env: source "a": the environment has no variable of this name`,
				source + `.secrets[1].file: source "a": write an absolute path`,
				source + `.secrets[2].env: source "a": write the name of a variable alone, without $ or =`,
			},
		},
		{
			name:   "the same secret twice",
			config: gateWith("- {name: a, " + scheme + ", secrets: [{env: CONFIG_TEST_STRONG}, {env: CONFIG_TEST_STRONG}]}\n"),
			warns:  []string{source + `.secrets[1]: source "a": is the same secret as secrets[0]`},
		},
		{
			name:   "secrets past their time",
			config: gateWith("- {name: a, " + scheme + ", secrets: [{env: CONFIG_TEST_STRONG, until: 2020-01-01T00:00:00Z}]}\n"),
			warns: []string{
				source + `.secrets: source "a": no secret is accepted any more, so every request is refused`,
				source + `.secrets[0].until: source "a": this time has passed; the secret is not accepted any more, remove it`,
			},
		},
		{
			name:   "scheme that says nothing",
			config: gateWith("- {name: a, scheme: {algorithm: HMAC_SHA256, signed: \"{oops}\", signature: {header: X-S}}, secrets: [{env: CONFIG_TEST_STRONG}]}\n"),
			errs:   []string{source + ".scheme.signed: "},
		},
		{
			name:   "names taken",
			config: gateWith("- {name: a, verify: none}\n- {name: a, verify: none}\n- {name: b, was: [a], verify: none}\n- {name: c, was: [d, d], verify: none}\n"),
			errs: []string{
				`extauthz.sources[1].name: "a" is taken by extauthz.sources[0].name; a name, also an earlier one, belongs to one source`,
				`extauthz.sources[2].was[0]: "a" is taken by extauthz.sources[0].name; a name, also an earlier one, belongs to one source`,
				`extauthz.sources[3].was[1]: "d" is taken by extauthz.sources[3].was[0]; a name, also an earlier one, belongs to one source`,
			},
			warns: []string{"extauthz.sources[0].verify", "extauthz.sources[1].verify", "extauthz.sources[2].verify", "extauthz.sources[3].verify"},
		},
		{
			name: "two sources match the same",
			config: gateWith(custom + `- name: b
  match: {path_prefix: /hooks/a/}
  ` + scheme + `
  secrets: [{env: CONFIG_TEST_STRONG}]
`),
			errs: []string{`extauthz.sources[1].match: sources "a" and "b" match the same requests (path_prefix /hooks/a/); tell them apart by host, path or method`},
		},
		{
			name: "matches that differ in one thing",
			config: gateWith(custom + `- name: b
  match: {path: /hooks/a}
  ` + scheme + `
  secrets: [{env: CONFIG_TEST_STRONG}]
- name: c
  match: {path_prefix: /hooks/a, method: POST}
  ` + scheme + `
  secrets: [{env: CONFIG_TEST_STRONG}]
- name: d
  match: {path_prefix: /hooks/a, host: a.example}
  ` + scheme + `
  secrets: [{env: CONFIG_TEST_STRONG}]
`),
		},
		{
			name:   "max_body above what may be in memory",
			config: gateWith(custom+"  max_body: 2Mi\n") + "limits: {bodies_in_flight: 1Mi}\n",
			errs:   []string{"limits.bodies_in_flight: 1Mi is below the largest max_body, 2Mi, which could then never pass"},
		},
		{
			name:   "public URL that nobody signs",
			config: gateWith(custom + "  public_url: https://hooks.example.com\n"),
			warns:  []string{source + ".public_url: has no effect: this sender does not sign the URL"},
		},
		{
			name:   "public URL that is needed",
			config: gateWith("- {name: a, scheme: {algorithm: HMAC_SHA256, signed: \"{url}{body}\", signature: {header: X-S}}, secrets: [{env: CONFIG_TEST_STRONG}]}\n"),
			errs:   []string{source + ".public_url: is required: custom signs the URL that it calls; write its origin as the sender knows it, such as https://hooks.example.com"},
		},
		{
			name:   "handshakes of others",
			config: gateWith(custom + "  handshake: {unsigned: true, verify_token: {env: CONFIG_TEST_STRONG}}\n"),
			errs: []string{
				source + ".handshake.unsigned: is for slack alone: what other senders leave unsigned is answered without it",
				source + ".handshake.verify_token: is for meta and ebay: other senders have none",
			},
		},
		{
			// The app's probes would get 403, and the pod would never be ready.
			name:   "no open",
			config: "store: {bolt: {path: /s}}\nextauthz:\n  sources:\n" + indent(custom),
			warns:  []string{"extauthz: no open is written: all that no source claims gets 403, the app's own routes and probes too; open: [{path_prefix: /}] lets it through"},
		},
		{
			name:   "open that does nothing",
			config: "store: {bolt: {path: /s}}\nextauthz:\n  open: [{path_prefix: /}, {path: /healthz}, {path_prefix: /hooks/a}, {path_prefix: /}]\n  sources:\n" + indent(custom),
			warns: []string{
				"extauthz.open[1]: has no effect beside extauthz.open[0], which covers it (path_prefix /)",
				`extauthz.open[2]: has no effect: source "a" matches the same requests (path_prefix /hooks/a), and goes first`,
				"extauthz.open[3]: has no effect beside extauthz.open[0], which covers it (path_prefix /)",
			},
		},
		{
			// The first is worth a look: it frees every path of that host, the source's own included.
			name:   "open that goes before a source",
			config: "store: {bolt: {path: /s}}\nextauthz:\n  open: [{host: app.example, path_prefix: /}, {path: /hooks/a/public}]\n  sources:\n" + indent(custom),
			warns: []string{
				`extauthz.open[0]: goes before source "a", being more exact (host app.example, path_prefix /): requests that both match are let through unsigned`,
				`extauthz.open[1]: goes before source "a", being more exact (path /hooks/a/public): requests that both match are let through unsigned`,
			},
		},
		{
			// An app that does not look at Host is reached at the source's path under any name.
			name: "open beside a source of one host",
			config: "store: {bolt: {path: /s}}\nextauthz:\n  open: [{path_prefix: /}, {host: app.example, path_prefix: /hooks}]\n  sources:\n" +
				indent("- {name: a, match: {host: hooks.example, path: /hooks/a}, "+scheme+", secrets: [{env: CONFIG_TEST_STRONG}]}\n"+
					"- {name: b, match: {host: hooks.example, path: /hooks/b}, "+scheme+", secrets: [{env: CONFIG_TEST_STRONG}]}\n"+
					"- {name: c, match: {path_prefix: /hooks/b}, "+scheme+", secrets: [{env: CONFIG_TEST_STRONG}]}\n"),
			warns: []string{
				`extauthz.open[0]: lets the path of source "a" (host hooks.example, path /hooks/a) through unsigned under every other Host header, ` +
					`and who sends writes that: leave host out of the source's match, or name the app's own host here`,
				`extauthz.open[1]: goes before source "c", being more exact (host app.example, path_prefix /hooks): requests that both match are let through unsigned`,
			},
		},
		{
			name:   "listeners on one address",
			config: gateWith(custom) + "admin: {listen: \"localhost:9191\"}\nhealth: {listen: \":9191\"}\n",
			errs: []string{
				"extauthz.listen: 127.0.0.1:9191 collides with admin.listen, 127.0.0.1:9191; give one of them another port",
				"extauthz.listen: 127.0.0.1:9191 collides with health.listen, :9191; give one of them another port",
				"health.listen: :9191 collides with admin.listen, 127.0.0.1:9191; give one of them another port",
			},
		},
		{
			name:   "store at the root",
			config: "store: {bolt: {path: //}}\n",
			errs:   []string{"store.bolt.path: is the root of the file system; write a folder of its own, such as /var/lib/sidehook"},
		},
		{
			name:   "token that can be guessed, with an end",
			config: "admin: {token: {env: CONFIG_TEST_SHORT, until: 2030-01-01T00:00:00Z}}\n",
			errs:   []string{"admin.token.until: is for the secrets of a source; remove it"},
			warns:  []string{"admin.token: admin: the token has fewer than 16 characters and can be guessed by trying"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLoader("sidehook.yaml", nil)
			c, err := l.parse([]byte(tt.config))
			checkTexts(t, "errors", texts(Findings(err)), tt.errs)
			checkTexts(t, "warnings", texts(l.warnings()), tt.warns)
			if (err == nil) != (c != nil) {
				t.Errorf("config %v beside error %v", c, err)
			}
			if c != nil && !cmp.Equal(c.Warnings, l.warnings()) {
				t.Errorf("Warnings = %v, want %v", c.Warnings, l.warnings())
			}
		})
	}
}

// checkTexts compares without order; a wanted text may be the beginning of one.
func checkTexts(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestMatchPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		field, value string
		ok           bool
	}{
		{"path", "/", true},
		{"path", "/webhooks/stripe", true},
		{"path", "/a%20b", true}, // raw, as it is sent
		{"path_prefix", "/webhooks/", true},
		{"path", "webhooks", false},
		{"path", "/a b", false},
		{"path", "/é", false},
		{"path", "/a?b=1", false},
		{"path", "/a#b", false},
		{"path", "/t/{tenant}", false}, // one of open
		{"path_prefix", "/a/*", false},
		{"path", `/a\b`, false},
		{"path", "/a;v=1", false},
		{"path", "/a//b", false},
		{"path", "/a/../b", false},
		{"path_prefix", "/a/.", false},
		{"method", "POST", true},
		{"method", "post", false},
		{"method", "*", false},
		{"host", "hooks.example.com", true},
		{"host", "HOOKS.example.com:8443", true},
		{"host", "[2001:db8::1]:443", true},
		{"host", "[2001:db8::1]", true},
		{"host", "2001:db8::1", false},
		{"host", "https://hooks.example.com", false},
		{"host", "*.example.com", false},
		{"host", "hooks.example.com/", false},
	}
	for _, tt := range tests {
		match := tt.field + ": '" + tt.value + "'"
		if !strings.HasPrefix(tt.field, "path") {
			match += ", path_prefix: /"
		}
		_, err := Parse("f", []byte("store: {bolt: {path: /s}}\nextauthz: {open: [{"+match+"}]}"))
		if (err == nil) != tt.ok {
			t.Errorf("%s %s: %v", tt.field, tt.value, err)
		}
		if err != nil && !strings.Contains(err.Error(), "extauthz.open[0]."+tt.field+": ") {
			t.Errorf("%s %s: the error names no field: %v", tt.field, tt.value, err)
		}
	}
	for _, both := range []string{"{}", "{path: /a, path_prefix: /b}", "{method: POST}"} {
		_, err := Parse("f", []byte("store: {bolt: {path: /s}}\nextauthz: {open: ["+both+"]}"))
		if err == nil || !strings.Contains(err.Error(), "extauthz.open[0]: ") {
			t.Errorf("%s: %v, want that exactly one of path and path_prefix is written", both, err)
		}
	}
}

// The order that Config warns by is the order that the gate goes by.
func TestOutranksAgreesWithGate(t *testing.T) {
	t.Parallel()
	var all []extauthz.Match
	for _, host := range []string{"", "h.example"} {
		for _, method := range []string{"", "POST"} {
			for _, p := range []string{"/", "/a", "/a/b"} {
				all = append(all, extauthz.Match{Host: host, Method: method, Path: p},
					extauthz.Match{Host: host, Method: method, PathPrefix: p})
			}
		}
	}
	for _, open := range all {
		for _, of := range all {
			if !overlap(open, of) {
				continue
			}
			source := &extauthz.Source{
				Name: "s", Matches: []extauthz.Match{of}, Lease: time.Minute,
				Enforce: extauthz.EnforceOn, OnUnknown: extauthz.OnUnknownRetry,
			}
			table, err := extauthz.NewSources([]*extauthz.Source{source}, []extauthz.Match{open})
			if err != nil {
				t.Fatal(err)
			}
			longer := max(open.Path+open.PathPrefix, of.Path+of.PathPrefix)
			_, isOpen := table.Lookup("h.example", "POST", longer)
			if got := outranks(open, of); got != isOpen {
				t.Errorf("outranks(%s, %s) = %v, but the gate says open %v for POST %s",
					describeMatch(open), describeMatch(of), got, isOpen, longer)
			}
		}
	}
}

func TestPublicURL(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{"https://hooks.example.com", "https://hooks.example.com"},
		{"https://hooks.example.com/", "https://hooks.example.com"},
		{"http://hooks.example.com:8080/in", "http://hooks.example.com:8080/in"},
		// Twilio's connection overrides are no part of the URL that is signed.
		{"https://hooks.example.com/in#rc=2", "https://hooks.example.com/in"},
		{"hooks.example.com", ""},
		{"https://", ""},
		{"ftp://hooks.example.com", ""},
		{"https://user:pass@hooks.example.com", ""},
		{"https://hooks.example.com/?a=b", ""},
		{"https://hooks.example.com/?", ""},
		{"https:hooks.example.com", ""},
		{"https://a b", ""},
	}
	for _, tt := range tests {
		got, err := parseOrigin(tt.in)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("parseOrigin(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
		}
	}
}
