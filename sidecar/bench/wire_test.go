package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReader(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in string
		want     []string // first line and body of each message
		end      error
	}{
		{"one", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", []string{"HTTP/1.1 200 OK|ok"}, io.EOF},
		{"two in one read", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nx: y\r\n\r\n",
			[]string{"HTTP/1.1 200 OK|ok", "HTTP/1.1 401 Unauthorized|"}, io.EOF},
		{"as net/http writes it", "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nWebhook-Id: a\r\n\r\nok", []string{"POST /x HTTP/1.1|ok"}, io.EOF},
		{"a length of another field", "POST / HTTP/1.1\r\nx-content-length: 9\r\ncontent-length: 1\r\n\r\na", []string{"POST / HTTP/1.1|a"}, io.EOF},
		{"a body that looks like a head", "POST / HTTP/1.1\r\ncontent-length: 8\r\n\r\n\r\n\r\n\r\n\r\n", []string{"POST / HTTP/1.1|\r\n\r\n\r\n\r\n"}, io.EOF},
		{"ends within the head", "HTTP/1.1 200 OK\r\ncontent-le", nil, io.ErrUnexpectedEOF},
		{"ends within the body", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok", nil, io.ErrUnexpectedEOF},
		{"chunked is not for us", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", nil, errNoLength},
		{"longer than the buffer", "HTTP/1.1 200 OK\r\ncontent-length: 20000\r\n\r\n", nil, errTooLong},
		{"a head without end", strings.Repeat("x", messageBytes+1), nil, errTooLong},
	} {
		for _, shape := range []struct {
			name string
			of   func(io.Reader) io.Reader
		}{
			{"whole", func(r io.Reader) io.Reader { return r }},
			{"byte by byte", iotest.OneByteReader},
			{"data with the end", iotest.DataErrReader},
		} {
			t.Run(tt.name+", "+shape.name, func(t *testing.T) {
				t.Parallel()
				r := newReader(shape.of(strings.NewReader(tt.in)))
				for i, want := range tt.want {
					first, body, err := r.message()
					if got := string(first) + "|" + string(body); err != nil || got != want {
						t.Fatalf("message %d = %q, %v, want %q", i, got, err, want)
					}
				}
				if _, _, err := r.message(); !errors.Is(err, tt.end) {
					t.Errorf("then %v, want %v", err, tt.end)
				}
			})
		}
	}
}

func TestStatusOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line string
		want int
	}{
		{"HTTP/1.1 200 OK", 200},
		{"HTTP/1.1 503 Service Unavailable", 503},
		{"HTTP/1.0 200 OK", 0},
		{"HTTP/1.1 20", 0},
		{"HTTP/1.1 2x0 OK", 0},
		{"", 0},
	} {
		if got := statusOf([]byte(tt.line)); got != tt.want {
			t.Errorf("statusOf(%q) = %d, want %d", tt.line, got, tt.want)
		}
	}
}
