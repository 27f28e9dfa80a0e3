package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/testing/protocmp"
)

func TestEffective(t *testing.T) {
	t.Parallel()
	const pasted = "whsec-pasted-into-the-file"
	c := mustParse(t, gateWith(`- name: a
  match: {path: /a}
  scheme:
    algorithm: HMAC_SHA256
    signature: {header: X-Signature, encoding: BASE64}
  secrets: [{value: `+pasted+`, until: 2999-01-31T00:00:00Z}]
`)+"admin: {token: {value: "+pasted+"}}\n")
	got, err := Effective(c)
	if err != nil {
		t.Fatal(err)
	}
	want := `store:
  bolt:
    path: /var/lib/sidehook
  limit: 8Gi
extauthz:
  listen: 127.0.0.1:9191
  open:
    - path_prefix: /
  sources:
    - name: a
      match:
        path: /a
      scheme:
        algorithm: HMAC_SHA256
        signature:
          header: X-Signature
          encoding: BASE64
      secrets:
        - value: '[redacted]'
          until: "2999-01-31T00:00:00Z"
      mode: PASS
      tolerance: 5m
      retention: 8d
      lease: 1m
      in_flight_wait: 0s
      confirm: ACCESS_LOG
      on_unknown: RETRY
      dedupe:
        content_window: 0s
      enforce: ENFORCE
      max_body: 1Mi
admin:
  listen: 127.0.0.1:9393
  token:
    value: '[redacted]'
health:
  listen: :9394
limits:
  bodies_in_flight: 128Mi
  source_percent: 50
log:
  level: INFO
  format: JSON
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("Effective() (-want +got):\n%s", diff)
	}

	t.Log("what is printed loads, and prints the same again")
	again := mustParse(t, strings.ReplaceAll(string(got), hidden, pasted))
	if diff := cmp.Diff(c.Message, again.Message, protocmp.Transform()); diff != "" {
		t.Errorf("loaded again (-first +again):\n%s", diff)
	}

	t.Log("JSON says the same")
	asJSON, err := EffectiveJSON(c)
	if err != nil {
		t.Fatal(err)
	}
	var fromJSON, fromYAML any
	if err := json.Unmarshal(asJSON, &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(got, &fromYAML); err != nil {
		t.Fatal(err)
	}
	viaJSON, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(viaJSON, &fromYAML); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromYAML, fromJSON); diff != "" {
		t.Errorf("EffectiveJSON() (-yaml +json):\n%s", diff)
	}
	for _, out := range []string{string(got), string(asJSON), c.Message.String()} {
		if strings.Contains(out, "pasted") {
			t.Errorf("a secret is printed: %s", out)
		}
	}
}

// The outbound half is printed as the other one is: whole, without secrets, and it loads as it is.
func TestEffectiveEgress(t *testing.T) {
	t.Setenv("CONFIG_TEST_SIGNING", signing('a', 32))
	c := mustParse(t, `store: {bolt: {path: /s, volume: EPHEMERAL}, seal_key: [{value: `+strongSecret+`}]}
egress:
  auth: {token: {value: `+strongSecret+`}}
  filter: {proxy: {url: 'http://proxy.example:3128', authorization: {value: `+strongSecret+`}}}
  endpoints:
  - id: acme
    url: https://hooks.acme.example/in
    secrets: [{value: `+signing('b', 32)+`}]
    headers: [{name: X-Key, secret: {value: `+strongSecret+`}}, {name: X-Plain, value: shown}, {name: X_Auth_Token, value: `+strongSecret+`}]
    delivery: {exponential: {factor: 1.5}, respect_retry_after: false, disable_after: 0}
notify: {smtp: {server: 'localhost:25', from: a@example.com, username: u, password: {value: `+strongSecret+`}}}
`)
	got, err := Effective(c)
	if err != nil {
		t.Fatal(err)
	}
	want := `egress:
  listen: 127.0.0.1:9292
  auth:
    token:
      value: '[redacted]'
  max_event: 256Ki
  filter:
    ports:
      - 443
    enforce: ENFORCE
    proxy:
      url: http://proxy.example:3128
      authorization:
        value: '[redacted]'
  delivery:
    timeout: 15s
    waits:
      - 5s
      - 5m
      - 30m
      - 2h
      - 5h
      - 10h
      - 14h
      - 20h
      - 1d
    jitter_percent: 20
    respect_retry_after: true
    on_gone: DISABLE
    max_in_flight: 8
    disable_after: 5d
  endpoints:
    - id: acme
      url: https://hooks.acme.example/in
      secrets:
        - value: '[redacted]'
      headers:
        - name: X-Key
          secret:
            value: '[redacted]'
        - name: X-Plain
          value: shown
        - name: X_Auth_Token
          secret:
            value: '[redacted]'
      delivery:
        timeout: 15s
        exponential:
          base: 5s
          factor: 1.5
          cap: 1d
          attempts: 16
        respect_retry_after: false
        on_gone: DISABLE
        max_in_flight: 8
        disable_after: 0s
keep:
  delivered: 30d
  dead: 90d
  log: 30d
notify:
  smtp:
    server: localhost:25
    from: a@example.com
    username: u
    password:
      value: '[redacted]'
    tls: STARTTLS
`
	_, rest, _ := strings.Cut(string(got), "\negress:")
	if diff := cmp.Diff(want, "egress:"+rest); diff != "" {
		t.Errorf("Effective() (-want +got):\n%s", diff)
	}
	again, err := Parse("again.yaml", got, WithoutSecrets())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Message, again.Message, protocmp.Transform()); diff != "" {
		t.Errorf("loaded again (-first +again):\n%s", diff)
	}
	for _, out := range []string{string(got), c.Message.String()} {
		if strings.Contains(out, strongSecret) || strings.Contains(out, signing('b', 32)) {
			t.Errorf("a secret is printed: %s", out)
		}
	}
}

// Errors quote the file; never the part of it that is a secret, however it was misplaced.
func TestErrorsHoldNoSecret(t *testing.T) {
	t.Parallel()
	const pasted = "hunter2hunter2"
	for name, text := range map[string]string{
		"unknown field beside it":           gateWith("- {name: a, secrets: [{value: " + pasted + ", vlaue: 1}], " + scheme + "}\n"),
		"list in its place":                 gateWith("- {name: a, secrets: [{value: [" + pasted + "]}], " + scheme + "}\n"),
		"scalar for a secret":               gateWith("- {name: a, secrets: [" + pasted + "], " + scheme + "}\n"),
		"scalar for the list":               gateWith("- {name: a, secrets: " + pasted + ", " + scheme + "}\n"),
		"white space at its end":            gateWith("- {name: a, secrets: [{value: \"" + pasted + " \"}], " + scheme + "}\n"),
		"twice":                             gateWith("- {name: a, secrets: [{value: " + pasted + ", value: " + pasted + "}], " + scheme + "}\n"),
		"two sources of it":                 gateWith("- {name: a, secrets: [{value: " + pasted + ", env: A}], " + scheme + "}\n"),
		"wrong time beside it":              gateWith("- {name: a, secrets: [{value: " + pasted + ", until: never}], " + scheme + "}\n"),
		"broken YAML around it":             gateWith("- {name: a, secrets: [{value: " + pasted + ", until: [}], " + scheme + "}\n"),
		"cut by its comma":                  gateWith("- {name: a, secrets: [{value: v1," + pasted + "}], " + scheme + "}\n"),
		"cut by its colon":                  gateWith("- {name: a, secrets: [{value: " + pasted + ": x}], " + scheme + "}\n"),
		"read as an alias":                  gateWith("- {name: a, secrets: [{value: *" + pasted + "}], " + scheme + "}\n"),
		"read as an anchor":                 gateWith("- {name: a, secrets: [{value: &" + pasted + " x}, {value: *" + pasted + "}], " + scheme + "}\n"),
		"read as a type":                    gateWith("- {name: a, secrets: [{value: !" + pasted + " x}], " + scheme + "}\n"),
		"read as a known type":              gateWith("- {name: a, secrets: [{value: !!" + pasted + " x}], " + scheme + "}\n"),
		"name of a variable":                gateWith("- {name: a, secrets: [{env: " + pasted + "}], " + scheme + "}\n"),
		"name of a file":                    gateWith("- {name: a, secrets: [{file: " + pasted + "}], " + scheme + "}\n"),
		"an endpoint's, of no key's length": egressWith("endpoints: [{id: a, url: 'https://a.example', secrets: [{value: " + pasted + "}]}]\n"),
		"an endpoint's, of another kind":    egressWith("endpoints: [{id: a, url: 'https://a.example', secrets: [{value: v1+whsec_" + pasted + "}]}]\n"),
		"a header's, cut by its colon":      egressWith("endpoints: [{id: a, headers: [{name: A, secret: {value: " + pasted + ": x}}]}]\n"),
		"a proxy's, in its URL":             egressWith("filter: {proxy: {url: 'http://u:" + pasted + "@proxy.example:1'}}\n"),
		"a URL's":                           egressWith("endpoints: [{id: a, url: 'https://127.0.0.1/" + pasted + "'}]\n"),
		"a seal key":                        strings.Replace(egressWith("{}"), "DURABLE}", "DURABLE}, seal_key: [{value: "+pasted+"}]", 1),
		"wrong kind": gateWith("- {name: a, secrets: [{value: " + pasted +
			"}], scheme: {algorithm: HMAC_SHA256, key: HEX, signature: {header: X-S}}}\n"),
	} {
		_, err := Parse("f.yaml", []byte(text))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if strings.Contains(err.Error(), pasted) {
			t.Errorf("%s: the secret is in the error: %v", name, err)
		}
	}
}
