package egress

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sidehook/sidehook/internal/actor"
	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
	"github.com/sidehook/sidehook/pb/sidehook/egress/v1/egressv1connect"
)

// Switch is what the admin API needs of who sends; see Dispatcher. All methods are safe for concurrent use.
type Switch interface {
	// Enable ends the disabling and the hold of an endpoint, Disable begins one. Both return once that is on disk, and
	// are harmless when called twice.
	Enable(ctx context.Context, endpoint string) error
	Disable(ctx context.Context, endpoint string, reason DisableReason) error
	// HealthOf returns an endpoint's health; ok is false where there is no such endpoint.
	HealthOf(endpoint string) (h Health, ok bool)
	// SetPaused stops and resumes sending as a whole, in memory only.
	SetPaused(paused bool)
}

var _ Switch = (*Dispatcher)(nil)

// ServiceConfig is what a Service stands on. All fields are required but UntilFull and Logger.
type ServiceConfig struct {
	Records  Records
	Registry *Registry
	Switch   Switch
	// Sender makes the attempts of TestEndpoint.
	Sender Sender
	// UntilFull estimates when the store will be full; see [store.Store.UntilFull]. Nil: nobody does.
	UntilFull func() (time.Duration, bool)
	// Logger gets the audit lines, and the causes of what clients see as UNAVAILABLE or INTERNAL. Nil: nothing.
	Logger *slog.Logger
}

// Service implements the admin API of the outbound half, pb/sidehook/egress/v1. Who may call it is the listener's
// business. It is safe for concurrent use.
type Service struct {
	cfg ServiceConfig
	// change serialises what turns endpoints on and off, so that an audit line's before and after are of one change.
	change sync.Mutex
	// tests bounds the attempts of TestEndpoint that are under way.
	tests chan struct{}
}

var _ egressv1connect.EgressServiceHandler = (*Service)(nil)

// NewService returns the handler of the admin API on top of cfg.
func NewService(cfg ServiceConfig) *Service {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.UntilFull == nil {
		cfg.UntilFull = func() (time.Duration, bool) { return 0, false }
	}
	return &Service{cfg: cfg, tests: make(chan struct{}, maxTests)}
}

// PauseEgress implements egressv1connect.EgressServiceHandler.
func (s *Service) PauseEgress(ctx context.Context, _ *connect.Request[egressv1.PauseEgressRequest]) (*connect.Response[egressv1.PauseEgressResponse], error) {
	if err := s.setPaused(ctx, true); err != nil {
		return nil, err
	}
	return connect.NewResponse(&egressv1.PauseEgressResponse{}), nil
}

// ResumeEgress implements egressv1connect.EgressServiceHandler.
func (s *Service) ResumeEgress(ctx context.Context, _ *connect.Request[egressv1.ResumeEgressRequest]) (*connect.Response[egressv1.ResumeEgressResponse], error) {
	if err := s.setPaused(ctx, false); err != nil {
		return nil, err
	}
	return connect.NewResponse(&egressv1.ResumeEgressResponse{}), nil
}

// setPaused stops at once, and resumes only what is on disk as resumed.
func (s *Service) setPaused(ctx context.Context, paused bool) error {
	what := "egress resume"
	if paused {
		what = "egress pause"
	}
	s.change.Lock()
	defer s.change.Unlock()
	before := s.cfg.Registry.Paused()
	if paused {
		s.cfg.Switch.SetPaused(true)
	}
	if err := s.cfg.Registry.SetPaused(ctx, paused); err != nil {
		s.cfg.Switch.SetPaused(before)
		return s.failure(ctx, what, err)
	}
	s.cfg.Switch.SetPaused(paused)
	s.audit(ctx, what, pauseWord(before), pauseWord(paused))
	return nil
}

func pauseWord(paused bool) string {
	if paused {
		return "paused"
	}
	return "running"
}

// codes says what a client sees of an error of the registry or the outbox. Their texts are written for it.
var codes = []struct {
	err  error
	code connect.Code
}{
	{ErrNotFound, connect.CodeNotFound},
	{ErrSpec, connect.CodeInvalidArgument},
	{ErrFilter, connect.CodeInvalidArgument},
	{ErrCursor, connect.CodeInvalidArgument},
	{ErrExists, connect.CodeAlreadyExists},
	{ErrConfigured, connect.CodeFailedPrecondition},
	{ErrNoSealer, connect.CodeFailedPrecondition},
	{ErrState, connect.CodeFailedPrecondition},
	{ErrLimit, connect.CodeResourceExhausted},
	{ErrJobs, connect.CodeResourceExhausted},
}

// failure turns an error into what a client may see, and logs what it may not.
func (s *Service) failure(ctx context.Context, step string, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	}
	if !errors.Is(err, ErrUnavailable) {
		for _, c := range codes {
			if errors.Is(err, c.err) {
				return connect.NewError(c.code, err)
			}
		}
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "admin request", slog.String("step", step), slog.Any("err", err))
	switch {
	case errors.Is(err, ErrFull):
		return connect.NewError(connect.CodeUnavailable, errors.New("the store is full: make room on the volume, or raise store.limit"))
	case errors.Is(err, ErrUnavailable):
		return connect.NewError(connect.CodeUnavailable, errors.New("the store does not answer: try again, then see the log"))
	}
	return connect.NewError(connect.CodeInternal, errors.New("the store gave an error: see the log"))
}

// audit writes one line of the audit log: who did what to what, from which state to which. When is the line's time.
func (s *Service) audit(ctx context.Context, what, before, after string, target ...slog.Attr) {
	attrs := append([]slog.Attr{slog.String("who", actor.From(ctx)), slog.String("what", what)}, target...)
	attrs = append(attrs, slog.String("before", before), slog.String("after", after))
	s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "audit", slog.GroupAttrs("audit", attrs...))
}

// invalid answers a request that breaks the rules at its fields.
func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }
