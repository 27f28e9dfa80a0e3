package netguard

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// maxProxyHeaderBytes bounds the header of a proxy's answer.
const maxProxyHeaderBytes = 64 << 10

// Proxy is a forward proxy that tunnels by CONNECT (RFC 9110 section 9.3.6). Who runs sidehook configures it, so that its
// own address is not judged. It never prints its Authorization.
type Proxy struct {
	// URL is scheme (http or https), host and port: http://proxy.example:3128.
	URL string
	// Authorization is the whole value of Proxy-Authorization; empty: none is sent.
	Authorization string
	// ByName asks the proxy for the name of a target and resolves nothing: the proxy filters addresses by itself.
	// Otherwise names are resolved and judged here, and the proxy is asked for the judged address.
	ByName bool
	// RootCAs are trusted for the certificate of an https proxy; nil: the system's. It is always verified.
	RootCAs *x509.CertPool
}

// String returns p without its secret.
func (p Proxy) String() string {
	return fmt.Sprintf("{URL:%s Authorization:%s ByName:%t}", p.URL, p.redacted(), p.ByName)
}

// GoString is String, for %#v.
func (p Proxy) GoString() string { return p.String() }

// LogValue implements slog.LogValuer.
func (p Proxy) LogValue() slog.Value { return slog.StringValue(p.String()) }

func (p Proxy) redacted() string {
	if p.Authorization == "" {
		return ""
	}
	return "[redacted]"
}

// ProxyError says that the forward proxy is at fault, not the receiver: it could not be reached, its certificate is not
// one for it, or it refused us. It is looked for before anything that it wraps.
type ProxyError struct {
	// Status is the proxy's answer to CONNECT; 0 if there was none.
	Status int
	Err    error
}

// Error implements error.
func (e *ProxyError) Error() string { return "forward proxy: " + e.Err.Error() }

// Unwrap returns Err.
func (e *ProxyError) Unwrap() error { return e.Err }

// TunnelError says that the forward proxy is well and could not connect to the receiver. It wraps EHOSTUNREACH.
//
// A proxy says so with 502, 503 or 504: Squid and Envoy answer 503 where the receiver refuses, others 502 or 504. They
// use 503 for troubles of their own as well; where Proxy-Status (RFC 9209) tells of one, it is a *ProxyError. A proxy
// that took the request and answers nothing in time is still trying the receiver, as those with a longer time limit
// than ours do: that too is a TunnelError.
type TunnelError struct {
	// Status is the proxy's answer; 0 if there was none within the time limit.
	Status int
}

// Error implements error.
func (e *TunnelError) Error() string {
	if e.Status == 0 {
		return "forward proxy: the receiver was not reached within the time limit"
	}
	return fmt.Sprintf("forward proxy: the receiver was not reached: the proxy answered %d", e.Status)
}

// Unwrap returns what it means.
func (e *TunnelError) Unwrap() error { return syscall.EHOSTUNREACH }

// Timeout reports whether the time limit ended the try; it makes e a net.Error.
func (e *TunnelError) Timeout() bool { return e.Status == 0 }

// Temporary implements net.Error.
func (e *TunnelError) Temporary() bool { return false }

// ResolvesByProxy reports whether names are left to the proxy (Proxy.ByName): then Resolve looks up nothing.
func (f *Filter) ResolvesByProxy() bool { return f.proxy != nil && f.proxy.byName }

// proxy is a Proxy as it is used.
type proxy struct {
	address       string // host and port
	tls           *tls.Config
	authorization string
	byName        bool
}

func newProxy(c Proxy) (*proxy, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("the URL is not one of a proxy; write scheme, host and port, such as http://proxy.example:3128")
	case u.User != nil:
		return nil, errors.New("the URL has a user; write authorization in its place")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the URL has more than scheme, host and port")
	}
	for i := range len(c.Authorization) {
		if b := c.Authorization[i]; b < 0x20 || b == 0x7f {
			return nil, errors.New("authorization holds a control character")
		}
	}
	p := &proxy{authorization: c.Authorization, byName: c.ByName}
	port := u.Port()
	if port == "" {
		port = u.Scheme // net knows the names http and https as 80 and 443
	}
	p.address = net.JoinHostPort(u.Hostname(), port)
	if u.Scheme == "https" {
		p.tls = &tls.Config{ServerName: u.Hostname(), RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	}
	return p, nil
}

// connect opens a tunnel to target, an address or a name with its port.
func (p *proxy) connect(ctx context.Context, resolver *net.Resolver, target string) (net.Conn, error) {
	d := net.Dialer{Resolver: resolver}
	conn, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, p.fault(ctx, 0, err)
	}
	if p.tls != nil {
		secured := tls.Client(conn, p.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, p.fault(ctx, 0, err)
		}
		conn = secured
	}
	// An exchange on a connection knows no context: the end of ctx makes its deadline pass.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err = p.ask(ctx, conn, target)
	if !stop() && err == nil {
		err = p.fault(ctx, 0, ctx.Err()) // the deadline has passed: the connection is of no use
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// ask sends CONNECT on conn and reads the answer, and nothing after it.
func (p *proxy) ask(ctx context.Context, conn net.Conn, target string) error {
	req := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if p.authorization != "" {
		req += "Proxy-Authorization: " + p.authorization + "\r\n"
	}
	if _, err := io.WriteString(conn, req+"\r\n"); err != nil {
		return p.fault(ctx, 0, err)
	}
	r := bufio.NewReader(io.LimitReader(conn, maxProxyHeaderBytes))
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // a body ends with conn: closing it would read on
	if err != nil {
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &TunnelError{}
		}
		return p.fault(ctx, 0, fmt.Errorf("read its answer to CONNECT: %w", err))
	}
	switch {
	case res.StatusCode/100 == 2 && r.Buffered() > 0:
		return p.fault(ctx, res.StatusCode, errors.New("it sent bytes of a tunnel in which nobody had spoken"))
	case res.StatusCode/100 == 2:
		return nil
	case res.StatusCode >= 502 && res.StatusCode <= 504 && !ownTrouble(res.Header):
		return &TunnelError{Status: res.StatusCode}
	default:
		return p.fault(ctx, res.StatusCode, fmt.Errorf("it answered %d to CONNECT", res.StatusCode))
	}
}

// fault is err as a fault of the proxy, unless it is only that ctx was cancelled by us.
func (p *proxy) fault(ctx context.Context, status int, err error) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return &ProxyError{Status: status, Err: err}
}

// ownTrouble reports whether a Proxy-Status says that the failure lies with the proxy, or with what it permits: its error
// types proxy_* and destination_ip_prohibited (RFC 9209 section 2.3).
func ownTrouble(h http.Header) bool {
	for _, status := range h.Values("Proxy-Status") {
		for param := range strings.SplitSeq(status, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
			if name == "error" && (strings.HasPrefix(value, "proxy_") || strings.HasPrefix(value, "destination_ip_prohibited")) {
				return true
			}
		}
	}
	return false
}
