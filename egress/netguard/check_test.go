package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestCheckTarget(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, url string
		want      Target
	}{
		{"plain", "https://hooks.acme.example/in?key=1",
			Target{URL: "https://hooks.acme.example/in?key=1", Scheme: "https", Host: "hooks.acme.example", Port: 443, RequestURI: "/in?key=1"}},
		{"no path", "https://a.example",
			Target{URL: "https://a.example/", Scheme: "https", Host: "a.example", Port: 443, RequestURI: "/"}},
		{"no path, a query", "https://a.example?x=/y@z",
			Target{URL: "https://a.example/?x=/y@z", Scheme: "https", Host: "a.example", Port: 443, RequestURI: "/?x=/y@z"}},
		{"an empty query", "https://a.example/h?",
			Target{URL: "https://a.example/h?", Scheme: "https", Host: "a.example", Port: 443, RequestURI: "/h?"}},
		{"upper case", "HTTPS://Hooks.ACME.Example/In",
			Target{URL: "https://hooks.acme.example/In", Scheme: "https", Host: "hooks.acme.example", Port: 443, RequestURI: "/In"}},
		{"a final dot", "https://a.example./h",
			Target{URL: "https://a.example/h", Scheme: "https", Host: "a.example", Port: 443, RequestURI: "/h"}},
		{"the default port", "https://a.example:443/h",
			Target{URL: "https://a.example/h", Scheme: "https", Host: "a.example", Port: 443, RequestURI: "/h"}},
		{"another port", "https://a.example:8443/h",
			Target{URL: "https://a.example:8443/h", Scheme: "https", Host: "a.example", Port: 8443, RequestURI: "/h"}},
		{"http", "http://a.example/h",
			Target{URL: "http://a.example/h", Scheme: "http", Host: "a.example", Port: 80, RequestURI: "/h"}},
		{"an IDN", "https://Bücher.example/h",
			Target{URL: "https://xn--bcher-kva.example/h", Scheme: "https", Host: "xn--bcher-kva.example", Port: 443, RequestURI: "/h"}},
		{"an A-label", "https://xn--fiqs8s.example/h",
			Target{URL: "https://xn--fiqs8s.example/h", Scheme: "https", Host: "xn--fiqs8s.example", Port: 443, RequestURI: "/h"}},
		{"path and query as given", "https://a.example/a/../%2e%2e//b;c?d[]=%zz&e=f+g",
			Target{URL: "https://a.example/a/../%2e%2e//b;c?d[]=%zz&e=f+g", Scheme: "https", Host: "a.example", Port: 443, RequestURI: "/a/../%2e%2e//b;c?d[]=%zz&e=f+g"}},
		{"two slashes first", "https://a.example//b",
			Target{URL: "https://a.example//b", Scheme: "https", Host: "a.example", Port: 443, RequestURI: "//b"}},
		{"hyphens in the third and fourth place", "https://r3---sn.example/h",
			Target{URL: "https://r3---sn.example/h", Scheme: "https", Host: "r3---sn.example", Port: 443, RequestURI: "/h"}},
		{"an allowed literal", "https://10.0.0.7/h",
			Target{URL: "https://10.0.0.7/h", Scheme: "https", Host: "10.0.0.7", Port: 443, RequestURI: "/h", Addr: netip.MustParseAddr("10.0.0.7")}},
		{"an allowed IPv6 literal", "https://[FD00:0::7]:8443/h",
			Target{URL: "https://[fd00::7]:8443/h", Scheme: "https", Host: "fd00::7", Port: 8443, RequestURI: "/h", Addr: netip.MustParseAddr("fd00::7")}},
	}
	f := mustNew(t, Config{AllowHTTP: true, Ports: []uint16{80, 443, 8443}, Allow: prefixes("10.0.0.0/8", "fd00::/8")})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := f.Check(tt.url)
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("target (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, url string
		want      Verdict
	}{
		{"nothing", "", VerdictScheme},
		{"no scheme", "hooks.example/in", VerdictScheme},
		{"a scheme that is none of ours", "ftp://hooks.example/in", VerdictScheme},
		{"http", "http://hooks.example/in", VerdictScheme},
		{"opaque", "https:hooks.example", VerdictBadURL},
		{"one slash", "https:/hooks.example", VerdictBadURL},
		{"no host", "https:///in", VerdictBadURL},
		{"no host but a port", "https://:443/in", VerdictBadURL},
		{"a blank", "https://hooks.example/a b", VerdictBadURL},
		{"a blank before it", " https://hooks.example/", VerdictBadURL},
		{"a tab in the scheme", "htt\tps://hooks.example/", VerdictBadURL},
		{"a line end", "https://hooks.example/\r\nX-Injected: 1", VerdictBadURL},
		{"NUL", "https://hooks.example\x00.evil.example/", VerdictBadURL},
		{"a backslash", `https://hooks.example\@evil.example/`, VerdictBadURL},
		{"a fragment", "https://hooks.example/#x", VerdictBadURL},
		{"a fragment before an at sign", "https://hooks.example#@127.0.0.1/", VerdictBadURL},
		{"not ASCII in the path", "https://hooks.example/é", VerdictBadURL},
		{"a bad escape in the path", "https://hooks.example/%zz", VerdictBadURL},
		{"not UTF-8", "https://hooks\xff.example/", VerdictHostEncoding},
		{"too long", "https://hooks.example/" + strings.Repeat("a", maxURLBytes), VerdictBadURL},
		{"a user", "https://user@hooks.example/", VerdictUserinfo},
		{"user and password", "https://user:hunter2@hooks.example/", VerdictUserinfo},
		{"an empty user", "https://@hooks.example/", VerdictUserinfo},
		{"a port with a sign", "https://hooks.example:+443/", VerdictBadURL},
		{"no port after the colon", "https://hooks.example:/", VerdictBadURL},
		{"a named port", "https://hooks.example:https/", VerdictBadURL},
		{"two ports", "https://hooks.example:443:443/", VerdictHostEncoding},
		{"another port", "https://hooks.example:8443/", VerdictPort},
		{"an IPv6 address without brackets", "https://2606:4700::1111/", VerdictHostEncoding},
		{"brackets left open", "https://[2606:4700::1111/", VerdictHostEncoding},
		{"something after the brackets", "https://[2606:4700::1111]x/", VerdictHostEncoding},
		{"IPv4 in brackets", "https://[8.8.8.8]/", VerdictHostEncoding},
		{"a mapped literal", "https://[::ffff:8.8.8.8]/", VerdictHostEncoding},
		{"a zone", "https://[fe80::1%25eth0]/", VerdictZone},
		{"an IPv4 literal", "https://8.8.8.8/", VerdictIPLiteral},
		{"an IPv6 literal", "https://[2606:4700:4700::1111]/", VerdictIPLiteral},
		{"a private literal", "https://10.0.0.1/", VerdictPrivate},
		{"a loopback literal", "https://[::1]/", VerdictLoopback},
		{"a literal with a final dot", "https://10.0.0.1./", VerdictHostEncoding},
		{"a hexadecimal last label", "https://hooks.0x7f/", VerdictHostEncoding},
		{"a bare 0x", "https://hooks.0x/", VerdictHostEncoding},
		{"an encoded host", "https://b%C3%BCcher.example/", VerdictHostEncoding},
		{"two dots at the end", "https://hooks.example../", VerdictHostEncoding},
		{"a star", "https://*.example/", VerdictHostEncoding},
		{"a comma", "https://a,b.example/", VerdictHostEncoding},
		{"a hyphen first", "https://-a.example/", VerdictHostEncoding},
		{"a soft hyphen", "https://ho\u00adoks.example/", VerdictHostEncoding},
		{"a zero-width space", "https://hooks\u200b.example/", VerdictHostEncoding},
		{"the Kelvin sign", "https://hoo\u212as.example/", VerdictHostEncoding},
		{"an ideographic full stop", "https://hooks\u3002example/", VerdictHostEncoding},
		{"an A-label of ASCII", "https://xn--hooks-.example/", VerdictHostEncoding},
		{"an A-label of what maps to something else", "https://xn--hhk.example/", VerdictHostEncoding},
		{"a single label", "https://metadata/", VerdictReservedName},
		{"a single label with a dot", "https://localhost./", VerdictReservedName},
		{"upper-case LOCALHOST", "https://a.LocalHost/", VerdictReservedName},
		{"a Kubernetes service", "https://api.default.svc.cluster.local/", VerdictReservedName},
	}
	f := mustNew(t, Config{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			target, err := f.Check(tt.url)
			r := wantRefusal(t, err, tt.want)
			if target != (Target{}) {
				t.Errorf("a target beside the refusal: %+v", target)
			}
			if text := r.Error(); strings.Contains(text, "hunter2") || strings.Contains(text, "Injected") {
				t.Errorf("the text holds what may be a secret: %s", text)
			}
		})
	}
}

func TestCheckNames(t *testing.T) {
	t.Parallel()
	f := mustNew(t, Config{
		AllowNames: []string{"hooks.internal", ".svc.cluster.local", "backend"},
		DenyNames:  []string{"bad.example", ".bad.example", "secret.svc.cluster.local"},
	})
	tests := []struct {
		host string
		want Verdict
	}{
		{"hooks.internal", VerdictAllowed},
		{"HOOKS.internal.", VerdictAllowed},
		{"a.hooks.internal", VerdictReservedName},
		{"other.internal", VerdictReservedName},
		{"backend", VerdictAllowed},
		{"a.default.svc.cluster.local", VerdictAllowed},
		{"svc.cluster.local", VerdictReservedName},
		{"xsvc.cluster.local", VerdictReservedName},
		{"secret.svc.cluster.local", VerdictDeniedName}, // deny goes before allow
		{"bad.example", VerdictDeniedName},
		{"a.b.bad.example", VerdictDeniedName},
		{"notbad.example", VerdictAllowed},
		{"127.0.0.1", VerdictLoopback}, // no list of names lifts the rule for addresses
	}
	for _, tt := range tests {
		t.Run(tt.host, func(t *testing.T) {
			t.Parallel()
			_, err := f.Check("https://" + tt.host + "/")
			if tt.want == VerdictAllowed {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			wantRefusal(t, err, tt.want)
		})
	}
}

// TestCheckReport: Report lifts what is policy, and nothing that makes a URL mean two things or that is guarded.
func TestCheckReport(t *testing.T) {
	t.Parallel()
	f := mustNew(t, Config{Report: true, DenyNames: []string{"bad.example"}})
	for _, u := range []string{
		"https://hooks.example:8443/", "https://db.internal/", "https://metadata/", "https://10.0.0.1/", "https://8.8.8.8/",
		"https://bad.example/", "https://[fd00::1]:15000/",
	} {
		if _, err := f.Check(u); err != nil {
			t.Errorf("%s is refused: %v", u, err)
		}
	}
	for u, want := range map[string]Verdict{
		"http://hooks.example/":            VerdictScheme,
		"https://user@hooks.example/":      VerdictUserinfo,
		"https://127.1/":                   VerdictHostEncoding,
		"https://hooks.example/#x":         VerdictBadURL,
		"https://127.0.0.1/":               VerdictLoopback,
		"https://127.0.0.1:8443/":          VerdictLoopback, // not the port, which is lifted
		"https://169.254.169.254/":         VerdictMetadata,
		"https://[fe80::1]/":               VerdictLinkLocal,
		"https://0.0.0.0/":                 VerdictUnspecified,
		"https://[2606:4700::1111%25lo]/":  VerdictZone,
		"https://[::ffff:169.254.169.254]": VerdictHostEncoding,
	} {
		_, err := f.Check(u)
		if r := wantRefusal(t, err, want); t.Failed() {
			t.Fatalf("%s: %v", u, r)
		}
	}
}

func TestRefusalTexts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		r    Refusal
		want string
	}{
		{Refusal{Verdict: VerdictPrivate, Host: "a.example", Addr: netip.MustParseAddr("10.0.0.1")},
			"a.example has the address 10.0.0.1, which is an address of private networks; if it is meant, write its network into filter.allow"},
		{Refusal{Verdict: VerdictLoopback, Host: "a.example", Addr: netip.MustParseAddr("::1")},
			"a.example has the address ::1, which is a loopback address; if it is meant, write this single address into filter.allow: ::1/128"},
		{Refusal{Verdict: VerdictBenchmark, Host: "a.example", Addr: netip.MustParseAddr("198.18.0.9")},
			"a.example has the address 198.18.0.9, which is an address for benchmarks, which VPNs and proxies with made-up answers use for every name; if it is meant, write its network into filter.allow"},
		{Refusal{Verdict: VerdictNAT64, Host: "a.example", Addr: netip.MustParseAddr("64:ff9b::808:808")},
			"a.example has the address 64:ff9b::808:808, which is a NAT64 address; on a network with IPv6 alone set filter.allow_nat64, and the IPv4 address in it is judged"},
		{Refusal{Verdict: VerdictDenied, Host: "10.0.0.1", Addr: netip.MustParseAddr("10.0.0.1")}, "10.0.0.1 is in filter.deny"},
		{Refusal{Verdict: VerdictScheme}, "the URL does not begin with https://"},
		{Refusal{Verdict: VerdictPort, Host: "a.example", Detail: "25 is not among [443]"},
			`the URL with the host "a.example" has a port that is not in filter.ports: 25 is not among [443]`},
	}
	for _, tt := range tests {
		t.Run(tt.r.Verdict.String(), func(t *testing.T) {
			t.Parallel()
			if got := tt.r.Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestCheckAllocates bounds what an attempt pays: the cross-check by net/url and nothing of the rules themselves.
func TestCheckAllocates(t *testing.T) {
	f := mustNew(t, Config{Allow: prefixes("10.0.0.0/8")})
	if n := testing.AllocsPerRun(100, func() { f.Check("https://hooks.acme.example/in/4711?key=1") }); n > 5 {
		t.Errorf("Check allocates %v times, want at most 5", n)
	}
	a := netip.MustParseAddr("2606:4700:4700::1111")
	if n := testing.AllocsPerRun(100, func() { f.Judge(a) }); n > 0 {
		t.Errorf("Judge allocates %v times", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	f := mustNew(b, Config{})
	for b.Loop() {
		f.Check("https://hooks.acme.example/in/4711?key=1")
	}
}

func BenchmarkJudge(b *testing.B) {
	f := mustNew(b, Config{})
	a := netip.MustParseAddr("2606:4700:4700::1111")
	for b.Loop() {
		f.Judge(a)
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		"https://hooks.example/in?x=1", "https://hooks.example:443", "http://[fd00::1]:80/a/../b", "https://bücher.example./?",
		"https://10.0.0.1/", "https://user@127.1/", "https://xn--fiqs8s.example//x", "https://a%2e.example/%2f#", "https://１２７.0.0.1/",
	} {
		f.Add(s)
	}
	for _, c := range loadCases(f) {
		f.Add("https://" + c.Input)
		f.Add(c.Input)
	}
	filter, err := New(Config{AllowHTTP: true, Ports: []uint16{80, 443, 8443}, Allow: prefixes("10.0.0.0/8", "fd00::/8", "127.0.0.1/32")})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := filter.Check(raw)
		if err != nil {
			if r, ok := errors.AsType[*Refusal](err); !ok || r.Verdict == 0 || r.Verdict == VerdictAllowed || r.Error() == "" {
				t.Fatalf("%q: %#v", raw, err)
			}
			return
		}
		// What passes, net/url must read in the same way, both as it was written and as it is sent.
		sent, err := url.Parse(target.URL)
		if err != nil {
			t.Fatalf("%q passes as %q, which net/url refuses: %v", raw, target.URL, err)
		}
		if sent.Hostname() != target.Host || sent.RequestURI() != target.RequestURI || sent.User != nil {
			t.Errorf("%q passes as %+v, which net/url reads as %q %q", raw, target, sent.Hostname(), sent.RequestURI())
		}
		given, err := url.Parse(raw)
		if err != nil {
			t.Fatalf("%q passes, which net/url refuses: %v", raw, err)
		}
		if isASCII(raw) && !strings.EqualFold(strings.TrimSuffix(given.Hostname(), "."), target.Host) {
			if a, err := netip.ParseAddr(given.Hostname()); err != nil || a != target.Addr {
				t.Errorf("%q: host %q, net/url reads %q", raw, target.Host, given.Hostname())
			}
		}
		if port := given.Port(); port != "" && port != fmt.Sprint(target.Port) {
			t.Errorf("%q: port %d, net/url reads %s", raw, target.Port, port)
		}
		if a, err := netip.ParseAddr(target.Host); err == nil && a != target.Addr {
			t.Errorf("%q passes with the host %s as a name", raw, target.Host)
		}
		again, err := filter.Check(target.URL)
		if err != nil || again != target {
			t.Errorf("%q passes as %+v, and that as %+v, %v", raw, target, again, err)
		}
	})
}
