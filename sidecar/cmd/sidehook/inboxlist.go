package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// Rows of `inbox list`: what fits on a few screens, and what one command holds in memory.
const (
	listDefault  = 100
	listMost     = 100_000
	listPageSize = 1000 // the API's largest page
)

// listOptions are the flags of `inbox list`.
type listOptions struct {
	admin     adminFlags
	format    outputFlag
	filter    inboxFilterFlags
	limit     int
	pageToken string
}

func newInboxList(std stdio) *cobra.Command {
	var o listOptions
	c := &cobra.Command{
		Use:   "list",
		Short: "List events",
		Long: `List events by source, then by id; with a state that only an event kept for the app can have (STORED, DELIVERING, DEAD,
ORPHANED), and the first of those that are DISCARDED, those that were taken last come first. Filters that are given must all
hold. --since and --until mean the time at which an event was last seen, or, where they come by that, was taken; --reason
goes with these states alone.

With more events than --limit the last line (in JSON and YAML: nextPageToken) gives the --page-token that continues;
use it with the same filters. Columns in which no event has anything are left out.`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return inboxList(c.Context(), std, o) },
	}
	o.admin.register(c)
	o.format.register(c)
	o.filter.register(c, "last seen, or taken,")
	f := c.Flags()
	f.IntVar(&o.limit, "limit", listDefault, fmt.Sprintf("print at most `N` events, 1 to %d", listMost))
	f.StringVar(&o.pageToken, "page-token", "", "continue where the listing that printed this `TOKEN` ended")
	return c
}

func inboxList(ctx context.Context, std stdio, o listOptions) error {
	if o.limit < 1 || o.limit > listMost {
		return usagef("--limit: %d is not within 1 to %d", o.limit, listMost)
	}
	filter, err := o.filter.filter()
	if err != nil {
		return err
	}
	req := &inboxv1.ListEventsRequest{
		Source: filter.GetSource(), State: filter.GetState(), Tenant: filter.GetTenant(), Type: filter.GetType(), Reason: filter.GetReason(),
		Since: filter.GetSince(), Until: filter.GetUntil(), PageToken: o.pageToken,
	}
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	all := &inboxv1.ListEventsResponse{}
	for {
		req.PageSize = int32(min(listPageSize, o.limit-len(all.GetEvents())))
		page, err := call(ctx, client, client.ListEvents, req)
		if err != nil {
			return err
		}
		all.Events = append(all.Events, page.GetEvents()...)
		all.NextPageToken = page.GetNextPageToken()
		if all.NextPageToken == "" || len(all.Events) >= o.limit {
			break
		}
		req.PageToken = all.NextPageToken
	}
	if o.format.structured() {
		return o.format.print(std.out, all)
	}
	rows := make([][]string, 0, len(all.GetEvents()))
	for _, e := range all.GetEvents() {
		rows = append(rows, []string{
			e.GetSource(), e.GetId(), stateWord(e.GetState()), e.GetType(), timeText(e.GetSeenTime()), attemptsCell(e.GetDelivery()),
			dash(cmp.Or(e.GetReason(), e.GetDelivery().GetReason())), dash(e.GetTenant()),
		})
	}
	header, rows := withoutDashes([]string{"SOURCE", "ID", "STATE", "TYPE", "SEEN", "ATTEMPTS", "REASON", "TENANT"}, rows, 5)
	if err := table(std.out, header, rows); err != nil {
		return err
	}
	if all.GetNextPageToken() != "" {
		_, err = fmt.Fprintf(std.out, "more: --page-token %s\n", all.GetNextPageToken())
	}
	return err
}

// attemptsCell is how often an event was tried, a dash where it is not kept for the app.
func attemptsCell(d *inboxv1.Delivery) string {
	if d == nil {
		return "-"
	}
	return strconv.Itoa(int(d.GetTries()))
}

// withoutDashes leaves out the columns from first on in which every row has a dash.
func withoutDashes(header []string, rows [][]string, first int) ([]string, [][]string) {
	for c := len(header) - 1; c >= first; c-- {
		if slices.ContainsFunc(rows, func(row []string) bool { return row[c] != "-" }) {
			continue
		}
		header = slices.Delete(header, c, c+1)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], c, c+1)
		}
	}
	return header, rows
}
