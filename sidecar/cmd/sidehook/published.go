package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/internal/signature"
)

// publishedFlags are what `verify` has to know of keys that senders publish and of their tokens, since it fetches nothing.
type publishedFlags struct {
	claims    signature.Claims
	documents []string
}

func (f *publishedFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.claims.Issuer, "issuer", "", "what iss of the sender's token must be, `I`")
	fl.StringVar(&f.claims.Audience, "audience", "", "what aud, or the claim that the provider names, must be or hold, `A`")
	fl.StringVar(&f.claims.Subject, "subject", "", "what sub, or for a mail address email, must be, `S`")
	fl.StringArrayVar(&f.documents, "published", nil, "`URL=FILE`: what the sender publishes at that URL, a JWK set or a certificate, for nothing is fetched; may be given again")
}

// fetched are documents by their URLs.
type fetched map[string]*signature.PublishedKeys

// Keys implements signature.Published.
func (d fetched) Keys(url string) *signature.PublishedKeys { return d[url] }

// read adds what the flags say to s, whose scheme was read.
func (f *publishedFlags) read(s *signed) error {
	if f.claims != (signature.Claims{}) {
		v, err := s.verifier.Expect(f.claims)
		if err != nil {
			return usagef("--audience, --issuer and --subject: %v", err)
		}
		s.verifier = v
	}
	documents := fetched{}
	for _, d := range f.documents {
		// A file may hold an equals sign, and so may a URL: the last one that a file follows parts them.
		i := strings.LastIndex(d, "=")
		if i < 1 || !strings.HasPrefix(d, "https://") {
			return usagef("--published: want https://…=FILE, not %q", d)
		}
		raw, err := os.ReadFile(d[i+1:])
		if err != nil {
			return fmt.Errorf("read keys: %w", err)
		}
		keys, err := signature.ParsePublished(raw)
		if err != nil {
			return no(fmt.Errorf("--published %s: %w", d[i+1:], err))
		}
		documents[d[:i]] = keys
	}
	s.message.Published = documents
	return nil
}
