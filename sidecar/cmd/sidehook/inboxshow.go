package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// eventOptions name one event on the command line.
type eventOptions struct {
	admin  adminFlags
	format outputFlag
	source string
}

// register adds the flags to c.
func (o *eventOptions) register(c *cobra.Command) {
	o.admin.register(c)
	o.format.register(c)
	c.Flags().StringVar(&o.source, "source", "", "the event's `SOURCE`; needed where several sources hold the same id")
}

func newInboxShow(std stdio) *cobra.Command {
	var o eventOptions
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show one event; exit code 1 if the inbox does not hold it",
		Args:  args(1, 1),
		RunE:  func(c *cobra.Command, a []string) error { return inboxShow(c.Context(), std, o, a[0]) },
	}
	o.register(c)
	return c
}

func inboxShow(ctx context.Context, std stdio, o eventOptions, id string) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	e, err := findEvent(ctx, client, o.source, id)
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, e)
	}
	return printEvent(std.out, e)
}

func printEvent(w io.Writer, e *inboxv1.Event) error {
	lines := [][2]string{
		{"source", e.GetSource()},
		{"id", e.GetId()},
		{"state", stateWord(e.GetState())},
		{"type", e.GetType()},
		{"created", timeText(e.GetCreateTime())},
		{"seen", timeText(e.GetSeenTime())},
	}
	if left := e.GetLeaseLeft(); left != nil {
		lines = append(lines, [2]string{"lease", left.AsDuration().Round(time.Millisecond).String() + " left"})
	}
	if n := e.GetOpenLeases(); n > 0 {
		lines = append(lines, [2]string{"open", plural(int(n), "lease") + " whose late success would still count"})
	}
	for _, line := range lines {
		if _, err := fmt.Fprintf(w, "%-8s %s\n", line[0], printable(line[1])); err != nil {
			return err
		}
	}
	return nil
}
