package netguard

import "fmt"

// Verdict is what a Filter thinks of a URL, a name or an address. The zero Verdict is invalid.
type Verdict uint8

const (
	_ Verdict = iota
	// VerdictAllowed: it may be called.
	VerdictAllowed

	// Of a URL. None of the first five is ever lifted.
	VerdictBadURL       // not a URL as we send it: unreadable, too long, with control characters or a fragment
	VerdictScheme       // not https, and http is not permitted
	VerdictUserinfo     // user or password before the host
	VerdictHostEncoding // a host that programs read differently: 127.1, 0x7f.1, full-width digits, a bad IDN
	VerdictZone         // an IPv6 address with a zone
	VerdictPort         // a port that is not listed
	VerdictIPLiteral    // an address where a name belongs
	VerdictReservedName // a name that is never a public one: a single label, .internal, .local, .onion …
	VerdictDeniedName   // Config.DenyNames

	// Of an address.
	VerdictDenied         // Config.Deny
	VerdictUnlisted       // Config.OnlyAllow, and Config.Allow does not have it
	VerdictUnspecified    // 0.0.0.0/8, ::; Linux connects them to itself
	VerdictLoopback       // 127.0.0.0/8, ::1
	VerdictLinkLocal      // 169.254.0.0/16, fe80::/10
	VerdictMetadata       // the metadata and credential services of clouds
	VerdictPrivate        // RFC 1918, fc00::/7, fec0::/10
	VerdictShared         // 100.64.0.0/10, between a carrier and its customers
	VerdictBenchmark      // 198.18.0.0/15, 2001:2::/48
	VerdictDocumentation  // 192.0.2.0/24 and the like, 2001:db8::/32, 3fff::/20
	VerdictMulticast      // 224.0.0.0/4, ff00::/8
	VerdictInfrastructure // anycast services and DNS sinks: AS112, AMT, PCP, TURN, 6to4 relays
	VerdictEmbeddedIPv4   // IPv4 inside IPv6 by a way that is no longer used: compatible, translated, 6to4, Teredo
	VerdictNAT64          // 64:ff9b::/96 unless Config.NAT64, 64:ff9b:1::/48
	VerdictReserved       // anything else in a registry
	VerdictNotGlobal      // IPv6 outside 2000::/3
	verdicts              // their number
)

// verdictWords are the names of verdicts in metrics, logs and answers, and what people are told.
var verdictWords = [verdicts]struct{ name, text string }{
	VerdictAllowed:        {"allowed", "is allowed"},
	VerdictBadURL:         {"bad_url", "is not a URL that can be sent as it is"},
	VerdictScheme:         {"scheme", "does not begin with https://"},
	VerdictUserinfo:       {"userinfo", "has a user before the host"},
	VerdictHostEncoding:   {"host_encoding", "has a host that programs read differently"},
	VerdictZone:           {"zone", "has an address with a zone"},
	VerdictPort:           {"port", "has a port that is not in filter.ports"},
	VerdictIPLiteral:      {"ip_literal", "has an address for a host"},
	VerdictReservedName:   {"reserved_name", "has a name that is never a public one"},
	VerdictDeniedName:     {"denied_name", "has a name in filter.deny_names"},
	VerdictDenied:         {"denied", "is in filter.deny"},
	VerdictUnlisted:       {"unlisted", "is not among the addresses that alone may be called"},
	VerdictUnspecified:    {"unspecified", "is the unspecified address: a connection to it reaches this host itself"},
	VerdictLoopback:       {"loopback", "is a loopback address"},
	VerdictLinkLocal:      {"link_local", "is a link-local address"},
	VerdictMetadata:       {"metadata", "is a metadata service of a cloud, which hands out credentials"},
	VerdictPrivate:        {"private", "is an address of private networks"},
	VerdictShared:         {"shared", "is an address between a carrier and its customers (100.64.0.0/10)"},
	VerdictBenchmark:      {"benchmark", "is an address for benchmarks, which VPNs and proxies with made-up answers use for every name"},
	VerdictDocumentation:  {"documentation", "is an address for documentation"},
	VerdictMulticast:      {"multicast", "is a multicast address"},
	VerdictInfrastructure: {"infrastructure", "is an address of network infrastructure"},
	VerdictEmbeddedIPv4:   {"embedded_ipv4", "holds an IPv4 address by a way that is no longer used"},
	VerdictNAT64:          {"nat64", "is a NAT64 address"},
	VerdictReserved:       {"reserved", "is a reserved address"},
	VerdictNotGlobal:      {"not_global", "is outside the global unicast addresses 2000::/3"},
}

// String is v's name as the value of a metric's label and as the reason in logs and answers.
func (v Verdict) String() string {
	if v == 0 || v >= verdicts {
		return fmt.Sprintf("verdict(%d)", uint8(v))
	}
	return verdictWords[v].name
}

// MarshalText writes v as String does.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Refusals returns all verdicts but VerdictAllowed, in their order: the values that a label for refusals can have.
func Refusals() []Verdict {
	all := make([]Verdict, 0, verdicts-2)
	for v := VerdictAllowed + 1; v < verdicts; v++ {
		all = append(all, v)
	}
	return all
}

// text says what is wrong, as the end of a sentence about an address or a URL.
func (v Verdict) text() string { return verdictWords[v].text }

// guarded reports whether addresses of verdict v are let through only where they stand alone in Config.Allow.
func (v Verdict) guarded() bool {
	switch v {
	case VerdictUnspecified, VerdictLoopback, VerdictLinkLocal, VerdictMetadata:
		return true
	}
	return false
}

// reportable reports whether Config.Report lifts v.
func (v Verdict) reportable() bool {
	switch v {
	case VerdictBadURL, VerdictScheme, VerdictUserinfo, VerdictHostEncoding, VerdictZone:
		return false
	}
	return !v.guarded()
}
