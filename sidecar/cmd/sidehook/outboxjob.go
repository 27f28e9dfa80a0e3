package main

import (
	"context"

	"google.golang.org/protobuf/proto"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// outboxJobs are the jobs of the outbox.
var outboxJobs = jobAPI{
	half: "outbox",
	list: func(ctx context.Context, client *adminClient) (proto.Message, []*job, error) {
		res, err := call(ctx, client, client.egress.ListJobs, &egressv1.ListJobsRequest{})
		var jobs []*job
		for _, j := range res.GetJobs() {
			jobs = append(jobs, outboxJob(j))
		}
		return res, jobs, err
	},
	get: func(ctx context.Context, client *adminClient, id uint64) (*job, error) {
		res, err := call(ctx, client, client.egress.GetJob, &egressv1.GetJobRequest{Id: id})
		return outboxJob(res.GetJob()), err
	},
	cancel: func(ctx context.Context, client *adminClient, id uint64) (proto.Message, *job, error) {
		res, err := call(ctx, client, client.egress.CancelJob, &egressv1.CancelJobRequest{Id: id})
		return res, outboxJob(res.GetJob()), err
	},
}

// outboxJob is nil for nil.
func outboxJob(j *egressv1.Job) *job {
	if j == nil {
		return nil
	}
	f := j.GetFilter()
	state := ""
	if f.GetState() != 0 {
		state = deliveryState(f.GetState())
	}
	return newJob(j, j.GetKind(), j.GetState(), filterLine("endpoint", f.GetEndpoint(), state, f))
}
