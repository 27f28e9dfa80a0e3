package extauthz

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sidehook/sidehook/internal/actor"
	"github.com/sidehook/sidehook/internal/signature"
	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// fakeEvents keeps rows in memory, in key order; looks is the most rows that one List reads.
type fakeEvents struct {
	mu    sync.Mutex
	rows  []Record
	looks int
	err   error
}

func (f *fakeEvents) List(_ context.Context, q Filter, cursor string, rows int) (Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return Page{}, f.err
	}
	var p Page
	looked := 0
	for _, r := range f.rows {
		at := r.Key.Source + "/" + r.Key.ID
		if at <= cursor {
			continue
		}
		if len(p.Records) == rows || looked == f.looks {
			return p, nil
		}
		looked++
		p.Next = at
		if (q.Source == "" || q.Source == r.Key.Source) && q.selects(&r) {
			p.Records = append(p.Records, r)
		}
	}
	p.Next = ""
	return p, nil
}

func (f *fakeEvents) find(key Key) int {
	return slices.IndexFunc(f.rows, func(r Record) bool { return r.Key == key })
}

func (f *fakeEvents) Get(key Key) (Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.find(key)
	if f.err != nil || i < 0 {
		return Record{}, cmp.Or(f.err, ErrNotFound)
	}
	return f.rows[i], nil
}

func (f *fakeEvents) Release(_ context.Context, key Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.find(key)
	if f.err != nil || i < 0 {
		return cmp.Or(f.err, ErrNotFound)
	}
	f.rows = slices.Delete(f.rows, i, i+1)
	return nil
}

func (f *fakeEvents) Discard(_ context.Context, key Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.find(key)
	if f.err != nil || i < 0 {
		return cmp.Or(f.err, ErrNotFound)
	}
	f.rows[i].State = StateDiscarded
	return nil
}

func (f *fakeEvents) Summary() ([]StateSummary, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []StateSummary
	for _, r := range f.rows {
		i := slices.IndexFunc(out, func(c StateSummary) bool { return c.Source == r.Key.Source && c.State == r.State })
		if i < 0 {
			out = append(out, StateSummary{Source: r.Key.Source, State: r.State, Oldest: r.Last})
			i = len(out) - 1
		}
		out[i].Count++
		out[i].Bytes += 100
	}
	return out, f.err
}

// fakeSources is the gate's half, in memory.
type fakeSources struct {
	mu      sync.Mutex
	sources []*Source
	paused  map[string]bool
}

func (f *fakeSources) Configured() []*Source { return f.sources }

func (f *fakeSources) Paused(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paused[name]
}

func (f *fakeSources) Pause(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused[name] = true
}

func (f *fakeSources) Resume(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.paused, name)
}

var seenAt = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newTestService(rows ...Record) (*Service, *fakeEvents, *bytes.Buffer) {
	events := &fakeEvents{rows: rows, looks: 1 << 30}
	log := new(bytes.Buffer)
	return NewService(ServiceConfig{
		Events: events,
		Sources: &fakeSources{
			sources: []*Source{
				{Name: "payments", Provider: "stripe", Enforce: EnforceOn, Keys: make([]signature.Key, 2)},
				{Name: "chat", Provider: "slack", Enforce: EnforceReport, Keys: make([]signature.Key, 1)},
			},
			paused: make(map[string]bool),
		},
		Status: func(context.Context) *inboxv1.GetStatusResponse { return &inboxv1.GetStatusResponse{Version: "v1.2.3"} },
		Logger: slog.New(slog.NewJSONHandler(log, nil)),
	}), events, log
}

// testToken begins a page token of a listing by rows.
func testToken(f StoredFilter) string {
	l := listing{StoredFilter: f}
	return l.tokenPrefix() + tokenClaims
}

func record(source, id string, state State) Record {
	return Record{Key: Key{Source: source, ID: id}, State: state, Type: "a.b", First: seenAt, Last: seenAt}
}

// Thousands of rows come exactly once each, in order, whatever the page size, and although the store ends pages early.
func TestListEventsPaging(t *testing.T) {
	t.Parallel()
	var rows []Record
	for i := range 5000 {
		rows = append(rows, record("payments", fmt.Sprintf("evt_%05d", i), State(1+i%3)))
	}
	for _, tc := range []struct {
		name  string
		size  int32
		state inboxv1.EventState
		looks int
		want  int
	}{
		{"default page", 0, 0, 1 << 30, 5000},
		{"largest page", 1000, 0, 1 << 30, 5000},
		{"odd page", 37, 0, 1 << 30, 5000},
		{"filtered", 100, inboxv1.EventState_EVENT_STATE_DONE, 1 << 30, 1666},
		// The store gives up after two rows: pages without a row must not end the listing.
		{"bounded work", 100, inboxv1.EventState_EVENT_STATE_UNKNOWN, 2, 1667},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, events, _ := newTestService(rows...)
			events.looks = tc.looks
			req := &inboxv1.ListEventsRequest{PageSize: tc.size, State: tc.state}
			var got []string
			for {
				res, err := s.ListEvents(t.Context(), connect.NewRequest(req))
				if err != nil {
					t.Fatal(err)
				}
				if n, most := len(res.Msg.GetEvents()), cmp.Or(int(tc.size), DefaultPageRows); n > most {
					t.Fatalf("page of %d events, want at most %d", n, most)
				}
				for _, e := range res.Msg.GetEvents() {
					got = append(got, e.GetId())
				}
				if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
					break
				}
			}
			if len(got) != tc.want || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != tc.want {
				t.Errorf("got %d events (sorted %t), want %d different ones in order", len(got), slices.IsSorted(got), tc.want)
			}
		})
	}
}

func TestListEventsRefuses(t *testing.T) {
	t.Parallel()
	at := timestamppb.New(seenAt)
	for _, tc := range []struct {
		name string
		req  *inboxv1.ListEventsRequest
		want string
	}{
		{"page too large", &inboxv1.ListEventsRequest{PageSize: 1001}, "page_size"},
		{"page negative", &inboxv1.ListEventsRequest{PageSize: -1}, "page_size"},
		{"state out of range", &inboxv1.ListEventsRequest{State: 99}, "state"},
		{"state wraps a byte", &inboxv1.ListEventsRequest{State: 257}, "state"},
		{"state negative", &inboxv1.ListEventsRequest{State: -1}, "state"},
		{"type badly escaped", &inboxv1.ListEventsRequest{Type: "50%"}, "type"},
		{"time out of range", &inboxv1.ListEventsRequest{Since: &timestamppb.Timestamp{Nanos: -1}}, "since"},
		{"empty range", &inboxv1.ListEventsRequest{Since: at, Until: at}, "until"},
		{"token of nobody", &inboxv1.ListEventsRequest{PageToken: "a+b="}, "page_token"},
		{"token of other filters", &inboxv1.ListEventsRequest{Source: "payments", PageToken: testToken(StoredFilter{Source: "chat"}) + "x"}, "page_token"},
		{"token without cursor", &inboxv1.ListEventsRequest{PageToken: testToken(StoredFilter{})}, "page_token"},
		{"token of the other listing", &inboxv1.ListEventsRequest{
			State: inboxv1.EventState_EVENT_STATE_DEAD, PageToken: testToken(StoredFilter{State: StateDead}) + "x",
		}, "page_token"},
		{"reason of what has no attempts", &inboxv1.ListEventsRequest{Reason: "rejected"}, "reason"},
		{"tenant badly escaped", &inboxv1.ListEventsRequest{Tenant: "%"}, "tenant"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, _, _ := newTestService()
			_, err := s.ListEvents(t.Context(), connect.NewRequest(tc.req))
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), tc.want+":") {
				t.Errorf("got %v, want INVALID_ARGUMENT naming %s", err, tc.want)
			}
		})
	}
}

func TestListEventsTimes(t *testing.T) {
	t.Parallel()
	early, late := record("payments", "early", StateDone), record("payments", "late", StateDone)
	late.Last = seenAt.Add(time.Hour)
	s, _, _ := newTestService(early, late)
	for _, tc := range []struct {
		name         string
		since, until *timestamppb.Timestamp
		want         []string
	}{
		{"since is inclusive", timestamppb.New(late.Last), nil, []string{"late"}},
		{"until is exclusive", nil, timestamppb.New(late.Last), []string{"early"}},
		{"both", timestamppb.New(early.Last), timestamppb.New(late.Last.Add(1)), []string{"early", "late"}},
	} {
		res, err := s.ListEvents(t.Context(), connect.NewRequest(&inboxv1.ListEventsRequest{Since: tc.since, Until: tc.until}))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range res.Msg.GetEvents() {
			got = append(got, e.GetId())
		}
		if d := gocmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, d)
		}
	}
}

// An id of any bytes goes out in printable ASCII and comes back to the same row.
func TestEventByHostileID(t *testing.T) {
	t.Parallel()
	id := "a%20\x1b[2J\xff/é"
	r := record("payments", id, StatePending)
	r.LeaseLeft, r.OpenTokens = time.Minute, 2
	s, _, _ := newTestService(r)
	list, err := s.ListEvents(t.Context(), connect.NewRequest(&inboxv1.ListEventsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	shown := list.Msg.GetEvents()[0].GetId()
	if want := "a%2520%1B[2J%FF/%C3%A9"; shown != want {
		t.Fatalf("id shown as %q, want %q", shown, want)
	}
	got, err := s.GetEvent(t.Context(), connect.NewRequest(&inboxv1.GetEventRequest{Source: "payments", Id: shown}))
	if err != nil {
		t.Fatal(err)
	}
	want := &inboxv1.Event{
		Source: "payments", Id: shown, State: inboxv1.EventState_EVENT_STATE_PENDING, Type: "a.b",
		CreateTime: timestamppb.New(seenAt), SeenTime: timestamppb.New(seenAt), LeaseLeft: durationpb.New(time.Minute), OpenLeases: 2,
	}
	if d := gocmp.Diff(want, got.Msg.GetEvent(), protocmp.Transform()); d != "" {
		t.Errorf("event (-want +got):\n%s", d)
	}
}

func TestReleaseEvent(t *testing.T) {
	t.Parallel()
	s, events, log := newTestService(record("payments", "evt_1", StateDone))
	ctx := actor.With(t.Context(), "unix")
	req := &inboxv1.ReleaseEventRequest{Source: "payments", Id: "evt_1"}
	res, err := s.ReleaseEvent(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Msg.GetEvent().GetState(); got != inboxv1.EventState_EVENT_STATE_DONE || len(events.rows) != 0 {
		t.Errorf("released a %v event, %d rows left; want DONE and none", got, len(events.rows))
	}
	want := map[string]any{"who": "unix", "what": "inbox release", "source": "payments", "event_id": "evt_1", "before": "DONE", "after": "RELEASED"}
	if d := gocmp.Diff([]map[string]any{want}, auditLines(t, log)); d != "" {
		t.Errorf("audit (-want +got):\n%s", d)
	}
	if _, err := s.ReleaseEvent(ctx, connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("second release: %v, want NOT_FOUND", err)
	}
	if n := len(auditLines(t, log)); n != 1 {
		t.Errorf("%d audit lines, want that of the release that did something", n)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s, _, log := newTestService()
	paused, err := s.PauseSource(t.Context(), connect.NewRequest(&inboxv1.PauseSourceRequest{Source: "payments"}))
	if err != nil || !paused.Msg.GetSource().GetPaused() {
		t.Fatalf("pause: %v, %v; want a paused source", paused, err)
	}
	list, err := s.ListSources(t.Context(), connect.NewRequest(&inboxv1.ListSourcesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	want := []*inboxv1.Source{
		{Name: "chat", Provider: "slack", Secrets: 1},
		{Name: "payments", Provider: "stripe", Paused: true, Enforced: true, Secrets: 2},
	}
	if d := gocmp.Diff(want, list.Msg.GetSources(), protocmp.Transform()); d != "" {
		t.Errorf("sources (-want +got):\n%s", d)
	}
	resumed, err := s.ResumeSource(t.Context(), connect.NewRequest(&inboxv1.ResumeSourceRequest{Source: "payments"}))
	if err != nil || resumed.Msg.GetSource().GetPaused() {
		t.Fatalf("resume: %v, %v; want a running source", resumed, err)
	}
	wantLines := []map[string]any{
		{"who": "unknown", "what": "source pause", "source": "payments", "before": "running", "after": "paused"},
		{"who": "unknown", "what": "source resume", "source": "payments", "before": "paused", "after": "running"},
	}
	if d := gocmp.Diff(wantLines, auditLines(t, log)); d != "" {
		t.Errorf("audit (-want +got):\n%s", d)
	}
	if _, err := s.PauseSource(t.Context(), connect.NewRequest(&inboxv1.PauseSourceRequest{Source: "nobody"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("pause of an unknown source: %v, want NOT_FOUND", err)
	}
	if _, err := s.PauseSource(t.Context(), connect.NewRequest(&inboxv1.PauseSourceRequest{})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("pause of no source: %v, want INVALID_ARGUMENT", err)
	}
}

// removing is a SourceControl whose configuration loses every source while one is paused.
type removing struct{ *fakeSources }

func (r removing) Pause(name string) {
	r.fakeSources.Pause(name)
	r.sources = nil
}

func TestPauseWhileTheSourceIsRemoved(t *testing.T) {
	t.Parallel()
	sources := removing{&fakeSources{sources: []*Source{{Name: "chat"}, {Name: "payments"}}, paused: make(map[string]bool)}}
	s := NewService(ServiceConfig{Events: &fakeEvents{}, Sources: sources})
	res, err := s.PauseSource(t.Context(), connect.NewRequest(&inboxv1.PauseSourceRequest{Source: "payments"}))
	if err != nil || res.Msg.GetSource().GetName() != "payments" || !res.Msg.GetSource().GetPaused() {
		t.Errorf("pause: %v, %v; want the source as it was, paused", res, err)
	}
}

// What a client sees of a fault is a code and a phrase; the cause, with its paths, stays in the log.
func TestServiceFailures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		err    error
		want   connect.Code
		logged bool
	}{
		{"store away", fmt.Errorf("read /var/lib/x: %w", ErrUnavailable), connect.CodeUnavailable, true},
		{"store full", fmt.Errorf("read /var/lib/x: %w", ErrFull), connect.CodeUnavailable, true},
		{"client gone", context.Canceled, connect.CodeCanceled, false},
		{"too slow", context.DeadlineExceeded, connect.CodeDeadlineExceeded, false},
		{"anything else", errors.New("read /var/lib/x: odd"), connect.CodeInternal, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, events, log := newTestService()
			events.err = tc.err
			_, err := s.ListEvents(t.Context(), connect.NewRequest(&inboxv1.ListEventsRequest{}))
			if connect.CodeOf(err) != tc.want {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if strings.Contains(err.Error(), "/var/lib") {
				t.Errorf("the answer shows the cause: %v", err)
			}
			if got := strings.Contains(log.String(), "/var/lib/x"); got != tc.logged {
				t.Errorf("cause logged: %t, want %t: %s", got, tc.logged, log)
			}
		})
	}
}

func TestEventKeyRefuses(t *testing.T) {
	t.Parallel()
	s, _, _ := newTestService(record("payments", "50", StateDone))
	for _, tc := range []struct{ name, source, id string }{
		{"no source", "", "50"}, {"no id", "payments", ""}, {"cut escape", "payments", "50%2"}, {"no hex", "payments", "50%zz"},
	} {
		_, err := s.GetEvent(t.Context(), connect.NewRequest(&inboxv1.GetEventRequest{Source: tc.source, Id: tc.id}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: got %v, want INVALID_ARGUMENT", tc.name, err)
		}
	}
}

func FuzzUnescape(f *testing.F) {
	for _, s := range []string{"", "evt_1", "%", "%25", "é", "\x00\xff \x7f~"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := percentEncode(s)
		if i := strings.IndexFunc(e, func(r rune) bool { return r < 0x20 || r > 0x7e }); i >= 0 {
			t.Fatalf("percentEncode(%q) = %q: byte %d is not printable ASCII", s, e, i)
		}
		if back, err := unescape(e); err != nil || back != s {
			t.Fatalf("unescape(%q) = %q, %v; want %q", e, back, err, s)
		}
	})
}

// auditLines returns the audit groups in log.
func auditLines(t *testing.T, log *bytes.Buffer) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(log.String()) {
		var l struct {
			Msg   string         `json:"msg"`
			Audit map[string]any `json:"audit"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if l.Msg == "audit" {
			out = append(out, l.Audit)
		}
	}
	return out
}
