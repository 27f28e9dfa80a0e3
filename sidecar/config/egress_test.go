package config

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/egress"
)

// signing returns a secret of Standard Webhooks whose key has n bytes, all of them c.
func signing(c byte, n int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(slices.Repeat([]byte{c}, n))
}

// egressWith is a whole configuration with an egress section of these lines, which are not indented.
func egressWith(lines string) string {
	return "store: {bolt: {path: /var/lib/sidehook, volume: DURABLE}}\negress:\n" + indent(lines)
}

// endpointWith is a whole configuration with one endpoint that is right in all; more of its fields follow.
func endpointWith(fields string) string {
	return egressWith("endpoints:\n- id: acme\n  url: https://hooks.acme.example/in\n  secrets: [{env: CONFIG_TEST_SIGNING}]\n" + fields)
}

// Each rule of the outbound half: what is said, and whether it is an error. Rows name the whole set of findings.
func TestEgressRules(t *testing.T) {
	t.Setenv("CONFIG_TEST_SIGNING", signing('a', 32))
	t.Setenv("CONFIG_TEST_OTHER", signing('b', 32))
	t.Setenv("CONFIG_TEST_SHORT", signing('c', 23))
	t.Setenv("CONFIG_TEST_LEAST", signing('d', 24))
	t.Setenv("CONFIG_TEST_MOST", signing('e', 64))
	t.Setenv("CONFIG_TEST_LONG", signing('f', 65))
	t.Setenv("CONFIG_TEST_BARE", strings.TrimPrefix(signing('g', 32), "whsec_"))
	t.Setenv("CONFIG_TEST_PUBLIC", "whpk_"+base64.StdEncoding.EncodeToString(slices.Repeat([]byte{'p'}, 32)))
	t.Setenv("CONFIG_TEST_PASTED", "v1,"+signing('a', 32))
	const endpoint = "egress.endpoints[0]"
	const second = "- id: other\n  url: https://hooks.other.example/in\n"
	tests := []struct {
		name   string
		config string
		errs   []string
		warns  []string
	}{
		{name: "right in all", config: endpointWith("")},
		{name: "no endpoint at all", config: egressWith("{}")},
		{
			name:   "no store",
			config: "egress: {}\n",
			errs:   []string{"store: is required with egress: events are kept there"},
		},
		{
			// Nobody shall learn from a rescheduled pod that accepted events were in a folder that is gone.
			name:   "how long the folder lives is not said",
			config: "store: {bolt: {path: /s}}\negress: {}\n",
			errs:   []string{"store.bolt.volume: is required with egress: write DURABLE if"},
		},
		{
			name:   "a folder that ends with the pod",
			config: "store: {bolt: {path: /s, volume: EPHEMERAL}}\negress: {}\n",
			warns:  []string{"store.bolt.volume: events that were answered 202 die with the pod"},
		},
		{
			name:   "what only egress uses",
			config: "store: {bolt: {path: /s}, seal_key: [{env: CONFIG_TEST_SIGNING}]}\nkeep: {log: 1d}\nnotify: {}\n",
			warns: []string{"store.seal_key: has no effect without egress", "keep: has no effect without egress",
				"notify: has no effect without egress"},
		},
		{
			name:   "a listener that others reach",
			config: egressWith("listen: 0.0.0.0:9292\n"),
			errs:   []string{`egress.listen: "0.0.0.0:9292" can be reached from outside the pod`},
		},
		{
			name:   "the listener of another part",
			config: egressWith("listen: localhost:9393\n"),
			errs:   []string{"egress.listen: 127.0.0.1:9393 collides with admin.listen, 127.0.0.1:9393"},
		},
		{
			name:   "a name with a port",
			config: egressWith("hosts: [sidehook.internal:9292]\n"),
			errs:   []string{"egress.hosts[0]: write a name such as sidehook.internal"},
		},
		{
			name:   "a token that can be guessed",
			config: egressWith("auth: {token: {value: 0123456789abcde}}\n"),
			warns: []string{"egress.auth.token.value: egress: the secret stands in the configuration",
				"egress.auth.token: egress: the token has fewer than 16 characters and can be guessed by trying"},
		},
		{
			name:   "an event that could never be taken",
			config: egressWith("max_event: 2Mi\n") + "limits: {egress_bodies: 1Mi}\n",
			errs:   []string{"limits.egress_bodies: 1Mi is below egress.max_event, 2Mi, which could then never be taken"},
		},
		{
			name:   "an id twice",
			config: endpointWith("- id: acme\n  url: https://b.example\n  secrets: [{env: CONFIG_TEST_OTHER}]\n"),
			errs:   []string{`egress.endpoints[1].id: "acme" is taken by egress.endpoints[0]; an id belongs to one endpoint`},
		},
		{
			name:   "an id that is none",
			config: strings.Replace(endpointWith(""), "id: acme", "id: _api", 1),
			errs:   []string{endpoint + ".id: write 1 to 63 of a-z, 0-9 and -"},
		},
		{
			name:   "http",
			config: strings.Replace(endpointWith(""), "https:", "http:", 1),
			errs:   []string{endpoint + `.url: endpoint "acme": `},
		},
		{
			name:   "http that is allowed, to a port that is listed",
			config: strings.Replace(endpointWith("  filter: {allow_http: true, ports: [80]}\n"), "https:", "http:", 1),
		},
		{
			name:   "the usual port beside one of its own",
			config: endpointWith("  filter: {ports: [8443]}\n"),
		},
		{
			name:   "a port of its own",
			config: strings.Replace(endpointWith("  filter: {ports: [8443]}\n"), "acme.example", "acme.example:8443", 1),
		},
		{
			// Where egress.filter names ports, the usual one is not among them unless it is named.
			name:   "the usual port where others are named",
			config: strings.Replace(endpointWith("  filter: {ports: [8443]}\n"), "egress:\n", "egress:\n  filter: {ports: [9443]}\n", 1),
			errs:   []string{endpoint + `.url: endpoint "acme": `},
		},
		{
			name:   "a filter that names no ports",
			config: endpointWith("  filter: {deny_names: [a.example]}\n"),
		},
		{
			name:   "this host itself",
			config: strings.Replace(endpointWith(""), "hooks.acme.example", "127.0.0.1", 1),
			errs:   []string{endpoint + `.url: endpoint "acme": `},
		},
		{
			name:   "this host itself for one endpoint alone",
			config: strings.Replace(endpointWith("  filter: {allow: [127.0.0.1/32]}\n"), "hooks.acme.example", "127.0.0.1", 1),
		},
		{
			// The wider filter is that endpoint's alone.
			name: "this host itself for another endpoint",
			config: endpointWith("  filter: {allow: [127.0.0.1/32]}\n- id: other\n  url: https://127.0.0.1/in\n" +
				"  secrets: [{env: CONFIG_TEST_OTHER}]\n"),
			errs: []string{`egress.endpoints[1].url: endpoint "other": `},
		},
		{
			// What is denied for all is denied for an endpoint with a filter of its own too.
			name: "allowed for itself and denied for all",
			config: strings.Replace(strings.Replace(endpointWith("  filter: {allow: [127.0.0.1/32]}\n"),
				"hooks.acme.example", "127.0.0.1", 1), "egress:\n", "egress:\n  filter: {deny: [127.0.0.0/8]}\n", 1),
			errs: []string{endpoint + `.url: endpoint "acme": `},
		},
		{
			name:   "a network that is an address",
			config: egressWith("filter: {allow: [10.0.0.1], deny: [fd00::1]}\n"),
			errs: []string{`egress.filter.allow[0]: "10.0.0.1": write how much of it counts, such as 10.0.0.1/32 for this address alone`,
				`egress.filter.deny[0]: "fd00::1": write how much of it counts, such as fd00::1/128 for this address alone`},
		},
		{
			name:   "a network with bits beyond its length",
			config: egressWith("filter: {allow: [10.0.0.1/8]}\n"),
			errs:   []string{`egress.filter.allow[0]: "10.0.0.1/8": has bits beyond its length; is 10.0.0.0/8 meant?`},
		},
		{
			name:   "everything allowed",
			config: egressWith("filter: {allow: [0.0.0.0/0]}\n"),
			errs:   []string{"egress.filter: allow: "},
		},
		{
			name:   "port 0",
			config: egressWith("filter: {ports: [443, 0]}\n"),
			errs:   []string{"egress.filter.ports[1]: write 1 to 65535"},
		},
		{
			name:   "a proxy with a password in its URL",
			config: egressWith("filter: {proxy: {url: 'http://user:pass@proxy.example:3128'}}\n"),
			errs:   []string{"egress.filter.proxy.url: leave user and password out; write authorization: {file: …}"},
		},
		{
			name:   "a proxy's certificates where none are looked at",
			config: egressWith("filter: {proxy: {url: 'http://proxy.example:3128', ca_file: /ca.pem}}\n"),
			errs:   []string{"egress.filter.proxy.ca_file: has no effect on a proxy that is spoken to by http; remove it", "egress.filter.proxy.ca_file: stat /ca.pem"},
		},
		{
			name:   "event types",
			config: endpointWith("  event_types: [a.b, 'a.*', '*', 'a*', '*.a', 'a.*.b', 'a b', '.*', 'é']\n"),
			errs: []string{
				endpoint + `.event_types[3]: "a*": a * stands alone, or as the last segment: invoice.*`,
				endpoint + `.event_types[4]: "*.a": a * stands alone, or as the last segment: invoice.*`,
				endpoint + `.event_types[5]: "a.*.b": a * stands alone, or as the last segment: invoice.*`,
				endpoint + `.event_types[6]: "a b": a type is printable ASCII without blanks`,
				endpoint + `.event_types[7]: ".*": a * stands alone, or as the last segment: invoice.*`,
				endpoint + `.event_types[8]: "é": a type is printable ASCII without blanks`,
			},
		},
		{
			name:   "no secret",
			config: strings.Replace(endpointWith(""), "secrets: [{env: CONFIG_TEST_SIGNING}]", "secrets: []", 1),
			errs:   []string{endpoint + `.secrets: endpoint "acme": a secret is required`},
		},
		{
			// The specification has 24 to 64 bytes (standard-webhooks#25).
			name:   "secrets at the borders of what the specification has",
			config: strings.Replace(endpointWith(""), "[{env: CONFIG_TEST_SIGNING}]", "[{env: CONFIG_TEST_LEAST}, {env: CONFIG_TEST_MOST}, {env: CONFIG_TEST_BARE}]", 1),
		},
		{
			name:   "secrets beyond them",
			config: strings.Replace(endpointWith(""), "[{env: CONFIG_TEST_SIGNING}]", "[{env: CONFIG_TEST_SHORT}, {env: CONFIG_TEST_LONG}]", 1),
			errs: []string{endpoint + `.secrets[0]: endpoint "acme": the secret is a key of 23 bytes; Standard Webhooks has 24 to 64`,
				endpoint + `.secrets[1]: endpoint "acme": the secret is a key of 65 bytes; Standard Webhooks has 24 to 64`},
		},
		{
			name:   "secrets of the wrong kind",
			config: strings.Replace(endpointWith(""), "[{env: CONFIG_TEST_SIGNING}]", "[{env: CONFIG_TEST_PUBLIC}, {env: CONFIG_TEST_PASTED}]", 1),
			errs: []string{endpoint + `.secrets[0]: endpoint "acme": the secret cannot sign, it is a public key`,
				endpoint + `.secrets[1]: endpoint "acme": secret is of the wrong kind: leave out the v1, before whsec_`},
		},
		{
			name:   "one secret twice",
			config: strings.Replace(endpointWith(""), "[{env: CONFIG_TEST_SIGNING}]", "[{env: CONFIG_TEST_SIGNING}, {env: CONFIG_TEST_SIGNING}]", 1),
			warns:  []string{endpoint + `.secrets[1]: endpoint "acme": is the same secret as secrets[0]`},
		},
		{
			name:   "one secret for two endpoints",
			config: endpointWith(second + "  secrets: [{env: CONFIG_TEST_SIGNING}]\n"),
			warns:  []string{`egress.endpoints[1].secrets[0]: endpoint "other": is also a secret of endpoint "acme"`},
		},
		{
			name:   "a secret past its time beside one that signs",
			config: strings.Replace(endpointWith(""), "[{env: CONFIG_TEST_SIGNING}]", "[{env: CONFIG_TEST_SIGNING}, {env: CONFIG_TEST_OTHER, until: 2020-01-01T00:00:00Z}]", 1),
			warns:  []string{endpoint + `.secrets[1].until: endpoint "acme": this time has passed; nothing is signed with the secret any more, remove it`},
		},
		{
			// An attempt without a signature is never made.
			name:   "only a secret past its time",
			config: strings.Replace(endpointWith(""), "CONFIG_TEST_SIGNING}", "CONFIG_TEST_SIGNING, until: 2020-01-01T00:00:00Z}", 1),
			errs:   []string{endpoint + `.secrets: endpoint "acme": no secret signs any more; write one without until`},
			warns:  []string{endpoint + `.secrets[0].until: `},
		},
		{
			name:   "headers",
			config: endpointWith("  headers: [{name: X-Acme, value: a}, {name: Authorization, secret: {env: CONFIG_TEST_OTHER}}, {name: x-acme, value: b}]\n"),
			errs:   []string{endpoint + `.headers[2].name: endpoint "acme": "x-acme" stands twice`},
		},
		{
			// Whatever it is written as, it is taken for what its name says.
			name:   "a header that bears a secret in the clear",
			config: endpointWith("  headers: [{name: Authorization, value: Bearer 0123456789abcdef}, {name: X-Colour, value: blue}]\n"),
			warns:  []string{endpoint + `.headers[0].secret.value: endpoint "acme": the secret stands in the configuration`},
		},
		{
			name:   "headers that are ours",
			config: endpointWith("  headers: [{name: WEBHOOK-ID, value: a}, {name: Host, value: a}, {name: X-A, value: \"a\\r\\nb\"}]\n"),
			errs: []string{endpoint + `.headers[0]: endpoint "acme": `, endpoint + `.headers[1]: endpoint "acme": `,
				endpoint + `.headers[2]: endpoint "acme": `},
		},
		{
			name:   "a header without a value",
			config: endpointWith("  headers: [{name: X-B}]\n"),
			errs:   []string{endpoint + `.headers[0]: write one of value and secret`},
		},
		{
			name:   "an owner whom no mail reaches",
			config: endpointWith("  owner: ops@acme.example\n"),
			warns:  []string{endpoint + ".owner: is told nothing: mails need notify.smtp"},
		},
		{
			name:   "an owner with a name",
			config: endpointWith("  owner: Ops <ops@acme.example>\n") + "notify: {smtp: {server: 'mail.example.com:587', from: a@example.com}}\n",
			errs:   []string{endpoint + `.owner: "Ops <ops@acme.example>" is no mail address`},
		},
		{
			name:   "delivery beyond its bounds",
			config: endpointWith("  delivery: {timeout: 6m, waits: [50ms], jitter_percent: 101, stop_on: [200, 410], max_in_flight: 513, rate: fast, disable_after: 59m}\n"),
			errs: []string{
				endpoint + ".delivery.timeout: write at least 100ms and at most 5m",
				endpoint + ".delivery.waits[0]: write at least 100ms and at most 30d",
				endpoint + ".delivery.jitter_percent: write 0 to 100",
				endpoint + ".delivery.stop_on[0]: write codes from 300 to 599, but for 410, which is on_gone's",
				endpoint + ".delivery.stop_on[1]: write codes from 300 to 599, but for 410, which is on_gone's",
				endpoint + ".delivery.max_in_flight: write 1 to 512",
				endpoint + ".delivery.rate: write a whole number and a unit: 50/s, 600/m or 1000/h",
				endpoint + ".delivery.disable_after: write 0, or at least 1h and at most 90d",
			},
		},
		{
			name:   "two schedules",
			config: endpointWith("  delivery: {waits: [5s], exponential: {}, jitter_percent: 5}\n"),
			errs: []string{endpoint + ".delivery.exponential: waits and exponential exclude each other; remove one",
				endpoint + ".delivery.jitter_percent: exponential has full jitter of its own; remove one of them"},
		},
		{
			name:   "exponential waits that shrink",
			config: endpointWith("  delivery: {exponential: {base: 1m, cap: 30s, factor: 0.5, attempts: 101}}\n"),
			errs: []string{endpoint + ".delivery.exponential.factor: write 1 to 10",
				endpoint + ".delivery.exponential.attempts: write 1 to 100"},
		},
		{
			name:   "a cap below its base",
			config: endpointWith("  delivery: {exponential: {base: 1m, cap: 30s}}\n"),
			errs:   []string{endpoint + ".delivery.exponential.cap: 30s is below base, 1m; write at least that"},
		},
		{
			name:   "a factor that is no plain number",
			config: endpointWith("  delivery: {exponential: {factor: .inf}}\n"),
			errs:   []string{endpoint + `.delivery.exponential.factor: ".inf" is no number; write one such as 2 or 1.5`},
		},
		{
			name:   "kept too short for a repeated id to be known",
			config: egressWith("{}") + "keep: {delivered: 23h, dead: 23h, log: 59m}\n",
			errs: []string{"keep.delivered: write at least 1d and at most 3650d", "keep.dead: write at least 1d and at most 3650d",
				"keep.log: write at least 1h and at most 3650d"},
		},
		{
			name:   "a seal key that can be guessed",
			config: strings.Replace(egressWith("{}"), "DURABLE}}", "DURABLE}, seal_key: [{value: 0123456789012345678901234567890}]}", 1),
			errs:   []string{"store.seal_key[0]: the store: a seal key has at least 32 characters"},
			warns:  []string{"store.seal_key[0].value: the store: the secret stands in the configuration"},
		},
		{
			name: "mails in the clear to another host",
			config: egressWith("{}") +
				"notify: {smtp: {server: 'mail.example.com:25', from: a, to: [b], username: u, tls: NONE}}\n",
			errs: []string{
				"notify.smtp.tls: NONE sends mails and password in the clear",
				`notify.smtp.from: "a" is no mail address`, `notify.smtp.to[0]: "b" is no mail address`,
				"notify.smtp: username and password go together; write both or neither",
			},
		},
		{
			name:   "mails in the clear to this host",
			config: egressWith("{}") + "notify: {smtp: {server: 'localhost:25', from: a@example.com, tls: NONE}}\n",
		},
		{
			name:   "a mail server without a port",
			config: egressWith("{}") + "notify: {smtp: {server: mail.example.com, from: a@example.com}}\n",
			errs:   []string{`notify.smtp.server: "mail.example.com" is no server; write host:port`},
		},
		{
			name:   "notices to an address that may not be called",
			config: egressWith("{}") + "notify: {webhook: {url: 'https://169.254.169.254/', secrets: [{env: CONFIG_TEST_SIGNING}]}}\n",
			errs:   []string{"notify.webhook.url: "},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("f.yaml", []byte(tt.config))
			var warnings []Finding
			if c != nil {
				warnings = c.Warnings
			} else {
				// Warnings are told with a configuration that is valid; this one is not.
				tt.warns = nil
			}
			checkTexts(t, "errors", texts(Findings(err)), tt.errs)
			checkTexts(t, "warnings", texts(warnings), tt.warns)
		})
	}
}

// Certificates that are trusted are read, and watched like secrets.
func TestCAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := writeFile(t, dir, "ca.pem", testCA)
	c, err := Load(writeFile(t, dir, "sidehook.yaml", egressWith("filter: {ca_file: "+ca+"}\n")))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(c.Files, ca) {
		t.Errorf("Files %q lack %s", c.Files, ca)
	}
	block, _ := pem.Decode([]byte(testCA))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: c.Egress.Filter.RootCAs(), CurrentTime: cert.NotBefore}); err != nil {
		t.Errorf("the certificate is not trusted: %v", err)
	}
	for name, content := range map[string]string{"empty": "", "no PEM": "hello", "a key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		path := writeFile(t, dir, "wrong.pem", content)
		_, err := Parse("f", []byte(egressWith("filter: {ca_file: "+path+"}\n")))
		if err == nil || !strings.Contains(err.Error(), "egress.filter.ca_file: ") || !strings.Contains(err.Error(), "holds no certificate in PEM") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Parse("f", []byte(egressWith("filter: {ca_file: ca.pem}\n"))); err == nil || !strings.Contains(err.Error(), "write an absolute path") {
		t.Errorf("a relative path: %v", err)
	}
}

// What is compiled is what was written, and where nothing was written what the schema promises.
func TestEgressCompiled(t *testing.T) {
	t.Setenv("CONFIG_TEST_SIGNING", signing('a', 32))
	t.Setenv("CONFIG_TEST_OTHER", signing('b', 32))
	c := mustParse(t, `store: {bolt: {path: /s, volume: DURABLE}, seal_key: [{env: CONFIG_TEST_SIGNING}]}
egress:
  hosts: [sidehook.internal]
  auth: {token: {env: CONFIG_TEST_OTHER}}
  delivery: {timeout: 20s, rate: 600/m, stop_on: [400], on_gone: RETRY}
  endpoints:
  - id: plain
    url: https://hooks.plain.example/in?token=x
    secrets: [{env: CONFIG_TEST_SIGNING}]
  - id: own
    url: https://hooks.own.example
    tenant: t_1
    event_types: ["invoice.*"]
    secrets: [{env: CONFIG_TEST_OTHER, until: 2999-01-31T00:00:00Z}]
    headers: [{name: Authorization, secret: {env: CONFIG_TEST_SIGNING}}]
    owner: ops@own.example
    delivery: {waits: [1s, 1m], jitter_percent: 0, respect_retry_after: false, on_gone: DISABLE, max_in_flight: 2, rate: 7/s, disable_after: 0}
  - id: growing
    url: https://hooks.growing.example
    secrets: [{env: CONFIG_TEST_SIGNING}]
    delivery: {exponential: {factor: 1.5}}
keep: {delivered: 2d}
notify:
  smtp: {server: 'mail.example.com:465', from: a@example.com, to: [b@example.com], username: u, password: {env: CONFIG_TEST_OTHER}, tls: TLS}
  webhook: {url: 'https://ops.example.com/x', secrets: [{env: CONFIG_TEST_SIGNING}]}
limits: {endpoint_deliveries: 5}
`)
	e := c.Egress
	if e.Listen != "127.0.0.1:9292" || e.MaxEventBytes != 256<<10 || string(e.Token.Bytes()) != signing('b', 32) || len(e.Hosts) != 1 {
		t.Errorf("Egress = %+v", e)
	}
	if want := (egress.Keep{Delivered: 48 * time.Hour, Dead: 90 * 24 * time.Hour, Log: 30 * 24 * time.Hour}); c.Keep != want {
		t.Errorf("Keep = %+v, want %+v", c.Keep, want)
	}
	if want := (Limits{128 << 20, 50, 512, 64 << 20, 5}); c.Limits != want {
		t.Errorf("Limits = %+v, want %+v", c.Limits, want)
	}
	if c.Store.Volume != VolumeDurable || len(c.Store.SealKeys) != 1 {
		t.Errorf("Store = %+v", c.Store)
	}
	waits := []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
		14 * time.Hour, 20 * time.Hour, 24 * time.Hour}
	global := egress.Policy{
		Timeout: 20 * time.Second, Schedule: egress.Schedule{Waits: waits, JitterPercent: 20}, RespectRetryAfter: true,
		OnGone: egress.GoneRetries, StopOn: []int{400}, MaxInFlight: 8, Rate: 10, DisableAfter: 120 * time.Hour,
	}
	growing := global
	growing.Schedule = egress.Schedule{Exponential: &egress.Exponential{Base: 5 * time.Second, Cap: 24 * time.Hour, Factor: 1.5, Attempts: 16}}
	own := egress.Policy{
		Timeout: 20 * time.Second, Schedule: egress.Schedule{Waits: []time.Duration{time.Second, time.Minute}},
		OnGone: egress.GoneDisables, StopOn: []int{400}, MaxInFlight: 2, Rate: 7,
	}
	for i, want := range []egress.Policy{global, own, growing} {
		if diff := cmp.Diff(want, e.Endpoints[i].Policy); diff != "" {
			t.Errorf("policy of %s (-want +got):\n%s", e.Endpoints[i].ID, diff)
		}
	}
	if diff := cmp.Diff(global, e.Policy); diff != "" {
		t.Errorf("policy of endpoints that the API adds (-want +got):\n%s", diff)
	}
	plain, second := e.Endpoints[0], e.Endpoints[1]
	if plain.Filter != e.Filter || plain.Origin != egress.OriginConfig || plain.Target.Host != "hooks.plain.example" ||
		plain.Target.RequestURI != "/in?token=x" || len(plain.Keys) != 1 || !plain.Keys[0].Until.IsZero() {
		t.Errorf("endpoint %+v", plain)
	}
	if second.Tenant != "t_1" || second.Owner != "ops@own.example" || second.Headers[0].Value != signing('a', 32) ||
		second.Keys[0].Until.Year() != 2999 || !second.Wants("invoice.paid", "t_1") || second.Wants("invoice", "t_1") {
		t.Errorf("endpoint %+v", second)
	}
	if m := c.Notify.Mail; m.Server != "mail.example.com:465" || m.TLS != egress.MailTLSOnly || m.From != "a@example.com" ||
		m.To[0] != "b@example.com" || m.Username != "u" || string(m.Password.Bytes()) != signing('b', 32) {
		t.Errorf("Mail = %+v", m)
	}
	if w := c.Notify.Webhook; w.Target.Host != "ops.example.com" || len(w.Keys) != 1 || w.Filter != e.Filter {
		t.Errorf("Webhook = %+v", w)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"": 0, "50/s": 50, "90/m": 1.5, "3600/h": 1, "1/h": 1.0 / 3600} {
		if got := rate(text); got != want {
			t.Errorf("rate(%q) = %v, want %v", text, got, want)
		}
	}
}
