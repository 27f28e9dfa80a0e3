package egress

import (
	"errors"
	"fmt"
	"strings"
)

// errNoTarget: the configuration changed while a notice waited.
var errNoTarget = errors.New("nobody is to be told any more")

// disableReasons as the operational webhook has them. NotDisabled has none.
var disableReasonNames = [disableReasons]string{
	DisabledGone:    "gone",
	DisabledAsked:   "asked",
	DisabledFailing: "failing",
	DisabledPerson:  "person",
}

// disableReasonTexts say it to a person.
var disableReasonTexts = [disableReasons]string{
	DisabledGone:    "It answered 410 Gone.",
	DisabledAsked:   "It asked for that in an answer (webhook-delivery: disable).",
	DisabledFailing: "It has failed on end for as long as an endpoint may.",
	DisabledPerson:  "A person did that.",
}

func disableReasonName(r DisableReason) string {
	if r >= disableReasons {
		return "unknown"
	}
	return disableReasonNames[r]
}

// subject of the mail. It holds nothing but the endpoint's id that came from outside.
func (m *message) subject() string {
	switch m.Kind {
	case NoticeWarned:
		return fmt.Sprintf("[sidehook] webhook endpoint %s is failing", m.Endpoint)
	case NoticeDisabled:
		return fmt.Sprintf("[sidehook] webhook endpoint %s is disabled", m.Endpoint)
	case NoticeRecovered:
		return fmt.Sprintf("[sidehook] webhook endpoint %s has recovered", m.Endpoint)
	case NoticeDead:
		return fmt.Sprintf("[sidehook] a webhook to endpoint %s was not delivered", m.Endpoint)
	default:
		return fmt.Sprintf("[sidehook] webhook endpoint %s", m.Endpoint)
	}
}

// text of the mail: plain, in lines that need no folding, without URL and content.
func (m *message) text(instance string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	switch m.Kind {
	case NoticeWarned:
		line("The webhook endpoint %s has been failing for %d%% of the time\nafter which it is disabled.", m.Endpoint, m.Percent)
		line("\nIts deliveries wait and are tried again. Nothing is lost so far.")
	case NoticeDisabled:
		line("The webhook endpoint %s is disabled. Nothing is sent to it any more.\n%s", m.Endpoint, disableReasonTexts[min(m.Disabled, disableReasons-1)])
		line("\nIts deliveries wait. Once it works again, go on with:\n    sidehook endpoint enable %s", m.Endpoint)
	case NoticeRecovered:
		line("The webhook endpoint %s took a delivery again.\nWhat waited for it is sent now.", m.Endpoint)
	case NoticeDead:
		why := "No attempt is left, or its receiver ended it."
		if m.NotReached {
			why = "No attempt reached the receiver for as long as a delivery is tried."
		}
		line("A webhook to endpoint %s was not delivered and will not be tried again.\n%s", m.Endpoint, why)
		line("\nOnce the endpoint works, send it again with:\n    sidehook outbox redeliver %s", m.DeliveryID)
	}
	line("")
	fact := func(name, value string) {
		if value != "" {
			line("%-10s %s", name+":", value)
		}
	}
	fact("Time", m.At.UTC().Format(timestampFormat))
	if !m.Since.IsZero() {
		fact("Failing", "since "+m.Since.UTC().Format(timestampFormat))
	}
	if m.Outcome != 0 {
		fact("Attempt", m.Outcome.String())
	}
	if m.DeliveryID != (DeliveryID{}) {
		fact("Delivery", m.DeliveryID.String())
	}
	fact("Event", m.EventID)
	fact("Tenant", m.Tenant)
	fact("Instance", instance)
	if m.suppressed > 0 {
		fact("Also", fmt.Sprintf("%d more of the same since the last mail about it", m.suppressed))
	}
	return b.String()
}
