//go:build !linux

package envoytest

import "syscall"

// dieWithParent has no equivalent here: an Envoy whose parent is killed stays.
func dieWithParent() *syscall.SysProcAttr { return nil }
