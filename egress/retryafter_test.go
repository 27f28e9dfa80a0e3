package egress

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	const most = 24 * time.Hour
	for _, tt := range []struct {
		name   string
		values []string
		want   time.Duration
		ok     bool
	}{
		{"seconds", []string{"120"}, 2 * time.Minute, true},
		{"seconds, not nanoseconds", []string{"3"}, 3 * time.Second, true},
		{"zero", []string{"0"}, 0, true},
		{"leading zeros", []string{"007"}, 7 * time.Second, true},
		{"a day", []string{"86400"}, most, true},
		{"over a day", []string{"86401"}, most, true},
		{"nanoseconds would overflow", []string{"9223372037"}, most, true},
		{"an int64 would overflow", []string{"99999999999999999999"}, most, true},
		{"a thousand digits", []string{strings.Repeat("9", 1000)}, most, true},
		{"a thousand zeros", []string{strings.Repeat("0", 1000) + "5"}, 5 * time.Second, true},
		{"fraction", []string{"1.5"}, 2 * time.Second, true},
		{"fraction of nothing", []string{"2.000"}, 2 * time.Second, true},
		{"a little", []string{"0.001"}, time.Second, true},
		{"blanks around", []string{" \t120 "}, 2 * time.Minute, true},
		{"IMF-fixdate", []string{"Mon, 30 Nov 2026 12:01:00 GMT"}, time.Minute, true},
		{"RFC 850", []string{"Monday, 30-Nov-26 12:01:00 GMT"}, time.Minute, true},
		{"asctime", []string{"Mon Nov 30 12:01:00 2026"}, time.Minute, true},
		{"date with blanks around", []string{" Mon, 30 Nov 2026 12:01:00 GMT "}, time.Minute, true},
		{"past date", []string{"Wed, 21 Oct 2015 07:28:00 GMT"}, 0, true},
		{"date of this moment", []string{"Mon, 30 Nov 2026 12:00:00 GMT"}, 0, true},
		{"year 9999", []string{"Fri, 31 Dec 9999 23:59:59 GMT"}, most, true},
		{"the longest of several", []string{"10", "120", "60"}, 2 * time.Minute, true},
		{"the valid one of several", []string{"soon", "60", "-1"}, time.Minute, true},
		{"a date and seconds", []string{"30", "Mon, 30 Nov 2026 12:01:00 GMT"}, time.Minute, true},

		{"none", nil, 0, false},
		{"empty", []string{""}, 0, false},
		{"blank", []string{"  "}, 0, false},
		{"negative", []string{"-5"}, 0, false},
		{"plus", []string{"+5"}, 0, false},
		{"exponent", []string{"1e3"}, 0, false},
		{"hexadecimal", []string{"0x10"}, 0, false},
		{"point alone", []string{"."}, 0, false},
		{"no digits after the point", []string{"1."}, 0, false},
		{"no digits before the point", []string{".5"}, 0, false},
		{"two points", []string{"1.2.3"}, 0, false},
		{"a list", []string{"120, 60"}, 0, false},
		{"unit", []string{"120s"}, 0, false},
		{"other digits", []string{"١٢٠"}, 0, false},
		{"other zone", []string{"Mon, 30 Nov 2026 12:01:00 PST"}, 0, false},
		{"RFC 3339", []string{"2026-11-30T12:01:00Z"}, 0, false},
		{"garbage", []string{"\x00\xff"}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, ok := ParseRetryAfter(tt.values, now); got != tt.want || ok != tt.ok {
				t.Errorf("ParseRetryAfter(%q) = %v, %v; want %v, %v", tt.values, got, ok, tt.want, tt.ok)
			}
		})
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, seed := range []string{"120", "1.5", "-5", "99999999999999999999", "Mon, 30 Nov 2026 12:01:00 GMT", " 0 ", "Mon Nov 30 12:01:00 2026"} {
		f.Add(seed, int64(1796040000))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		now := time.Unix(unix, 0)
		wait, ok := ParseRetryAfter([]string{value}, now)
		if wait < 0 || wait > MaxRetryAfter || !ok && wait != 0 {
			t.Fatalf("ParseRetryAfter(%q) = %v, %v", value, wait, ok)
		}
		if at, err := http.ParseTime(strings.Trim(value, " \t")); err == nil && !ok {
			t.Fatalf("ParseRetryAfter(%q) does not take the date %v", value, at)
		}
		// A second field that says nothing changes nothing.
		if again, okAgain := ParseRetryAfter([]string{"soon", value}, now); again != wait || okAgain != ok {
			t.Fatalf("ParseRetryAfter(%q) = %v, %v beside garbage; alone %v, %v", value, again, okAgain, wait, ok)
		}
	})
}
