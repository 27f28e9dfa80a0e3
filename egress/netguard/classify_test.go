package netguard

import (
	"encoding/csv"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// registryRow is a prefix of a registry as this test reads the file, apart from parseRegistry.
type registryRow struct {
	prefix netip.Prefix
	name   string
}

var prefixPattern = regexp.MustCompile(`[0-9a-f.:]+/[0-9]+`)

func registryRows(t *testing.T) []registryRow {
	t.Helper()
	files, err := filepath.Glob("registry/*.csv")
	if err != nil || len(files) != 2 {
		t.Fatalf("registries: %v, %v; want two", files, err)
	}
	var rows []registryRow
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		records, err := csv.NewReader(f).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, rec := range records[1:] {
			found := prefixPattern.FindAllString(rec[0], -1)
			if len(found) == 0 {
				t.Errorf("%s: no prefix in %q", name, rec[0])
			}
			for _, p := range found {
				rows = append(rows, registryRow{netip.MustParsePrefix(p), rec[1]})
			}
		}
	}
	return rows
}

// beyond are the blocks that must be refused though no registry has them, written here by hand.
var beyond = prefixes("224.0.0.0/4", "168.63.129.16/32", "::/3", "4000::/2", "8000::/1")

// last is the last address of p.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// TestRegistryBorders goes over every border of both registries, and of what stands beyond them, from both sides.
func TestRegistryBorders(t *testing.T) {
	t.Parallel()
	rows := registryRows(t)
	if len(rows) < 50 {
		t.Fatalf("the registries have %d prefixes; they had 51 in 2026", len(rows))
	}
	for _, p := range beyond {
		rows = append(rows, registryRow{p, "beyond the registries"})
	}
	mapped := netip.MustParsePrefix("::ffff:0:0/96")
	listed := func(a netip.Addr) bool {
		if mapped.Contains(a) || a.Is4In6() {
			a = a.Unmap()
		}
		for _, r := range rows {
			if r.prefix.Contains(a) && r.prefix != mapped {
				return true
			}
		}
		return false
	}
	public := 0
	for _, r := range rows {
		// The mapped block is judged by the IPv4 address inside: ::ffff:8.8.8.8 is public.
		first, end := r.prefix.Addr(), last(r.prefix)
		for _, a := range []netip.Addr{first.Prev(), first, first.Next(), end.Prev(), end, end.Next()} {
			if !a.IsValid() {
				continue // before the first or after the last of all addresses
			}
			got := Classify(a)
			if want := listed(a); (got != VerdictAllowed) != want {
				t.Errorf("%s, at a border of %s (%s): %v, want refused: %t", a, r.prefix, r.name, got, want)
			}
			if got == VerdictAllowed {
				public++
			}
		}
	}
	if public < 20 {
		t.Errorf("only %d addresses beside a border are public: does the test still see both sides?", public)
	}
}

// TestRegistryNames: each row has a verdict of its own choosing, and each choice a row.
func TestRegistryNames(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, r := range registryRows(t) {
		seen[r.name] = true
		if _, ok := registryVerdicts[r.name]; !ok {
			t.Errorf("%s: registryVerdicts does not know %q", r.prefix, r.name)
		}
	}
	for name := range registryVerdicts {
		if !seen[name] {
			t.Errorf("no registry has a row %q", name)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	tests := []struct {
		addr string
		want Verdict
	}{
		{"8.8.8.8", VerdictAllowed},
		{"2606:4700:4700::1111", VerdictAllowed},
		{"0.0.0.0", VerdictUnspecified},
		{"0.1.2.3", VerdictUnspecified},
		{"::", VerdictUnspecified},
		{"10.0.0.1", VerdictPrivate},
		{"100.64.0.1", VerdictShared},
		{"127.0.0.1", VerdictLoopback},
		{"127.255.255.254", VerdictLoopback},
		{"::1", VerdictLoopback},
		{"169.254.1.1", VerdictLinkLocal},
		{"fe80::1", VerdictLinkLocal},
		{"febf::1", VerdictLinkLocal},
		// Metadata services lie inside wider blocks, or, Azure's, in none.
		{"169.254.169.254", VerdictMetadata},
		{"169.254.170.2", VerdictMetadata},
		{"100.100.100.200", VerdictMetadata},
		{"192.0.0.192", VerdictMetadata},
		{"168.63.129.16", VerdictMetadata},
		{"168.63.129.15", VerdictAllowed},
		{"168.63.129.17", VerdictAllowed},
		{"fd00:ec2::254", VerdictMetadata},
		{"fd20:ce::254", VerdictMetadata},
		{"fe80::a9fe:a9fe", VerdictMetadata},
		{"192.0.0.1", VerdictReserved},
		{"192.0.0.9", VerdictInfrastructure},
		{"192.0.0.170", VerdictReserved},
		{"192.0.2.1", VerdictDocumentation},
		{"192.31.196.1", VerdictInfrastructure},
		{"192.88.99.2", VerdictInfrastructure},
		{"198.18.0.1", VerdictBenchmark},
		{"224.0.0.1", VerdictMulticast},
		{"239.255.255.255", VerdictMulticast},
		{"240.0.0.1", VerdictReserved},
		{"255.255.255.255", VerdictReserved},
		{"ff0e::1", VerdictMulticast},
		{"fd00::1", VerdictPrivate},
		{"fec0::1", VerdictPrivate},
		{"2001:db8::1", VerdictDocumentation},
		{"3fff::1", VerdictDocumentation},
		{"5f00::1", VerdictReserved},
		{"100::1", VerdictReserved},
		{"4000::1", VerdictNotGlobal},
		{"1fff:ffff::1", VerdictNotGlobal},
		{"::1:0:0:1", VerdictNotGlobal},
		// IPv4 inside IPv6. Only the mapped form is the IPv4 address itself.
		{"::ffff:127.0.0.1", VerdictLoopback},
		{"::ffff:8.8.8.8", VerdictAllowed},
		{"::8.8.8.8", VerdictEmbeddedIPv4},
		{"::ffff:0:808:808", VerdictEmbeddedIPv4},
		{"2002:808:808::1", VerdictEmbeddedIPv4},
		{"2001::1", VerdictEmbeddedIPv4},
		{"64:ff9b::8.8.8.8", VerdictNAT64},
		{"64:ff9b:1::8.8.8.8", VerdictNAT64},
		{"fe80::1%eth0", VerdictZone},
		{"2606:4700::1%eth0", VerdictZone},
	}
	for _, tt := range tests {
		t.Run(tt.addr, func(t *testing.T) {
			t.Parallel()
			if got := Classify(netip.MustParseAddr(tt.addr)); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
	if got := Classify(netip.Addr{}); got == VerdictAllowed {
		t.Error("the invalid address is allowed")
	}
}

func TestEmbedded(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, addr, want string }{
		{"compatible", "::127.0.0.1", "127.0.0.1"},
		{"translated", "::ffff:0:7f00:1", "127.0.0.1"},
		{"NAT64", "64:ff9b::a9fe:a9fe", "169.254.169.254"},
		{"local NAT64", "64:ff9b:1::a9fe:a9fe", "169.254.169.254"},
		{"6to4", "2002:7f00:1::", "127.0.0.1"},
		// The example of RFC 4380 section 4 in its usual form: the client 192.0.2.45.
		{"Teredo", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "192.0.2.45"},
		{"ISATAP", "2001:db9:1::5efe:a00:1", "10.0.0.1"},
		{"ISATAP with the universal bit", "2001:db9:1::200:5efe:a00:1", "10.0.0.1"},
		{"an ordinary address", "2606:4700:4700::1111", "invalid IP"},
		{"IPv4", "127.0.0.1", "invalid IP"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := embedded(netip.MustParseAddr(tt.addr)).String(); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestParseRegistryRefuses(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"nothing":         "",
		"other columns":   "Prefix,Name\n10.0.0.0/8,Private-Use\n",
		"no prefix":       "Address Block,Name\n10.0.0.0,Private-Use\n",
		"an open quote":   "Address Block,Name\n\"10.0.0.0/8,Private-Use\n",
		"a row cut short": "Address Block,Name\n10.0.0.0/8\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if blocks, err := parseRegistry([]byte(file)); err == nil {
				t.Errorf("parsed as %v", blocks)
			}
		})
	}
	blocks, err := parseRegistry([]byte("Address Block,Name\n\"1.2.3.0/24 [7], 1.2.4.0/24\",A new row\n"))
	if err != nil || len(blocks) != 2 || blocks[0].verdict != VerdictReserved || blocks[1].prefix.String() != "1.2.4.0/24" {
		t.Errorf("a new row with two prefixes: %v, %v; want both as reserved", blocks, err)
	}
}

// TestVerdicts: each has a name of its own, a text, and is a refusal or the one that is not.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	names := map[string]Verdict{VerdictAllowed.String(): VerdictAllowed}
	pattern := regexp.MustCompile(`^[a-z0-9_]+$`)
	for _, v := range Refusals() {
		name := v.String()
		if other, taken := names[name]; taken || !pattern.MatchString(name) {
			t.Errorf("verdict %d is called %q, as is %v", v, name, other)
		}
		names[name] = v
		if v.text() == "" {
			t.Errorf("%v has no text", v)
		}
		if text, err := v.MarshalText(); err != nil || string(text) != name {
			t.Errorf("%v is marshalled as %q, %v", v, text, err)
		}
	}
	if len(names) != int(verdicts)-1 {
		t.Errorf("%d names for %d verdicts", len(names), verdicts-1)
	}
	if got := Verdict(0).String(); got != "verdict(0)" {
		t.Errorf("the zero verdict is called %q", got)
	}
}

func FuzzClassify(f *testing.F) {
	for _, r := range beyondRegistries {
		f.Add(r.prefix.Addr().AsSlice())
	}
	for _, s := range []string{"8.8.8.8", "127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:db9:1::5efe:a00:1"} {
		f.Add(netip.MustParseAddr(s).AsSlice())
	}
	strict, err := New(Config{})
	if err != nil {
		f.Fatal(err)
	}
	translating, err := New(Config{NAT64: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		v := Classify(a)
		if v == 0 || v >= verdicts {
			t.Fatalf("%s: %v", a, v)
		}
		if got := strict.Judge(a); got != v {
			t.Errorf("%s: the zero Config judges %v, the built-in list %v", a, got, v)
		}
		if a.Is4() {
			mapped := netip.AddrFrom16(a.As16())
			if got := Classify(mapped); got != v {
				t.Errorf("%s is %v, but mapped %v", a, v, got)
			}
			b16 := a.As16()
			copy(b16[:12], []byte{0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0})
			if got := translating.Judge(netip.AddrFrom16(b16)); got != v {
				t.Errorf("%s is %v, but by NAT64 %v", a, v, got)
			}
		}
		// What the standard library knows as not public is never let through.
		if p := a.Unmap(); v == VerdictAllowed && (!p.IsGlobalUnicast() || p.IsPrivate() || p.IsLoopback() || p.IsLinkLocalUnicast() || p.IsMulticast() || p.IsUnspecified()) {
			t.Errorf("%s is allowed", a)
		}
	})
}
