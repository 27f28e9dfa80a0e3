package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

const (
	// maxTries bounds the connections that one Dial tries, however long the answer of the receiver's name server is.
	maxTries = 8
	// nextTryAfter is how long a try runs before the next one joins it: the Connection Attempt Delay of RFC 8305.
	nextTryAfter = 250 * time.Millisecond
)

// Dial connects to one of addrs, which Resolve returned for t, and returns the connection and the address that it is to.
// IPv6 and IPv4 are tried in turn and side by side (RFC 8305), at most eight addresses in all; ctx bounds them together.
//
// Each address is judged once more, and the socket is refused any other address than that one: the error is a *Refusal
// then. With a proxy the connection is a tunnel through it to the judged address, or, by name, to the name, and then the
// address is invalid; the error is a *ProxyError if the proxy is at fault and a *TunnelError if it says that the receiver
// is. Otherwise it is the net package's, that of the try which tells most.
func (f *Filter) Dial(ctx context.Context, t Target, addrs []netip.AddrPort) (net.Conn, netip.AddrPort, error) {
	if f.ResolvesByProxy() && !t.Addr.IsValid() {
		conn, err := f.proxy.connect(ctx, f.resolver, net.JoinHostPort(t.Host, fmt.Sprint(t.Port)))
		return conn, netip.AddrPort{}, err
	}
	if len(addrs) == 0 {
		return nil, netip.AddrPort{}, fmt.Errorf("dial %s: there is no address", t.Host)
	}
	for _, a := range addrs {
		if v := f.Judge(a.Addr()); f.Enforces(v) {
			return nil, netip.AddrPort{}, &Refusal{Verdict: v, Host: t.Host, Addr: a.Addr()}
		}
		if a.Port() != t.Port {
			return nil, netip.AddrPort{}, fmt.Errorf("dial %s: the address %s has another port than %d", t.Host, a, t.Port)
		}
	}
	connect := dialDirect
	if f.proxy != nil {
		connect = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
			return f.proxy.connect(ctx, f.resolver, a.String())
		}
	}
	return race(ctx, order(addrs), connect)
}

// dialDirect connects to the judged address and no other.
func dialDirect(ctx context.Context, judged netip.AddrPort) (net.Conn, error) {
	judged = netip.AddrPortFrom(judged.Addr().Unmap(), judged.Port())
	network := "tcp6"
	if judged.Addr().Is4() {
		network = "tcp4"
	}
	d := net.Dialer{Control: pin(judged)}
	conn, err := d.DialTCP(ctx, network, netip.AddrPort{}, judged)
	if err != nil {
		return nil, err // not conn: a nil *net.TCPConn is no nil net.Conn
	}
	return conn, nil
}

// pin returns a check of each socket before it connects: it must be TCP, and to the judged address. It holds whatever
// the net package does with the address that it was given.
func pin(judged netip.AddrPort) func(network, address string, _ syscall.RawConn) error {
	return func(network, address string, _ syscall.RawConn) error {
		if network != "tcp4" && network != "tcp6" {
			return fmt.Errorf("the network %q is not permitted", network)
		}
		a, err := netip.ParseAddrPort(address)
		if err != nil || a.Addr().Zone() != "" || netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) != judged {
			return fmt.Errorf("the socket is to %q, which is not the judged address %s", address, judged)
		}
		return nil
	}
}

// order returns the addresses to try, at most maxTries: the families in turn, beginning with that of the first address,
// and within a family in the order of addrs.
func order(addrs []netip.AddrPort) []netip.AddrPort {
	var first, other []netip.AddrPort
	for _, a := range addrs {
		if a.Addr().Is4() == addrs[0].Addr().Is4() {
			first = append(first, a)
		} else {
			other = append(other, a)
		}
	}
	tries := make([]netip.AddrPort, 0, maxTries)
	for i := 0; len(tries) < maxTries && (i < len(first) || i < len(other)); i++ {
		for _, family := range [][]netip.AddrPort{first, other} {
			if i < len(family) && len(tries) < maxTries {
				tries = append(tries, family[i])
			}
		}
	}
	return tries
}

// race connects to the first of tries that answers: a try starts when the one before has failed or has run for
// nextTryAfter. When it returns, no try is left running.
func race(ctx context.Context, tries []netip.AddrPort, connect func(context.Context, netip.AddrPort) (net.Conn, error)) (net.Conn, netip.AddrPort, error) {
	type result struct {
		conn net.Conn
		to   netip.AddrPort
		err  error
	}
	tryCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	started, running := 0, 0
	next := time.NewTimer(nextTryAfter)
	defer next.Stop()
	start := func() {
		to := tries[started]
		started++
		running++
		next.Reset(nextTryAfter)
		go func() {
			conn, err := connect(tryCtx, to)
			results <- result{conn, to, err}
		}()
	}

	var failure error
	start()
	for running > 0 {
		select {
		case <-next.C:
			if started < len(tries) {
				start()
			}
		case r := <-results:
			running--
			if r.err == nil {
				cancel()
				for ; running > 0; running-- {
					if late := <-results; late.err == nil {
						late.conn.Close()
					}
				}
				return r.conn, r.to, nil
			}
			failure = tellingMost(failure, r.err)
			if started < len(tries) && ctx.Err() == nil {
				start()
			}
		}
	}
	return nil, netip.AddrPort{}, failure
}

// tellingMost returns that of two failed tries which says more of the receiver, the first where they say alike. A host
// without IPv6 fails every IPv6 address at once, which says nothing.
func tellingMost(x, y error) error {
	if x == nil || weight(y) > weight(x) {
		return y
	}
	return x
}

func weight(err error) int {
	if _, ok := errors.AsType[*TunnelError](err); ok {
		return 3 // the proxy is well, so this is the receiver's
	}
	if _, ok := errors.AsType[*ProxyError](err); ok {
		return 1
	}
	for _, errno := range []syscall.Errno{syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT} {
		if errors.Is(err, errno) {
			return 0
		}
	}
	return 2
}
