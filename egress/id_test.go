package egress

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDeliveryIDText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		id   DeliveryID
		want string
	}{
		// Bytes read as a number of 96 bits, shifted left by 4, five bits a character.
		{"zero", DeliveryID{}, "dlv_00000000000000000000"},
		{"the last endpoint bit", DeliveryID{Endpoint: 1}, "dlv_0000000000000000000g"},
		{"the last event bit", DeliveryID{Event: 1}, "dlv_00000000000020000000"},
		{"the first event bit", DeliveryID{Event: 1 << 63}, "dlv_g0000000000000000000"},
		{"all bits", DeliveryID{Event: math.MaxUint64, Endpoint: math.MaxUint32}, "dlv_vvvvvvvvvvvvvvvvvvvg"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.id.String(); got != tt.want {
				t.Errorf("String = %q, want %q", got, tt.want)
			}
			if got, err := ParseDeliveryID(tt.want); err != nil || got != tt.id {
				t.Errorf("ParseDeliveryID = %v, %v, want %v", got, err, tt.id)
			}
		})
	}
}

func TestParseDeliveryIDRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text string }{
		{"nothing", ""},
		{"no prefix", "00000000000000000000"},
		{"an event's id", "evt_00000000000000000000"},
		{"too short", "dlv_0000000000000000000"},
		{"too long", "dlv_000000000000000000000"},
		{"upper case", "dlv_V0000000000000000000"},
		{"a character outside the alphabet", "dlv_w0000000000000000000"},
		{"bits after the last byte", "dlv_00000000000000000001"},
		{"a line end, which the decoder would pass over", "dlv_0000000000000000000\n"},
		{"padding", "dlv_0000000000000000000="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, err := ParseDeliveryID(tt.text); err == nil {
				t.Errorf("ParseDeliveryID(%q) = %v, want an error", tt.text, got)
			}
		})
	}
}

func TestDeliveryIDOrder(t *testing.T) {
	t.Parallel()
	gen := rapid.Custom(func(t *rapid.T) DeliveryID {
		return DeliveryID{Event: rapid.Uint64().Draw(t, "event"), Endpoint: rapid.Uint32().Draw(t, "endpoint")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if got, err := ParseDeliveryID(a.String()); err != nil || got != a {
			t.Fatalf("%v comes back as %v, %v", a, got, err)
		}
		less := a.Event < b.Event || a.Event == b.Event && a.Endpoint < b.Endpoint
		if got := strings.Compare(a.String(), b.String()) < 0; got != less {
			t.Fatalf("texts %v and %v: less %t, want %t", a, b, got, less)
		}
	})
}
