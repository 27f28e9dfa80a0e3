package sidecar

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/sidehook/sidehook/internal/actor"
	"github.com/sidehook/sidehook/internal/httpguard"
	"github.com/sidehook/sidehook/pb/sidehook/egress/v1/egressv1connect"
	"github.com/sidehook/sidehook/pb/sidehook/inbox/v1/inboxv1connect"
)

// adminMaxBytes bounds one request of the admin API. The largest one names a thousand deliveries, or brings an endpoint's
// headers.
const adminMaxBytes = 64 << 10

// adminStall is how long one write of an answer that may be long (a backup, a profile) may take.
const adminStall = 30 * time.Second

// AdminConfig is what the admin API serves and whom it lets in.
type AdminConfig struct {
	// Inbox serves pb/sidehook/inbox/v1. Required.
	Inbox inboxv1connect.InboxServiceHandler
	// Egress serves pb/sidehook/egress/v1. Nil: it is not served, there is no outbound half.
	Egress egressv1connect.EgressServiceHandler
	// Token returns the bearer token that every request must show, or nothing where none is configured. It is asked
	// for each request, so that a reload takes hold at once. Nil: none is configured.
	Token func() []byte
	// Logger gets refusals. Nil: they are not logged.
	Logger *slog.Logger
}

// NewAdmin returns the handler of the admin listener: the API as Connect, gRPC and JSON, and /debug/pprof.
//
// The listener is on loopback or a socket, where browsers and the app's own requests reach it too. Hence each request,
// of any method, must name a loopback host (a page that rebinds its own name to 127.0.0.1 does not), must not come
// from another origin, and must bear the token if there is one. Server limits are the listener's (see httpServer).
func NewAdmin(cfg AdminConfig) http.Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.Handle(inboxv1connect.NewInboxServiceHandler(cfg.Inbox, connect.WithReadMaxBytes(adminMaxBytes)))
	if cfg.Egress != nil {
		mux.Handle(egressv1connect.NewEgressServiceHandler(cfg.Egress, connect.WithReadMaxBytes(adminMaxBytes)))
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)

	return &adminGuard{
		next:   http.MaxBytesHandler(mux, adminMaxBytes),
		token:  cfg.Token,
		logger: cfg.Logger,
		errors: connect.NewErrorWriter(),
	}
}

// adminGuard lets a request through to next if it may use the admin API.
type adminGuard struct {
	next   http.Handler
	token  func() []byte
	logger *slog.Logger
	origin http.CrossOriginProtection
	errors *connect.ErrorWriter
}

// ServeHTTP implements http.Handler.
func (g *adminGuard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	var token []byte
	if g.token != nil {
		token = g.token()
	}
	if err := g.judge(r, token); err != nil {
		g.refuse(w, r, err)
		return
	}
	who := peer(r)
	if len(token) > 0 {
		who += " with token"
	}
	if r.URL.Path == inboxv1connect.InboxServiceBackUpStoreProcedure || strings.HasPrefix(r.URL.Path, "/debug/") {
		w = newLongAnswer(w)
	}
	g.next.ServeHTTP(w, r.WithContext(actor.With(r.Context(), who)))
}

// judge returns nil or the refusal, cheapest check first; the token comes last so that nothing is learned about it
// from a request that is refused anyway.
func (g *adminGuard) judge(r *http.Request, token []byte) *connect.Error {
	if !httpguard.LoopbackHost(r.Host) {
		return connect.NewError(connect.CodePermissionDenied,
			errors.New("host not allowed: call the admin API by a loopback address or by localhost"))
	}
	// The standard check lets safe methods pass. Here even a GET can cost (a profile), and no page of another origin
	// has business here: every method is judged as if it were a POST.
	asPost := *r
	asPost.Method = http.MethodPost
	if err := g.origin.Check(&asPost); err != nil {
		return connect.NewError(connect.CodePermissionDenied, err)
	}
	if err := httpguard.Bearer(r.Header, token); err != nil {
		return connect.NewError(connect.CodeUnauthenticated, err)
	}
	return nil
}

// refuse answers in the protocol of the request: Connect and gRPC clients get an error they can read.
func (g *adminGuard) refuse(w http.ResponseWriter, r *http.Request, err *connect.Error) {
	g.logger.LogAttrs(r.Context(), slog.LevelWarn, "admin request refused",
		slog.String("peer", peer(r)), slog.String("path", bounded(r.URL.Path)), slog.String("host", bounded(r.Host)),
		slog.String("reason", err.Message()))
	status := http.StatusForbidden
	if err.Code() == connect.CodeUnauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="sidehook"`)
		status = http.StatusUnauthorized
	}
	if g.errors.IsSupported(r) {
		_ = g.errors.Write(w, r, err) // the client has gone; there is nobody to tell
		return
	}
	http.Error(w, err.Message(), status)
}

// longAnswer is an answer that the server's time limit for the whole of it does not fit: each write has its own.
type longAnswer struct {
	http.ResponseWriter
	control *http.ResponseController
}

// newLongAnswer also lifts the limit for reading the request, which would end its context while the answer goes on.
func newLongAnswer(w http.ResponseWriter) longAnswer {
	a := longAnswer{w, http.NewResponseController(w)}
	_ = a.control.SetReadDeadline(time.Time{}) // where there are no deadlines there is none to lift
	a.wait()
	return a
}

func (a longAnswer) wait() { _ = a.control.SetWriteDeadline(time.Now().Add(adminStall)) }

// Write implements http.ResponseWriter.
func (a longAnswer) Write(b []byte) (int, error) {
	a.wait()
	return a.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (a longAnswer) Flush() {
	a.wait()
	_ = a.control.Flush() // the next Write tells
}

// Unwrap is for http.ResponseController.
func (a longAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// bounded cuts s, which a stranger sent, to what a log line can bear.
func bounded(s string) string {
	const most = 128
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
