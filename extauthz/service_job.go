package extauthz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// ListJobs implements inboxv1connect.InboxServiceHandler.
func (s *Service) ListJobs(ctx context.Context, _ *connect.Request[inboxv1.ListJobsRequest]) (*connect.Response[inboxv1.ListJobsResponse], error) {
	jobs, err := s.cfg.Stored.Jobs(ctx)
	if err != nil {
		return nil, s.failure(ctx, "list jobs", err)
	}
	res := &inboxv1.ListJobsResponse{}
	for _, j := range jobs {
		res.Jobs = append(res.Jobs, jobMessage(j))
	}
	return connect.NewResponse(res), nil
}

// GetJob implements inboxv1connect.InboxServiceHandler.
func (s *Service) GetJob(ctx context.Context, req *connect.Request[inboxv1.GetJobRequest]) (*connect.Response[inboxv1.GetJobResponse], error) {
	j, err := s.cfg.Stored.Job(ctx, req.Msg.GetId())
	if err != nil {
		return nil, s.noJob(ctx, "get job", req.Msg.GetId(), err)
	}
	return connect.NewResponse(&inboxv1.GetJobResponse{Job: jobMessage(j)}), nil
}

// CancelJob implements inboxv1connect.InboxServiceHandler.
func (s *Service) CancelJob(ctx context.Context, req *connect.Request[inboxv1.CancelJobRequest]) (*connect.Response[inboxv1.CancelJobResponse], error) {
	j, err := s.cfg.Stored.CancelJob(ctx, req.Msg.GetId())
	if err != nil {
		return nil, s.noJob(ctx, "cancel job", req.Msg.GetId(), err)
	}
	s.audit(ctx, "inbox cancel", JobRunning.String(), j.State.String(), slog.Uint64("job", j.ID))
	return connect.NewResponse(&inboxv1.CancelJobResponse{Job: jobMessage(j)}), nil
}

// noJob is failure with a text of its own for a job that is not there.
func (s *Service) noJob(ctx context.Context, step string, id uint64, err error) error {
	if errors.Is(err, ErrNotFound) {
		return connect.NewError(connect.CodeNotFound,
			fmt.Errorf("there is no job %d: `sidehook inbox jobs` shows those that run and the last that ended", id))
	}
	return s.failure(ctx, step, err)
}

func jobMessage(j Job) *inboxv1.Job {
	return &inboxv1.Job{
		Id:    j.ID,
		Kind:  inboxv1.JobKind(j.Kind),
		State: inboxv1.JobState(j.State),
		Filter: &inboxv1.Filter{
			Source: j.Filter.Source,
			State:  stateMessage(j.Filter.State),
			Tenant: percentEncode(j.Filter.Tenant),
			Type:   percentEncode(j.Filter.Type),
			Reason: j.Filter.Reason,
			Since:  timeMessage(j.Filter.Since),
			Until:  timeMessage(j.Filter.Until),
		},
		Total:      j.Total,
		Done:       j.Done,
		Skipped:    j.Skipped,
		Rate:       j.Rate,
		CreateTime: timeMessage(j.Started),
		EndTime:    timeMessage(j.Ended),
	}
}

// filterText is f for the audit log.
func filterText(f StoredFilter) string {
	var words []string
	add := func(name, value string) {
		if value != "" {
			words = append(words, fmt.Sprintf("%s=%q", name, value))
		}
	}
	add("source", f.Source)
	if f.State != 0 {
		add("state", f.State.String())
	}
	add("tenant", f.Tenant)
	add("type", f.Type)
	add("reason", f.Reason)
	for _, t := range []struct {
		name string
		at   time.Time
	}{{"since", f.Since}, {"until", f.Until}} {
		if !t.at.IsZero() {
			add(t.name, t.at.UTC().Format(time.RFC3339Nano))
		}
	}
	return strings.Join(words, " ")
}
