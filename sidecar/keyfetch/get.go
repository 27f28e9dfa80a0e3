package keyfetch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/signature"
)

const (
	// maxDocument bounds an answer: the largest JWK sets have 20 KiB.
	maxDocument = 256 << 10
	maxHeader   = 64 << 10
)

// userAgent is who calls.
const userAgent = "sidehook"

// get fetches and reads the document at a URL. age is how long it may be used.
func (f *Fetcher) get(ctx context.Context, at string) (keys *signature.PublishedKeys, age time.Duration, err error) {
	filter := f.filter()
	body, header, err := call(ctx, filter, at)
	if err != nil {
		return nil, 0, err
	}
	if keys, err = signature.ParsePublished(body); err != nil {
		return nil, 0, fmt.Errorf("read keys: %w", err)
	}
	if err := keys.VerifyChain(filter.RootCAs(), time.Now()); err != nil {
		return nil, 0, fmt.Errorf("read certificate: %w", err)
	}
	return keys, maxAge(header), nil
}

// Confirm implements extauthz.KeySource.
func (f *Fetcher) Confirm(ctx context.Context, at string) error {
	_, _, err := call(ctx, f.filter(), at)
	f.count(err)
	return err
}

// call calls a URL once, and returns the answer if it is 200 and not too large. The connection is to an address that the
// filter judged, serves this call alone and follows nothing.
func call(ctx context.Context, filter *netguard.Filter, at string) ([]byte, http.Header, error) {
	target, err := filter.Check(at)
	if err != nil {
		return nil, nil, err
	}
	if target.Scheme != "https" {
		return nil, nil, errors.New("keys come by https alone")
	}
	addrs, err := filter.Resolve(ctx, target)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, _, err := filter.Dial(ctx, target, addrs)
			return conn, err
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: filter.RootCAs()},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.URL, nil)
	if err != nil {
		return nil, nil, errors.New("the URL cannot be read")
	}
	req.Header.Set("User-Agent", userAgent)
	answer, err := transport.RoundTrip(req) // which follows no redirect
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("answered by %d", answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read answer: %w", err)
	case len(body) > maxDocument:
		return nil, nil, fmt.Errorf("answered by more than %d bytes", maxDocument)
	}
	return body, answer.Header, nil
}

// maxAge reads how long an answer may be used from Cache-Control (RFC 9111, section 5.2.2), within our bounds.
func maxAge(header http.Header) time.Duration {
	age := DefaultAge
	for directive := range strings.SplitSeq(strings.Join(header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "max-age":
			if n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil {
				age = time.Duration(n) * time.Second
			}
		case "no-store", "no-cache":
			return MinAge
		}
	}
	return min(max(age, MinAge), MaxAge)
}
