package egress

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sidehook/sidehook/internal/loglimit"
)

// Defaults of IntakeConfig.
const (
	DefaultMaxEventBytes = 256 << 10
	// DefaultIntakeBytes is room for 256 of the largest events, and for tens of thousands of usual ones.
	DefaultIntakeBytes = 64 << 20
)

// Where events are posted.
const (
	eventsPath    = "/v1/events"
	endpointsPath = "/v1/endpoints/"
)

// Codes of IntakeConfig.Count beside those of problems.
const (
	// IntakeAccepted: the event is on disk with at least one delivery.
	IntakeAccepted = "accepted"
	// IntakeNoEndpoint: the event is on disk, and no endpoint wants it or has room for it.
	IntakeNoEndpoint = "no_endpoint"
	// IntakeRepeated: the event was there already, and the first answer was given again.
	IntakeRepeated = "repeated"
)

// IntakeCodes returns all that IntakeConfig.Count is called with.
func IntakeCodes() []string {
	codes := []string{IntakeAccepted, IntakeNoEndpoint, IntakeRepeated}
	for code := problemCode(1); code < problemCodes; code++ {
		codes = append(codes, problems[code].name)
	}
	return codes
}

// Accepter is what the intake needs of an Outbox.
type Accepter interface {
	Accept(ctx context.Context, e *Event, targets []Target) (Receipt, error)
}

// IntakeConfig is what an Intake stands on.
type IntakeConfig struct {
	// Outbox takes the events. Required.
	Outbox Accepter
	// Endpoints returns those in force; it is asked for each event. Required.
	Endpoints func() *Endpoints
	// Parked reports whether what goes to the endpoint waits because it is disabled or paused. Nil: none is.
	Parked func(endpoint string) bool
	// MaxBytesInFlight bounds the events in hand, as they were posted. 0: DefaultIntakeBytes.
	MaxBytesInFlight int64
	// Settings are those at the start; see SetSettings.
	Settings IntakeSettings
	// Token returns the bearer token that every request must show, or nothing where none is configured. It is asked
	// for each request, so that a reload takes hold at once. Nil: none is configured.
	Token func() []byte
	// Logger hears of requests that do not come from the app, and of what could not be stored. Nil: nothing.
	Logger *slog.Logger
	// Count is told how each event and each refused request ended: one of IntakeCodes. Nil: nobody counts.
	Count func(code string)
	// EndpointFull is told of each delivery that was not made because its endpoint has as many open ones as it may
	// have. Nil: nobody counts.
	EndpointFull func(endpoint string)
}

// IntakeSettings are what may change while an Intake runs.
type IntakeSettings struct {
	// MaxEventBytes bounds one posted event: the whole body, or a line of NDJSON. 0: DefaultMaxEventBytes. It cannot be
	// more than MaxBytesInFlight.
	MaxEventBytes int
	// Hosts are the names, beside those of loopback, that a request may have in its Host header: without port, in any
	// case.
	Hosts []string
}

// Intake takes events from the app:
//
//	POST /v1/events                  an event as JSON, a CloudEvent, or NDJSON of events
//	POST /v1/endpoints/{id}/events   a body of any content type, sent to that endpoint as it is
//
// It answers 202 once the event and its deliveries are on disk. The listener is on loopback or a socket, where browsers
// and the app's own requests reach it too: see judge for whom it lets in. Server limits are the listener's, but
// that NDJSON has its own deadlines.
type Intake struct {
	cfg      IntakeConfig
	settings atomic.Pointer[IntakeSettings] // nobody changes what it points to
	// bytes bounds the events in hand: what does not fit is refused at once, but for a line of NDJSON, which waits.
	bytes *semaphore.Weighted
	// refused and failed bound the lines of the log about requests that were kept out, and events that were not stored.
	refused, failed loglimit.Limiter

	stop     chan struct{} // closed by Stop
	stopOnce sync.Once
}

// NewIntake returns the handler of the intake on top of cfg.
func NewIntake(cfg IntakeConfig) *Intake {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Parked == nil {
		cfg.Parked = func(string) bool { return false }
	}
	if cfg.Count == nil {
		cfg.Count = func(string) {}
	}
	if cfg.EndpointFull == nil {
		cfg.EndpointFull = func(string) {}
	}
	cfg.MaxBytesInFlight = cmp.Or(cfg.MaxBytesInFlight, DefaultIntakeBytes)
	in := &Intake{cfg: cfg, bytes: semaphore.NewWeighted(cfg.MaxBytesInFlight), stop: make(chan struct{})}
	in.SetSettings(cfg.Settings)
	return in
}

// SetSettings has s hold from the next request on. It keeps s.Hosts.
func (in *Intake) SetSettings(s IntakeSettings) {
	s.MaxEventBytes = int(min(int64(cmp.Or(s.MaxEventBytes, DefaultMaxEventBytes)), in.cfg.MaxBytesInFlight))
	in.settings.Store(&s)
}

// Stop ends requests of NDJSON between two lines: what was read is stored and answered. Without it a client that keeps
// one open would hold up the end of the process. It is for http.Server.RegisterOnShutdown, and harmless when called twice.
func (in *Intake) Stop() { in.stopOnce.Do(func() { close(in.stop) }) }

func (in *Intake) stopped() bool {
	select {
	case <-in.stop:
		return true
	default:
		return false
	}
}

// ServeHTTP implements http.Handler.
func (in *Intake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := in.judge(r); p != nil {
		in.logRefusal(r, p)
		in.refuse(w, p)
		return
	}
	endpoint, raw, p := route(r)
	switch {
	case p != nil:
		in.refuse(w, p)
	case raw && isCloudEvent(r.Header):
		in.takeBinary(w, r, endpoint)
	case raw:
		in.takeRaw(w, r, endpoint)
	default:
		in.takeEvents(w, r)
	}
}

// route tells the paths apart: the endpoint of the raw one, or not raw.
func route(r *http.Request) (endpoint string, raw bool, p *problem) {
	path := r.URL.Path
	if path != eventsPath {
		rest, ok := strings.CutPrefix(path, endpointsPath)
		if ok {
			endpoint, ok = strings.CutSuffix(rest, "/events")
		}
		if !ok || endpoint == "" || strings.Contains(endpoint, "/") {
			return "", false, newProblem(problemNotFound, "events are posted to /v1/events and /v1/endpoints/{id}/events")
		}
		raw = true
	}
	if r.Method != http.MethodPost {
		return "", false, newProblem(problemMethod, "")
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return "", false, newProblem(problemMediaType, "post the body without Content-Encoding: it is sent as it was posted")
	}
	return endpoint, raw, nil
}

// acceptTries is how often an event is tried whose endpoints are removed while it is stored.
const acceptTries = 3

// accept stores what was posted.
func (in *Intake) accept(ctx context.Context, p *post) (Receipt, *problem) {
	var err error
	for range acceptTries {
		targets, refusal := in.targets(p)
		if refusal != nil {
			return Receipt{}, refusal
		}
		var receipt Receipt
		if receipt, err = in.cfg.Outbox.Accept(ctx, p.event(time.Now()), targets); err == nil {
			in.count(&receipt)
			return receipt, nil
		}
		if !errors.Is(err, ErrNotFound) {
			break
		}
	}
	return Receipt{}, in.storeProblem(ctx, err)
}

// targets finds out where a post goes. One that names an endpoint goes there whatever types that endpoint wants: the app
// has said so. The tenant of a raw post is its endpoint's.
func (in *Intake) targets(p *post) ([]Target, *problem) {
	set := in.cfg.Endpoints()
	if set.awaits(p.endpoint, p.eventType, p.tenant) {
		return nil, newProblem(problemUnavailable, "an endpoint that it goes to is new, and the store has not taken that yet: nothing was stored")
	}
	if p.endpoint == "" {
		var room [8]*Endpoint
		wanting := set.Wanting(room[:0], p.eventType, p.tenant)
		targets := make([]Target, len(wanting))
		for i, e := range wanting {
			targets[i] = in.target(e)
		}
		return targets, nil
	}
	e := set.ByID(p.endpoint)
	if e == nil {
		refusal := newProblem(problemUnknownEndpoint, "no endpoint has the id "+quoted(p.endpoint))
		if p.byPath {
			refusal.status = http.StatusNotFound
		}
		return nil, refusal
	}
	if p.byPath {
		p.tenant = e.Tenant
	} else if e.Tenant != p.tenant {
		return nil, newProblem(problemTenantMismatch, "an event goes only to endpoints of exactly its tenant")
	}
	return []Target{in.target(e)}, nil
}

func (in *Intake) target(e *Endpoint) Target {
	return Target{Endpoint: e.ID, Parked: e.Unusable != "" || in.cfg.Parked(e.ID)}
}

// storeProblem says what the app is told of an error of the outbox.
func (in *Intake) storeProblem(ctx context.Context, err error) *problem {
	switch {
	case errors.Is(err, ErrConflict):
		return newProblem(problemConflict, "an event of this tenant and id with other content is kept: use another id")
	case ctx.Err() != nil:
		return newProblem(problemUnavailable, "") // nobody reads it: the app has gone, or the server stops
	}
	p := newProblem(problemUnavailable, "post it again under the same id, it may be stored")
	if errors.Is(err, ErrFull) {
		p = newProblem(problemStoreFull, "nothing was stored")
	}
	if ok, left := in.failed.Take(time.Now(), 1); ok {
		in.cfg.Logger.LogAttrs(ctx, slog.LevelError, "event not taken", slog.String("reason", problems[p.code].name),
			slog.Any("err", err), slog.Int64("left_out", left))
	}
	return p
}

// count tells how an accepted event ended.
func (in *Intake) count(r *Receipt) {
	if r.Repeat {
		in.cfg.Count(IntakeRepeated)
		return
	}
	made := false
	for i := range r.Deliveries {
		if d := &r.Deliveries[i]; d.Full {
			in.cfg.EndpointFull(d.Endpoint)
		} else {
			made = true
		}
	}
	if made {
		in.cfg.Count(IntakeAccepted)
	} else {
		in.cfg.Count(IntakeNoEndpoint)
	}
}

// jsonType is shared by all answers. Nobody changes it.
var jsonType = []string{"application/json"}

// answer writes the 202, or the problem.
func (in *Intake) answer(w http.ResponseWriter, receipt *Receipt, p *problem) {
	if p != nil {
		in.refuse(w, p)
		return
	}
	buf := takeBuffer()
	*buf = append(appendReceipt(append((*buf)[:0], '{'), receipt), '\n')
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(*buf) // the app has gone; it will post the event again and get this answer
	giveBuffer(buf)
}

// appendReceipt appends the members of the answer to an accepted event, and the brace after them.
func appendReceipt(dst []byte, r *Receipt) []byte {
	dst = appendJSONString(append(dst, `"id":`...), r.EventID)
	dst = append(dst, `,"deliveries":[`...)
	for i := range r.Deliveries {
		d := &r.Deliveries[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		if d.Full {
			dst = appendJSONString(append(dst, `{"endpoint":`...), d.Endpoint)
			dst = append(dst, `,"error":"endpoint_full"}`...)
			continue
		}
		dst = d.ID.appendTo(append(dst, `{"id":"`...))
		dst = appendJSONString(append(dst, `","endpoint":`...), d.Endpoint)
		if d.Parked {
			dst = append(dst, `,"state":"PARKED"}`...)
		} else {
			dst = append(dst, `,"state":"WAITING"}`...)
		}
	}
	return append(dst, `]}`...)
}

// refuse counts p and answers with it.
func (in *Intake) refuse(w http.ResponseWriter, p *problem) {
	in.cfg.Count(problems[p.code].name)
	p.write(w)
}

// quoted writes what the app sent for a problem's detail.
func quoted(s string) string { return strconv.QuoteToASCII(bounded(s)) }

// bounded cuts s to what an answer or a log line can bear.
func bounded(s string) string {
	const most = 128
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
