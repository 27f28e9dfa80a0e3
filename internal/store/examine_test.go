package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

const testPage = 4096

// image is the content of a store's file, to be damaged.
type image []byte

// unsyncedImage is a sound file without a list of free pages, as a crash leaves it behind: branches, leaves, a row that
// overflows its page, a bucket within a page and one with pages of its own.
func unsyncedImage(t *testing.T) image {
	t.Helper()
	path := makeFile(t)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, PageSize: testPage})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(testBucket).Put([]byte("key-0250-long"), bytes.Repeat([]byte("v"), 3*testPage))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (m image) meta(t *testing.T) boltMeta {
	t.Helper()
	meta, err := readMeta(bytes.NewReader(m), int64(len(m)))
	if err != nil {
		t.Fatal(err)
	}
	return meta
}

func (m image) page(id uint64) []byte { return m[id*testPage : (id+1)*testPage] }

// element is the i-th of a page's element headers.
func (m image) element(id uint64, i int) []byte { return m.page(id)[pageHeaderSize+elementSize*i:] }

// pages are the numbers of some pages of each kind that are in use.
type pages struct{ root, branch, leaf, overflow uint64 }

func (m image) pages(t *testing.T) pages {
	t.Helper()
	p := pages{root: m.meta(t).root}
	for i := range int(order.Uint16(m.page(p.root)[10:])) {
		e := m.element(p.root, i)
		if key, value, ok := cut(m.page(p.root), pageHeaderSize+elementSize*i, order.Uint32(e[4:]), order.Uint32(e[8:]), order.Uint32(e[12:])); ok && bytes.Equal(key, testBucket) {
			p.branch = order.Uint64(value)
		}
	}
	if p.branch == 0 || order.Uint16(m.page(p.branch)[8:]) != branchPage {
		t.Fatal("no branch")
	}
	for i := range int(order.Uint16(m.page(p.branch)[10:])) {
		switch child := order.Uint64(m.element(p.branch, i)[8:]); {
		case order.Uint32(m.page(child)[12:]) > 0:
			p.overflow = child
		case i > 2:
			p.leaf = child
		}
	}
	if p.leaf == 0 || p.overflow == 0 {
		t.Fatal("no leaf, or no page that overflows")
	}
	return p
}

var order = binary.NativeEndian

// withMeta changes the newer meta page and makes it valid again.
func (m image) withMeta(t *testing.T, change func(meta []byte)) {
	t.Helper()
	newest := m.meta(t).txid
	for id := range uint64(2) {
		b := m.page(id)[pageHeaderSize:][:metaSize]
		if order.Uint64(b[48:]) != newest {
			continue
		}
		change(b)
		sum := fnv.New64a()
		sum.Write(b[:metaSize-8])
		order.PutUint64(b[metaSize-8:], sum.Sum64())
		return
	}
	t.Fatal("no meta page")
}

// openInChild opens the store in folder in a process of its own and returns what that says, or how it ended.
func openInChild(t *testing.T, folder string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	// The race detector has a process wait a second at its end.
	cmd.Env = append(os.Environ(), "STORE_TEST_OPEN="+folder, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	return string(out), err
}

// TestOpenSurvivesWhatBoltWouldNot damages a file whose list of free pages was not written, so that bbolt would walk
// into the damage on a goroutine of its own when it opens the file.
func TestOpenSurvivesWhatBoltWouldNot(t *testing.T) {
	t.Parallel()
	sound := unsyncedImage(t)
	if sound.meta(t).freelist != noFreelist {
		t.Fatal("the list of free pages is written")
	}
	for _, tt := range []struct {
		name   string
		damage func(m image, p pages) image // nil: none
	}{
		{"sound", nil},
		{"page number beyond the pages", func(m image, p pages) image {
			order.PutUint64(m.element(p.branch, 3)[8:], uint64(len(m)/testPage)+5)
			return m
		}},
		{"page number beyond any map", func(m image, p pages) image {
			order.PutUint64(m.element(p.branch, 3)[8:], 1<<62)
			return m
		}},
		{"page number of a meta page", func(m image, p pages) image {
			order.PutUint64(m.element(p.branch, 3)[8:], 1)
			return m
		}},
		{"page used twice", func(m image, p pages) image {
			copy(m.element(p.branch, 3)[8:16], m.element(p.branch, 2)[8:16])
			return m
		}},
		{"cycle: a branch is its own child", func(m image, p pages) image {
			order.PutUint64(m.element(p.branch, 0)[8:], p.branch)
			return m
		}},
		{"cycle: a bucket's root is the root", func(m image, p pages) image {
			at := bytes.Index(m.page(p.root), order.AppendUint64(bytes.Clone(testBucket), p.branch))
			order.PutUint64(m.page(p.root)[at+len(testBucket):], p.root)
			return m
		}},
		{"bucket's root beyond the pages", func(m image, p pages) image {
			at := bytes.Index(m.page(p.root), order.AppendUint64(bytes.Clone(testBucket), p.branch))
			order.PutUint64(m.page(p.root)[at+len(testBucket):], 1<<40)
			return m
		}},
		{"bucket too short to be one", func(m image, p pages) image {
			order.PutUint32(m.element(p.root, 0)[12:], bucketValueSize-1)
			return m
		}},
		{"bucket within a page without that page", func(m image, p pages) image {
			order.PutUint32(m.element(p.root, 0)[12:], bucketValueSize)
			return m
		}},
		{"overflow beyond the file", func(m image, p pages) image {
			order.PutUint32(m.page(p.overflow)[12:], 1<<31)
			return m
		}},
		{"overflow over the next pages", func(m image, p pages) image {
			order.PutUint32(m.page(p.leaf)[12:], 40)
			return m
		}},
		{"overflow lost", func(m image, p pages) image {
			order.PutUint32(m.page(p.overflow)[12:], 0)
			return m
		}},
		{"row outside the page", func(m image, p pages) image {
			order.PutUint32(m.element(p.leaf, 5)[4:], 1<<31)
			return m
		}},
		{"key longer than the page", func(m image, p pages) image {
			order.PutUint32(m.element(p.leaf, 5)[8:], 1<<30)
			return m
		}},
		{"key of no bytes", func(m image, p pages) image {
			order.PutUint32(m.element(p.leaf, 5)[8:], 0)
			return m
		}},
		{"value longer than the page", func(m image, p pages) image {
			order.PutUint32(m.element(p.leaf, 5)[12:], 1<<32-1)
			return m
		}},
		{"branch's key outside the page", func(m image, p pages) image {
			order.PutUint32(m.element(p.branch, 2)[0:], 1<<31)
			return m
		}},
		{"more rows than fit", func(m image, p pages) image {
			order.PutUint16(m.page(p.leaf)[10:], 0xffff)
			return m
		}},
		{"more children than fit", func(m image, p pages) image {
			order.PutUint16(m.page(p.branch)[10:], 0xffff)
			return m
		}},
		{"branch without children", func(m image, p pages) image {
			order.PutUint16(m.page(p.branch)[10:], 0)
			return m
		}},
		{"leaf with the flag of a free list", func(m image, p pages) image {
			order.PutUint16(m.page(p.leaf)[8:], freelistPage)
			return m
		}},
		{"leaf with two flags", func(m image, p pages) image {
			order.PutUint16(m.page(p.leaf)[8:], leafPage|branchPage)
			return m
		}},
		{"leaf taken for a branch", func(m image, p pages) image {
			order.PutUint16(m.page(p.leaf)[8:], branchPage)
			return m
		}},
		{"row taken for a bucket", func(m image, p pages) image {
			order.PutUint32(m.element(p.leaf, 5), bucketElement)
			return m
		}},
		{"page with another's number", func(m image, p pages) image {
			order.PutUint64(m.page(p.leaf), p.leaf+1)
			return m
		}},
		{"keys out of order", func(m image, p pages) image { // bbolt stops at this in the midst of its walk
			a, b := m.element(p.leaf, 2), m.element(p.leaf, 3)
			x := order.Uint32(a[4:])
			order.PutUint32(a[4:], order.Uint32(b[4:])+elementSize)
			order.PutUint32(b[4:], x-elementSize)
			return m
		}},
		{"leaf of zeros", func(m image, p pages) image { clear(m.page(p.leaf)); return m }},
		{"branch of zeros", func(m image, p pages) image { clear(m.page(p.branch)); return m }},
		{"root of zeros", func(m image, p pages) image { clear(m.page(p.root)); return m }},
		{"leaf of ones", func(m image, p pages) image {
			copy(m.page(p.leaf), bytes.Repeat([]byte{0xff}, testPage))
			return m
		}},
		{"file cut off", func(m image, p pages) image { return m[:max(p.leaf, p.overflow)*testPage] }},
		{"file cut off within a page", func(m image, p pages) image { return m[:m.meta(t).pages*testPage-100] }},
		{"root is a meta page", func(m image, p pages) image {
			m.withMeta(t, func(meta []byte) { order.PutUint64(meta[16:], 0) })
			return m
		}},
		{"fewer pages than are in use", func(m image, p pages) image {
			m.withMeta(t, func(meta []byte) { order.PutUint64(meta[40:], max(p.leaf, p.root, p.branch)) })
			return m
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := bytes.Clone(sound)
			if tt.damage != nil {
				m = tt.damage(m, image(m).pages(t))
			}
			testOpenDamaged(t, m, tt.damage == nil)
		})
	}
}

// TestOpenFindsWhatNoRecoverCatches: a list of free pages claims more memory than there is, or pages that are in use or
// beyond the file and would be written to; a small bucket makes a pointer to nowhere in the heap.
func TestOpenFindsWhatNoRecoverCatches(t *testing.T) {
	t.Parallel()
	sound, err := os.ReadFile(makeFile(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		damage func(m image, list []byte) // nil: none
	}{
		{"sound", nil},
		{"count beyond the page", func(_ image, list []byte) { order.PutUint16(list[10:], 0xfffe) }},
		{"count of its own beyond the file", func(_ image, list []byte) {
			order.PutUint16(list[10:], 0xffff)
			order.PutUint64(list[pageHeaderSize:], 1<<33)
		}},
		{"count of its own beyond all", func(_ image, list []byte) {
			order.PutUint16(list[10:], 0xffff)
			order.PutUint64(list[pageHeaderSize:], 1<<63)
		}},
		{"page beyond the pages", func(m image, list []byte) {
			order.PutUint64(list[pageHeaderSize:], uint64(len(m)/testPage)+1)
		}},
		{"meta page free", func(_ image, list []byte) { order.PutUint64(list[pageHeaderSize:], 1) }},
		{"page free twice", func(_ image, list []byte) {
			order.PutUint16(list[10:], 2)
			copy(list[pageHeaderSize+8:], list[pageHeaderSize:pageHeaderSize+8])
		}},
		{"overflow beyond the file", func(_ image, list []byte) { order.PutUint32(list[12:], 1<<31) }},
		{"other kind of page", func(_ image, list []byte) { order.PutUint16(list[8:], leafPage) }},
		{"page with another's number", func(_ image, list []byte) { list[0]++ }},
		{"zeros", func(_ image, list []byte) { clear(list) }},
		{"root page free", func(m image, list []byte) {
			order.PutUint16(list[10:], 1)
			order.PutUint64(list[pageHeaderSize:], m.meta(t).root)
		}},
		{"row of a bucket within the root page outside it", func(m image, _ []byte) {
			at := bytes.Index(m.page(m.meta(t).root), versionKey) - elementSize
			order.PutUint32(m.page(m.meta(t).root)[at+4:], 1<<28)
		}},
		{"root of zeros", func(m image, list []byte) { clear(m.page(m.meta(t).root)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := image(bytes.Clone(sound))
			list := m.page(m.meta(t).freelist)
			if order.Uint16(list[8:]) != freelistPage || order.Uint16(list[10:]) == 0 {
				t.Fatal("no free pages")
			}
			if tt.damage != nil {
				tt.damage(m, list)
			}
			testOpenDamaged(t, m, tt.damage == nil)
		})
	}
}

// testOpenDamaged opens m in a child, which must not crash, and here.
func testOpenDamaged(t *testing.T, m image, sound bool) {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, FileName)
	if err := os.WriteFile(path, m, 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := Check(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if (len(report.Problems) == 0) != sound {
		t.Errorf("check: %v, want none: %v", report.Problems, sound)
	}
	said, err := openInChild(t, folder)
	if err != nil {
		t.Fatalf("a process that opens the file ends with %v", err)
	}
	if sound {
		s, err := Open(t.Context(), Options{Folder: folder, Limit: MinLimit})
		if err != nil || !strings.Contains(said, "nil") {
			t.Fatalf("open: %v, in a child: %s", err, said)
		}
		if get(t, s, "key-0250") == nil {
			t.Error("a row is lost")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	if !strings.Contains(said, "sidehook store check") {
		t.Errorf("a process that opens the file says %q, want the command", said)
	}
	s, err := Open(t.Context(), Options{Folder: folder, Limit: MinLimit})
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("open: %v, want ErrCorrupt", err)
	}
	if err == nil {
		_ = s.Close()
	}
}

// TestRandomDamage flips bits in files of both kinds, opens them, reads and writes. Whatever was hit, all that may be
// said is that the file is broken. A round that ends the process is found by its seed in the log.
func TestRandomDamage(t *testing.T) {
	t.Parallel()
	synced, err := os.ReadFile(makeFile(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		sound image
	}{
		{"list of free pages written", synced},
		{"not written", unsyncedImage(t)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			rounds := 150
			if testing.Short() {
				rounds = 20
			}
			for seed := range uint64(rounds) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				m := bytes.Clone(tt.sound)
				end := int(image(m).meta(t).pages) * testPage
				for range 1 + rnd.IntN(64) {
					at := rnd.IntN(end)
					if rnd.IntN(2) == 0 {
						at = at/testPage*testPage + rnd.IntN(256) // headers and elements are hit more often
					}
					m[at] ^= 1 << rnd.IntN(8)
				}
				if err := os.WriteFile(filepath.Join(folder, FileName), m, 0o600); err != nil {
					t.Fatal(err)
				}
				err := useDamaged(t, folder)
				if _, hit := errors.AsType[*VersionError](err); err != nil && !hit && !errors.Is(err, ErrCorrupt) {
					t.Errorf("seed %d: %v, want ErrCorrupt or none", seed, err)
				}
			}
		})
	}
}

// useDamaged opens the store in folder, reads all rows, and writes some.
func useDamaged(t *testing.T, folder string) error {
	t.Helper()
	s, err := Open(t.Context(), Options{Folder: folder, Limit: MinLimit})
	if err != nil {
		return err
	}
	defer s.Close()
	r := run(t, s)
	err = s.View(func(tx *Tx) error {
		c := tx.Cursor(testBucket)
		n := 0
		for k, v := c.First(); k != nil; k, v = c.Next() {
			n += bytes.Count(v, []byte("v"))
		}
		return nil
	})
	for i := range 5 {
		key := fmt.Sprintf("key-%04d", 100*i)
		err = errors.Join(err, r.do(Urgent, newOp(func(tx *Tx) error {
			if tx.tx.Bucket(testBucket) == nil {
				return nil
			}
			return tx.Delete(testBucket, []byte(key))
		})))
	}
	return errors.Join(err, r.stop())
}
