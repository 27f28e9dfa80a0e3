package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	listed := map[key]string{{module + "store", "TestFull"}: "needs a small volume"}
	for _, tt := range []struct {
		name, in string
		good     bool
		want     []string // what must be printed
	}{
		{"all passed", `{"Action":"run","Package":"p","Test":"A"}
			{"Action":"output","Package":"p","Test":"A","Output":"=== RUN A\n"}
			{"Action":"pass","Package":"p","Test":"A"}
			{"Action":"pass","Package":"p"}
			{"Action":"skip","Package":"without tests"}`, true, []string{"1 passed, 0 failed, 0 skipped\n"}},
		{"one failed", `{"Action":"pass","Package":"p","Test":"A"}
			{"Action":"output","Package":"p","Test":"B","Output":"got 1, want 2\n"}
			{"Action":"fail","Package":"p","Test":"B"}
			{"Action":"fail","Package":"p"}`, false, []string{"--- p B\ngot 1, want 2\n", "1 passed, 1 failed, 0 skipped\n"}},
		{"what a failed test said comes again at the end", `{"Action":"output","Package":"p","Test":"B","Output":"    b_test.go:7: got 1\n"}
			{"Action":"output","Package":"p","Test":"B","Output":"a log of \"x_test.go:1\"\n"}
			{"Action":"fail","Package":"p","Test":"B"}
			{"Action":"fail","Package":"p"}`, false, []string{"x_test.go:1\"\n--- p \nB: b_test.go:7: got 1\n0 passed, 1 failed, 0 skipped\n"}},
		{"a listed skip", `{"Action":"pass","Package":"p","Test":"A"}
			{"Action":"skip","Package":"github.com/sidehook/sidehook/store","Test":"TestFull"}`, true,
			[]string{"TestFull: needs a small volume", "1 passed, 0 failed, 1 skipped\n"}},
		{"a skip that nobody allowed", `{"Action":"pass","Package":"p","Test":"A"}
			{"Action":"output","Package":"p","Test":"TestFull","Output":"no Envoy\n"}
			{"Action":"skip","Package":"p","Test":"TestFull"}`, false, []string{"NOT LISTED: no Envoy", "1 passed, 0 failed, 1 skipped\n"}},
		{"a build that failed", `{"Action":"pass","Package":"p","Test":"A"}
			{"ImportPath":"q [q.test]","Action":"build-output","Output":"undefined: x\n"}
			{"Action":"fail","Package":"q","FailedBuild":"q [q.test]"}`, false, []string{"undefined: x", "1 passed, 1 failed, 0 skipped\n"}},
		{"a panic", `{"Action":"pass","Package":"p","Test":"A"}
			{"Action":"run","Package":"p","Test":"B"}
			{"Action":"output","Package":"p","Test":"B","Output":"panic: x\n"}
			{"Action":"fail","Package":"p"}`, false, []string{"B did not end", "panic: x", "1 passed, 1 failed, 0 skipped\n"}},
		// go test that could not even start writes nothing to stdout.
		{"nothing ran", "", false, []string{"0 passed, 0 failed, 0 skipped\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			good, err := judge(strings.NewReader(tt.in), &out, listed)
			if err != nil || good != tt.good {
				t.Errorf("judge = %t, %v, want %t; printed:\n%s", good, err, tt.good, &out)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("printed:\n%s\nwant %q in it", &out, want)
				}
			}
		})
	}
	if _, err := judge(strings.NewReader("# p\nno JSON"), new(bytes.Buffer), nil); err == nil {
		t.Error("judge took what is no test event")
	}
}

func TestReadList(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "may-skip")
	if err := os.WriteFile(path, []byte("# why\n\ninternal/store TestFull needs a small volume\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readList(path)
	if want := "needs a small volume"; err != nil || got[key{module + "internal/store", "TestFull"}] != want || len(got) != 1 {
		t.Errorf("readList = %v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("internal/store TestFull\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readList(path); err == nil {
		t.Error("readList took a line without a reason")
	}
}
