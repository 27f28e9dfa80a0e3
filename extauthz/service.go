package extauthz

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	Summary() ([]StateSummary, error)
}

// SourceControl is what the admin API needs of the gate. All methods are safe for concurrent use.
type SourceControl interface {
	// Configured returns the sources in force, in any order; the caller changes neither the list nor the sources.
	Configured() []*Source
	// Paused reports whether Pause holds for the source of that name.
	Paused(name string) bool
	// Pause makes the gate answer 503 to what it would let through for the source. It holds across reloads, in
	// memory only. Resume ends it. Both are harmless when called twice.
	Pause(name string)
	Resume(name string)
}

// StoreCopier writes a copy of the whole store; see store.Store.
type StoreCopier interface {
	WriteTo(ctx context.Context, w io.Writer) error
}

// ServiceConfig is what a Service stands on. All fields are required but Store and Logger.
type ServiceConfig struct {
	Events  EventStore
	Sources SourceControl
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
	inboxv1connect.UnimplementedInboxServiceHandler
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
	return &Service{cfg: cfg}
}

// ListEvents implements inboxv1connect.InboxServiceHandler.
func (s *Service) ListEvents(ctx context.Context, req *connect.Request[inboxv1.ListEventsRequest]) (*connect.Response[inboxv1.ListEventsResponse], error) {
	f, cursor, err := eventFilter(req.Msg)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	page, err := s.cfg.Events.List(ctx, f, cursor, int(cmp.Or(req.Msg.GetPageSize(), DefaultPageRows)))
	if err != nil {
		return nil, s.failure(ctx, "list events", err)
	}
	res := &inboxv1.ListEventsResponse{Events: make([]*inboxv1.Event, len(page.Records))}
	for i, e := range page.Records {
		res.Events[i] = eventMessage(e)
	}
	if page.Next != "" {
		res.NextPageToken = tokenPrefix(f) + page.Next
	}
	return connect.NewResponse(res), nil
}

// GetEvent implements inboxv1connect.InboxServiceHandler.
func (s *Service) GetEvent(ctx context.Context, req *connect.Request[inboxv1.GetEventRequest]) (*connect.Response[inboxv1.GetEventResponse], error) {
	key, err := eventKey(req.Msg.GetSource(), req.Msg.GetId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	e, err := s.cfg.Events.Get(key)
	if err != nil {
		return nil, s.failure(ctx, "get event", err)
	}
	return connect.NewResponse(&inboxv1.GetEventResponse{Event: eventMessage(e)}), nil
}

// Summarize implements inboxv1connect.InboxServiceHandler.
func (s *Service) Summarize(ctx context.Context, req *connect.Request[inboxv1.SummarizeRequest]) (*connect.Response[inboxv1.SummarizeResponse], error) {
	counts, err := s.cfg.Events.Summary()
	if err != nil {
		return nil, s.failure(ctx, "summarize the inbox", err)
	}
	only := req.Msg.GetSource()
	bySource := make(map[string]*inboxv1.SourceSummary)
	summary := func(name string) *inboxv1.SourceSummary {
		m := bySource[name]
		if m == nil {
			m = &inboxv1.SourceSummary{Source: name, States: emptyStates()}
			bySource[name] = m
		}
		return m
	}
	for _, src := range s.cfg.Sources.Configured() {
		if only == "" || src.Name == only {
			summary(src.Name).Configured = true
		}
	}
	for _, c := range counts {
		if only != "" && c.Source != only {
			continue
		}
		if c.Count == 0 && bySource[c.Source] == nil {
			continue // a source that is gone, and so are its events
		}
		for _, st := range summary(c.Source).States {
			if st.State == stateMessage(c.State) {
				st.Count, st.Bytes, st.OldestTime = c.Count, c.Bytes, timeMessage(c.Oldest)
			}
		}
	}
	if only != "" && len(bySource) == 0 {
		return nil, noSource(only)
	}
	res := &inboxv1.SummarizeResponse{}
	if left, ok := s.cfg.UntilFull(); ok {
		res.HoursUntilFull = new(left.Hours())
	}
	for _, m := range bySource {
		res.Sources = append(res.Sources, m)
	}
	slices.SortFunc(res.Sources, func(a, b *inboxv1.SourceSummary) int { return cmp.Compare(a.Source, b.Source) })
	return connect.NewResponse(res), nil
}

// ReleaseEvent implements inboxv1connect.InboxServiceHandler.
func (s *Service) ReleaseEvent(ctx context.Context, req *connect.Request[inboxv1.ReleaseEventRequest]) (*connect.Response[inboxv1.ReleaseEventResponse], error) {
	key, err := eventKey(req.Msg.GetSource(), req.Msg.GetId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	was, err := s.cfg.Events.Get(key)
	if err == nil {
		err = s.cfg.Events.Release(ctx, key)
	}
	if err != nil {
		return nil, s.failure(ctx, "release event", err)
	}
	e := eventMessage(was)
	s.audit(ctx, "inbox release", was.State.String(), StateReleased.String(),
		slog.String("source", e.GetSource()), slog.String("event_id", e.GetId()))
	return connect.NewResponse(&inboxv1.ReleaseEventResponse{Event: e}), nil
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
		return connect.NewError(connect.CodeNotFound,
			errors.New("the inbox holds no event of this source and id: its next delivery passes, unless its type is left out"))
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
)

func noSource(name string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("no source named %q: `sidehook source list` shows those that are configured", name))
}

func pauseWord(paused bool) string {
	if paused {
		return "paused"
	}
	return "running"
}

// eventFilter checks and translates a ListEventsRequest.
func eventFilter(m *inboxv1.ListEventsRequest) (f Filter, cursor string, err error) {
	var errs []error
	if n := m.GetPageSize(); n < 0 || n > MaxPageRows {
		errs = append(errs, fmt.Errorf("page_size: %d is not within 0 to %d", n, MaxPageRows))
	}
	f.Source = m.GetSource()
	if f.State, err = stateOf(m.GetState()); err != nil {
		errs = append(errs, err)
	}
	if f.Type, err = unescape(m.GetType()); err != nil {
		errs = append(errs, fmt.Errorf("type: %w", err))
	}
	for _, b := range []struct {
		name string
		from *timestamppb.Timestamp
		to   *time.Time
	}{{"since", m.GetSince(), &f.Since}, {"until", m.GetUntil(), &f.Until}} {
		if b.from == nil {
			continue
		}
		if err := b.from.CheckValid(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", b.name, err))
		}
		*b.to = b.from.AsTime()
	}
	if m.GetSince() != nil && m.GetUntil() != nil && !f.Since.Before(f.Until) {
		errs = append(errs, errors.New("until: not after since, so that nothing can match"))
	}
	if token := m.GetPageToken(); token != "" {
		var ok bool
		if cursor, ok = strings.CutPrefix(token, tokenPrefix(f)); !ok || cursor == "" {
			errs = append(errs, errors.New("page_token: not one that this API gave for these filters"))
		}
	}
	return f, cursor, errors.Join(errs...)
}

// tokenPrefix stands before the inbox's cursor in a page token and names the filters that the cursor belongs to:
// going on with other ones would leave out rows in silence. Times are not among them, for people give them as how long
// ago.
func tokenPrefix(f Filter) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d %q", f.Source, f.State, f.Type)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:6]) + "."
}

// eventKey checks and translates the name of an event.
func eventKey(source, id string) (Key, error) {
	var errs []error
	if source == "" {
		errs = append(errs, errNoSourceName)
	}
	if id == "" {
		errs = append(errs, errNoEventID)
	}
	raw, err := unescape(id)
	if err != nil {
		errs = append(errs, fmt.Errorf("id: %w", err))
	}
	return Key{Source: source, ID: keyID(raw)}, errors.Join(errs...)
}
