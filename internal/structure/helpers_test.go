package structure

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/sidehook/sidehook"

// root is the top folder of the checkout, relative to this package's own.
const root = "../.."

// goPackage is what the tests read of `go list -json`.
type goPackage struct {
	ImportPath   string
	Dir          string
	Standard     bool
	Imports      []string
	Deps         []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
	CgoFiles     []string
	TestGoFiles  []string
	XTestGoFiles []string
}

// own is the path of the package within the module ("" is the root), and whether it is ours at all.
func (p goPackage) own() (string, bool) { return ownPath(p.ImportPath) }

func ownPath(importPath string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// listed runs go list once for all tests: our packages and all that they depend on, by import path.
var listed = sync.OnceValues(func() (map[string]goPackage, error) {
	cmd := exec.Command("go", "list", "-pgo=off", "-deps", "-json=ImportPath,Dir,Standard,Imports,Deps,TestImports,XTestImports,"+
		"GoFiles,CgoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(stderr.String()))
	}
	packages := make(map[string]goPackage)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages[p.ImportPath] = p
	}
})

// packages returns every package of go list, and the import paths of ours among them.
func packages(t *testing.T) map[string]goPackage {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	if len(all) == 0 {
		t.Fatal("go list named no package")
	}
	return all
}

// goSources calls visit with the path of every Go file of the checkout, relative to its root, and the file's bytes.
func goSources(t *testing.T, visit func(path string, src []byte)) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		seen++
		visit(filepath.ToSlash(rel), src)
		return nil
	})
	if err != nil {
		t.Fatalf("walk the checkout: %v", err)
	}
	if seen == 0 {
		t.Fatal("found no Go file")
	}
}

// generated reports whether src carries the line that marks generated Go code (go.dev/s/generatedcode).
func generated(src []byte) bool {
	for line := range bytes.Lines(src) {
		line = bytes.TrimRight(line, "\r\n")
		if bytes.HasPrefix(line, []byte("// Code generated ")) && bytes.HasSuffix(line, []byte(" DO NOT EDIT.")) {
			return true
		}
		if bytes.HasPrefix(line, []byte("package ")) {
			return false
		}
	}
	return false
}
