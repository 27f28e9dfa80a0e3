package main

import (
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// selectFlags are the filters that both halves have: where it comes from or goes to, and what it is.
type selectFlags struct {
	where, state, tenant, eventType, reason string
	since, until                            timeFlag
}

// selectWords say for a half what its filters select: where is the flag of the place, things what is selected, and taken what
// has been done to an event at the time that since and until compare with.
type selectWords struct{ where, things, to, taken string }

// register adds the flags to c.
func (f *selectFlags) register(c *cobra.Command, w selectWords) {
	fl := c.Flags()
	fl.StringVar(&f.where, w.where, "", "only "+w.things+" "+w.to+" this `"+strings.ToUpper(w.where)+"`, which need not exist any more")
	fl.StringVar(&f.state, "state", "", "only "+w.things+" in this `STATE`")
	fl.StringVar(&f.tenant, "tenant", "", "only events of this `TENANT`")
	fl.StringVar(&f.eventType, "type", "", "only events of this `TYPE`")
	fl.StringVar(&f.reason, "reason", "", "only "+w.things+" whose last attempt ended with this `REASON`, such as timeout_headers")
	fl.Var(&f.since, "since", "only events "+w.taken+" at this `TIME` or later: RFC 3339, or how long ago (90m, 2d)")
	fl.Var(&f.until, "until", "only events "+w.taken+" before this `TIME`")
}

// filterMessage is what the filters of both halves have in common.
type filterMessage interface {
	GetTenant() string
	GetType() string
	GetReason() string
	GetSince() *timestamppb.Timestamp
	GetUntil() *timestamppb.Timestamp
}

// filterLine is a filter as its flags would say it; place is what it says of the flag where, and state its word.
func filterLine(where, place, state string, f filterMessage) string {
	var words []string
	add := func(flag, value string) {
		if value != "" && value != "-" {
			words = append(words, flag+"="+value)
		}
	}
	add(where, place)
	add("state", state)
	add("tenant", f.GetTenant())
	add("type", f.GetType())
	add("reason", f.GetReason())
	add("since", timeText(f.GetSince()))
	add("until", timeText(f.GetUntil()))
	return strings.Join(words, " ")
}

// flagSet is a flag, and whether it was given.
type flagSet struct {
	name string
	set  bool
}

// given lists the flags that go with a selection only.
func (f *selectFlags) given() []flagSet {
	return []flagSet{
		{"state", f.state != ""}, {"type", f.eventType != ""}, {"reason", f.reason != ""},
		{"since", !f.since.t.IsZero()}, {"until", !f.until.t.IsZero()},
	}
}

// none reports whether no filter is given.
func (f *selectFlags) none() bool {
	for _, g := range f.given() {
		if g.set {
			return false
		}
	}
	return f.where == "" && f.tenant == ""
}
