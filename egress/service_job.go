package egress

import (
	"context"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// ListJobs implements egressv1connect.EgressServiceHandler.
func (s *Service) ListJobs(ctx context.Context, _ *connect.Request[egressv1.ListJobsRequest]) (*connect.Response[egressv1.ListJobsResponse], error) {
	jobs, err := s.cfg.Records.Jobs(ctx)
	if err != nil {
		return nil, s.failure(ctx, "list jobs", err)
	}
	res := &egressv1.ListJobsResponse{}
	for _, j := range jobs {
		res.Jobs = append(res.Jobs, jobMessage(j))
	}
	return connect.NewResponse(res), nil
}

// GetJob implements egressv1connect.EgressServiceHandler.
func (s *Service) GetJob(ctx context.Context, req *connect.Request[egressv1.GetJobRequest]) (*connect.Response[egressv1.GetJobResponse], error) {
	j, err := s.cfg.Records.Job(ctx, req.Msg.GetId())
	if err != nil {
		return nil, s.missing(ctx, "get job", err, noJob(req.Msg.GetId()))
	}
	return connect.NewResponse(&egressv1.GetJobResponse{Job: jobMessage(j)}), nil
}

// CancelJob implements egressv1connect.EgressServiceHandler.
func (s *Service) CancelJob(ctx context.Context, req *connect.Request[egressv1.CancelJobRequest]) (*connect.Response[egressv1.CancelJobResponse], error) {
	j, err := s.cfg.Records.CancelJob(ctx, req.Msg.GetId())
	if err != nil {
		return nil, s.missing(ctx, "cancel job", err, noJob(req.Msg.GetId()))
	}
	s.audit(ctx, "outbox cancel", JobRunning.String(), j.State.String(), slog.Uint64("job", j.ID))
	return connect.NewResponse(&egressv1.CancelJobResponse{Job: jobMessage(j)}), nil
}

func noJob(id uint64) string {
	return fmt.Sprintf("there is no job %d: `sidehook outbox jobs` shows those that run and the last that ended", id)
}
