package egress

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strconv"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// SenderConfig is what an HTTPSender is made of.
type SenderConfig struct {
	// UserAgent names us to receivers. Default: "sidehook".
	UserAgent string
	// MaxIdle bounds the connections that are kept, for all endpoints together. 0: DefaultMaxIdle.
	MaxIdle int
	// Request makes the request of an attempt; nil: the POST of Standard Webhooks that HTTPSender describes. An error ends
	// the attempt before anybody is asked, as OutcomeInternal. Attempts are made over HTTP/1.1 then.
	Request func(e *Endpoint, ev *Event, attempt int, now time.Time) (Request, error)
}

// HTTPSender makes attempts over HTTP/1.1 and HTTP/2. An attempt is one request. Unless SenderConfig.Request says otherwise,
// that is a POST, the body as it was posted to us, with these headers, of which each one stands in place of those before it
// that have its name:
//
//	those of the event               ce-… of CloudEvents
//	those of the endpoint            none that ForbiddenHeader refuses
//	Content-Type                     as posted
//	User-Agent                       sidehook/VERSION
//	Webhook-Id                       the event's id, the same in every attempt and redelivery
//	Webhook-Timestamp                when this attempt began, in seconds
//	Webhook-Signature                one signature for each key in force: v1 (HMAC-SHA256), v1a (Ed25519)
//	Webhook-Attempt                  the number of this attempt of the delivery, from 1; not signed
//
// The endpoint's name is looked up and judged for every attempt, also when a kept connection is used. Such a connection
// is at most 60 s old when an attempt begins, and serves one endpoint only.
type HTTPSender struct {
	userAgent string
	verifier  *signature.Verifier
	request   func(e *Endpoint, ev *Event, attempt int, now time.Time) (Request, error)
	pools     pools
}

var _ Sender = (*HTTPSender)(nil)

// NewHTTPSender makes a sender that keeps no connection yet.
func NewHTTPSender(c SenderConfig) (*HTTPSender, error) {
	standard, ok := signature.ProviderByName("standard-webhooks")
	if !ok {
		return nil, errors.New("no scheme standard-webhooks")
	}
	return &HTTPSender{
		userAgent: cmp.Or(c.UserAgent, "sidehook"),
		verifier:  standard.Verifier(),
		request:   c.Request,
		pools:     pools{m: make(map[poolKey]*pool), max: cmp.Or(c.MaxIdle, DefaultMaxIdle), http1: c.Request != nil},
	}, nil
}

// Retain closes the connections that serve none of endpoints as they are now: of endpoints that are gone, or that have
// another URL or filter. Attempts in flight end as they would.
func (s *HTTPSender) Retain(endpoints *Endpoints) { s.pools.retain(endpoints) }

// Close closes all connections that are idle, and the others as their attempts end.
func (s *HTTPSender) Close() error {
	s.pools.retain(nil)
	return nil
}

// Send implements Sender.
func (s *HTTPSender) Send(ctx context.Context, e *Endpoint, ev *Event, attempt int) Result {
	x := exchange{sender: s, endpoint: e, event: ev, parent: ctx, start: time.Now()}
	limit, cancel := context.WithTimeout(ctx, e.Policy.Timeout)
	defer cancel()
	x.ctx = limit
	if err := x.run(attempt); err != nil {
		x.fail(err)
	}
	x.Took = time.Since(x.start)
	return x.Result
}

// exchange is one attempt under way.
type exchange struct {
	Result
	sender   *HTTPSender
	endpoint *Endpoint
	event    *Event
	parent   context.Context // ends when we are to stop
	ctx      context.Context // ends also at the attempt's time limit
	start    time.Time
	secrets  []signature.Field // that the request bears
	phase    phase
	silent   bool // the receiver has not said a byte since the phase began
}

// run makes the attempt. Without an error the Result is that of an answer.
func (x *exchange) run(attempt int) error {
	e := x.endpoint
	if e.Unusable != "" {
		return errUnusable
	}
	request, err := x.prepare(attempt)
	if err != nil {
		return err
	}
	var addrs []netip.AddrPort
	if e.Socket == "" {
		x.phase = phaseResolve
		if addrs, err = e.Filter.Resolve(x.ctx, e.Target); err != nil {
			return err
		}
	}
	p, err := x.sender.pools.enter(e)
	if err != nil {
		return err
	}
	defer x.sender.pools.leave(p)
	for fresh := false; ; fresh = true {
		var c *conn
		if !fresh {
			c = x.sender.pools.take(p)
		}
		x.Reused, x.silent = c != nil, true
		if c == nil {
			x.phase = phaseDial
			var d *dialing
			if c, d, err = x.sender.pools.dial(x.ctx, p, addrs); err != nil {
				x.dialFailed(d)
				return err
			}
		}
		x.IP = c.addr
		clean, err := x.roundTrip(c, request(p.url))
		x.sender.pools.put(p, c, clean)
		if err == nil || !x.Reused || x.phase != phaseHeader || x.ctx.Err() != nil || endOf(err) == endNone && !unprocessed(err) {
			return err
		}
		// Other kept connections have probably ended as well, and the next attempt should not find them one by one.
		x.sender.pools.drop(p)
		if x.Wrote && !unprocessed(err) {
			return err
		}
		// The receiver has seen nothing of the request, so this is still the same attempt.
	}
}

// dialFailed notes how far a dial came.
func (x *exchange) dialFailed(d *dialing) {
	x.IP = d.addr
	switch {
	case d.wire == nil:
		if op, ok := errors.AsType[*net.OpError](d.err); ok {
			if addr, ok := op.Addr.(*net.TCPAddr); ok {
				x.IP = addr.AddrPort().Addr().Unmap()
			}
		}
	case d.tls:
		x.phase = phaseHeader
	default:
		x.phase, x.silent = phaseHandshake, d.wire.read.Load() == 0
	}
}

// fail makes the Result that of a failure.
func (x *exchange) fail(err error) {
	f := failure{
		err:     err,
		phase:   x.phase,
		stopped: x.parent.Err() != nil,
		late:    x.ctx.Err() != nil,
		silent:  x.silent,
		reused:  x.Reused,
	}
	x.Outcome, x.Detail = f.classify()
	if len(x.Detail) > maxDetail {
		x.Detail = x.Detail[:maxDetail]
	}
}

// roundTrip sends r over c and reads the answer. clean says that c can be used again.
func (x *exchange) roundTrip(c *conn, r *http.Request) (clean bool, err error) {
	x.phase = phaseHeader
	read, wrote := c.wire.read.Load(), c.wire.wrote.Load()
	resp, err := c.client.RoundTrip(r.WithContext(x.ctx)) //nolint:bodyclose // answer closes it, not always at once
	// After an error of HTTP/1 nobody writes any more; before an answer a byte may not be counted yet. A connection of
	// HTTP/2 counts the bytes of other attempts too.
	x.Wrote = err == nil || c.http2 || c.wire.wrote.Load() != wrote
	if err != nil {
		x.silent = c.http2 || c.wire.read.Load() == read || saidNothing(err)
		return false, err
	}
	x.phase, x.silent = phaseBody, false
	whole, err := x.answer(resp)
	return err == nil && (whole || c.http2) && resp.StatusCode != http.StatusSwitchingProtocols, err
}

// prepare makes the request of the attempt, for which only the endpoint's URL is missing. Each call of what it returns makes
// it anew: that of a kept connection that has ended is not sent again.
func (x *exchange) prepare(attempt int) (func(*url.URL) *http.Request, error) {
	if ask := x.sender.request; ask != nil {
		r, err := ask(x.endpoint, x.event, attempt, x.start)
		if err != nil {
			return nil, err
		}
		x.secrets = r.Secrets
		return r.prepare(x.event.Body)
	}
	x.secrets = x.endpoint.Headers
	header, err := x.header(attempt)
	if err != nil {
		return nil, err
	}
	return func(u *url.URL) *http.Request { return newRequest(http.MethodPost, u, u.Host, header, x.event.Body) }, nil
}

func newRequest(method string, u *url.URL, host string, header http.Header, body []byte) *http.Request {
	r := &http.Request{
		Method:        method,
		URL:           u,
		Host:          host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		ContentLength: int64(len(body)),
		Body:          http.NoBody,
	}
	if len(body) > 0 {
		// A NopCloser of a bytes.Reader is known to net/http as memory, so that header and body go out in one write.
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r
}

// header makes the header of the attempt, signed.
func (x *exchange) header(attempt int) (http.Header, error) {
	ev, e := x.event, x.endpoint
	signed, err := x.sender.verifier.SignAll(&signature.Message{Body: ev.Body}, e.Keys, ev.ID, x.start)
	if err != nil {
		return nil, err
	}
	n := len(ev.Headers) + len(e.Headers) + len(signed) + 3
	h := make(http.Header, n)
	values := make([]string, 0, n)
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	for _, f := range ev.Headers {
		set(textproto.CanonicalMIMEHeaderKey(f.Name), f.Value)
	}
	for _, f := range e.Headers {
		set(textproto.CanonicalMIMEHeaderKey(f.Name), f.Value)
	}
	if ev.ContentType != "" {
		set("Content-Type", ev.ContentType)
	}
	set("User-Agent", x.sender.userAgent)
	for _, f := range signed {
		set(textproto.CanonicalMIMEHeaderKey(f.Name), f.Value)
	}
	set("Webhook-Attempt", strconv.Itoa(attempt))
	return h, nil
}
