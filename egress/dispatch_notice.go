package egress

import "time"

// NoticeKind says what the owner of an endpoint is told. The zero value is invalid.
type NoticeKind uint8

const (
	_ NoticeKind = iota
	// NoticeWarned: the endpoint has failed on end for Percent of the time after which it is disabled.
	NoticeWarned
	// NoticeDisabled: nothing is sent to the endpoint until a person enables it.
	NoticeDisabled
	// NoticeRecovered: the endpoint took a delivery again, after a warning or after it was disabled.
	NoticeRecovered
	// NoticeDead: a delivery is a dead letter.
	NoticeDead
	noticeKinds // their number
)

var noticeNames = [noticeKinds]string{
	NoticeWarned:    "endpoint.warned",
	NoticeDisabled:  "endpoint.disabled",
	NoticeRecovered: "endpoint.recovered",
	NoticeDead:      "delivery.dead",
}

// String returns the event type under which the operational webhook tells it, "invalid" for a value outside the enum.
func (k NoticeKind) String() string {
	if k == 0 || k >= noticeKinds {
		return "invalid"
	}
	return noticeNames[k]
}

// Notice is something that the owner of an endpoint shall hear. It holds neither URL nor content.
type Notice struct {
	Kind     NoticeKind
	Endpoint string // the endpoint's ID
	Tenant   string
	Owner    string // mail address; "": nobody
	At       time.Time
	// Disabled says why the endpoint is disabled, or, for NoticeRecovered, that it was not.
	Disabled DisableReason
	// Outcome is that of the attempt behind the notice; 0 without one.
	Outcome Outcome
	// NotReached: the delivery is dead because no attempt reached the receiver.
	NotReached bool
	// Percent of DisableAfter that has passed: 50 or 90 for NoticeWarned, else 0.
	Percent int
	// Since is when the endpoint began to fail; zero where that does not matter.
	Since time.Time
	// DeliveryID and EventID name the attempt's delivery; zero and "" without one.
	DeliveryID DeliveryID
	EventID    string
}
