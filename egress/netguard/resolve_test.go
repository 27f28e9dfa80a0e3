package netguard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	ns := newNameServer(t, zone{
		"both.example.":     {addrs: []string{"93.184.216.34", "93.184.216.35", "2606:2800:220:1::1"}},
		"alias.example.":    {cname: "both.example."},
		"nodata.example.":   {},
		"noaaaa.example.":   {addrs: []string{"93.184.216.34"}, codeAAAA: dnsmessage.RCodeServerFailure},
		"onlyfail.example.": {codeAAAA: dnsmessage.RCodeServerFailure},
		"refused.example.":  {code: dnsmessage.RCodeRefused},
	})
	f := mustNew(t, Config{Ports: []uint16{443, 8443}, AllowNames: []string{".onion"}, Resolver: ns.resolver()})
	tests := []struct {
		name, url string
		want      []string
		notFound  bool // where want is nil
	}{
		{"IPv6 before IPv4", "https://both.example/", []string{"[2606:2800:220:1::1]:443", "93.184.216.34:443", "93.184.216.35:443"}, false},
		{"the URL's port", "https://alias.example:8443/", []string{"[2606:2800:220:1::1]:8443", "93.184.216.34:8443", "93.184.216.35:8443"}, false},
		{"a name server that fails for AAAA", "https://noaaaa.example/", []string{"93.184.216.34:443"}, false},
		{"a name without addresses", "https://nodata.example/", nil, true},
		{"no such name", "https://unknown.example/", nil, true},
		{"a name that is never asked for", "https://a.onion/", nil, true},
		// A joint look-up would report the last failure, "not found", and charge the receiver for it.
		{"a failure for one family and nothing for the other", "https://onlyfail.example/", nil, false},
		{"a name server that refuses", "https://refused.example/", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			addrs, err := f.Resolve(t.Context(), mustCheck(t, f, tt.url))
			if tt.want == nil {
				r, ok := errors.AsType[*ResolveError](err)
				if !ok || r.NotFound != tt.notFound || r.Timeout {
					t.Errorf("got %v, %#v; want NotFound %t", addrs, err, tt.notFound)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range addrs {
				got = append(got, a.String())
			}
			slices.Sort(got[1:]) // the order within a family is the resolver's
			if !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// TestResolveJudgesAgain: a target that another filter let pass is refused by a narrower one without a look-up.
func TestResolveJudgesAgain(t *testing.T) {
	t.Parallel()
	wide := mustNew(t, Config{
		AllowHTTP: true, Ports: []uint16{80, 443, 8443}, Allow: prefixes("10.0.0.0/8"), AllowNames: []string{"a.internal"},
	})
	ns := newNameServer(t, zone{})
	narrow := mustNew(t, Config{DenyNames: []string{"bad.example"}, Resolver: ns.resolver()})
	for url, want := range map[string]Verdict{
		"http://a.example/":       VerdictScheme,
		"https://a.example:8443/": VerdictPort,
		"https://a.internal/":     VerdictReservedName,
		"https://bad.example/":    VerdictDeniedName,
		"https://10.0.0.1/":       VerdictPrivate,
	} {
		_, err := narrow.Resolve(t.Context(), mustCheck(t, wide, url))
		wantRefusal(t, err, want)
	}
	if _, err := narrow.Resolve(t.Context(), Target{}); err == nil {
		t.Error("the zero target resolves")
	}
	if asked := ns.asked(); len(asked) > 0 {
		t.Errorf("questions were asked: %v", asked)
	}
}

func TestResolveLiteral(t *testing.T) {
	t.Parallel()
	f := mustNew(t, Config{Allow: prefixes("127.0.0.1/32", "fd00::/8"), Ports: []uint16{8080}})
	for url, want := range map[string]string{
		"https://127.0.0.1:8080/": "127.0.0.1:8080", "https://[fd00::1]:8080/": "[fd00::1]:8080",
	} {
		addrs, err := f.Resolve(t.Context(), mustCheck(t, f, url))
		if err != nil || len(addrs) != 1 || addrs[0].String() != want {
			t.Errorf("%s: %v, %v", url, addrs, err)
		}
	}
}

// TestOnDenied: each target is told of once, by the gravest of its verdicts, and whether it was refused.
func TestOnDenied(t *testing.T) {
	t.Parallel()
	z := zone{
		"good.example.":  {addrs: []string{"93.184.216.34"}},
		"inner.example.": {addrs: []string{"93.184.216.34", "10.0.0.1", "10.0.0.2"}},
		"mixed.example.": {addrs: []string{"10.0.0.1", "127.0.0.1"}},
		"a.internal.":    {addrs: []string{"10.0.0.1"}},
	}
	tests := []struct {
		url    string
		report bool
		want   string // verdict, enforced; empty: nothing is told
	}{
		{"https://good.example/", false, ""},
		{"https://good.example/", true, ""},
		{"https://inner.example/", false, "private true"},
		{"https://inner.example/", true, "private false"},
		{"https://good.example:25/", true, "port false"},
		{"https://mixed.example:25/", true, "loopback true"}, // neither the port nor the private address, which are lifted
		{"https://mixed.example/", false, "loopback true|private true"},
		{"https://a.internal/", true, "reserved_name false"},
		{"https://10.0.0.9/", true, "private false"},
	}
	for _, tt := range tests {
		t.Run(tt.url, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var told []string
			f := mustNew(t, Config{Report: tt.report, Resolver: newNameServer(t, z).resolver(), OnDenied: func(v Verdict, enforced bool) {
				mu.Lock()
				defer mu.Unlock()
				word := " false"
				if enforced {
					word = " true"
				}
				told = append(told, v.String()+word)
			}})
			target := mustCheck(t, f, tt.url)
			_, err := f.Resolve(t.Context(), target)
			if want := strings.Contains(tt.want, "true"); (err != nil) != want {
				t.Errorf("error %v, want one: %t", err, want)
			}
			if tt.want == "" && len(told) == 0 {
				return
			}
			if len(told) != 1 || !slices.Contains(strings.Split(tt.want, "|"), told[0]) {
				t.Errorf("told %q, want one of %q once", told, tt.want)
			}
		})
	}
}

// TestJudgeAnswer: the refusal is the gravest, wherever in the answer it stands.
func TestJudgeAnswer(t *testing.T) {
	t.Parallel()
	f := mustNew(t, Config{Report: true})
	public, private, loopback := netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1")
	for _, addrs := range [][]netip.Addr{
		{public, private, loopback}, {loopback, private, public}, {private, loopback, private}, {loopback},
	} {
		if r := f.judgeAnswer("a.example", addrs); r == nil || r.Verdict != VerdictLoopback || r.Addr != loopback {
			t.Errorf("%v: %+v, want that of %s", addrs, r, loopback)
		}
	}
	if r := f.judgeAnswer("a.example", []netip.Addr{public, private}); r == nil || r.Verdict != VerdictPrivate {
		t.Errorf("%+v, want that of %s, which is only reported", r, private)
	}
	if r := f.judgeAnswer("a.example", []netip.Addr{public}); r != nil {
		t.Errorf("a public address: %+v", r)
	}
}

func TestResolveError(t *testing.T) {
	t.Parallel()
	notFound := &net.DNSError{Err: "no such host", IsNotFound: true}
	late := &net.DNSError{Err: "i/o timeout", IsTimeout: true, IsTemporary: true}
	failed := &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	tests := []struct {
		name              string
		ip6, ip4          error
		notFound, timeout bool
	}{
		{"neither", notFound, notFound, true, false},
		{"no address and not even an error", nil, nil, true, false},
		{"the hosts file has no address of a family", &net.AddrError{Err: "no suitable address found"}, notFound, true, false},
		{"no answer for one", late, notFound, false, true},
		{"a failure for the other", notFound, failed, false, false},
		{"our own time limit", context.DeadlineExceeded, context.DeadlineExceeded, false, true},
		{"something else", errors.New("x"), notFound, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := resolveError("a.example", [2]answer{{err: tt.ip6}, {err: tt.ip4}})
			if e.NotFound != tt.notFound || e.Timeout != tt.timeout {
				t.Errorf("%+v, want NotFound %t, Timeout %t", e, tt.notFound, tt.timeout)
			}
			if text := e.Error(); !strings.HasPrefix(text, "resolve a.example: ") || strings.Contains(text, "nil") {
				t.Errorf("reads %q", text)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	ns := newNameServer(t, zone{"a.example.": {addrs: []string{"93.184.216.34", "10.0.0.1", "::1"}}})
	told := 0
	f := mustNew(t, Config{Resolver: ns.resolver(), OnDenied: func(Verdict, bool) { told++ }})
	target := mustCheck(t, f, "https://a.example/")
	got, refusal, err := f.Explain(t.Context(), target)
	if err != nil || len(got) != 3 || refusal == nil || !f.Enforces(refusal.Verdict) {
		t.Fatalf("%v, %v, %v", got, refusal, err)
	}
	if _, err := f.Resolve(t.Context(), target); err == nil || err.Error() != refusal.Error() {
		t.Errorf("explains %v, but Resolve says %v", refusal, err)
	}
	for _, want := range []Judged{
		{netip.MustParseAddr("::1"), VerdictLoopback},
		{netip.MustParseAddr("93.184.216.34"), VerdictAllowed},
		{netip.MustParseAddr("10.0.0.1"), VerdictPrivate},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%v is not among %v", want, got)
		}
	}
	if _, _, err := f.Explain(t.Context(), mustCheck(t, f, "https://unknown.example/")); err == nil {
		t.Error("an unknown name is explained")
	}
	if told != 1 {
		t.Errorf("OnDenied was told %d times, want once, by Resolve", told)
	}
}

func TestExplainReport(t *testing.T) {
	t.Parallel()
	ns := newNameServer(t, zone{"a.example.": {addrs: []string{"10.0.0.1"}}})
	f := mustNew(t, Config{Report: true, Resolver: ns.resolver()})
	for url, want := range map[string]Verdict{
		"https://a.example/": VerdictPrivate, "https://a.example:25/": VerdictPort, "https://8.8.8.8/": VerdictIPLiteral,
	} {
		_, refusal, err := f.Explain(t.Context(), mustCheck(t, f, url))
		if err != nil || refusal == nil || refusal.Verdict != want || f.Enforces(refusal.Verdict) {
			t.Errorf("%s: %v, %v; want %v, which is not enforced", url, refusal, err, want)
		}
	}
}

// TestSecond: a name server that never answers for AAAA costs two seconds, not the attempt; but where there is nothing to
// dial yet, its answer is awaited.
func TestSecond(t *testing.T) {
	t.Parallel()
	good := answer{addrs: []netip.Addr{netip.MustParseAddr("93.184.216.34")}}
	late := answer{addrs: []netip.Addr{netip.MustParseAddr("2606:2800:220:1::1")}}
	tests := []struct {
		name    string
		first   answer
		after   time.Duration // that the other's answer takes
		want    []netip.Addr
		elapsed time.Duration
	}{
		{"at once", good, 0, late.addrs, 0},
		{"soon", good, time.Second, late.addrs, time.Second},
		{"too late", good, 4 * time.Second, nil, 2 * time.Second},
		{"late, but nothing to dial yet", answer{err: errors.New("no answer")}, 4 * time.Second, late.addrs, 4 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				other := make(chan answer, 1)
				time.AfterFunc(tt.after, func() { other <- late })
				began := time.Now()
				got := second(tt.first, other)
				if took := time.Since(began); !slices.Equal(got.addrs, tt.want) || took != tt.elapsed {
					t.Errorf("%v after %v, want %v after %v", got.addrs, took, tt.want, tt.elapsed)
				}
			})
		})
	}
}

func TestResolveWithoutResolver(t *testing.T) {
	t.Parallel()
	f := mustNew(t, Config{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the name server is away")
	}}})
	_, err := f.Resolve(t.Context(), mustCheck(t, f, "https://a.example/"))
	r, ok := errors.AsType[*ResolveError](err)
	if !ok || r.NotFound || r.Timeout || !strings.Contains(r.Error(), "the name server is away") {
		t.Errorf("got %#v", err)
	}
}

// TestResolveCancelled: an attempt that we cut off ourselves is nobody's failure, and the cause is told.
func TestResolveCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopping := errors.New("stopping")
	f := mustNew(t, Config{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel(stopping)
		<-ctx.Done()
		return nil, ctx.Err()
	}}})
	_, err := f.Resolve(ctx, mustCheck(t, f, "https://a.example/"))
	if _, isResolve := errors.AsType[*ResolveError](err); isResolve || !errors.Is(err, stopping) {
		t.Errorf("got %v, want the cause", err)
	}
}
