package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

func newEgress(std stdio) *cobra.Command {
	return group("egress", "Judge URLs, and pause and resume all sending",
		`Commands on the outbound half as a whole. See also endpoint and outbox.`,
		newEgressCheck(std),
		newEgressPause(std),
		newEgressResume(std),
	)
}

func newEgressPause(std stdio) *cobra.Command {
	return newEgressSteer(std, "pause", "Stop sending to all endpoints of a running sidehook",
		`Stop sending to all endpoints of a running sidehook, through its admin API.

Events are taken and wait. Attempts in flight end. A pause is kept in the store: it holds across reloads and restarts,
until `+"`sidehook egress resume`"+`. To stop sending to one endpoint: `+"`sidehook endpoint disable`.",
		func(ctx context.Context, client *adminClient) error {
			_, err := call(ctx, client, client.egress.PauseEgress, &egressv1.PauseEgressRequest{})
			return err
		}, "egress is paused")
}

func newEgressResume(std stdio) *cobra.Command {
	return newEgressSteer(std, "resume", "End the pause of a running sidehook",
		`End the pause of a running sidehook, through its admin API. What waited is sent, slowly at first.`,
		func(ctx context.Context, client *adminClient) error {
			_, err := call(ctx, client, client.egress.ResumeEgress, &egressv1.ResumeEgressRequest{})
			return err
		}, "egress is running")
}

func newEgressSteer(std stdio, use, short, long string, do func(context.Context, *adminClient) error, done string) *cobra.Command {
	var admin adminFlags
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := admin.connect()
			if err == nil {
				err = do(c.Context(), client)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(std.out, done)
			return err
		},
	}
	admin.register(c)
	return c
}
