package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/internal/signature"
)

// explainedBytes bounds how much of a signed content --explain prints.
const explainedBytes = 4 << 10

func newVerify(std stdio) *cobra.Command {
	var m messageFlags
	var explain bool
	var tolerance time.Duration
	c := &cobra.Command{
		Use:   "verify",
		Short: "Verify the signature of a webhook",
		Long: `Verify the signature of a webhook, with the code that the gate uses.

Prints "ok id=… type=…" and exits with 0, or "refused reason=…" and exits with 1. --explain adds how it came to that, the
signed content as text and in hex, and, for a signature that does not match, the accidents after which it would have
matched: a body written anew (and where it parts from the one that was signed), a secret of another kind, a newline too many. No
secret is printed.

  sidehook verify --provider stripe --secret-file whsec --body-file body.json \
    --header 'Stripe-Signature: t=1614265330,v1=…' --at 2021-02-25T15:02:10Z --explain`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := m.read(std.in)
			if err != nil {
				return err
			}
			if c.Flags().Changed("tolerance") {
				s.tolerance = tolerance
			}
			return verify(c.Context(), std.out, s, explain)
		},
	}
	m.register(c)
	c.Flags().BoolVar(&explain, "explain", false, "say how the verdict came about and what a mistake may be")
	c.Flags().DurationVar(&tolerance, "tolerance", 0, "how far the signed time may be from now, `D` (default the provider's, else 5m)")
	return c
}

func verify(_ context.Context, w io.Writer, s *signed, explain bool) error {
	if s.tolerance <= 0 {
		return usagef("--tolerance: %s would refuse everything", s.tolerance)
	}
	v := s.verifier.Verify(&s.message, s.keys, s.now, s.tolerance)
	if v.Reason == signature.ReasonOK && v.ID == "" && s.requireID {
		v.Reason = signature.ReasonMissingID // as the gate judges it
	}
	ok := v.Reason == signature.ReasonOK
	line := "refused reason=" + v.Reason.String()
	if ok {
		line = "ok id=" + word(v.ID) + " type=" + word(v.Type)
	}
	if _, err := fmt.Fprintln(w, line); err != nil {
		return err
	}
	if explain {
		if err := explainVerdict(w, s, v); err != nil {
			return err
		}
	}
	if !ok {
		return &exitError{code: exitNo}
	}
	return nil
}

// explainVerdict prints the steps to the verdict v, what was signed and what may have gone wrong.
func explainVerdict(w io.Writer, s *signed, v signature.Verdict) error {
	p := &explainer{w: w}
	e := s.verifier.Explain(&s.message, s.keys, s.now, s.tolerance)
	for _, step := range e.Steps {
		p.line("  %s", step)
	}
	if len(e.Signed) > 0 {
		content := e.Signed[0]
		p.line("signed content, %s:", plural(len(content), "byte"))
		if len(content) > explainedBytes {
			content = content[:explainedBytes]
			p.line("  (the first %d)", explainedBytes)
		}
		p.line("  text: %s", strconv.Quote(string(content)))
		for row := range strings.Lines(hex.Dump(content)) {
			p.line("  %s", strings.TrimSuffix(row, "\n"))
		}
	}
	switch v.Reason {
	case signature.ReasonBadSignature, signature.ReasonMalformedSignature:
	case signature.ReasonTooOld, signature.ReasonTooNew, signature.ReasonBadTimestamp:
		if text := unitCause(s); text != "" {
			p.line("likely cause: %s", text)
		}
		return p.err
	default:
		return p.err
	}
	causes := likelyCauses(s)
	for _, c := range causes {
		p.line("likely cause: %s", c.text)
		if c.signed != nil {
			p.line("  %s", parted(s.message.Body, c.signed))
		}
	}
	if len(causes) == 0 && v.Reason == signature.ReasonBadSignature {
		p.line("likely cause: another secret than the sender's, or a body that is not the one that was sent;")
		p.line("no common change of the body, the URL, the secret's form or the encoding makes the signature match")
	}
	return p.err
}

// word is s as the value of a key=value pair: quoted where it would not be one plain word.
func word(s string) string {
	if s == "" || printable(s) != s || strings.ContainsAny(s, " \"=\\") {
		return strconv.Quote(s)
	}
	return s
}
