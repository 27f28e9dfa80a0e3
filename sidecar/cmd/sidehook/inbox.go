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
	return group("inbox", "List, show, count and release the events of a running sidehook",
		`Commands on the inbox of a running sidehook, through its admin API.

The inbox keeps of each event its id, type and times; neither headers nor bodies. States:
  PENDING   with the app, under a lease; when the lease has run out, the next delivery passes
  UNKNOWN   its end was never learned and the source says on_unknown: HOLD; deliveries get 503
  DONE      the app answered 2xx; further deliveries are answered as duplicates
  RELEASED  the app or a person gave it back; the next delivery passes
  IGNORED   left out by the source's types, and the app was not called; released, the next delivery passes once

Ids are written as the app gets them in x-sidehook-event-id: `+"`%`"+` and all outside printable ASCII percent-encoded.`,
		newInboxList(std), newInboxShow(std), newInboxSummary(std), newInboxRelease(std),
	)
}

// findEvent returns the event of that id: in source, or, when that is empty, in the one source that has it.
func findEvent(ctx context.Context, client *adminClient, source, id string) (*inboxv1.Event, error) {
	if source != "" {
		res, err := call(ctx, client, client.GetEvent, &inboxv1.GetEventRequest{Source: source, Id: id})
		return res.GetEvent(), err
	}
	sum, err := call(ctx, client, client.Summarize, &inboxv1.SummarizeRequest{})
	if err != nil {
		return nil, err
	}
	var found []*inboxv1.Event
	var names []string
	for _, s := range sum.GetSources() {
		res, err := call(ctx, client, client.GetEvent, &inboxv1.GetEventRequest{Source: s.GetSource(), Id: id})
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
		return nil, no(fmt.Errorf("the inbox holds no event %q of any source: its next delivery passes, unless the types of the source leave it out", id))
	case 1:
		return found[0], nil
	default:
		return nil, usagef("event %q is in the sources %s: say which with --source", id, strings.Join(names, ", "))
	}
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
