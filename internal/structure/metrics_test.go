package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readmeMetric is a row of the README's table: the name is its first cell.
var readmeMetric = regexp.MustCompile("(?m)^\\| `(sidehook_[a-z0-9_]+)` \\|")

var metricName = regexp.MustCompile(`^sidehook_[a-z0-9_]+$`)

// TestMetricsInREADME compares the names that the code gives to its metrics with those that the README lists. Users
// build alarms on them; they change only with a major version.
func TestMetricsInREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range readmeMetric.FindAllStringSubmatch(string(readme), -1) {
		listed = append(listed, row[1])
	}
	slices.Sort(listed)
	if twice := len(listed) - len(slices.Compact(slices.Clone(listed))); twice > 0 {
		t.Errorf("the README lists %d metrics twice", twice)
	}
	found := make(map[string]bool)
	goSources(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") || generated(src) {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("parse: %v", err)
			return
		}
		for _, name := range metricNames(f) {
			found[name] = true
		}
	})
	if len(found) == 0 {
		t.Fatal("found no metric")
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(found)), listed); diff != "" {
		t.Errorf("metrics (-code +README):\n%s", diff)
	}
}

// metricNames returns the names of metrics in a file that imports client_golang. Every literal of that form is one:
// names are written whole, never put together, so that people find them.
func metricNames(f *ast.File) []string {
	if !slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
		return i.Path.Value == strconv.Quote("github.com/prometheus/client_golang/prometheus")
	}) {
		return nil
	}
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && metricName.MatchString(s) {
				names = append(names, s)
			}
		}
		return true
	})
	return names
}

func TestMetricNames(t *testing.T) {
	t.Parallel()
	const body = `
var a = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sidehook_a_total", Help: "not sidehook_b"}, []string{"source"})
var c = prometheus.NewDesc("sidehook_c", "z", nil, nil)
var d = gauge("sidehook_d_bytes", "bytes")
`
	for _, tt := range []struct {
		name, imports string
		want          []string
	}{
		{"a file with metrics", `import "github.com/prometheus/client_golang/prometheus"`, []string{"sidehook_a_total", "sidehook_c", "sidehook_d_bytes"}},
		{"another file", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, err := parser.ParseFile(token.NewFileSet(), "p.go", "package p\n"+tt.imports+body, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, metricNames(f)); diff != "" {
				t.Errorf("metricNames (-want +got):\n%s", diff)
			}
		})
	}
}
