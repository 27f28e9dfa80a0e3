package keyfetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
)

const (
	testURL = "https://keys.example.com/jwks.json"
	jwks    = `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"one","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}` // RFC 8037, appendix A.2
)

// host is a sender's host of which a test says what it answers.
type host struct {
	calls int
	err   error
	slow  time.Duration
	age   time.Duration
}

func (h *host) load(ctx context.Context, _ string) (*signature.PublishedKeys, time.Duration, error) {
	h.calls++
	select {
	case <-time.After(h.slow):
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if h.err != nil {
		return nil, 0, h.err
	}
	keys, err := signature.ParsePublished([]byte(jwks))
	return keys, h.age, err
}

// running makes a Fetcher over h that runs until the test ends.
func running(t *testing.T, h *host) *Fetcher {
	t.Helper()
	f, err := New(Config{Filter: func() *netguard.Filter { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	f.load = h.load
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f
}

// look asks as a Check does that waits two seconds.
func look(t *testing.T, f *Fetcher, want extauthz.KeyState) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if got := f.Fetch(ctx, signature.KeyRequest{URL: testURL, KeyID: "two"}); got != want {
		t.Errorf("Fetch = %d, want %d", got, want)
	}
}

func TestFetchKeepsAndRefreshes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{age: time.Hour}
		f := running(t, h)
		if f.Keys(testURL) != nil {
			t.Error("keys out of nothing")
		}
		look(t, f, extauthz.KeyFetched)
		if f.Keys(testURL) == nil || h.calls != 1 {
			t.Fatalf("no keys after %d calls", h.calls)
		}
		// Ids that somebody makes up cause a call a minute, not one each.
		for range 100 {
			look(t, f, extauthz.KeyRecent)
		}
		time.Sleep(pace)
		look(t, f, extauthz.KeyFetched)
		if h.calls != 2 {
			t.Errorf("%d calls, want 2", h.calls)
		}
		// Past its time a document is fetched beside its use.
		time.Sleep(time.Hour + time.Second)
		if f.Keys(testURL) == nil {
			t.Error("keys past their time are gone before new ones are there")
		}
		synctest.Wait()
		if h.calls != 3 {
			t.Errorf("%d calls after the time, want 3", h.calls)
		}
	})
}

func TestFetchHostAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{age: time.Hour, err: errors.New("away")}
		f := running(t, h)
		look(t, f, extauthz.KeyAway)
		look(t, f, extauthz.KeyAway) // and nobody asks again at once
		if h.calls != 1 {
			t.Errorf("%d calls, want 1", h.calls)
		}
		time.Sleep(firstRetry)
		look(t, f, extauthz.KeyAway)
		time.Sleep(firstRetry)
		look(t, f, extauthz.KeyAway)
		if h.calls != 2 {
			t.Errorf("%d calls, want 2: the wait doubles", h.calls)
		}
		h.err = nil
		time.Sleep(lastRetry)
		look(t, f, extauthz.KeyFetched)
		// What there is stays while the host is away again, but not for ever.
		h.err = errors.New("away")
		for at := time.Now(); time.Since(at) < MaxStale-time.Hour; time.Sleep(time.Hour) {
			if f.Keys(testURL) == nil {
				t.Fatalf("keys are gone after %s", time.Since(at))
			}
		}
		look(t, f, extauthz.KeyAway)
		time.Sleep(2 * time.Hour)
		if f.Keys(testURL) != nil {
			t.Error("keys are kept for ever")
		}
	})
}

func TestFetchOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{age: time.Hour, slow: 3 * time.Second}
		f := running(t, h)
		states := make(chan extauthz.KeyState)
		for range 50 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				states <- f.Fetch(ctx, signature.KeyRequest{URL: testURL})
			}()
		}
		start := time.Now()
		for range 50 {
			if s := <-states; s != extauthz.KeyAway {
				t.Errorf("Fetch = %d, want KeyAway", s)
			}
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("callers waited for %s", d)
		}
		time.Sleep(time.Second) // the fetch goes on without them
		synctest.Wait()
		if f.Keys(testURL) == nil || h.calls != 1 {
			t.Errorf("keys %v after %d calls, want one", f.Keys(testURL), h.calls)
		}
	})
}

func TestFetchBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{age: time.Hour}
		f := running(t, h)
		look(t, f, extauthz.KeyFetched)
		h.err = errors.New("no such certificate")
		for i := range 4 * maxDocuments {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			f.Fetch(ctx, signature.KeyRequest{URL: fmt.Sprintf("https://sns.us-east-1.amazonaws.com/%d.pem", i)})
			cancel()
		}
		if n := len(f.documents); n > maxDocuments {
			t.Errorf("%d documents are kept", n)
		}
		if f.Keys(testURL) == nil {
			t.Error("keys that are used went for URLs that have none")
		}
	})
}

// server answers by HTTPS on loopback, and a filter that lets nothing else through.
func server(t *testing.T, handler http.HandlerFunc) (url string, filter *netguard.Filter) {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	pool := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	filter, err := netguard.New(netguard.Config{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, RootCAs: pool,
		Ports: []uint16{netip.MustParseAddrPort(strings.TrimPrefix(s.URL, "https://")).Port()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.URL, filter
}

func TestGet(t *testing.T) {
	t.Parallel()
	url, filter := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/jwks":
			w.Header().Set("Cache-Control", "public, max-age=7200")
			fmt.Fprint(w, jwks)
		case "/redirect":
			http.Redirect(w, r, "/jwks", http.StatusFound)
		case "/large":
			fmt.Fprint(w, strings.Repeat(" ", maxDocument+1))
		case "/page":
			fmt.Fprint(w, "<html></html>")
		default:
			http.NotFound(w, r)
		}
	})
	strict, err := netguard.New(netguard.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, at string
		filter   *netguard.Filter
		refusal  string // part of the error; empty: none
	}{
		{"keys", url + "/jwks", filter, ""},
		{"a redirect", url + "/redirect", filter, "answered by 302"},
		{"too much", url + "/large", filter, "answered by more than"},
		{"no keys", url + "/page", filter, "no JWK set"},
		{"nothing there", url + "/other", filter, "answered by 404"},
		{"an address that the filter refuses", url + "/jwks", strict, ""},
		{"without TLS", strings.Replace(url, "https", "http", 1) + "/jwks", filter, ""},
		{"a certificate of another authority", url + "/jwks", withoutRoots(t, url), "certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, err := New(Config{Filter: func() *netguard.Filter { return c.filter }})
			if err != nil {
				t.Fatal(err)
			}
			keys, age, err := f.get(t.Context(), c.at)
			if c.name == "keys" {
				if err != nil || keys == nil || age != 2*time.Hour {
					t.Errorf("%v for %s: %v", keys, age, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refusal) {
				t.Errorf("%v, want %q", err, c.refusal)
			}
		})
	}
	f, err := New(Config{Filter: func() *netguard.Filter { return filter }})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Confirm(t.Context(), url+"/jwks"); err != nil {
		t.Errorf("Confirm: %v", err)
	}
	if err := f.Confirm(t.Context(), url+"/other"); err == nil {
		t.Error("Confirm of what is not there")
	}
}

// withoutRoots lets the address through and trusts the system's authorities alone.
func withoutRoots(t *testing.T, url string) *netguard.Filter {
	t.Helper()
	filter, err := netguard.New(netguard.Config{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Ports: []uint16{netip.MustParseAddrPort(strings.TrimPrefix(url, "https://")).Port()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

func TestMaxAge(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"": DefaultAge, "max-age=7200": 2 * time.Hour, "public, Max-Age=\"600\"": 10 * time.Minute, "max-age=0": MinAge, "max-age=99999999": MaxAge,
		"no-store": MinAge, "max-age=7200, no-cache": MinAge, "max-age=x": DefaultAge, "private": DefaultAge,
	} {
		if got := maxAge(http.Header{"Cache-Control": {value}}); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
