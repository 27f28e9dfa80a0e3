package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// step is one sending of the story and what the README promises for it.
type step struct {
	sent         string
	event        event
	age          time.Duration
	forged       bool
	databaseDown bool
	want         outcome
}

// outcome is one row of the table.
type outcome struct{ sender, app, claim string }

// story is what happens to the webhooks of one provider.
func (p provider) story() []step {
	late := step{sent: "an hour late", event: p.second, age: time.Hour, want: outcome{"401 too_old", "nothing", "none"}}
	if !p.signsTime {
		// Nothing in such a request proves its age. A copy of what the app has had is a duplicate, however old.
		late = step{sent: "an hour late (signs no time)", event: p.first, age: time.Hour, want: outcome{"200 duplicate", "nothing", "DONE"}}
	}
	return []step{
		{sent: "good", event: p.first, want: outcome{"200 ok", "1 call", "DONE"}},
		{sent: "the same again", event: p.first, want: outcome{"200 duplicate", "nothing", "DONE"}},
		{sent: "forged", event: p.second, forged: true, want: outcome{"401 bad_signature", "nothing", "none"}},
		late,
		{sent: "good, the app fails", event: p.second, databaseDown: true, want: outcome{"500", "1 call", "none"}},
		{sent: "the sender's next try", event: p.second, want: outcome{"200 ok", "1 call", "DONE"}},
	}
}

// play sends one webhook and returns what came of it.
func (s *stack) play(ctx context.Context, p provider, step step) (outcome, error) {
	secret := p.secret
	if step.forged {
		secret = forgersSecret
	}
	header, err := p.sign(step.event, time.Now().Add(-step.age), secret)
	if err != nil {
		return outcome{}, fmt.Errorf("sign: %w", err)
	}
	s.app.breakDatabase(step.databaseDown)
	code, body, err := s.post(ctx, webhook{path: p.path, header: header, body: step.event.body})
	if err != nil {
		return outcome{}, err
	}
	claim, err := s.claim(ctx, p.source, step.event.id, step.want.claim)
	if err != nil {
		return outcome{}, err
	}
	return outcome{sender: answer(code, body), app: s.app.look(step.event.body), claim: claim}, nil
}

// answer shortens what the sender got: the status, and the word of the app or of sidehook.
func answer(code int, body string) string {
	word := struct {
		Status string `json:"status"`
	}{Status: body}
	_ = json.Unmarshal([]byte(body), &word) // the app's answer is plain text
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, word.Status))
}

// stateWord is the inbox's word for a state.
func stateWord(s inboxv1.EventState) string {
	return strings.TrimPrefix(s.String(), "EVENT_STATE_")
}
