package extauthz

import (
	"testing"

	"connectrpc.com/connect"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

func TestSummarize(t *testing.T) {
	t.Parallel()
	s, _, _ := newTestService(record("gone", "a", StateUnknown), record("payments", "a", StateDone), record("payments", "b", StateDone))
	states := func(pending, unknown, done int64) []*inboxv1.StateSummary {
		out := emptyStates()
		for _, m := range out {
			m.Count = map[State]int64{StatePending: pending, StateUnknown: unknown, StateDone: done}[State(m.State)]
			m.Bytes = 100 * m.Count
			if m.Count > 0 {
				m.OldestTime = timestamppb.New(seenAt)
			}
		}
		return out
	}
	all := []*inboxv1.SourceSummary{
		{Source: "chat", Configured: true, States: states(0, 0, 0)},
		{Source: "gone", States: states(0, 1, 0)}, // removed from the configuration, events kept
		{Source: "payments", Configured: true, States: states(0, 0, 2)},
	}
	for _, tc := range []struct {
		name, source string
		want         []*inboxv1.SourceSummary
	}{
		{"all", "", all},
		{"one", "payments", all[2:]},
		{"removed", "gone", all[1:2]},
	} {
		res, err := s.Summarize(t.Context(), connect.NewRequest(&inboxv1.SummarizeRequest{Source: tc.source}))
		if err != nil {
			t.Fatal(err)
		}
		if d := gocmp.Diff(tc.want, res.Msg.GetSources(), protocmp.Transform()); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, d)
		}
	}
	if _, err := s.Summarize(t.Context(), connect.NewRequest(&inboxv1.SummarizeRequest{Source: "nobody"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("unknown source: %v, want NOT_FOUND", err)
	}
}

// The numbers and the words of the two enums are alike, and no state is missing in either.
func TestEventStateWords(t *testing.T) {
	t.Parallel()
	if got, want := int(StateOrphaned)+1, len(inboxv1.EventState_name); got != want {
		t.Fatalf("%d states and the unspecified one here, %d in the schema", got-1, want)
	}
	for s := StatePending; s <= StateOrphaned; s++ {
		if got, want := "EVENT_STATE_"+s.String(), stateMessage(s).String(); got != want {
			t.Errorf("state %d is %s here and %s in the schema", s, got, want)
		}
	}
}
