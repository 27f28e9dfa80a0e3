package store

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSpaces: buckets of one name in two spaces are two, whichever of them a transaction was begun in.
func TestSpaces(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	other := s.Space("other/")
	if err := other.Setup(func(tx *Tx) error {
		if err := tx.Put(testBucket, []byte("k"), nil); err == nil {
			return fmt.Errorf("a bucket of another space is there")
		}
		return tx.CreateBucket(testBucket)
	}); err != nil {
		t.Fatal(err)
	}
	run(t, s)
	both := newOp(func(tx *Tx) error {
		for value, in := range map[string]*Tx{"here": tx.In(""), "there": other.In(tx)} {
			if err := in.Put(testBucket, []byte("key"), []byte(value)); err != nil {
				return err
			}
			if err := in.Append(testBucket, []byte("of "+value), []byte(value)); err != nil {
				return err
			}
			if err := in.Put(testBucket, []byte("gone"), []byte(value)); err != nil {
				return err
			}
		}
		return tx.In("").In("other/").Delete(testBucket, []byte("gone"))
	})
	if err := other.Submit(both, Urgent); err != nil {
		t.Fatal(err)
	}
	if err := <-both.done; err != nil {
		t.Fatal(err)
	}
	here := map[string]string{"key": "here", "of here": "here", "gone": "here"}
	there := map[string]string{"key": "there", "of there": "there"}
	for _, tt := range []struct {
		name string
		view func(func(*Tx) error) error
		want map[string]string
	}{
		{"the store", s.View, here},
		{"its default space", s.Space("").View, here},
		{"the other space", other.View, there},
		{"the other space from the store", func(fn func(*Tx) error) error {
			return s.View(func(tx *Tx) error { return fn(other.In(tx)) })
		}, there},
		{"the store from the other space", func(fn func(*Tx) error) error {
			return other.View(func(tx *Tx) error { return fn(tx.In("")) })
		}, here},
	} {
		got := make(map[string]string)
		if err := tt.view(func(tx *Tx) error {
			c := tx.Cursor(testBucket)
			for k, v := c.First(); k != nil; k, v = c.Next() {
				if !bytes.Equal(tx.Get(testBucket, k), v) {
					t.Errorf("%s: %s: Get and Cursor differ", tt.name, k)
				}
				got[string(k)] = string(v)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
}

// TestSpacesShareABatch: what a batch keeps for its operations, and what they asked to be called, is common to all spaces.
func TestSpacesShareABatch(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	other := s.Space("other/")
	if err := other.Setup(func(tx *Tx) error { return tx.CreateBucket(testBucket) }); err != nil {
		t.Fatal(err)
	}
	run(t, s)
	type key struct{}
	var before, after int
	if err := doIn(other, newOp(func(tx *Tx) error {
		for _, in := range []*Tx{tx, tx.In(""), other.In(tx), tx.In("third/")} {
			if in.Value(key{}) == nil {
				in.SetValue(key{}, true)
				in.BeforeCommit(func() error { before++; return tx.Put(testBucket, []byte("before"), nil) })
				in.AfterCommit(func() { after++ })
			}
		}
		return tx.Put(testBucket, []byte("k"), nil)
	})); err != nil {
		t.Fatal(err)
	}
	if before != 1 || after != 1 {
		t.Errorf("called %d times before the commit and %d times after it, want once", before, after)
	}
	// What one space wrote counts as written: an operation that fails afterwards takes it back.
	if err := doIn(other, newOp(func(tx *Tx) error {
		if err := tx.In("").Put(testBucket, []byte("half"), nil); err != nil {
			return err
		}
		return fmt.Errorf("no")
	})); err == nil {
		t.Error("an operation that failed did not")
	}
	if get(t, s, "half") != nil {
		t.Error("half of an operation that failed is written")
	}
}

func doIn(s *Space, op *funcOp) error {
	if err := s.Submit(op, Urgent); err != nil {
		return err
	}
	return <-op.done
}

// rowsSeen notes what it is asked about.
type rowsSeen map[string]bool

func (r rowsSeen) Row(bucket string, key, _ []byte) error {
	r[bucket+" "+string(key)] = true
	return nil
}
func (r rowsSeen) Finish() []error { return []error{fmt.Errorf("%d rows", len(r))} }

func TestRowsIn(t *testing.T) {
	t.Parallel()
	row := func(r Rows, bucket string) {
		if err := r.Row(bucket, []byte("k"), nil); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name, prefix string
		want         rowsSeen
	}{
		{"all", "", rowsSeen{"test k": true, "other/test k": true, "others k": true}},
		{"one space", "other/", rowsSeen{"test k": true}},
		{"a space without rows", "none/", rowsSeen{}},
	} {
		got := make(rowsSeen)
		judge := RowsIn(tt.prefix, got)
		for _, bucket := range []string{"test", "other/test", "others"} {
			row(judge, bucket)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
		if problems := judge.Finish(); len(problems) != 1 || problems[0].Error() != fmt.Sprintf("%d rows", len(tt.want)) {
			t.Errorf("%s: the end of the check says %v", tt.name, problems)
		}
	}
}
