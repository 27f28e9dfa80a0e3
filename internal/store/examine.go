package store

import (
	"context"
	"fmt"
	"os"
)

// examinePages looks at what bbolt follows when it opens f, and finds first what the process would not survive. bbolt
// trusts every number in the file. Most of what then goes wrong is a panic or a fault that guard catches, but not
//   - a list of free pages that claims more memory than there is, or pages that the file does not have;
//   - in a bucket small enough to lie within its parent's page, which bbolt copies to the heap, a row outside of it: the
//     collector ends the process over such a pointer;
//   - where the list of free pages was not written, anything at all: bbolt then walks all pages on a goroutine of its
//     own. All that its walk dereferences, or complains of, is a problem here.
func examinePages(ctx context.Context, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil // a new store
	}
	meta, err := readMeta(f, info.Size())
	if err != nil {
		return err
	}
	c := newChecker(ctx, meta)
	c.file, c.enough = f, 1
	if meta.freelist != noFreelist {
		c.freelist()
		c.shallow = true
	}
	c.tree(meta.root, "", nil, nil)
	c.conflicts()
	return c.verdict()
}

// verdict is what ended the check, or the first problem as ErrCorrupt.
func (c *checker) verdict() error {
	switch {
	case c.err != nil:
		return c.err
	case len(c.report.Problems) > 0:
		return fmt.Errorf("%w: %w", ErrCorrupt, c.report.Problems[0])
	}
	return nil
}
