package structure

import (
	"bytes"
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxLines is where a file should have been two: past it, look for the second noun.
const maxLines = 500

// rootEntries is all that may lie in the root, beside dotfiles.
var rootEntries = []string{
	"LICENSE", "README.md", "buf.gen.yaml", "deploy", "egress", "examples", "extauthz", "go.mod", "go.sum",
	"internal", "pb", "sidecar",
}

// TestRoot reads what git tracks, not the folder: a binary that somebody built is none of the project's.
func TestRoot(t *testing.T) {
	t.Parallel()
	for _, name := range trackedRoot(t) {
		if !strings.HasPrefix(name, ".") && !slices.Contains(rootEntries, name) {
			t.Errorf("%s lies in the root: it belongs into one of %q", name, rootEntries)
		}
	}
}

// trackedRoot lists the names in the root: git's, or the folder's where the source came as an archive.
func trackedRoot(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		cmd := exec.Command("git", "ls-files", "-z")
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git ls-files: %v", err)
		}
		var names []string
		for path := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
			first, _, _ := strings.Cut(path, "/")
			names = append(names, first)
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFileLength(t *testing.T) {
	t.Parallel()
	goSources(t, func(path string, src []byte) {
		if generated(src) {
			return
		}
		if n := bytes.Count(src, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, at most %d: look for the second noun", path, n, maxLines)
		}
	})
}

// TestPackageComments wants exactly one package comment in every package that is not generated, in a file that is not
// a test unless the package has tests only, opening with the form that godoc expects.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if _, ours := p.own(); !ours {
			continue
		}
		files := slices.Concat(p.GoFiles, p.CgoFiles)
		if len(files) == 0 {
			files = slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		}
		var with []string
		written := 0
		for _, name := range files {
			src, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if generated(src) {
				continue
			}
			written++
			f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Errorf("parse %s of %s: %v", name, p.ImportPath, err)
				continue
			}
			if f.Doc == nil {
				continue
			}
			with = append(with, name)
			want := []string{"Package " + f.Name.Name + " "}
			if f.Name.Name == "main" {
				command := filepath.Base(p.ImportPath)
				want = []string{"Command " + command + " ", strings.ToUpper(command[:1]) + command[1:] + " "}
			}
			if !slices.ContainsFunc(want, func(start string) bool { return strings.HasPrefix(f.Doc.Text(), start) }) {
				t.Errorf("%s/%s: the package comment shall start with one of %q", p.ImportPath, name, want)
			}
		}
		if written > 0 && len(with) != 1 {
			t.Errorf("%s has %d package comments %q, want one", p.ImportPath, len(with), with)
		}
	}
}

// TestModuleFile: a replace would make the module mean one thing here and another to those who import it.
func TestModuleFile(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var mod struct {
		Module  struct{ Path string }
		Replace []struct{ Old struct{ Path string } }
		Exclude []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != module {
		t.Errorf("module %s, want %s", mod.Module.Path, module)
	}
	for _, r := range mod.Replace {
		t.Errorf("go.mod replaces %s", r.Old.Path)
	}
	for _, e := range mod.Exclude {
		t.Errorf("go.mod excludes %s %s", e.Path, e.Version)
	}
}
