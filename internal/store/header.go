package store

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// bbolt's file format, version 2 (go.etcd.io/bbolt/internal/common: meta.go, page.go), in the machine's byte order.
const (
	pageHeaderSize = 16
	metaSize       = 64 // the last 8 bytes are the FNV-64a of those before
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	noFreelist     = ^uint64(0)
	minPageSize    = 1 << 10
	maxPageSize    = 1 << 16
)

// boltMeta is a valid meta page.
type boltMeta struct {
	pageSize uint32
	root     uint64
	freelist uint64
	pages    uint64 // high water mark
	txid     uint64
}

// examine reads the meta pages of f before bbolt maps it: bbolt follows the page numbers there, and one beyond the
// file's end is a fault, not an error. An empty file is a new store.
func examine(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil
	}
	_, err = readMeta(f, info.Size())
	return err
}

// readMeta returns the newer of the valid meta pages, and checks it against the size of the file.
func readMeta(r io.ReaderAt, size int64) (boltMeta, error) {
	best, found := boltMeta{}, false
	try := func(offset int64) bool {
		buf := make([]byte, pageHeaderSize+metaSize)
		if _, err := r.ReadAt(buf, offset); err != nil {
			return false
		}
		m, ok := parseMeta(buf[pageHeaderSize:])
		if ok && (!found || m.txid > best.txid) {
			best, found = m, true
		}
		return ok
	}
	if try(0) {
		try(int64(best.pageSize))
	} else {
		for pageSize := int64(minPageSize); pageSize <= maxPageSize; pageSize *= 2 {
			if try(pageSize) {
				break
			}
		}
	}
	if !found {
		return boltMeta{}, fmt.Errorf("%w: no valid meta page in %d bytes", ErrCorrupt, size)
	}
	if need := best.pages * uint64(best.pageSize); need > uint64(size) {
		return boltMeta{}, fmt.Errorf("%w: cut off at %d of %d bytes", ErrCorrupt, size, need)
	}
	if best.root >= best.pages || best.freelist != noFreelist && best.freelist >= best.pages {
		return boltMeta{}, fmt.Errorf("%w: meta page points outside the file", ErrCorrupt)
	}
	return best, nil
}

func parseMeta(b []byte) (boltMeta, bool) {
	order := binary.NativeEndian
	if order.Uint32(b) != boltMagic || order.Uint32(b[4:]) != boltVersion {
		return boltMeta{}, false
	}
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	if sum.Sum64() != order.Uint64(b[metaSize-8:]) {
		return boltMeta{}, false
	}
	m := boltMeta{
		pageSize: order.Uint32(b[8:]),
		root:     order.Uint64(b[16:]),
		freelist: order.Uint64(b[32:]),
		pages:    order.Uint64(b[40:]),
		txid:     order.Uint64(b[48:]),
	}
	return m, m.pageSize >= minPageSize && m.pageSize <= maxPageSize && m.pageSize&(m.pageSize-1) == 0
}
