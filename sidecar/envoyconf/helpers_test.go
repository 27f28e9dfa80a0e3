package envoyconf

import (
	"encoding/json"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
)

// payments is a source like most: one prefix, the access log.
func payments() *extauthz.Source {
	return &extauthz.Source{
		Name:         "payments",
		Matches:      []extauthz.Match{{PathPrefix: "/webhooks/stripe"}},
		MaxBodyBytes: 1 << 20,
		Lease:        time.Minute,
		Confirm:      extauthz.ConfirmAccessLog,
	}
}

// code is a source that needs everything a route can have: a host, a method, a big body, ext_proc, a wait.
func code() *extauthz.Source {
	return &extauthz.Source{
		Name:         "code",
		Matches:      []extauthz.Match{{Host: "Hooks.example.com", Path: "/github", Method: "POST"}},
		MaxBodyBytes: 25 << 20,
		Lease:        10 * time.Second,
		InFlightWait: 2500 * time.Millisecond,
		Confirm:      extauthz.ConfirmExtProc,
	}
}

// verified is a source with a scheme.
func verified(spec signature.Spec) *extauthz.Source {
	s := payments()
	var err error
	if s.Verifier, err = signature.Compile(spec); err != nil {
		panic(err)
	}
	return s
}

// mercadoPago is the scheme of a sender that signs x-request-id.
func mercadoPago() signature.Spec {
	p, _ := signature.ProviderByName("mercadopago")
	return p.Specs[0]
}

// gates are the configurations over which every invariant is asserted.
func gates() map[string]Gate {
	several := payments()
	several.Matches = append(several.Matches,
		extauthz.Match{Path: "/webhooks/stripe/connect"},
		extauthz.Match{Host: "hooks.example.com", PathPrefix: "/"},
		extauthz.Match{Host: "[::1]", PathPrefix: "/x/", Method: "PUT"})
	unmatched := payments()
	unmatched.Matches = nil
	odd := payments()
	odd.Matches = []extauthz.Match{{PathPrefix: `/a "quoted": {path}\n`}, {Path: "/ümlaut%20#x"}}
	tenants := payments()
	tenants.Matches = []extauthz.Match{{Path: "/hooks/{tenant}", Method: "POST"}, {Path: "/v1.0/{tenant}/in", Host: "hooks.example.com"}}
	return map[string]Gate{
		"tenants":           {Listen: "127.0.0.1:9191", Sources: []*extauthz.Source{tenants}, Open: []extauthz.Match{{PathPrefix: "/"}, {Path: "/hooks/status"}}},
		"no source":         {Listen: "127.0.0.1:9191"},
		"one source":        {Listen: "127.0.0.1:9191", Sources: []*extauthz.Source{payments()}},
		"open beside it":    {Listen: "localhost:9191", Sources: []*extauthz.Source{payments()}, Open: []extauthz.Match{{PathPrefix: "/"}, {Host: "app.example", Path: "/healthz"}}},
		"Unix socket":       {Listen: "unix:/run/sidehook/extauthz.sock", Sources: []*extauthz.Source{payments()}},
		"IPv6":              {Listen: "[::1]:9191", Sources: []*extauthz.Source{payments()}},
		"ext_proc":          {Listen: "127.0.0.1:9191", Sources: []*extauthz.Source{code()}},
		"both confirms":     {Listen: "127.0.0.1:9191", Sources: []*extauthz.Source{payments(), code()}, Open: []extauthz.Match{{PathPrefix: "/"}}},
		"several matches":   {Listen: "127.0.0.1:9191", Sources: []*extauthz.Source{several, code()}},
		"named by the mesh": {Listen: "127.0.0.1:9191", Sources: []*extauthz.Source{unmatched}},
		"certificates":      {Listen: "127.0.0.1:9191", Sources: []*extauthz.Source{verified(signature.Spec{Algorithm: signature.MTLS, Subjects: []string{"a"}})}},
		"mercadopago":       {Listen: "127.0.0.1:9191", Sources: []*extauthz.Source{verified(mercadoPago())}},
		"odd paths":         {Listen: "127.0.0.1:9191", Sources: []*extauthz.Source{odd}},
	}
}

// generate is Generate or the end of the test.
func generate(t *testing.T, gate Gate, o Options) []byte {
	t.Helper()
	out, err := Generate(gate, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decode reads YAML strictly into an Envoy type: a field that does not exist or has the wrong kind ends the test.
func decode(t *testing.T, text []byte, into proto.Message) {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatalf("read YAML: %v\n%s", err, text)
	}
	decodeTree(t, tree, into)
}

func decodeTree(t *testing.T, tree any, into proto.Message) {
	t.Helper()
	asJSON, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(asJSON, into); err != nil {
		t.Fatalf("decode as %T: %v\n%s", into, err, asJSON)
	}
	if v, ok := into.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Errorf("Envoy's rules for %T: %v", into, err)
		}
	}
}

// unpack decodes a typed_config strictly and checks it against Envoy's rules.
func unpack[M proto.Message](t *testing.T, packed *anypb.Any) M {
	t.Helper()
	message, err := packed.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	typed, ok := message.(M)
	if !ok {
		t.Fatalf("typed_config is a %T", message)
	}
	if v, ok := message.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Errorf("Envoy's rules for %T: %v", message, err)
		}
	}
	return typed
}

// whole is a generated Envoy, taken apart.
type whole struct {
	bootstrap *bootstrapv3.Bootstrap
	manager   *hcmv3.HttpConnectionManager
	routes    []*routev3.Route // of all virtual hosts
	clusters  map[string]*clusterv3.Cluster
}

func takeApart(t *testing.T, text []byte) whole {
	t.Helper()
	w := whole{bootstrap: &bootstrapv3.Bootstrap{}, clusters: map[string]*clusterv3.Cluster{}}
	decode(t, text, w.bootstrap)
	listeners := w.bootstrap.GetStaticResources().GetListeners()
	if len(listeners) != 1 || len(listeners[0].GetFilterChains()) != 1 || len(listeners[0].GetFilterChains()[0].GetFilters()) != 1 {
		t.Fatalf("want one listener with one filter chain of one filter:\n%s", text)
	}
	w.manager = unpack[*hcmv3.HttpConnectionManager](t, listeners[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig())
	for _, h := range w.manager.GetRouteConfig().GetVirtualHosts() {
		w.routes = append(w.routes, h.GetRoutes()...)
	}
	for _, c := range w.bootstrap.GetStaticResources().GetClusters() {
		w.clusters[c.GetName()] = c
	}
	return w
}

// filter returns the HTTP filter of that name, or nil.
func (w whole) filter(name string) *hcmv3.HttpFilter {
	for _, f := range w.manager.GetHttpFilters() {
		if f.GetName() == name {
			return f
		}
	}
	return nil
}
