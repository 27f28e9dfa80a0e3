package egress

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/internal/signature"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	headers := []signature.Field{
		{Name: "authorization", Value: "Bearer tok_0123456789"}, {Name: "x-key", Value: "tok_0123"}, {Name: "x-mode", Value: "live"},
		{Name: "x-overlaps", Value: "abcdefab"},
	}
	for _, tt := range []struct {
		name, answer string
		cut          bool
		want         string
	}{
		{"nothing of them", `{"ok":true}`, false, `{"ok":true}`},
		{"empty", "", true, ""},
		{"the value", "Authorization: Bearer tok_0123456789\r\n", false, "Authorization: Bearer **************\r\n"},
		{"a word of it", `{"token":"tok_0123456789"}`, false, `{"token":"**************"}`},
		{"twice, and at both ends", "tok_0123456789tok_0123456789", false, strings.Repeat("*", 28)},
		{"one that is part of another", "tok_0123 tok_0123456789", false, "******** **************"},
		{"short words", "live Bearer", false, "live Bearer"},
		{"cut within it", "x tok_01234567", true, "x ************"},
		{"cut after a byte of it", "x t", true, "x *"},
		{"cut in one that overlaps another", "abcdefabcd", true, "**********"},
		{"not cut", "x tok_", false, "x tok_"},
	} {
		got := []byte(tt.answer)
		if redact(got, tt.cut, headers); string(got) != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	plain := []byte("tok_0123456789")
	if redact(plain, true, nil); string(plain) != "tok_0123456789" {
		t.Errorf("without headers: %q", plain)
	}
}

// A receiver answers with the request: nothing of the headers' values is in what is kept, wherever the answer is cut.
func TestAnswerRepeatsTheRequest(t *testing.T) {
	t.Parallel()
	const secret = "tok_SECRETsecretSECRET"
	for before := keptAnswer - 400; before < keptAnswer; before += 7 {
		at := sendServe(t, func(c net.Conn) {
			r, _, err := sendReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			var answer bytes.Buffer
			answer.WriteString("HTTP/1.1 400 No\r\nConnection: close\r\n\r\n" + strings.Repeat("x", before))
			_ = r.Header.Write(&answer)
			_, _ = io.Copy(c, &answer)
		})
		r := sendOnce(t, sendEndpoint(t, "http://"+at, func(e *Endpoint, _ *netguard.Config) {
			e.Headers = []signature.Field{{Name: "Authorization", Value: "Bearer " + secret}}
		}))
		sendWant(t, r, OutcomeRejected)
		if r.Status != http.StatusBadRequest || len(r.Answer) <= before || bytes.Contains(r.Answer, []byte("tok_")) {
			t.Errorf("after %d bytes: status %d, %d bytes kept: %q", before, r.Status, len(r.Answer), r.Answer[before:])
		}
	}
}
