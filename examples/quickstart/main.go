// Quickstart shows what sidehook does, on this machine and within a minute:
//
//	go run ./examples/quickstart
//
// It starts an app that knows nothing of sidehook, the sidehook binary and a real Envoy with the configuration that
// `sidehook envoy` prints, sends webhooks of three providers as their own libraries sign them, and prints what was sent,
// what the sender got, what the app got, and how the inbox's claim stands after. A fourth provider never sends again, and its
// event is kept for the app, which fails at first. Then the app posts an event itself, for a
// customer whose server fails twice, and a URL is tried that nobody should call. It exits 0 only if all of it is what the
// README promises.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"
)

// limit bounds the whole run; it takes a few seconds once Envoy and the Go packages are there.
const limit = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	err := run(ctx, os.Stdout)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // whatever failed, failed by it
	}
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run plays the story in a temporary folder, which it keeps for its logs where something went wrong.
func run(ctx context.Context, out io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "sidehook-quickstart-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w\nthe logs are in %s", err, folder)
			return
		}
		err = errors.Join(err, os.RemoveAll(folder))
	}()

	s, err := start(ctx, folder, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()

	broken, err := tell(ctx, s, out)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "\nCLAIM none: the next webhook of that id passes. DONE: it is answered as a duplicate.")
	for _, story := range []func(context.Context, *stack, io.Writer) (int, error){tellStored, tellOutbound} {
		more, err := story(ctx, s, out)
		if err != nil {
			return err
		}
		broken += more
	}
	if broken > 0 {
		return fmt.Errorf("%d of these are not as promised", broken)
	}
	fmt.Fprintln(out, "\nAll as promised.")
	return nil
}

// tell plays every provider's story, prints the table, and returns how many rows are not as promised.
func tell(ctx context.Context, s *stack, out io.Writer) (broken int, err error) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	defer func() { err = errors.Join(err, table.Flush()) }()
	fmt.Fprintln(table, "\nPROVIDER\tSENT\tSENDER GOT\tAPP GOT\tCLAIM AFTER")
	for _, p := range providers() {
		for _, step := range p.story() {
			got, err := s.play(ctx, p, step)
			if err != nil {
				return broken, fmt.Errorf("%s, %s: %w", p.name, step.sent, err)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.name, step.sent, got.sender, got.app, got.claim)
			if got != step.want {
				broken++
				fmt.Fprintf(table, "\tPROMISED:\t%s\t%s\t%s\n", step.want.sender, step.want.app, step.want.claim)
			}
		}
	}
	return broken, nil
}
