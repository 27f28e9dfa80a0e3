package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
)

// GitHub's own example of a signed webhook: the secret, the payload and the signature that they give
// (https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries, "Testing the webhook payload validation").
const (
	githubSecret    = "It's a Secret to Everybody"
	githubPayload   = "Hello, World!"
	githubSignature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	githubID        = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
)

// tellStored plays what STORE is for: the app fails, the sender is one that never sends again, and nothing is lost. It returns
// how many rows are not as promised.
func tellStored(ctx context.Context, s *stack, out io.Writer) (broken int, err error) {
	fmt.Fprintln(out, "\nGitHub never sends again, so its source is in STORE: the event is on disk before GitHub hears 200")
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "PROVIDER\tWHAT HAPPENS\tSENDER GOT\tAPP GOT\tEVENT AFTER")
	row := func(what, sender, app, state string, kept bool) {
		fmt.Fprintf(table, "github\t%s\t%s\t%s\t%s\n", what, sender, app, state)
		if !kept {
			broken++
			fmt.Fprintln(table, "\tNOT AS PROMISED")
		}
	}
	hook := webhook{path: "/webhooks/github", body: []byte(githubPayload), header: http.Header{
		"X-Hub-Signature-256": {githubSignature}, "X-Github-Delivery": {githubID}, "X-Github-Event": {"push"},
	}}

	s.app.breakDatabase(true)
	for _, step := range []struct{ what, want string }{{"a push, and the app fails", "200 stored"}, {"the same again", "200 duplicate"}} {
		code, body, err := s.post(ctx, hook)
		if err != nil {
			return broken, err
		}
		tried := s.app.tried(ctx, hook.body)
		state, err := s.claim(ctx, "code", githubID, "STORED")
		if err != nil {
			return broken, err
		}
		row(step.what, answer(code, body), tried, state, answer(code, body) == step.want && tried == "tried" && state == "STORED")
	}
	s.app.breakDatabase(false)
	state, err := s.claim(ctx, "code", githubID, "DONE")
	if err != nil {
		return broken, err
	}
	last := s.app.tried(ctx, hook.body)
	row("the app is well again", "", last, state, last == "tried" && state == "DONE")
	return broken, table.Flush()
}

// tried waits a while for calls of the app, which are all to bring want.
func (a *app) tried(ctx context.Context, want []byte) string {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	got := "nothing"
	poll(ctx, func() bool {
		got = a.look(want)
		return got != "nothing"
	})
	if got == "1 call" || got == "several calls" {
		return "tried"
	}
	return got
}
