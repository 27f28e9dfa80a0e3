package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts run this test binary under the name sidehook, so that flags, streams and exit codes are the real ones.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sidehook": main})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("SIDEHOOK_CONFIG", "")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // under -race each of a hundred processes would end with a second of sleep
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"adminserver":  adminServer,
			"egressserver": egressServer,
			"exits":        exits,
			"storedserver": storedServer,
		},
	})
}
