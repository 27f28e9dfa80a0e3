package config

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// units are the units of a duration in the order in which they must be written.
var units = []struct {
	name string
	size time.Duration
}{
	{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", time.Nanosecond},
}

// sizes are the units of a size in bytes.
var sizes = map[string]int64{
	"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

var errDuration = errors.New("write a duration such as 30s, 5m, 72h, 30d or 1d12h")

// parseDuration reads whole numbers with a unit each, the larger unit first, as in 1d12h; 0 needs no unit.
// A day is 24 hours. There are no signs and no fractions.
func parseDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if s == "" {
		return 0, errDuration
	}
	var total time.Duration
	next := 0
	for s != "" {
		digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
		n, err := strconv.ParseInt(s[:digits], 10, 64)
		if err != nil {
			if errors.Is(err, strconv.ErrRange) {
				return 0, errors.New("a duration has at most 292 years")
			}
			return 0, errDuration
		}
		s = s[digits:]
		letters := len(s) - len(strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyz"))
		unit := s[:letters]
		s = s[letters:]
		for next < len(units) && units[next].name != unit {
			next++
		}
		if next == len(units) {
			return 0, fmt.Errorf("%w: units are d, h, m, s, ms, us and ns, the larger first", errDuration)
		}
		size := units[next].size
		next++
		hi, lo := bits.Mul64(uint64(n), uint64(size)) // neither is negative
		if hi != 0 || lo > math.MaxInt64-uint64(total) {
			return 0, errors.New("a duration has at most 292 years")
		}
		total += time.Duration(lo)
	}
	return total, nil
}

// formatDuration writes d as parseDuration reads it, in as few units as are exact: 5m, 36h as 1d12h, 30d. 0 is "0s".
func formatDuration(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range units {
		if n := d / u.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.size
		}
	}
	return b.String()
}

// parseSize reads a number of bytes: 65536, 64Ki, 25Mi or 25MiB, 8Gi, 10M.
func parseSize(s string) (int64, error) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	size, known := sizes[s[digits:]]
	n, err := strconv.ParseInt(s[:digits], 10, 64)
	if errors.Is(err, strconv.ErrRange) || (known && err == nil && n > math.MaxInt64/size) {
		return 0, errors.New("that is more than any machine has")
	}
	if err != nil || !known {
		return 0, errors.New("write a size in bytes such as 65536, 64Ki, 25Mi or 8Gi")
	}
	return n * size, nil
}

// formatSize writes n as parseSize reads it, with the largest power of 1024 that is exact.
func formatSize(n int64) string {
	for _, unit := range []string{"Ti", "Gi", "Mi", "Ki"} {
		if size := sizes[unit]; n >= size && n%size == 0 {
			return strconv.FormatInt(n/size, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}
