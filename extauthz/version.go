package extauthz

import (
	"crypto/sha256"
	"strconv"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// maxVersionBytes is the longest text that is read as a version, and what one may come to when its exponent is written out.
const maxVersionBytes = 512

// VersionRule says where an event tells of which object it is, and how new that is. The zero value is off.
type VersionRule struct {
	// Object is the path of the object's id; At that of a number that grows with each change or, with Time, of the time of the
	// change: RFC 3339, ISO 8601 (without a zone it is UTC) or a number.
	Object, At signature.Path
	Time       bool
}

// Version says how new the object is that an event is about.
type Version struct {
	// Object is the hash of the object's id, and of the rule by which it was read.
	Object [32]byte
	// At is the version in canonical form; empty: the event has none, and is compared with nothing. It is 'n' or 't' and a
	// decimal number without needless zeros, of seconds since 1970 for 't'. Only those of one letter are compared.
	At string
}

// read returns the version of an event, the zero value where it tells none or it cannot be read.
func (r *VersionRule) read(doc []byte) Version {
	if r.At.IsZero() {
		return Version{}
	}
	object, ok := r.Object.Find(doc)
	if !ok {
		return Version{}
	}
	text, ok := r.At.Find(doc)
	if !ok {
		return Version{}
	}
	at := parseVersion(text, r.Time)
	if at == "" {
		return Version{}
	}
	// With another rule the same object begins anew: its marks are not of the same kind.
	return Version{Object: hashParts("version", r.Object.String(), r.At.String(), object), At: at}
}

// hashParts returns the hash of texts, told apart by their lengths.
func hashParts(parts ...string) [sha256.Size]byte {
	h := sha256.New()
	for _, part := range parts {
		h.Write(strconv.AppendInt(nil, int64(len(part)), 10))
		h.Write([]byte{':'})
		h.Write([]byte(part))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// parseVersion returns the canonical form of a version, "" if it cannot be read.
func parseVersion(text string, isTime bool) string {
	if len(text) > maxVersionBytes {
		return ""
	}
	if n := parseDecimal(text); n != "" {
		return "n" + n
	}
	if isTime {
		if n := parseInstant(text); n != "" {
			return "t" + n
		}
	}
	return ""
}

// parseDecimal reads a number as JSON writes it, leading zeros allowed, and returns it as sign, digits and fraction, without
// needless zeros; "" if it is none.
func parseDecimal(text string) string {
	mantissa, exponent := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(text[i+1:]); err != nil || max(exponent, -exponent) > maxVersionBytes {
			return ""
		}
		mantissa = text[:i]
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, point := strings.Cut(mantissa, ".")
	if whole == "" || !allDigits(whole) || !allDigits(fraction) || point && fraction == "" {
		return ""
	}
	if exponent > 0 {
		fraction += strings.Repeat("0", max(0, exponent-len(fraction)))
		whole, fraction = whole+fraction[:exponent], fraction[exponent:]
	} else if exponent < 0 {
		whole = strings.Repeat("0", max(0, -exponent-len(whole))) + whole
		whole, fraction = whole[:len(whole)+exponent], whole[len(whole)+exponent:]+fraction
	}
	whole, fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	number := whole
	if whole == "" {
		number = "0"
	}
	if fraction != "" {
		number += "." + fraction
	}
	switch {
	case len(number) > maxVersionBytes:
		return ""
	case negative && number != "0":
		return "-" + number
	}
	return number
}

func allDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// instantLayouts are the ways in which senders write a time, without its fraction.
var instantLayouts = [...]string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00"}

// parseInstant reads a time, the whole of its fraction included, and returns it in seconds since 1970; "" if it is none, or
// earlier.
func parseInstant(text string) string {
	fraction := ""
	if i := strings.IndexByte(text, '.'); i >= 0 {
		end := i + 1
		for end < len(text) && '0' <= text[end] && text[end] <= '9' {
			end++
		}
		if fraction = text[i+1 : end]; fraction == "" {
			return ""
		}
		text = text[:i] + text[end:]
	}
	for _, layout := range instantLayouts {
		t, err := time.Parse(layout, text)
		if err != nil || strings.ContainsAny(text, ".,") { // time.Parse takes a fraction of its own
			continue
		}
		if t.Unix() < 0 {
			return ""
		}
		return parseDecimal(strconv.FormatInt(t.Unix(), 10) + "." + fraction + "0")
	}
	return ""
}

// olderVersion reports whether a is older than b, both canonical. What cannot be compared is not older: an event is passed on
// rather than lost.
func olderVersion(a, b string) bool {
	if a == "" || b == "" || a[0] != b[0] {
		return false
	}
	return compareDecimals(a[1:], b[1:]) < 0
}

// compareDecimals compares what parseDecimal returned.
func compareDecimals(a, b string) int {
	a, lessA := strings.CutPrefix(a, "-")
	b, lessB := strings.CutPrefix(b, "-")
	switch {
	case lessA && !lessB:
		return -1
	case !lessA && lessB:
		return 1
	case lessA:
		a, b = b, a
	}
	wholeA, fractionA, _ := strings.Cut(a, ".")
	wholeB, fractionB, _ := strings.Cut(b, ".")
	if len(wholeA) != len(wholeB) {
		return len(wholeA) - len(wholeB)
	}
	if c := strings.Compare(wholeA, wholeB); c != 0 {
		return c
	}
	return strings.Compare(fractionA, fractionB) // without zeros at the end the order is that of the texts
}
