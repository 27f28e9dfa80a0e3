package main

import (
	"strings"
	"testing"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "evt_1 of payments", "evt_1 of payments"},
		{"letters of any script", "Zahlung für 東京 🎉", "Zahlung für 東京 🎉"},
		{"terminal escape", "\x1b[2Jx", `\x1b[2Jx`},
		{"line and tab", "a\r\nb\tc", `a\x0d\x0ab\x09c`},
		{"C1 control, an escape of one byte in some terminals", "\u009b31m", `\u009b31m`},
		{"right-to-left override", "\u202etxt", `\u202etxt`},
		{"zero width", "pay\u200bments", `pay\u200bments`},
		{"no-break space", "a\u00a0b", `a\u00a0b`},
		{"tag character outside the first plane", "x\U000e0041", `x\U000e0041`},
		{"not UTF-8", "a\xffb", `a\xffb`},
		{"the replacement character itself", "a\ufffdb", "a\ufffdb"},
	} {
		if got := printable(tc.in); got != tc.want {
			t.Errorf("%s: printable(%q) = %q, want %q", tc.name, tc.in, got, tc.want)
		}
	}
}

// What a program reads is the same in both formats, and strings that look like another type stay strings.
func TestStructuredOutput(t *testing.T) {
	t.Parallel()
	m := &inboxv1.ListEventsResponse{Events: []*inboxv1.Event{{
		Source: "payments", Id: "0123", Type: "yes", State: inboxv1.EventState_EVENT_STATE_DONE,
	}}}
	for _, tc := range []struct {
		format outputFlag
		want   []string
	}{
		{"json", []string{`      "id": "0123",`, `      "type": "yes",`, `      "state": "EVENT_STATE_DONE",`, `  "nextPageToken": ""`}},
		{"yaml", []string{`    id: "0123"`, `    type: "yes"`, `    state: EVENT_STATE_DONE`, `nextPageToken: ""`}},
	} {
		var out strings.Builder
		if err := tc.format.print(&out, m); err != nil {
			t.Fatal(err)
		}
		for _, line := range tc.want {
			if !strings.Contains("\n"+out.String(), "\n"+line+"\n") {
				t.Errorf("%s: no line %q in:\n%s", tc.format, line, &out)
			}
		}
	}
}

func TestBytesText(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		n    int64
		want string
	}{{0, "0 B"}, {1023, "1023 B"}, {1024, "1.0 KiB"}, {1536, "1.5 KiB"}, {8 << 30, "8.0 GiB"}, {1 << 50, "1024.0 TiB"}} {
		if got := bytesText(tc.n); got != tc.want {
			t.Errorf("bytesText(%d) = %q, want %q", tc.n, got, tc.want)
		}
	}
}
