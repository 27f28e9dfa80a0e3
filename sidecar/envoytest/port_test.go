package envoytest

import (
	"net"
	"testing"
)

// Nobody gets a port twice, and none that another process could get: the first of its block is listened on.
func TestFreeAddrsAreOurs(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 3 {
		addrs, err := FreeAddrs(blockPorts)
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range addrs {
			if seen[addr] {
				t.Errorf("%s is given twice", addr)
			}
			seen[addr] = true
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Error(err)
				continue
			}
			_ = l.Close()
		}
	}
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for _, kept := range ports.kept {
		if l, err := net.Listen("tcp", kept.Addr().String()); err == nil {
			_ = l.Close()
			t.Errorf("%s, the first of a block, is not kept", kept.Addr())
		}
	}
}
