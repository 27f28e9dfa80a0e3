package sidecar

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/actor"
	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// fillStored has an event in each state; those in PASS are of the source pass.
func fillStored(b *storedBench) {
	b.Helper()
	ctx := b.Context()
	for _, id := range []string{"waits", "sending", "dead", "taken", "dropped", "caféd"} {
		b.keep("shop", "", id, "a.b")
		time.Sleep(time.Minute)
	}
	b.keep("shop", "t 1", "of-tenant", "c.d")
	b.keep("away", "", "lost", "a.b")
	b.settle("waits", egress.StateWaiting, egress.OutcomeServerError)
	b.settle("dead", egress.StateDead, egress.OutcomeRejected)
	b.settle("caféd", egress.StateDead, egress.OutcomeGone)
	b.settle("taken", egress.StateDelivered, egress.OutcomeDelivered)
	b.sending[b.events["sending"]] = true
	if err := b.outbox.SetEndpoints(ctx, []string{"shop"}); err != nil {
		b.Fatal(err)
	}
	b.gone["away"] = true
	for _, c := range []struct {
		id  string
		on  extauthz.OnUnknown
		end extauthz.End
	}{{"passed", extauthz.OnUnknownRetry, extauthz.EndDone}, {"held", extauthz.OnUnknownHold, 0}, {"held-2", extauthz.OnUnknownHold, 0}, {"open", extauthz.OnUnknownRetry, 0}} {
		key := extauthz.Key{Source: "pass", ID: c.id}
		claim, err := b.inbox.Claim(ctx, extauthz.ClaimRequest{Key: key, Lease: time.Minute, OnUnknown: c.on, Type: "p.q"})
		if err == nil && c.end != 0 {
			err = b.inbox.Settle(ctx, key, claim.Token, c.end, true)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(2 * time.Minute)
	b.call(b.service.DiscardEvents(ctx, connect.NewRequest(&inboxv1.DiscardEventsRequest{Events: []*inboxv1.EventName{
		{Source: "shop", Id: "dropped"}, {Source: "pass", Id: "held-2"},
	}})))
	b.log.Reset()
}

func TestStoredEventsAreListed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openStored(t, folder)
		start := time.Now()
		fillStored(b)
		state := func(name string) inboxv1.EventState {
			return inboxv1.EventState(inboxv1.EventState_value["EVENT_STATE_"+name])
		}
		for _, tt := range []struct {
			name string
			req  *inboxv1.ListEventsRequest
			want string
		}{
			{"all, by source and id", &inboxv1.ListEventsRequest{},
				"lost:ORPHANED held:UNKNOWN held-2:DISCARDED open:PENDING passed:DONE caf%C3%A9d:DEAD dead:DEAD dropped:DISCARDED sending:DELIVERING taken:DONE waits:STORED of-tenant:STORED"},
			{"done, in PASS and in STORE", &inboxv1.ListEventsRequest{State: state("DONE")}, "passed:DONE taken:DONE"},
			{"stored, the newest first", &inboxv1.ListEventsRequest{State: state("STORED")}, "of-tenant:STORED waits:STORED"},
			{"stored, of a source", &inboxv1.ListEventsRequest{State: state("STORED"), Source: "shop"}, "of-tenant:STORED waits:STORED"},
			{"with the app", &inboxv1.ListEventsRequest{State: state("DELIVERING")}, "sending:DELIVERING"},
			{"dead", &inboxv1.ListEventsRequest{State: state("DEAD")}, "caf%C3%A9d:DEAD dead:DEAD"},
			{"dead, of a reason", &inboxv1.ListEventsRequest{State: state("DEAD"), Reason: "gone"}, "caf%C3%A9d:DEAD"},
			{"dead, taken before", &inboxv1.ListEventsRequest{State: state("DEAD"), Until: timestamppb.New(start.Add(3 * time.Minute))}, "dead:DEAD"},
			{"dead, taken since", &inboxv1.ListEventsRequest{State: state("DEAD"), Since: timestamppb.New(start.Add(3 * time.Minute))}, "caf%C3%A9d:DEAD"},
			{"orphaned", &inboxv1.ListEventsRequest{State: state("ORPHANED")}, "lost:ORPHANED"},
			{"discarded, in STORE and then in PASS", &inboxv1.ListEventsRequest{State: state("DISCARDED")}, "dropped:DISCARDED held-2:DISCARDED"},
			{"discarded, of a reason that none has", &inboxv1.ListEventsRequest{State: state("DISCARDED"), Reason: "gone"}, ""},
			{"of a tenant", &inboxv1.ListEventsRequest{Tenant: "t%201"}, "of-tenant:STORED"},
			{"of a source and tenant", &inboxv1.ListEventsRequest{Source: "shop", Tenant: "t%201"}, "of-tenant:STORED"},
			{"stored, of a tenant", &inboxv1.ListEventsRequest{Tenant: "t%201", State: state("STORED")}, "of-tenant:STORED"},
			{"stored, of a type", &inboxv1.ListEventsRequest{Type: "a.b", State: state("STORED")}, "waits:STORED"},
			{"unknown, which is none of the stored", &inboxv1.ListEventsRequest{State: state("UNKNOWN")}, "held:UNKNOWN"},
		} {
			for _, size := range []int32{0, 1} {
				tt.req.PageSize = size
				if got := strings.Join(b.list(tt.req), " "); got != tt.want {
					t.Errorf("%s, pages of %d:\n got %s\nwant %s", tt.name, size, got, tt.want)
				}
			}
		}
		_, err := b.service.ListEvents(t.Context(), connect.NewRequest(&inboxv1.ListEventsRequest{State: state("DEAD"), Reason: "bad luck"}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "want one of") {
			t.Errorf("a reason that there is not: %v, want INVALID_ARGUMENT that lists them", err)
		}
		b.end()
	})
}

func TestStoredEventIsShown(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openStored(t, folder)
		fillStored(b)
		ctx := actor.With(t.Context(), "a person")
		res, err := b.service.GetEvent(ctx, connect.NewRequest(&inboxv1.GetEventRequest{Source: "shop", Id: "caf%C3%A9d", IncludeBody: true}))
		if err != nil {
			t.Fatal(err)
		}
		e := res.Msg.GetEvent()
		body := "body of caféd"
		sum := sha256.Sum256([]byte(body))
		want := &inboxv1.Delivery{
			Id: b.events["caféd"].String(), AcceptTime: e.GetCreateTime(), Attempts: 1, Tries: 1, EndTime: e.GetDelivery().GetEndTime(), Reason: "gone",
			BodyBytes: int64(len(body)), BodyKept: true, BodySha256: sum[:],
		}
		if diff := cmp.Diff(want, e.GetDelivery(), protocmp.Transform()); diff != "" {
			t.Errorf("delivery (-want +got):\n%s", diff)
		}
		if e.GetDelivery().GetEndTime() == nil || e.GetSeenTime() == nil {
			t.Errorf("%v: want when it ended, and when it was last seen", e)
		}
		request := &inboxv1.Request{
			Method: "POST", Target: "/in?q=1", Authority: "app.example", Headers: []*inboxv1.Header{{Name: "x-odd", Value: "a\ufffdb"}}, Body: []byte(body),
		}
		if diff := cmp.Diff(request, res.Msg.GetRequest(), protocmp.Transform()); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
		if a := res.Msg.GetAttempts(); len(a) != 1 || a[0].GetOutcome() != "gone" || a[0].GetStatus() != 422 || a[0].GetIp() != "127.0.0.1" ||
			string(a[0].GetAnswer()) != "no" || a[0].GetTrigger() != inboxv1.AttemptTrigger_ATTEMPT_TRIGGER_SCHEDULE {
			t.Errorf("attempts %v, want the one that was made", a)
		}
		if line := b.log.String(); !strings.Contains(line, `"who":"a person","what":"inbox show body","source":"shop","event_id":"caf%C3%A9d"`) {
			t.Errorf("audit log %s: want who looked at the body", line)
		}
		byDelivery, err := b.service.GetEvent(ctx, connect.NewRequest(&inboxv1.GetEventRequest{Delivery: b.events["caféd"].String()}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, byDelivery.Msg.GetEvent(), protocmp.Transform()); diff != "" || byDelivery.Msg.GetRequest() != nil {
			t.Errorf("by its delivery, without the body (-by id +by delivery):\n%s", diff)
		}
		for _, tt := range []struct {
			name string
			req  *inboxv1.GetEventRequest
			want connect.Code
		}{
			{"a delivery that there is not", &inboxv1.GetEventRequest{Delivery: egress.DeliveryID{}.String()}, connect.CodeNotFound},
			{"no delivery at all", &inboxv1.GetEventRequest{Delivery: "dlv_1"}, connect.CodeInvalidArgument},
			{"both names", &inboxv1.GetEventRequest{Source: "shop", Id: "dead", Delivery: b.events["dead"].String()}, connect.CodeInvalidArgument},
			{"without its tenant", &inboxv1.GetEventRequest{Source: "shop", Id: "of-tenant"}, connect.CodeNotFound},
		} {
			if _, err := b.service.GetEvent(ctx, connect.NewRequest(tt.req)); connect.CodeOf(err) != tt.want {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
			}
		}
		b.end()
	})
}

func TestStoredEventsAreCounted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openStored(t, folder)
		fillStored(b)
		res, err := b.service.Summarize(t.Context(), connect.NewRequest(&inboxv1.SummarizeRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range res.Msg.GetSources() {
			for _, c := range s.GetStates() {
				if c.GetCount() != 0 {
					got = append(got, fmt.Sprintf("%s %s %d %s", s.GetSource(), word(c.GetState()), c.GetCount(), c.GetLastReason()))
				}
				if c.GetCount() != 0 && (c.GetBytes() == 0 || c.GetOldestTime() == nil) {
					t.Errorf("%s %v: want its bytes and its oldest", s.GetSource(), c)
				}
			}
		}
		// What is in flight is counted as STORED, and a claim under HOLD as PENDING until the purger has seen that its lease is over.
		want := []string{
			"away ORPHANED 1 ", "pass PENDING 2 ", "pass DONE 1 ", "pass DISCARDED 1 ", "shop DONE 1 delivered",
			"shop STORED 3 server_error", "shop DISCARDED 1 ", "shop DEAD 2 gone",
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		b.end()
	})
}

// TestStoredEventsAreChanged does to an event in each state what a person may ask for.
func TestStoredEventsAreChanged(t *testing.T) {
	t.Parallel()
	const gone, passed = "its body is not kept any more", "nothing is kept of it but its id"
	for _, tt := range []struct {
		source, id string
		// What each of the three says; empty: it is done, and the event is then as the second says.
		release, redeliver, redelivered, discard, discarded string
	}{
		{"shop", "waits", "discard it first", "", "STORED", "", "DISCARDED"},
		{"shop", "sending", "discard it first", "", "DELIVERING", "", "DISCARDED"},
		{"shop", "dead", "", "", "STORED", "", "DISCARDED"},
		{"shop", "taken", "", gone, "DONE", "it is DONE", "DONE"},
		{"shop", "dropped", "", gone, "DISCARDED", "it is DISCARDED", "DISCARDED"},
		{"away", "lost", "discard it first", "it is ORPHANED", "ORPHANED", "", "DISCARDED"},
		{"pass", "passed", "", passed, "DONE", "it is DONE", "DONE"},
		{"pass", "held", "", passed, "UNKNOWN", "", "DISCARDED"},
		{"pass", "held-2", "", passed, "DISCARDED", "it is DISCARDED", "DISCARDED"},
		{"pass", "open", "", passed, "PENDING", "it is PENDING", "PENDING"},
		{"pass", "nobody", "holds no event", "holds no event", "UNSPECIFIED", "holds no event", "UNSPECIFIED"},
	} {
		t.Run(tt.id, func(t *testing.T) {
			t.Parallel()
			name := &inboxv1.EventName{Source: tt.source, Id: tt.id}
			result := func(t *testing.T, what string, r []*inboxv1.EventResult, err error, problem, now string) {
				t.Helper()
				switch {
				case err != nil:
					t.Fatal(err)
				case len(r) != 1 || problem == "" != (r[0].GetError() == "") || !strings.Contains(r[0].GetError(), problem) || word(r[0].GetNow()) != now:
					t.Errorf("%s: %v, want it %s, and said: %q", what, r, now, problem)
				}
			}
			for what, act := range map[string]func(t *testing.T, b *storedBench){
				"release": func(t *testing.T, b *storedBench) {
					_, err := b.service.ReleaseEvent(b.Context(), connect.NewRequest(&inboxv1.ReleaseEventRequest{Source: tt.source, Id: tt.id}))
					if tt.release != "" {
						if err == nil || !strings.Contains(err.Error(), tt.release) {
							t.Errorf("release: %v, want %q", err, tt.release)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					// The next delivery is new.
					key := extauthz.Key{Source: tt.source, ID: tt.id}
					c, err := b.inbox.Claim(b.Context(), extauthz.ClaimRequest{Key: key, Lease: time.Minute, OnUnknown: extauthz.OnUnknownRetry})
					if err != nil || c.Outcome != extauthz.Claimed {
						t.Errorf("the next delivery: %+v, %v, want it claimed", c, err)
					}
				},
				"redeliver": func(t *testing.T, b *storedBench) {
					res, err := b.service.RedeliverEvents(b.Context(), connect.NewRequest(&inboxv1.RedeliverEventsRequest{Events: []*inboxv1.EventName{name}}))
					result(t, "redeliver", res.Msg.GetResults(), err, tt.redeliver, tt.redelivered)
				},
				"discard": func(t *testing.T, b *storedBench) {
					res, err := b.service.DiscardEvents(b.Context(), connect.NewRequest(&inboxv1.DiscardEventsRequest{Events: []*inboxv1.EventName{name}}))
					result(t, "discard", res.Msg.GetResults(), err, tt.discard, tt.discarded)
				},
			} {
				folder := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					b := openStored(t, folder)
					fillStored(b)
					act(t, b)
					done := map[string]string{"release": tt.release, "redeliver": tt.redeliver, "discard": tt.discard}[what] == ""
					if audited := strings.Contains(b.log.String(), `"what":"inbox `+what+`","source":"`+tt.source+`","event_id":"`+tt.id+`"`); audited != done {
						t.Errorf("%s is in the audit log: %t, want %t: %s", what, audited, done, b.log.String())
					}
					b.end()
				})
			}
		})
	}
}

// A dead letter whose id was released is named by its delivery; the id is that of the event that came after it.
func TestReleasedDeadLetter(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openStored(t, folder)
		b.keep("shop", "", "evt", "a.b")
		first := b.events["evt"]
		b.settle("evt", egress.StateDead, egress.OutcomeRejected)
		b.call(b.service.ReleaseEvent(t.Context(), connect.NewRequest(&inboxv1.ReleaseEventRequest{Source: "shop", Id: "evt"})))
		b.keep("shop", "", "evt", "a.b")
		for name, want := range map[*inboxv1.GetEventRequest]string{
			{Source: "shop", Id: "evt"}:          "STORED",
			{Delivery: first.String()}:           "DEAD",
			{Delivery: b.events["evt"].String()}: "STORED",
		} {
			res, err := b.service.GetEvent(t.Context(), connect.NewRequest(name))
			if err != nil || word(res.Msg.GetEvent().GetState()) != want {
				t.Errorf("%v: %v, %v, want %s", name, res, err, want)
			}
		}
		res, err := b.service.RedeliverEvents(t.Context(), connect.NewRequest(&inboxv1.RedeliverEventsRequest{Events: []*inboxv1.EventName{{Delivery: first.String()}}}))
		if err != nil || word(res.Msg.GetResults()[0].GetNow()) != "STORED" {
			t.Errorf("redeliver: %v, %v, want it STORED", res, err)
		}
		b.end()
	})
}

func TestStoredEventIsExpunged(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openStored(t, folder)
		fillStored(b)
		for _, tt := range []struct{ source, id, state string }{
			{"shop", "waits", "DISCARDED"}, {"shop", "dead", "DISCARDED"}, {"away", "lost", "DISCARDED"}, {"shop", "taken", "DONE"}, {"pass", "passed", "DONE"},
		} {
			for range 2 { // twice is harmless
				res, err := b.service.ExpungeEvent(t.Context(), connect.NewRequest(&inboxv1.ExpungeEventRequest{Event: &inboxv1.EventName{Source: tt.source, Id: tt.id}}))
				if err != nil {
					t.Fatal(err)
				}
				if e := res.Msg.GetEvent(); word(e.GetState()) != tt.state || e.GetDelivery().GetBodyKept() || e.GetCreateTime() == nil {
					t.Errorf("%s: %v, want it %s, its times there and its body not", tt.id, e, tt.state)
				}
			}
			res, err := b.service.GetEvent(t.Context(), connect.NewRequest(&inboxv1.GetEventRequest{Source: tt.source, Id: tt.id, IncludeBody: true}))
			if err != nil || len(res.Msg.GetRequest().GetBody()) > 0 || len(res.Msg.GetRequest().GetHeaders()) > 0 {
				t.Errorf("%s: %v, %v: something of the request is there", tt.id, res, err)
			}
		}
		if lines := strings.Count(b.log.String(), `"what":"inbox expunge"`); lines == 0 {
			t.Error("nothing of it in the audit log")
		}
		b.end()
	})
}

func TestStoredEventsByJob(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openStored(t, folder)
		fillStored(b)
		ctx := t.Context()
		shop := &inboxv1.Filter{Source: "shop"}
		counted, err := b.service.RedeliverEvents(ctx, connect.NewRequest(&inboxv1.RedeliverEventsRequest{Filter: shop, DryRun: true}))
		if err != nil || counted.Msg.GetMatched() != 2 || counted.Msg.GetJob() != nil {
			t.Errorf("dry run: %v, %v, want 2 and no job", counted, err)
		}
		slow, err := b.service.RedeliverEvents(ctx, connect.NewRequest(&inboxv1.RedeliverEventsRequest{Filter: shop, Rate: 0.001}))
		if err != nil || slow.Msg.GetJob().GetTotal() != 2 {
			t.Fatalf("job: %v, %v, want one over 2", slow, err)
		}
		cancelled, err := b.service.CancelJob(ctx, connect.NewRequest(&inboxv1.CancelJobRequest{Id: slow.Msg.GetJob().GetId()}))
		if err != nil || cancelled.Msg.GetJob().GetState() != inboxv1.JobState_JOB_STATE_CANCELLED {
			t.Errorf("cancel: %v, %v", cancelled, err)
		}
		if _, err := b.service.CancelJob(ctx, connect.NewRequest(&inboxv1.CancelJobRequest{Id: slow.Msg.GetJob().GetId()})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("cancelled twice: %v, want FAILED_PRECONDITION", err)
		}
		b.call(b.service.DiscardEvents(ctx, connect.NewRequest(&inboxv1.DiscardEventsRequest{
			Filter: &inboxv1.Filter{State: inboxv1.EventState_EVENT_STATE_ORPHANED},
		})))
		b.call(b.service.RedeliverEvents(ctx, connect.NewRequest(&inboxv1.RedeliverEventsRequest{Filter: shop})))
		time.Sleep(time.Minute)
		jobs, err := b.service.ListJobs(ctx, connect.NewRequest(&inboxv1.ListJobsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, j := range jobs.Msg.GetJobs() {
			got = append(got, fmt.Sprintf("%d %s %s %d", j.GetId(), j.GetKind(), j.GetState(), j.GetDone()))
		}
		if len(got) != 3 || got[1] != "2 JOB_KIND_DISCARD JOB_STATE_DONE 1" || !strings.HasPrefix(got[0], "3 JOB_KIND_REDELIVER JOB_STATE_DONE ") {
			t.Errorf("jobs %q, want one that redelivered, one that discarded one, and one that was cancelled", got)
		}
		if got := strings.Join(b.list(&inboxv1.ListEventsRequest{State: inboxv1.EventState_EVENT_STATE_DEAD}), " "); got != "" {
			t.Errorf("dead still: %s", got)
		}
		one, err := b.service.GetJob(ctx, connect.NewRequest(&inboxv1.GetJobRequest{Id: 2}))
		if err != nil || one.Msg.GetJob().GetFilter().GetState() != inboxv1.EventState_EVENT_STATE_ORPHANED {
			t.Errorf("get job: %v, %v", one, err)
		}
		if _, err := b.service.GetJob(ctx, connect.NewRequest(&inboxv1.GetJobRequest{Id: 99})); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("no such job: %v, want NOT_FOUND", err)
		}
		if log := b.log.String(); !strings.Contains(log, `"what":"inbox discard","job":2,"filter":"state=\"ORPHANED\""`) || !strings.Contains(log, `"what":"inbox cancel"`) {
			t.Errorf("audit log %s: want the jobs", log)
		}
		b.end()
	})
}

func TestChangesOfStoredEventsRefuse(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openStored(t, folder)
		name := []*inboxv1.EventName{{Source: "shop", Id: "x"}}
		for _, tt := range []struct {
			name string
			req  *inboxv1.RedeliverEventsRequest
			want string
		}{
			{"nothing", &inboxv1.RedeliverEventsRequest{}, "filter"},
			{"an empty filter", &inboxv1.RedeliverEventsRequest{Filter: &inboxv1.Filter{}}, "filter"},
			{"both", &inboxv1.RedeliverEventsRequest{Events: name, Filter: &inboxv1.Filter{Source: "shop"}}, "exclude each other"},
			{"names, counted", &inboxv1.RedeliverEventsRequest{Events: name, DryRun: true}, "dry_run"},
			{"too many names", &inboxv1.RedeliverEventsRequest{Events: make([]*inboxv1.EventName, 1001)}, "1000 are the most"},
			{"too fast", &inboxv1.RedeliverEventsRequest{Filter: &inboxv1.Filter{Source: "shop"}, Rate: 10001}, "rate"},
			{"of a state without a body", &inboxv1.RedeliverEventsRequest{Filter: &inboxv1.Filter{State: inboxv1.EventState_EVENT_STATE_DONE}}, "want DEAD or STORED"},
			{"of a reason that there is not", &inboxv1.RedeliverEventsRequest{Filter: &inboxv1.Filter{Reason: "bad luck"}}, "want one of"},
			{"a name without an id", &inboxv1.RedeliverEventsRequest{Events: []*inboxv1.EventName{name[0], {Source: "shop"}}}, "events[1]: id"},
		} {
			_, err := b.service.RedeliverEvents(t.Context(), connect.NewRequest(tt.req))
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want INVALID_ARGUMENT: %s", tt.name, err, tt.want)
			}
		}
		_, err := b.service.DiscardEvents(t.Context(), connect.NewRequest(&inboxv1.DiscardEventsRequest{Filter: &inboxv1.Filter{Source: "shop"}}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "STORED, ORPHANED or DEAD") {
			t.Errorf("a discard without a state: %v, want INVALID_ARGUMENT", err)
		}
		b.end()
	})
}
