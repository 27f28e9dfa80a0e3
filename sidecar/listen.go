package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// socketMode lets the pod's other containers in through the shared group (fsGroup) and nobody else.
const socketMode = 0o660

// Limits of our HTTP servers. The admin API and the probes carry small requests; whoever needs longer is stuck.
const (
	httpReadHeaderTimeout = 5 * time.Second
	httpReadTimeout       = 30 * time.Second
	httpWriteTimeout      = 2 * time.Minute // a CPU profile of half a minute fits
	httpIdleTimeout       = 2 * time.Minute
	httpMaxHeaderBytes    = 16 << 10
)

// staleDial bounds the look whether somebody still answers on a socket file that we found.
const staleDial = 250 * time.Millisecond

// listen opens addr: "host:port", or "unix:/path" for a Unix socket. A socket file that nobody answers on is
// removed first (its owner was killed); one that is answered is an error, like a port in use.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok {
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", addr, err)
		}
		return l, nil
	}
	if err := removeStaleSocket(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", addr, err), l.Close())
	}
	return l, nil
}

// removeStaleSocket removes the socket file at path if it is one and nobody answers on it.
func removeStaleSocket(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s is there and is no socket: remove it, or choose another path", path)
	}
	c, err := net.DialTimeout("unix", path, staleDial)
	if err == nil {
		return errors.Join(fmt.Errorf("%s: %w", path, syscall.EADDRINUSE), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// httpServer serves h with our limits; HTTP/1.1 and, where h2c, unencrypted HTTP/2 as gRPC clients speak it. What
// net/http has to say, of connections that cannot be accepted for instance, goes to log.
func httpServer(h http.Handler, h2c bool, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(h2c)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelError),
		ReadHeaderTimeout: httpReadHeaderTimeout,
		ReadTimeout:       httpReadTimeout,
		WriteTimeout:      httpWriteTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    httpMaxHeaderBytes,
	}
}

// serveHTTP serves s on l until ctx ends, then stops accepting and gives requests in hand up to grace.
func serveHTTP(ctx context.Context, s *http.Server, l net.Listener, grace time.Duration) error {
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := s.Shutdown(stop)
	if err != nil {
		err = errors.Join(err, s.Close())
	}
	if serve := <-failed; !errors.Is(serve, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve %s: %w", l.Addr(), serve))
	}
	return err
}
