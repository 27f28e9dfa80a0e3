package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

func newOutbox(std stdio) *cobra.Command {
	return group("outbox", "List, show, count, redeliver and discard the deliveries of a running sidehook",
		`Commands on the outbox of a running sidehook, through its admin API.

An event becomes a delivery for each endpoint that wants it. States of a delivery:
  WAITING    it is tried when it is due
  SENDING    an attempt is in flight
  DELIVERED  the receiver answered 2xx
  DEAD       out of attempts, or ended by the receiver's answer; it can be redelivered
  PARKED     it waits, and its endpoint is disabled, or egress is paused
  CANCELLED  its endpoint was removed
  DISCARDED  a person ended it
Deliveries are named by their id, dlv_…, and events by theirs.`,
		newOutboxList(std), newOutboxShow(std), newOutboxSummary(std), newOutboxRedeliver(std), newOutboxDiscard(std),
		newOutboxExpunge(std), newJobs(std, outboxJobs), newJobCancel(std, outboxJobs),
	)
}

// filterFlags select deliveries.
type filterFlags struct{ selectFlags }

// register adds the flags to c.
func (f *filterFlags) register(c *cobra.Command) {
	f.selectFlags.register(c, selectWords{where: "endpoint", things: "deliveries", to: "to", taken: "accepted"})
}

// filter is what the flags say.
func (f *filterFlags) filter() (*egressv1.Filter, error) {
	m := &egressv1.Filter{
		Endpoint: f.where, Tenant: f.tenant, Type: f.eventType, Reason: f.reason, Since: f.since.message(), Until: f.until.message(),
	}
	if f.state == "" {
		return m, nil
	}
	n, ok := egressv1.DeliveryState_value["DELIVERY_STATE_"+strings.ToUpper(f.state)]
	if !ok || n == 0 {
		return nil, usagef("--state: %q is not WAITING, SENDING, DELIVERED, DEAD, PARKED, CANCELLED or DISCARDED", f.state)
	}
	m.State = egressv1.DeliveryState(n)
	return m, nil
}

// deliveryState is the state without the prefix that the schema's enum has.
func deliveryState(s egressv1.DeliveryState) string {
	return strings.TrimPrefix(s.String(), "DELIVERY_STATE_")
}

// attemptLines are an attempt for a person, one thing a line.
func attemptLines(a *egressv1.Attempt) [][2]string {
	lines := [][2]string{{"outcome", a.GetOutcome()}}
	if a.GetStatus() != 0 {
		lines = append(lines, [2]string{"status", fmt.Sprint(a.GetStatus())})
	}
	lines = append(lines, [2]string{"took", shortDuration(a.GetTook())}, [2]string{"ip", a.GetIp()})
	if a.GetRetryAfter() != nil {
		lines = append(lines, [2]string{"retry", "after " + shortDuration(a.GetRetryAfter())})
	}
	lines = append(lines, [2]string{"detail", a.GetDetail()})
	if len(a.GetAnswer()) > 0 {
		lines = append(lines, [2]string{"answer", string(a.GetAnswer())})
	}
	if a.GetTruncated() {
		lines = append(lines, [2]string{"", fmt.Sprintf("(of %d bytes or more)", a.GetAnswerBytes())})
	}
	return slices.DeleteFunc(lines, func(l [2]string) bool { return l[1] == "" })
}
