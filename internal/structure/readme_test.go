package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
)

var markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinksInREADME: every link into the tree leads somewhere.
func TestLinksInREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	local := 0
	for _, link := range markdownLink.FindAllStringSubmatch(string(readme), -1) {
		if strings.Contains(link[1], "://") {
			continue
		}
		path, _, _ := strings.Cut(link[1], "#")
		local++
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Errorf("README.md links to %s: %v", link[1], err)
		}
	}
	if local == 0 {
		t.Fatal("found no link into the tree")
	}
}

// TestProvidersInREADME: whoever looks for a sender finds it, and no other.
func TestProvidersInREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "\nBuilt in: ")
	if !ok {
		t.Fatal("README.md has no line \"Built in: …\"")
	}
	paragraph, _, _ := strings.Cut(rest, ".\n")
	listed := strings.FieldsFunc(paragraph, func(r rune) bool { return strings.ContainsRune("`, \n", r) })
	var built []string
	for _, p := range signature.Providers() {
		built = append(built, p.Name)
	}
	slices.Sort(built)
	slices.Sort(listed)
	if diff := cmp.Diff(built, listed); diff != "" {
		t.Errorf("providers (-code +README):\n%s", diff)
	}
}
