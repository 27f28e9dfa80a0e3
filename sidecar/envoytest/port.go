package envoytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
)

// Ports are taken from below those that systems give to outgoing connections (32768 and up on Linux, 49152 and up
// elsewhere): of those one that was free a moment ago is soon some client's.
const (
	firstPort = 10240
	lastPort  = 32767
)

// nextPort counts on from a port of this process's own choice, so that nobody gets one twice.
var nextPort = func() *atomic.Uint32 {
	p := new(atomic.Uint32)
	p.Store(rand.Uint32N(lastPort - firstPort + 1))
	return p
}()

// FreeAddrs returns n different addresses of 127.0.0.1 on which nobody listens at this moment, none of which this process
// got before. Another process may still take one before its user does; where Envoy or the program can be given port 0, that
// is the better way.
func FreeAddrs(n int) ([]string, error) {
	addrs := make([]string, 0, n)
	for range lastPort - firstPort {
		if len(addrs) == n {
			return addrs, nil
		}
		port := firstPort + nextPort.Add(1)%(lastPort-firstPort+1)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
		listener, err := net.Listen("tcp", addr)
		switch {
		case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EACCES):
			continue
		case err != nil:
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		if err := listener.Close(); err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		addrs = append(addrs, addr)
	}
	return nil, errors.New("find a free port: there is none")
}
