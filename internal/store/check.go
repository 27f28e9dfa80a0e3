package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
)

// maxProblems bounds a Report: a file that has a hundred needs no more.
const maxProblems = 100

// bbolt's page flags and element sizes (go.etcd.io/bbolt/internal/common/page.go).
const (
	branchPage      = 0x01
	leafPage        = 0x02
	freelistPage    = 0x10
	bucketElement   = 0x01
	elementSize     = 16
	bucketValueSize = 16
	maxDepth        = 64
)

// Rows judges what a store holds, row by row. It keeps neither key nor value.
type Rows interface {
	Row(bucket string, key, value []byte) error
	// Finish is called once, after all rows, and says what only shows in the whole.
	Finish() []error
}

// AllRows judges by all of rows; of each row the first error counts.
func AllRows(rows ...Rows) Rows { return allRows(rows) }

type allRows []Rows

// Row implements Rows. Each of them sees each row.
func (a allRows) Row(bucket string, key, value []byte) error {
	var first error
	for _, r := range a {
		if err := r.Row(bucket, key, value); first == nil {
			first = err
		}
	}
	return first
}

// Finish implements Rows.
func (a allRows) Finish() []error {
	var all []error
	for _, r := range a {
		all = append(all, r.Finish()...)
	}
	return all
}

// Report is what Check found.
type Report struct {
	Pages, FreePages uint64
	PageSize         uint32
	Rows             uint64
	// Problems is empty for a sound file; it ends after a hundred.
	Problems []error
}

// Check examines the file at path: every page is one of the tree, once, or free; all keys are in order; every row
// satisfies rows (nil: rows are only counted). It reads the pages itself, so that no damage can end the process. Its
// error means that the file could not be examined, *LockedError while a sidehook has it.
func Check(ctx context.Context, path string, rows Rows) (Report, error) {
	f, err := openLocked(ctx, path, os.O_RDONLY, 0)
	if errors.Is(err, ErrCorrupt) {
		return Report{Problems: []error{err}}, nil
	}
	if err != nil {
		return Report{}, fmt.Errorf("check store: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Report{}, fmt.Errorf("check store: %w", err)
	}
	if info.Size() == 0 {
		return Report{Problems: []error{fmt.Errorf("%w: empty file", ErrCorrupt)}}, nil
	}
	meta, err := readMeta(f, info.Size())
	if err != nil {
		return Report{Problems: []error{err}}, nil
	}
	c := newChecker(ctx, meta)
	c.file, c.rows = f, rows
	c.run()
	if c.err != nil {
		return c.report, fmt.Errorf("check store: %w", c.err)
	}
	return c.report, nil
}

type checker struct {
	ctx        context.Context
	file       *os.File
	meta       boltMeta
	rows       Rows
	seen, free []uint64             // bit sets of pages
	enough     int                  // problems after which nothing more is looked for
	shallow    bool                 // buckets with pages of their own are left out
	depth      int                  // of the page at hand
	buffers    [maxDepth + 1][]byte // by depth: a page stays while those below it are read
	report     Report
	err        error // why the check itself had to end
}

func newChecker(ctx context.Context, meta boltMeta) *checker {
	c := &checker{
		ctx:    ctx,
		meta:   meta,
		seen:   make([]uint64, meta.pages/64+1),
		free:   make([]uint64, meta.pages/64+1),
		enough: maxProblems,
		report: Report{Pages: meta.pages, PageSize: meta.pageSize},
	}
	c.mark(0, 0)
	c.mark(1, 0)
	return c
}

func (c *checker) problem(format string, args ...any) {
	if len(c.report.Problems) < c.enough {
		c.report.Problems = append(c.report.Problems, fmt.Errorf(format, args...))
	}
}

func (c *checker) run() {
	if c.meta.freelist != noFreelist {
		c.freelist()
	}
	c.tree(c.meta.root, "", nil, nil)
	if c.err != nil {
		return
	}
	c.conflicts()
	for id := uint64(0); id < c.meta.pages && c.meta.freelist != noFreelist; id++ {
		if !has(c.seen, id) && !has(c.free, id) {
			c.problem("page %d is lost: neither in use nor free", id)
		}
	}
	if c.rows != nil {
		for _, err := range c.rows.Finish() {
			c.problem("%w", err)
		}
	}
}

// conflicts finds the pages that are in use and free.
func (c *checker) conflicts() {
	for i := range c.seen {
		for both := c.seen[i] & c.free[i]; both != 0; both &= both - 1 {
			c.problem("page %d is in use and free", 64*i+bits.TrailingZeros64(both))
		}
	}
}

func has(set []uint64, id uint64) bool { return set[id/64]&(1<<(id%64)) != 0 }

// mark notes the page and what overflows from it as used, and reports whether that is possible.
func (c *checker) mark(id, overflow uint64) bool {
	if id >= c.meta.pages || overflow >= c.meta.pages-id {
		c.problem("page %d with %d more reaches beyond the %d pages", id, overflow, c.meta.pages)
		return false
	}
	for ; ; id++ {
		if has(c.seen, id) {
			c.problem("page %d is used twice", id)
			return false
		}
		c.seen[id/64] |= 1 << (id % 64)
		if overflow == 0 {
			return true
		}
		overflow--
	}
}

// page reads a page with what overflows from it, and marks it.
func (c *checker) page(id uint64) (data []byte, flags uint16, count int, ok bool) {
	if err := c.ctx.Err(); err != nil {
		c.err = err
		return nil, 0, 0, false
	}
	if id >= c.meta.pages {
		c.problem("page %d is beyond the %d pages", id, c.meta.pages)
		return nil, 0, 0, false
	}
	size := uint64(c.meta.pageSize)
	data, err := c.read(id*size, nil, size)
	if err != nil {
		c.problem("page %d: %w", id, err)
		return nil, 0, 0, false
	}
	order := binary.NativeEndian
	if named := order.Uint64(data); named != id {
		c.problem("page %d calls itself %d", id, named)
		return nil, 0, 0, false
	}
	overflow := uint64(order.Uint32(data[12:]))
	if !c.mark(id, overflow) {
		return nil, 0, 0, false
	}
	if overflow > 0 {
		if data, err = c.read(id*size, data, (overflow+1)*size); err != nil {
			c.problem("page %d: %w", id, err)
			return nil, 0, 0, false
		}
	}
	return data, order.Uint16(data[8:]), int(order.Uint16(data[10:])), true
}

// read extends have, which was read at offset, to n bytes. They stay until another page of this depth is read.
func (c *checker) read(offset uint64, have []byte, n uint64) ([]byte, error) {
	buf := &c.buffers[c.depth]
	if uint64(cap(*buf)) < n {
		*buf = append(make([]byte, 0, n), have...)
	}
	data := (*buf)[:n]
	_, err := c.file.ReadAt(data[len(have):], int64(offset)+int64(len(have)))
	return data, err
}

func (c *checker) freelist() {
	data, flags, count, ok := c.page(c.meta.freelist)
	if !ok {
		return
	}
	if flags != freelistPage {
		c.problem("page %d is no list of free pages", c.meta.freelist)
		return
	}
	ids := data[pageHeaderSize:]
	n := uint64(count)
	if n == 0xffff { // the count did not fit and stands in front of the list
		n, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		c.problem("list of free pages is cut off")
		return
	}
	c.report.FreePages = n
	for i := range n {
		id := binary.NativeEndian.Uint64(ids[8*i:])
		switch {
		case id < 2 || id >= c.meta.pages:
			c.problem("free page %d does not exist", id)
		case has(c.free, id):
			c.problem("page %d is free twice", id)
		default:
			c.free[id/64] |= 1 << (id % 64)
		}
	}
}

// tree walks the pages under id, whose keys lie in [from, to); to nil: no bound. bucket is empty for the root.
func (c *checker) tree(id uint64, bucket string, from, to []byte) {
	if c.err != nil || len(c.report.Problems) >= c.enough {
		return
	}
	if !c.descend(place{page: id}) {
		return
	}
	defer c.ascend()
	data, flags, count, ok := c.page(id)
	if !ok {
		return
	}
	switch flags {
	case branchPage:
		c.branch(id, data, count, bucket, from, to)
	case leafPage:
		c.leaf(place{page: id}, data, count, bucket, from, to)
	default:
		c.problem("page %d of bucket %q has flags %#x", id, bucket, flags)
	}
}

func (c *checker) branch(id uint64, data []byte, count int, bucket string, from, to []byte) {
	type child struct {
		key []byte
		id  uint64
	}
	children := make([]child, 0, count)
	for i := range count {
		at := pageHeaderSize + elementSize*i
		if at+elementSize > len(data) {
			c.problem("page %d is cut off", id)
			return
		}
		order := binary.NativeEndian
		key, _, ok := cut(data, at, order.Uint32(data[at:]), order.Uint32(data[at+4:]), 0)
		if !ok || len(key) == 0 {
			c.problem("page %d: key %d lies outside", id, i)
			return
		}
		children = append(children, child{key, order.Uint64(data[at+8:])})
	}
	if len(children) == 0 {
		c.problem("page %d is an empty branch", id)
	}
	for i, ch := range children {
		// The first key of a branch may be greater than the first key below it is allowed to be, never less than from.
		c.order(place{page: id}, ch.key, from, to)
		end := to
		if i+1 < len(children) {
			end = children[i+1].key
		}
		c.tree(ch.id, bucket, ch.key, end)
		from = ch.key
	}
}

// descend goes one level down from where, and reports whether that is possible.
func (c *checker) descend(where place) bool {
	if c.depth == maxDepth {
		c.problem("%s lies deeper than %d pages", where, maxDepth)
		return false
	}
	c.depth++
	return true
}

func (c *checker) ascend() { c.depth-- }

// place is where a problem lies: on a page, or in a bucket that has none of its own.
type place struct {
	page   uint64
	bucket string
}

func (p place) String() string {
	if p.bucket != "" {
		return fmt.Sprintf("bucket %q", p.bucket)
	}
	return fmt.Sprintf("page %d", p.page)
}

func (c *checker) order(where place, key, from, to []byte) {
	if bytes.Compare(key, from) < 0 || to != nil && bytes.Compare(key, to) >= 0 {
		c.problem("%s: key %x is out of order", where, key)
	}
}

func (c *checker) leaf(where place, data []byte, count int, bucket string, from, to []byte) {
	var last []byte
	for i := range count {
		at := pageHeaderSize + elementSize*i
		if at+elementSize > len(data) {
			c.problem("%s is cut off", where)
			return
		}
		order := binary.NativeEndian
		flags := order.Uint32(data[at:])
		key, value, ok := cut(data, at, order.Uint32(data[at+4:]), order.Uint32(data[at+8:]), order.Uint32(data[at+12:]))
		if !ok || len(key) == 0 {
			c.problem("%s: row %d lies outside", where, i)
			return
		}
		if i == 0 || i == count-1 { // those between are in range if they are in order
			c.order(where, key, from, to)
		}
		if last != nil && bytes.Compare(last, key) >= 0 {
			c.problem("%s: key %x is out of order", where, key)
		}
		last = key
		if flags&bucketElement != 0 {
			c.bucket(where, bucket, key, value)
			continue
		}
		c.report.Rows++
		if c.rows != nil {
			if err := c.rows.Row(bucket, key, value); err != nil {
				c.problem("bucket %q, key %q: %w", bucket, key, err)
			}
		}
	}
}

func (c *checker) bucket(where place, parent string, key, value []byte) {
	name := string(key)
	if parent != "" {
		name = parent + "/" + name
	}
	if len(value) < bucketValueSize {
		c.problem("%s: bucket %q is cut off", where, name)
		return
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		if !c.shallow {
			c.tree(root, name, nil, nil)
		}
		return
	}
	// A small bucket is a leaf page inside its parent's.
	inline := value[bucketValueSize:]
	if len(inline) < pageHeaderSize || binary.NativeEndian.Uint16(inline[8:]) != leafPage {
		c.problem("%s: bucket %q is no page", where, name)
		return
	}
	if !c.descend(place{bucket: name}) {
		return
	}
	defer c.ascend()
	c.leaf(place{bucket: name}, inline, int(binary.NativeEndian.Uint16(inline[10:])), name, nil, nil)
}

// cut returns the key and the value of the element at offset at; pos counts from there.
func cut(data []byte, at int, pos, keySize, valueSize uint32) (key, value []byte, ok bool) {
	start := uint64(at) + uint64(pos)
	middle := start + uint64(keySize)
	end := middle + uint64(valueSize)
	if end > uint64(len(data)) {
		return nil, nil, false
	}
	return data[start:middle], data[middle:end], true
}
