package signature

import (
	"slices"
	"strings"
)

// maxPairs bounds the fields of a form that is sorted: far more than any sender has.
const maxPairs = 4096

// pair is one decoded field of a form or query.
type pair struct{ name, value string }

// nextPair cuts the first pair off a form or query. Pairs are separated by "&" alone, as senders write them.
func nextPair(s string) (name, value, rest string) {
	s, rest, _ = strings.Cut(s, "&")
	name, value, _ = strings.Cut(s, "=")
	return name, value, rest
}

// findPair returns the decoded value of the one pair called name.
func findPair(s, name string) (string, presence) {
	value, found := "", absent
	for s != "" {
		var n, v string
		n, v, s = nextPair(s)
		n, ok := unescape(n)
		if !ok || n != name {
			continue
		}
		if found != absent {
			return "", repeated
		}
		if v, ok = unescape(v); !ok {
			return "", repeated // no reading of it is certain
		}
		value, found = v, present
	}
	return value, found
}

// sortedForm appends the form's names and values glued together, sorted by name, the values of one name sorted and
// each only once: Twilio's rule. It reports false for a form that does not decode or has too many fields.
func sortedForm(dst, body []byte) ([]byte, bool) {
	var pairs []pair
	for s := string(body); s != ""; {
		var n, v string
		n, v, s = nextPair(s)
		if n == "" && v == "" {
			continue
		}
		n, ok1 := unescape(n)
		v, ok2 := unescape(v)
		if !ok1 || !ok2 || len(pairs) == maxPairs {
			return dst, false
		}
		pairs = append(pairs, pair{n, v})
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
	for _, p := range slices.Compact(pairs) {
		dst = append(dst, p.name...)
		dst = append(dst, p.value...)
	}
	return dst, true
}

// unescape decodes "+" and percent escapes. It reports false for a broken escape.
func unescape(s string) (string, bool) {
	if !strings.ContainsAny(s, "%+") {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '+':
			b = append(b, ' ')
		case '%':
			if i+2 >= len(s) {
				return "", false
			}
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			if hi > 15 || lo > 15 {
				return "", false
			}
			b = append(b, hi<<4|lo)
			i += 2
		default:
			b = append(b, s[i])
		}
	}
	return string(b), true
}

// unhex returns the value of a hex digit in either case, or 255.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
