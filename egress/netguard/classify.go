package netguard

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// The two special-purpose registries as IANA publishes them (CC0), in the state of November 2026. A newer file is put in
// place of the old one as it is; a row with a new name is refused as VerdictReserved until registryVerdicts knows it.
//
//   - https://www.iana.org/assignments/iana-ipv4-special-registry/iana-ipv4-special-registry-1.csv
//   - https://www.iana.org/assignments/iana-ipv6-special-registry/iana-ipv6-special-registry-1.csv
var (
	//go:embed registry/iana-ipv4-special-registry-1.csv
	registry4 []byte
	//go:embed registry/iana-ipv6-special-registry-1.csv
	registry6 []byte
)

// registryVerdicts are the verdicts of the registries' rows by the column Name. The column Globally Reachable changes
// nothing: where it says True, the address is of an anycast service or a sink, which receives no webhooks.
var registryVerdicts = map[string]Verdict{
	`"This network"`:                               VerdictUnspecified,
	`"This host on this network"`:                  VerdictUnspecified,
	"Private-Use":                                  VerdictPrivate,
	"Shared Address Space":                         VerdictShared,
	"Loopback":                                     VerdictLoopback,
	"Link Local":                                   VerdictLinkLocal,
	"IETF Protocol Assignments":                    VerdictReserved,
	"IPv4 Service Continuity Prefix":               VerdictReserved,
	"IPv4 dummy address":                           VerdictReserved,
	"Port Control Protocol Anycast":                VerdictInfrastructure,
	"Traversal Using Relays around NAT Anycast":    VerdictInfrastructure,
	"NAT64/DNS64 Discovery":                        VerdictReserved,
	"Documentation (TEST-NET-1)":                   VerdictDocumentation,
	"Documentation (TEST-NET-2)":                   VerdictDocumentation,
	"Documentation (TEST-NET-3)":                   VerdictDocumentation,
	"AS112-v4":                                     VerdictInfrastructure,
	"AMT":                                          VerdictInfrastructure,
	"Deprecated (6to4 Relay Anycast)":              VerdictInfrastructure,
	"6a44-relay anycast address":                   VerdictInfrastructure,
	"Direct Delegation AS112 Service":              VerdictInfrastructure,
	"Benchmarking":                                 VerdictBenchmark,
	"Reserved":                                     VerdictReserved,
	"Limited Broadcast":                            VerdictReserved,
	"Loopback Address":                             VerdictLoopback,
	"Unspecified Address":                          VerdictUnspecified,
	"IPv4-mapped Address":                          VerdictEmbeddedIPv4,
	"IPv4-IPv6 Translat.":                          VerdictNAT64,
	"Discard-Only Address Block":                   VerdictReserved,
	"Dummy IPv6 Prefix":                            VerdictReserved,
	"TEREDO":                                       VerdictEmbeddedIPv4,
	"DNS-SD Service Registration Protocol Anycast": VerdictInfrastructure,
	"AS112-v6":                                     VerdictInfrastructure,
	"Deprecated (previously ORCHID)":               VerdictReserved,
	"ORCHIDv2":                                     VerdictReserved,
	"Drone Remote ID Protocol Entity Tags (DETs) Prefix": VerdictReserved,
	"Documentation":               VerdictDocumentation,
	"6to4":                        VerdictEmbeddedIPv4,
	"Segment Routing (SRv6) SIDs": VerdictReserved,
	"Unique-Local":                VerdictPrivate,
	"Link-Local Unicast":          VerdictLinkLocal,
}

// beyondRegistries is what the registries do not hold, or not by that name.
var beyondRegistries = []block{
	{netip.MustParsePrefix("224.0.0.0/4"), VerdictMulticast},

	// Where clouds hand out the credentials of the machine, and where code of guests reaches the host.
	{netip.MustParsePrefix("169.254.169.254/32"), VerdictMetadata},  // AWS, Azure, Google and most others
	{netip.MustParsePrefix("169.254.170.2/32"), VerdictMetadata},    // AWS ECS task credentials
	{netip.MustParsePrefix("169.254.170.23/32"), VerdictMetadata},   // AWS EKS pod identity
	{netip.MustParsePrefix("169.254.0.23/32"), VerdictMetadata},     // Tencent
	{netip.MustParsePrefix("169.254.42.42/32"), VerdictMetadata},    // Scaleway
	{netip.MustParsePrefix("100.100.100.200/32"), VerdictMetadata},  // Alibaba
	{netip.MustParsePrefix("192.0.0.192/32"), VerdictMetadata},      // Oracle, classic
	{netip.MustParsePrefix("168.63.129.16/32"), VerdictMetadata},    // Azure's wire server, though a public address
	{netip.MustParsePrefix("fd00:ec2::254/128"), VerdictMetadata},   // AWS
	{netip.MustParsePrefix("fd00:ec2::23/128"), VerdictMetadata},    // AWS EKS pod identity
	{netip.MustParsePrefix("fd20:ce::254/128"), VerdictMetadata},    // Google
	{netip.MustParsePrefix("fd00:42::42/128"), VerdictMetadata},     // Scaleway
	{netip.MustParsePrefix("fe80::a9fe:a9fe/128"), VerdictMetadata}, // OpenStack

	{netip.MustParsePrefix("::/96"), VerdictEmbeddedIPv4},           // IPv4-compatible, RFC 4291 section 2.5.5.1
	{netip.MustParsePrefix("::ffff:0:0:0/96"), VerdictEmbeddedIPv4}, // IPv4-translated, RFC 2765 section 2.1
	{netip.MustParsePrefix("ff00::/8"), VerdictMulticast},
	{netip.MustParsePrefix("fec0::/10"), VerdictPrivate}, // site-local, RFC 3879
}

// globalUnicast is all IPv6 that IANA hands out to networks; nothing outside it is reachable.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// block is a range of addresses of one verdict.
type block struct {
	prefix  netip.Prefix
	verdict Verdict
}

// builtin holds the built-in list, the longest prefix first, IPv4 and IPv6 apart.
type builtin struct{ v4, v6 []block }

// builtins is parsed on first use. The files are part of the program and a test reads them: they cannot be malformed.
var builtins = sync.OnceValue(func() *builtin {
	b := new(builtin)
	rows := slices.Clone(beyondRegistries)
	for _, file := range [][]byte{registry4, registry6} {
		parsed, err := parseRegistry(file)
		if err != nil {
			panic(err)
		}
		rows = append(rows, parsed...)
	}
	for _, r := range rows {
		if r.prefix.Addr().Is4() {
			b.v4 = append(b.v4, r)
		} else {
			b.v6 = append(b.v6, r)
		}
	}
	longestFirst := func(x, y block) int { return y.prefix.Bits() - x.prefix.Bits() }
	slices.SortStableFunc(b.v4, longestFirst)
	slices.SortStableFunc(b.v6, longestFirst)
	return b
})

// parseRegistry reads a registry's CSV. The first column holds one prefix or several with commas, each perhaps with a
// footnote: "192.0.0.0/24 [2]".
func parseRegistry(file []byte) ([]block, error) {
	rows, err := csv.NewReader(bytes.NewReader(file)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read registry: %w", err)
	}
	if len(rows) == 0 || len(rows[0]) < 2 || rows[0][0] != "Address Block" || rows[0][1] != "Name" {
		return nil, fmt.Errorf("read registry: the columns are not Address Block, Name …")
	}
	var blocks []block
	for _, row := range rows[1:] {
		verdict, ok := registryVerdicts[row[1]]
		if !ok {
			verdict = VerdictReserved
		}
		for cell := range strings.SplitSeq(row[0], ",") {
			cell, _, _ = strings.Cut(strings.TrimSpace(cell), " ")
			p, err := netip.ParsePrefix(cell)
			if err != nil {
				return nil, fmt.Errorf("read registry: row %q: %w", row[1], err)
			}
			blocks = append(blocks, block{p, verdict})
		}
	}
	return blocks, nil
}

// Classify is the built-in list's verdict on an address that is about to be dialled; VerdictAllowed: a public one.
// An IPv4-mapped IPv6 address is judged as the IPv4 address that it is. Lists and switches of a Config are Filter.Judge's.
func Classify(a netip.Addr) Verdict {
	switch {
	case !a.IsValid():
		return VerdictReserved
	case a.Zone() != "":
		return VerdictZone
	}
	a = a.Unmap()
	list := builtins().v6
	if a.Is4() {
		list = builtins().v4
	}
	for i := range list {
		if list[i].prefix.Contains(a) {
			return list[i].verdict
		}
	}
	if a.Is6() && !globalUnicast.Contains(a) {
		return VerdictNotGlobal
	}
	return VerdictAllowed
}

// nat64 is the well-known prefix of RFC 6052, whose last 32 bits are the IPv4 address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// embedded returns the IPv4 address that the IPv6 address a carries by a known form; invalid where there is none.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return netip.Addr{}
	}
	b := a.As16()
	switch {
	case b[0] == 0x20 && b[1] == 0x02: // 6to4, RFC 3056 section 2
		return netip.AddrFrom4([4]byte(b[2:6]))
	case [4]byte(b[:4]) == [4]byte{0x20, 0x01}: // Teredo, RFC 4380 section 4: the client's, inverted
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
	case b[0] == 0, // ::/8: compatible, mapped, translated, and NAT64 with the address at the end
		b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP, RFC 5214 section 6.1
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.Addr{}
}
