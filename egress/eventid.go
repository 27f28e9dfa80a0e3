package egress

import (
	"crypto/rand"
	"encoding/binary"
	"strings"
)

// eventIDPrefix stands before the ids that the outbox makes.
const eventIDPrefix = "evt_"

// eventIDRandom bytes of a made id are random: its time and count could be guessed.
const eventIDRandom = 8

// newEventID makes an id for the event seq: evt_ and 26 characters of base32hex in lower case. It holds seq, so that the
// event is found without an index.
func newEventID(seq uint64) string {
	var raw [8 + eventIDRandom]byte
	binary.BigEndian.PutUint64(raw[:], seq)
	rand.Read(raw[8:]) // never fails: crypto/rand
	return string(idText.AppendEncode(append(make([]byte, 0, 32), eventIDPrefix...), raw[:]))
}

// seqOfEventID is the Seq in an id that has the form of newEventID. Whether there is such an event, and whether that is
// its id, only the event's row says: an app may choose an id of this form.
func seqOfEventID(id string) (uint64, bool) {
	text, ok := strings.CutPrefix(id, eventIDPrefix)
	if !ok {
		return 0, false
	}
	raw, err := idText.DecodeString(text)
	if err != nil || len(raw) != 8+eventIDRandom {
		return 0, false
	}
	return binary.BigEndian.Uint64(raw), true
}
