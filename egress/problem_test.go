package egress

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// checkProblem holds an answer to RFC 9457 and to the contract.
func checkProblem(t *testing.T, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	checkProblemNamed(t, "the answer", w, status, code)
}

func checkProblemNamed(t *testing.T, name string, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	var got struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Errorf("%s: %d %s: %v", name, w.Code, w.Body, err)
		return
	}
	if w.Code != status || got.Status != status || got.Type != "urn:sidehook:problem:"+code {
		t.Errorf("%s: %d %s, want %d %s", name, w.Code, w.Body, status, code)
	}
	if !bytes.HasSuffix(w.Body.Bytes(), []byte("}\n")) {
		t.Errorf("%s: %q does not end its line", name, w.Body)
	}
	if got.Title == "" || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: title %q, content type %q", name, got.Title, w.Header().Get("Content-Type"))
	}
}

func TestProblemTable(t *testing.T) {
	t.Parallel()
	// The contract's list. What it does not name is beside it, and none may be lost.
	contract := []string{"invalid_json", "duplicate_key", "unknown_field", "too_large", "id_conflict", "tenant_mismatch",
		"unknown_endpoint", "store_full", "forwarded_request", "unauthorized"}
	var names []string
	for code := problemCode(1); code < problemCodes; code++ {
		row := problems[code]
		if row.name == "" || row.title == "" || row.status < 400 {
			t.Errorf("code %d has the row %+v", code, row)
		}
		if (row.status == 503) != (row.retryAfter > 0) {
			t.Errorf("%s: status %d with Retry-After %d", row.name, row.status, row.retryAfter)
		}
		names = append(names, row.name)
	}
	for _, name := range contract {
		if !slices.Contains(names, name) {
			t.Errorf("no code %s", name)
		}
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
	codes := IntakeCodes()
	slices.Sort(codes)
	if len(slices.Compact(codes)) != len(names)+3 {
		t.Errorf("codes %q are not %d different ones", codes, len(names)+3)
	}
}

func TestAppendJSONString(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "s"))
		b := appendJSONString(nil, s)
		var got string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %s: %v", s, b, err)
		}
		want := s
		if !utf8.ValidString(s) {
			want = string([]rune(s)) // a U+FFFD for each byte that is none of UTF-8
		}
		if got != want || strings.ContainsAny(string(b), "\n\r") {
			t.Fatalf("%q comes back as %q from %s", s, got, b)
		}
	})
}
