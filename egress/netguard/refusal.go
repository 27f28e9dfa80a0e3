package netguard

import (
	"fmt"
	"net/netip"
	"strings"
)

// Refusal is the error for a URL, a name or an address that a Filter does not let pass. Its text says what to change,
// and holds no part of the URL but the host.
type Refusal struct {
	// Verdict is never VerdictAllowed.
	Verdict Verdict
	// Host is the host of the URL; empty where the URL could not be read that far.
	Host string
	// Addr is the refused address; invalid where no address was refused.
	Addr netip.Addr
	// Detail says what exactly is wrong and what to write instead; empty where Verdict says all.
	Detail string
}

// Error implements error.
func (r *Refusal) Error() string {
	var b strings.Builder
	switch {
	case !r.Addr.IsValid():
		b.WriteString("the URL ")
		if r.Host != "" {
			fmt.Fprintf(&b, "with the host %q ", r.Host)
		}
	case r.Host == "" || r.Host == r.Addr.String():
		fmt.Fprintf(&b, "%s ", r.Addr)
	default:
		fmt.Fprintf(&b, "%s has the address %s, which ", r.Host, r.Addr)
	}
	b.WriteString(r.Verdict.text())
	switch {
	case r.Detail != "":
		b.WriteString(": " + r.Detail)
	case r.Addr.IsValid():
		b.WriteString(addressAdvice(r.Verdict, r.Addr))
	}
	return b.String()
}

// addressAdvice says what to do about the address a of verdict v.
func addressAdvice(v Verdict, a netip.Addr) string {
	a = a.Unmap()
	switch {
	case v == VerdictDenied, v == VerdictUnspecified, v == VerdictZone:
		return ""
	case v == VerdictNAT64 && nat64.Contains(a):
		return "; on a network with IPv6 alone set filter.allow_nat64, and the IPv4 address in it is judged"
	case v.guarded():
		return fmt.Sprintf("; if it is meant, write this single address into filter.allow: %s/%d", a, a.BitLen())
	default:
		return "; if it is meant, write its network into filter.allow"
	}
}

// graver returns that of two refusals which f enforces, x where it does so with both or neither. Either may be nil.
func (f *Filter) graver(x, y *Refusal) *Refusal {
	if x == nil || y != nil && f.lifts(x.Verdict) && !f.lifts(y.Verdict) {
		return y
	}
	return x
}
