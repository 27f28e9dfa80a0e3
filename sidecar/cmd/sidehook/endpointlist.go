package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// endpointListOptions are the flags of `endpoint list`.
type endpointListOptions struct {
	admin     adminFlags
	format    outputFlag
	limit     int
	pageToken string
}

func newEndpointList(std stdio) *cobra.Command {
	var o endpointListOptions
	c := &cobra.Command{
		Use:   "list",
		Short: "List the endpoints of the configuration and of the API",
		Long: `List the endpoints of the configuration and of the API, by id.

With more endpoints than --limit the last line (in JSON and YAML: nextPageToken) gives the --page-token that continues.`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return endpointList(c.Context(), std, o) },
	}
	o.admin.register(c)
	o.format.register(c)
	c.Flags().IntVar(&o.limit, "limit", listDefault, fmt.Sprintf("print at most `N` endpoints, 1 to %d", listMost))
	c.Flags().StringVar(&o.pageToken, "page-token", "", "continue where the listing that printed this `TOKEN` ended")
	return c
}

func endpointList(ctx context.Context, std stdio, o endpointListOptions) error {
	if o.limit < 1 || o.limit > listMost {
		return usagef("--limit: %d is not within 1 to %d", o.limit, listMost)
	}
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	all := &egressv1.ListEndpointsResponse{NextPageToken: o.pageToken}
	for {
		page, err := call(ctx, client, client.egress.ListEndpoints, &egressv1.ListEndpointsRequest{
			PageSize: int32(min(listPageSize, o.limit-len(all.GetEndpoints()))), PageToken: all.GetNextPageToken(),
		})
		if err != nil {
			return err
		}
		all.Endpoints = append(all.Endpoints, page.GetEndpoints()...)
		all.NextPageToken, all.Paused = page.GetNextPageToken(), page.GetPaused()
		if all.NextPageToken == "" || len(all.Endpoints) >= o.limit {
			break
		}
	}
	if o.format.structured() {
		return o.format.print(std.out, all)
	}
	rows := make([][]string, 0, len(all.GetEndpoints()))
	for _, e := range all.GetEndpoints() {
		rows = append(rows, []string{
			e.GetId(), endpointOrigin(e), endpointState(e), dash(e.GetTenant()), endpointSite(e.GetUrl()),
			timeText(e.GetHealth().GetLastSuccessTime()),
		})
	}
	if err := table(std.out, []string{"ENDPOINT", "ORIGIN", "STATE", "TENANT", "URL", "LAST SUCCESS"}, rows); err != nil {
		return err
	}
	if all.GetPaused() {
		if _, err := fmt.Fprintln(std.out, pausedLine); err != nil {
			return err
		}
	}
	if all.GetNextPageToken() != "" {
		_, err = fmt.Fprintf(std.out, "more: --page-token '%s'\n", printable(all.GetNextPageToken()))
	}
	return err
}

// pausedLine stands under tables that would else look as if all were well.
const pausedLine = "egress is paused: nothing is sent before `sidehook egress resume`"

// dash is s, or a dash where there is nothing.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
