package extauthz

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// stateMessage returns the wire's name of s; both enums number the states alike (a test holds them together).
func stateMessage(s State) inboxv1.EventState { return inboxv1.EventState(s) }

// stateOf is the inverse of stateMessage; 0 stays 0, any state.
func stateOf(s inboxv1.EventState) (State, error) {
	if _, ok := inboxv1.EventState_name[int32(s)]; !ok {
		return 0, fmt.Errorf("state: %d is not a state", s)
	}
	return State(s), nil
}

// emptyStates has a summary for each state that is counted: what is DELIVERING is counted as STORED.
func emptyStates() []*inboxv1.StateSummary {
	var out []*inboxv1.StateSummary
	for s := StatePending; s <= StateOrphaned; s++ {
		if s != StateDelivering {
			out = append(out, &inboxv1.StateSummary{State: stateMessage(s)})
		}
	}
	return out
}

func (s *Service) eventMessage(e *shownEvent) *inboxv1.Event {
	m := &inboxv1.Event{State: stateMessage(e.state())}
	m.Source, m.Id, m.Tenant = e.name()
	if r := &e.record; e.known {
		m.Type = percentEncode(r.Type)
		m.CreateTime = timeMessage(r.First)
		m.SeenTime = timeMessage(r.Last)
		m.OpenLeases = int32(r.OpenTokens)
		switch r.State {
		case StatePending:
			m.LeaseLeft = durationpb.New(r.LeaseLeft)
		case StateIgnored:
			m.Reason = r.IgnoredFor.String()
		}
	}
	if e.stored == nil {
		return m
	}
	if !e.known {
		m.Type = percentEncode(e.stored.Type)
		m.CreateTime = timeMessage(e.stored.Taken)
	}
	m.Delivery = s.deliveryMessage(e.stored)
	return m
}

// timeMessage returns nil for the zero time.
func timeMessage(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// errEscape is the fault of an id or type that percentEncode did not make.
var errEscape = errors.New("a `%` must be followed by two hex digits (a percent sign itself is written %25)")

// unescape reads what percentEncode wrote, hex digits in either case, and takes every byte but `%` for itself, so that a
// person may also type an id as the sender shows it.
func unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", errEscape
		}
		hi, lo := unhex(s[i+1]), unhex(s[i+2])
		if hi < 0 || lo < 0 {
			return "", errEscape
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), nil
}
