package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf8"
)

// MaxBytes bounds a secret. A JWK set of a dozen RSA keys fits.
const MaxBytes = 64 << 10

// Errors of a Source. None of their texts holds a byte of the secret.
var (
	// ErrEmpty: there is nothing, or nothing but white space.
	ErrEmpty = errors.New("the secret is empty")
	// ErrWhitespace: white space at an end, other than the one final newline of a file, which is how editors and
	// `echo` end it. Whether it belongs to the secret nobody can know, so nobody guesses.
	ErrWhitespace = errors.New("the secret begins or ends with white space: remove it")
	// ErrTooLong: more than MaxBytes.
	ErrTooLong = fmt.Errorf("the secret has more than %d bytes", MaxBytes)
	// ErrUnset: the environment has no variable of that name.
	ErrUnset = errors.New("the environment variable is not set")
)

// Source is where a secret comes from. Exactly one field is set.
type Source struct {
	// File is a path. One final newline (LF, or CR LF) is not part of the secret.
	File string
	// Env is the name of an environment variable, whose value is the secret.
	Env string
	// Value is the secret itself.
	Value Secret
}

// Load reads the secret. It returns ErrEmpty, ErrWhitespace, ErrTooLong or ErrUnset (wrapped with the name of the file
// or variable), or the error of the file system. It is called again for each reload.
func (s Source) Load() (Secret, error) {
	switch {
	case s.File != "":
		b, err := readFile(s.File)
		if err != nil {
			return Secret{}, err // the file system's error names the file
		}
		b = trimNewline(b)
		if err := check(b); err != nil {
			return Secret{}, fmt.Errorf("file %s: %w", s.File, err)
		}
		return New(b), nil
	case s.Env != "":
		v, ok := os.LookupEnv(s.Env)
		if !ok {
			return Secret{}, fmt.Errorf("variable %s: %w", s.Env, ErrUnset)
		}
		b := []byte(v)
		if err := check(b); err != nil {
			return Secret{}, fmt.Errorf("variable %s: %w", s.Env, err)
		}
		return New(b), nil
	default:
		if err := check(s.Value.Bytes()); err != nil {
			return Secret{}, err
		}
		return s.Value, nil
	}
}

// readFile reads at most MaxBytes and a newline.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxBytes+3))
}

// trimNewline drops the one newline that ends a file of text.
func trimNewline(b []byte) []byte {
	trimmed, ok := bytes.CutSuffix(b, []byte("\n"))
	if !ok {
		return b
	}
	return bytes.TrimSuffix(trimmed, []byte("\r"))
}

// check refuses what can only be a slip.
func check(b []byte) error {
	if len(b) > MaxBytes {
		return ErrTooLong
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return ErrEmpty
	}
	first, _ := utf8.DecodeRune(b)
	last, _ := utf8.DecodeLastRune(b)
	if unicode.IsSpace(first) || unicode.IsSpace(last) {
		return ErrWhitespace
	}
	return nil
}
