package egress

import (
	"encoding/base32"
	"encoding/binary"
	"errors"
	"strings"
)

const (
	deliveryPrefix = "dlv_"
	// deliveryBytes is the size of a DeliveryID: its 12 bytes make 20 characters.
	deliveryBytes = 8 + 4
	deliveryChars = (deliveryBytes*8 + 4) / 5
)

// idText writes ids: base32hex in lower case, whose order as text is the order of the bytes.
var idText = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// errDeliveryID is all that there is to say of a text that names no delivery.
var errDeliveryID = errors.New("a delivery's id is " + deliveryPrefix + " and 20 characters of 0-9 and a-v")

// String returns the id as people and the API see it. Ids in order are texts in order.
func (id DeliveryID) String() string { return string(id.appendTo(nil)) }

// appendTo appends the id's text to dst.
func (id DeliveryID) appendTo(dst []byte) []byte {
	var b [deliveryBytes]byte
	binary.BigEndian.PutUint64(b[:], id.Event)
	binary.BigEndian.PutUint32(b[8:], id.Endpoint)
	return idText.AppendEncode(append(dst, deliveryPrefix...), b[:])
}

// ParseDeliveryID reads what String wrote, and nothing else: one delivery has one text.
func ParseDeliveryID(s string) (DeliveryID, error) {
	text, ok := strings.CutPrefix(s, deliveryPrefix)
	if !ok || len(text) != deliveryChars {
		return DeliveryID{}, errDeliveryID
	}
	var b [deliveryBytes + 1]byte // the decoder leaves out line ends, and writes as many bytes as fit the text
	if n, err := idText.Decode(b[:], []byte(text)); err != nil || n != deliveryBytes {
		return DeliveryID{}, errDeliveryID
	}
	id := DeliveryID{Event: binary.BigEndian.Uint64(b[:]), Endpoint: binary.BigEndian.Uint32(b[8:])}
	if id.String() != s {
		return DeliveryID{}, errDeliveryID // bits after the last byte
	}
	return id, nil
}
