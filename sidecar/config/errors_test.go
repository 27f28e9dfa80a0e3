package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// Every NAME.yaml of testdata/errors.txtar gives the lines of NAME.want.
func TestErrors(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/errors.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range archive.Files {
		files[f.Name] = string(f.Data)
	}
	cases := 0
	for file, text := range files {
		name, ok := strings.CutSuffix(file, ".yaml")
		if !ok {
			continue
		}
		cases++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for line := range strings.Lines(files[name+".want"]) {
				// What follows an empty line introduces the next case.
				if strings.TrimSpace(line) == "" {
					break
				}
				want = append(want, strings.TrimSpace(line))
			}
			c, err := Parse(file, []byte(text))
			if err == nil {
				t.Fatalf("it is accepted: %v", c.Message)
			}
			got := strings.Split(err.Error(), "\n")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			for i, f := range Findings(err) {
				if i >= len(got) || f.Error() != got[i] || f.Severity != SeverityError {
					t.Errorf("Findings()[%d] = %v %q, want the error's line", i, f.Severity, f.Error())
				}
			}
		})
	}
	if cases < 20 {
		t.Errorf("only %d cases were found", cases)
	}
}
