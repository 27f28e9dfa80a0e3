package extauthz

import (
	"context"
	"errors"
	"slices"
	"sync"
	"unicode/utf8"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// maxPooledHeaders is the number of headers beyond which a request's memory is not kept for the next one.
const maxPooledHeaders = 128

// checkCall is one Check that came by gRPC: a request and the received message that its strings and its body are views
// into. Both are used again for another Check once the handler has its answer, which shares no memory with them.
type checkCall struct {
	request
	buf mem.Buffer // nil: not received yet
}

var checkCalls = sync.Pool{New: func() any { return new(checkCall) }}

// release gives the call back. Nobody may hold on to anything of its request.
func (c *checkCall) release() {
	c.reset()
	if c.buf != nil {
		c.buf.Free()
		c.buf = nil
	}
	if cap(c.header) <= maxPooledHeaders {
		checkCalls.Put(c)
	}
}

// decode reads a CheckRequest, all but what the gRPC metadata says. r keeps views into msg.
func (r *request) decode(msg []byte) error {
	r.reset()
	err := r.scan(msg)
	if !errors.Is(err, errMerge) {
		return err
	}
	var m authv3.CheckRequest
	if err := proto.Unmarshal(msg, &m); err != nil {
		return err
	}
	r.reset()
	r.fill(context.Background(), &m)
	return nil
}

// scan reads msg itself, or returns errMerge.
func (r *request) scan(msg []byte) error {
	var attributes, peer, inner, http []byte
	f := fields{rest: msg}
	for f.next() {
		if f.bytes(1) {
			f.once(&attributes)
		}
	}
	if f.err != nil {
		return f.err
	}
	f = fields{rest: attributes}
	for f.next() {
		switch {
		case f.bytes(1):
			f.once(&peer)
		case f.bytes(4):
			f.once(&inner)
		case f.bytes(10): // context_extensions, a map: the last of a key counts
			name, value, err := scanStringEntry(f.data)
			if err != nil {
				return err
			}
			if name == extensionSource {
				r.routeSource = value
			}
		}
	}
	if f.err != nil {
		return f.err
	}
	f = fields{rest: peer}
	for f.next() {
		switch {
		case f.bytes(4):
			f.text(&r.peer.Principal)
		case f.bytes(5):
			f.text(&r.peer.Certificate)
		}
	}
	if f.err != nil {
		return f.err
	}
	f = fields{rest: inner}
	for f.next() {
		if f.bytes(2) {
			f.once(&http)
		}
	}
	if f.err != nil {
		return f.err
	}
	return r.scanHTTP(http)
}

// scanHTTP reads an AttributeContext.HttpRequest.
func (r *request) scanHTTP(msg []byte) error {
	var raw []byte // header_map
	merged, text := 0, false
	r.size = 0
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.bytes(1):
			f.text(&r.id)
		case f.bytes(2):
			f.text(&r.method)
		case f.bytes(3):
			merged++
		case f.bytes(4):
			f.text(&r.target)
		case f.bytes(5):
			f.text(&r.host)
		case f.bytes(6):
			f.text(&r.scheme)
		case f.varint(9):
			r.size = int64(f.val)
		case f.bytes(11):
			text = len(f.data) > 0
		case f.bytes(12):
			r.body = f.data
		case f.bytes(13):
			f.once(&raw)
		}
	}
	if f.err != nil {
		return f.err
	}
	r.text = text && len(r.body) == 0
	n, err := r.scanRaw(raw)
	if err != nil || n > 0 || merged == 0 {
		return err
	}
	return r.scanMerged(msg, merged)
}

// scanRaw reads a HeaderMap and returns how many headers it has.
func (r *request) scanRaw(msg []byte) (n int, err error) {
	f := fields{rest: msg}
	for f.next() {
		if !f.bytes(1) {
			continue
		}
		var name, value string
		var raw []byte
		h := fields{rest: f.data}
		for h.next() {
			switch {
			case h.bytes(1):
				h.text(&name)
			case h.bytes(2):
				h.text(&value)
			case h.bytes(3):
				raw = h.data
			}
		}
		if h.err != nil {
			return n, h.err
		}
		if len(raw) > 0 {
			value = view(raw)
		}
		r.add(name, value)
		n++
	}
	return n, f.err
}

// scanMerged reads the n entries of the headers map of an HttpRequest.
func (r *request) scanMerged(msg []byte, n int) error {
	var space [64]string
	if n > len(space) {
		return errMerge // so many headers are not worth a second way to find one that comes twice
	}
	seen := space[:0]
	f := fields{rest: msg}
	for f.next() {
		if !f.bytes(3) {
			continue
		}
		name, value, err := scanStringEntry(f.data)
		if err != nil {
			return err
		}
		if slices.Contains(seen, name) {
			return errMerge
		}
		seen = append(seen, name)
		r.add(name, value)
	}
	return f.err
}

// scanStringEntry reads an entry of a map from strings to strings.
func scanStringEntry(msg []byte) (key, value string, err error) {
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.bytes(1):
			f.text(&key)
		case f.bytes(2):
			f.text(&value)
		}
	}
	return key, value, f.err
}

// text keeps a string field as a view. Like the generated code it refuses what is not UTF-8.
func (f *fields) text(s *string) {
	if !utf8.Valid(f.data) {
		f.err, f.rest = errUTF8, nil
		return
	}
	*s = view(f.data)
}
