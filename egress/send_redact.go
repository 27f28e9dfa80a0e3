package egress

import (
	"bytes"
	"strings"

	"github.com/sidehook/sidehook/internal/signature"
)

// leastSecret is the length from which a word in the value of an endpoint's header is taken for a secret: shorter ones would
// be found where they mean something else.
const leastSecret = 8

// redact writes stars over what an answer repeats of the endpoint's headers: their values are kept sealed, and a receiver
// that answers with the request, as those for testing do, would else put them readable into the log. Words are looked for one
// by one, as a receiver may leave out "Bearer". cut says that answer ends before its time, perhaps within such a word.
func redact(answer []byte, cut bool, headers []signature.Field) {
	if len(headers) == 0 || len(answer) == 0 {
		return
	}
	original := bytes.Clone(answer) // words may overlap
	for _, h := range headers {
		for word := range strings.FieldsSeq(h.Value) {
			if len(word) >= leastSecret {
				conceal(answer, original, word, cut)
			}
		}
	}
}

// conceal writes stars over each place in answer at which original has word, or ends with its beginning if it is cut.
func conceal(answer, original []byte, word string, cut bool) {
	for at := range original {
		n := min(len(word), len(original)-at)
		if (n == len(word) || cut) && string(original[at:at+n]) == word[:n] {
			copy(answer[at:at+n], bytes.Repeat([]byte("*"), n))
		}
	}
}
