package egress

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

func TestServiceList(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		const events = 25
		for i := range events {
			r.accept(t, fmt.Sprintf("evt-%02d", i), []string{"ok", "dead"}[i%2], "a", "b")
		}
		list := func(req *egressv1.ListDeliveriesRequest) (ids []string) {
			req = proto.CloneOf(req)
			for {
				page := ask(t, r.ListDeliveries, req)
				for _, d := range page.GetDeliveries() {
					ids = append(ids, d.GetEventId()+"/"+d.GetEndpoint())
				}
				if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
					return ids
				}
			}
		}
		for _, tc := range []struct {
			name string
			req  *egressv1.ListDeliveriesRequest
			want int
		}{
			{"all", &egressv1.ListDeliveriesRequest{}, 50},
			{"in pages", &egressv1.ListDeliveriesRequest{PageSize: 7}, 50},
			{"one endpoint", &egressv1.ListDeliveriesRequest{PageSize: 7, Filter: &egressv1.Filter{Endpoint: "a"}}, 25},
			{"dead ones", &egressv1.ListDeliveriesRequest{PageSize: 5, Filter: &egressv1.Filter{State: egressv1.DeliveryState_DELIVERY_STATE_DEAD}}, 24},
			{"by reason and type", &egressv1.ListDeliveriesRequest{Filter: &egressv1.Filter{Reason: "abort_asked", Type: "dead", Endpoint: "b"}}, 12},
			{"nobody's", &egressv1.ListDeliveriesRequest{Filter: &egressv1.Filter{Tenant: "nobody"}}, 0},
			{"of the last hour", &egressv1.ListDeliveriesRequest{Filter: &egressv1.Filter{Since: timestamppb.New(time.Now().Add(-time.Hour))}}, 50},
			{"older", &egressv1.ListDeliveriesRequest{Filter: &egressv1.Filter{Until: timestamppb.New(time.Now().Add(-time.Hour))}}, 0},
		} {
			got := list(tc.req)
			if n := len(slices.Compact(slices.Sorted(slices.Values(got)))); len(got) != tc.want || n != tc.want {
				t.Errorf("%s: %d deliveries, %d different ones; want %d", tc.name, len(got), n, tc.want)
			}
		}
		if first := list(&egressv1.ListDeliveriesRequest{PageSize: 3})[0]; !strings.HasPrefix(first, "evt-24/") {
			t.Errorf("the first is %s, want one of the newest event", first)
		}

		page := ask(t, r.ListDeliveries, &egressv1.ListDeliveriesRequest{PageSize: 2, Filter: &egressv1.Filter{Endpoint: "a"}})
		refused(t, r.ListDeliveries, &egressv1.ListDeliveriesRequest{PageToken: page.GetNextPageToken()}, connect.CodeInvalidArgument, "page_token")
		refused(t, r.ListDeliveries, &egressv1.ListDeliveriesRequest{PageToken: page.GetNextPageToken() + "x", Filter: &egressv1.Filter{Endpoint: "a"}}, connect.CodeInvalidArgument, "page_token")
		refused(t, r.ListDeliveries, &egressv1.ListDeliveriesRequest{PageSize: 1001}, connect.CodeInvalidArgument, "page_size")
		refused(t, r.ListDeliveries, &egressv1.ListDeliveriesRequest{Filter: &egressv1.Filter{State: 99}}, connect.CodeInvalidArgument, "state")
		refused(t, r.ListDeliveries, &egressv1.ListDeliveriesRequest{Filter: &egressv1.Filter{Reason: "bad luck"}}, connect.CodeInvalidArgument, "timeout_headers")
		now := timestamppb.Now()
		refused(t, r.ListDeliveries, &egressv1.ListDeliveriesRequest{Filter: &egressv1.Filter{Since: now, Until: now}}, connect.CodeInvalidArgument, "until")
		if got := r.log.audits(t); len(got) > 0 {
			t.Errorf("reading left audit lines: %q", got)
		}
	})
}

func TestServiceGet(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		r.accept(t, "order-1", "dead", "a", "b")
		e := ask(t, r.GetEvent, &egressv1.GetEventRequest{Id: "order-1"})
		if len(e.GetDeliveries()) != 2 || len(e.GetBody()) > 0 || !e.GetEvent().GetBodyKept() || e.GetEvent().GetType() != "dead" {
			t.Fatalf("event: %v", e)
		}
		d := e.GetDeliveries()[0]
		if d.GetDelivery().GetState() != egressv1.DeliveryState_DELIVERY_STATE_DEAD || d.GetDelivery().GetReason() != "abort_asked" {
			t.Errorf("delivery: %v", d.GetDelivery())
		}
		if len(d.GetAttempts()) != 1 {
			t.Fatalf("attempts: %v", d.GetAttempts())
		}
		a := d.GetAttempts()[0]
		if a.GetNumber() != 1 || a.GetStatus() != 400 || a.GetIp() != "192.0.2.7" || string(a.GetAnswer()) != "no such thing" ||
			a.GetAnswerBytes() != 5000 || !a.GetTruncated() || a.GetTook().AsDuration() != 3*time.Millisecond ||
			a.GetTrigger() != egressv1.AttemptTrigger_ATTEMPT_TRIGGER_SCHEDULE || !a.GetCounted() {
			t.Errorf("attempt: %v", a)
		}
		one := ask(t, r.GetDelivery, &egressv1.GetDeliveryRequest{Id: d.GetDelivery().GetId()})
		if !proto.Equal(one.GetDelivery(), d.GetDelivery()) || !proto.Equal(one.GetEvent(), e.GetEvent()) || len(one.GetAttempts()) != 1 {
			t.Errorf("the delivery alone is %v, in its event it was %v", one, d)
		}
		r.log.audits(t)
		if got := string(ask(t, r.GetEvent, &egressv1.GetEventRequest{Id: "order-1", IncludeBody: true}).GetBody()); got != `{"for":"order-1"}` {
			t.Errorf("body: %q", got)
		}
		if got := r.log.audits(t); !slices.Equal(got, []string{"outbox show body:  -> "}) {
			t.Errorf("audit after a look at a body: %q", got)
		}
		refused(t, r.GetEvent, &egressv1.GetEventRequest{}, connect.CodeInvalidArgument, "required")
		refused(t, r.GetEvent, &egressv1.GetEventRequest{Id: "order-1", Tenant: "other"}, connect.CodeNotFound, `"order-1" of tenant "other"`)
		refused(t, r.GetDelivery, &egressv1.GetDeliveryRequest{Id: "order-1"}, connect.CodeInvalidArgument, "dlv_")
		refused(t, r.GetDelivery, &egressv1.GetDeliveryRequest{Id: DeliveryID{Event: 1, Endpoint: 1}.String()}, connect.CodeNotFound, "no delivery")
	})
}

func TestServiceChangeNamed(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		dead := r.accept(t, "dead-1", "dead", "a").Deliveries[0].ID.String()
		later := r.accept(t, "later-1", "later", "a").Deliveries[0].ID.String()
		done := r.accept(t, "ok-1", "ok", "a").Deliveries[0].ID.String()
		nobody := DeliveryID{Event: 1, Endpoint: 1}.String()
		sent := len(r.sender.events())
		r.log.audits(t)
		res := ask(t, r.Redeliver, &egressv1.RedeliverRequest{Ids: []string{dead, later, done, nobody}})
		r.settle()
		var got []string
		for _, x := range res.GetResults() {
			got = append(got, fmt.Sprintf("%s %t", strings.TrimPrefix(x.GetBefore().String(), "DELIVERY_STATE_"), x.GetError() == ""))
		}
		if want := []string{"DEAD true", "WAITING true", "DELIVERED false", "UNSPECIFIED false"}; !slices.Equal(got, want) {
			t.Errorf("results %q, want %q", got, want)
		}
		if again := r.sender.events()[sent:]; len(again) != 2 || again[0].ID == again[1].ID {
			t.Errorf("sent again: %v, want the two under their ids", again)
		}
		if got, want := r.log.audits(t), []string{"outbox redeliver: DEAD -> WAITING", "outbox redeliver: WAITING -> WAITING"}; !slices.Equal(got, want) {
			t.Errorf("audit %q, want %q", got, want)
		}
		d := ask(t, r.GetDelivery, &egressv1.GetDeliveryRequest{Id: dead})
		if !d.GetDelivery().GetRedelivered() || len(d.GetAttempts()) != 2 || d.GetAttempts()[1].GetTrigger() != egressv1.AttemptTrigger_ATTEMPT_TRIGGER_REDELIVERY {
			t.Errorf("after the redelivery: %v", d)
		}
		if res := ask(t, r.Discard, &egressv1.DiscardRequest{Ids: []string{later, done}}); res.GetResults()[0].GetError() != "" || res.GetResults()[1].GetError() == "" {
			t.Errorf("discard: %v, want the waiting one alone", res)
		}
		if got, want := r.log.audits(t), []string{"outbox discard: WAITING -> DISCARDED"}; !slices.Equal(got, want) {
			t.Errorf("audit %q, want %q", got, want)
		}

		refused(t, r.Redeliver, &egressv1.RedeliverRequest{}, connect.CodeInvalidArgument, "filter")
		refused(t, r.Redeliver, &egressv1.RedeliverRequest{Filter: &egressv1.Filter{}}, connect.CodeInvalidArgument, "filter")
		refused(t, r.Redeliver, &egressv1.RedeliverRequest{Ids: []string{dead}, Filter: &egressv1.Filter{Endpoint: "a"}}, connect.CodeInvalidArgument, "exclude")
		refused(t, r.Redeliver, &egressv1.RedeliverRequest{Ids: []string{dead}, DryRun: true}, connect.CodeInvalidArgument, "dry_run")
		refused(t, r.Redeliver, &egressv1.RedeliverRequest{Ids: make([]string, MaxChanges+1)}, connect.CodeInvalidArgument, "ids")
		refused(t, r.Redeliver, &egressv1.RedeliverRequest{Ids: []string{dead, "evt_1"}}, connect.CodeInvalidArgument, "ids[1]")
		refused(t, r.Redeliver, &egressv1.RedeliverRequest{Filter: &egressv1.Filter{Endpoint: "a"}, Rate: -1}, connect.CodeInvalidArgument, "rate")
	})
}

func TestServiceJobs(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		for i := range 30 {
			r.accept(t, fmt.Sprintf("evt-%d", i), "dead", "a", "b")
		}
		filter := &egressv1.Filter{Endpoint: "a"}
		if got := ask(t, r.Redeliver, &egressv1.RedeliverRequest{Filter: filter, DryRun: true}); got.GetMatched() != 30 || got.GetJob() != nil {
			t.Errorf("dry run: %v, want 30 and no job", got)
		}
		sent := len(r.sender.events())
		r.log.audits(t)
		job := ask(t, r.Redeliver, &egressv1.RedeliverRequest{Filter: filter, Rate: 1}).GetJob()
		if job.GetTotal() != 30 || job.GetState() != egressv1.JobState_JOB_STATE_RUNNING || job.GetFilter().GetEndpoint() != "a" || job.GetRate() != 1 {
			t.Fatalf("job: %v", job)
		}
		time.Sleep(10 * time.Second)
		r.settle()
		if n := len(r.sender.events()) - sent; n < 8 || n > 15 {
			t.Errorf("%d sent within 11 s at one per second", n)
		}
		cancelled := ask(t, r.CancelJob, &egressv1.CancelJobRequest{Id: job.GetId()}).GetJob()
		if cancelled.GetState() != egressv1.JobState_JOB_STATE_CANCELLED || cancelled.GetDone() < 8 || cancelled.GetDone() == 30 {
			t.Errorf("cancelled: %v", cancelled)
		}
		refused(t, r.CancelJob, &egressv1.CancelJobRequest{Id: job.GetId()}, connect.CodeFailedPrecondition, "")
		refused(t, r.CancelJob, &egressv1.CancelJobRequest{Id: 4711}, connect.CodeNotFound, "no job 4711")
		refused(t, r.GetJob, &egressv1.GetJobRequest{Id: 4711}, connect.CodeNotFound, "no job 4711")

		refused(t, r.Discard, &egressv1.DiscardRequest{Filter: filter}, connect.CodeInvalidArgument, "filter.state")
		refused(t, r.Discard, &egressv1.DiscardRequest{Filter: filter, DryRun: true}, connect.CodeInvalidArgument, "filter.state")
		filter = &egressv1.Filter{Endpoint: "b", State: egressv1.DeliveryState_DELIVERY_STATE_DEAD}
		discard := ask(t, r.Discard, &egressv1.DiscardRequest{Filter: filter}).GetJob()
		time.Sleep(time.Minute)
		r.settle()
		if got := ask(t, r.GetJob, &egressv1.GetJobRequest{Id: discard.GetId()}).GetJob(); got.GetDone() != 30 || got.GetState() != egressv1.JobState_JOB_STATE_DONE {
			t.Errorf("discard: %v", got)
		}
		jobs := ask(t, r.ListJobs, &egressv1.ListJobsRequest{}).GetJobs()
		if len(jobs) != 2 || jobs[0].GetId() != discard.GetId() {
			t.Errorf("jobs: %v, want the newest first", jobs)
		}
		want := []string{
			fmt.Sprintf("outbox redeliver:  -> job %d over 30 deliveries", job.GetId()), "outbox cancel: RUNNING -> CANCELLED",
			fmt.Sprintf("outbox discard:  -> job %d over 30 deliveries", discard.GetId()),
		}
		if got := r.log.audits(t); !slices.Equal(got, want) {
			t.Errorf("audit %q, want %q", got, want)
		}
	})
}

func TestServiceExpunge(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		r.accept(t, "person-1", "later", "a", "b")
		r.log.audits(t)
		res := ask(t, r.Expunge, &egressv1.ExpungeRequest{EventId: "person-1"})
		if res.GetEvent().GetBodyKept() || len(res.GetDeliveries()) != 2 || res.GetDeliveries()[1].GetState() != egressv1.DeliveryState_DELIVERY_STATE_DISCARDED {
			t.Errorf("expunged: %v", res)
		}
		ask(t, r.Expunge, &egressv1.ExpungeRequest{EventId: "person-1"})
		if got, want := r.log.audits(t), []string{"outbox expunge: 18 bytes -> no body", "outbox expunge: no body -> no body"}; !slices.Equal(got, want) {
			t.Errorf("audit %q, want %q", got, want)
		}
		if got := ask(t, r.GetEvent, &egressv1.GetEventRequest{Id: "person-1", IncludeBody: true}); len(got.GetBody()) > 0 || got.GetEvent().GetBodyKept() {
			t.Errorf("its body is there still: %v", got)
		}
		refused(t, r.Expunge, &egressv1.ExpungeRequest{EventId: "nobody"}, connect.CodeNotFound, `"nobody" without a tenant`)
	})
}

func TestServiceSummarize(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		ask(t, r.AddEndpoint, &egressv1.AddEndpointRequest{Id: "gone", Spec: specOf("https://gone.example/")})
		r.accept(t, "e1", "ok", "a", "gone")
		r.accept(t, "e2", "later", "a", "gone")
		r.accept(t, "e3", "dead", "a")
		ask(t, r.RemoveEndpoint, &egressv1.RemoveEndpointRequest{Id: "gone"})
		time.Sleep(time.Minute)
		r.settle()
		counts := func(s *egressv1.EndpointSummary) string {
			words := []string{s.GetEndpoint(), fmt.Sprint(s.GetRemoved())}
			for _, st := range s.GetStates() {
				words = append(words, fmt.Sprintf("%s=%d", strings.TrimPrefix(st.GetState().String(), "DELIVERY_STATE_"), st.GetCount()))
			}
			return strings.Join(words, " ")
		}
		res := ask(t, r.Summarize, &egressv1.SummarizeRequest{})
		var got []string
		for _, s := range res.GetEndpoints() {
			got = append(got, counts(s))
		}
		want := []string{
			"a false WAITING=1 DELIVERED=1 DEAD=1 PARKED=0 CANCELLED=0 DISCARDED=0",
			"b false WAITING=0 DELIVERED=0 DEAD=0 PARKED=0 CANCELLED=0 DISCARDED=0",
			"gone true WAITING=0 DELIVERED=1 DEAD=0 PARKED=0 CANCELLED=1 DISCARDED=0",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if one := ask(t, r.Summarize, &egressv1.SummarizeRequest{Endpoint: "b"}); len(one.GetEndpoints()) != 1 {
			t.Errorf("of one: %v", one)
		}
		refused(t, r.Summarize, &egressv1.SummarizeRequest{Endpoint: "nobody"}, connect.CodeNotFound, `no endpoint "nobody"`)
	})
}

// A summary says when the store will be full where that can be told, and nothing where it cannot.
func TestServiceSummarizeTellsWhenFull(t *testing.T) {
	t.Parallel()
	var left time.Duration
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		records, err := NewBoltRecords(BoltRecordsConfig{Outbox: r.outbox, Parked: r.dispatch.Parked, Sending: r.dispatch.InFlight})
		if err != nil {
			t.Fatal(err)
		}
		s := NewService(ServiceConfig{Records: records, Registry: r.registry, UntilFull: func() (time.Duration, bool) { return left, left >= 0 }})
		for _, tt := range []struct {
			left time.Duration
			want string
		}{{90 * time.Minute, "1.5"}, {0, "0"}, {-1, "unknown"}} {
			left = tt.left
			got := "unknown"
			if hours := ask(t, s.Summarize, &egressv1.SummarizeRequest{}).HoursUntilFull; hours != nil {
				got = fmt.Sprint(*hours)
			}
			if got != tt.want {
				t.Errorf("%v left: %s hours, want %s", tt.left, got, tt.want)
			}
		}
	})
}

func TestServicePause(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		ask(t, r.PauseEgress, &egressv1.PauseEgressRequest{})
		ask(t, r.PauseEgress, &egressv1.PauseEgressRequest{})
		id := r.accept(t, "e1", "ok", "a").Deliveries[0].ID.String()
		if n := len(r.sender.events()); n != 0 || !r.registry.Paused() {
			t.Errorf("%d sent while paused, kept: %t", n, r.registry.Paused())
		}
		if d := ask(t, r.GetDelivery, &egressv1.GetDeliveryRequest{Id: id}).GetDelivery(); d.GetState() != egressv1.DeliveryState_DELIVERY_STATE_PARKED {
			t.Errorf("while paused: %v", d)
		}
		if !ask(t, r.ListEndpoints, &egressv1.ListEndpointsRequest{}).GetPaused() || !ask(t, r.Summarize, &egressv1.SummarizeRequest{}).GetPaused() {
			t.Error("nothing shows that egress is paused")
		}
		ask(t, r.ResumeEgress, &egressv1.ResumeEgressRequest{})
		r.settle()
		if n := len(r.sender.events()); n != 1 || r.registry.Paused() {
			t.Errorf("%d sent after the pause, kept: %t", n, r.registry.Paused())
		}
		want := []string{"egress pause: running -> paused", "egress pause: paused -> paused", "egress resume: paused -> running"}
		if got := r.log.audits(t); !slices.Equal(got, want) {
			t.Errorf("audit %q, want %q", got, want)
		}
	})
}

// What goes wrong inside is in the log; a client learns what it can do.
func TestServiceFailure(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		err    error
		code   connect.Code
		inside bool // the text is not for clients
	}{
		{"not found", fmt.Errorf("x: %w", ErrNotFound), connect.CodeNotFound, false},
		{"spec", fmt.Errorf("%w: url", ErrSpec), connect.CodeInvalidArgument, false},
		{"state", ErrState, connect.CodeFailedPrecondition, false},
		{"no seal key", ErrNoSealer, connect.CodeFailedPrecondition, false},
		{"configured", ErrConfigured, connect.CodeFailedPrecondition, false},
		{"exists", ErrExists, connect.CodeAlreadyExists, false},
		{"limit", ErrLimit, connect.CodeResourceExhausted, false},
		{"jobs", ErrJobs, connect.CodeResourceExhausted, false},
		{"full", fmt.Errorf("%w: secret path", ErrFull), connect.CodeUnavailable, true},
		{"unavailable", fmt.Errorf("%w: secret path", ErrUnavailable), connect.CodeUnavailable, true},
		// The store may say so of a row of its own: that is no answer to what was asked for.
		{"unavailable by a state", fmt.Errorf("%w: secret path: %w", ErrUnavailable, ErrState), connect.CodeUnavailable, true},
		{"other", &fs.PathError{Op: "open", Path: "secret path", Err: errors.New("x")}, connect.CodeInternal, true},
	} {
		log := &serviceLog{}
		s := NewService(ServiceConfig{Logger: testLogger(log)})
		got := s.failure(t.Context(), "step", tc.err)
		if connect.CodeOf(got) != tc.code || strings.Contains(got.Error(), "secret path") {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.code)
		}
		if logged := strings.Contains(log.String(), "secret path"); logged != tc.inside {
			t.Errorf("%s: in the log: %t, want %t", tc.name, logged, tc.inside)
		}
	}
}

// Enums are sent by their numbers.
func TestServiceEnums(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		enum  protoreflect.Enum
		words []string // of ours, from 1 on
	}{
		{"state", egressv1.DeliveryState(0), []string{"WAITING", "SENDING", "DELIVERED", "DEAD", "PARKED", "CANCELLED", "DISCARDED"}},
		{"trigger", egressv1.AttemptTrigger(0), []string{"SCHEDULE", "PROBE", "REDELIVERY", "TEST"}},
		{"job kind", egressv1.JobKind(0), []string{"REDELIVER", "DISCARD"}},
		{"job state", egressv1.JobState(0), []string{"RUNNING", "DONE", "CANCELLED"}},
		{"origin", egressv1.EndpointOrigin(0), []string{"CONFIG", "API"}},
		{"disabled", egressv1.DisableReason(0), []string{"GONE", "ASKED", "FAILING", "PERSON"}},
		{"on gone", egressv1.OnGone(0), []string{"DISABLE", "RETRY"}},
	} {
		values := tc.enum.Descriptor().Values()
		if values.Len() != len(tc.words)+1 {
			t.Errorf("%s: %d values, want %d", tc.name, values.Len()-1, len(tc.words))
			continue
		}
		for i, word := range tc.words {
			if v := values.ByNumber(protoreflect.EnumNumber(i + 1)); v == nil || !strings.HasSuffix(string(v.Name()), "_"+word) {
				t.Errorf("%s: %d is %v, want %s", tc.name, i+1, v, word)
			}
		}
	}
	numbers := map[string][2]int{
		"states": {int(states) - 1, 7}, "triggers": {int(triggers) - 1, 4}, "job kinds": {int(jobKinds) - 1, 2},
		"job states": {int(jobStates) - 1, 3}, "disable reasons": {int(disableReasons) - 1, 4},
		"OriginAPI": {int(OriginAPI), 2}, "GoneRetries": {int(GoneRetries), 2}, "StateDead": {int(StateDead), 4},
		"StateDiscarded": {int(StateDiscarded), 7}, "TriggerTest": {int(TriggerTest), 4}, "JobDiscard": {int(JobDiscard), 2},
		"JobCancelled": {int(JobCancelled), 3}, "DisabledPerson": {int(DisabledPerson), 4},
	}
	for name, n := range numbers {
		if n[0] != n[1] {
			t.Errorf("%s: %d, want %d", name, n[0], n[1])
		}
	}
}
