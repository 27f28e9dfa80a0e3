package extauthz

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// BenchmarkGRPCCheck measures a Check with a body of 1 KiB through the listener on a Unix socket, by callers at once.
// "open" is gRPC and the codec alone, on a route that needs no signature; "claim" is all of it: verified, claimed in a
// bolt inbox, reported done by the access log in batches. The client, which signs and sends ready bytes, runs in the
// same process and is part of the figures.
func BenchmarkGRPCCheck(b *testing.B) {
	for _, callers := range []int{64, 256} {
		for _, target := range []string{"/api", "/hooks/payments"} {
			name := map[string]string{"/api": "open", "/hooks/payments": "claim"}[target]
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				benchmarkChecks(b, target, callers)
			})
		}
	}
}

func benchmarkChecks(b *testing.B, target string, callers int) {
	var confirm *Confirm
	gate := newGate(b, mustSources(b, []*Source{signedSource(b, "payments")}, Match{PathPrefix: "/api"}), func(c *Config) {
		var err error
		if confirm, err = NewConfirm(ConfirmConfig{Inbox: c.Inbox}); err != nil {
			b.Fatal(err)
		}
		confirm.SetSources([]string{"payments"})
		c.Passed, c.Logger = confirm.Passed, nil
	})
	path := filepath.Join(b.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	g := NewGRPCServer(GRPCConfig{Server: gate.Server, Confirm: confirm, MaxBodyBytes: DefaultMaxBodyBytes})
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	var conns [2]*grpc.ClientConn // as of two Envoy workers
	for i := range conns {
		if conns[i], err = grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}))); err != nil {
			b.Fatal(err)
		}
	}
	logs, err := conns[0].NewStream(b.Context(), &grpc.StreamDesc{ClientStreams: true}, accesslogv3.AccessLogService_StreamAccessLogs_FullMethodName)
	if err != nil {
		b.Fatal(err)
	}
	refs := make(chan []byte, callers)

	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			send := newBenchSender(b, target)
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				var answer []byte
				if err := conns[caller%len(conns)].Invoke(b.Context(), authv3.Authorization_Check_FullMethodName, send.message(n), &answer); err != nil {
					b.Error(err)
					return
				}
				if target == "/api" {
					continue
				}
				if !bytes.Contains(answer, []byte("\x0a\x08"+metadataKey)) {
					b.Errorf("refused: %q", answer)
					return
				}
				refs <- answer[len(answer)-benchRefLength:] // dynamic metadata stands last
			}
		})
	}
	go func() { wg.Wait(); close(refs) }()
	reportDone(b, logs, refs)
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N), "cpu-ns/op")

	for _, conn := range conns {
		_ = conn.Close()
	}
	g.Stop(context.WithoutCancel(b.Context()))
	if err := <-served; err != nil {
		b.Error(err)
	}
}

// benchID is the event id in the template of a benchmark; all ids have its length.
const benchID = "evt_0000000000000000"

var benchRefLength = len(testRef(benchID))

// benchSender makes Checks by patching one.
type benchSender struct {
	template        []byte
	id, stream, sig int // offsets in template
	at              string
	body            string
}

func newBenchSender(b *testing.B, target string) *benchSender {
	const stream = "stream 0000000000000000"
	s := &benchSender{body: `{"type":"invoice.paid","x":"` + strings.Repeat("x", 994) + `"}`}
	h := hook{id: benchID, body: s.body, target: target, secret: testSecret, at: time.Now(), headers: [][2]string{
		{"user-agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)"}, {"accept-encoding", "gzip"}, {"x-forwarded-proto", "https"},
		{"x-request-id", "b6185384-baee-4259-970a-45950566d54c"},
	}}
	h.change = func(r *authv3.AttributeContext_HttpRequest) { r.Id = stream }
	s.at = strconv.FormatInt(h.at.Unix(), 10)
	s.template = mustMarshal(b, h.check(true))
	s.id = bytes.Index(s.template, []byte(benchID))
	s.stream = bytes.Index(s.template, []byte(stream)) + len(stream) - len(benchID)
	s.sig = bytes.Index(s.template, []byte(h.sign())) + len("v1,")
	return s
}

// message is good until the next one.
func (s *benchSender) message(n int64) []byte {
	id := fmt.Sprintf("evt_%016d", n)
	copy(s.template[s.id:], id)
	copy(s.template[s.stream:], id)
	base64.StdEncoding.Encode(s.template[s.sig:], macOf(testSecret, id+"."+s.at+"."+s.body))
	return s.template
}

// reportDone sends the access log: entries of some 16 KiB at a time, as Envoy batches them.
func reportDone(b *testing.B, logs grpc.ClientStream, refs <-chan []byte) {
	entry := mustMarshal(b, batchOf(entryOf(testRef(benchID), appDone)))
	at := bytes.Index(entry, []byte(testRef(benchID)))
	var batch []byte
	for ref := range refs {
		copy(entry[at:], ref)
		if batch = append(batch, entry...); len(batch) < 16<<10 {
			continue
		}
		if err := logs.SendMsg(batch); err != nil {
			b.Fatal(err)
		}
		batch = nil
	}
}

// cpuTime is what the process has used: on a shared machine a better measure than the clock.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
