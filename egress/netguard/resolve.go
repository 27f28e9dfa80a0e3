package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// resolveTimeout bounds a look-up: two name servers at the 5s that resolv.conf gives each of them.
	resolveTimeout = 10 * time.Second
	// secondFamilyWait is how long the answer for one family waits for that of the other: some name servers never answer
	// for AAAA, and nothing is dialled that is not in an answer that was judged.
	secondFamilyWait = 2 * time.Second
)

// ResolveError is the error for a name that has no address, or of which nobody could tell.
type ResolveError struct {
	Host string
	// NotFound: the name does not exist or has no address, which is a matter of its owner. Otherwise the fault lies
	// with the resolver: it gave no answer in time, a failure (SERVFAIL), or could not be reached.
	NotFound bool
	// Timeout: there was no answer in time.
	Timeout bool
	// Err says more, and may name the name server.
	Err error
}

// Error implements error.
func (e *ResolveError) Error() string {
	switch {
	case e.NotFound:
		return fmt.Sprintf("resolve %s: the name does not exist or has no address", e.Host)
	case e.Timeout:
		return fmt.Sprintf("resolve %s: the resolver gave no answer in time", e.Host)
	default:
		return fmt.Sprintf("resolve %s: the resolver failed: %v", e.Host, e.Err)
	}
}

// Unwrap returns Err.
func (e *ResolveError) Unwrap() error { return e.Err }

// Resolve looks t's host up once, as an absolute name, and judges every address of the answer. It returns them all, or a
// *Refusal if one of them is refused, or a *ResolveError; if ctx was cancelled, an error that wraps its cause.
//
// What Check judged is judged again, as t may have been made under another Config. OnDenied is told once for a target,
// of the gravest that was found. With a proxy that resolves by itself (Proxy.ByName) there is nothing to return: nil, nil.
func (f *Filter) Resolve(ctx context.Context, t Target) ([]netip.AddrPort, error) {
	if t.Host == "" {
		return nil, errors.New("resolve: the target is empty")
	}
	if found := f.judgeTarget(t); found != nil && !f.lifts(found.Verdict) {
		f.admits(found.Verdict)
		return nil, found
	}
	addrs, err := f.addresses(ctx, t)
	if err != nil {
		return nil, err
	}
	if found := f.judgeAll(t, addrs); found != nil && !f.admits(found.Verdict) {
		return nil, found
	}
	targets := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		targets[i] = netip.AddrPortFrom(a, t.Port)
	}
	return targets, nil
}

// Judged is an address of an answer and the verdict on it.
type Judged struct {
	Addr    netip.Addr `json:"address"`
	Verdict Verdict    `json:"verdict"`
}

// Explain is Resolve for people who ask why: it returns every address of the answer with its verdict, and the refusal that
// Resolve would return; nil if there is none. Under Config.Report it may be one that f does not enforce (see Enforces).
// OnDenied is not told.
func (f *Filter) Explain(ctx context.Context, t Target) ([]Judged, *Refusal, error) {
	addrs, err := f.addresses(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	all := make([]Judged, len(addrs))
	for i, a := range addrs {
		all[i] = Judged{Addr: a, Verdict: f.Judge(a)}
	}
	return all, f.judgeAll(t, addrs), nil
}

// judgeAll judges t and the addresses that its name has.
func (f *Filter) judgeAll(t Target, addrs []netip.Addr) *Refusal {
	if t.Addr.IsValid() {
		return f.judgeTarget(t) // by a stricter rule for the address than that of an answer
	}
	return f.graver(f.judgeTarget(t), f.judgeAnswer(t.Host, addrs))
}

// judgeAnswer judges all addresses of an answer: one that is refused refuses them all.
func (f *Filter) judgeAnswer(host string, addrs []netip.Addr) *Refusal {
	var found *Refusal
	for _, a := range addrs {
		v := f.Judge(a)
		if v == VerdictAllowed || found != nil && !(f.lifts(found.Verdict) && !f.lifts(v)) {
			continue
		}
		found = &Refusal{Verdict: v, Host: host, Addr: a}
	}
	return found
}

// addresses returns the addresses of t's host, IPv6 before IPv4; none where the proxy resolves.
func (f *Filter) addresses(ctx context.Context, t Target) ([]netip.Addr, error) {
	switch {
	case t.Addr.IsValid():
		return []netip.Addr{t.Addr}, nil
	case f.ResolvesByProxy():
		return nil, nil
	}
	return f.lookUp(ctx, t.Host)
}

// answer is what a look-up for one family brought.
type answer struct {
	addrs []netip.Addr
	err   error
}

// lookUp asks for the IPv6 and the IPv4 addresses of host. The families are asked for apart, because Go's resolver
// reports only the last failure of a joint look-up: a SERVFAIL for one and nothing for the other would read "not found".
func (f *Filter) lookUp(parent context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(parent, resolveTimeout)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	// The final dot keeps the search list of resolv.conf out: "api" must never become api.namespace.svc.
	absolute := host + "."
	var answers [2]chan answer
	for i, network := range [2]string{"ip6", "ip4"} {
		answers[i] = make(chan answer, 1)
		running.Go(func() {
			addrs, err := f.resolver.LookupNetIP(ctx, network, absolute)
			answers[i] <- answer{addrs, err}
		})
	}

	var got [2]answer
	select {
	case got[0] = <-answers[0]:
		got[1] = second(got[0], answers[1])
	case got[1] = <-answers[1]:
		got[0] = second(got[1], answers[0])
	}
	if addrs := unmapped(got[0].addrs, got[1].addrs); len(addrs) > 0 {
		return addrs, nil
	}
	if parent.Err() != nil && !errors.Is(parent.Err(), context.DeadlineExceeded) {
		return nil, fmt.Errorf("resolve %s: %w", host, context.Cause(parent))
	}
	return nil, resolveError(host, got)
}

// second waits for the other family's answer: to the end where the first brought nothing to dial.
func second(first answer, other <-chan answer) answer {
	if len(first.addrs) == 0 {
		return <-other
	}
	timer := time.NewTimer(secondFamilyWait)
	defer timer.Stop()
	select {
	case a := <-other:
		return a
	case <-timer.C:
		return answer{}
	}
}

// unmapped joins lists of addresses, IPv4 ones in their plain form.
func unmapped(lists ...[]netip.Addr) []netip.Addr {
	var all []netip.Addr
	for _, list := range lists {
		for _, a := range list {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// resolveError says why neither family brought an address. The name is not found only if both look-ups say so.
func resolveError(host string, got [2]answer) *ResolveError {
	e := &ResolveError{Host: host, NotFound: true, Err: got[1].err}
	for _, a := range got {
		dns, ok := errors.AsType[*net.DNSError](a.err)
		// A name without an address of the family is an AddrError where no name server was asked: /etc/hosts has the
		// name with the other family alone, or DNS never has it (.onion).
		_, none := errors.AsType[*net.AddrError](a.err)
		if a.err == nil || none || ok && dns.IsNotFound {
			continue
		}
		e.NotFound = false
		e.Timeout = ok && dns.IsTimeout || errors.Is(a.err, context.DeadlineExceeded)
		e.Err = a.err
	}
	return e
}
