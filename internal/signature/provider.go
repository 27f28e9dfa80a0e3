package signature

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Defaults of what a row of the table leaves out.
const (
	DefaultTolerance     = 5 * time.Minute
	DefaultRetention     = 8 * 24 * time.Hour
	DefaultRefusalStatus = 401
	DefaultMaxBodyBytes  = 1 << 20
)

//go:embed providers/*.json
var providerFiles embed.FS

// providersJSON joins the files of the table, a row each, to one list.
func providersJSON() []byte {
	names, err := fs.Glob(providerFiles, "providers/*.json")
	if err != nil {
		panic("signature: " + err.Error()) // the pattern is a constant
	}
	list := []byte{'['}
	for i, name := range names {
		row, err := providerFiles.ReadFile(name)
		if err != nil {
			panic("signature: " + err.Error())
		}
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, row...)
	}
	return append(list, ']')
}

// Provider is a preset: the schemes of one sender and what a gate has to know of it. Callers must not change it.
type Provider struct {
	// Name is the word of the configuration, such as "stripe".
	Name string `json:"name"`
	// Title is the sender's own name.
	Title string `json:"title"`
	// Specs are the alternatives of its scheme.
	Specs []Spec `json:"specs,omitempty"`
	// JWT is its scheme where that is a token, and Specs is empty.
	JWT *JWTSpec `json:"jwt,omitempty"`
	// JWKS are the addresses where the sender publishes its keys, for all to fetch: a source then needs no secrets.
	JWKS []string `json:"jwks,omitempty"`
	// Roots are the authorities that a token's certificates have to lead to, in PEM, if they are not the user's own to name.
	Roots string `json:"roots,omitempty"`
	// Native names its scheme where that is neither: "sns", "paypal", "ebay".
	Native string `json:"native,omitempty"`
	// Docs are where the facts of the row come from: pages, or files of official libraries.
	Docs []string `json:"docs"`
	// Tolerance bounds the distance between the signed time and now. Without effect where no time is signed.
	Tolerance Duration `json:"tolerance"`
	// Retention is how long ids are kept: longer than the sender retries, and than its users usually redeliver.
	Retention Duration `json:"retention"`
	// Deadline is how long the sender waits for an answer; zero: not known.
	Deadline Duration `json:"deadline,omitempty"`
	// RetryHorizon is how long after the event the last automatic retry can come; zero: none, or not known.
	RetryHorizon Duration `json:"retry_horizon,omitempty"`
	// Retries says whether the sender sends again by itself what was not answered by 2xx.
	Retries Retries `json:"retries"`
	// RefusalStatus is the HTTP status for a signature that does not hold.
	RefusalStatus int `json:"refusal_status"`
	// Handshake names the way in which the sender checks that a URL is ours, such as "slack"; empty: none.
	Handshake string `json:"handshake,omitempty"`
	// MaxBodyBytes is the largest body that the sender makes, or the default.
	MaxBodyBytes int64 `json:"max_body_bytes"`
	// MinSecretBytes is the least length of a secret, as it is written, that the sender's page states; zero: none.
	MinSecretBytes int `json:"min_secret_bytes,omitempty"`
	// ContentWindow is how long the hash of what was signed counts as a second id, because the signature does not
	// cover the first; zero: off.
	ContentWindow Duration `json:"content_window,omitempty"`
	// RequireID: the sender promises an id with each event.
	RequireID bool `json:"require_id,omitempty"`
	// Object is the JSON path of the id of the object that an event is about; empty: the sender's page tells none that all
	// types share.
	Object string `json:"object,omitempty"`
	// Version is where an event tells how new its object is. It goes with Object.
	Version *VersionSpec `json:"version,omitempty"`
	// Live is what tells an event of the real world from one of a test; nil: the sender tells neither.
	Live *LiveSpec `json:"live,omitempty"`
	// Events is where the events stand in a request that carries several; nil: a request is one event.
	Events *EventsSpec `json:"events,omitempty"`
	// Reply is the answer by which the sender knows that an event was taken; nil: any 2xx.
	Reply *Reply `json:"reply,omitempty"`
	// Unconfirmed are facts of the row that nothing of the vendor's confirms, a sentence each, behind the word of what it
	// is about: signature, id, type, retries, deadline, handshake or reply.
	Unconfirmed []string `json:"unconfirmed,omitempty"`
	// NeedsPublicURL: the sender signs the public URL. It follows from Specs.
	NeedsPublicURL bool `json:"-"`
	// WrongSecrets are texts that people paste by mistake.
	WrongSecrets []WrongSecret `json:"wrong_secrets,omitempty"`
	// Notes are what a user should know, a sentence each.
	Notes []string `json:"notes,omitempty"`

	verifier *Verifier
}

// Retries says whether a sender sends again by itself. The zero value is invalid.
type Retries string

// The values of Retries.
const (
	RetriesYes     Retries = "yes"
	RetriesNo      Retries = "no"
	RetriesUnknown Retries = "unknown" // nothing that was read says
)

// VersionSpec is the JSON path, in an event, of how new its object is. Exactly one is set.
type VersionSpec struct {
	// Number grows with each change of the object.
	Number string `json:"number,omitempty"`
	// Time is when the object came to be as the event shows it.
	Time string `json:"time,omitempty"`
}

// LiveSpec is where an event says whether it is of the real world: the value at a JSON path, written as in the body.
type LiveSpec struct {
	JSON  string `json:"json"`
	Value string `json:"value"`
}

// EventsSpec is where the events of a request stand.
type EventsSpec struct {
	// JSON is the path of their array; empty: the body is the array.
	JSON string `json:"json,omitempty"`
	// ID and Type are paths within an event; empty: it has none.
	ID   string `json:"id,omitempty"`
	Type string `json:"type,omitempty"`
}

// Reply is an HTTP answer.
type Reply struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type"`
	Body        string `json:"body"`
}

// Doubts returns what is not confirmed about a topic of Unconfirmed, or "".
func (p *Provider) Doubts(topic string) string {
	for _, u := range p.Unconfirmed {
		if text, ok := strings.CutPrefix(u, topic+": "); ok {
			return text
		}
	}
	return ""
}

// FormulaOnly reports whether the signature was checked against a formula alone, not against an example of the vendor's or
// its library. A test holds the rows to it.
func (p *Provider) FormulaOnly() bool {
	return strings.Contains(p.Doubts("signature"), "computed from the formula")
}

// WrongSecret is the beginning of what is another thing than the secret.
type WrongSecret struct {
	Prefix string `json:"prefix"`
	// What it is, with an article: "a Stripe API key".
	What string `json:"what"`
}

// Duration is a time.Duration that the table writes as the configuration does: "5m", "30d".
type Duration time.Duration

// Std returns d as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String writes whole days as "30d".
func (d Duration) String() string {
	const day = 24 * time.Hour
	if t := time.Duration(d); t != 0 && t%day == 0 {
		return strconv.Itoa(int(t/day)) + "d"
	}
	return time.Duration(d).String()
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > 3650 {
			return fmt.Errorf("duration %q: a number of days is wanted before d", s)
		}
		*d = Duration(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	t, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration %q: %w", s, errors.Unwrap(err))
	}
	*d = Duration(t)
	return nil
}

// Verifier returns the compiled schemes. Its ParseKey knows the provider's wrong secrets.
func (p *Provider) Verifier() *Verifier { return p.verifier }

// table is the parsed rows in order of their names. The JSON is part of the binary, and a test reads it.
var table = sync.OnceValue(func() []*Provider {
	rows, err := readProviders(providersJSON())
	if err != nil {
		panic("signature: " + err.Error())
	}
	return rows
})

// Providers returns all presets in order of their names.
func Providers() []*Provider { return slices.Clone(table()) }

// ProviderByName returns a preset.
func ProviderByName(name string) (*Provider, bool) {
	i, ok := slices.BinarySearchFunc(table(), name, func(p *Provider, name string) int {
		return strings.Compare(p.Name, name)
	})
	if !ok {
		return nil, false
	}
	return table()[i], true
}

// compile makes the verifier of a row's schemes.
func (p *Provider) compile() (*Verifier, error) {
	switch {
	case len(p.Specs) > 0 && p.JWT != nil, p.Native != "" && (len(p.Specs) > 0 || p.JWT != nil):
		return nil, errors.New("specs, jwt and native: one of them alone")
	case p.JWT != nil:
		s, err := compileJWT(*p.JWT)
		if err != nil {
			return nil, fmt.Errorf("jwt: %w", err)
		}
		return besideVerifier(s), nil
	case p.Native != "":
		s, ok := natives[p.Native]
		if !ok {
			return nil, fmt.Errorf("native: unknown %q", p.Native)
		}
		return besideVerifier(s), nil
	}
	v, err := Compile(p.Specs...)
	if err != nil {
		return nil, fmt.Errorf("specs: %w", err)
	}
	return v, nil
}

// natives are the schemes that are code through and through, by their names in the table.
var natives = map[string]beside{
	"sns":            snsScheme{},
	"paypal":         payPalScheme{host: "api.paypal.com", name: "messageverificationcerts.paypal.com"},
	"paypal-sandbox": payPalScheme{host: "api.sandbox.paypal.com", name: "messageverificationcerts.sandbox.paypal.com"},
	"ebay":           ebayScheme{},
	"unisender":      unisenderScheme{},
	"plivo":          plivoScheme{},
}

// addOwnKeys makes keys of what the row knows of the sender's.
func (p *Provider) addOwnKeys(v *Verifier) error {
	for _, at := range p.JWKS {
		k, err := v.ParseKeyURL(at)
		if err != nil {
			return fmt.Errorf("jwks: %w", err)
		}
		v.own = append(v.own, k)
	}
	if p.Roots != "" {
		k, err := v.ParseKey([]byte(p.Roots))
		if err != nil {
			return fmt.Errorf("roots: %w", err)
		}
		v.own = append(v.own, k)
	}
	return nil
}

// readProviders reads a table strictly: no unknown field, no name twice.
func readProviders(data []byte) ([]*Provider, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var rows []*Provider
	if err := d.Decode(&rows); err != nil {
		return nil, fmt.Errorf("read providers: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("read providers: something behind the table")
	}
	slices.SortFunc(rows, func(a, b *Provider) int { return strings.Compare(a.Name, b.Name) })
	for i, p := range rows {
		if p.Name == "" || i > 0 && rows[i-1].Name == p.Name {
			return nil, fmt.Errorf("read providers: name %q is empty or not the only one", p.Name)
		}
		v, err := p.compile()
		if err != nil {
			return nil, fmt.Errorf("read provider %s: %w", p.Name, err)
		}
		if err := p.addOwnKeys(v); err != nil {
			return nil, fmt.Errorf("read provider %s: %w", p.Name, err)
		}
		v.wrongSecrets = p.WrongSecrets
		p.verifier, p.NeedsPublicURL = v, v.NeedsURL()
		p.Tolerance = cmp.Or(p.Tolerance, Duration(DefaultTolerance))
		p.Retention = cmp.Or(p.Retention, Duration(DefaultRetention))
		p.RefusalStatus = cmp.Or(p.RefusalStatus, DefaultRefusalStatus)
		p.MaxBodyBytes = cmp.Or(p.MaxBodyBytes, DefaultMaxBodyBytes)
	}
	return rows, nil
}
