package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestEdit(t *testing.T) {
	t.Parallel()
	const bootstrap = `
listeners:
- port_value: 10080
  access_log: [{name: sidehook, filter: {ours: true}}]
clusters:
- {name: app, port_value: 8080}
- {name: gate, port_value: 9191}
`
	for _, tt := range []struct {
		name, in string
		edit     edit
		want     string
		err      string // part of the error; empty: none
	}{
		{"another gate, no log", bootstrap, edit{"127.0.0.1:9191", "127.0.0.1:7", true, false}, `
listeners: [{port_value: 10080}]
clusters: [{name: app, port_value: 8080}, {name: gate, port_value: 7}]`, ""},
		{"another gate, log kept", bootstrap, edit{"127.0.0.1:9191", "127.0.0.1:7", false, false}, `
listeners: [{port_value: 10080, access_log: [{name: sidehook, filter: {ours: true}}]}]
clusters: [{name: app, port_value: 8080}, {name: gate, port_value: 7}]`, ""},
		{"another gate, every entry logged", bootstrap, edit{"127.0.0.1:9191", "127.0.0.1:7", false, true}, `
listeners: [{port_value: 10080, access_log: [{name: sidehook}]}]
clusters: [{name: app, port_value: 8080}, {name: gate, port_value: 7}]`, ""},
		// These would make allow-all something else than it says, without a sign of it in the figures.
		{"no such gate", bootstrap, edit{"127.0.0.1:9192", "127.0.0.1:7", false, false}, "", "names no gate"},
		{"no log to drop", "{port_value: 9191}", edit{"127.0.0.1:9191", "127.0.0.1:7", true, false}, "", "no access log"},
		{"no log to open", "{port_value: 9191}", edit{"127.0.0.1:9191", "127.0.0.1:7", false, true}, "", "no access log"},
		{"no port", bootstrap, edit{"unix:/x", "127.0.0.1:7", true, false}, "", "port of"},
		{"no YAML", "a: b: c", edit{"127.0.0.1:9191", "127.0.0.1:7", true, false}, "", "read the Envoy configuration"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, err := tt.edit.apply([]byte(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("apply = %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := yaml.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("apply (-want +got):\n%s", diff)
			}
		})
	}
}
