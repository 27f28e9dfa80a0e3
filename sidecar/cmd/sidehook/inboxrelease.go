package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

func newInboxRelease(std stdio) *cobra.Command {
	var o eventOptions
	c := &cobra.Command{
		Use:   "release ID",
		Short: "Let the next delivery of an event by its sender through once",
		Long: `Let the next delivery of an event by its sender through once, whatever its state.

It is on disk when the command returns. Nothing is sent: the sender must deliver the event again, and the app then
sees it once more. A request that is with the app is not interrupted, and its late success still counts. An event that the
app is still to get (STORED, DELIVERING, ORPHANED) must be discarded first. A DEAD one stays a dead letter.
Exit code 1 if the inbox does not hold the event.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error { return inboxRelease(c.Context(), std, o, a[0]) },
	}
	o.register(c)
	return c
}

func inboxRelease(ctx context.Context, std stdio, o eventOptions, id string) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	e, err := findEvent(ctx, client, o.source, o.tenant, id)
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.ReleaseEvent, &inboxv1.ReleaseEventRequest{Source: e.GetSource(), Id: e.GetId(), Tenant: e.GetTenant()})
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, res)
	}
	was := res.GetEvent()
	_, err = fmt.Fprintf(std.out, "released %s of %s, which was %s: its next delivery passes\n",
		printable(was.GetId()), printable(was.GetSource()), stateWord(was.GetState()))
	return err
}
