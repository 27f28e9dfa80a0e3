package egress

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// dispatchSent is one attempt as the receiver saw it.
type dispatchSent struct {
	endpoint string
	id       uint64 // the event's
	at       time.Duration
	attempt  int
}

// dispatchSender makes attempts as it is told, and watches over what must never be: two of one delivery at one time, or one
// after a success.
type dispatchSender struct {
	t     testing.TB
	start time.Time
	send  func(ctx context.Context, e *Endpoint, ev *Event, attempt int) Result

	mu     sync.Mutex
	flying map[dispatchFlying]bool
	taken  map[dispatchFlying]bool
	now    map[string]int // in flight by endpoint
	most   map[string]int
	total  int
	mostOf int // in all
	sent   []dispatchSent
}

type dispatchFlying struct {
	endpoint string
	event    uint64
}

func (s *dispatchSender) Send(ctx context.Context, e *Endpoint, ev *Event, attempt int) Result {
	key := dispatchFlying{e.ID, ev.Seq}
	s.mu.Lock()
	if s.flying[key] {
		s.t.Errorf("event %s goes to %s twice at one time", ev.ID, e.ID)
	}
	if s.taken[key] {
		s.t.Errorf("event %s goes to %s again after a success", ev.ID, e.ID)
	}
	s.flying[key] = true
	s.now[e.ID]++
	s.total++
	s.most[e.ID], s.mostOf = max(s.most[e.ID], s.now[e.ID]), max(s.mostOf, s.total)
	s.sent = append(s.sent, dispatchSent{e.ID, ev.Seq, time.Since(s.start), attempt})
	s.mu.Unlock()
	r := s.send(ctx, e, ev, attempt)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flying, key)
	s.now[e.ID]--
	s.total--
	if r.delivered() {
		s.taken[key] = true
	}
	return r
}

// atOnce returns how many attempts to an endpoint are in flight, mostTo how many were at most.
func (s *dispatchSender) atOnce(endpoint string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now[endpoint]
}

func (s *dispatchSender) mostTo(endpoint string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most[endpoint]
}

// inFlight returns how many are in flight in all, mostInAll how many were at most.
func (s *dispatchSender) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func (s *dispatchSender) mostInAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mostOf
}

// to returns the attempts to an endpoint.
func (s *dispatchSender) to(endpoint string) (sent []dispatchSent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.sent {
		if a.endpoint == endpoint {
			sent = append(sent, a)
		}
	}
	return sent
}

// dispatchTake is a receiver that takes everything after a while, and gives up on it when ctx ends.
func dispatchTake(after time.Duration) func(context.Context, *Endpoint, *Event, int) Result {
	return func(ctx context.Context, _ *Endpoint, _ *Event, _ int) Result {
		return dispatchAfter(ctx, after, Result{Outcome: OutcomeDelivered, Status: 200})
	}
}

func dispatchAfter(ctx context.Context, after time.Duration, r Result) Result {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.Took = after
		return r
	case <-ctx.Done():
		return Result{Outcome: OutcomeInterrupted}
	}
}

// dispatchRig is a dispatcher with all that it needs. Its methods are called in the bubble in which it was made.
type dispatchRig struct {
	t       *testing.T
	outbox  *dispatchOutbox
	sender  *dispatchSender
	cfg     DispatcherConfig
	d       *Dispatcher
	set     atomic.Pointer[Endpoints]
	mu      sync.Mutex
	notices []Notice
	lines   dispatchLines
	cancel  context.CancelFunc
	ended   chan error
	cease   context.CancelFunc
}

// newDispatchRig makes one; call start.
func newDispatchRig(t *testing.T, endpoints ...*Endpoint) *dispatchRig {
	r := &dispatchRig{t: t, outbox: newDispatchOutbox()}
	r.sender = &dispatchSender{
		t: t, start: time.Now(), send: dispatchTake(0), flying: make(map[dispatchFlying]bool), taken: make(map[dispatchFlying]bool),
		now: make(map[string]int), most: make(map[string]int),
	}
	r.set.Store(NewEndpoints(endpoints))
	r.cfg = DispatcherConfig{
		Outbox: r.outbox, Sender: r.sender, Endpoints: r.set.Load, Logger: slog.New(&r.lines),
		Notify: func(n Notice) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notices = append(r.notices, n)
		},
	}
	return r
}

// start makes the dispatcher and runs it until stop.
func (r *dispatchRig) start() *dispatchRig {
	r.t.Helper()
	r.make()
	r.run()
	return r
}

func (r *dispatchRig) make() {
	r.t.Helper()
	d, err := NewDispatcher(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.d, r.outbox.changes = d, d
}

func (r *dispatchRig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	outboxCtx, cease := context.WithCancel(context.WithoutCancel(r.t.Context()))
	r.cancel, r.cease, r.ended = cancel, cease, make(chan error, 1)
	go r.outbox.run(outboxCtx)
	go func() { r.ended <- r.d.Run(ctx) }()
	synctest.Wait()
}

// stop stops the dispatcher and returns what its Run returned.
func (r *dispatchRig) stop() error {
	r.cancel()
	err := <-r.ended
	r.cease()
	return err
}

// finish stops it and expects no error.
func (r *dispatchRig) finish() {
	r.t.Helper()
	if err := r.stop(); err != nil {
		r.t.Errorf("run: %v", err)
	}
	r.d.mu.RLock()
	defer r.d.mu.RUnlock()
	if len(r.d.flights) != 0 || r.d.total != 0 || r.d.slow != 0 || r.d.bytes != 0 {
		r.t.Errorf("%d in flight, counted %d, %d of them slow, with %d bytes, after the end", len(r.d.flights), r.d.total, r.d.slow, r.d.bytes)
	}
}

// swap puts other endpoints in force.
func (r *dispatchRig) swap(endpoints ...*Endpoint) {
	r.t.Helper()
	r.set.Store(NewEndpoints(endpoints))
	if err := r.d.Refresh(); err != nil {
		r.t.Fatal(err)
	}
}

// told returns the notices of that kind.
func (r *dispatchRig) told(k NoticeKind) (ns []Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.notices {
		if n.Kind == k {
			ns = append(ns, n)
		}
	}
	return ns
}

// dispatchEndpoint has the default policy, and as many in flight as it says.
func dispatchEndpoint(id string, inFlight int) *Endpoint {
	return &Endpoint{ID: id, Origin: OriginConfig, Owner: id + "@example.com", Policy: Policy{
		Timeout: 15 * time.Second, Schedule: DefaultSchedule(), RespectRetryAfter: true, OnGone: GoneDisables, MaxInFlight: inFlight,
		DisableAfter: 5 * 24 * time.Hour,
	}}
}

// dispatchLines keeps what is logged. It implements slog.Handler.
type dispatchLines struct {
	mu    sync.Mutex
	lines []dispatchLine
}

type dispatchLine struct {
	level slog.Level
	text  string
	attrs map[string]string
}

func (l *dispatchLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *dispatchLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *dispatchLines) WithGroup(string) slog.Handler            { return l }
func (l *dispatchLines) Handle(_ context.Context, r slog.Record) error {
	line := dispatchLine{r.Level, r.Message, make(map[string]string)}
	r.Attrs(func(a slog.Attr) bool {
		line.attrs[a.Key] = a.Value.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// of returns the lines with that text.
func (l *dispatchLines) of(text string) (lines []dispatchLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if line.text == text {
			lines = append(lines, line)
		}
	}
	return lines
}

// bubble runs f in a synctest bubble.
func dispatchBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}
