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

func emptyStates() []*inboxv1.StateSummary {
	out := make([]*inboxv1.StateSummary, len(States))
	for i, s := range States {
		out[i] = &inboxv1.StateSummary{State: stateMessage(s)}
	}
	return out
}

func eventMessage(r Record) *inboxv1.Event {
	e := &inboxv1.Event{
		Source:     r.Key.Source,
		Id:         percentEncode(r.Key.ID),
		State:      stateMessage(r.State),
		Type:       percentEncode(r.Type),
		CreateTime: timeMessage(r.First),
		SeenTime:   timeMessage(r.Last),
		OpenLeases: int32(r.OpenTokens),
	}
	if r.State == StatePending {
		e.LeaseLeft = durationpb.New(r.LeaseLeft)
	}
	return e
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
