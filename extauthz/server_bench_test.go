package extauthz

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// claimingInbox takes every id at once and remembers nothing.
type claimingInbox struct{ Inbox }

func (claimingInbox) Claim(context.Context, ClaimRequest) (Claim, error) {
	return Claim{Outcome: Claimed, Token: Token{1}}, nil
}

// BenchmarkCheck is a Check of 1 KiB from the decoded message to the decision: what the gate itself costs, and with
// the claim on disk at 64 callers.
func BenchmarkCheck(b *testing.B) {
	body := `{"type":"invoice.paid","data":"` + strings.Repeat("x", 990) + `"}`
	quiet := func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) }
	requestOf := func(id string) *request {
		var r request
		r.reset()
		h := hook{id: id, body: body, at: time.Now()}
		r.fill(context.Background(), h.check(true))
		return &r
	}
	b.Run("memory", func(b *testing.B) {
		g := newGate(b, mustSources(b, []*Source{signedSource(b, "payments")}), quiet, func(c *Config) { c.Inbox = claimingInbox{} })
		r := requestOf("evt_1")
		b.ReportAllocs()
		for b.Loop() {
			if d := g.check(b.Context(), r); !d.pass() {
				b.Fatal(d.reason)
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		g := newGate(b, mustSources(b, []*Source{signedSource(b, "payments")}, Match{PathPrefix: "/api"}), quiet)
		r := requestOf("evt_1")
		r.target = "/api/v1/users?page=2"
		b.ReportAllocs()
		for b.Loop() {
			if d := g.check(b.Context(), r); !d.pass() {
				b.Fatal(d.reason)
			}
		}
	})
	b.Run("durable", func(b *testing.B) {
		g := newGate(b, mustSources(b, []*Source{signedSource(b, "payments")}), quiet)
		var next atomic.Int64
		b.SetParallelism(32)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if d := g.check(b.Context(), requestOf("evt_"+strconv.FormatInt(next.Add(1), 10))); !d.pass() {
					b.Error(d.reason)
				}
			}
		})
	})
}
