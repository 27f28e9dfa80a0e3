package packed

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestReaderReadsWhatWasWritten(t *testing.T) {
	t.Parallel()
	b := []byte{7}
	b = binary.AppendUvarint(b, 1<<63)
	b = binary.AppendVarint(b, -5)
	b = AppendBytes(b, "abc")
	b = append(b, "rest"...)
	r := Reader{Rest: b}
	if got := r.Byte(); got != 7 {
		t.Errorf("byte %d, want 7", got)
	}
	if got := r.Uvarint(); got != 1<<63 {
		t.Errorf("uvarint %d, want 1<<63", got)
	}
	if got := r.Varint(); got != -5 {
		t.Errorf("varint %d, want -5", got)
	}
	if got := r.Bytes(); string(got) != "abc" {
		t.Errorf("bytes %q, want abc", got)
	}
	if string(r.Rest) != "rest" || r.Bad {
		t.Errorf("rest %q, bad %v, want rest and not", r.Rest, r.Bad)
	}
}

func TestReaderIsBad(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		row  []byte
		read func(*Reader)
	}{
		{"a byte of nothing", nil, func(r *Reader) { r.Byte() }},
		{"a uvarint that is cut off", []byte{0x80}, func(r *Reader) { r.Uvarint() }},
		{"a uvarint of more than 64 bits", bytes.Repeat([]byte{0xff}, 11), func(r *Reader) { r.Uvarint() }},
		{"a varint that is cut off", []byte{0xff}, func(r *Reader) { r.Varint() }},
		{"a size above the most", []byte{9}, func(r *Reader) { r.Size(8) }},
		{"more bytes than there are", []byte{1, 2}, func(r *Reader) { r.Take(3) }},
		{"bytes longer than the row", []byte{3, 'a', 'b'}, func(r *Reader) { r.Bytes() }},
		{"bytes longer than any row", binary.AppendUvarint(nil, 1<<63), func(r *Reader) { r.Bytes() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := Reader{Rest: tt.row}
			if tt.read(&r); !r.Bad {
				t.Error("not bad")
			}
			if r.Byte() != 0 || r.Uvarint() != 0 || r.Varint() != 0 || len(r.Bytes()) != 0 {
				t.Error("what follows is not zero")
			}
		})
	}
	r := Reader{Rest: []byte{8, 2, 1, 2}}
	if n := r.Size(8); n != 8 || r.Bad {
		t.Errorf("size %d, bad %v, want 8", n, r.Bad)
	}
	if b := r.Bytes(); len(b) != 2 || cap(b) != 2 || r.Bad {
		t.Errorf("bytes %v of capacity %d, want two", b, cap(b))
	}
}
