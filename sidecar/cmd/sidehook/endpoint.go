package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

func newEndpoint(std stdio) *cobra.Command {
	return group("endpoint", "List, show, change and test the endpoints of a running sidehook",
		`Commands on the endpoints of a running sidehook, through its admin API.

Endpoints of the configuration are changed in its file only; those that are added here are kept in the store, their
secrets sealed under store.seal_key. A secret is printed once, when it is made. States:
  ACTIVE    it is sent to
  HELD      its receiver is down or asked for a pause: only probes are sent until one succeeds
  DISABLED  nothing is sent, and events wait, until `+"`sidehook endpoint enable`"+`
  UNUSABLE  its secrets cannot be read, or its URL is not allowed any more; events wait
  SHADOWED  the configuration has another one of the same id, which is in force`,
		newEndpointList(std), newEndpointShow(std), newEndpointAdd(std), newEndpointUpdate(std), newEndpointRemove(std),
		newEndpointEnable(std), newEndpointDisable(std), newEndpointRotate(std), newEndpointTest(std),
	)
}

// endpointOptions are the flags of a command on one endpoint.
type endpointOptions struct {
	admin  adminFlags
	format outputFlag
}

// register adds the flags to c.
func (o *endpointOptions) register(c *cobra.Command) {
	o.admin.register(c)
	o.format.register(c)
}

// newEndpointSimple makes a command on one endpoint without flags of its own. do returns the answer and the endpoint in
// it, of which a person is told by say.
func newEndpointSimple(std stdio, use, short, long string,
	do func(ctx context.Context, client *adminClient, id string) (any, *egressv1.Endpoint, error),
	say func(w io.Writer, e *egressv1.Endpoint) error,
) *cobra.Command {
	var o endpointOptions
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, a []string) error {
			client, err := o.admin.connect()
			if err != nil {
				return err
			}
			res, e, err := do(c.Context(), client, a[0])
			if err != nil {
				return err
			}
			if o.format.structured() {
				return o.format.print(std.out, res)
			}
			return say(std.out, e)
		},
	}
	o.register(c)
	return c
}

func newEndpointRemove(std stdio) *cobra.Command {
	return newEndpointSimple(std, "remove ID", "Remove an endpoint that was added with `endpoint add`",
		`Remove an endpoint that was added through the API. What waits for it is CANCELLED, and kept as such: it is not sent when
an endpoint of the same id is added again. To keep it, disable the endpoint instead.`,
		func(ctx context.Context, client *adminClient, id string) (any, *egressv1.Endpoint, error) {
			res, err := call(ctx, client, client.egress.RemoveEndpoint, &egressv1.RemoveEndpointRequest{Id: id})
			return res, res.GetEndpoint(), err
		},
		func(w io.Writer, e *egressv1.Endpoint) error {
			_, err := fmt.Fprintf(w, "%s is removed\n", printable(e.GetId()))
			return err
		})
}

func newEndpointEnable(std stdio) *cobra.Command {
	return newEndpointSimple(std, "enable ID", "Send to an endpoint again",
		`Send to an endpoint again that was disabled, by whatever cause, or is held. What waited is sent, slowly at first.`,
		func(ctx context.Context, client *adminClient, id string) (any, *egressv1.Endpoint, error) {
			res, err := call(ctx, client, client.egress.EnableEndpoint, &egressv1.EnableEndpointRequest{Id: id})
			return res, res.GetEndpoint(), err
		}, sayEndpointState)
}

func newEndpointDisable(std stdio) *cobra.Command {
	return newEndpointSimple(std, "disable ID", "Stop sending to an endpoint",
		`Stop sending to an endpoint. Its events are taken and wait, until `+"`sidehook endpoint enable`"+`. Attempts in flight end.`,
		func(ctx context.Context, client *adminClient, id string) (any, *egressv1.Endpoint, error) {
			res, err := call(ctx, client, client.egress.DisableEndpoint, &egressv1.DisableEndpointRequest{Id: id})
			return res, res.GetEndpoint(), err
		}, sayEndpointState)
}

func sayEndpointState(w io.Writer, e *egressv1.Endpoint) error {
	_, err := fmt.Fprintf(w, "%s is %s\n", printable(e.GetId()), endpointState(e))
	return err
}

// endpointState is the state without the prefix that the schema's enum has, and why it is disabled.
func endpointState(e *egressv1.Endpoint) string {
	state := strings.TrimPrefix(e.GetState().String(), "ENDPOINT_STATE_")
	if reason := e.GetHealth().GetDisabled(); reason != 0 && e.GetState() == egressv1.EndpointState_ENDPOINT_STATE_DISABLED {
		state += " " + strings.TrimPrefix(reason.String(), "DISABLE_REASON_")
	}
	return state
}

// endpointOrigin is the origin without the prefix that the schema's enum has.
func endpointOrigin(e *egressv1.Endpoint) string {
	return strings.TrimPrefix(e.GetOrigin().String(), "ENDPOINT_ORIGIN_")
}

// endpointSite is scheme and host of a URL, for lists: the rest is long, and may be a token.
func endpointSite(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "-"
	}
	return u.Scheme + "://" + u.Host
}
