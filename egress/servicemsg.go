package egress

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// stateMessage returns the wire's name of s; both enums number the states alike (a test holds them together, and the
// others of this file).
func stateMessage(s State) egressv1.DeliveryState { return egressv1.DeliveryState(s) }

// stateWord is the state as the API writes it, without the prefix of the enum.
func stateWord(s State) string {
	return strings.TrimPrefix(stateMessage(s).String(), "DELIVERY_STATE_")
}

// emptyStates has a summary for each state that Records.Summary knows.
func emptyStates() []*egressv1.StateSummary {
	var out []*egressv1.StateSummary
	for s := range states {
		if s.kept() || s == StateParked {
			out = append(out, &egressv1.StateSummary{State: stateMessage(s)})
		}
	}
	return out
}

// outcomeMessage is o's word, empty for none.
func outcomeMessage(o Outcome) string {
	if o == 0 {
		return ""
	}
	return o.String()
}

func outcomeWords() string {
	var words []string
	for _, o := range Outcomes() {
		words = append(words, o.String())
	}
	return strings.Join(words, ", ")
}

func deliveryMessage(d *DeliveryRecord) *egressv1.Delivery {
	m := &egressv1.Delivery{
		Id:          d.ID.String(),
		EventId:     d.EventID,
		Endpoint:    d.Endpoint,
		Tenant:      d.Tenant,
		Type:        d.Type,
		State:       stateMessage(d.State),
		Attempts:    int32(d.Attempts),
		Tries:       int32(d.Tries),
		CreateTime:  timeMessage(d.Created),
		EndTime:     timeMessage(d.Ended),
		Reason:      outcomeMessage(d.Reason),
		NotReached:  d.NotReached,
		Redelivered: d.Redelivered,
		Job:         d.Job,
		BodyBytes:   int64(d.Bytes),
	}
	switch d.State {
	case StateWaiting, StateParked:
		m.DueTime = timeMessage(d.Due)
	}
	return m
}

func eventMessage(e *EventMeta) *egressv1.Event {
	return &egressv1.Event{
		Id:            e.ID,
		Tenant:        e.Tenant,
		Type:          e.Type,
		ContentType:   e.ContentType,
		AcceptTime:    timeMessage(e.Accepted),
		BodyBytes:     int64(e.Bytes),
		ContentSha256: e.Content[:],
		BodyKept:      e.HasBody,
	}
}

func attemptMessages(list []Attempt) []*egressv1.Attempt {
	out := make([]*egressv1.Attempt, len(list))
	for i := range list {
		out[i] = attemptMessage(&list[i])
	}
	return out
}

func attemptMessage(a *Attempt) *egressv1.Attempt {
	m := &egressv1.Attempt{
		Number:      int32(a.N),
		StartTime:   timeMessage(a.At),
		Trigger:     egressv1.AttemptTrigger(a.Trigger),
		Outcome:     outcomeMessage(a.Outcome),
		Counted:     a.Counted,
		Status:      int32(a.Status),
		Took:        durationpb.New(a.Took),
		Answer:      a.Answer,
		AnswerBytes: a.AnswerBytes,
		Truncated:   a.Truncated,
		Detail:      a.Detail,
	}
	if a.IP.IsValid() {
		m.Ip = a.IP.String()
	}
	if a.RetryAfter > 0 {
		m.RetryAfter = durationpb.New(a.RetryAfter)
	}
	return m
}

func jobMessage(j Job) *egressv1.Job {
	return &egressv1.Job{
		Id:    j.ID,
		Kind:  egressv1.JobKind(j.Kind),
		State: egressv1.JobState(j.State),
		Filter: &egressv1.Filter{
			Endpoint: j.Filter.Endpoint,
			State:    stateMessage(j.Filter.State),
			Tenant:   j.Filter.Tenant,
			Type:     j.Filter.Type,
			Reason:   outcomeMessage(j.Filter.Reason),
			Since:    timeMessage(j.Filter.Since),
			Until:    timeMessage(j.Filter.Until),
		},
		Total:      j.Total,
		Done:       j.Done,
		Skipped:    j.Skipped,
		Rate:       j.Rate,
		CreateTime: timeMessage(j.Started),
		EndTime:    timeMessage(j.Ended),
	}
}

// filterText is f for the audit log.
func filterText(f Filter) string {
	var words []string
	add := func(name, value string) {
		if value != "" {
			words = append(words, fmt.Sprintf("%s=%q", name, value))
		}
	}
	add("endpoint", f.Endpoint)
	if f.State != 0 {
		add("state", stateWord(f.State))
	}
	add("tenant", f.Tenant)
	add("type", f.Type)
	add("reason", outcomeMessage(f.Reason))
	for _, t := range []struct {
		name string
		at   time.Time
	}{{"since", f.Since}, {"until", f.Until}} {
		if !t.at.IsZero() {
			add(t.name, t.at.UTC().Format(time.RFC3339Nano))
		}
	}
	return strings.Join(words, " ")
}

// timeMessage returns nil for the zero time.
func timeMessage(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
