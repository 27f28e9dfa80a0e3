package netguard

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// addressCase is a row of testdata/address-filter.json: what must be refused, and what must not.
type addressCase struct {
	ID     int    `json:"id"`
	Input  string `json:"input"`
	Kind   string `json:"kind"`
	Expect string `json:"expect"`
	Why    string `json:"why"`
	Detail string `json:"detail"`
	Level  string `json:"level"`
}

func loadCases(t testing.TB) []addressCase {
	t.Helper()
	data, err := os.ReadFile("testdata/address-filter.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []addressCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 223 {
		t.Fatalf("%d cases, want 223", len(cases))
	}
	return cases
}

// url is the URL that a row means: most give the host alone, and a few say in words what cannot be written.
func (c addressCase) url() string {
	input := c.Input
	switch c.ID {
	case 210: // with a remark
		input, _, _ = strings.Cut(input, " (")
	case 295: // in short
		return "https://example.com/" + strings.Repeat("a", 2100)
	}
	if c.Kind == "url" {
		return input
	}
	return "https://" + input + "/h"
}

// storedHosts are the names as which the rows that promise a form are kept.
var storedHosts = map[int]string{
	209: "xn--bcher-kva.example",
	210: "xn--pple-43d.example",
	212: "xn--fa-hia.example",
	251: "example.com",
}

// TestCases runs every row of the table by what decides it: the strict filter on the address, on the URL, or a test of
// behaviour that is named for it.
func TestCases(t *testing.T) {
	t.Parallel()
	strict := mustNew(t, Config{})
	run := make(map[int]bool)
	for _, c := range loadCases(t) {
		if run[c.ID] {
			t.Errorf("two rows have the id %d", c.ID)
		}
		run[c.ID] = true
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			switch c.Level {
			case "dial":
				c.dial(t, strict)
			case "config":
				c.config(t, strict)
			case "config+dial":
				if behaviour, ok := behaviours[c.ID]; ok {
					behaviour(t, c)
					return
				}
				c.config(t, strict)
			case "behaviour":
				behaviour, ok := behaviours[c.ID]
				if !ok {
					t.Fatalf("no test for %q (%s)", c.Input, c.Why)
				}
				behaviour(t, c)
			default:
				t.Fatalf("unknown level %q", c.Level)
			}
		})
	}
	for id := range behaviours {
		if !run[id] {
			t.Errorf("behaviours has a test for %d, which is no row", id)
		}
	}
}

func (c addressCase) name() string {
	input := []rune(c.Input)
	return c.Kind + "/" + string(input[:min(len(input), 40)])
}

// dial judges the address itself, as a name might resolve to it; and as the host of a URL, where all are refused.
func (c addressCase) dial(t *testing.T, f *Filter) {
	a, err := netip.ParseAddr(strings.Trim(c.Input, "[]"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	if got, want := f.Judge(a) == VerdictAllowed, c.Expect == "allow"; got != want {
		t.Errorf("%s: %v, want %s: %s", a, f.Judge(a), c.Expect, c.Why)
	}
	_, err = f.Check(c.url())
	wantRefusal(t, err, 0)
	if c.ID == 147 { // "allow iff nat64=allow"
		if v := mustNew(t, Config{NAT64: true}).Judge(a); v != VerdictAllowed {
			t.Errorf("%s with NAT64: %v", a, v)
		}
	}
}

// config checks the URL.
func (c addressCase) config(t *testing.T, f *Filter) {
	target, err := f.Check(c.url())
	if c.Expect == "deny" {
		if err == nil {
			t.Fatalf("passes as %+v: %s", target, c.Why)
		}
		wantRefusal(t, err, 0)
		return
	}
	if err != nil {
		t.Fatalf("refused: %v: %s", err, c.Why)
	}
	if want, ok := storedHosts[c.ID]; ok && target.Host != want {
		t.Errorf("host %q, want %q", target.Host, want)
	}
	if _, path, _ := strings.Cut(strings.TrimPrefix(c.url(), "https://"), "/"); target.RequestURI != "/"+path {
		t.Errorf("sends %q for %q", target.RequestURI, "/"+path)
	}
}
