package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// changePart is how many ids go into one call, the most that the API takes.
const changePart = 1000

// changeOptions are the flags of `outbox redeliver` and `outbox discard`.
type changeOptions struct {
	admin  adminFlags
	format outputFlag
	filter filterFlags
	rate   float64
	dryRun bool
	wait   bool
}

// register adds the flags to c.
func (o *changeOptions) register(c *cobra.Command) {
	o.admin.register(c)
	o.format.register(c)
	o.filter.register(c)
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "count what the filters select, and do nothing")
	c.Flags().BoolVar(&o.wait, "wait", false, "follow the job until it has ended; exit code 1 if it was cancelled")
}

// changeVerb is what one of the two commands does through the API.
type changeVerb struct {
	name string
	// takes are the states in which a delivery of a named event is taken.
	takes []egressv1.DeliveryState
	// named changes the deliveries of these ids; selected starts a job, or counts.
	named    func(ctx context.Context, client *adminClient, ids []string) ([]*egressv1.DeliveryResult, error)
	selected func(ctx context.Context, client *adminClient, f *egressv1.Filter) (proto.Message, *egressv1.Job, int64, error)
}

var openStates = []egressv1.DeliveryState{
	egressv1.DeliveryState_DELIVERY_STATE_WAITING, egressv1.DeliveryState_DELIVERY_STATE_PARKED, egressv1.DeliveryState_DELIVERY_STATE_DEAD,
}

func newOutboxRedeliver(std stdio) *cobra.Command {
	var o changeOptions
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
			return outboxChange(c.Context(), std, o, changeVerb{
				name:  "redelivered",
				takes: openStates,
				named: func(ctx context.Context, client *adminClient, ids []string) ([]*egressv1.DeliveryResult, error) {
					res, err := call(ctx, client, client.egress.Redeliver, &egressv1.RedeliverRequest{Ids: ids})
					return res.GetResults(), err
				},
				selected: func(ctx context.Context, client *adminClient, f *egressv1.Filter) (proto.Message, *egressv1.Job, int64, error) {
					res, err := call(ctx, client, client.egress.Redeliver, &egressv1.RedeliverRequest{Filter: f, Rate: o.rate, DryRun: o.dryRun})
					return res, res.GetJob(), res.GetMatched(), err
				},
			}, a)
		},
	}
	o.register(c)
	c.Flags().Float64Var(&o.rate, "rate", 0, "make `N` deliveries due per second (default 100)")
	return c
}

func newOutboxDiscard(std stdio) *cobra.Command {
	var o changeOptions
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
			return outboxChange(c.Context(), std, o, changeVerb{
				name:  "discarded",
				takes: openStates,
				named: func(ctx context.Context, client *adminClient, ids []string) ([]*egressv1.DeliveryResult, error) {
					res, err := call(ctx, client, client.egress.Discard, &egressv1.DiscardRequest{Ids: ids})
					return res.GetResults(), err
				},
				selected: func(ctx context.Context, client *adminClient, f *egressv1.Filter) (proto.Message, *egressv1.Job, int64, error) {
					res, err := call(ctx, client, client.egress.Discard, &egressv1.DiscardRequest{Filter: f, DryRun: o.dryRun})
					return res, res.GetJob(), res.GetMatched(), err
				},
			}, a)
		},
	}
	o.register(c)
	return c
}

func outboxChange(ctx context.Context, std stdio, o changeOptions, verb changeVerb, ids []string) error {
	filter, err := o.filter.filter()
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"state", o.filter.state != ""}, {"type", o.filter.eventType != ""}, {"reason", o.filter.reason != ""},
			{"since", filter.GetSince() != nil}, {"until", filter.GetUntil() != nil}, {"rate", o.rate != 0},
			{"dry-run", o.dryRun}, {"wait", o.wait},
		} {
			if f.set {
				return usagef("--%s is for what filters select, and ids are given", f.name)
			}
		}
	} else if proto.Equal(filter, &egressv1.Filter{}) {
		return usagef("say which: ids, or filters such as --endpoint")
	}
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return changeNamed(ctx, std, o, verb, client, ids)
	}
	res, job, matched, err := verb.selected(ctx, client, filter)
	if err != nil {
		return err
	}
	if job != nil && o.wait {
		if !o.format.structured() {
			if err := printJob(std.out, job); err != nil {
				return err
			}
		}
		return followJob(ctx, std, o.format, client, job)
	}
	switch {
	case o.format.structured():
		return o.format.print(std.out, res)
	case o.dryRun:
		_, err = fmt.Fprintf(std.out, "%d would be %s\n", matched, verb.name)
		return err
	}
	return printJob(std.out, job)
}

// changeNamed changes the deliveries that ids name, of themselves or by their event.
func changeNamed(ctx context.Context, std stdio, o changeOptions, verb changeVerb, client *adminClient, ids []string) error {
	var deliveries []string
	for _, id := range ids {
		if isDeliveryID(id) {
			deliveries = append(deliveries, id)
			continue
		}
		of, err := deliveriesOf(ctx, client, o.filter.tenant, id, o.filter.endpoint, verb.takes)
		if err != nil {
			return err
		}
		deliveries = append(deliveries, of...)
	}
	all := &egressv1.RedeliverResponse{}
	for part := range slices.Chunk(deliveries, changePart) {
		results, err := verb.named(ctx, client, part)
		if err != nil {
			return err
		}
		all.Results = append(all.Results, results...)
	}
	failed := 0
	rows := make([][]string, len(all.GetResults()))
	for i, r := range all.GetResults() {
		what := verb.name
		if r.GetError() != "" {
			what = r.GetError()
			failed++
		}
		rows[i] = []string{r.GetId(), deliveryState(r.GetBefore()), deliveryState(r.GetNow()), what}
	}
	var err error
	if o.format.structured() {
		err = o.format.print(std.out, all)
	} else {
		err = table(std.out, []string{"DELIVERY", "BEFORE", "NOW", "RESULT"}, rows)
	}
	if err == nil && failed > 0 {
		return no(fmt.Errorf("%d of %d could not be %s", failed, len(rows), verb.name))
	}
	return err
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
