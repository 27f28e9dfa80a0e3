package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/sidehook/sidehook/internal/actor"
	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
	"github.com/sidehook/sidehook/pb/sidehook/egress/v1/egressv1connect"
)

// serviceSender answers attempts by the event's type, and keeps what was sent.
type serviceSender struct {
	mu   sync.Mutex
	sent []Event
}

func (s *serviceSender) Send(_ context.Context, _ *Endpoint, ev *Event, _ int) Result {
	s.mu.Lock()
	s.sent = append(s.sent, *ev)
	s.mu.Unlock()
	r := Result{Outcome: OutcomeDelivered, Status: 200, Took: 3 * time.Millisecond, IP: netip.MustParseAddr("192.0.2.7"), Wrote: true}
	switch ev.Type {
	case "dead":
		r.Outcome, r.Status = OutcomeAbortAsked, 400
		r.Answer, r.AnswerBytes, r.Truncated = []byte("no such thing"), 5000, true
	case "later":
		r.Outcome, r.Status, r.RetryAfter = OutcomeRejected, 422, time.Hour
	}
	return r
}

func (s *serviceSender) events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// serviceLog is a log that many write to.
type serviceLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *serviceLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *serviceLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// audits are the audit lines since the last call, as `what before -> after`.
func (l *serviceLog) audits(t *testing.T) []string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for line := range strings.Lines(l.buf.String()) {
		var entry struct {
			Msg   string
			Audit struct{ Who, What, Before, After string }
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Msg == "audit" {
			if entry.Audit.Who != "127.0.0.1 with token" {
				t.Errorf("audit line names %q", entry.Audit.Who)
			}
			out = append(out, entry.Audit.What+": "+entry.Audit.Before+" -> "+entry.Audit.After)
		}
	}
	l.buf.Reset()
	return out
}

// serviceRig is the outbound half whole but for the network, its admin API, and a client of that over a pipe. It lives in a
// synctest bubble.
type serviceRig struct {
	egressv1connect.EgressServiceClient
	outbox   *BoltOutbox
	registry *Registry
	dispatch *Dispatcher
	sender   *serviceSender
	faults   *storetest.Faults
	log      *serviceLog
	// answers is all that the API ever answered, as it was on the wire.
	answers *serviceLog
}

// serviceTest runs test with a rig of its own in a bubble. The endpoints a and b are configured.
func serviceTest(t *testing.T, test func(t *testing.T, r *serviceRig)) {
	t.Helper()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &serviceRig{sender: &serviceSender{}, faults: &storetest.Faults{}, log: &serviceLog{}, answers: &serviceLog{}}
		st, err := store.Open(t.Context(), store.Options{Folder: folder, Commit: r.faults.Commit})
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		var changed func()
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		r.outbox, err = NewBoltOutbox(BoltOutboxConfig{Store: st, Logger: log})
		must(err)
		r.registry, err = NewRegistry(RegistryConfig{
			Store: st, Outbox: r.outbox, Sealer: testSealer(t, sealKeyA), Logger: log, Changed: func() { changed() },
		})
		must(err)
		r.dispatch, err = NewDispatcher(DispatcherConfig{
			Outbox: r.outbox, Sender: r.sender, Endpoints: r.registry.Endpoints, Paused: r.registry.Paused(), Logger: log,
		})
		must(err)
		changed = func() { must(r.dispatch.Refresh()) }
		r.outbox.SetChanges(r.dispatch)
		records, err := NewBoltRecords(BoltRecordsConfig{Outbox: r.outbox, Parked: r.dispatch.Parked, Sending: r.dispatch.InFlight, Logger: log})
		must(err)

		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		storeLife, endStore := context.WithCancel(context.WithoutCancel(t.Context()))
		var running, storing sync.WaitGroup
		storing.Go(func() { must(st.Run(storeLife)) })
		for _, run := range []func(context.Context) error{r.dispatch.Run, r.registry.Run, records.Run, r.outbox.Run} {
			running.Go(func() {
				if err := run(ctx); err != nil {
					t.Errorf("run: %v", err)
				}
			})
		}
		must(r.registry.SetConfig(t.Context(), registryConfig(t, filedEndpoint("a"), filedEndpoint("b"))))

		service := NewService(ServiceConfig{Records: records, Registry: r.registry, Switch: r.dispatch, Sender: r.sender, Logger: log})
		closeClient := r.connect(t, service)
		defer func() {
			closeClient()
			cancel()
			running.Wait()
			endStore()
			storing.Wait()
			must(st.Close())
			storetest.CheckFile(t, st.Path(), new(RowCheck))
		}()
		test(t, r)
	})
}

// filedEndpoint is an endpoint of the configuration that wants every event without a tenant.
func filedEndpoint(id string) *Endpoint {
	key, err := endpointScheme().ParseKey([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")) // of the specification's example
	if err != nil {
		panic(err)
	}
	e := &Endpoint{ID: id, Origin: OriginConfig, Policy: Policy{
		Timeout: 15 * time.Second, Schedule: DefaultSchedule(), RespectRetryAfter: true, OnGone: GoneDisables, MaxInFlight: 8,
	}}
	e.Target.URL = "https://" + id + ".example/"
	e.Keys = append(e.Keys, key)
	return e
}

// connect serves service on pipes, and makes the client.
func (r *serviceRig) connect(t *testing.T, service *Service) (end func()) {
	t.Helper()
	pipes := &servicePipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	path, handler := egressv1connect.NewEgressServiceHandler(service)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasPrefix(req.URL.Path, path) {
			t.Errorf("request for %s", req.URL.Path)
		}
		handler.ServeHTTP(w, req.WithContext(actor.With(req.Context(), "127.0.0.1 with token")))
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(pipes) })
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return pipes.dial() }}
	client := &http.Client{Transport: answerRecorder{transport, r.answers}}
	// JSON and not compressed, so that what is searched for in the answers is seen.
	r.EgressServiceClient = egressv1connect.NewEgressServiceClient(client, "http://localhost",
		connect.WithProtoJSON(), connect.WithAcceptCompression("gzip", nil, nil))
	return func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	}
}

// answerRecorder keeps the bodies of all answers.
type answerRecorder struct {
	next http.RoundTripper
	to   io.Writer
}

// RoundTrip implements http.RoundTripper.
func (a answerRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := a.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	if _, err := a.to.Write(append(body, '\n')); err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

// servicePipes accepts the other ends of in-memory pipes.
type servicePipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *servicePipes) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *servicePipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *servicePipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *servicePipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// accept has the outbox take an event, and waits until its first attempts are over.
func (r *serviceRig) accept(t *testing.T, id, eventType string, endpoints ...string) Receipt {
	t.Helper()
	e := boltEvent(id, `{"for":"`+id+`"}`)
	e.Type = eventType
	targets := make([]Target, len(endpoints))
	for i, id := range endpoints {
		targets[i].Endpoint = id
	}
	receipt, err := r.outbox.Accept(t.Context(), e, targets)
	if err != nil {
		t.Fatal(err)
	}
	r.settle()
	return receipt
}

// settle waits until nothing goes on any more but waiting for a clock, of which a second passes: lazy writes are on disk.
func (r *serviceRig) settle() {
	synctest.Wait()
	time.Sleep(time.Second)
	synctest.Wait()
}

// ask calls method; the test ends if that fails.
func ask[Req, Res any](t *testing.T, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) *Res {
	t.Helper()
	res, err := method(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg
}

// refused calls method, which must answer code with a text that holds words.
func refused[Req, Res any](t *testing.T, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req, code connect.Code, words string) {
	t.Helper()
	_, err := method(t.Context(), connect.NewRequest(req))
	if got := connect.CodeOf(err); err == nil || got != code || !strings.Contains(err.Error(), words) {
		t.Errorf("%v: %v, want %v with %q", req, err, code, words)
	}
	if ce, ok := errors.AsType[*connect.Error](err); ok && strings.Contains(ce.Message(), "store.go") {
		t.Errorf("the error tells of the inside: %v", err)
	}
}
