package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// jobPoll is how often --wait looks at a job.
const jobPoll = time.Second

func newOutboxJobs(std stdio) *cobra.Command {
	var admin adminFlags
	var format outputFlag
	c := &cobra.Command{
		Use:   "jobs",
		Short: "List the redeliveries and discards by filter",
		Long:  `List the redeliveries and discards by filter: those that run, and the last that have ended, the newest first.`,
		Args:  args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := admin.connect()
			if err != nil {
				return err
			}
			res, err := call(c.Context(), client, client.egress.ListJobs, &egressv1.ListJobsRequest{})
			if err != nil {
				return err
			}
			if format.structured() {
				return format.print(std.out, res)
			}
			rows := make([][]string, 0, len(res.GetJobs()))
			for _, j := range res.GetJobs() {
				rows = append(rows, []string{
					strconv.FormatUint(j.GetId(), 10), jobKind(j), jobState(j), jobProgress(j), filterLine(j.GetFilter()),
					timeText(j.GetCreateTime()), timeText(j.GetEndTime()),
				})
			}
			return table(std.out, []string{"JOB", "KIND", "STATE", "PROGRESS", "FILTER", "STARTED", "ENDED"}, rows)
		},
	}
	admin.register(c)
	format.register(c)
	return c
}

func newOutboxCancel(std stdio) *cobra.Command {
	var admin adminFlags
	var format outputFlag
	c := &cobra.Command{
		Use:   "cancel JOB",
		Short: "Stop a job; what it has done stays done",
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, a []string) error {
			id, err := strconv.ParseUint(a[0], 10, 64)
			if err != nil {
				return usagef("%q is not the number of a job: see sidehook outbox jobs", a[0])
			}
			client, err := admin.connect()
			if err != nil {
				return err
			}
			res, err := call(c.Context(), client, client.egress.CancelJob, &egressv1.CancelJobRequest{Id: id})
			if err != nil {
				return err
			}
			if format.structured() {
				return format.print(std.out, res)
			}
			return printJob(std.out, res.GetJob())
		},
	}
	admin.register(c)
	format.register(c)
	return c
}

// followJob says on stderr how far a job is whenever that changes, and on stdout how it ended. If ctx ends the job goes on.
func followJob(ctx context.Context, std stdio, format outputFlag, client *adminClient, job *egressv1.Job) error {
	tick := time.NewTicker(jobPoll)
	defer tick.Stop()
	said := jobProgress(job)
	for job.GetState() == egressv1.JobState_JOB_STATE_RUNNING {
		select {
		case <-ctx.Done():
			return fmt.Errorf("job %d goes on without being watched: %w", job.GetId(), context.Cause(ctx))
		case <-tick.C:
		}
		res, err := call(ctx, client, client.egress.GetJob, &egressv1.GetJobRequest{Id: job.GetId()})
		if err != nil {
			return err
		}
		job = res.GetJob()
		if now := jobProgress(job); now != said {
			said = now
			fmt.Fprintf(std.err, "%s\n", now)
		}
	}
	var err error
	if format.structured() {
		err = format.print(std.out, job)
	} else {
		err = printJob(std.out, job)
	}
	if err == nil && job.GetState() == egressv1.JobState_JOB_STATE_CANCELLED {
		return no(errors.New("it was cancelled"))
	}
	return err
}

func printJob(w io.Writer, j *egressv1.Job) error {
	_, err := fmt.Fprintf(w, "job %d: %s %s, %s\n", j.GetId(), jobKind(j), jobState(j), jobProgress(j))
	return err
}

func jobKind(j *egressv1.Job) string { return strings.TrimPrefix(j.GetKind().String(), "JOB_KIND_") }

func jobState(j *egressv1.Job) string { return strings.TrimPrefix(j.GetState().String(), "JOB_STATE_") }

func jobProgress(j *egressv1.Job) string {
	s := fmt.Sprintf("%d of %d", j.GetDone(), j.GetTotal())
	if n := j.GetSkipped(); n > 0 {
		s += fmt.Sprintf(", %d could not be", n)
	}
	return s
}

// filterLine is a filter as its flags would say it.
func filterLine(f *egressv1.Filter) string {
	var words []string
	add := func(flag, value string) {
		if value != "" && value != "-" {
			words = append(words, flag+"="+value)
		}
	}
	add("endpoint", f.GetEndpoint())
	if f.GetState() != 0 {
		add("state", deliveryState(f.GetState()))
	}
	add("tenant", f.GetTenant())
	add("type", f.GetType())
	add("reason", f.GetReason())
	add("since", timeText(f.GetSince()))
	add("until", timeText(f.GetUntil()))
	return strings.Join(words, " ")
}
