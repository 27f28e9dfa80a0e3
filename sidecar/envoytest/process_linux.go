package envoytest

import "syscall"

// dieWithParent makes the kernel end Envoy when the thread that started it ends, so that a test that panics or is
// killed leaves none behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
