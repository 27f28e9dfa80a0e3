package envoytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// Ports are taken from below those that systems give to outgoing connections (32768 and up on Linux, 49152 and up
// elsewhere): of those one that was free a moment ago is soon some client's.
const (
	firstPort = 10240
	lastPort  = 32767
)

// blockPorts is how many ports a process takes at a time. Processes run their tests side by side, and one that listens on the
// first port of a block for as long as it lives has the others of it for itself.
const blockPorts = 128

// ports are those of this process: nobody gets one twice.
var ports struct {
	mu     sync.Mutex
	kept   []net.Listener // on the first ports of its blocks
	next   int            // the next port of the last block
	beyond int            // the end of that block
}

// FreeAddrs returns n different addresses of 127.0.0.1 on which nobody listens at this moment, none of which this process
// got before, or another that asks here gets. Where Envoy or the program can be given port 0, that is the better way.
func FreeAddrs(n int) ([]string, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	addrs := make([]string, 0, n)
	for len(addrs) < n {
		if ports.next == ports.beyond {
			if err := takeBlock(); err != nil {
				return nil, err
			}
		}
		addr := localAddr(ports.next)
		ports.next++
		listener, err := listen(addr)
		if err != nil {
			return nil, err
		}
		if listener == nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// takeBlock makes a block the process's own whose first port is free.
func takeBlock() error {
	const blocks = (lastPort - firstPort + 1) / blockPorts
	for _, block := range rand.Perm(blocks) {
		first := firstPort + block*blockPorts
		listener, err := listen(localAddr(first))
		if err != nil {
			return err
		}
		if listener != nil {
			ports.kept = append(ports.kept, listener)
			ports.next, ports.beyond = first+1, first+blockPorts
			return nil
		}
	}
	return errors.New("find a free port: there is none")
}

// listen listens on addr; nil where somebody else does.
func listen(addr string) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EACCES):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	return listener, nil
}

func localAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
