//go:build !linux

package e2e

import (
	"syscall"
	"testing"
)

// dieWithParent has no equivalent here: a child of a killed test binary stays.
func dieWithParent() *syscall.SysProcAttr { return nil }

// peakMemory is not to be had here.
func peakMemory(*testing.T, int) (peak int64, ok bool) { return 0, false }

// anonymousMemory is not to be had here.
func anonymousMemory(*testing.T, int) int64 { return 0 }

// stopped takes the signal's word for it.
func stopped(*testing.T, int) bool { return true }
