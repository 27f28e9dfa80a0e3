package netguard

import (
	"net/netip"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		allow, deny []netip.Prefix
		nat64, only bool
		addr        string
		want        Verdict
	}{
		{name: "private by default", addr: "10.1.2.3", want: VerdictPrivate},
		{name: "an allowed network", allow: prefixes("10.0.0.0/8"), addr: "10.1.2.3", want: VerdictAllowed},
		{name: "mapped into an allowed network", allow: prefixes("10.0.0.0/8"), addr: "::ffff:10.1.2.3", want: VerdictAllowed},
		{name: "a mapped entry is that network", allow: prefixes("::ffff:10.0.0.0/104"), addr: "10.1.2.3", want: VerdictAllowed},
		{name: "allow leaves the rest refused", allow: prefixes("10.0.0.0/8"), addr: "192.168.0.1", want: VerdictPrivate},
		{name: "allow leaves loopback refused", allow: prefixes("10.0.0.0/8"), addr: "127.0.0.1", want: VerdictLoopback},
		{name: "deny goes before allow", allow: prefixes("10.0.0.0/8"), deny: prefixes("10.1.0.0/16"), addr: "10.1.2.3", want: VerdictDenied},
		{name: "beside the denied", allow: prefixes("10.0.0.0/8"), deny: prefixes("10.1.0.0/16"), addr: "10.2.0.0", want: VerdictAllowed},
		{name: "deny of a public address", deny: prefixes("203.0.114.0/24"), addr: "203.0.114.7", want: VerdictDenied},
		{name: "a mapped entry of deny", deny: prefixes("::ffff:203.0.114.0/120"), addr: "203.0.114.7", want: VerdictDenied},
		{name: "denied inside NAT64", deny: prefixes("203.0.114.0/24"), nat64: true, addr: "64:ff9b::203.0.114.7", want: VerdictDenied},
		{name: "denied inside an allowed 6to4 prefix", deny: prefixes("203.0.114.0/24"), allow: prefixes("2002::/16"), addr: "2002:cb00:7207::1", want: VerdictDenied},

		// Guarded addresses stand alone or stay refused, also inside a wider entry.
		{name: "metadata inside an allowed ULA", allow: prefixes("fd00::/8"), addr: "fd00:ec2::254", want: VerdictMetadata},
		{name: "beside it", allow: prefixes("fd00::/8"), addr: "fd00:ec2::255", want: VerdictAllowed},
		{name: "metadata inside an allowed carrier network", allow: prefixes("100.64.0.0/10"), addr: "100.100.100.200", want: VerdictMetadata},
		{name: "link-local inside a wide entry", allow: prefixes("168.0.0.0/7"), addr: "169.254.1.1", want: VerdictLinkLocal},
		{name: "loopback inside a wide entry", allow: prefixes("112.0.0.0/4"), addr: "127.0.0.1", want: VerdictLoopback},
		{name: "loopback alone", allow: prefixes("127.0.0.1/32"), addr: "127.0.0.1", want: VerdictAllowed},
		{name: "its neighbour", allow: prefixes("127.0.0.1/32"), addr: "127.0.0.2", want: VerdictLoopback},
		{name: "IPv6 loopback alone", allow: prefixes("::1/128"), addr: "::1", want: VerdictAllowed},
		{name: "metadata alone", allow: prefixes("169.254.169.254/32"), addr: "169.254.169.254", want: VerdictAllowed},

		{name: "only what is listed: a public address", only: true, addr: "8.8.8.8", want: VerdictUnlisted},
		{name: "only what is listed: a listed public one", only: true, allow: prefixes("8.8.8.0/24"), addr: "8.8.8.8", want: VerdictAllowed},
		{name: "only what is listed: a private one", only: true, addr: "10.1.2.3", want: VerdictPrivate},
		{name: "only what is listed: inside NAT64", only: true, nat64: true, addr: "64:ff9b::8.8.8.8", want: VerdictUnlisted},
		{name: "only what is listed: loopback alone", only: true, allow: prefixes("127.0.0.1/32"), addr: "127.0.0.1", want: VerdictAllowed},

		{name: "NAT64 refused", addr: "64:ff9b::8.8.8.8", want: VerdictNAT64},
		{name: "NAT64 of a public address", nat64: true, addr: "64:ff9b::8.8.8.8", want: VerdictAllowed},
		{name: "NAT64 of a private one", nat64: true, addr: "64:ff9b::10.0.0.1", want: VerdictPrivate},
		{name: "NAT64 of an allowed one", nat64: true, allow: prefixes("10.0.0.0/8"), addr: "64:ff9b::10.0.0.1", want: VerdictAllowed},
		{name: "NAT64 of metadata", nat64: true, addr: "64:ff9b::169.254.169.254", want: VerdictMetadata},
		{name: "local NAT64 stays refused", nat64: true, addr: "64:ff9b:1::8.8.8.8", want: VerdictNAT64},
		{name: "an allowed NAT64 prefix lets no metadata through", allow: prefixes("64:ff9b:1::/48"), addr: "64:ff9b:1::169.254.169.254", want: VerdictNAT64},
		{name: "an allowed 6to4 prefix lets no loopback through", allow: prefixes("2002::/16"), addr: "2002:7f00:1::1", want: VerdictEmbeddedIPv4},
		{name: "an allowed 6to4 prefix", allow: prefixes("2002::/16"), addr: "2002:808:808::1", want: VerdictAllowed},
		{name: "a zone in an allowed network", allow: prefixes("fd00::/8"), addr: "fd00::1%eth0", want: VerdictZone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := mustNew(t, Config{Allow: tt.allow, Deny: tt.deny, NAT64: tt.nat64, OnlyAllow: tt.only})
			if got := f.Judge(netip.MustParseAddr(tt.addr)); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.addr, got, tt.want)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		c    Config
		want string // a part of the error
	}{
		{"all of IPv4 allowed", Config{Allow: prefixes("0.0.0.0/0")}, "0.0.0.0/0 is wider than any private network"},
		{"half of it", Config{Allow: prefixes("128.0.0.0/1")}, "wider"},
		{"all of IPv6 allowed", Config{Allow: prefixes("::/0")}, "wider"},
		{"all of IPv4, mapped", Config{Allow: prefixes("::ffff:0:0/96")}, "0.0.0.0/0 is wider"},
		{"more than all of IPv4", Config{Allow: prefixes("::ffff:0:0/90")}, "holds all of IPv4 and more"},
		{"bits beyond the length", Config{Allow: prefixes("10.1.2.3/8")}, "is 10.0.0.0/8 meant?"},
		{"bits beyond the length in deny", Config{Deny: prefixes("10.1.2.3/8")}, "deny: 10.1.2.3/8"},
		{"an invalid prefix", Config{Allow: []netip.Prefix{{}}}, "no network"},
		{"all of loopback", Config{Allow: prefixes("127.0.0.0/8")}, "127.0.0.0/8 has no effect"},
		{"part of loopback", Config{Allow: prefixes("127.0.0.0/30")}, "such as 127.0.0.1/32"},
		{"link-local", Config{Allow: prefixes("169.254.0.0/16")}, "one by one"},
		{"IPv6 link-local", Config{Allow: prefixes("fe80::/64")}, "one by one"},
		{"the unspecified address", Config{Allow: prefixes("0.0.0.0/32")}, "reaches this host itself"},
		{"the unspecified IPv6 address", Config{Allow: prefixes("::/128")}, "reaches this host itself"},
		{"port 0", Config{Ports: []uint16{0}}, "0 is no port"},
		{"an address as a name", Config{AllowNames: []string{"10.0.0.1"}}, `"10.0.0.1" is an address`},
		{"a number as a name", Config{DenyNames: []string{"127.1"}}, `deny_names: "127.1"`},
		{"an empty name", Config{AllowNames: []string{""}}, "allow_names"},
		{"a URL as a name", Config{AllowNames: []string{"https://x.example"}}, `it holds ':'`},
		{"a pattern as a name", Config{AllowNames: []string{"*.example"}}, `it holds '*'`},
		{"no proxy", Config{Proxy: &Proxy{URL: "proxy.example:3128"}}, "proxy: the URL"},
		{"a SOCKS proxy", Config{Proxy: &Proxy{URL: "socks5://proxy.example:1080"}}, "proxy: the URL"},
		{"a proxy with a user", Config{Proxy: &Proxy{URL: "http://u:hunter2@proxy.example:3128"}}, "authorization"},
		{"a proxy with a path", Config{Proxy: &Proxy{URL: "http://proxy.example:3128/x"}}, "more than scheme, host and port"},
		{"an authorization that breaks the header", Config{Proxy: &Proxy{URL: "http://p.example", Authorization: "Basic x\r\nX: y"}}, "control character"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := New(tt.c)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q in it", err, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error holds a secret: %v", err)
			}
		})
	}
}

func TestNewJoinsErrors(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Allow: prefixes("0.0.0.0/0", "127.0.0.0/8"), Ports: []uint16{0}})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Fatalf("got %v, want three errors", err)
	}
}

// TestNewAllows: what is wide, but is somebody's private network.
func TestNewAllows(t *testing.T) {
	t.Parallel()
	mustNew(t, Config{
		Allow:      prefixes("240.0.0.0/4", "10.0.0.0/8", "fc00::/7", "127.0.0.53/32", "::1/128", "fe80::1/128"),
		Deny:       prefixes("0.0.0.0/0", "::/0"),
		AllowNames: []string{"Hooks.Internal.", ".svc.cluster.local", "backend", "bücher.example"},
		Ports:      []uint16{1, 65535},
		Proxy:      &Proxy{URL: "https://proxy.example"},
	})
}
