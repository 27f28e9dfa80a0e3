package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

func newInboxSummary(std stdio) *cobra.Command {
	var o eventOptions
	c := &cobra.Command{
		Use:   "summary",
		Short: "Count the events of each source by state",
		Long: `Count the events of each source by state, from counters: it costs the same with ten events and ten million.

Of events that were kept for the app (mode STORE) those are counted that are on record still (keep.delivered, keep.dead), with
the bytes of their bodies; what is in flight is counted as STORED. States without events are left out.

OLDEST, when the oldest of them was first seen, is cut to the hour; of those that were kept for the app and wait no more, to
the day.

A source marked "(removed)" is no longer configured; its events are kept until their retention ends.

The last line says in how many hours the store, which both halves share, will be full if it goes on filling as it did in the
past hour. It is left out while the store does not fill, and in the first ten minutes after a start.`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return inboxSummary(c.Context(), std, o) },
	}
	o.admin.register(c)
	o.format.register(c)
	c.Flags().StringVar(&o.source, "source", "", "only this `SOURCE`")
	return c
}

func inboxSummary(ctx context.Context, std stdio, o eventOptions) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.Summarize, &inboxv1.SummarizeRequest{Source: o.source})
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, res)
	}
	var rows [][]string
	for _, s := range res.GetSources() {
		name := s.GetSource()
		if !s.GetConfigured() {
			name += " (removed)"
		}
		before := len(rows)
		for _, st := range s.GetStates() {
			if st.GetCount() == 0 {
				continue
			}
			rows = append(rows, []string{
				name, stateWord(st.GetState()), strconv.FormatInt(st.GetCount(), 10), bytesText(st.GetBytes()), timeText(st.GetOldestTime()),
				dash(st.GetLastReason()),
			})
		}
		if len(rows) == before {
			rows = append(rows, []string{name, "-", "0", bytesText(0), "-", "-"})
		}
	}
	if err := table(std.out, []string{"SOURCE", "STATE", "COUNT", "BYTES", "OLDEST", "LAST REASON"}, rows); err != nil {
		return err
	}
	return printUntilFull(std.out, res.HoursUntilFull)
}

// printUntilFull prints the estimate of a summary, if there is one.
func printUntilFull(w io.Writer, hours *float64) error {
	if hours == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "the store will be full in %.1f hours if it goes on filling as it did in the past hour\n", *hours)
	return err
}
