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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// jobPoll is how often --wait looks at a job.
const jobPoll = time.Second

// job is a redelivery or a discard by filter, of the inbox or of the outbox.
type job struct {
	message              proto.Message // as the API has it
	id                   uint64
	kind, state          string
	total, done, skipped int64
	filter               string // as its flags would say it
	started, ended       *timestamppb.Timestamp
}

// States of a job in which something is said about it.
const (
	jobRunning   = "RUNNING"
	jobCancelled = "CANCELLED"
)

// jobMessage is what the jobs of both halves have in common.
type jobMessage interface {
	proto.Message
	GetId() uint64
	GetTotal() int64
	GetDone() int64
	GetSkipped() int64
	GetCreateTime() *timestamppb.Timestamp
	GetEndTime() *timestamppb.Timestamp
}

// newJob returns a job of the API; kind and state are of the enums, filter as its flags would say it.
func newJob(m jobMessage, kind, state fmt.Stringer, filter string) *job {
	return &job{
		message: m, id: m.GetId(), total: m.GetTotal(), done: m.GetDone(), skipped: m.GetSkipped(),
		kind: strings.TrimPrefix(kind.String(), "JOB_KIND_"), state: strings.TrimPrefix(state.String(), "JOB_STATE_"),
		filter: filter, started: m.GetCreateTime(), ended: m.GetEndTime(),
	}
}

func (j *job) progress() string {
	s := fmt.Sprintf("%d of %d", j.done, j.total)
	if j.skipped > 0 {
		s += fmt.Sprintf(", %d could not be", j.skipped)
	}
	return s
}

func (j *job) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "job %d: %s %s, %s\n", j.id, j.kind, j.state, j.progress())
	return err
}

// jobAPI is what one half's API knows of jobs.
type jobAPI struct {
	half   string // inbox or outbox
	list   func(ctx context.Context, client *adminClient) (proto.Message, []*job, error)
	get    func(ctx context.Context, client *adminClient, id uint64) (*job, error)
	cancel func(ctx context.Context, client *adminClient, id uint64) (proto.Message, *job, error)
}

func newJobs(std stdio, api jobAPI) *cobra.Command {
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
			res, jobs, err := api.list(c.Context(), client)
			if err != nil {
				return err
			}
			if format.structured() {
				return format.print(std.out, res)
			}
			rows := make([][]string, 0, len(jobs))
			for _, j := range jobs {
				rows = append(rows, []string{
					strconv.FormatUint(j.id, 10), j.kind, j.state, j.progress(), j.filter, timeText(j.started), timeText(j.ended),
				})
			}
			return table(std.out, []string{"JOB", "KIND", "STATE", "PROGRESS", "FILTER", "STARTED", "ENDED"}, rows)
		},
	}
	admin.register(c)
	format.register(c)
	return c
}

func newJobCancel(std stdio, api jobAPI) *cobra.Command {
	var admin adminFlags
	var format outputFlag
	c := &cobra.Command{
		Use:   "cancel JOB",
		Short: "Stop a job; what it has done stays done",
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, a []string) error {
			id, err := strconv.ParseUint(a[0], 10, 64)
			if err != nil {
				return usagef("%q is not the number of a job: see sidehook %s jobs", a[0], api.half)
			}
			client, err := admin.connect()
			if err != nil {
				return err
			}
			res, j, err := api.cancel(c.Context(), client, id)
			if err != nil {
				return err
			}
			if format.structured() {
				return format.print(std.out, res)
			}
			return j.print(std.out)
		},
	}
	admin.register(c)
	format.register(c)
	return c
}

// followJob says on stderr how far a job is whenever that changes, and on stdout how it ended. If ctx ends the job goes on.
func followJob(ctx context.Context, std stdio, format outputFlag, client *adminClient, api jobAPI, j *job) error {
	tick := time.NewTicker(jobPoll)
	defer tick.Stop()
	said := j.progress()
	for j.state == jobRunning {
		select {
		case <-ctx.Done():
			return fmt.Errorf("job %d goes on without being watched: %w", j.id, context.Cause(ctx))
		case <-tick.C:
		}
		var err error
		if j, err = api.get(ctx, client, j.id); err != nil {
			return err
		}
		if now := j.progress(); now != said {
			said = now
			fmt.Fprintf(std.err, "%s\n", now)
		}
	}
	var err error
	if format.structured() {
		err = format.print(std.out, j.message)
	} else {
		err = j.print(std.out)
	}
	if err == nil && j.state == jobCancelled {
		return no(errors.New("it was cancelled"))
	}
	return err
}
