package structure

import (
	"slices"
	"strings"
	"testing"
)

// A layer says what the packages under a path may use. Paths are within the module; one that ends in "/..." covers
// the package and all below it, and the longest that fits a package is the package's layer.
type layer struct {
	path string
	// own lists what may be imported of ours, by the same notation; a layer may always import itself.
	own []string
	// outside lists what may be imported beside the standard library, by prefix. It bounds direct imports:
	// what those pull in is theirs to answer for.
	outside []string
	// never lists what must not be reached at all, not even through others: import path prefixes.
	never []string
	// any lifts own and outside: the top of the tree, which wires everything.
	any bool
}

const (
	envoyTypes  = "github.com/envoyproxy/"
	grpcLibrary = "google.golang.org/grpc"
	protobuf    = "google.golang.org/protobuf"
	grpcStatus  = "google.golang.org/genproto/googleapis/rpc/status"
	connectRPC  = "connectrpc.com/connect"
	prometheus  = "github.com/prometheus/client_golang/"
	extendedGo  = "golang.org/x/"
	boltLibrary = "go.etcd.io/bbolt"
	rapidTests  = "pgregory.net/rapid"
	goCmp       = "github.com/google/go-cmp/cmp"
	cloudEvents = "github.com/cloudevents/sdk-go/v2"
	mailLibrary = "github.com/wneessen/go-mail"
)

// layers is the README's table "who may import whom". Data flows one way: Envoy -> extauthz -> signature, store;
// app -> egress -> store, signature, netguard; policy flows config file -> sidecar/config -> extauthz, egress.
var layers = []layer{
	{path: "internal/secret/...", never: []string{envoyTypes, protobuf, module + "/pb"}},
	{path: "internal/signature/...", own: []string{"internal/secret"}, never: []string{envoyTypes, protobuf, module + "/pb"}},
	{path: "internal/store/...", outside: []string{boltLibrary, extendedGo + "sys/"},
		never: []string{envoyTypes, grpcLibrary, module + "/pb"}},
	{path: "internal/structure", own: []string{"internal/signature"}},
	{path: "internal/...", outside: []string{extendedGo}, never: []string{envoyTypes, module + "/pb"}},

	{path: "pb/...", own: []string{"pb/..."},
		outside: []string{protobuf, connectRPC, "buf.build/gen/go/bufbuild/protovalidate/"}},

	{path: "extauthz/...", own: []string{"internal/...", "pb/sidehook/inbox/..."},
		outside: []string{envoyTypes, grpcLibrary, protobuf, grpcStatus, connectRPC, prometheus, extendedGo},
		never:   []string{module + "/sidecar", module + "/pb/sidehook/config"}},
	// The suite that every Inbox must pass; tests import it, nothing that is shipped does.
	{path: "extauthz/inboxtest", own: []string{"internal/...", "extauthz"}, outside: []string{rapidTests, goCmp},
		never: []string{module + "/sidecar", module + "/pb/sidehook/config"}},

	{path: "egress/...", own: []string{"internal/...", "egress/netguard", "pb/sidehook/egress/..."},
		outside: []string{protobuf, connectRPC, prometheus, extendedGo, cloudEvents, mailLibrary},
		never:   []string{envoyTypes, grpcLibrary, module + "/extauthz", module + "/sidecar", module + "/pb/sidehook/config"}},
	// What may be dialled is decided by what can be read in an hour: the standard library, and the tables of IDNA.
	{path: "egress/netguard/...", outside: []string{extendedGo + "net/idna"}, never: []string{module + "/pb", module + "/internal"}},
	// The suite that every Outbox must pass, as extauthz/inboxtest.
	{path: "egress/outboxtest", own: []string{"internal/...", "egress"}, outside: []string{rapidTests, goCmp},
		never: []string{envoyTypes, module + "/extauthz", module + "/sidecar", module + "/pb/sidehook/config"}},

	{path: "sidecar/config/...", own: []string{"pb/sidehook/config/...", "extauthz", "egress", "egress/netguard", "internal/..."},
		outside: []string{protobuf, "buf.build/go/protoyaml", "buf.build/go/protovalidate", "go.yaml.in/yaml/v3",
			"github.com/fsnotify/fsnotify", "buf.build/gen/go/bufbuild/protovalidate/", extendedGo}},
	{path: "sidecar/...", any: true},

	// Examples and manifests show what a user can do: the binary and public packages, nothing of ours that is inside.
	{path: "examples/...", own: []string{"extauthz/...", "egress/...", "sidecar/...", "pb/...", "examples/..."},
		outside: []string{""}},
	{path: "deploy/...", own: []string{"extauthz/...", "egress/...", "sidecar/...", "pb/...", "deploy/..."},
		outside: []string{""}},
}

// storePackage is the one package that sidecar/config must not import though it may see the rest of internal.
const storePackage = "internal/store"

func TestImports(t *testing.T) {
	t.Parallel()
	all := packages(t)
	checked := 0
	for _, p := range all {
		path, ours := p.own()
		if !ours {
			continue
		}
		l, ok := layerOf(path)
		if !ok {
			t.Errorf("%s belongs to no layer: give it a row in layers", p.ImportPath)
			continue
		}
		checked++
		for _, imported := range p.Imports {
			checkImport(t, all, l, path, imported)
		}
		// Tests may use any library, but they keep to the layers too: a test that looks upward ties the knot
		// that the package itself avoids.
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			if _, ours := ownPath(imported); ours {
				checkImport(t, all, l, path, imported)
			}
		}
		for _, dep := range p.Deps {
			for _, never := range l.never {
				if hasPathPrefix(dep, never) {
					t.Errorf("%s reaches %s, which %s must never do", p.ImportPath, dep, l.path)
				}
			}
		}
	}
	if checked == 0 {
		t.Fatal("checked no package")
	}
}

func checkImport(t *testing.T, all map[string]goPackage, l layer, path, imported string) {
	t.Helper()
	if l.any {
		return
	}
	if own, ours := ownPath(imported); ours {
		if strings.HasPrefix(path, "sidecar/config") && covers(storePackage+"/...", own) {
			t.Errorf("%s imports %s: configuration knows nothing of the store", path, own)
		}
		if covers(l.path, own) || covers(path, own) {
			return
		}
		if !slices.ContainsFunc(l.own, func(pattern string) bool { return covers(pattern, own) }) {
			t.Errorf("%s imports %s: %s may import %q of ours", path, own, l.path, l.own)
		}
		return
	}
	if all[imported].Standard || imported == "C" || imported == "unsafe" {
		return
	}
	if !slices.ContainsFunc(l.outside, func(prefix string) bool { return hasPathPrefix(imported, prefix) }) {
		t.Errorf("%s imports %s: beside the standard library %s may import %q", path, imported, l.path, l.outside)
	}
}

// TestLayersAreUsed keeps the table honest: a row that fits no package is a leftover or a spelling mistake.
// Rows for what a later version adds do not belong there yet.
func TestLayersAreUsed(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	for _, p := range packages(t) {
		if path, ours := p.own(); ours {
			if l, ok := layerOf(path); ok {
				used[l.path] = true
			}
		}
	}
	for _, l := range layers {
		if l.path == "internal/..." || l.path == "deploy/..." {
			continue // catch-alls: they hold for the next package that comes
		}
		if !used[l.path] {
			t.Errorf("layer %s fits no package", l.path)
		}
	}
}

func TestLayerOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, want string
	}{
		{"the longest row wins", "internal/store/storetest", "internal/store/..."},
		{"a catch-all takes the rest", "internal/retry", "internal/..."},
		{"whole segments only", "internal/storeroom", "internal/..."},
		{"config before sidecar", "sidecar/config", "sidecar/config/..."},
		{"a neighbour with the same start", "sidecar/configuration", "sidecar/..."},
		{"a row without dots takes one package", "internal/structure/deeper", "internal/..."},
		{"nothing fits", "tools/x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, _ := layerOf(tt.path); got.path != tt.want {
				t.Errorf("layerOf(%q) = %q, want %q", tt.path, got.path, tt.want)
			}
		})
	}
}

// layerOf returns the row with the longest path that covers path.
func layerOf(path string) (layer, bool) {
	var best layer
	found := false
	for _, l := range layers {
		if covers(l.path, path) && (!found || len(l.path) > len(best.path)) {
			best, found = l, true
		}
	}
	return best, found
}

// covers reports whether pattern, which may end in "/...", names path.
func covers(pattern, path string) bool {
	base, tree := strings.CutSuffix(pattern, "/...")
	return path == base || tree && strings.HasPrefix(path, base+"/")
}

// hasPathPrefix reports whether prefix is a leading part of path that ends at a segment's border.
func hasPathPrefix(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (prefix == "" || rest == "" || strings.HasSuffix(prefix, "/") || rest[0] == '/')
}
