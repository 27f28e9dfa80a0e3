// Package packed reads the values that the store's rows consist of: bytes, varints and byte strings with their length in
// front, as encoding/binary's Append functions write them.
package packed

import "encoding/binary"

// Reader reads a row from its front. A value that is not there, or cannot be one, makes it Bad, and everything after it
// zero: whoever reads looks once, at the end. The zero value reads an empty row.
type Reader struct {
	// Rest is what is not read yet; what Bytes and Take return are views into it.
	Rest []byte
	Bad  bool
}

func (r *Reader) fail() { r.Bad, r.Rest = true, nil }

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.Rest) == 0 {
		r.Bad = true
		return 0
	}
	c := r.Rest[0]
	r.Rest = r.Rest[1:]
	return c
}

// Uvarint reads what binary.AppendUvarint wrote.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Varint reads what binary.AppendVarint wrote.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Size reads a length of at most most. Anything longer is Bad, before somebody makes room for it.
func (r *Reader) Size(most int) int {
	n := r.Uvarint()
	if n > uint64(most) {
		r.fail()
		return 0
	}
	return int(n)
}

// Take reads n bytes.
func (r *Reader) Take(n int) []byte {
	if n > len(r.Rest) {
		r.fail()
		return nil
	}
	b := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return b
}

// Bytes reads what AppendBytes wrote.
func (r *Reader) Bytes() []byte { return r.Take(r.Size(len(r.Rest))) }

// AppendBytes appends s with its length in front.
func AppendBytes[S ~string | ~[]byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
