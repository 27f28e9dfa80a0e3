package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Help is the manual: every command says what it does, and every flag what it takes.
func TestHelpIsComplete(t *testing.T) {
	t.Parallel()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Short == "" || c.Args == nil {
			t.Errorf("%s: no short text, or takes any argument", path)
		}
		if c.RunE == nil {
			t.Errorf("%s: does nothing", path)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s is not explained", path, f.Name)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard}))
}

func TestExitError(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for _, tc := range []struct {
		name string
		err  error
		code int
	}{
		{"no", no(cause), exitNo},
		{"usage", usagef("step: %w", cause), exitUsage},
	} {
		e, ok := errors.AsType[*exitError](tc.err)
		if !ok || e.code != tc.code || !errors.Is(tc.err, cause) {
			t.Errorf("%s: %v (code %d), want code %d and the cause inside", tc.name, tc.err, e.code, tc.code)
		}
	}
}
