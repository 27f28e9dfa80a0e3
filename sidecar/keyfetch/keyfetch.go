// Package keyfetch fetches the documents in which senders publish their keys: JWK sets, and certificates of Amazon SNS and
// PayPal. Whatever is called comes from configuration or from a request, so all of it goes through the address filter, by
// HTTPS, without redirects, bounded in size, time and number.
//
//	Check ──Keys──▶ what is at hand          (never waits)
//	      ──Fetch─▶ queue ──worker─▶ filter ─▶ host      (one fetch of a URL at a time, at most one a minute)
//
// What was fetched is kept as long as Cache-Control allows, between MinAge and MaxAge, then fetched anew beside its use;
// while the host is away it is kept on, up to MaxStale. What failed is not tried again for a while that doubles.
package keyfetch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
)

// How long a document is used.
const (
	MinAge     = 5 * time.Minute // whatever the answer says: a host that asks for less would be asked on every request
	DefaultAge = time.Hour       // where the answer says nothing
	MaxAge     = 24 * time.Hour  // a key that was withdrawn should not live longer
	MaxStale   = 7 * 24 * time.Hour
)

const (
	// pace is the shortest time between two fetches of a URL: who makes up key ids must not have us call anyone more often.
	pace = time.Minute
	// firstRetry is the wait after a failure; each further one doubles it, up to lastRetry.
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
	// timeout bounds one fetch. It runs on when the Check that asked for it has been answered.
	timeout = 10 * time.Second
	// maxDocuments bounds what is kept: certificates' URLs come from requests.
	maxDocuments = 256
	// workers bounds fetches at one time, queued those that wait.
	workers = 4
	queued  = 64
)

// errDropped means that a fetch found no room in the queue.
var errDropped = errors.New("too many fetches wait")

// Config is what New needs.
type Config struct {
	// Filter returns the address filter in force. Required.
	Filter func() *netguard.Filter
	// Logger; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil: they are not exported.
	Registerer prometheus.Registerer
}

// Fetcher is an extauthz.KeySource. It is safe for concurrent use; nothing is fetched before Run or after it.
type Fetcher struct {
	filter func() *netguard.Filter
	log    *slog.Logger
	jobs   chan *document
	fetch  *prometheus.CounterVec
	load   func(ctx context.Context, at string) (*signature.PublishedKeys, time.Duration, error)

	mu        sync.Mutex
	documents map[string]*document
}

var _ extauthz.KeySource = (*Fetcher)(nil)

// document is what is known of a URL. Its fields are guarded by Fetcher.mu, but url.
type document struct {
	url      string
	keys     *signature.PublishedKeys // nil: never fetched, or too long ago
	fetched  time.Time                // when keys came
	expires  time.Time                // when they are fetched anew
	tried    time.Time                // the end of the last fetch
	used     time.Time
	failures int           // since keys came
	done     chan struct{} // closed when the fetch under way ends; nil: none is
}

// New makes a Fetcher.
func New(cfg Config) (*Fetcher, error) {
	if cfg.Filter == nil {
		return nil, errors.New("fetch keys: a filter is required")
	}
	f := &Fetcher{
		filter: cfg.Filter, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), jobs: make(chan *document, queued), documents: map[string]*document{},
		fetch: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sidehook_extauthz_key_fetches_total",
			Help: "Fetches of keys that senders publish, by result: ok, refused by the address filter, failed."}, []string{"result"}),
	}
	f.load = f.get
	for _, result := range []string{resultOK, resultRefused, resultFailed} {
		f.fetch.WithLabelValues(result)
	}
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(f.fetch); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// The values of the metric's label.
const (
	resultOK      = "ok"
	resultRefused = "refused"
	resultFailed  = "failed"
)

// Run fetches what is asked for until ctx ends.
func (f *Fetcher) Run(ctx context.Context) error {
	var group errgroup.Group
	for range workers {
		group.Go(func() error {
			for {
				select {
				case d := <-f.jobs:
					f.update(ctx, d)
				case <-ctx.Done():
					return nil
				}
			}
		})
	}
	return group.Wait()
}

// Keys implements signature.Published. What is past its time is fetched anew meanwhile.
func (f *Fetcher) Keys(url string) *signature.PublishedKeys {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.documents[url]
	if d == nil {
		return nil
	}
	d.used = now
	if d.keys != nil && now.Sub(d.fetched) > MaxStale {
		d.keys = nil
	}
	if d.keys != nil && now.After(d.expires) && d.due(now) {
		_ = f.start(d) // with a full queue the next request tries again
	}
	return d.keys
}

// due reports whether d may be fetched now.
func (d *document) due(now time.Time) bool {
	if d.done != nil {
		return false
	}
	wait := pace
	if d.failures > 0 {
		wait = min(firstRetry<<min(d.failures-1, 10), lastRetry)
	}
	return d.tried.IsZero() || now.Sub(d.tried) >= wait
}

// start queues a fetch of d. Needs mu.
func (f *Fetcher) start(d *document) error {
	d.done = make(chan struct{})
	select {
	case f.jobs <- d:
		return nil
	default:
		d.done = nil
		return errDropped
	}
}

// Fetch implements extauthz.KeySource.
func (f *Fetcher) Fetch(ctx context.Context, want signature.KeyRequest) extauthz.KeyState {
	f.mu.Lock()
	d := f.open(want.URL)
	now := time.Now()
	if d == nil || d.done == nil && !d.due(now) {
		state := extauthz.KeyAway
		if d != nil && d.keys != nil && d.failures == 0 {
			state = extauthz.KeyRecent
		}
		f.mu.Unlock()
		return state
	}
	if d.done == nil && f.start(d) != nil {
		f.mu.Unlock()
		return extauthz.KeyAway
	}
	done := d.done
	f.mu.Unlock()

	select {
	case <-done:
	case <-ctx.Done():
		return extauthz.KeyAway
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.failures > 0 || d.keys == nil {
		return extauthz.KeyAway
	}
	return extauthz.KeyFetched
}

// open returns the document of a URL, for which it makes room: what has no keys goes first, then what was used longest ago.
// nil: all are being fetched. Needs mu.
func (f *Fetcher) open(url string) *document {
	if d := f.documents[url]; d != nil {
		return d
	}
	if len(f.documents) >= maxDocuments {
		var oldest *document
		for _, d := range f.documents {
			switch {
			case d.done != nil:
			case oldest == nil, (d.keys == nil) && oldest.keys != nil, (d.keys == nil) == (oldest.keys == nil) && d.used.Before(oldest.used):
				oldest = d
			}
		}
		if oldest == nil {
			return nil
		}
		delete(f.documents, oldest.url)
	}
	d := &document{url: url, used: time.Now()}
	f.documents[url] = d
	return d
}

// update fetches d and keeps what came.
func (f *Fetcher) update(ctx context.Context, d *document) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	keys, age, err := f.load(ctx, d.url)
	f.count(err)
	now := time.Now()
	f.mu.Lock()
	if d.tried = now; err == nil {
		d.keys, d.fetched, d.expires, d.failures = keys, now, now.Add(age), 0
	} else {
		d.failures++
	}
	failures, kept := d.failures, d.keys != nil
	close(d.done)
	d.done = nil
	f.mu.Unlock()
	if err != nil {
		f.log.LogAttrs(ctx, slog.LevelWarn, "keys of a sender could not be fetched", slog.String("url", egress.LoggedURL(d.url)),
			slog.Int("failures", failures), slog.Bool("kept", kept), slog.Any("err", err))
	}
}

func (f *Fetcher) count(err error) {
	result := resultOK
	if err != nil {
		result = resultFailed
	}
	if _, ok := errors.AsType[*netguard.Refusal](err); ok {
		result = resultRefused
	}
	f.fetch.WithLabelValues(result).Inc()
}
