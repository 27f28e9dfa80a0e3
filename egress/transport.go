package egress

import (
	"container/list"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sidehook/sidehook/egress/netguard"
)

// Bounds of what a receiver can make us keep.
const (
	// maxAnswerHeader bounds the header of an answer, with all 1xx answers before it, in bytes.
	maxAnswerHeader = 64 << 10
	// maxStreamBuffer bounds what HTTP/2 lets the receiver send ahead of our reading: the answer that is read, and some.
	maxStreamBuffer = 128 << 10
	// maxHTTP2Stall is how long a write to an HTTP/2 connection may make no progress. It ends the whole connection, which
	// an attempt whose time is up does not.
	maxHTTP2Stall = 10 * time.Second
)

// minRSABits is the least modulus in the certificates of a receiver: below it a signature proves nothing (NIST SP 800-131A).
const minRSABits = 2048

// errWeakKey means that a certificate of the receiver has a key that proves nothing.
var errWeakKey = errors.New("certificate with a weak key")

// newTransport makes the settings that all connections of one pool share. It never follows a redirect, since RoundTrip
// does not, keeps no cookies, asks no proxy but the filter's own and asks for no compression.
// A nil filter is that of a socket.
func newTransport(f *netguard.Filter) *http.Transport {
	var roots *x509.CertPool
	if f != nil {
		roots = f.RootCAs()
	}
	return &http.Transport{
		DialContext:        dialJudged,
		DisableCompression: true,
		ForceAttemptHTTP2:  true, // a DialContext of one's own turns it off otherwise
		TLSClientConfig: &tls.Config{
			MinVersion:       tls.VersionTLS12,
			RootCAs:          roots,
			VerifyConnection: refuseWeakKeys,
		},
		MaxResponseHeaderBytes: maxAnswerHeader,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:     maxStreamBuffer,
			MaxReceiveBufferPerConnection: 8 * maxStreamBuffer,
			WriteByteTimeout:              maxHTTP2Stall,
		},
	}
}

// refuseWeakKeys is asked after the chains were verified. A trust anchor is trusted for being there, not for its key.
func refuseWeakKeys(state tls.ConnectionState) error {
	for _, chain := range state.VerifiedChains {
		for _, cert := range chain[:max(1, len(chain)-1)] {
			if key, ok := cert.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() < minRSABits {
				return fmt.Errorf("%w: RSA of %d bits", errWeakKey, key.N.BitLen())
			}
		}
	}
	return nil
}

// conn is one connection to a receiver. What is below its lock is guarded by that of pools.
type conn struct {
	client *http.ClientConn
	wire   *wire
	addr   netip.Addr
	made   time.Time
	http2  bool // carries several attempts at one time
	pool   *pool

	inUse     int           // attempts that it carries
	retired   bool          // takes no further attempt; closed when inUse is 0
	idleSince time.Time     // valid while inUse is 0
	place     *list.Element // among the idle ones; nil while inUse is not 0
}

// abort closes c without a word to the receiver: a close_notify could block on a receiver that does not read.
func (c *conn) abort() {
	_ = c.wire.Conn.Close()
	_ = c.client.Close()
}

// wire counts the bytes of a connection, below TLS.
type wire struct {
	net.Conn
	read, wrote atomic.Int64
}

// Read counts what Conn reads.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.read.Add(int64(n))
	return n, err
}

// Write counts what Conn writes.
func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.wrote.Add(int64(n))
	return n, err
}

// dialing is the state of one dial. It goes through net/http in the context.
type dialing struct {
	filter *netguard.Filter
	target netguard.Target
	addrs  []netip.AddrPort // judged by filter for this attempt
	socket string           // is dialled in their place, where there is one

	wire  *wire // set once connected
	addr  netip.Addr
	err   error // of the connection, before TLS
	tls   bool  // the handshake was done
	proto string
}

type dialingKey struct{}

// dialJudged is the DialContext of every Transport. It looks nothing up: it connects to the addresses that were judged.
func dialJudged(ctx context.Context, _, _ string) (net.Conn, error) {
	d := ctx.Value(dialingKey{}).(*dialing)
	var (
		c    net.Conn
		addr netip.AddrPort
		err  error
	)
	if d.socket != "" {
		c, err = dialSocket(ctx, d.socket)
	} else {
		c, addr, err = d.filter.Dial(ctx, d.target, d.addrs)
	}
	if d.addr = addr.Addr(); err != nil {
		d.err = err
		return nil, err
	}
	d.wire = &wire{Conn: c}
	return d.wire, nil
}

// fullSocketWait is between looks at a socket whose queue of connections is full.
const fullSocketWait = 10 * time.Millisecond

// dialSocket connects to a Unix socket. Where its queue is full Linux says so at once, while TCP waits: here we do.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		if !errors.Is(err, syscall.EAGAIN) {
			return c, err
		}
		wait := time.NewTimer(fullSocketWait)
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil, ctx.Err()
		case <-wait.C:
		}
	}
}

// dial makes a connection for the endpoint of a pool. What was learnt on the way is in d also when it fails.
func dial(ctx context.Context, t *http.Transport, d *dialing) (*conn, error) {
	ctx = context.WithValue(ctx, dialingKey{}, d)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeDone: func(state tls.ConnectionState, err error) { d.tls, d.proto = err == nil, state.NegotiatedProtocol },
	})
	client, err := t.NewClientConn(ctx, d.target.Scheme, net.JoinHostPort(d.target.Host, strconv.Itoa(int(d.target.Port))))
	if err != nil {
		return nil, err
	}
	return &conn{client: client, wire: d.wire, addr: d.addr, made: time.Now(), http2: d.proto == "h2", inUse: 1}, nil
}

// requestURL is the URL of t in the form in which net/http sends path and query exactly as they were given.
func requestURL(t netguard.Target) (*url.URL, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, errors.New("the endpoint's URL cannot be read") // the error of url.Parse holds the URL
	}
	u.Fragment, u.RawFragment, u.User = "", "", nil
	if u.RequestURI() != t.RequestURI && !strings.HasPrefix(t.RequestURI, "//") {
		u.Opaque, u.RawQuery, u.ForceQuery = t.RequestURI, "", false
	}
	return u, nil
}
