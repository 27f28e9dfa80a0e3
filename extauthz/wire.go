package extauthz

import (
	"errors"
	"unsafe"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// wireCodec is the gRPC codec of the gate's listener. Check and the access log are the two messages of every request,
// large, and read for a handful of fields: those it reads and writes on the wire format itself. All others go
// through the generated code.
//
// A message that uses what Envoy never does (a submessage in two parts, to be merged) is left to the generated code too,
// so that both always mean the same. Fields that are not read are skipped unseen: text in them that is not UTF-8 costs
// nobody an entry.
type wireCodec struct {
	generated encoding.CodecV2
}

func newWireCodec() wireCodec {
	return wireCodec{generated: encoding.GetCodecV2(grpcproto.Name)}
}

// Name is that of the codec which this one stands for: it is part of the content type.
func (wireCodec) Name() string { return grpcproto.Name }

// Marshal implements encoding.CodecV2.
func (c wireCodec) Marshal(v any) (mem.BufferSlice, error) {
	if answer, ok := v.(checkAnswer); ok {
		return mem.BufferSlice{mem.SliceBuffer(answer)}, nil
	}
	return c.generated.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c wireCodec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *checkCall:
		v.buf = data.MaterializeToBuffer(mem.DefaultBufferPool()) // no copy, if the message came in one frame
		return v.decode(v.buf.ReadOnlyData())
	case *logBatch:
		buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buf.Free()
		v.decode(buf.ReadOnlyData())
		return nil
	default:
		return c.generated.Unmarshal(data, v)
	}
}

// errMerge: the message has a submessage in parts, which the generated code merges.
var errMerge = errors.New("submessage comes in parts")

// errWire: the bytes are no protobuf message.
var errWire = errors.New("malformed protobuf message")

// errUTF8: a string that we read is not UTF-8.
var errUTF8 = errors.New("string is not UTF-8")

// fields walks the fields of one message, in their order on the wire.
type fields struct {
	rest []byte
	err  error // why next returned false; nil at the end of the message

	num  protowire.Number
	typ  protowire.Type
	data []byte // of a field of BytesType: a view
	val  uint64 // of a field of VarintType
}

// next moves to the next field.
func (f *fields) next() bool {
	if len(f.rest) == 0 {
		return false
	}
	num, typ, n := protowire.ConsumeTag(f.rest)
	if n < 0 {
		f.err = errWire
		return false
	}
	f.num, f.typ, f.rest = num, typ, f.rest[n:]
	switch typ {
	case protowire.BytesType:
		f.data, n = protowire.ConsumeBytes(f.rest)
	case protowire.VarintType:
		f.val, n = protowire.ConsumeVarint(f.rest)
	default:
		n = protowire.ConsumeFieldValue(num, typ, f.rest)
	}
	if n < 0 {
		f.err = errWire
		return false
	}
	f.rest = f.rest[n:]
	return true
}

// bytes reports whether the field is num and has a length: a string, bytes or a message.
func (f *fields) bytes(num protowire.Number) bool {
	return f.num == num && f.typ == protowire.BytesType
}

// varint reports whether the field is num and a number. A known number of another wire type is an unknown field.
func (f *fields) varint(num protowire.Number) bool {
	return f.num == num && f.typ == protowire.VarintType
}

// once keeps the bytes of a submessage that may come once.
func (f *fields) once(part *[]byte) {
	if *part != nil {
		f.err, f.rest = errMerge, nil
		return
	}
	*part = f.data[:len(f.data):len(f.data)]
}

// view is b as a string without a copy. Nobody writes to b any more.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
