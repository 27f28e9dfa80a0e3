package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/sidecar/config"
)

// checkOptions are the flags of `check`.
type checkOptions struct {
	config  configFlag
	format  outputFlag
	explain bool
	against string
}

func newCheck(std stdio) *cobra.Command {
	var o checkOptions
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration",
		Long: `Check a configuration, secrets included, with the code that run uses.

Errors and warnings go to stderr, each with file:line:column and field. Exit code 1 if it is invalid, 0 if it is valid,
with or without warnings; 3 if the file cannot be read.

  -o yaml|json    print the effective configuration: every default filled in, secrets left out
  --explain       say in words what each source does, in the order in which requests are matched, and each endpoint
  --against OLD   list what differs from the configuration in OLD and what that does; secrets of OLD are not read.
                  Contents of secret files are not compared`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := exclusive(c, "output", "explain", "against"); err != nil {
				return err
			}
			return check(c.Context(), std, o)
		},
	}
	o.config.register(c)
	f := c.Flags()
	f.VarP(&o.format, "output", "o", "print the effective configuration as `json|yaml`")
	f.BoolVar(&o.explain, "explain", false, "say in words what each source and endpoint does")
	f.StringVar(&o.against, "against", "", "list the differences from the configuration file `OLD`")
	return c
}

func check(_ context.Context, std stdio, o checkOptions) error {
	c, err := o.config.load(config.EachTenant())
	if err != nil {
		return err
	}
	for _, w := range c.Warnings {
		fmt.Fprintln(std.err, warning(w))
	}
	switch {
	case o.format.structured():
		return printEffective(std.out, o.format, c)
	case o.explain:
		return explainConfig(std.out, c)
	case o.against != "":
		return printChanges(std.out, o.against, c)
	}
	_, err = fmt.Fprintf(std.out, "%s: valid, %s\n", printable(c.Path), plural(len(c.Warnings), "warning"))
	return err
}

// warning is one line for f, in the form of its errors.
func warning(f config.Finding) string {
	message := f.Message
	f.Message = "warning: " + message
	return printable(f.String())
}

func printEffective(w io.Writer, format outputFlag, c *config.Config) error {
	if format == "yaml" {
		text, err := config.Effective(c)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	data, err := config.EffectiveJSON(c)
	if err != nil {
		return err
	}
	return printJSON(w, data)
}

func printChanges(w io.Writer, against string, c *config.Config) error {
	old, err := configFlag(against).load(config.WithoutSecrets())
	if err != nil {
		if e, ok := errors.AsType[*exitError](err); ok {
			err = e.err
		}
		return fmt.Errorf("--against: %w", err)
	}
	changes := config.Diff(old, c)
	if len(changes) == 0 {
		_, err := fmt.Fprintln(w, "no difference")
		return err
	}
	for _, change := range changes {
		if _, err := fmt.Fprintln(w, printable(change.String())); err != nil {
			return err
		}
	}
	return nil
}

// plural is "1 warning", "2 warnings", "no warnings".
func plural(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun + "s"
	case 1:
		return "1 " + noun
	default:
		return fmt.Sprintf("%d %ss", n, noun)
	}
}
