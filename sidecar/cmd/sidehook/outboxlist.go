package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// outboxListOptions are the flags of `outbox list`.
type outboxListOptions struct {
	admin     adminFlags
	format    outputFlag
	filter    filterFlags
	limit     int
	pageToken string
}

func newOutboxList(std stdio) *cobra.Command {
	var o outboxListOptions
	c := &cobra.Command{
		Use:   "list",
		Short: "List deliveries",
		Long: `List deliveries, those of the newest events first. Filters that are given must all hold.

With more deliveries than --limit the last line (in JSON and YAML: nextPageToken) gives the --page-token that continues;
use it with the same filters.`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return outboxList(c.Context(), std, o) },
	}
	o.admin.register(c)
	o.format.register(c)
	o.filter.register(c)
	c.Flags().IntVar(&o.limit, "limit", listDefault, fmt.Sprintf("print at most `N` deliveries, 1 to %d", listMost))
	c.Flags().StringVar(&o.pageToken, "page-token", "", "continue where the listing that printed this `TOKEN` ended")
	return c
}

func outboxList(ctx context.Context, std stdio, o outboxListOptions) error {
	if o.limit < 1 || o.limit > listMost {
		return usagef("--limit: %d is not within 1 to %d", o.limit, listMost)
	}
	filter, err := o.filter.filter()
	if err != nil {
		return err
	}
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	all := &egressv1.ListDeliveriesResponse{NextPageToken: o.pageToken}
	for {
		page, err := call(ctx, client, client.egress.ListDeliveries, &egressv1.ListDeliveriesRequest{
			Filter: filter, PageSize: int32(min(listPageSize, o.limit-len(all.GetDeliveries()))), PageToken: all.GetNextPageToken(),
		})
		if err != nil {
			return err
		}
		all.Deliveries = append(all.Deliveries, page.GetDeliveries()...)
		all.NextPageToken = page.GetNextPageToken()
		if all.NextPageToken == "" || len(all.Deliveries) >= o.limit {
			break
		}
	}
	if o.format.structured() {
		return o.format.print(std.out, all)
	}
	rows := make([][]string, 0, len(all.GetDeliveries()))
	for _, d := range all.GetDeliveries() {
		rows = append(rows, []string{
			d.GetId(), d.GetEventId(), d.GetEndpoint(), deliveryState(d.GetState()), strconv.Itoa(int(d.GetAttempts())),
			dash(d.GetReason()), d.GetType(), timeText(d.GetCreateTime()),
		})
	}
	if err := table(std.out, []string{"DELIVERY", "EVENT", "ENDPOINT", "STATE", "ATTEMPTS", "REASON", "TYPE", "CREATED"}, rows); err != nil {
		return err
	}
	if all.GetNextPageToken() != "" {
		_, err = fmt.Fprintf(std.out, "more: --page-token %s\n", all.GetNextPageToken())
	}
	return err
}

// outboxSummaryOptions are the flags of `outbox summary`.
type outboxSummaryOptions struct {
	admin    adminFlags
	format   outputFlag
	endpoint string
}

func newOutboxSummary(std stdio) *cobra.Command {
	var o outboxSummaryOptions
	c := &cobra.Command{
		Use:   "summary",
		Short: "Count the deliveries of each endpoint by state",
		Long: `Count the deliveries of each endpoint by state, from counters: it costs the same with ten deliveries and ten million. What
is in flight is counted as WAITING; at an endpoint that is disabled, or while egress is paused, as PARKED.

OLDEST, when the oldest of them was accepted or last redelivered, is cut to the hour; of those that wait no more, to the day.

An endpoint marked "(removed)" is no longer there; its deliveries are kept as long as others.

The last line says in how many hours the store, which both halves share, will be full if it goes on filling as it did in the
past hour. It is left out while the store does not fill, and in the first ten minutes after a start.`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return outboxSummary(c.Context(), std, o) },
	}
	o.admin.register(c)
	o.format.register(c)
	c.Flags().StringVar(&o.endpoint, "endpoint", "", "only this `ENDPOINT`")
	return c
}

func outboxSummary(ctx context.Context, std stdio, o outboxSummaryOptions) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.egress.Summarize, &egressv1.SummarizeRequest{Endpoint: o.endpoint})
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, res)
	}
	var rows [][]string
	for _, e := range res.GetEndpoints() {
		name := e.GetEndpoint()
		if e.GetRemoved() {
			name += " (removed)"
		}
		for _, st := range e.GetStates() {
			rows = append(rows, []string{
				name, deliveryState(st.GetState()), strconv.FormatInt(st.GetCount(), 10), bytesText(st.GetBodyBytes()),
				timeText(st.GetOldestTime()), dash(st.GetLastReason()),
			})
		}
	}
	if err := table(std.out, []string{"ENDPOINT", "STATE", "COUNT", "BYTES", "OLDEST", "LAST REASON"}, rows); err != nil {
		return err
	}
	if err := printUntilFull(std.out, res.HoursUntilFull); err != nil {
		return err
	}
	if res.GetPaused() {
		_, err = fmt.Fprintln(std.out, pausedLine)
	}
	return err
}
