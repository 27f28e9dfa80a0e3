package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/internal/signature"
)

// secretBytes is the length of a new secret: the strength of HMAC-SHA256, and within the 24 to 64 bytes that Standard
// Webhooks asks for.
const secretBytes = 32

func newSecret(std stdio) *cobra.Command {
	return group("secret", "Make secrets", "Make secrets for signing webhooks.", newSecretNew(std))
}

func newSecretNew(std stdio) *cobra.Command {
	var provider string
	var pair bool
	c := &cobra.Command{
		Use:   "new",
		Short: "Make a secret and print it",
		Long: `Make a secret from the system's random source and print it, with a newline: whsec_ and the base64 of 32 bytes.

With --provider it is in the form that the provider's scheme reads; a provider whose senders sign with a key of their own
is refused. With --ed25519 it is a pair, one a line: whsk_… to sign with, and whpk_… to verify with.
This is the only command that prints a secret: send it to a file, as in: sidehook secret new > secret`,
		Args: args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			lines, err := makeSecret(provider, pair)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(std.out, strings.Join(lines, "\n"))
			return err
		},
	}
	c.Flags().StringVar(&provider, "provider", "", "make it in the form that the scheme of this provider `P` reads")
	c.Flags().BoolVar(&pair, "ed25519", false, "make a key pair instead of a shared secret")
	return c
}

// makeSecret returns a new secret, or a private and a public key.
func makeSecret(provider string, pair bool) ([]string, error) {
	if pair && provider != "" {
		return nil, usagef("--ed25519 and --provider exclude each other")
	}
	if pair {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, fmt.Errorf("make key pair: %w", err)
		}
		return []string{
			"whsk_" + base64.StdEncoding.EncodeToString(private),
			"whpk_" + base64.StdEncoding.EncodeToString(public),
		}, nil
	}
	format := signature.KeyWhsec
	if provider != "" {
		p, err := findProvider(provider)
		if err != nil {
			return nil, err
		}
		if format, err = sharedKeyFormat(p); err != nil {
			return nil, err
		}
	}
	b := make([]byte, secretBytes)
	rand.Read(b) // never fails
	switch format {
	case signature.KeyBase64:
		return []string{base64.StdEncoding.EncodeToString(b)}, nil
	case signature.KeyWhsec:
		return []string{"whsec_" + base64.StdEncoding.EncodeToString(b)}, nil
	default: // HEX, and TEXT of any kind, for which hex is as good as any
		return []string{hex.EncodeToString(b)}, nil
	}
}
