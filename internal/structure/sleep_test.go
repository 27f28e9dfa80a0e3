package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// TestSleep: time.Sleep stands only in files that use testing/synctest, where it takes no time, or a function of their
// package that begins a bubble of it. Elsewhere it is too short on a busy machine and too long on all others.
func TestSleep(t *testing.T) {
	t.Parallel()
	files := make(map[string]map[string]*ast.File) // by folder and path
	goSources(t, func(path string, src []byte) {
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("parse: %v", err)
			return
		}
		folder := filepath.Dir(path)
		if files[folder] == nil {
			files[folder] = make(map[string]*ast.File)
		}
		files[folder][path] = f
	})
	for _, folder := range files {
		bubbles := make(map[string]bool)
		for _, f := range folder {
			for _, name := range bubbleFuncs(f) {
				bubbles[name] = true
			}
		}
		for path, f := range folder {
			if n := mentions(f, "time", "Sleep"); n > 0 && !inBubble(f, bubbles) {
				t.Errorf("%s calls time.Sleep %d times: wait for an event, or use testing/synctest", path, n)
			}
		}
	}
}

// bubbleFuncs returns the functions of f that begin a bubble.
func bubbleFuncs(f *ast.File) (names []string) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && mentions(fn, "synctest", "Test") > 0 {
			names = append(names, fn.Name.Name)
		}
	}
	return names
}

// inBubble reports whether f uses testing/synctest, itself or by one of the functions named.
func inBubble(f *ast.File, bubbles map[string]bool) (in bool) {
	if slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
		return true
	}
	ast.Inspect(f, func(node ast.Node) bool {
		if id, ok := node.(*ast.Ident); ok && bubbles[id.Name] {
			in = true
		}
		return !in
	})
	return in
}

// mentions counts where a package's function is used or handed on.
func mentions(within ast.Node, pkg, name string) (n int) {
	ast.Inspect(within, func(node ast.Node) bool {
		if s, ok := node.(*ast.SelectorExpr); ok && s.Sel.Name == name {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg {
				n++
			}
		}
		return true
	})
	return n
}

func TestInBubble(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, src string
		sleeps    int
		bubble    bool
	}{
		{"outside", "func f() { time.Sleep(1); g.Sleep(1); h(time.Sleep) }", 2, false},
		{"by synctest itself", "import \"testing/synctest\"; func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }", 1, true},
		{"by a function of the package", "func TestB(t *testing.T) { inTime(t, func() { time.Sleep(1) }) }", 1, true},
		{"by another function", "func TestC(t *testing.T) { inRain(t, func() { time.Sleep(1) }) }", 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, err := parser.ParseFile(token.NewFileSet(), "p.go", "package p\n"+tt.src, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			bubbles := map[string]bool{"inTime": true}
			for _, name := range bubbleFuncs(f) {
				bubbles[name] = true
			}
			if n, in := mentions(f, "time", "Sleep"), inBubble(f, bubbles); n != tt.sleeps || in != tt.bubble {
				t.Errorf("%d sleeps, in a bubble %t; want %d, %t", n, in, tt.sleeps, tt.bubble)
			}
		})
	}
}
