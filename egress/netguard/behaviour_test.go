package netguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// behaviours are the tests of the rows that speak of more than one URL or address.
var behaviours = map[int]func(*testing.T, addressCase){
	221: resolves(zone{"127.0.0.1.nip.io.": {addrs: []string{"127.0.0.1"}}}, "127.0.0.1.nip.io", VerdictLoopback),
	222: resolves(zone{"7f000001.nip.io.": {addrs: []string{"127.0.0.1"}}}, "7f000001.nip.io", VerdictLoopback),
	301: resolves(zone{"a.example.": {addrs: []string{"93.184.216.34", "10.0.0.1"}}}, "a.example", VerdictPrivate),
	302: resolves(zone{"a.example.": {addrs: []string{"93.184.216.34", "::1"}}}, "a.example", VerdictLoopback),
	303: resolves(zone{"a.example.": {addrs: []string{"fd00::1"}}}, "a.example", VerdictPrivate),
	304: resolvesByDNS64,
	306: resolves(zone{
		"a.example.":                {cname: "metadata.google.internal."},
		"metadata.google.internal.": {addrs: []string{"169.254.169.254"}},
	}, "a.example", VerdictMetadata),
	307: fails(chain(25), "c0.example", true),
	308: fails(zone{"a.example.": {cname: "b.example."}, "b.example.": {cname: "a.example."}}, "a.example", true),
	309: fails(zone{}, "a.example", true),
	310: failsByResolver,
	312: triesFew,
	313: resolvesAnew,
	314: func(t *testing.T, c addressCase) {
		resolves(zone{"a.example.": {addrs: []string{"0.0.0.0"}}}, "a.example", VerdictUnspecified)(t, c)
		resolves(zone{"a.example.": {addrs: []string{"::"}}}, "a.example", VerdictUnspecified)(t, c)
	},
	315: hintsAtFakeIP,
	317: asksAbsolutely,
	319: ignoresEnvironment,
	331: sendsNoDot,
	337: dialsTCPOnly,
	338: allowsNoMore,
	339: deniesFirst,
	340: refusesAll,
	341: readsMapped,

	// What a redirect, an answer's header, a certificate or a connection does is for the sender to show; the filter has no
	// part in it but that each new connection is judged (313).
	322: bySender("TestAnswerRedirectIsNotFollowed"),
	323: bySender("TestAnswerRedirectIsNotFollowed"),
	324: bySender("TestAnswerHintsAreIgnored"),
	325: bySender("TestAnswerHintsAreIgnored"),
	326: bySender("TestALPN"),
	327: bySender("TestALPN"),
	328: bySender("TestFaultCertificate", "TestCertificateNames"),
	332: bySender("TestConnectionsAreApart", "TestConnectionsAreNotCoalesced"),
	333: bySender("TestHTTP2"),
	335: bySender("TestSendToAnIntake"),
}

// bySender checks that a row needs an HTTP exchange, and that package egress has the tests that show it.
func bySender(names ...string) func(*testing.T, addressCase) {
	return func(t *testing.T, c addressCase) {
		if c.Kind != "redirect" && c.Kind != "tls" && c.Kind != "conn" {
			t.Errorf("a row of kind %s is the filter's own", c.Kind)
		}
		files, err := filepath.Glob("../*_test.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("the tests of package egress: %d, %v", len(files), err)
		}
		var all []byte
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text...)
		}
		for _, name := range names {
			if !bytes.Contains(all, []byte("func "+name+"(t *testing.T) {")) {
				t.Errorf("package egress has no %s", name)
			}
		}
	}
}

// resolveIn looks host up in z by a strict filter.
func resolveIn(t *testing.T, z zone, host string) ([]netip.AddrPort, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	f := mustNew(t, Config{Resolver: newNameServer(t, z).resolver()})
	return f.Resolve(ctx, mustCheck(t, f, "https://"+host+"/h"))
}

// resolves tests that host, whose name passes, is refused for an address of its answer.
func resolves(z zone, host string, want Verdict) func(*testing.T, addressCase) {
	return func(t *testing.T, _ addressCase) {
		addrs, err := resolveIn(t, z, host)
		r := wantRefusal(t, err, want)
		if addrs != nil || r.Host != host || !r.Addr.IsValid() {
			t.Errorf("got %v beside %+v", addrs, r)
		}
	}
}

// fails tests that host cannot be resolved, and whose fault it is.
func fails(z zone, host string, notFound bool) func(*testing.T, addressCase) {
	return func(t *testing.T, _ addressCase) {
		addrs, err := resolveIn(t, z, host)
		r, ok := errors.AsType[*ResolveError](err)
		if !ok || addrs != nil {
			t.Fatalf("got %v, %v; want a ResolveError", addrs, err)
		}
		if r.NotFound != notFound || r.Host != host || r.Error() == "" {
			t.Errorf("got %+v, want NotFound %t", r, notFound)
		}
	}
}

// chain is a chain of n aliases, longer than a recursive server follows.
func chain(n int) zone {
	z := zone{fmt.Sprintf("c%d.example.", n): {addrs: []string{"93.184.216.34"}}}
	for i := range n {
		z[fmt.Sprintf("c%d.example.", i)] = records{cname: fmt.Sprintf("c%d.example.", i+1)}
	}
	return z
}

func resolvesByDNS64(t *testing.T, _ addressCase) {
	z := zone{"a.example.": {addrs: []string{"93.184.216.34", "64:ff9b::93.184.216.34"}}}
	ns := newNameServer(t, z)
	f := mustNew(t, Config{NAT64: true, Resolver: ns.resolver()})
	addrs, err := f.Resolve(t.Context(), mustCheck(t, f, "https://a.example/"))
	if err != nil || len(addrs) != 2 {
		t.Errorf("with NAT64: %v, %v; want both addresses", addrs, err)
	}
	// Without the switch one refused address refuses the name, and the text says which switch.
	strict := mustNew(t, Config{Resolver: ns.resolver()})
	_, err = strict.Resolve(t.Context(), mustCheck(t, strict, "https://a.example/"))
	if r := wantRefusal(t, err, VerdictNAT64); !strings.Contains(r.Error(), "filter.allow_nat64") {
		t.Errorf("the text does not name the switch: %v", r)
	}
}

func failsByResolver(t *testing.T, c addressCase) {
	fails(zone{"a.example.": {code: dnsmessage.RCodeServerFailure}}, "a.example", false)(t, c)
	f := mustNew(t, Config{Resolver: newNameServer(t, zone{"a.example.": {silent: true}}).resolver()})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := f.Resolve(ctx, mustCheck(t, f, "https://a.example/"))
	r, ok := errors.AsType[*ResolveError](err)
	if !ok || r.NotFound || !r.Timeout {
		t.Errorf("no answer in time: got %#v, want a time-out of the resolver", err)
	}
}

func triesFew(t *testing.T, _ addressCase) {
	var addrs []string
	for i := range 1000 {
		addrs = append(addrs, fmt.Sprintf("93.184.%d.%d", i/250, i%250+1))
	}
	got, err := resolveIn(t, zone{"a.example.": {addrs: addrs}}, "a.example")
	if err != nil || len(got) != 1000 {
		t.Fatalf("%d addresses, %v; want all 1,000 judged", len(got), err)
	}
	if tries := order(got); len(tries) != 8 {
		t.Errorf("%d tries, want 8", len(tries))
	}
	// One bad one among them is found, wherever it stands.
	_, err = resolveIn(t, zone{"a.example.": {addrs: append(addrs, "10.0.0.1")}}, "a.example")
	wantRefusal(t, err, VerdictPrivate)
}

// resolvesAnew: an answer that changes between two look-ups is judged each time, and what was dialled stays what it was.
func resolvesAnew(t *testing.T, _ addressCase) {
	ns := newNameServer(t, zone{"a.example.": {addrs: []string{"93.184.216.34"}, next: []string{"127.0.0.1"}}})
	f := mustNew(t, Config{Resolver: ns.resolver()})
	target := mustCheck(t, f, "https://a.example/")
	first, err := f.Resolve(t.Context(), target)
	if err != nil || len(first) != 1 || first[0].String() != "93.184.216.34:443" {
		t.Fatalf("first: %v, %v", first, err)
	}
	_, err = f.Resolve(t.Context(), target)
	wantRefusal(t, err, VerdictLoopback)
}

func hintsAtFakeIP(t *testing.T, c addressCase) {
	_, err := resolveIn(t, zone{"a.example.": {addrs: []string{"198.18.0.7"}}}, "a.example")
	if r := wantRefusal(t, err, VerdictBenchmark); !strings.Contains(r.Error(), "VPNs and proxies") {
		t.Errorf("no hint: %v", r)
	}
}

// asksAbsolutely: one question for each family, for the name alone.
func asksAbsolutely(t *testing.T, _ addressCase) {
	ns := newNameServer(t, zone{"api.": {addrs: []string{"93.184.216.34"}}})
	f := mustNew(t, Config{AllowNames: []string{"api", "a.example"}, Resolver: ns.resolver()})
	if _, err := f.Resolve(t.Context(), mustCheck(t, f, "https://api/")); err != nil {
		t.Error(err)
	}
	if _, err := f.Resolve(t.Context(), mustCheck(t, f, "https://a.example/")); err == nil {
		t.Error("a name that is unknown resolves")
	}
	count := make(map[string]int)
	for _, q := range ns.asked() {
		count[q.Name.String()+" "+q.Type.String()]++
	}
	for _, want := range []string{"api. TypeA", "api. TypeAAAA", "a.example. TypeA", "a.example. TypeAAAA"} {
		if count[want] != 1 {
			t.Errorf("%s was asked %d times, want once", want, count[want])
		}
	}
	if len(count) != 4 {
		t.Errorf("other questions than those for the names themselves: %v", count)
	}
	// A single label without the final dot would be found in /etc/hosts, or under a search domain where there is one.
	ns = newNameServer(t, zone{"localhost.": {addrs: []string{"93.184.216.34"}}})
	f = mustNew(t, Config{AllowNames: []string{"localhost"}, Resolver: ns.resolver()})
	addrs, err := f.Resolve(t.Context(), mustCheck(t, f, "https://localhost/"))
	if err != nil || len(addrs) != 1 || addrs[0].String() != "93.184.216.34:443" {
		t.Errorf("localhost. is %v, %v; want what the name server says", addrs, err)
	}
}

func sendsNoDot(t *testing.T, _ addressCase) {
	target := mustCheck(t, mustNew(t, Config{}), "https://Example.com./h")
	if target.Host != "example.com" || target.URL != "https://example.com/h" {
		t.Errorf("SNI and Host would be %q, the URL %q", target.Host, target.URL)
	}
}

func dialsTCPOnly(t *testing.T, _ addressCase) {
	judged := netip.MustParseAddrPort("93.184.216.34:443")
	for _, tt := range []struct{ network, address string }{
		{"unix", "@abstract"}, {"unix", "/var/run/docker.sock"}, {"udp4", "93.184.216.34:443"}, {"tcp", "93.184.216.34:443"},
		{"tcp4", "93.184.216.35:443"}, {"tcp4", "93.184.216.34:80"}, {"tcp4", "example.com:443"}, {"tcp6", "[fe80::1%lo]:443"}, {"", ""},
	} {
		if err := pin(judged)(tt.network, tt.address, nil); err == nil {
			t.Errorf("a socket of %q to %q is let through", tt.network, tt.address)
		}
	}
	if err := pin(judged)("tcp4", "93.184.216.34:443", nil); err != nil {
		t.Error(err)
	}
}

func allowsNoMore(t *testing.T, _ addressCase) {
	f := mustNew(t, Config{Allow: prefixes("10.0.0.0/8")})
	for addr, want := range map[string]Verdict{
		"10.255.255.255": VerdictAllowed, "11.0.0.0": VerdictAllowed, "169.254.169.254": VerdictMetadata,
		"127.0.0.1": VerdictLoopback, "172.16.0.1": VerdictPrivate, "::1": VerdictLoopback,
	} {
		if got := f.Judge(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

func deniesFirst(t *testing.T, _ addressCase) {
	f := mustNew(t, Config{Deny: prefixes("203.0.114.0/24"), Allow: prefixes("203.0.112.0/22")})
	for addr, want := range map[string]Verdict{
		"203.0.114.0": VerdictDenied, "203.0.114.255": VerdictDenied, "203.0.115.0": VerdictAllowed, "203.0.113.1": VerdictAllowed,
	} {
		if got := f.Judge(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

func refusesAll(t *testing.T, _ addressCase) {
	if _, err := New(Config{Allow: prefixes("0.0.0.0/0")}); err == nil {
		t.Error("0.0.0.0/0 is taken")
	}
}

func readsMapped(t *testing.T, _ addressCase) {
	f := mustNew(t, Config{Allow: prefixes("::ffff:10.0.0.0/104")})
	if got := f.Judge(netip.MustParseAddr("10.9.8.7")); got != VerdictAllowed {
		t.Errorf("10.9.8.7: %v", got)
	}
}

// TestTunnelErrorIsUnreachable: who knows nothing of proxies reads it as what it means.
func TestTunnelErrorIsUnreachable(t *testing.T) {
	t.Parallel()
	if err := error(&TunnelError{Status: 503}); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Error("a TunnelError is not EHOSTUNREACH")
	}
}
