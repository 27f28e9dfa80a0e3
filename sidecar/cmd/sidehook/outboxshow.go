package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// outboxShowOptions are the flags of `outbox show` and `outbox expunge`.
type outboxShowOptions struct {
	admin  adminFlags
	format outputFlag
	tenant string
	body   bool
}

// register adds the flags to c.
func (o *outboxShowOptions) register(c *cobra.Command) {
	o.admin.register(c)
	o.format.register(c)
	c.Flags().StringVar(&o.tenant, "tenant", "", "the event's `TENANT`; not needed where sidehook made the id")
}

func newOutboxShow(std stdio) *cobra.Command {
	var o outboxShowOptions
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show a delivery or an event with its attempts; exit code 1 if there is none",
		Long: `Show a delivery (dlv_…) with its attempts, or an event with its deliveries and their attempts.

With --body the body of the event is printed under it, escaped; in JSON and YAML it is exact, in base64. That somebody
looked at a body is in the audit log.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error { return outboxShow(c.Context(), std, o, a[0]) },
	}
	o.register(c)
	c.Flags().BoolVar(&o.body, "body", false, "show the event's body, too")
	return c
}

// isDeliveryID reports whether id is written as a delivery's.
func isDeliveryID(id string) bool { return strings.HasPrefix(id, "dlv_") }

func outboxShow(ctx context.Context, std stdio, o outboxShowOptions, id string) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	if isDeliveryID(id) {
		res, err := call(ctx, client, client.egress.GetDelivery, &egressv1.GetDeliveryRequest{Id: id})
		switch {
		case err != nil:
			return err
		case o.body:
			return showEvent(ctx, std, o, client, res.GetEvent().GetTenant(), res.GetEvent().GetId())
		case o.format.structured():
			return o.format.print(std.out, res)
		}
		if err := printOutboxEvent(std.out, res.GetEvent()); err != nil {
			return err
		}
		return printDelivery(std.out, res.GetDelivery(), res.GetAttempts())
	}
	return showEvent(ctx, std, o, client, o.tenant, id)
}

func showEvent(ctx context.Context, std stdio, o outboxShowOptions, client *adminClient, tenant, id string) error {
	res, err := call(ctx, client, client.egress.GetEvent, &egressv1.GetEventRequest{Id: id, Tenant: tenant, IncludeBody: o.body})
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, res)
	}
	if err := printOutboxEvent(std.out, res.GetEvent()); err != nil {
		return err
	}
	for _, d := range res.GetDeliveries() {
		if err := printDelivery(std.out, d.GetDelivery(), d.GetAttempts()); err != nil {
			return err
		}
	}
	if res.GetMoreDeliveries() {
		if _, err := fmt.Fprintln(std.out, "\nthere are more deliveries: see `sidehook outbox list`"); err != nil {
			return err
		}
	}
	if !o.body {
		return nil
	}
	if !res.GetEvent().GetBodyKept() {
		return no(errors.New("the body is not kept any more: no delivery of the event waits or is dead"))
	}
	_, err = fmt.Fprintf(std.out, "\n%s\n", printableLines(string(res.GetBody())))
	return err
}

func printOutboxEvent(w io.Writer, e *egressv1.Event) error {
	body := fmt.Sprintf("%d bytes, kept", e.GetBodyBytes())
	if !e.GetBodyKept() {
		body = fmt.Sprintf("%d bytes, not kept any more", e.GetBodyBytes())
	}
	return printLines(w, [][2]string{
		{"event", e.GetId()}, {"tenant", e.GetTenant()}, {"type", e.GetType()}, {"content", e.GetContentType()}, {"body", body},
		{"accepted", timeText(e.GetAcceptTime())},
	})
}

func printDelivery(w io.Writer, d *egressv1.Delivery, attempts []*egressv1.Attempt) error {
	state := deliveryState(d.GetState())
	if d.GetNotReached() {
		state += ", the receiver was never reached"
	}
	if d.GetRedelivered() {
		state += ", redelivered"
	}
	lines := [][2]string{{"delivery", d.GetId()}, {"endpoint", d.GetEndpoint()}, {"state", state}}
	if d.GetDueTime() != nil {
		lines = append(lines, [2]string{"due", timeText(d.GetDueTime())})
	}
	if d.GetEndTime() != nil {
		lines = append(lines, [2]string{"ended", timeText(d.GetEndTime())})
	}
	lines = append(lines, [2]string{"attempts", fmt.Sprintf("%d, of which %d count", d.GetTries(), d.GetAttempts())})
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := printLines(w, lines); err != nil {
		return err
	}
	for _, a := range attempts {
		if err := printAttempt(w, a, a.GetTrigger()); err != nil {
			return err
		}
	}
	return nil
}

func newOutboxExpunge(std stdio) *cobra.Command {
	var o outboxShowOptions
	c := &cobra.Command{
		Use:   "expunge EVENT",
		Short: "Remove the body and the headers of an event for good",
		Long: `Remove the body and the headers of an event for good. Its id, hash and times stay; deliveries of it that wait or are dead
become DISCARDED. What receivers answered goes with the log (keep.log). Backups of the store are not touched.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error { return outboxExpunge(c.Context(), std, o, a[0]) },
	}
	o.register(c)
	return c
}

func outboxExpunge(ctx context.Context, std stdio, o outboxShowOptions, id string) error {
	if isDeliveryID(id) {
		return usagef("%s is a delivery: name its event (see sidehook outbox show)", printable(id))
	}
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.egress.Expunge, &egressv1.ExpungeRequest{EventId: id, Tenant: o.tenant})
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, res)
	}
	_, err = fmt.Fprintf(std.out, "%s has no body any more\n", printable(res.GetEvent().GetId()))
	return err
}
