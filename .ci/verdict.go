// Command verdict reads `go test -json` on stdin and says how it went.
//
//	go test -json ./... | go run .ci/verdict.go MAY-SKIP
//
// It prints the output of what failed, then once more the lines of the tests themselves, and last "N passed, N failed,
// N skipped". It exits 1 when a test or a build failed, when no test ran, or when a test was skipped that the file MAY-SKIP
// does not list: one line "PACKAGE TEST REASON" each, PACKAGE within the module, `#` for comments.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const module = "github.com/sidehook/sidehook/"

// event is a line of test2json; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build events
	Test        string
	Output      string
	FailedBuild string
}

// key names a test, or with an empty Test what belongs to a package as a whole.
type key struct{ Package, Test string }

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | verdict MAY-SKIP")
		os.Exit(2)
	}
	listed, err := readList(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "verdict:", err)
		os.Exit(2)
	}
	ok, err := judge(os.Stdin, os.Stdout, listed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "verdict:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// readList returns the reasons of the tests that may be skipped.
func readList(path string) (map[key]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	listed := make(map[key]string)
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			return listed, lines.Err()
		}
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s: %q is not PACKAGE TEST REASON", path, line)
		}
		listed[key{module + fields[0], fields[1]}] = strings.Join(fields[2:], " ")
	}
}

func judge(in io.Reader, out io.Writer, listed map[key]string) (bool, error) {
	var passed, failed, skipped int
	good := true
	var why []string // what the tests that failed said themselves: the last lines of a long output are often all that is kept
	said := make(map[key]*strings.Builder)
	built := make(map[string]*strings.Builder)
	for dec := json.NewDecoder(in); ; {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return false, fmt.Errorf("read test events: %w", err)
		}
		k := key{e.Package, e.Test}
		switch e.Action {
		case "output":
			builder(said, k).WriteString(e.Output)
		case "build-output":
			builder(built, e.ImportPath).WriteString(e.Output)
		case "pass":
			if e.Test != "" {
				passed++
			}
			delete(said, k)
		case "skip":
			if e.Test == "" {
				continue // a package without test files
			}
			skipped++
			reason, may := listed[k]
			if !may {
				good = false
				reason = "NOT LISTED: " + strings.TrimSpace(builder(said, k).String())
			}
			fmt.Fprintf(out, "skipped %s %s: %s\n", e.Package, e.Test, reason)
			delete(said, k)
		case "fail":
			good = false
			if e.Test != "" {
				failed++
			}
			output := builder(said, k).String()
			fmt.Fprintf(out, "--- %s %s\n%s", e.Package, e.Test, output)
			why = append(why, findings(k, output)...)
			if e.FailedBuild != "" {
				failed++
				fmt.Fprint(out, builder(built, e.FailedBuild))
			}
			delete(said, k)
		}
	}
	// What ended without a verdict of its own (a panic, a kill) has failed; its package's event said so too.
	for k, output := range said {
		if k.Test != "" {
			good = false
			failed++
			fmt.Fprintf(out, "--- %s %s did not end\n%s", k.Package, k.Test, output)
		}
	}
	for _, line := range why {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return good && passed > 0, nil
}

// findingsKept bounds the lines of one test that are told again.
const findingsKept = 10

// findings are the first lines of a test's output that the test wrote itself: "    file_test.go:12: …".
func findings(k key, output string) []string {
	var lines []string
	for line := range strings.Lines(output) {
		if len(lines) == findingsKept {
			break
		}
		file, _, found := strings.Cut(strings.TrimSpace(line), "_test.go:")
		if found && !strings.ContainsAny(file, " {\"") {
			lines = append(lines, k.Test+": "+strings.TrimSpace(line))
		}
	}
	return lines
}

func builder[K comparable](m map[K]*strings.Builder, k K) *strings.Builder {
	b := m[k]
	if b == nil {
		b = new(strings.Builder)
		m[k] = b
	}
	return b
}
