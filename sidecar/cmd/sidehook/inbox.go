package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

func newInbox(std stdio) *cobra.Command {
	return group("inbox", "List, show, count, redeliver and end the events of a running sidehook",
		`Commands on the inbox of a running sidehook, through its admin API.

The inbox keeps of each event in PASS its id, type and times; of one in STORE also the request, until the app has taken it.
States of both:
  DONE              the app answered 2xx; further deliveries by the sender are answered as duplicates
  RELEASED          the app or a person gave it back; the next delivery passes. Mostly it is in no listing then: its row
                    stays only while an earlier delivery may still succeed, or where the source had left it out
  IGNORED           left out by the source's types or by live_only; released, the next delivery passes once
  STALE             older than what the app has of the object
  DUPLICATE_CHANGE  a second event for one change
  DISCARDED         a person ended it
in PASS:
  PENDING           with the app, under a lease; when the lease has run out, the next delivery passes
  UNKNOWN           its end was never learned and the source says on_unknown: HOLD; deliveries get 503
in STORE:
  STORED            it is delivered when it is due
  DELIVERING        an attempt is in flight
  DEAD              the app refused it until the attempts were used up; it can be redelivered
  ORPHANED          it waits, and its source is not configured in STORE any more

Ids are written as the app gets them in x-sidehook-event-id: `+"`%`"+` and all outside printable ASCII percent-encoded.`,
		newInboxList(std), newInboxShow(std), newInboxSummary(std), newInboxRedeliver(std), newInboxRelease(std), newInboxDiscard(std),
		newInboxExpunge(std), newJobs(std, inboxJobs), newJobCancel(std, inboxJobs),
	)
}

// findEvent returns the event of that id and tenant: in source, or, when that is empty, in the one source that has it.
func findEvent(ctx context.Context, client *adminClient, source, tenant, id string) (*inboxv1.Event, error) {
	if source != "" {
		res, err := call(ctx, client, client.GetEvent, &inboxv1.GetEventRequest{Source: source, Id: id, Tenant: tenant})
		return res.GetEvent(), err
	}
	sum, err := call(ctx, client, client.Summarize, &inboxv1.SummarizeRequest{})
	if err != nil {
		return nil, err
	}
	var found []*inboxv1.Event
	var names []string
	for _, s := range sum.GetSources() {
		res, err := call(ctx, client, client.GetEvent, &inboxv1.GetEventRequest{Source: s.GetSource(), Id: id, Tenant: tenant})
		if e, ok := errors.AsType[*exitError](err); ok && e.code == exitNo {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, res.GetEvent())
		names = append(names, s.GetSource())
	}
	switch len(found) {
	case 0:
		of := " (of a source with tenants: say which with --tenant)"
		if tenant != "" {
			of = fmt.Sprintf(" of the tenant %q", tenant)
		}
		return nil, no(fmt.Errorf("the inbox holds no event %q%s: the next delivery of that id passes, unless the types of its source leave it out", id, of))
	case 1:
		return found[0], nil
	default:
		return nil, usagef("event %q is in the sources %s: say which with --source", id, strings.Join(names, ", "))
	}
}

// inboxFilterFlags select events that are kept for the app.
type inboxFilterFlags struct{ selectFlags }

// register adds the flags to c; taken is what --since and --until go by.
func (f *inboxFilterFlags) register(c *cobra.Command, taken string) {
	f.selectFlags.register(c, selectWords{where: "source", things: "events", to: "of", taken: taken})
}

// filter is what the flags say.
func (f *inboxFilterFlags) filter() (*inboxv1.Filter, error) {
	state, err := stateFlag(f.state)
	return &inboxv1.Filter{
		Source: f.where, State: state, Tenant: f.tenant, Type: f.eventType, Reason: f.reason, Since: f.since.message(), Until: f.until.message(),
	}, err
}

// stateFlag reads a state, which may be empty.
func stateFlag(s string) (inboxv1.EventState, error) {
	n, ok := inboxv1.EventState_value["EVENT_STATE_"+strings.ToUpper(s)]
	if s == "" || ok && n != 0 {
		return inboxv1.EventState(n), nil
	}
	var words []string
	for i := range int32(len(inboxv1.EventState_name)) {
		if i != 0 {
			words = append(words, stateWord(inboxv1.EventState(i)))
		}
	}
	return 0, usagef("--state: %q is not one of %s", s, strings.Join(words, ", "))
}

// stateWord is the state without the prefix that the schema's enum has.
func stateWord(s inboxv1.EventState) string {
	return strings.TrimPrefix(s.String(), "EVENT_STATE_")
}

// timeText is t in UTC with milliseconds, or a dash.
func timeText(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}

// timeFlag is a point in time: RFC 3339, or how long ago.
type timeFlag struct{ t time.Time }

// String implements pflag.Value.
func (f *timeFlag) String() string {
	if f.t.IsZero() {
		return ""
	}
	return f.t.Format(time.RFC3339)
}

// Type implements pflag.Value.
func (f *timeFlag) Type() string { return "time" }

// Set implements pflag.Value.
func (f *timeFlag) Set(s string) error {
	if d, err := dayDuration(s); err == nil && d >= 0 {
		f.t = time.Now().Add(-d)
		return nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return fmt.Errorf("want RFC 3339, such as 2026-05-01T12:00:00Z, or how long ago, such as 90m or 2d; not %q", s)
	}
	f.t = t
	return nil
}

// message is the time for a request; nil when the flag was not given.
func (f *timeFlag) message() *timestamppb.Timestamp {
	if f.t.IsZero() {
		return nil
	}
	return timestamppb.New(f.t)
}
