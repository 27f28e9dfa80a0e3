package signature

import (
	"strconv"
	"strings"
	"time"
)

// parseTime reads a signed time. Numbers are ASCII digits alone, without sign, blank or leading zero, as every sender
// writes them; the longest accepted lie in the year 5138.
func parseTime(text string, unit Unit) (time.Time, bool) {
	switch unit {
	case Seconds:
		n, ok := parseDigits(text, 11)
		return time.Unix(n, 0).UTC(), ok
	case Milliseconds:
		n, ok := parseDigits(text, 14)
		return time.UnixMilli(n).UTC(), ok
	case ISO8601:
		if len(text) >= len("2006-01-02T15:04:05") && !strings.ContainsAny(text[len("2006-01-02"):], "Z+-") {
			text += "Z"
		}
	}
	if !isRFC3339(text) {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, text)
	return t.UTC(), err == nil
}

// isRFC3339 checks the shape alone; time.Parse takes a comma before the fraction, hours of one digit, and zones of
// more than a day, all of which RFC 3339, section 5.6, does not have.
func isRFC3339(text string) bool {
	const shape = "0000-00-00T00:00:00"
	if len(text) <= len(shape) || len(text) > 64 || !hasShape(text[:len(shape)], shape) {
		return false
	}
	rest := text[len(shape):]
	if rest[0] == '.' {
		digits := strings.TrimLeft(rest[1:], "0123456789")
		if len(digits) == len(rest)-1 {
			return false
		}
		rest = digits
	}
	return rest == "Z" || hasShape(rest, "+00:00") || hasShape(rest, "-00:00")
}

// hasShape reports whether text is shape with any digit for each 0.
func hasShape(text, shape string) bool {
	if len(text) != len(shape) {
		return false
	}
	for i := range len(text) {
		if shape[i] == '0' && '0' <= text[i] && text[i] <= '9' || shape[i] != '0' && text[i] == shape[i] {
			continue
		}
		return false
	}
	return true
}

func parseDigits(text string, limit int) (int64, bool) {
	if text == "" || len(text) > limit || text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// formatTime writes a time as the sender would.
func formatTime(t time.Time, unit Unit) string {
	switch unit {
	case Seconds:
		return strconv.FormatInt(t.Unix(), 10)
	case Milliseconds:
		return strconv.FormatInt(t.UnixMilli(), 10)
	case ISO8601:
		return t.UTC().Format("2006-01-02T15:04:05.000000")
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// judgeTime compares a signed time with now at a resolution of one second: |now-t| <= tolerance.
func judgeTime(t, now time.Time, tolerance time.Duration, window Window) Reason {
	age, most := now.Unix()-t.Unix(), int64(tolerance/time.Second)
	switch {
	case age > most:
		return ReasonTooOld
	case window == Both && -age > most:
		return ReasonTooNew
	}
	return ReasonOK
}
