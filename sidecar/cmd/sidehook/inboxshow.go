package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// eventOptions name one event on the command line.
type eventOptions struct {
	admin  adminFlags
	format outputFlag
	source string
	tenant string
}

// register adds the flags to c.
func (o *eventOptions) register(c *cobra.Command) {
	o.admin.register(c)
	o.format.register(c)
	c.Flags().StringVar(&o.source, "source", "", "the event's `SOURCE`; needed where several sources hold the same id")
	c.Flags().StringVar(&o.tenant, "tenant", "", "the event's `TENANT`")
}

// inboxShowOptions are the flags of `inbox show`.
type inboxShowOptions struct {
	eventOptions
	body bool
}

func newInboxShow(std stdio) *cobra.Command {
	var o inboxShowOptions
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show one event; exit code 1 if the inbox does not hold it",
		Long: `Show one event, by its id or, where it is kept for the app (mode STORE), by its delivery (dlv_…): then also its last attempts.

With --body the request that the sender made is printed under it, escaped: method, target, headers and body; in JSON and
YAML the body is exact, in base64. That somebody looked at it is in the audit log.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error { return inboxShow(c.Context(), std, o, a[0]) },
	}
	o.register(c)
	c.Flags().BoolVar(&o.body, "body", false, "show the request with headers and body, too")
	return c
}

func inboxShow(ctx context.Context, std stdio, o inboxShowOptions, id string) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	name, err := eventName(ctx, client, o.source, o.tenant, id)
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.GetEvent, &inboxv1.GetEventRequest{
		Source: name.GetSource(), Id: name.GetId(), Tenant: name.GetTenant(), Delivery: name.GetDelivery(), IncludeBody: o.body,
	})
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, res)
	}
	if err := printEvent(std.out, res.GetEvent()); err != nil {
		return err
	}
	for _, a := range res.GetAttempts() {
		if err := printAttempt(std.out, a, a.GetTrigger()); err != nil {
			return err
		}
	}
	if !o.body {
		return nil
	}
	return printRequest(std.out, res)
}

func printEvent(w io.Writer, e *inboxv1.Event) error {
	lines := [][2]string{
		{"source", e.GetSource()},
		{"id", e.GetId()},
		{"tenant", e.GetTenant()},
		{"state", stateWord(e.GetState())},
		{"reason", e.GetReason()},
		{"type", e.GetType()},
		{"created", timeText(e.GetCreateTime())},
		{"seen", timeText(e.GetSeenTime())},
	}
	if left := e.GetLeaseLeft(); left != nil {
		lines = append(lines, [2]string{"lease", left.AsDuration().Round(time.Millisecond).String() + " left"})
	}
	if n := e.GetOpenLeases(); n > 0 {
		lines = append(lines, [2]string{"open", plural(int(n), "lease") + " whose late success would still count"})
	}
	return printLines(w, append(lines, deliveryLines(e.GetDelivery())...))
}

// deliveryLines are the way of an event that is kept for the app.
func deliveryLines(d *inboxv1.Delivery) [][2]string {
	if d == nil {
		return nil
	}
	delivery := d.GetId()
	if d.GetNotReached() {
		delivery += ", the app was never reached"
	}
	if d.GetRedelivered() {
		delivery += ", redelivered"
	}
	body := fmt.Sprintf("%d bytes, kept", d.GetBodyBytes())
	if !d.GetBodyKept() {
		body = fmt.Sprintf("%d bytes, not kept any more", d.GetBodyBytes())
	}
	lines := [][2]string{{"delivery", delivery}, {"taken", timeText(d.GetAcceptTime())}}
	if d.GetDueTime() != nil {
		lines = append(lines, [2]string{"due", timeText(d.GetDueTime())})
	}
	if d.GetEndTime() != nil {
		lines = append(lines, [2]string{"ended", timeText(d.GetEndTime())})
	}
	return append(lines, [][2]string{
		{"body", body}, {"attempts", fmt.Sprintf("%d, of which %d count", d.GetTries(), d.GetAttempts())},
	}...)
}

// printRequest prints the request of an event as far as it is kept.
func printRequest(w io.Writer, res *inboxv1.GetEventResponse) error {
	r := res.GetRequest()
	if r == nil {
		return no(errors.New("nothing of the request is kept"))
	}
	if r.GetMethod() == "" {
		return no(errors.New("nothing of the request is kept any more: the event was expunged, or neither waits nor is dead"))
	}
	var lines strings.Builder
	fmt.Fprintf(&lines, "\n%s %s\n", printable(r.GetMethod()), printable(r.GetTarget()))
	if r.GetAuthority() != "" {
		fmt.Fprintf(&lines, "host: %s\n", printable(r.GetAuthority()))
	}
	for _, h := range r.GetHeaders() {
		fmt.Fprintf(&lines, "%s: %s\n", printable(h.GetName()), printable(h.GetValue()))
	}
	if _, err := io.WriteString(w, lines.String()); err != nil {
		return err
	}
	if !res.GetEvent().GetDelivery().GetBodyKept() {
		return no(errors.New("the body is not kept any more: the event neither waits nor is dead"))
	}
	_, err := fmt.Fprintf(w, "\n%s\n", printableLines(string(r.GetBody())))
	return err
}
