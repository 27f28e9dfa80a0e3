package main

import (
	"context"
	"fmt"
	"strings"

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
	admin        adminFlags
	format       outputFlag
	source       string
	state        string
	eventType    string
	since, until timeFlag
	limit        int
	pageToken    string
}

func newInboxList(std stdio) *cobra.Command {
	var o listOptions
	c := &cobra.Command{
		Use:   "list",
		Short: "List events",
		Long: `List events by source, then by id. Filters that are given must all hold.

With more events than --limit the last line (in JSON and YAML: nextPageToken) gives the --page-token that continues;
use it with the same filters.`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return inboxList(c.Context(), std, o) },
	}
	o.admin.register(c)
	o.format.register(c)
	f := c.Flags()
	f.StringVar(&o.source, "source", "", "only events of this `SOURCE`, which need not be configured any more")
	f.StringVar(&o.state, "state", "", "only events in this `STATE`: PENDING, UNKNOWN, DONE, RELEASED or IGNORED")
	f.StringVar(&o.eventType, "type", "", "only events of this `TYPE`")
	f.Var(&o.since, "since", "only events last seen at this `TIME` or later: RFC 3339, or how long ago (90m, 2d)")
	f.Var(&o.until, "until", "only events last seen before this `TIME`")
	f.IntVar(&o.limit, "limit", listDefault, fmt.Sprintf("print at most `N` events, 1 to %d", listMost))
	f.StringVar(&o.pageToken, "page-token", "", "continue where the listing that printed this `TOKEN` ended")
	return c
}

func inboxList(ctx context.Context, std stdio, o listOptions) error {
	if o.limit < 1 || o.limit > listMost {
		return usagef("--limit: %d is not within 1 to %d", o.limit, listMost)
	}
	req := &inboxv1.ListEventsRequest{
		Source: o.source, Type: o.eventType, Since: o.since.message(), Until: o.until.message(), PageToken: o.pageToken,
	}
	if o.state != "" {
		n, ok := inboxv1.EventState_value["EVENT_STATE_"+strings.ToUpper(o.state)]
		if !ok || n == 0 {
			return usagef("--state: %q is not PENDING, UNKNOWN, DONE, RELEASED or IGNORED", o.state)
		}
		req.State = inboxv1.EventState(n)
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
		rows = append(rows, []string{e.GetSource(), e.GetId(), stateWord(e.GetState()), e.GetType(), timeText(e.GetSeenTime())})
	}
	if err := table(std.out, []string{"SOURCE", "ID", "STATE", "TYPE", "SEEN"}, rows); err != nil {
		return err
	}
	if all.GetNextPageToken() != "" {
		_, err = fmt.Fprintf(std.out, "more: --page-token %s\n", all.GetNextPageToken())
	}
	return err
}
