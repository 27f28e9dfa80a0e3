package extauthz

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"sync/atomic"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

const (
	// messageHeadroom is what a Check carries beside the body: headers (Envoy takes up to 60 KiB of them by default, some
	// raise it), certificates, metadata.
	messageHeadroom = 1 << 20
	// maxConcurrentStreams is per connection, and Envoy opens one connection a worker: a Check that waits for the
	// disk must not keep others from being asked.
	maxConcurrentStreams = 1 << 14
	// streamWorkers are goroutines that stay, for as many Checks at once as are common: their stacks have grown already,
	// which saves an eighth of the CPU of a Check. More of them sit idle through a garbage collection and lose their
	// stacks to it. What exceeds them gets a goroutine of its own.
	streamWorkers = 128
	// streamWindow lets a Check with a common body come in one go; grpc-go's own estimate starts at 64 KiB.
	streamWindow = 1 << 20
	// connWindow is for all Checks of one Envoy worker together.
	connWindow = 16 << 20
	// keepaliveMinTime is the shortest interval of Envoy's HTTP/2 pings that we put up with.
	keepaliveMinTime = time.Second
	// drainQuiet ends the wait for confirms at a stop: twice Envoy's flush interval without one.
	drainQuiet = 2 * time.Second
	// drainFlush is how long the last answer of a handler may take to its socket: grpc-go does not say when it is out.
	drainFlush = 50 * time.Millisecond
	// drainPoll is how often a stop looks whether all is done.
	drainPoll = 10 * time.Millisecond
)

// GRPCConfig is what NewGRPCServer needs.
type GRPCConfig struct {
	// Server answers Checks. Required.
	Server *Server
	// Confirm takes the access log and ext_proc streams. Required.
	Confirm *Confirm
	// MaxBodyBytes is the largest max_body of any source.
	MaxBodyBytes int64
	// Credentials: TLS with client certificates; nil for loopback and Unix sockets.
	Credentials credentials.TransportCredentials
	// Logger; nil discards.
	Logger *slog.Logger
}

// GRPCServer is the gate's listener: Authorization, AccessLogService, ExternalProcessor, health and reflection.
type GRPCServer struct {
	check   func(context.Context, *request) decision
	server  *Server // nil in tests of the transport alone
	maxBody int64
	confirm *Confirm
	log     *slog.Logger
	grpc    *grpc.Server
	health  *health.Server
	active  atomic.Int64 // Checks and ext_proc streams in hand
}

// NewGRPCServer makes the server; Serve starts it. Its health is NOT_SERVING until SetServing says otherwise.
func NewGRPCServer(cfg GRPCConfig) *GRPCServer { return newGRPCServer(cfg, cfg.Server.check) }

func newGRPCServer(cfg GRPCConfig, check func(context.Context, *request) decision) *GRPCServer {
	g := &GRPCServer{check: check, server: cfg.Server, maxBody: cfg.MaxBodyBytes, confirm: cfg.Confirm, log: cfg.Logger, health: health.NewServer()}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newWireCodec()),
		grpc.MaxRecvMsgSize(int(min(cfg.MaxBodyBytes+messageHeadroom, math.MaxInt32))),
		grpc.MaxConcurrentStreams(maxConcurrentStreams),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMinTime, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(g.recoverUnary),
		grpc.ChainStreamInterceptor(g.recoverStream),
	}
	if cfg.Credentials != nil {
		options = append(options, grpc.Creds(cfg.Credentials))
	}
	g.grpc = grpc.NewServer(options...)
	g.grpc.RegisterService(&authorizationDesc, g)
	g.grpc.RegisterService(&accessLogDesc, g.confirm)
	extprocv3.RegisterExternalProcessorServer(g.grpc, extProcServer{confirm: g.confirm})
	healthv1.RegisterHealthServer(g.grpc, g.health)
	reflection.Register(g.grpc)
	g.SetServing(false)
	return g
}

// SetServing sets the answer of the gRPC health service, for the server as a whole and for Authorization.
func (g *GRPCServer) SetServing(serving bool) {
	s := healthv1.HealthCheckResponse_NOT_SERVING
	if serving {
		s = healthv1.HealthCheckResponse_SERVING
	}
	g.health.SetServingStatus("", s)
	g.health.SetServingStatus(authorizationDesc.ServiceName, s)
}

// Serve answers on l until Stop; it returns nil then, and also where Stop came first. It may run for several listeners at once.
func (g *GRPCServer) Serve(l net.Listener) error {
	err := g.grpc.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Stop ends the server: it accepts nothing new, finishes the Checks in hand, waits for the confirms of what was let
// through as long as some still come, then hangs up. It returns when every handler has; ctx bounds the waiting. The
// inbox must stay open until then.
func (g *GRPCServer) Stop(ctx context.Context) {
	g.health.Shutdown()
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		g.grpc.GracefulStop() // sends GOAWAY; access log streams never end by themselves
	}()
	g.drain(ctx, graceful)
	g.grpc.Stop()
	<-graceful
}

// drain returns when nothing is left to wait for.
func (g *GRPCServer) drain(ctx context.Context, stopped <-chan struct{}) {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	heard, since := g.confirm.activity(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stopped:
			return
		case now := <-tick.C:
			if n := g.confirm.activity(); n != heard || g.active.Load() > 0 {
				heard, since = n, now
				continue
			}
			quiet := now.Sub(since)
			if quiet >= drainQuiet || quiet >= drainFlush && g.confirm.open.Load() == 0 {
				return
			}
		}
	}
}

// authorizationDesc serves envoy.service.auth.v3.Authorization with messages of the types checkCall and checkAnswer,
// which wireCodec reads and writes.
var authorizationDesc = grpc.ServiceDesc{
	ServiceName: authv3.Authorization_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Check", Handler: handleCheck}},
	Metadata:    authv3.Authorization_ServiceDesc.Metadata,
}

// handleCheck is the root of a Check that came by gRPC.
func handleCheck(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (answer any, err error) {
	g := srv.(*GRPCServer)
	g.active.Add(1)
	defer g.active.Add(-1)
	defer g.recovered(ctx, "Check", &err)
	// grpc-go receives a message when the handler asks for it: what has no room is refused before it takes memory.
	room := announcedBody(ctx)
	if room > 0 && g.server != nil {
		refusal, ok := g.server.receive(ctx, room, g.maxBody)
		if !ok {
			return refusal.encode()
		}
		defer g.server.bodies.give(room)
	}
	call := checkCalls.Get().(*checkCall)
	defer call.release()
	if err := decode(call); err != nil {
		return nil, err
	}
	call.grpcSource, call.room = sourceFromMetadata(ctx), room
	d := g.check(ctx, &call.request)
	return d.encode()
}

func (g *GRPCServer) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	defer g.recovered(ctx, info.FullMethod, &err)
	return handle(ctx, req)
}

func (g *GRPCServer) recoverStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	if info.FullMethod == extprocv3.ExternalProcessor_Process_FullMethodName {
		g.active.Add(1)
		defer g.active.Add(-1)
	}
	defer g.recovered(stream.Context(), info.FullMethod, &err)
	return handle(srv, stream)
}

// recovered turns a panic of a handler into an error: Envoy refuses that one request, the process lives.
func (g *GRPCServer) recovered(ctx context.Context, method string, err *error) {
	p := recover()
	if p == nil {
		return
	}
	g.log.LogAttrs(ctx, slog.LevelError, "panic in handler", slog.String("method", method), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	*err = status.Error(codes.Internal, "internal error")
}
