package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// changePart is how many ids go into one call, the most that the API takes.
const changePart = 1000

// outboxChangeOptions are the flags of `outbox redeliver` and `outbox discard`.
type outboxChangeOptions struct {
	changeFlags
	filter filterFlags
}

// register adds the flags to c.
func (o *outboxChangeOptions) register(c *cobra.Command) {
	o.changeFlags.register(c)
	o.filter.register(c)
}

// openStates are those in which a delivery of a named event is taken.
var openStates = []egressv1.DeliveryState{
	egressv1.DeliveryState_DELIVERY_STATE_WAITING, egressv1.DeliveryState_DELIVERY_STATE_PARKED, egressv1.DeliveryState_DELIVERY_STATE_DEAD,
}

func newOutboxRedeliver(std stdio) *cobra.Command {
	var o outboxChangeOptions
	c := &cobra.Command{
		Use:   "redeliver [ID…]",
		Short: "Send deliveries again: named ones, or those that filters select",
		Long: `Send deliveries again, under the same webhook-id and with a new schedule.

Named deliveries (dlv_…), or those of a named event that wait or are dead, are due at once; a retry that waits is
replaced. With --endpoint, those of an event to that endpoint only, with --tenant, an event of that tenant. Exit code 1 if
one could not be sent again.

Without names the filters select: those that are DEAD unless --state says otherwise. A job goes over them at --rate, also
across restarts; see ` + "`sidehook outbox jobs`" + `. Look at --dry-run first.`,
		Args: args(0, listMost),
		RunE: func(c *cobra.Command, a []string) error {
			return outboxChange(c.Context(), std, o, outboxVerb{
				name: "redelivered",
				named: func(ctx context.Context, client *adminClient, ids []string) ([]*egressv1.DeliveryResult, error) {
					res, err := call(ctx, client, client.egress.Redeliver, &egressv1.RedeliverRequest{Ids: ids})
					return res.GetResults(), err
				},
				selected: func(ctx context.Context, client *adminClient, f *egressv1.Filter) (proto.Message, *job, int64, error) {
					res, err := call(ctx, client, client.egress.Redeliver, &egressv1.RedeliverRequest{Filter: f, Rate: o.rate, DryRun: o.dryRun})
					return res, outboxJob(res.GetJob()), res.GetMatched(), err
				},
			}, a)
		},
	}
	o.register(c)
	o.registerRate(c, "deliveries")
	return c
}

func newOutboxDiscard(std stdio) *cobra.Command {
	var o outboxChangeOptions
	c := &cobra.Command{
		Use:   "discard [ID…]",
		Short: "End deliveries for good: named ones, or those that filters select",
		Long: `End deliveries for good: they are never sent. An attempt in flight is not interrupted, and its success still counts.

Named deliveries (dlv_…), or those of a named event that wait or are dead, are discarded at once. With --endpoint, those of
an event to that endpoint only, with --tenant, an event of that tenant. Exit code 1 if one could not be discarded.

Without names the filters select, and --state must be WAITING, PARKED or DEAD. A job goes over them, also across restarts;
see ` + "`sidehook outbox jobs`" + `. Look at --dry-run first.`,
		Args: args(0, listMost),
		RunE: func(c *cobra.Command, a []string) error {
			if len(a) == 0 && o.filter.state == "" {
				return usagef("say which: ids, or filters with --state WAITING, PARKED or DEAD")
			}
			return outboxChange(c.Context(), std, o, outboxVerb{
				name: "discarded",
				named: func(ctx context.Context, client *adminClient, ids []string) ([]*egressv1.DeliveryResult, error) {
					res, err := call(ctx, client, client.egress.Discard, &egressv1.DiscardRequest{Ids: ids})
					return res.GetResults(), err
				},
				selected: func(ctx context.Context, client *adminClient, f *egressv1.Filter) (proto.Message, *job, int64, error) {
					res, err := call(ctx, client, client.egress.Discard, &egressv1.DiscardRequest{Filter: f, DryRun: o.dryRun})
					return res, outboxJob(res.GetJob()), res.GetMatched(), err
				},
			}, a)
		},
	}
	o.register(c)
	return c
}

// outboxVerb is what one of the two commands does through the API.
type outboxVerb struct {
	name string
	// named changes the deliveries of these ids; selected starts a job, or counts.
	named    func(ctx context.Context, client *adminClient, ids []string) ([]*egressv1.DeliveryResult, error)
	selected func(ctx context.Context, client *adminClient, f *egressv1.Filter) (proto.Message, *job, int64, error)
}

func outboxChange(ctx context.Context, std stdio, o outboxChangeOptions, verb outboxVerb, ids []string) error {
	filter, err := o.filter.filter()
	if err != nil {
		return err
	}
	return o.run(ctx, std, change{
		verb: verb.name, filter: &o.filter.selectFlags, ids: ids, jobs: outboxJobs,
		named: func(ctx context.Context, client *adminClient) (proto.Message, []changed, error) {
			return outboxNamed(ctx, client, o, verb, ids)
		},
		selected: func(ctx context.Context, client *adminClient) (proto.Message, *job, int64, error) {
			return verb.selected(ctx, client, filter)
		},
	}, "DELIVERY")
}

// outboxNamed changes the deliveries that ids name, of themselves or by their event.
func outboxNamed(ctx context.Context, client *adminClient, o outboxChangeOptions, verb outboxVerb, ids []string) (proto.Message, []changed, error) {
	var deliveries []string
	for _, id := range ids {
		if isDeliveryID(id) {
			deliveries = append(deliveries, id)
			continue
		}
		of, err := deliveriesOf(ctx, client, o.filter.tenant, id, o.filter.where, openStates)
		if err != nil {
			return nil, nil, err
		}
		deliveries = append(deliveries, of...)
	}
	all := &egressv1.RedeliverResponse{}
	for part := range slices.Chunk(deliveries, changePart) {
		results, err := verb.named(ctx, client, part)
		if err != nil {
			return nil, nil, err
		}
		all.Results = append(all.Results, results...)
	}
	var out []changed
	for _, r := range all.GetResults() {
		out = append(out, changed{[]string{r.GetId()}, deliveryState(r.GetBefore()), deliveryState(r.GetNow()), r.GetError()})
	}
	return all, out, nil
}

// deliveriesOf returns the ids of the deliveries of an event that are in one of states, to endpoint where that is given.
func deliveriesOf(ctx context.Context, client *adminClient, tenant, event, endpoint string, states []egressv1.DeliveryState) ([]string, error) {
	res, err := call(ctx, client, client.egress.GetEvent, &egressv1.GetEventRequest{Id: event, Tenant: tenant})
	if err != nil {
		return nil, err
	}
	if res.GetMoreDeliveries() {
		return nil, usagef("event %s has more deliveries than can be named at one time: use filters", printable(event))
	}
	var ids []string
	for _, d := range res.GetDeliveries() {
		if (endpoint == "" || d.GetDelivery().GetEndpoint() == endpoint) && slices.Contains(states, d.GetDelivery().GetState()) {
			ids = append(ids, d.GetDelivery().GetId())
		}
	}
	if len(ids) == 0 {
		return nil, no(errors.New("no delivery of event " + printable(event) + " waits or is dead"))
	}
	return ids, nil
}
