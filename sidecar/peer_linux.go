package sidecar

import (
	"fmt"
	"syscall"
)

// socketPeer returns who opened the other end of a Unix socket (unix(7), SO_PEERCRED); "" if the kernel does not tell.
// The ids are those that this process sees: behind a user namespace others than those of the caller's container, and
// pid 0 for a process outside this pid namespace.
func socketPeer(c syscall.RawConn) string {
	var cred *syscall.Ucred
	var err error
	if c.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}) != nil || err != nil {
		return ""
	}
	return fmt.Sprintf("unix uid=%d gid=%d pid=%d", cred.Uid, cred.Gid, cred.Pid)
}
