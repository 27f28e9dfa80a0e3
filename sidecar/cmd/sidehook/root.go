package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/sidecar/config"
)

// Exit codes; scripts rely on them.
const (
	exitDone  = 0 // done, or the answer is yes
	exitNo    = 1 // the answer is no: a bad signature, an invalid config, a finding
	exitUsage = 2 // wrong usage of the command line
	exitReach = 3 // something could not be reached, read or locked
)

// stdio is what a command reads and writes. Commands never touch os.Stdin, os.Stdout or os.Stderr themselves.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// exitError gives an error the exit code that main ends with. Errors without one end with exitReach: what can fail
// in a command, other than its answer and its usage, is reading and reaching.
type exitError struct {
	code int
	err  error // nil: the command has said on stdout all there is to say
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// no says that the answer is no, with err as the reason for stderr; nil when stdout has it.
func no(err error) error { return &exitError{code: exitNo, err: err} }

// usagef says that the command line cannot be meant.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// execute runs the command line args and returns the exit code. Everything a command prints goes to std.
func execute(ctx context.Context, args []string, std stdio) int {
	root := newRoot(std)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	code := exitReach
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
		if e.err == nil {
			return code
		}
	}
	prefix := "sidehook: "
	if len(config.Findings(err)) > 0 {
		prefix = "" // file:line:column comes first, where editors and CI look for it
	}
	fmt.Fprintf(std.err, "%s%s\n", prefix, printableLines(err.Error()))
	return code
}

const rootLong = `sidehook stands next to an app. Inbound, behind Envoy, it lets a signed webhook through once and nothing else. Outbound, it
takes the app's events on localhost, and signs, filters, delivers and retries them.

Exit codes: 0 done; 1 the answer is no (bad signature, invalid config, a finding);
2 wrong usage; 3 something could not be reached, read or locked.`

func newRoot(std stdio) *cobra.Command {
	root := &cobra.Command{
		Use:                        "sidehook",
		Short:                      "Verify inbound webhooks behind Envoy and take each of them once",
		Long:                       rootLong,
		Args:                       subcommandOnly,
		RunE:                       showHelp,
		SilenceErrors:              true, // execute prints them
		SilenceUsage:               true, // an error is not a reason to print a page
		SuggestionsMinimumDistance: 2,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w\nsee: %s --help", err, c.CommandPath())
	})
	root.AddCommand(
		newCheck(std),
		newEgress(std),
		newEndpoint(std),
		newEnvoy(std),
		newInbox(std),
		newOutbox(std),
		newProviders(std),
		newRun(std),
		newSecret(std),
		newSign(std),
		newSource(std),
		newStatus(std),
		newStore(std),
		newVerify(std),
		newVersion(std),
	)
	return root
}

// group makes a command that only holds others, such as `inbox`.
func group(use, short, long string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Args: subcommandOnly, RunE: showHelp, SuggestionsMinimumDistance: 2}
	c.AddCommand(subs...)
	return c
}

// showHelp is what a command that only holds others does by itself; it is wrong usage, as nothing was asked for.
func showHelp(c *cobra.Command, _ []string) error {
	c.SetOut(c.ErrOrStderr())
	if err := c.Help(); err != nil {
		return err
	}
	return &exitError{code: exitUsage}
}

// subcommandOnly refuses arguments of a command that only holds others: they are misspelt subcommands.
func subcommandOnly(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "\ndid you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q for %q%s\nsee: %s --help", args[0], c.CommandPath(), hint, c.CommandPath())
}

// exclusive refuses a command line with more than one of the flags of these names.
func exclusive(c *cobra.Command, names ...string) error {
	var set []string
	for _, name := range names {
		if c.Flags().Changed(name) {
			set = append(set, "--"+name)
		}
	}
	if len(set) > 1 {
		return usagef("%s exclude each other", strings.Join(set, " and "))
	}
	return nil
}

// args accepts between least and most positional arguments.
func args(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, a []string) error {
		switch {
		case len(a) < least:
			return usagef("an argument is missing\nusage: %s", c.UseLine())
		case len(a) > most:
			return usagef("unexpected argument %q\nusage: %s", a[most], c.UseLine())
		}
		return nil
	}
}
