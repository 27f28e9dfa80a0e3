package envoyconf

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/sidecar/envoytest"
)

var update = flag.Bool("update", false, "write the golden files anew, to be read in the diff")

// The golden files are what a user sees, comments included: a change of them is a change to be read.
func TestGolden(t *testing.T) {
	t.Parallel()
	gate := gates()["both confirms"]
	for _, test := range []struct {
		file string
		o    Options
	}{
		{"bootstrap.yaml", Options{Bootstrap: true, Admin: DefaultAdmin}},
		{"parts.yaml", Options{}},
	} {
		t.Run(test.file, func(t *testing.T) {
			t.Parallel()
			got := generate(t, gate, test.o)
			path := filepath.Join("testdata", test.file)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got), -update if it is meant:\n%s", path, diff)
			}
		})
	}
}

// What a source's sender needs of Envoy is there for it, and only for it.
func TestSendersNeeds(t *testing.T) {
	t.Parallel()
	for setting, need := range map[string]string{"include_peer_certificate: true": "certificates", "preserve_external_request_id: true": "mercadopago"} {
		for name, gate := range gates() {
			if got := strings.Contains(string(generate(t, gate, Options{})), setting); got != (name == need) {
				t.Errorf("%s: %s is %v", name, setting, got)
			}
		}
	}
}

func TestEnvoyAcceptsEveryBootstrap(t *testing.T) {
	t.Parallel()
	envoytest.Need(t)
	for name, gate := range gates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := generate(t, gate, Options{Bootstrap: true, Listen: "127.0.0.1:0", App: "app.internal:8080"})
			if err := envoytest.Validate(t.Context(), out); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The parts, pasted as their comments say, are the whole Envoy.
func TestPartsArePartsOfTheWhole(t *testing.T) {
	t.Parallel()
	for name, gate := range gates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var parts struct {
				Filters  []any          `yaml:"http_filters"`
				Log      []any          `yaml:"access_log"`
				Clusters []any          `yaml:"clusters"`
				PerRoute map[string]any `yaml:"typed_per_filter_config"`
				Manager  map[string]any `yaml:"hcm"`
			}
			decoder := yaml.NewDecoder(strings.NewReader(string(generate(t, gate, Options{}))))
			decoder.KnownFields(true)
			if err := decoder.Decode(&parts); err != nil {
				t.Fatal(err)
			}
			pasted := map[string]any{"stat_prefix": "inbound", "route_config": map[string]any{}, "http_filters": parts.Filters, "access_log": parts.Log}
			maps.Copy(pasted, parts.Manager)
			decodeTree(t, pasted, &hcmv3.HttpConnectionManager{})
			decodeTree(t, map[string]any{"static_resources": map[string]any{"clusters": parts.Clusters}}, &bootstrapv3.Bootstrap{})

			var tree struct {
				Resources struct {
					Listeners []struct {
						Chains []struct {
							Filters []struct {
								Manager map[string]any `yaml:"typed_config"`
							} `yaml:"filters"`
						} `yaml:"filter_chains"`
					} `yaml:"listeners"`
					Clusters []any `yaml:"clusters"`
				} `yaml:"static_resources"`
			}
			if err := yaml.Unmarshal(generate(t, gate, Options{Bootstrap: true}), &tree); err != nil {
				t.Fatal(err)
			}
			manager := tree.Resources.Listeners[0].Chains[0].Filters[0].Manager
			for key, value := range parts.Manager {
				if !reflect.DeepEqual(manager[key], value) {
					t.Errorf("hcm.%s is %v, in the whole %v", key, value, manager[key])
				}
			}
			filters, _ := manager["http_filters"].([]any)
			if !reflect.DeepEqual(filters[:len(filters)-1], parts.Filters) {
				t.Errorf("http_filters are %v, in the whole %v", parts.Filters, filters)
			}
			if !reflect.DeepEqual(manager["access_log"], any(parts.Log)) {
				t.Errorf("access_log is %v, in the whole %v", parts.Log, manager["access_log"])
			}
			if !reflect.DeepEqual(tree.Resources.Clusters[:1], parts.Clusters) {
				t.Errorf("clusters are %v, in the whole %v", parts.Clusters, tree.Resources.Clusters)
			}
			if len(parts.PerRoute) != len(gate.Sources) {
				t.Errorf("typed_per_filter_config has %d sources, want %d", len(parts.PerRoute), len(gate.Sources))
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	gate := Gate{Listen: "127.0.0.1:9191"}
	tests := []struct {
		name    string
		gate    Gate
		o       Options
		want    []string // in the YAML
		wantNot string
		message string // of the error; empty: none
	}{
		{name: "defaults", gate: gate, o: Options{Bootstrap: true},
			want: []string{`{address: "127.0.0.1", port_value: 10080}`, `{address: "127.0.0.1", port_value: 8080}`}, wantNot: "admin:"},
		{name: "admin", gate: gate, o: Options{Bootstrap: true, Admin: ":9901"}, want: []string{`admin:
  address: {socket_address: {address: "127.0.0.1", port_value: 9901}}`}},
		{name: "no admin", gate: gate, o: Options{Bootstrap: true, Admin: "none"}, wantNot: "admin:"},
		{name: "listener on every address", gate: gate, o: Options{Bootstrap: true, Listen: ":80"}, want: []string{`{address: "0.0.0.0", port_value: 80}`}},
		{name: "app by name", gate: gate, o: Options{Bootstrap: true, App: "app.internal:80"}, want: []string{"type: STRICT_DNS", `{address: "app.internal", port_value: 80}`}},
		{name: "app on a socket", gate: gate, o: Options{Bootstrap: true, App: "unix:/run/app.sock"}, want: []string{`{pipe: {path: "/run/app.sock"}}`}, wantNot: "STRICT_DNS"},
		{name: "gate on a socket", gate: Gate{Listen: "unix:/run/g.sock"}, want: []string{`{pipe: {path: "/run/g.sock"}}`}, wantNot: "STRICT_DNS"},
		{name: "no gate", message: `extauthz.listen: ""`},
		{name: "socket without path", gate: Gate{Listen: "unix:"}, message: "names no socket"},
		{name: "app without port", gate: gate, o: Options{Bootstrap: true, App: "app"}, message: `--app: "app" is neither`},
		{name: "listener with a port of no number", gate: gate, o: Options{Bootstrap: true, Listen: "127.0.0.1:http"}, message: "--listen:"},
		{name: "admin with a port too large", gate: gate, o: Options{Bootstrap: true, Admin: "127.0.0.1:70000"}, message: "--envoy-admin:"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, err := Generate(test.gate, test.o)
			if test.message != "" {
				if err == nil || !strings.Contains(err.Error(), test.message) {
					t.Fatalf("Generate = %v, want an error with %q", err, test.message)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if test.wantNot != "" && strings.Contains(string(out), test.wantNot) {
				t.Errorf("%q in\n%s", test.wantNot, out)
			}
		})
	}
}

// Durations are written as protobuf reads them: Go's own form (1m0s) is refused by Envoy.
func TestSeconds(t *testing.T) {
	t.Parallel()
	for _, s := range []*extauthz.Source{{Name: "a", Lease: 1_500_000_000}, {Name: "b", Lease: 3_600_000_000_000}} {
		out := generate(t, Gate{Listen: "127.0.0.1:9191", Sources: []*extauthz.Source{s}}, Options{})
		if want := map[string]string{"a": "timeout: 1.125s", "b": "timeout: 2700s"}[s.Name]; !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
