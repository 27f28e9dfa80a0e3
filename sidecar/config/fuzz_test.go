package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/testing/protocmp"
)

// Whatever stands in the file: it is refused with a place and a reason, or what is made of it can be printed and loaded
// again to the same.
func FuzzParse(f *testing.F) {
	archive, err := txtar.ParseFile("testdata/errors.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range archive.Files {
		if strings.HasSuffix(file.Name, ".yaml") {
			f.Add(string(file.Data))
		}
	}
	f.Add("{}")
	f.Add(gateWith(custom + "  tolerance: 2m\n  retention: 1d12h\n  reply: {status: 204}\n  max_body: 25Mi\n"))
	f.Add(gateWith("- {name: a, provider: stripe, secrets: [{value: x, until: 2027-01-31T00:00:00.5Z}]}\n"))
	f.Add(gateWith("- {name: a, verify: none, match: {host: '[::1]:1', path: /x, method: GET}}\n"))
	f.Add("admin: {listen: 'unix:/a', token: {env: X}}\nlog: {level: WARN}\n\xff")
	f.Add(egressWith("endpoints:\n- id: a\n  url: https://a.example:8443/x?y\n  secrets: [{file: /s}]\n  event_types: ['a.*']\n" +
		"  filter: {allow: [10.0.0.0/8], ports: [8443], enforce: REPORT}\n  delivery: {exponential: {base: 1s, factor: 1.5}, rate: 9/m}\n"))
	f.Add(egressWith("delivery: {waits: [1s], jitter_percent: 0, disable_after: 0}\n") + "keep: {dead: 1d}\nnotify: {smtp: {server: 'a:1', from: a@b.c}}\n")
	f.Add("a: !!binary aGk=\nb: |\n  c\n? [x]\n: y\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f.yaml", []byte(text), WithoutSecrets())
		if err != nil {
			all := Findings(err)
			if len(all) == 0 {
				t.Fatalf("no findings: %v", err)
			}
			for _, f := range all {
				if f.Message == "" || f.Severity != SeverityError || f.File != "f.yaml" || strings.ContainsAny(f.String(), "\n\r\x00") {
					t.Errorf("bad finding: %#v", f)
				}
			}
			return
		}
		printed, err := Effective(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("again.yaml", printed, WithoutSecrets())
		if err != nil {
			t.Fatalf("what is printed is refused: %v\n%s", err, printed)
		}
		if diff := cmp.Diff(c.Message, again.Message, protocmp.Transform()); diff != "" {
			t.Errorf("loaded again (-first +again):\n%s", diff)
		}
		if changes := Diff(c, again); len(changes) > 0 {
			t.Errorf("Diff of equal configurations: %v", changes)
		}
	})
}
