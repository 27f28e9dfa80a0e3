package egress

import (
	"net/http"
	"strings"
	"time"
)

// MaxRetryAfter is the longest wait that a receiver can ask for.
const MaxRetryAfter = 24 * time.Hour

// ParseRetryAfter reads the Retry-After fields of an answer: how long after now it asks to be left alone, from 0 (a date
// that has passed) to MaxRetryAfter. ok is false where none of them says it. Of several the longest counts: to wait too
// long is the smaller fault.
//
// A value is a number of seconds or any of the three forms of an HTTP date (RFC 9110, section 10.2.3). Seconds with a
// fraction, which the RFC does not know and some receivers send, are rounded up.
func ParseRetryAfter(values []string, now time.Time) (wait time.Duration, ok bool) {
	for _, v := range values {
		v = strings.Trim(v, " \t")
		w, valid := parseSeconds(v)
		if !valid {
			var at time.Time
			var err error
			if at, err = http.ParseTime(v); err != nil {
				continue
			}
			w = at.Sub(now)
		}
		wait, ok = max(wait, min(w, MaxRetryAfter)), true
	}
	return wait, ok
}

// parseSeconds reads digits with or without a fraction. No number of them overflows: what is over MaxRetryAfter is that.
func parseSeconds(s string) (time.Duration, bool) {
	whole, fraction, dot := strings.Cut(s, ".")
	if !digits(whole) || dot && !digits(fraction) {
		return 0, false
	}
	var seconds time.Duration
	for _, c := range []byte(whole) {
		if seconds = seconds*10 + time.Duration(c-'0'); seconds > MaxRetryAfter/time.Second {
			return MaxRetryAfter, true
		}
	}
	if strings.Trim(fraction, "0") != "" {
		seconds++
	}
	return seconds * time.Second, true
}

func digits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}
