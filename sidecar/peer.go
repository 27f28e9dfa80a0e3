package sidecar

import (
	"context"
	"net"
	"net/http"
)

type peerKey struct{}

// withPeer is an http.Server's ConnContext: it notes who is at the other end of a Unix socket, for the audit log. The
// kernel vouches for that; of a TCP connection there is only the address.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ctx
	}
	if who := socketPeer(raw); who != "" {
		return context.WithValue(ctx, peerKey{}, who)
	}
	return ctx
}

// peer names the other end: the process behind a Unix socket where withPeer found it, else "unix", or the address.
func peer(r *http.Request) string {
	if who, ok := r.Context().Value(peerKey{}).(string); ok {
		return who
	}
	if r.RemoteAddr == "" || r.RemoteAddr == "@" {
		return "unix"
	}
	return r.RemoteAddr
}
