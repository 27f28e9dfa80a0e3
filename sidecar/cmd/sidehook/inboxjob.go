package main

import (
	"context"

	"google.golang.org/protobuf/proto"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// inboxJobs are the jobs of the inbox.
var inboxJobs = jobAPI{
	half: "inbox",
	list: func(ctx context.Context, client *adminClient) (proto.Message, []*job, error) {
		res, err := call(ctx, client, client.ListJobs, &inboxv1.ListJobsRequest{})
		var jobs []*job
		for _, j := range res.GetJobs() {
			jobs = append(jobs, inboxJob(j))
		}
		return res, jobs, err
	},
	get: func(ctx context.Context, client *adminClient, id uint64) (*job, error) {
		res, err := call(ctx, client, client.GetJob, &inboxv1.GetJobRequest{Id: id})
		return inboxJob(res.GetJob()), err
	},
	cancel: func(ctx context.Context, client *adminClient, id uint64) (proto.Message, *job, error) {
		res, err := call(ctx, client, client.CancelJob, &inboxv1.CancelJobRequest{Id: id})
		return res, inboxJob(res.GetJob()), err
	},
}

// inboxJob is nil for nil.
func inboxJob(j *inboxv1.Job) *job {
	if j == nil {
		return nil
	}
	f := j.GetFilter()
	state := ""
	if f.GetState() != 0 {
		state = stateWord(f.GetState())
	}
	return newJob(j, j.GetKind(), j.GetState(), filterLine("source", f.GetSource(), state, f))
}
