package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

func newSource(std stdio) *cobra.Command {
	return group("source", "List, pause and resume the sources of a running sidehook",
		`Commands on the sources of a running sidehook, through its admin API.

A paused source answers 503 to every verified event, duplicates included, so that the sender keeps it and tries again;
refusals and handshakes are answered as before, and what is kept for the app (mode STORE) is delivered on. Senders give up
some day: see `+"`sidehook providers NAME`"+` for how long each tries.
A pause is kept in the memory of the process: it holds across reloads and ends when sidehook stops.`,
		newSourceList(std),
		newSourceSteer(std, "pause", "Answer 503 to the events of a source"),
		newSourceSteer(std, "resume", "End the pause of a source"),
	)
}

func newSourceList(std stdio) *cobra.Command {
	var admin adminFlags
	var format outputFlag
	c := &cobra.Command{
		Use:   "list",
		Short: "List the sources of the configuration in force",
		Long: `List the sources of the configuration in force. SECRETS counts those that hold for the whole source; the secrets of tenants
in a folder, and keys that senders publish, are not counted.`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return sourceList(c.Context(), std, admin, format)
		},
	}
	admin.register(c)
	format.register(c)
	return c
}

func sourceList(ctx context.Context, std stdio, admin adminFlags, format outputFlag) error {
	client, err := admin.connect()
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.ListSources, &inboxv1.ListSourcesRequest{})
	if err != nil {
		return err
	}
	if format.structured() {
		return format.print(std.out, res)
	}
	rows := make([][]string, 0, len(res.GetSources()))
	for _, s := range res.GetSources() {
		enforce := "ENFORCE"
		if !s.GetEnforced() {
			enforce = "REPORT"
		}
		rows = append(rows, []string{s.GetName(), s.GetProvider(), runWord(s), enforce, strconv.Itoa(int(s.GetSecrets()))})
	}
	return table(std.out, []string{"SOURCE", "PROVIDER", "STATE", "ENFORCE", "SECRETS"}, rows)
}

// newSourceSteer makes `source pause` and `source resume`; verb is one of the two.
func newSourceSteer(std stdio, verb, short string) *cobra.Command {
	var admin adminFlags
	c := &cobra.Command{
		Use:   verb + " SOURCE",
		Short: short,
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, a []string) error {
			return sourceSteer(c.Context(), std, admin, verb, a[0])
		},
	}
	admin.register(c)
	return c
}

func sourceSteer(ctx context.Context, std stdio, admin adminFlags, verb, name string) error {
	client, err := admin.connect()
	if err != nil {
		return err
	}
	var now *inboxv1.Source
	if verb == "pause" {
		res, err := call(ctx, client, client.PauseSource, &inboxv1.PauseSourceRequest{Source: name})
		if err != nil {
			return err
		}
		now = res.GetSource()
	} else {
		res, err := call(ctx, client, client.ResumeSource, &inboxv1.ResumeSourceRequest{Source: name})
		if err != nil {
			return err
		}
		now = res.GetSource()
	}
	_, err = fmt.Fprintf(std.out, "%s is %s\n", printable(now.GetName()), runWord(now))
	return err
}

func runWord(s *inboxv1.Source) string {
	if s.GetPaused() {
		return "paused"
	}
	return "running"
}
