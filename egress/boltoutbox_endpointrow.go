package egress

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/sidehook/sidehook/internal/packed"
)

func appendNumber(b []byte, number uint32) []byte { return binary.BigEndian.AppendUint32(b, number) }

func parseNumber(key []byte) (uint32, error) {
	if len(key) != 4 {
		return 0, fmt.Errorf("%w: endpoint number of %d bytes", errRow, len(key))
	}
	return binary.BigEndian.Uint32(key), nil
}

// numberRow says whose a number is, or was. Removed is when the endpoint was found gone, unix milliseconds; 0: it is not.
type numberRow struct {
	Endpoint string
	Removed  int64
}

func (r numberRow) encode() []byte {
	return append(binary.AppendUvarint([]byte{rowVersion << 4}, uint64(r.Removed)), r.Endpoint...)
}

func parseNumberRow(b []byte) (numberRow, error) {
	p := packed.Reader{Rest: b}
	head := p.Byte()
	r := numberRow{Removed: int64(p.Uvarint())}
	if head != rowVersion<<4 || p.Bad || len(p.Rest) == 0 {
		return r, fmt.Errorf("%w: endpoint of a number", errRow)
	}
	r.Endpoint = string(p.Rest)
	return r, nil
}

// endpointRow is an endpoint's number and Health.
type endpointRow struct {
	Number uint32
	Health Health
}

func (r *endpointRow) encode() []byte {
	h := &r.Health
	b := append(appendNumber([]byte{rowVersion << 4}, r.Number), byte(h.Disabled), byte(h.Warned))
	b = binary.AppendUvarint(b, uint64(max(0, h.HoldStep)))
	for _, t := range [...]int64{
		toMillis(h.DisabledAt), toMillis(h.HeldUntil), toMillis(h.FailingSince), toMillis(h.LastFailure),
		toMillis(h.LastSuccess), toMillis(h.LastAttempt),
	} {
		b = binary.AppendUvarint(b, uint64(t))
	}
	return b
}

func parseEndpointRow(b []byte) (endpointRow, error) {
	var r endpointRow
	p := packed.Reader{Rest: b}
	head := p.Byte()
	if number := p.Take(4); number != nil {
		r.Number = binary.BigEndian.Uint32(number)
	}
	h := &r.Health
	h.Disabled, h.Warned = DisableReason(p.Byte()), int(p.Byte())
	h.HoldStep = p.Size(math.MaxInt32)
	h.DisabledAt = fromMillis(int64(p.Uvarint()))
	h.HeldUntil = fromMillis(int64(p.Uvarint()))
	h.FailingSince = fromMillis(int64(p.Uvarint()))
	h.LastFailure = fromMillis(int64(p.Uvarint()))
	h.LastSuccess = fromMillis(int64(p.Uvarint()))
	h.LastAttempt = fromMillis(int64(p.Uvarint()))
	if head != rowVersion<<4 || h.Disabled >= disableReasons || p.Bad || len(p.Rest) != 0 {
		return r, fmt.Errorf("%w: endpoint of %d bytes", errRow, len(b))
	}
	return r, nil
}
