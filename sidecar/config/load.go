package config

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// DefaultPath is where a configuration is looked for if nobody names another one.
const DefaultPath = "/etc/sidehook/sidehook.yaml"

// Option changes what Load and Parse do.
type Option func(*loader)

// WithoutSecrets reads no secret and no environment: for commands that want to know about routes and not about keys, and
// that run where the secrets are not. Sources and endpoints then have no Keys, and there is no Gate.Table.
func WithoutSecrets() Option { return func(l *loader) { l.withoutSecrets = true } }

// OnDenied has the address filters of the configuration tell f what they refuse: see netguard.Config.
func OnDenied(f func(v netguard.Verdict, enforced bool)) Option {
	return func(l *loader) { l.onDenied = f }
}

// Load reads the configuration at path and all that it names, and returns it checked and compiled.
// An invalid one gives all its problems at once, as Findings (see there) joined into one error; a file that cannot be
// read gives the file system's error. Load keeps nothing of what it read but the result.
func Load(path string, options ...Option) (*Config, error) {
	c, _, err := load(path, options...)
	return c, err
}

// Parse is Load for a configuration that was read already; name stands for the file in messages.
func Parse(name string, data []byte, options ...Option) (*Config, error) {
	return newLoader(name, options).parse(data)
}

// load is Load that also tells what was read, in what state, even if it failed: when any of that changes, it is worth
// another try.
func load(path string, options ...Option) (*Config, prints, error) {
	l := newLoader(path, options)
	l.saw(path)
	data, err := readFile(path)
	if err != nil {
		return nil, l.prints, fmt.Errorf("read config: %w", err)
	}
	c, err := l.parse(data)
	return c, l.prints, err
}

// loader is one run of Load.
type loader struct {
	report
	now            time.Time
	withoutSecrets bool
	eachTenant     bool
	onDenied       func(v netguard.Verdict, enforced bool)
	files          []string
	prints         prints
}

func newLoader(file string, options []Option) *loader {
	l := &loader{report: report{file: file}, now: time.Now(), prints: prints{}}
	for _, o := range options {
		o(l)
	}
	return l
}

// prints are files and the hashes of their contents; the zero hash is a file that could not be read, or that is none
// which could be read twice (a pipe, a device).
type prints map[string][sha256.Size]byte

// printOf returns the hash of what is at path now.
func printOf(path string) [sha256.Size]byte {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return [sha256.Size]byte{}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(data)
}

// saw notes that the file at path is about to be read. A change between now and then counts as one to come.
func (l *loader) saw(path string) {
	if !slices.Contains(l.files, path) {
		l.files = append(l.files, path)
		l.prints[path] = printOf(path)
	}
}

func (l *loader) parse(data []byte) (*Config, error) {
	m := &configv1.Config{}
	decode(data, m, &l.report)
	if l.failed("") {
		return nil, l.err()
	}
	c := l.compile(m)
	if err := l.err(); err != nil {
		return nil, err
	}
	hideSecrets(m.ProtoReflect())
	c.Path, c.Message, c.Warnings, c.Files, c.prints = l.file, m, l.warnings(), l.files, l.prints
	return c, nil
}
