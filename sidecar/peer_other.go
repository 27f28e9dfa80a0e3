//go:build !linux

package sidecar

import "syscall"

// socketPeer does not tell on this system, which is for development.
func socketPeer(syscall.RawConn) string { return "" }
