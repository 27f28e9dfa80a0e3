package extauthz

import (
	"fmt"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

// checkAnswer is an encoded CheckResponse.
type checkAnswer []byte

// encode is response on the wire: the same message, without the objects between.
func (d *decision) encode() (checkAnswer, error) {
	if d.pass() {
		return d.encodeOK()
	}
	return d.encodeDenied()
}

func (d *decision) encodeOK() (checkAnswer, error) {
	ok, total := 0, 0
	for _, h := range d.set {
		if h.name != "" {
			ok += sizeField(sizeOverwrite(h.name, h.value))
			if err := checkText(h.name, h.value); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range d.remove {
		ok += sizeField(len(name))
		if err := checkText(name); err != nil {
			return nil, err
		}
	}
	metadata := 0
	if d.ref != "" {
		metadata = sizeMetadata(d.ref)
		total += sizeField(metadata)
		if err := checkText(d.ref); err != nil {
			return nil, err
		}
	}
	total += sizeField(0) + sizeField(ok)

	b := make(checkAnswer, 0, total)
	b = appendMessage(b, 1, 0) // status: code 0
	b = appendMessage(b, 3, ok)
	for _, h := range d.set {
		if h.name != "" {
			b = appendOverwrite(b, h.name, h.value)
		}
	}
	for _, name := range d.remove {
		b = appendString(b, 5, name)
	}
	if d.ref != "" {
		b = appendMessage(b, 4, metadata)
		b = appendMetadata(b, d.ref)
	}
	return b, nil
}

func (d *decision) encodeDenied() (checkAnswer, error) {
	if err := checkText(d.body); err != nil {
		return nil, err
	}
	httpStatus := 0
	if d.status != 0 {
		httpStatus = sizeNumber(uint64(d.status))
	}
	denied := sizeField(httpStatus)
	for name, value := range d.answerHeaders() {
		denied += sizeField(sizeOverwrite(name, value))
		if err := checkText(name, value); err != nil {
			return nil, err
		}
	}
	if d.body != "" {
		denied += sizeField(len(d.body))
	}
	const refused = uint64(codes.PermissionDenied)

	b := make(checkAnswer, 0, sizeField(sizeNumber(refused))+sizeField(denied))
	b = appendMessage(b, 1, sizeNumber(refused))
	b = appendNumber(b, 1, refused)
	b = appendMessage(b, 2, denied)
	b = appendMessage(b, 1, httpStatus)
	if d.status != 0 {
		b = appendNumber(b, 1, uint64(d.status))
	}
	for name, value := range d.answerHeaders() {
		b = appendOverwrite(b, name, value)
	}
	if d.body != "" {
		b = appendString(b, 3, d.body)
	}
	return b, nil
}

// appendOverwrite appends a HeaderValueOption in field 2, where both arms of the answer have their headers.
func appendOverwrite(b []byte, name, value string) []byte {
	b = appendMessage(b, 2, sizeOverwrite(name, value))
	b = appendMessage(b, 1, sizeHeader(name, value))
	b = appendString(b, 1, name)
	if value != "" {
		b = appendString(b, 2, value)
	}
	return appendNumber(b, 3, uint64(corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
}

func sizeOverwrite(name, value string) int {
	return sizeField(sizeHeader(name, value)) + sizeNumber(uint64(corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
}

func sizeHeader(name, value string) int {
	n := sizeField(len(name))
	if value != "" {
		n += sizeField(len(value))
	}
	return n
}

// appendMetadata appends a Struct with the one string ref under metadataKey.
func appendMetadata(b []byte, ref string) []byte {
	value := sizeField(len(ref))
	b = appendMessage(b, 1, sizeField(len(metadataKey))+sizeField(value)) // an entry of fields
	b = appendString(b, 1, metadataKey)
	b = appendMessage(b, 2, value)
	return appendString(b, 3, ref)
}

func sizeMetadata(ref string) int {
	return sizeField(sizeField(len(metadataKey)) + sizeField(sizeField(len(ref))))
}

// The fields above have numbers below 16: one byte of tag.

func sizeField(n int) int { return 1 + protowire.SizeBytes(n) }

func sizeNumber(v uint64) int { return 1 + protowire.SizeVarint(v) }

func appendMessage(b []byte, num protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(size))
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendNumber(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// checkText refuses, like the generated code, what Envoy could not read: it would take the answer for none.
func checkText(texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return fmt.Errorf("encode answer: %w", errUTF8)
		}
	}
	return nil
}
