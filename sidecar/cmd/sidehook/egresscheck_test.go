package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/sidehook/sidehook/egress/netguard"
)

// answering is a resolver that answers each question A with the two addresses and knows no IPv6, in memory.
func answering(a, b [4]byte) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			var size [2]byte
			if _, err := io.ReadFull(server, size[:]); err != nil {
				return
			}
			query := make([]byte, int(size[0])<<8|int(size[1]))
			if _, err := io.ReadFull(server, query); err != nil {
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
				return
			}
			reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				for _, addr := range [][4]byte{a, b} {
					reply.Answers = append(reply.Answers, dnsmessage.Resource{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: addr},
					})
				}
			}
			packed, err := reply.Pack()
			if err != nil {
				return
			}
			_, _ = server.Write(append([]byte{byte(len(packed) >> 8), byte(len(packed))}, packed...))
		}()
		return client, nil
	}}
}

// TestAskFilter: what the script cannot show without a name server.
func TestAskFilter(t *testing.T) {
	t.Parallel()
	away := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the name server is away")
	}}
	public, inside := netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("10.0.0.1")
	mixed := answering(public.As4(), inside.As4())
	both := []netguard.Judged{{Addr: public, Verdict: netguard.VerdictAllowed}, {Addr: inside, Verdict: netguard.VerdictPrivate}}
	ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	tests := []struct {
		name, url string
		filter    netguard.Config
		want      egressAnswer
		wantLine  string
	}{
		{"a resolver that fails", "https://hooks.acme.example/in?token=hunter2", netguard.Config{Resolver: away},
			egressAnswer{URL: "https://hooks.acme.example:443", Reason: "resolver_failed"}, "not resolved reason=resolver_failed"},
		{"one bad address of two", "https://hooks.acme.example/in?token=hunter2", netguard.Config{Resolver: mixed},
			egressAnswer{URL: "https://hooks.acme.example:443", Addresses: both, Reason: "private"}, "refused reason=private"},
		{"the same under REPORT", "https://hooks.acme.example/", netguard.Config{Resolver: mixed, Report: true},
			egressAnswer{URL: "https://hooks.acme.example:443", Addresses: both, Allowed: true, Reported: true, Reason: "private"},
			"allowed by REPORT, would be refused reason=private"},
		{"a name, allowed", "https://hooks.acme.example/", netguard.Config{Resolver: answering(public.As4(), public.As4())},
			egressAnswer{URL: "https://hooks.acme.example:443", Addresses: []netguard.Judged{both[0], both[0]}, Allowed: true}, "allowed"},
		{"a literal, allowed", "https://10.0.0.1/", netguard.Config{Allow: ten},
			egressAnswer{URL: "https://10.0.0.1:443", Allowed: true,
				Addresses: []netguard.Judged{{Addr: inside, Verdict: netguard.VerdictAllowed}}}, "allowed"},
		{"a line break in what is asked", "https://hooks.acme.example/\n", netguard.Config{},
			egressAnswer{Reason: "bad_url"}, "refused reason=bad_url"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, err := netguard.New(tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			got, err := askFilter(t.Context(), f, tt.url)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got, cmpopts.IgnoreFields(egressAnswer{}, "Detail"), cmpopts.EquateEmpty(),
				cmpopts.EquateComparable(netip.Addr{}), cmpopts.SortSlices(func(a, b netguard.Judged) bool { return b.Addr.Less(a.Addr) })); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if (got.Reason == "") != (got.Detail == "") {
				t.Errorf("reason %q with detail %q", got.Reason, got.Detail)
			}
			var out strings.Builder
			if err := got.print(&out); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), tt.wantLine+"\n") || strings.Contains(out.String(), "hunter2") {
				t.Errorf("prints:\n%s\nwant the line %q and no secret", out.String(), tt.wantLine)
			}
		})
	}
}

// TestAskFilterCancelled: an interrupted command says so, and nothing of the URL.
func TestAskFilterCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	f, err := netguard.New(netguard.Config{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel(interrupted)
		<-ctx.Done()
		return nil, ctx.Err()
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := askFilter(ctx, f, "https://hooks.acme.example/"); !errors.Is(err, interrupted) {
		t.Errorf("got %+v, %v; want the cause", a, err)
	}
}
