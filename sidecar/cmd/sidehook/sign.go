package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/internal/signature"
)

func newSign(std stdio) *cobra.Command {
	var m messageFlags
	var id string
	c := &cobra.Command{
		Use:   "sign",
		Short: "Sign a webhook as its sender would",
		Long: `Sign a webhook as its sender would, and print the headers to send with it, one "Name: value" a line.

Headers given with --header are part of the message and are not repeated. The signed time is now, or --at. With a scheme
that signs an id, one is made unless --id gives it. The private key of a sender that signs with a key of its own is
its own secret; a public key cannot sign.

  sidehook sign --provider standard-webhooks --secret-file whsec --body-file body.json > headers
  curl -H @headers --data-binary @body.json https://app.example/webhooks`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := m.read(std.in)
			if err != nil {
				return err
			}
			return sign(c.Context(), std.out, s, id)
		},
	}
	m.register(c)
	c.Flags().StringVar(&id, "id", "", "the event `ID` (default: made, where the scheme has one in a header)")
	return c
}

func sign(_ context.Context, w io.Writer, s *signed, id string) error {
	if len(s.keys) != 1 {
		return usagef("sign takes one secret: give --secret-file or --secret once")
	}
	if id != strings.TrimSpace(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return usagef("--id: %q cannot be sent in a header: leave out control characters, and blanks at the ends", id)
	}
	if id == "" && !s.hasID() {
		id = "msg_" + rand.Text()
	}
	fields, err := s.verifier.Sign(&s.message, s.keys[0], id, s.now)
	if errors.Is(err, signature.ErrCannotSign) {
		return no(err)
	}
	if err != nil {
		return err
	}
	for _, f := range fields {
		if _, err := fmt.Fprintf(w, "%s: %s\n", textproto.CanonicalMIMEHeaderKey(f.Name), f.Value); err != nil {
			return err
		}
	}
	return nil
}

// hasID reports whether the message bears the event id already, in the header that its scheme names.
func (s *signed) hasID() bool {
	return slices.ContainsFunc(s.specs, func(spec signature.Spec) bool {
		return spec.ID != nil && slices.ContainsFunc(s.message.Header, func(f signature.Field) bool {
			return strings.EqualFold(f.Name, spec.ID.Header)
		})
	})
}
