package netguard

import (
	"errors"
	"fmt"
	"net/netip"
)

// The widest networks that Config.Allow may hold: 240.0.0.0/4, which some clouds give to containers, and fc00::/7.
// A wider one would hold half the internet, which needs no entry, and with it what nobody meant.
const (
	widestAllow4 = 4
	widestAllow6 = 7
)

// Judge is f's verdict on an address: that of Config.Deny, of Config.Allow, or the built-in list's, in this order.
// It says what f thinks; whether f lets it pass under Config.Report is not its matter.
func (f *Filter) Judge(a netip.Addr) Verdict {
	v, _ := f.judge(a)
	return v
}

// judge is Judge, and whether it was Config.Allow that let a pass.
func (f *Filter) judge(a netip.Addr) (v Verdict, listed bool) {
	if !a.IsValid() || a.Zone() != "" {
		return Classify(a), false
	}
	a = a.Unmap()
	inner := embedded(a)
	if contains(f.deny, a) || inner.IsValid() && contains(f.deny, inner) {
		return VerdictDenied, false
	}
	v = Classify(a)
	if f.allows(a, v.guarded() || inner.IsValid() && Classify(inner).guarded()) {
		return VerdictAllowed, true
	}
	if v == VerdictAllowed && f.onlyAllow {
		return VerdictUnlisted, false
	}
	if v == VerdictNAT64 && f.nat64 && nat64.Contains(a) {
		return f.judge(inner)
	}
	return v, false
}

// allows reports whether Config.Allow holds a; where a is guarded, whether it holds a alone.
func (f *Filter) allows(a netip.Addr, guarded bool) bool {
	for _, p := range f.allow {
		if p.Contains(a) && (!guarded || p.IsSingleIP()) {
			return true
		}
	}
	return false
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// plainPrefix returns p as addresses are compared with it: an IPv4-mapped one as the IPv4 network that it is, which
// netip.Prefix.Contains would never find otherwise.
func plainPrefix(p netip.Prefix) (netip.Prefix, error) {
	if !p.IsValid() {
		return p, errors.New("an entry is no network; write one such as 10.1.0.0/16")
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, fmt.Errorf("%s holds all of IPv4 and more; write the network in IPv4", p)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if m := p.Masked(); p != m {
		return p, fmt.Errorf("%s has bits beyond its length; is %s meant?", p, m)
	}
	return p, nil
}

// allowEntry is plainPrefix for an entry of Config.Allow.
func allowEntry(p netip.Prefix) (netip.Prefix, error) {
	p, err := plainPrefix(p)
	if err != nil {
		return p, err
	}
	widest := widestAllow6
	if p.Addr().Is4() {
		widest = widestAllow4
	}
	if p.Bits() < widest {
		return p, fmt.Errorf("%s is wider than any private network; write those that are meant (public addresses need no entry)", p)
	}
	v := guardedBlock(p)
	switch {
	case v == VerdictUnspecified:
		return p, fmt.Errorf("%s cannot be allowed: a connection to it reaches this host itself; write the address that is meant", p)
	case v != 0 && !p.IsSingleIP():
		return p, fmt.Errorf("%s has no effect: each of these addresses %s, and those are let through one by one only, such as %s/%d",
			p, v.text(), example(p), p.Addr().BitLen())
	}
	return p, nil
}

// guardedBlock is the verdict of the guarded block that p lies in; 0 if there is none.
func guardedBlock(p netip.Prefix) Verdict {
	list := builtins().v6
	if p.Addr().Is4() {
		list = builtins().v4
	}
	for _, b := range list {
		if b.verdict.guarded() && b.prefix.Bits() <= p.Bits() && b.prefix.Contains(p.Addr()) {
			return b.verdict
		}
	}
	return 0
}

// example is the first address of p that a host can have.
func example(p netip.Prefix) netip.Addr { return p.Addr().Next() }
