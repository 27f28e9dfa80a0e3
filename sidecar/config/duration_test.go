package config

import (
	"math"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	tests := []struct {
		in   string
		want time.Duration // -1: refused
	}{
		{"0", 0},
		{"0s", 0},
		{"5m", 5 * time.Minute},
		{"72h", 72 * time.Hour},
		{"30d", 30 * day},
		{"1d12h", day + 12*time.Hour},
		{"1d2h3m4s5ms6us7ns", day + 2*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond + 6*time.Microsecond + 7},
		{"90s", 90 * time.Second},
		{"106751d", 106751 * day},            // the last whole day that fits
		{"9223372036854775807ns", 1<<63 - 1}, // the last nanosecond that fits
		{"9223372036854775808ns", -1},
		{"106752d", -1},
		{"106751d9223372036854775807ns", -1}, // each fits, the sum does not
		{"99999999999999999999d", -1},
		{"", -1},
		{"5", -1},
		{"d", -1},
		{"-5m", -1},
		{"+5m", -1},
		{"1.5h", -1},
		{"5 m", -1},
		{" 5m", -1},
		{"5m ", -1},
		{"5M", -1},
		{"1w", -1},
		{"1y", -1},
		{"12h1d", -1}, // the smaller unit first is more likely a slip than a style
		{"5m5m", -1},
		{"1h5ms3s", -1},
		{"１d", -1}, // a digit, but not of ASCII
		{"1µs", -1},
	}
	for _, tt := range tests {
		got, err := parseDuration(tt.in)
		if (err != nil) != (tt.want < 0) || err == nil && got != tt.want {
			t.Errorf("parseDuration(%q) = %v, %v, want %v", tt.in, got, err, tt.want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   time.Duration
		want string
	}{
		{0, "0s"}, {5 * time.Minute, "5m"}, {36 * time.Hour, "1d12h"}, {720 * time.Hour, "30d"},
		{1500 * time.Millisecond, "1s500ms"}, {1, "1ns"},
	}
	for _, tt := range tests {
		if got := formatDuration(tt.in); got != tt.want {
			t.Errorf("formatDuration(%v) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		want int64 // -1: refused
	}{
		{"0", 0}, {"65536", 65536}, {"64Ki", 64 << 10}, {"25Mi", 25 << 20}, {"25MiB", 25 << 20}, {"8Gi", 8 << 30},
		{"1Ti", 1 << 40}, {"10M", 10_000_000}, {"1k", 1000},
		{"9223372036854775807", math.MaxInt64}, {"8388607Ti", 8388607 << 40},
		{"9223372036854775808", -1}, {"8388608Ti", -1}, {"-1", -1}, {"", -1}, {"Mi", -1}, {"1 Mi", -1}, {"1.5Mi", -1},
		{"1mi", -1}, {"1K", -1}, {"1e6", -1}, {"0x10", -1}, {"1_000", -1}, {"1Pi", -1},
	}
	for _, tt := range tests {
		got, err := parseSize(tt.in)
		if (err != nil) != (tt.want < 0) || err == nil && got != tt.want {
			t.Errorf("parseSize(%q) = %d, %v, want %d", tt.in, got, err, tt.want)
		}
	}
}

// What formatDuration and formatSize write reads as what it was made of.
func FuzzSpellings(f *testing.F) {
	for _, n := range []int64{0, 1, 1 << 10, 1<<10 + 1, 1 << 40, int64(36 * time.Hour), math.MaxInt64} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		if n < 0 {
			return
		}
		if d, err := parseDuration(formatDuration(time.Duration(n))); err != nil || d != time.Duration(n) {
			t.Errorf("%d ns is written %s, which reads as %v, %v", n, formatDuration(time.Duration(n)), d, err)
		}
		if size, err := parseSize(formatSize(n)); err != nil || size != n {
			t.Errorf("%d bytes is written %s, which reads as %v, %v", n, formatSize(n), size, err)
		}
	})
}
