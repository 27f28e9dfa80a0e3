package extauthz

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"
)

// open lets every request through.
func open(_ context.Context, r *request) decision {
	d := decision{reason: ReasonOpen, remove: cloneNames(r.reserved)}
	d.answer()
	return d
}

// A Check by the generated client over a Unix socket: what arrives and what comes back.
func TestCheckOverSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	in := checkOf(true, "{}")
	want, err := generatedRequest(mustMarshal(t, in))
	if err != nil {
		t.Fatal(err)
	}
	want.grpcSource = "shop"
	diff := "nothing arrived"
	g := newGRPCServer(GRPCConfig{Confirm: newTestConfirm(t, &settleRecorder{}, nil)}, func(ctx context.Context, r *request) decision {
		diff = diffRequests(r, want)
		return open(ctx, r)
	})
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, err := authv3.NewAuthorizationClient(conn).Check(metadata.AppendToOutgoingContext(ctx, metadataSource, "shop"), in)
	if err != nil {
		t.Fatal(err)
	}
	if diff != "" {
		t.Errorf("request (-got +want):\n%s", diff)
	}
	d := open(ctx, want)
	if diff := cmp.Diff(answer, d.response(), protocmp.Transform()); diff != "" {
		t.Errorf("answer (-got +want):\n%s", diff)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	g.Stop(ctx)
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// keptClaims is an inbox that keeps what it was asked.
type keptClaims struct {
	Inbox
	asked []ClaimRequest
}

func (k *keptClaims) Claim(ctx context.Context, ask ClaimRequest) (Claim, error) {
	k.asked = append(k.asked, ask)
	return k.Inbox.Claim(ctx, ask)
}

// The received message is used again for another Check as soon as the answer is made: neither the answer nor what the
// inbox got may change with it.
func TestCheckSharesNoMemory(t *testing.T) {
	t.Parallel()
	sources := mustSources(t, []*Source{
		signedSource(t, "payments"),
		signedSource(t, "trial", func(s *Source) { s.Enforce = EnforceReport }),
		openSource("anybody", Match{PathPrefix: "/hooks/anybody"}),
	}, Match{PathPrefix: "/api"})
	forged := [][2]string{{"x-sidehook-event-id", "forged"}, {"x_sidehook_source", "forged"}}
	for _, row := range []struct {
		name string
		h    hook
	}{
		{"passes", hook{headers: forged}},
		{"passes, with an odd id", hook{id: "a%b", headers: forged}},
		{"passes, with a long id", hook{id: strings.Repeat("i", 300), body: `{"type":"` + strings.Repeat("t", 300) + `"}`}},
		{"refused", hook{secret: "guess"}},
		{"reported", hook{target: "/hooks/trial", headers: forged}},
		{"reported as bad", hook{target: "/hooks/trial", secret: "guess", headers: forged}},
		{"not verified", hook{target: "/hooks/anybody", headers: forged}},
		{"open", hook{target: "/api", headers: forged}},
		{"unmatched", hook{target: "/other"}},
		{"source not known", hook{source: "nobody"}},
	} {
		for _, raw := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/raw=%v", row.name, raw), func(t *testing.T) {
				t.Parallel()
				var inbox *keptClaims
				g := newGate(t, sources, func(c *Config) {
					inbox = &keptClaims{Inbox: c.Inbox}
					c.Inbox = inbox
				})
				msg := mustMarshal(t, row.h.check(raw))
				var r request
				if err := r.decode(msg); err != nil {
					t.Fatal(err)
				}
				d := g.check(t.Context(), &r)
				before, err := d.encode()
				if err != nil {
					t.Fatal(err)
				}
				asked := fmt.Sprintf("%v", inbox.asked)
				for i := range msg {
					msg[i] = '#'
				}
				after, err := d.encode()
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(before, after) {
					t.Errorf("the answer changed from\n%q to\n%q", before, after)
				}
				if now := fmt.Sprintf("%v", inbox.asked); now != asked {
					t.Errorf("the claim changed from\n%s to\n%s", asked, now)
				}
				if d.ref != "" && len(inbox.asked) != 1 {
					t.Errorf("asked %d times", len(inbox.asked))
				}
			})
		}
	}
}

// The limit fits the largest max_body with its headers, and no more: grpc-go's own would be 4 MiB for all.
func TestGRPCMessageLimit(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		body int
		want codes.Code
	}{
		{"max_body", DefaultMaxBodyBytes, codes.OK},
		{"beyond max_body, for the gate to refuse", DefaultMaxBodyBytes + messageHeadroom/2, codes.OK},
		{"beyond all", DefaultMaxBodyBytes + messageHeadroom, codes.ResourceExhausted},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			size := 0
			_, conn := serveTest(t, newTestConfirm(t, &settleRecorder{}, nil), func(ctx context.Context, r *request) decision {
				size = len(r.body)
				return open(ctx, r)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := authv3.NewAuthorizationClient(conn).Check(ctx, checkOf(true, strings.Repeat("x", row.body)))
			if status.Code(err) != row.want || err == nil && size != row.body {
				t.Errorf("Check: %v with %d bytes, want %v", err, size, row.want)
			}
		})
	}
}

// A Check that is no protobuf message fails by itself; so does one that makes us panic.
func TestGRPCFaultsStayAlone(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g := newGRPCServer(GRPCConfig{
		Confirm: newTestConfirm(t, &settleRecorder{}, nil), MaxBodyBytes: DefaultMaxBodyBytes, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, func(ctx context.Context, r *request) decision {
		if r.host == "panic" {
			panic("at the disco")
		}
		return open(ctx, r)
	})
	conn, stop := dialInMemory(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	client := authv3.NewAuthorizationClient(conn)
	in := checkOf(true, "{}")
	in.Attributes.Request.Http.Host = "panic"
	if _, err := client.Check(ctx, in); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "disco") {
		t.Errorf("Check that panics: %v, want Internal without our text", err)
	}
	var answer []byte
	err := conn.Invoke(ctx, authv3.Authorization_Check_FullMethodName, []byte{0xff}, &answer, grpc.ForceCodec(rawCodec{}))
	if status.Code(err) != codes.Internal {
		t.Errorf("Check that is no message: %v, want Internal", err)
	}
	if _, err := client.Check(ctx, checkOf(true, "{}")); err != nil {
		t.Errorf("the next Check: %v", err)
	}
	stop()
	if !strings.Contains(log.String(), "at the disco") || !strings.Contains(log.String(), "grpc_test.go") {
		t.Errorf("the panic and its stack are not in the log:\n%s", log.String())
	}
}

// A panic in a stream's handler ends that stream and nothing else.
func TestGRPCStreamPanic(t *testing.T) {
	t.Parallel()
	inbox := settleRecorder{token: func(key Key, _ Token) {
		if key.ID == "panic" {
			panic("in the inbox")
		}
	}}
	_, conn := serveTest(t, newTestConfirm(t, &inbox, nil), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	send := func(id string) error {
		stream, err := accesslogv3.NewAccessLogServiceClient(conn).StreamAccessLogs(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(batchOf(entryOf(testRef(id), appDone))); err != nil {
			return err
		}
		_, err = stream.CloseAndRecv()
		return err
	}
	if err := send("panic"); status.Code(err) != codes.Internal {
		t.Errorf("got %v, want Internal", err)
	}
	if err := send("evt_1"); err != nil {
		t.Errorf("the next stream: %v", err)
	}
}

func TestGRPCHealthAndReflection(t *testing.T) {
	t.Parallel()
	g, conn := serveTest(t, newTestConfirm(t, &settleRecorder{}, nil), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	client := healthv1.NewHealthClient(conn)
	expect := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, service := range []string{"", "envoy.service.auth.v3.Authorization"} {
			answer, err := client.Check(ctx, &healthv1.HealthCheckRequest{Service: service})
			if err != nil || answer.GetStatus() != want {
				t.Errorf("health of %q: %v, %v, want %v", service, answer.GetStatus(), err, want)
			}
		}
	}
	expect(healthv1.HealthCheckResponse_NOT_SERVING)
	g.SetServing(true)
	expect(healthv1.HealthCheckResponse_SERVING)
	g.SetServing(false)
	expect(healthv1.HealthCheckResponse_NOT_SERVING)

	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, name := range []string{
		"envoy.service.auth.v3.Authorization", "envoy.service.accesslog.v3.AccessLogService", "envoy.service.ext_proc.v3.ExternalProcessor", "grpc.health.v1.Health",
	} {
		if !slices.Contains(names, name) {
			t.Errorf("reflection does not list %s: %v", name, names)
		}
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "envoy.service.auth.v3.Authorization"}}); err != nil {
		t.Fatal(err)
	}
	if answer, err = stream.Recv(); err != nil || len(answer.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection does not describe Authorization: %v, %v", answer, err)
	}
}

// dialInMemory serves g in memory; stop closes the client, then stops g.
func dialInMemory(t *testing.T, g *GRPCServer) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///gate", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	return conn, func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		g.Stop(context.WithoutCancel(t.Context()))
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

// Stop in a bubble: it fails if any goroutine stays behind, and its time is exact.
func TestGRPCStop(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		check time.Duration // how long the running Check still takes
		open  int           // requests let through and not reported
		after time.Duration // when the access log reports one of them; 0: never
		grace time.Duration
		// When Stop shall return, to within a poll.
		want time.Duration
	}{
		{name: "idle", grace: time.Minute, want: drainFlush},
		{name: "a Check in hand", check: 4 * time.Second, grace: time.Minute, want: 4*time.Second + drainFlush},
		{name: "a confirm to come", open: 1, after: time.Second, grace: time.Minute, want: time.Second + drainFlush},
		{name: "confirms to come, one of which is lost", open: 2, after: time.Second, grace: time.Minute, want: time.Second + drainQuiet},
		{name: "confirms never come", open: 100, grace: time.Minute, want: drainQuiet},
		{name: "grace ends first", check: 4 * time.Second, open: 1, grace: time.Second, want: time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var inbox settleRecorder
				confirm := newTestConfirm(t, &inbox, nil)
				running := make(chan struct{}, 1)
				g := newGRPCServer(GRPCConfig{Confirm: confirm}, func(ctx context.Context, r *request) decision {
					running <- struct{}{}
					select {
					case <-time.After(row.check):
					case <-ctx.Done():
					}
					return open(ctx, r)
				})
				conn, stop := dialInMemory(t, g)
				logs, err := accesslogv3.NewAccessLogServiceClient(conn).StreamAccessLogs(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := logs.Send(batchOf(entryOf("", appDone))); err != nil {
					t.Fatal(err)
				}
				checked := make(chan error, 1)
				if row.check > 0 {
					go func() {
						_, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), checkOf(true, "{}"))
						checked <- err
					}()
					<-running
				}
				for range row.open {
					confirm.Passed("payments")
				}
				if row.after > 0 {
					go func() {
						time.Sleep(row.after)
						if err := logs.Send(batchOf(entryOf(testRef("evt_1"), appDone))); err != nil {
							t.Errorf("report while stopping: %v", err)
						}
					}()
				}
				synctest.Wait()
				start := time.Now()
				ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), row.grace)
				defer cancel()
				g.Stop(ctx)
				if took := time.Since(start); took < row.want-drainPoll || took > row.want+2*drainPoll {
					t.Errorf("Stop took %v, want %v", took, row.want)
				}
				if row.check > 0 {
					if err := <-checked; (err == nil) != (row.check < row.grace) {
						t.Errorf("the Check in hand: %v", err)
					}
				}
				if row.after > 0 && len(inbox.all()) != 1 {
					t.Errorf("settled %v, want the report that came while stopping", inbox.all())
				}
				stop()
			})
		})
	}
}

// A stop cuts off an ext_proc exchange whose app has not answered: that ends as unknown, before Stop returns.
func TestGRPCStopExtProc(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var inbox settleRecorder
		g := newGRPCServer(GRPCConfig{Confirm: newTestConfirm(t, &inbox, nil)}, open)
		conn, stop := dialInMemory(t, g)
		stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(requestHeaders(testRef("evt_1"))); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		g.Stop(ctx)
		if diff := cmp.Diff(inbox.all(), []settled{{"evt_1", EndUnknown, false}}); diff != "" {
			t.Errorf("settled (-got +want):\n%s", diff)
		}
		stop()
	})
}

// A process that is told to stop before its gate began to serve has ended as it was asked to.
func TestGRPCStopBeforeServe(t *testing.T) {
	t.Parallel()
	gate := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}))
	g := NewGRPCServer(GRPCConfig{Server: gate.Server, Confirm: newTestConfirm(t, &settleRecorder{}, nil), MaxBodyBytes: receptionLimit})
	g.Stop(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Serve(l); err != nil {
		t.Errorf("Serve after Stop: %v", err)
	}
}
