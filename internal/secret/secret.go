// Package secret holds key material that must never be printed.
//
// A Secret is loaded from a file, an environment variable or a literal value of the configuration;
// it formats as "[redacted]" under every verb, in slog, JSON and text encodings.
package secret

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Secret is key material as it was configured, byte for byte. It never prints itself.
// The zero Secret is empty. A Secret is immutable and safe for concurrent use.
type Secret struct {
	// b is a pointer because %p asks no method and prints the fields of a struct, but follows no pointer in it.
	b *[]byte
}

// New wraps b, which the caller must not change afterwards.
func New(b []byte) Secret { return Secret{b: &b} }

// Bytes returns the key material itself. The caller must neither change nor log it.
func (s Secret) Bytes() []byte {
	if s.b == nil {
		return nil
	}
	return *s.b
}

// String implements fmt.Stringer and always returns "[redacted]".
func (s Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return redacted }

// Format implements fmt.Formatter: verbs that ask neither String nor GoString, such as %d, would print the bytes.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText implements encoding.TextMarshaler, and so covers JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
