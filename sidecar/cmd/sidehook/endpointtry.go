package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

func newEndpointRotate(std stdio) *cobra.Command {
	var o endpointOptions
	var overlap string
	var pair bool
	c := &cobra.Command{
		Use:   "rotate ID",
		Short: "Make a new secret for an endpoint, and print it once",
		Long: `Make a new secret for an endpoint that was added through the API, and print it, once. Until the overlap has passed each
attempt is signed with the old ones too, so that the receiver has time to change. The secrets of the configuration's
endpoints are rotated in its file: list the new one beside the old one, with until.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error {
			d, err := dayDuration(overlap)
			if err != nil {
				return usagef("--overlap: %w", err)
			}
			return endpointRotate(c.Context(), std, o, &egressv1.RotateEndpointRequest{
				Id: a[0], Overlap: durationpb.New(d), KeyKind: keyKind(pair),
			})
		},
	}
	o.register(c)
	c.Flags().StringVar(&overlap, "overlap", "24h", "how long the secrets before it sign on, as a `DURATION` up to 30d; 0s: not at all, as after a leak")
	c.Flags().BoolVar(&pair, "ed25519", false, "make a key pair (default: what the newest is)")
	return c
}

func endpointRotate(ctx context.Context, std stdio, o endpointOptions, req *egressv1.RotateEndpointRequest) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.egress.RotateEndpoint, req)
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, res)
	}
	done := fmt.Sprintf("%s signs with a new secret", res.GetEndpoint().GetId())
	if d := req.GetOverlap(); d.AsDuration() > 0 {
		done += ", and for " + shortDuration(d) + " with the ones before it"
	}
	return printSecret(std.out, done, res.GetSecret())
}

func newEndpointTest(std stdio) *cobra.Command {
	var o endpointOptions
	c := &cobra.Command{
		Use:   "test ID",
		Short: "Send one event of type sidehook.test now; exit code 1 unless it is taken",
		Long: `Send one event of type sidehook.test, now, and say how that ended: exit code 0 if the receiver answered 2xx, else 1.

It is signed and filtered as every attempt, and sent also to an endpoint that is disabled, held or paused. Nothing of it
is kept, and nothing follows from it.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error { return endpointTest(c.Context(), std, o, a[0]) },
	}
	o.register(c)
	return c
}

func endpointTest(ctx context.Context, std stdio, o endpointOptions, id string) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.egress.TestEndpoint, &egressv1.TestEndpointRequest{Id: id})
	if err != nil {
		return err
	}
	if o.format.structured() {
		err = o.format.print(std.out, res)
	} else {
		err = printLines(std.out, append([][2]string{{"event", res.GetEventId()}}, attemptLines(res.GetAttempt())...))
	}
	if err == nil && res.GetAttempt().GetOutcome() != outcomeDelivered {
		return no(errors.New("the receiver did not take it"))
	}
	return err
}

// outcomeDelivered is the outcome of an attempt that succeeded.
const outcomeDelivered = "delivered"
