package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/internal/secret"
	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/sidecar/config"
)

// maxBodyBytes bounds the body that sign and verify read, and what it unzips to: above the largest that any provider
// sends (GitHub, 25 MiB).
const maxBodyBytes = 64 << 20

// messageFlags say what `sign` signs and `verify` verifies, and by which scheme and secrets.
type messageFlags struct {
	provider    string
	schemeFile  string
	secrets     []string
	secretFiles []string
	headers     []string
	bodyFile    string
	method      string
	url         string
	at          string
	published   publishedFlags
}

// register adds the flags to c.
func (f *messageFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.provider, "provider", "", "the scheme of this provider `P` (see sidehook providers)")
	fl.StringVar(&f.schemeFile, "scheme-file", "", "the scheme in this `FILE`, in the language of a source's scheme")
	fl.StringArrayVar(&f.secrets, "secret", nil, "the secret `S` itself, which other users of this machine may see: rather use --secret-file; may be given again")
	fl.StringArrayVar(&f.secretFiles, "secret-file", nil, "the secret in this `FILE`, a final newline dropped; may be given again")
	fl.StringArrayVar(&f.headers, "header", nil, "a header `'Name: value'` of the request; may be given again")
	fl.StringVar(&f.bodyFile, "body-file", "", "the request's body, byte for byte, from `FILE`, or - for stdin")
	fl.StringVar(&f.method, "method", "POST", "the request's method `M`")
	fl.StringVar(&f.url, "url", "", "the request's public `URL`, or its path and query alone")
	fl.StringVar(&f.at, "at", "", "take this `TIME`, RFC 3339, for now")
	f.published.register(c)
}

// signed is what the flags say, read and parsed.
type signed struct {
	specs    []signature.Spec
	verifier *signature.Verifier
	// tolerance is that of the provider, or the default one.
	tolerance time.Duration
	// requireID: the sender promises an id, and a message without one is refused.
	requireID bool
	secrets   [][]byte
	keys      []signature.Key // of secrets, one each
	message   signature.Message
	now       time.Time
}

// read reads what the flags name. What is wrong with the command line is wrong usage; a file that cannot be read exits
// with 3; a secret or scheme that cannot be one with 1.
func (f *messageFlags) read(stdin io.Reader) (*signed, error) {
	s := &signed{now: time.Now()}
	if f.at != "" {
		t, err := time.Parse(time.RFC3339, f.at)
		if err != nil {
			return nil, usagef("--at: want RFC 3339, such as 2026-05-01T12:00:00Z, not %q", f.at)
		}
		s.now = t
	}
	if f.bodyFile == "" {
		return nil, usagef("--body-file is required: the body decides (an empty one is --body-file /dev/null)")
	}
	var err error
	if s.message, err = f.readMessage(); err != nil {
		return nil, err
	}
	if err := f.readScheme(s); err != nil {
		return nil, err
	}
	if err := f.published.read(s); err != nil {
		return nil, err
	}
	if len(f.secrets)+len(f.secretFiles) == 0 {
		if s.keys = s.verifier.OwnKeys(); len(s.keys) == 0 {
			return nil, usagef("one of --secret-file and --secret is required")
		}
	}
	if err := f.readKeys(s); err != nil {
		return nil, err
	}
	if s.message.Body, err = readBody(f.bodyFile, stdin); err != nil {
		return nil, err
	}
	return s, nil
}

// readMessage returns the message but for its body.
func (f *messageFlags) readMessage() (signature.Message, error) {
	m := signature.Message{Method: f.method, Target: "/", MaxBody: maxBodyBytes}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t\r\n") || strings.ContainsAny(value, "\r\n\x00") {
			return m, usagef("--header: want 'Name: value', not %q", h)
		}
		m.Header = append(m.Header, signature.Field{Name: strings.ToLower(name), Value: strings.Trim(value, " \t")})
	}
	if f.url == "" {
		return m, nil
	}
	if strings.HasPrefix(f.url, "/") {
		m.Target = f.url
		return m, nil
	}
	u, err := url.Parse(f.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return m, usagef("--url: want http(s)://host/path, or /path, not %q", f.url)
	}
	// The target is taken as it is written: no sender signs what a parser would make of it.
	rest := f.url[len(u.Scheme)+len("://"):]
	rest, _, _ = strings.Cut(rest, "#")
	m.URL = u.Scheme + "://" + rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		m.Target = rest[i:]
	}
	if m.Target[0] == '?' {
		m.Target = "/" + m.Target
	}
	return m, nil
}

// readScheme fills in the schemes, and what depends on whose they are.
func (f *messageFlags) readScheme(s *signed) error {
	switch {
	case f.provider != "" && f.schemeFile != "":
		return usagef("--provider and --scheme-file exclude each other")
	case f.provider != "":
		p, err := findProvider(f.provider)
		if err != nil {
			return err
		}
		s.specs, s.verifier, s.tolerance, s.requireID = p.Specs, p.Verifier(), p.Tolerance.Std(), p.RequireID
		return nil
	case f.schemeFile != "":
		spec, err := config.ParseSchemeFile(f.schemeFile)
		if len(config.Findings(err)) > 0 {
			return no(err)
		}
		if err != nil {
			return err
		}
		v, err := signature.Compile(spec)
		if err != nil {
			return no(fmt.Errorf("%s: %w", f.schemeFile, err))
		}
		s.specs, s.verifier, s.tolerance = []signature.Spec{spec}, v, signature.DefaultTolerance
		s.requireID = spec.ID != nil && !spec.ID.Hash && !spec.ID.None
		return nil
	default:
		return usagef("one of --provider and --scheme-file is required")
	}
}

// readKeys fills in the secrets and their keys.
func (f *messageFlags) readKeys(s *signed) error {
	add := func(from string, raw []byte) error {
		k, err := s.verifier.ParseKey(raw)
		if err != nil {
			return no(fmt.Errorf("%s: %w", from, err))
		}
		s.secrets, s.keys = append(s.secrets, raw), append(s.keys, k)
		return nil
	}
	for _, file := range f.secretFiles {
		loaded, err := secret.Source{File: file}.Load()
		switch {
		case errors.Is(err, secret.ErrEmpty), errors.Is(err, secret.ErrWhitespace), errors.Is(err, secret.ErrTooLong):
			return no(fmt.Errorf("--secret-file: %w", err))
		case err != nil:
			return fmt.Errorf("read secret: %w", err)
		}
		if err := add("--secret-file "+file, loaded.Bytes()); err != nil {
			return err
		}
	}
	for _, text := range f.secrets {
		if err := add("--secret", []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// readBody reads the body whole, as it is.
func readBody(file string, stdin io.Reader) ([]byte, error) {
	r := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read body: %w", err)
		}
		defer f.Close()
		r = f
	}
	body, err := io.ReadAll(io.LimitReader(r, maxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if len(body) > maxBodyBytes {
		return nil, no(fmt.Errorf("body of %s: more than %s", file, bytesText(maxBodyBytes)))
	}
	return body, nil
}
