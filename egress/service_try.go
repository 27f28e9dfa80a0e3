package egress

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"connectrpc.com/connect"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

const (
	// testEventType is the type of the event that TestEndpoint sends.
	testEventType = "sidehook.test"
	// testEventPrefix stands before its ids, which no event in the outbox has by our making.
	testEventPrefix = "test_"
	// testTimeout bounds a test below the time that the admin listener gives a request.
	testTimeout = 25 * time.Second
	// maxTests bounds those that are under way: each is an attempt beside the dispatcher's limits.
	maxTests = 4
)

// TestEndpoint implements egressv1connect.EgressServiceHandler.
func (s *Service) TestEndpoint(ctx context.Context, req *connect.Request[egressv1.TestEndpointRequest]) (*connect.Response[egressv1.TestEndpointResponse], error) {
	g, err := s.endpoint(req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	if g.Endpoint.Unusable != "" {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("endpoint %q: %s", g.ID, g.Endpoint.Unusable))
	}
	select {
	case s.tests <- struct{}{}:
		defer func() { <-s.tests }()
	default:
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%d tests are under way: wait for one to end", maxTests))
	}
	event, err := testEvent(g.Endpoint, time.Now().UTC())
	if err != nil {
		return nil, s.failure(ctx, "endpoint test", err)
	}
	s.audit(ctx, "endpoint test", "", event.ID, slog.String("endpoint", g.ID))
	limited, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	result := s.cfg.Sender.Send(limited, g.Endpoint, event, 1)
	if ctx.Err() == nil && limited.Err() != nil && result.Outcome == OutcomeInterrupted {
		return nil, connect.NewError(connect.CodeDeadlineExceeded,
			fmt.Errorf("no end of the attempt within %s, which is all that a test has", testTimeout))
	}
	return connect.NewResponse(&egressv1.TestEndpointResponse{
		EventId: event.ID,
		Attempt: attemptMessage(&Attempt{
			N: 1, At: event.Accepted, Trigger: TriggerTest,
			Outcome: result.Outcome, Status: result.Status, Took: result.Took, IP: result.IP, RetryAfter: result.RetryAfter,
			Answer: result.Answer, AnswerBytes: result.AnswerBytes, Truncated: result.Truncated, Detail: result.Detail,
		}),
	}), nil
}

// testEvent makes an event in the form of Standard Webhooks that is in no outbox.
func testEvent(e *Endpoint, now time.Time) (*Event, error) {
	type data struct {
		Endpoint string `json:"endpoint"`
	}
	now = now.Truncate(time.Millisecond)
	body, err := json.Marshal(struct {
		Type      string `json:"type"`
		Timestamp string `json:"timestamp"`
		Data      data   `json:"data"`
	}{testEventType, now.Format("2006-01-02T15:04:05.000Z07:00"), data{e.ID}})
	if err != nil {
		return nil, errors.New("write the test's event")
	}
	return &Event{
		ID:          testEventPrefix + strings.ToLower(rand.Text()),
		Tenant:      e.Tenant,
		Type:        testEventType,
		ContentType: "application/json",
		Body:        body,
		Accepted:    now,
	}, nil
}
