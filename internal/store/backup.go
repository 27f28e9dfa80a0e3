package store

import (
	"cmp"
	"context"
	"io"
)

// WriteTo writes a copy of the state after the last commit to w. The store goes on meanwhile; pages that it frees are
// not reused before the copy is done. The copy can be opened as a store (named FileName in a folder of its own) and
// checked with Check.
func (s *Store) WriteTo(ctx context.Context, w io.Writer) error {
	copied := &contextWriter{ctx: ctx, w: w}
	return s.View(func(tx *Tx) error {
		_, err := tx.tx.WriteTo(copied)
		return cmp.Or(copied.err, err) // bbolt keeps only the text of the writer's error
	})
}

// contextWriter ends a copy when ctx ends.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
	err error
}

func (c *contextWriter) Write(b []byte) (n int, err error) {
	if c.err = c.ctx.Err(); c.err == nil {
		n, c.err = c.w.Write(b)
	}
	return n, c.err
}
