package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// inboxPartBytes bounds the names in one call: the API takes no request above 64 KiB.
const inboxPartBytes = 32 << 10

// inboxChangeOptions are the flags of `inbox redeliver` and `inbox discard`.
type inboxChangeOptions struct {
	changeFlags
	filter inboxFilterFlags
}

// register adds the flags to c.
func (o *inboxChangeOptions) register(c *cobra.Command) {
	o.changeFlags.register(c)
	o.filter.register(c, "taken")
}

func newInboxRedeliver(std stdio) *cobra.Command {
	var o inboxChangeOptions
	c := &cobra.Command{
		Use:   "redeliver [ID…]",
		Short: "Bring events that are kept for the app to it again: named ones, or those that filters select",
		Long: `Bring events that are kept for the app (mode STORE) to it again, with a new schedule. The app sees that it is a
redelivery: x-sidehook-redelivered: true.

Named events that are DEAD or STORED are due at once; a retry that waits is replaced. While the app cannot be reached its
source is held, and they go when a probe, at most 30s later, gets through. They are named by their id, with
--source where several sources hold it and with --tenant, or by their delivery (dlv_…). Exit code 1 if one could not be
redelivered: of an event in PASS, and of one that the app has taken, nothing is left to send; its sender has to, after
` + "`sidehook inbox release`" + `.

Without names the filters select: those that are DEAD unless --state says STORED. A job goes over them at --rate, also
across restarts; see ` + "`sidehook inbox jobs`" + `. Look at --dry-run first.`,
		Args: args(0, listMost),
		RunE: func(c *cobra.Command, a []string) error {
			return inboxChange(c.Context(), std, o, inboxVerb{
				name: "redelivered",
				named: func(ctx context.Context, client *adminClient, names []*inboxv1.EventName) ([]*inboxv1.EventResult, error) {
					res, err := call(ctx, client, client.RedeliverEvents, &inboxv1.RedeliverEventsRequest{Events: names})
					return res.GetResults(), err
				},
				selected: func(ctx context.Context, client *adminClient, f *inboxv1.Filter) (proto.Message, *job, int64, error) {
					res, err := call(ctx, client, client.RedeliverEvents, &inboxv1.RedeliverEventsRequest{Filter: f, Rate: o.rate, DryRun: o.dryRun})
					return res, inboxJob(res.GetJob()), res.GetMatched(), err
				},
			}, a)
		},
	}
	o.register(c)
	o.registerRate(c, "events")
	return c
}

func newInboxDiscard(std stdio) *cobra.Command {
	var o inboxChangeOptions
	c := &cobra.Command{
		Use:   "discard [ID…]",
		Short: "End events for good: named ones, or those that filters select",
		Long: `End events for good: the app does not get them, and further deliveries by their sender are answered as duplicates. An
attempt in flight is not interrupted, and its success still counts.

Named events are ended where they are kept for the app and STORED, ORPHANED or DEAD, and in PASS where they are UNKNOWN.
They are named by their id, with --source where several sources hold it and with --tenant, or by their delivery (dlv_…).
Exit code 1 if one could not be discarded.

Without names the filters select, and --state must be STORED, ORPHANED or DEAD. A job goes over them, also across restarts;
see ` + "`sidehook inbox jobs`" + `. Look at --dry-run first.`,
		Args: args(0, listMost),
		RunE: func(c *cobra.Command, a []string) error {
			if len(a) == 0 && o.filter.state == "" {
				return usagef("say which: ids, or filters with --state STORED, ORPHANED or DEAD")
			}
			return inboxChange(c.Context(), std, o, inboxVerb{
				name: "discarded",
				named: func(ctx context.Context, client *adminClient, names []*inboxv1.EventName) ([]*inboxv1.EventResult, error) {
					res, err := call(ctx, client, client.DiscardEvents, &inboxv1.DiscardEventsRequest{Events: names})
					return res.GetResults(), err
				},
				selected: func(ctx context.Context, client *adminClient, f *inboxv1.Filter) (proto.Message, *job, int64, error) {
					res, err := call(ctx, client, client.DiscardEvents, &inboxv1.DiscardEventsRequest{Filter: f, DryRun: o.dryRun})
					return res, inboxJob(res.GetJob()), res.GetMatched(), err
				},
			}, a)
		},
	}
	o.register(c)
	return c
}

// inboxVerb is what one of the two commands does through the API.
type inboxVerb struct {
	name string
	// named changes the events of these names; selected starts a job, or counts.
	named    func(ctx context.Context, client *adminClient, names []*inboxv1.EventName) ([]*inboxv1.EventResult, error)
	selected func(ctx context.Context, client *adminClient, f *inboxv1.Filter) (proto.Message, *job, int64, error)
}

func inboxChange(ctx context.Context, std stdio, o inboxChangeOptions, verb inboxVerb, ids []string) error {
	filter, err := o.filter.filter()
	if err != nil {
		return err
	}
	return o.run(ctx, std, change{
		verb: verb.name, filter: &o.filter.selectFlags, ids: ids, jobs: inboxJobs,
		named: func(ctx context.Context, client *adminClient) (proto.Message, []changed, error) {
			return inboxNamed(ctx, client, o, verb, ids)
		},
		selected: func(ctx context.Context, client *adminClient) (proto.Message, *job, int64, error) {
			return verb.selected(ctx, client, filter)
		},
	}, "SOURCE", "EVENT")
}

// inboxNamed changes the events that ids name.
func inboxNamed(ctx context.Context, client *adminClient, o inboxChangeOptions, verb inboxVerb, ids []string) (proto.Message, []changed, error) {
	all := &inboxv1.RedeliverEventsResponse{}
	var part []*inboxv1.EventName
	bytes := 0
	flush := func() error {
		if len(part) == 0 {
			return nil
		}
		results, err := verb.named(ctx, client, part)
		all.Results = append(all.Results, results...)
		part, bytes = nil, 0
		return err
	}
	for _, id := range ids {
		name, err := eventName(ctx, client, o.filter.where, o.filter.tenant, id)
		if err == nil && (len(part) == changePart || bytes > inboxPartBytes) {
			err = flush()
		}
		if err != nil {
			return nil, nil, err
		}
		part = append(part, name)
		bytes += proto.Size(name)
	}
	if err := flush(); err != nil {
		return nil, nil, err
	}
	var out []changed
	for _, r := range all.GetResults() {
		name := r.GetEvent()
		id := name.GetId()
		if name.GetDelivery() != "" {
			id = name.GetDelivery()
		}
		out = append(out, changed{[]string{dash(name.GetSource()), id}, eventStateWord(r.GetBefore()), eventStateWord(r.GetNow()), r.GetError()})
	}
	return all, out, nil
}

// eventName is how the API calls the event of that id; see findEvent.
func eventName(ctx context.Context, client *adminClient, source, tenant, id string) (*inboxv1.EventName, error) {
	switch {
	case isDeliveryID(id):
		return &inboxv1.EventName{Delivery: id}, nil
	case source != "":
		return &inboxv1.EventName{Source: source, Id: id, Tenant: tenant}, nil
	}
	e, err := findEvent(ctx, client, source, tenant, id)
	return &inboxv1.EventName{Source: e.GetSource(), Id: e.GetId(), Tenant: e.GetTenant()}, err
}

// eventStateWord is the state, or a dash for none.
func eventStateWord(s inboxv1.EventState) string {
	if s == 0 {
		return "-"
	}
	return stateWord(s)
}

func newInboxExpunge(std stdio) *cobra.Command {
	var o eventOptions
	c := &cobra.Command{
		Use:   "expunge ID",
		Short: "Remove the headers and the body of an event for good",
		Long: `Remove the headers and the body of an event that is kept for the app for good. Its id, hash and times stay; one that waits
or is dead becomes DISCARDED. What the app answered goes with the log (keep.log). Backups of the store are not touched.

Of an event in PASS neither headers nor body are kept.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error { return inboxExpunge(c.Context(), std, o, a[0]) },
	}
	o.register(c)
	return c
}

func inboxExpunge(ctx context.Context, std stdio, o eventOptions, id string) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	name, err := eventName(ctx, client, o.source, o.tenant, id)
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.ExpungeEvent, &inboxv1.ExpungeEventRequest{Event: name})
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, res)
	}
	e := res.GetEvent()
	_, err = fmt.Fprintf(std.out, "nothing is kept of %s of %s but its id, type and times; it is %s\n",
		printable(e.GetId()), printable(e.GetSource()), stateWord(e.GetState()))
	return err
}
