package extauthz

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// part is a field with a length.
func part(num protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), slices.Concat(parts...))
}

func number(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func text(num protowire.Number, s string) []byte { return part(num, []byte(s)) }
