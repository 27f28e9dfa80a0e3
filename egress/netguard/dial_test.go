package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// listen accepts connections at a port of ip until the test ends, and says to whom it spoke.
func listen(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, ip)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

// closedPort is an address at which nobody listens.
func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func TestDial(t *testing.T) {
	t.Parallel()
	to := listen(t, "127.0.0.1")
	f := mustNew(t, Config{Allow: prefixes("127.0.0.1/32"), Ports: []uint16{to.Port()},
		Resolver: newNameServer(t, zone{"a.example.": {addrs: []string{"127.0.0.1"}}}).resolver()})
	target := mustCheck(t, f, fmt.Sprintf("https://a.example:%d/", to.Port()))
	addrs, err := f.Resolve(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	conn, dialled, err := f.Dial(t.Context(), target, addrs)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if dialled != to || conn.RemoteAddr().String() != to.String() {
		t.Errorf("dialled %s, connected to %s, want %s", dialled, conn.RemoteAddr(), to)
	}
}

// TestDialRefuses: whatever a caller hands over, nothing is dialled that this filter does not let pass.
func TestDialRefuses(t *testing.T) {
	t.Parallel()
	to := listen(t, "127.0.0.1")
	f := mustNew(t, Config{Report: true, Ports: []uint16{to.Port()}})
	target := mustCheck(t, f, fmt.Sprintf("https://a.example:%d/", to.Port()))
	good := netip.AddrPortFrom(netip.MustParseAddr("93.184.216.34"), to.Port())
	mapped := netip.AddrPortFrom(netip.AddrFrom16(to.Addr().As16()), to.Port())
	for _, addrs := range [][]netip.AddrPort{{to}, {good, to}, {mapped}} {
		conn, _, err := f.Dial(t.Context(), target, addrs)
		if conn != nil {
			t.Fatal("connected")
		}
		wantRefusal(t, err, VerdictLoopback)
	}
	for _, addrs := range [][]netip.AddrPort{nil, {netip.AddrPortFrom(good.Addr(), 25)}, {{}}} {
		if conn, _, err := f.Dial(t.Context(), target, addrs); err == nil || conn != nil {
			t.Errorf("%v: %v, %v", addrs, conn, err)
		}
	}
}

func TestDialConnectionRefused(t *testing.T) {
	t.Parallel()
	to := closedPort(t)
	f := mustNew(t, Config{Allow: prefixes("127.0.0.1/32"), Ports: []uint16{to.Port()}})
	target := mustCheck(t, f, fmt.Sprintf("https://127.0.0.1:%d/", to.Port()))
	conn, _, err := f.Dial(t.Context(), target, []netip.AddrPort{to})
	if !errors.Is(err, syscall.ECONNREFUSED) || conn != nil {
		t.Errorf("got %v, %v; want ECONNREFUSED", conn, err)
	}
}

// ignoresEnvironment dials though the environment has a proxy, at which nobody listens (see TestMain).
func ignoresEnvironment(t *testing.T, _ addressCase) {
	if proxy := os.Getenv("HTTPS_PROXY"); proxy != awayProxy {
		t.Fatalf("HTTPS_PROXY is %q", proxy)
	}
	to := listen(t, "127.0.0.1")
	f := mustNew(t, Config{Allow: prefixes("127.0.0.1/32"), Ports: []uint16{to.Port()}})
	conn, dialled, err := f.Dial(t.Context(), mustCheck(t, f, fmt.Sprintf("https://127.0.0.1:%d/", to.Port())), []netip.AddrPort{to})
	if err != nil || dialled != to {
		t.Fatalf("dialled %v, %v", dialled, err)
	}
	conn.Close()
}

func TestOrder(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		in, want  []string
		wantTries int
	}{
		{"families in turn", []string{"2606::1", "2606::2", "1.0.0.1", "1.0.0.2", "1.0.0.3"}, []string{"2606::1", "1.0.0.1", "2606::2", "1.0.0.2", "1.0.0.3"}, 5},
		{"IPv4 first where it is first", []string{"1.0.0.1", "2606::1"}, []string{"1.0.0.1", "2606::1"}, 2},
		{"one family", []string{"1.0.0.1", "1.0.0.2"}, []string{"1.0.0.1", "1.0.0.2"}, 2},
		{"one IPv4 address behind many", []string{"2606::1", "2606::2", "2606::3", "2606::4", "2606::5", "2606::6", "2606::7", "2606::8", "2606::9", "1.0.0.1"},
			[]string{"2606::1", "1.0.0.1", "2606::2", "2606::3", "2606::4", "2606::5", "2606::6", "2606::7"}, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := order(ports(tt.in...))
			if !slices.Equal(got, ports(tt.want...)) || len(got) != tt.wantTries {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func ports(list ...string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, s := range list {
		all = append(all, netip.AddrPortFrom(netip.MustParseAddr(s), 443))
	}
	return all
}

// try is how a connection to one address goes: it takes some time, and fails or not.
type try struct {
	takes time.Duration
	err   error
}

// watchedConn knows whether it was closed.
type watchedConn struct {
	net.Conn
	closed bool
}

func (c *watchedConn) Close() error {
	c.closed = true
	return nil
}

func TestRace(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	unreachable := &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	late := errors.New("late")
	tests := []struct {
		name    string
		tries   []try
		timeout time.Duration // of all; 0: a minute
		want    int           // which of tries wins; -1: none
		wantErr error
		elapsed time.Duration
		started int32
	}{
		{name: "the first at once", tries: []try{{}, {}}, want: 0, elapsed: 0, started: 1},
		{name: "a black hole, then a good one", tries: []try{{takes: never}, {}}, want: 1, elapsed: 250 * time.Millisecond, started: 2},
		{name: "a slow one that wins", tries: []try{{takes: 300 * time.Millisecond}, {takes: never}}, want: 0, elapsed: 300 * time.Millisecond, started: 2},
		{name: "a failure brings the next at once", tries: []try{{err: refused}, {takes: 10 * time.Millisecond}}, want: 1, elapsed: 10 * time.Millisecond, started: 2},
		{name: "seven black holes", tries: []try{{takes: never}, {takes: never}, {takes: never}, {takes: never}, {takes: never}, {takes: never}, {takes: never}, {}},
			want: 7, elapsed: 7 * 250 * time.Millisecond, started: 8},
		{name: "none", tries: []try{{err: refused}, {takes: time.Second, err: late}}, want: -1, wantErr: refused, elapsed: time.Second, started: 2},
		// A host without IPv6 fails IPv6 addresses at once; that says nothing of the receiver.
		{name: "no route says least", tries: []try{{err: unreachable}, {err: refused}}, want: -1, wantErr: refused, started: 2},
		{name: "no route is better than nothing", tries: []try{{err: unreachable}}, want: -1, wantErr: syscall.ENETUNREACH, started: 1},
		{name: "the proxy's word on the receiver says most", tries: []try{{err: &ProxyError{Err: refused}}, {err: &TunnelError{Status: 503}}},
			want: -1, wantErr: syscall.EHOSTUNREACH, started: 2},
		{name: "the time limit", tries: []try{{takes: never}, {takes: never}}, timeout: 3 * time.Second, want: -1, wantErr: context.DeadlineExceeded, elapsed: 3 * time.Second, started: 2},
		{name: "no further try after the time limit", tries: []try{{takes: never}, {}}, timeout: 100 * time.Millisecond, want: -1,
			wantErr: context.DeadlineExceeded, elapsed: 100 * time.Millisecond, started: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				timeout := tt.timeout
				if timeout == 0 {
					timeout = time.Minute
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				var addrs []netip.AddrPort
				for i := range tt.tries {
					addrs = append(addrs, netip.AddrPortFrom(netip.AddrFrom4([4]byte{1, 0, 0, byte(i)}), 443))
				}
				var started atomic.Int32
				began := time.Now()
				conn, to, err := race(ctx, addrs, func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
					started.Add(1)
					plan := tt.tries[a.Addr().As4()[3]]
					select {
					case <-time.After(plan.takes):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					if plan.err != nil {
						return nil, plan.err
					}
					return &watchedConn{}, nil
				})
				if took := time.Since(began); took != tt.elapsed || started.Load() != tt.started {
					t.Errorf("took %v and %d tries, want %v and %d", took, started.Load(), tt.elapsed, tt.started)
				}
				if tt.want < 0 {
					if !errors.Is(err, tt.wantErr) || conn != nil || to.IsValid() {
						t.Errorf("got %v, %v, %v; want %v", conn, to, err, tt.wantErr)
					}
					return
				}
				if err != nil || to != addrs[tt.want] || conn.(*watchedConn).closed {
					t.Errorf("got %v, %v; want an open connection to %v", to, err, addrs[tt.want])
				}
			})
		})
	}
}

// TestRaceClosesLateOnes: a try that connects though another has won leaves no connection behind.
func TestRaceClosesLateOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &watchedConn{}
		addrs := ports("1.0.0.1", "1.0.0.2")
		conn, to, err := race(t.Context(), addrs, func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
			if a == addrs[0] {
				<-ctx.Done() // connects in the moment in which it is called off
				return slow, nil
			}
			return &watchedConn{}, nil
		})
		if err != nil || to != addrs[1] || conn.(*watchedConn).closed {
			t.Errorf("got %v, %v", to, err)
		}
		if !slow.closed {
			t.Error("the connection that came late is open")
		}
	})
}
