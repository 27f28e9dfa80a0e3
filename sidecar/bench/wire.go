package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// reader takes HTTP/1.1 messages with a content-length off a connection: as little of the protocol as the load and the
// app need when the peer is Envoy, so that neither weighs much beside it. It is not for use by several goroutines.
type reader struct {
	from io.Reader
	buf  []byte
	// buf[start:end] is read and not yet consumed.
	start, end int
	// head is that of the last message, valid until the next call.
	head []byte
}

// messageBytes bounds a message, headers and body together.
const messageBytes = 16 << 10

var (
	errTooLong    = errors.New("message too long")
	errNoLength   = errors.New("message without content-length")
	headEnd       = []byte("\r\n\r\n")
	errPartialEnd = fmt.Errorf("connection closed within a message: %w", io.ErrUnexpectedEOF)
)

func newReader(from io.Reader) *reader { return &reader{from: from, buf: make([]byte, messageBytes)} }

// message returns the first line and the body of the next message; both are valid until the next call.
// It returns io.EOF when the connection ended between two messages.
func (r *reader) message() (first, body []byte, err error) {
	head := 0
	for {
		if i := bytes.Index(r.buf[r.start:r.end], headEnd); i >= 0 {
			head = i + len(headEnd)
			break
		}
		if err := r.fill(); err != nil {
			return nil, nil, err
		}
	}
	length, err := contentLength(r.buf[r.start : r.start+head])
	if err != nil {
		return nil, nil, err
	}
	for r.end-r.start < head+length {
		if err := r.fill(); err != nil {
			return nil, nil, err
		}
	}
	message := r.buf[r.start : r.start+head+length]
	r.start += head + length
	r.head = message[:head]
	line := bytes.IndexByte(message, '\r')
	return message[:line], message[head:], nil
}

func (r *reader) fill() error {
	if r.start > 0 {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	if r.end == len(r.buf) {
		return errTooLong
	}
	n, err := r.from.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	if errors.Is(err, io.EOF) && r.end > 0 {
		return errPartialEnd
	}
	return err
}

// contentLength reads the field from a message's head.
func contentLength(head []byte) (int, error) {
	digits, ok := field(head, "content-length")
	if !ok {
		return 0, errNoLength
	}
	n, err := strconv.Atoi(string(digits))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("content-length %q", digits)
	}
	if n > messageBytes {
		return 0, errTooLong
	}
	return n, nil
}

// field returns the value of the first field of that name, in whatever case, with one blank after the colon: so do
// Envoy and net/http write.
func field(head []byte, name string) ([]byte, bool) {
	for line := range bytes.Lines(head) {
		if len(line) > len(name)+1 && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			return bytes.TrimSpace(line[len(name)+1:]), true
		}
	}
	return nil, false
}
