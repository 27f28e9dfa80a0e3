package extauthz

import (
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// deliveryMessage shows what became of an event that is kept for the app.
func (s *Service) deliveryMessage(r *StoredRecord) *inboxv1.Delivery {
	return &inboxv1.Delivery{
		Id:          s.cfg.Stored.RefText(r.Ref),
		AcceptTime:  timeMessage(r.Taken),
		DueTime:     timeMessage(r.Due),
		Attempts:    int32(r.Attempts),
		Tries:       int32(r.Tries),
		EndTime:     timeMessage(r.Ended),
		Reason:      r.Reason,
		NotReached:  r.NotReached,
		Redelivered: r.Redelivered,
		Job:         r.Job,
		BodyBytes:   int64(r.Bytes),
	}
}

// detailMessage adds to m what only GetEvent returns.
func detailMessage(m *inboxv1.Delivery, d *StoredDetail) {
	m.BodyKept = d.HasBody
	if d.Content != ([32]byte{}) {
		m.BodySha256 = d.Content[:]
	}
}

// requestMessage shows a request without its body. A string of the schema holds UTF-8 only.
func requestMessage(d *StoredDetail) *inboxv1.Request {
	text := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
	m := &inboxv1.Request{Method: text(d.Method), Target: text(d.Target), Authority: text(d.Authority)}
	for _, h := range d.Headers {
		m.Headers = append(m.Headers, &inboxv1.Header{Name: text(h.Name), Value: text(h.Value)})
	}
	return m
}

func attemptMessages(list []StoredAttempt) []*inboxv1.Attempt {
	out := make([]*inboxv1.Attempt, len(list))
	for i := range list {
		out[i] = attemptMessage(&list[i])
	}
	return out
}

func attemptMessage(a *StoredAttempt) *inboxv1.Attempt {
	m := &inboxv1.Attempt{
		Number:      int32(a.N),
		StartTime:   timeMessage(a.At),
		Trigger:     inboxv1.AttemptTrigger(a.Trigger),
		Outcome:     a.Outcome,
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
