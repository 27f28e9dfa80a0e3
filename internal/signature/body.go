package signature

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"strings"
)

// DefaultMaxBody is what a body is unzipped to where Message.MaxBody says nothing: 1 MiB.
const DefaultMaxBody = 1 << 20

// readBody finds the form of the body that was signed.
func (r *reader) readBody() Reason {
	r.body = r.m.Body
	if r.s.spec.Body != Decoded {
		return ReasonOK
	}
	coding, found := r.m.field("content-encoding")
	switch {
	case found == repeated:
		return r.twice(place{kind: placeHeader, name: "content-encoding"})
	case found == absent || strings.EqualFold(coding, "identity"):
		return ReasonOK
	case !strings.EqualFold(coding, "gzip") && !strings.EqualFold(coding, "x-gzip"):
		r.note("the body is not gzip: it cannot be decoded")
		return ReasonBadSignature
	}
	limit := cmp.Or(r.m.MaxBody, DefaultMaxBody)
	body, err := gunzip(r.m.Body, limit)
	switch {
	case err != nil:
		r.note("the body is not whole gzip")
		return ReasonBadSignature
	case int64(len(body)) > limit:
		r.note("the body unzips to more than %d bytes", limit)
		return ReasonTooLarge
	}
	r.body = body
	return ReasonOK
}

// gunzip unzips at most one byte more than limit. Memory grows with what comes out, not with what is announced.
func gunzip(zipped []byte, limit int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, limit+1))
}
