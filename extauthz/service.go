package extauthz

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sidehook/sidehook/internal/actor"
	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/pb/sidehook/inbox/v1/inboxv1connect"
)

// backupPartBytes is the size of a part of BackUpStore: few messages, and little memory.
const backupPartBytes = 256 << 10

// EventStore is what the admin API needs of an inbox; see BoltInbox. All methods are safe for concurrent use.
type EventStore interface {
	List(ctx context.Context, f Filter, cursor string, rows int) (Page, error)
	Get(key Key) (Record, error)
	Release(ctx context.Context, key Key) error
	Discard(ctx context.Context, key Key) error
	Summary() ([]StateSummary, error)
}

// SourceControl is what the admin API needs of the gate. All methods are safe for concurrent use.
type SourceControl interface {
	// Configured returns the sources in force, in any order; the caller changes neither the list nor the sources.
	Configured() []*Source
	// Paused reports whether Pause holds for the source of that name.
	Paused(name string) bool
	// Pause makes the gate answer 503 to every verified event of the source. It holds across reloads, in
	// memory only. Resume ends it. Both are harmless when called twice.
	Pause(name string)
	Resume(name string)
}

// StoreCopier writes a copy of the whole store; see store.Store.
type StoreCopier interface {
	WriteTo(ctx context.Context, w io.Writer) error
}

// ServiceConfig is what a Service stands on. Required are Events, Sources and Status.
type ServiceConfig struct {
	Events  EventStore
	Sources SourceControl
	// Stored are the events that are kept for the app. Nil: there are none.
	Stored StoredRecords
	// Store is what BackUpStore copies. Nil: there is none.
	Store StoreCopier
	// UntilFull estimates when the store will be full; see [store.Store.UntilFull]. Nil: nobody does.
	UntilFull func() (time.Duration, bool)
	// Status describes the process. The answer is the caller's to keep.
	Status func(context.Context) *inboxv1.GetStatusResponse
	// Logger gets the audit lines, and the causes of what clients see as UNAVAILABLE or INTERNAL. Nil: nothing.
	Logger *slog.Logger
}

// Service implements the admin API of the inbox, pb/sidehook/inbox/v1. Who may call it is the listener's business.
// It is safe for concurrent use.
type Service struct {
	cfg ServiceConfig
	// change serialises what changes a source, so that an audit line's before and after are of one change.
	change sync.Mutex
}

var _ inboxv1connect.InboxServiceHandler = (*Service)(nil)

// NewService returns the handler of the admin API on top of cfg.
func NewService(cfg ServiceConfig) *Service {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.UntilFull == nil {
		cfg.UntilFull = func() (time.Duration, bool) { return 0, false }
	}
	if cfg.Stored == nil {
		cfg.Stored = noStored{}
	}
	return &Service{cfg: cfg}
}

// ListSources implements inboxv1connect.InboxServiceHandler.
func (s *Service) ListSources(context.Context, *connect.Request[inboxv1.ListSourcesRequest]) (*connect.Response[inboxv1.ListSourcesResponse], error) {
	res := &inboxv1.ListSourcesResponse{}
	for _, src := range s.cfg.Sources.Configured() {
		res.Sources = append(res.Sources, s.sourceMessage(src))
	}
	slices.SortFunc(res.Sources, func(a, b *inboxv1.Source) int { return cmp.Compare(a.Name, b.Name) })
	return connect.NewResponse(res), nil
}

// PauseSource implements inboxv1connect.InboxServiceHandler.
func (s *Service) PauseSource(ctx context.Context, req *connect.Request[inboxv1.PauseSourceRequest]) (*connect.Response[inboxv1.PauseSourceResponse], error) {
	src, err := s.steer(ctx, "source pause", req.Msg.GetSource(), s.cfg.Sources.Pause)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&inboxv1.PauseSourceResponse{Source: src}), nil
}

// ResumeSource implements inboxv1connect.InboxServiceHandler.
func (s *Service) ResumeSource(ctx context.Context, req *connect.Request[inboxv1.ResumeSourceRequest]) (*connect.Response[inboxv1.ResumeSourceResponse], error) {
	src, err := s.steer(ctx, "source resume", req.Msg.GetSource(), s.cfg.Sources.Resume)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&inboxv1.ResumeSourceResponse{Source: src}), nil
}

// GetStatus implements inboxv1connect.InboxServiceHandler.
func (s *Service) GetStatus(ctx context.Context, _ *connect.Request[inboxv1.GetStatusRequest]) (*connect.Response[inboxv1.GetStatusResponse], error) {
	return connect.NewResponse(s.cfg.Status(ctx)), nil
}

// BackUpStore implements inboxv1connect.InboxServiceHandler.
func (s *Service) BackUpStore(ctx context.Context, _ *connect.Request[inboxv1.BackUpStoreRequest], stream *connect.ServerStream[inboxv1.BackUpStoreResponse]) error {
	if s.cfg.Store == nil {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("there is no store"))
	}
	parts := bufio.NewWriterSize(partWriter{stream}, backupPartBytes)
	err := s.cfg.Store.WriteTo(ctx, parts)
	if err == nil {
		err = parts.Flush()
	}
	if err != nil {
		return s.failure(ctx, "back up the store", err)
	}
	s.audit(ctx, "store backup", "", "")
	return nil
}

// partWriter sends each Write as a part of a backup.
type partWriter struct {
	stream *connect.ServerStream[inboxv1.BackUpStoreResponse]
}

func (p partWriter) Write(b []byte) (int, error) {
	for part := range slices.Chunk(b, backupPartBytes) { // a large Write comes past the buffer
		if err := p.stream.Send(&inboxv1.BackUpStoreResponse{Data: part}); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// steer applies do to the configured source of that name, writes the audit line and returns the source as it is then.
func (s *Service) steer(ctx context.Context, what, name string, do func(name string)) (*inboxv1.Source, error) {
	if name == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errNoSourceName)
	}
	s.change.Lock()
	defer s.change.Unlock()
	sources := s.cfg.Sources.Configured()
	i := slices.IndexFunc(sources, func(src *Source) bool { return src.Name == name })
	if i < 0 {
		return nil, noSource(name)
	}
	before := s.cfg.Sources.Paused(name)
	do(name)
	after := s.cfg.Sources.Paused(name)
	s.audit(ctx, what, pauseWord(before), pauseWord(after), slog.String("source", name))
	return s.sourceMessage(sources[i]), nil
}

func (s *Service) sourceMessage(src *Source) *inboxv1.Source {
	return &inboxv1.Source{
		Name:     src.Name,
		Provider: src.Provider,
		Paused:   s.cfg.Sources.Paused(src.Name),
		Enforced: src.Enforce == EnforceOn,
		Secrets:  int32(len(src.Keys)),
	}
}

// failure turns an error of the inbox into what a client may see, and logs what it may not.
func (s *Service) failure(ctx context.Context, step string, err error) error {
	switch {
	case errors.Is(err, ErrNotFound):
		return connect.NewError(connect.CodeNotFound, errNoEvent)
	case errors.Is(err, ErrState):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	case errors.Is(err, ErrFilter):
		return invalid(err)
	case errors.Is(err, ErrJobs):
		return connect.NewError(connect.CodeResourceExhausted, err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "admin request", slog.String("step", step), slog.Any("err", err))
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFull) {
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

var (
	errNoSourceName = errors.New("source: required")
	errNoEventID    = errors.New("id: required")
	errNoEvent      = errors.New("the inbox holds no event of this source and id: its next delivery passes, unless its type is left out")
)

// invalid answers a request that breaks the rules at its fields.
func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }

func noSource(name string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("no source named %q: `sidehook source list` shows those that are configured", name))
}

func pauseWord(paused bool) string {
	if paused {
		return "paused"
	}
	return "running"
}
