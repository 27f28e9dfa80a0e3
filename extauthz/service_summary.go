package extauthz

import (
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// Summarize implements inboxv1connect.InboxServiceHandler.
func (s *Service) Summarize(ctx context.Context, req *connect.Request[inboxv1.SummarizeRequest]) (*connect.Response[inboxv1.SummarizeResponse], error) {
	counts, err := s.sumUp(ctx)
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
				st.Count, st.Bytes, st.OldestTime, st.LastReason = c.Count, c.Bytes, timeMessage(c.Oldest), c.Reason
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

// sumUp counts the events by source and by the state in which they are shown, in that order: in place of rows that are STORED
// come the events that are kept for the app.
func (s *Service) sumUp(ctx context.Context) ([]StateSummary, error) {
	rows, err := s.cfg.Events.Summary()
	if err != nil {
		return nil, err
	}
	kept, err := s.cfg.Stored.Summary(ctx)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(c StateSummary) bool { return c.State == StateStored })
	all := append(rows, kept...)
	slices.SortStableFunc(all, func(a, b StateSummary) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.State, b.State))
	})
	out := all[:0]
	for _, c := range all {
		if n := len(out); n > 0 && out[n-1].Source == c.Source && out[n-1].State == c.State {
			out[n-1].add(c)
			continue
		}
		out = append(out, c)
	}
	return out, nil
}

// add counts c, of the same source and state, in s.
func (s *StateSummary) add(c StateSummary) {
	if s.Count == 0 || c.Count > 0 && c.Oldest.Before(s.Oldest) {
		s.Oldest = c.Oldest
	}
	s.Count += c.Count
	s.Bytes += c.Bytes
	s.Reason = cmp.Or(c.Reason, s.Reason)
}
