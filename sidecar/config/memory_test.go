package config

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// heap returns the bytes that are reachable.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held on to
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A load leaves its result behind and nothing else: no tree, no validator, no compiled rules. The first one is not
// counted: the rule language sets itself up in it, and reads the descriptors of every message in the binary, once
// (1.5 MiB of heap, two thirds of it descriptors).
func TestLoadLeavesNothingBehind(t *testing.T) {
	t.Setenv("CONFIG_TEST_STRONG", strongSecret)
	var sources strings.Builder
	for i := range 100 {
		fmt.Fprintf(&sources, "- {name: s%d, match: {path: /hooks/%d}, %s, secrets: [{env: CONFIG_TEST_STRONG}]}\n", i, i, scheme)
	}
	text := gateWith(sources.String())
	mustParse(t, text)
	before := heap()
	for range 5 {
		mustParse(t, text)
	}
	if left := heap() - before; left > 128<<10 {
		t.Errorf("5 loads that nobody holds leave %d KiB", left>>10)
	}
	c := mustParse(t, text)
	if held := heap() - before; held > 1<<20 {
		t.Errorf("a configuration of 100 sources holds %d KiB, want at most 1 MiB", held>>10)
	} else {
		t.Logf("a configuration of 100 sources holds %d KiB", held>>10)
	}
	runtime.KeepAlive(c)
}
