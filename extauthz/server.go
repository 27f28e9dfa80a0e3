package extauthz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// answerMargin is what of Envoy's time limit is kept for the answer's way back: later, Envoy answers by itself.
	answerMargin = 20 * time.Millisecond
	// releaseTimeout bounds handing a release to the inbox after Envoy hung up.
	releaseTimeout = 5 * time.Second
)

// Config is what New needs.
type Config struct {
	// Inbox is where claims are kept. Required.
	Inbox Inbox
	// Sources is the table at start; Swap replaces it. Required.
	Sources *Sources
	// Keys gives keys that senders publish; nil: none can be had.
	Keys KeySource
	// MaxBodiesInFlight bounds, in bytes, the bodies of all Checks under way; zero: DefaultMaxBodiesInFlight.
	MaxBodiesInFlight int64
	// Passed, if not nil, is told the source of each request that goes to the app under a claim. It must not block.
	Passed func(source string)
	// Logger; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil: they are kept, but not exported.
	Registerer prometheus.Registerer
}

// Server is the gate: it answers envoy.service.auth.v3.Authorization/Check. It starts no goroutine and is safe for
// concurrent use.
type Server struct {
	inbox   Inbox
	keys    KeySource
	passed  func(source string)
	log     *slog.Logger
	metrics gateMetrics
	bodies  budget
	flights *flights

	swapping sync.Mutex // one Swap, Pause or Resume at a time
	table    atomic.Pointer[table]
	stopped  atomic.Pointer[map[string]bool] // paused sources by name; replaced whole, never changed
}

var (
	_ authv3.AuthorizationServer = (*Server)(nil)
	_ SourceControl              = (*Server)(nil)
)

// New makes a gate.
func New(cfg Config) (*Server, error) {
	if cfg.Inbox == nil || cfg.Sources == nil {
		return nil, errors.New("gate: inbox and sources are required")
	}
	s := &Server{
		inbox:   cfg.Inbox,
		keys:    cfg.Keys,
		passed:  cfg.Passed,
		log:     cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		bodies:  budget{limit: cmp.Or(cfg.MaxBodiesInFlight, DefaultMaxBodiesInFlight)},
		flights: newFlights(),
	}
	if s.keys == nil {
		s.keys = noKeys{}
	}
	if s.passed == nil {
		s.passed = func(string) {}
	}
	if err := s.metrics.register(cfg.Registerer, func() float64 { return float64(s.bodies.used.Load()) }); err != nil {
		return nil, err
	}
	s.stopped.Store(&map[string]bool{})
	s.Swap(cfg.Sources)
	return s, nil
}

// Swap puts another table in force, whole and at once. Checks under way end by the table they began with.
func (s *Server) Swap(sources *Sources) {
	s.swapping.Lock()
	defer s.swapping.Unlock()
	next := &table{sources: sources, bound: s.metrics.swap(sources.All())}
	s.bindTenants(next.bound)
	s.table.Store(next)
	s.countPaused()
}

// Configured implements SourceControl.
func (s *Server) Configured() []*Source { return s.table.Load().sources.All() }

// Pause implements SourceControl: until Resume, every verified event of the source is answered 503.
func (s *Server) Pause(name string) { s.pause(name, true) }

// Resume implements SourceControl.
func (s *Server) Resume(name string) { s.pause(name, false) }

// Paused implements SourceControl.
func (s *Server) Paused(name string) bool { return (*s.stopped.Load())[name] }

func (s *Server) pause(name string, paused bool) {
	s.swapping.Lock()
	defer s.swapping.Unlock()
	next := maps.Clone(*s.stopped.Load())
	if paused {
		next[name] = true
	} else {
		delete(next, name)
	}
	s.stopped.Store(&next)
	s.countPaused()
}

// countPaused sets the metric: a source that was removed keeps its pause, but nobody could end it. Needs swapping.
func (s *Server) countPaused() {
	paused := 0
	for _, src := range s.Configured() {
		if s.Paused(src.Name) {
			paused++
		}
	}
	s.metrics.paused.Set(float64(paused))
}

// Check implements authv3.AuthorizationServer. It never returns an error: what we cannot decide is a 503, which makes
// the sender come again.
func (s *Server) Check(ctx context.Context, in *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	var req request
	req.reset()
	req.fill(ctx, in)
	d := s.check(ctx, &req)
	return d.response(), nil
}

// check is the root of every Check, in whatever form the message came. The decision is complete, counted and logged;
// it shares no memory with req. It passes only what Envoy still waits for when it is made.
func (s *Server) check(ctx context.Context, req *request) (d decision) {
	start := time.Now()
	defer func() {
		if p := recover(); p != nil {
			d = decision{reason: ReasonInternal, err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
		d.answer()
		s.record(ctx, req, &d, start)
	}()
	return s.flights.do(ctx, req, s.judge)
}

// receive takes room for a body that is about to be received, of as many bytes as Envoy announces. Where there is none,
// or most is exceeded, it answers in place of the Check, which is then neither received nor known to be any source's.
func (s *Server) receive(ctx context.Context, size, most int64) (refusal decision, ok bool) {
	switch {
	case size > most:
		refusal.reason = ReasonTooLarge
	case !s.bodies.take(size):
		refusal.reason = ReasonBusy
	default:
		return refusal, true
	}
	refusal.answer()
	s.record(ctx, &request{}, &refusal, time.Now())
	return refusal, false
}

// judge finds the source of a request and lets that decide.
func (s *Server) judge(ctx context.Context, req *request) decision {
	if req.get(headerDelivery) != "" {
		return decision{reason: ReasonLoop}
	}
	more := max(0, int64(len(req.body))-req.room)
	b, reason := s.table.Load().route(req)
	if b != nil {
		more += b.unzipped(req)
	}
	if !s.bodies.take(more) {
		return decision{reason: ReasonBusy, in: b}
	}
	defer s.bodies.give(more)
	switch {
	case b == nil:
		d := decision{reason: reason}
		if d.pass() {
			d.remove = cloneNames(req.reserved)
		}
		return d
	case reason != 0:
		return s.settle(ctx, b, req, verified{}, decision{reason: reason})
	}
	now := time.Now()
	v, d := b.examine(ctx, s.keys, req, now)
	return s.settle(ctx, b, req, v, d)
}

// settle turns what a source's examination found into the decision. A refusal of zero reason is none.
func (s *Server) settle(ctx context.Context, b *bound, req *request, v verified, refusal decision) (d decision) {
	defer func() { d.in, d.tenant = b, v.tenant }()
	reporting := b.source.Enforce == EnforceReport
	if refusal.reason != 0 && !reporting {
		return refusal
	}
	if s.Paused(b.source.Name) {
		return decision{reason: ReasonPaused, event: v.event, eventType: v.eventType}
	}
	switch {
	case ctx.Err() != nil:
		return decision{reason: ReasonCancelled, err: context.Cause(ctx)}
	case reporting:
		return b.report(req, v, refusal)
	case b.source.Verifier == nil:
		return decision{reason: ReasonUnverified, remove: cloneNames(req.reserved)}
	case v.id == "" && v.ignore:
		return b.settled(ReasonIgnored, v)
	case v.id == "" && b.source.Mode == ModeStore:
		v.id = newRequestID()
		v.event = v.id
		return s.admit(ctx, b, req, v)
	case v.id == "":
		d = b.passing(req, v)
		d.reason = ReasonUnclaimed
		return d
	default:
		return s.admit(ctx, b, req, v)
	}
}

// admit takes the event's id and lets the request through, or answers for what holds the id.
func (s *Server) admit(ctx context.Context, b *bound, req *request, v verified) decision {
	store, cancel := withMargin(ctx)
	defer cancel()
	ask := b.claimRequest(v)
	if b.source.Mode == ModeStore {
		ask.Store = b.stored(req, ask.Key, v)
		var extra int64
		if ask.Split, extra = b.split(ask); !s.bodies.take(extra) {
			return decision{reason: ReasonBusy, event: v.event, eventType: v.eventType}
		}
		defer s.bodies.give(extra)
	}
	claim, err := s.claim(store, ask, b.source.InFlightWait)
	d := decision{event: v.event, eventType: v.eventType}
	switch {
	case err != nil:
		d.reason, d.err = claimFailure(ctx, err), err
		return d
	case claim.Outcome == Stored:
		return b.settled(ReasonStored, v)
	case claim.Outcome == Duplicate:
		return b.settled(ReasonDuplicate, v)
	case claim.Outcome == Ignored:
		return b.settled(ReasonIgnored, v)
	case claim.Outcome == Stale:
		return b.settled(ReasonStale, v)
	case claim.Outcome == DuplicateChange:
		return b.settled(ReasonDuplicateChange, v)
	case claim.Outcome == InFlight:
		d.reason, d.retry = ReasonInFlight, max(claim.RetryAfter, time.Second)
		return d
	case claim.Outcome == Held:
		d.reason, d.retry = ReasonHeld, claim.RetryAfter
		return d
	case claim.Outcome != Claimed:
		d.reason, d.err = ReasonInternal, fmt.Errorf("inbox outcome %d", claim.Outcome)
		return d
	}
	pass := b.passing(req, v)
	pass.reason, pass.ref = ReasonPassed, encodeRef(ask.Key, claim.Token)
	pass.tellSeen(claim.Seen)
	if ctx.Err() != nil {
		d.reason, d.err = ReasonCancelled, errors.Join(context.Cause(ctx), s.release(ctx, ask.Key, claim.Token))
		return d
	}
	s.passed(b.source.Name)
	return pass
}

// settled is the answer to what the sender need not send again.
func (b *bound) settled(reason Reason, v verified) decision {
	d := decision{reason: reason, event: v.event, eventType: v.eventType}
	if r := b.source.Reply; r != (Reply{}) {
		d.status, d.contentType, d.body = r.Status, cmp.Or(r.ContentType, contentTypeText), r.Body
	}
	return d
}

// claim asks the inbox, and asks again whenever the first of the id has ended while there is time to wait for it.
func (s *Server) claim(ctx context.Context, ask ClaimRequest, wait time.Duration) (Claim, error) {
	claim, err := s.inbox.Claim(ctx, ask)
	if err != nil || claim.Outcome != InFlight || wait <= 0 {
		return claim, err
	}
	asked := time.Now()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for err == nil && claim.Outcome == InFlight {
		select {
		case <-claim.Wait:
			claim, err = s.inbox.Claim(ctx, ask)
			asked = time.Now()
		case <-timer.C:
			claim.RetryAfter -= time.Since(asked)
			return claim, nil
		case <-ctx.Done():
			return claim, context.Cause(ctx)
		}
	}
	return claim, err
}

// release gives a claim back whose request Envoy will not send.
func (s *Server) release(ctx context.Context, key Key, token Token) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := s.inbox.Settle(ctx, key, token, EndReleased, false); err != nil {
		return fmt.Errorf("release claim: %w", err)
	}
	return nil
}

// claimFailure says what a Claim that failed means to the sender. ctx is Envoy's: when it has ended nobody is there to
// be told; when only our own limit has, the store was too slow.
func claimFailure(ctx context.Context, err error) Reason {
	switch {
	case ctx.Err() != nil:
		return ReasonCancelled
	case errors.Is(err, ErrFull):
		return ReasonFull
	default:
		return ReasonUnavailable
	}
}

// withMargin is ctx with a deadline that leaves time to answer. A limit too short for that is halved.
func withMargin(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	margin := min(answerMargin, time.Until(deadline)/2)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

// cloneNames copies header names out of the received message.
func cloneNames(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	names = slices.Clone(names)
	for i := range names {
		names[i] = strings.Clone(names[i])
	}
	return names
}
