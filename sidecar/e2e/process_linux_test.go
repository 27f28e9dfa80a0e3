package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// dieWithParent makes the kernel end a child when the test binary ends, so that a test that panics leaves none behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// peakMemory returns the largest resident set that a process has had, in bytes.
func peakMemory(t *testing.T, pid int) (peak int64, ok bool) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &peak); err == nil {
			return peak << 10, true
		}
	}
	t.Fatalf("no VmHWM in /proc/%d/status", pid)
	return 0, false
}

// stopped reports whether a process that got SIGSTOP stands still: the signal returns before its threads do.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of process %d: %v", pid, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return false // a thread that has just ended
		}
		// The state stands behind the name, which is in brackets and may hold anything.
		if _, rest, ok := strings.Cut(string(text), ") "); !ok || rest[0] != 'T' {
			return false
		}
	}
	return true
}

// anonymousMemory returns the resident memory of a process that no file backs, in bytes.
func anonymousMemory(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	t.Fatalf("no RssAnon in /proc/%d/status", pid)
	return 0
}
