// Package httpguard holds what a listener on loopback or a socket asks of every request before it serves it: browsers
// and the app's own requests reach such a listener too.
package httpguard

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Errors of Bearer. Their texts may be shown to the caller.
var (
	ErrNoToken    = errors.New("a bearer token is required")
	ErrWrongToken = errors.New("wrong bearer token")
)

// Hostname returns the name or address in hostport, a Host header: without a port and without brackets.
func Hostname(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// LoopbackHost reports whether hostport, a Host header, is a loopback address or localhost, with or without a port:
// the only names of a listener that is bound to loopback or a socket. A page that rebinds its own name to 127.0.0.1
// sends that name.
func LoopbackHost(hostport string) bool {
	if hostport == "localhost" {
		return true
	}
	host := Hostname(hostport)
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// Bearer returns nil if h bears the token want, else ErrNoToken or ErrWrongToken; an empty want asks for nothing. It
// compares hashes, so that neither content nor length of the token shows in the time it takes.
func Bearer(h http.Header, want []byte) error {
	if len(want) == 0 {
		return nil
	}
	values := h.Values("Authorization")
	if len(values) != 1 {
		return ErrNoToken
	}
	scheme, got, ok := strings.Cut(values[0], " ")
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256(want)
	if !ok || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
		return ErrWrongToken
	}
	return nil
}
