// Package netguard is the address filter: it decides which URLs may be called and which IP addresses may be dialled, and
// dials only those that it judged.
//
//	URL ──Check──▶ Target ──Resolve──▶ addresses, each judged ──Dial──▶ connection to one of them
//
// Check reads a URL once, strictly, and resolves nothing. Resolve looks the name up, as an absolute name, and judges every
// address of the answer: one that is refused refuses them all, as which of them is dialled could be steered from outside.
// Dial connects to an address, never to a name, so what was judged is what is dialled.
//
// An address is judged in this order: Config.Deny, Config.Allow, then the built-in list, which refuses all that is in the
// two special-purpose registries of IANA, all IPv6 outside 2000::/3 and every form in which an IPv4 address hides in an
// IPv6 one. Loopback, link-local, unspecified and metadata addresses are guarded: an entry of Allow lets them through only
// if it is that single address (a /32 or /128), and Config.Report never does.
//
// What remains: an ISATAP or operator-made NAT64 address under a prefix that is otherwise public cannot be told from any
// other address there. It matters only on a host that has such a tunnel; Config.Deny is for those.
package netguard

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// DefaultPort is the port that may be called where Config.Ports is empty.
const DefaultPort = 443

// Target is a URL that a Filter let pass, taken apart as it is used. The zero Target is invalid.
type Target struct {
	// URL is the URL as it is sent: scheme, host as an A-label in lower case without a final dot, a port that is not the
	// scheme's own, path and query as given. It may hold a secret: it is never logged.
	URL string
	// Scheme is "https" or "http". Host is the name or the literal address, without brackets, and goes to SNI and Host.
	Scheme, Host string
	Port         uint16
	// RequestURI is path and query as given, "/" where there is no path.
	RequestURI string
	// Addr is the literal address of the host; invalid where Host is a name.
	Addr netip.Addr
}

// Config says what a Filter lets through. The zero Config is the strict one: https to port 443 of public addresses.
type Config struct {
	// Allow are addresses that may be called though the built-in list refuses them, also as the literal host of a URL.
	// An entry without effect, one with bits beyond its length and one wider than any private network are errors.
	Allow []netip.Prefix
	// Deny are addresses that may not be called. It goes before Allow.
	Deny []netip.Prefix
	// OnlyAllow refuses every address that Allow does not list, public ones too.
	OnlyAllow bool
	// AllowNames are names that may be called though names like them are refused (a single label, .internal and others):
	// "hooks.internal" is that name, ".internal" all names below it. It lifts the rule for names, never that for addresses.
	AllowNames []string
	// DenyNames are names that may not be called, in the same form. It goes before AllowNames.
	DenyNames []string
	// Ports are the ports that may be called. Empty: DefaultPort.
	Ports []uint16
	// AllowHTTP permits the scheme http. Its port is named in Ports.
	AllowHTTP bool
	// NAT64 permits addresses in 64:ff9b::/96, judged by the IPv4 address inside. On a network with IPv6 alone, DNS64 makes
	// every receiver without IPv6 resolve to one.
	NAT64 bool
	// Report lets pass what would be refused for its address, its port or its name, and tells OnDenied. It lifts neither
	// what makes a URL ambiguous, unreadable or plain http, nor the guarded addresses (see the package comment).
	Report bool
	// Proxy is the forward proxy through which all connections go; nil: none. Those of the environment are ignored.
	Proxy *Proxy
	// RootCAs are trusted for certificates of receivers; nil: the system's. The filter only keeps them for the sender.
	RootCAs *x509.CertPool
	// Resolver looks names up; nil: Go's own resolver, with the name servers of the system. A resolver that is given here
	// should have PreferGo set: the C library's has its own ideas of what an address is.
	Resolver *net.Resolver
	// OnDenied is told of each target that Resolve refuses, with enforced true, or lets through under Report, with
	// enforced false; nil: nobody. It must be quick and safe for concurrent use.
	OnDenied func(v Verdict, enforced bool)
}

// Filter judges by one configuration. It is immutable and safe for concurrent use.
type Filter struct {
	allow, deny           []netip.Prefix
	onlyAllow             bool
	allowNames, denyNames nameList
	ports                 []uint16
	allowHTTP             bool
	nat64                 bool
	report                bool
	proxy                 *proxy
	rootCAs               *x509.CertPool
	resolver              *net.Resolver
	onDenied              func(v Verdict, enforced bool)
}

// New makes a Filter. The error joins all that is wrong with c, each part naming the entry and what to write instead.
func New(c Config) (*Filter, error) {
	f := &Filter{
		ports:     slices.Clone(c.Ports),
		onlyAllow: c.OnlyAllow,
		allowHTTP: c.AllowHTTP,
		nat64:     c.NAT64,
		report:    c.Report,
		rootCAs:   c.RootCAs,
		resolver:  c.Resolver,
		onDenied:  c.OnDenied,
	}
	var errs []error
	for _, p := range c.Allow {
		p, err := allowEntry(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("allow: %w", err))
			continue
		}
		f.allow = append(f.allow, p)
	}
	for _, p := range c.Deny {
		p, err := plainPrefix(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("deny: %w", err))
			continue
		}
		f.deny = append(f.deny, p)
	}
	var err error
	if f.allowNames, err = newNameList(c.AllowNames); err != nil {
		errs = append(errs, fmt.Errorf("allow_names: %w", err))
	}
	if f.denyNames, err = newNameList(c.DenyNames); err != nil {
		errs = append(errs, fmt.Errorf("deny_names: %w", err))
	}
	if slices.Contains(f.ports, 0) {
		errs = append(errs, errors.New("ports: 0 is no port; write 1 to 65535"))
	}
	if len(f.ports) == 0 {
		f.ports = []uint16{DefaultPort}
	}
	if c.Proxy != nil {
		if f.proxy, err = newProxy(*c.Proxy); err != nil {
			errs = append(errs, fmt.Errorf("proxy: %w", err))
		}
	}
	if f.resolver == nil {
		f.resolver = &net.Resolver{PreferGo: true}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return f, nil
}

// RootCAs are the authorities that certificates of receivers are checked by; nil: the system's.
func (f *Filter) RootCAs() *x509.CertPool { return f.rootCAs }

// Reports reports whether f only reports what it would refuse (Config.Report).
func (f *Filter) Reports() bool { return f.report }

// Enforces reports whether f refuses what it judges as v; otherwise it only reports it, or v is VerdictAllowed.
func (f *Filter) Enforces(v Verdict) bool { return v != VerdictAllowed && !f.lifts(v) }

// admits reports whether something of verdict v passes, and tells OnDenied where v is a refusal.
func (f *Filter) admits(v Verdict) bool {
	if v == VerdictAllowed {
		return true
	}
	lifted := f.lifts(v)
	if f.onDenied != nil {
		f.onDenied(v, !lifted)
	}
	return lifted
}

// lifts reports whether f lets v pass because it only reports.
func (f *Filter) lifts(v Verdict) bool { return f.report && v.reportable() }
