package main

import (
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, stat string
		want       time.Duration
		bad        bool
	}{
		{"plain", "12 (envoy) S 1 12 12 0 -1 4194560 900 0 3 0 150 25 0 0 20 0 7 0 1 2 3", 1750 * time.Millisecond, false},
		{"a name with blanks and brackets", "12 (wrk:worker (1) x) S 1 12 12 0 -1 4194560 900 0 3 0 1 2 0 0 20", 30 * time.Millisecond, false},
		{"cut off", "12 (envoy) S 1 12", 0, true},
		{"no name", "12", 0, true},
		{"not a number", "12 (e) S 1 12 12 0 -1 4194560 900 0 3 0 x 25 0 0", 0, true},
	} {
		got, err := parseStat([]byte(tt.stat))
		if got != tt.want || (err != nil) != tt.bad {
			t.Errorf("%s: parseStat = %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestParseStatus(t *testing.T) {
	t.Parallel()
	const status = "Name:\tsidehook\nVmRSS:\t   17024 kB\nRssAnon:\t    6400 kB\nThreads:\t9\n"
	if got, err := parseStatus(status, "RssAnon"); err != nil || got != 6400<<10 {
		t.Errorf("RssAnon = %d, %v, want %d", got, err, 6400<<10)
	}
	// Rss is not a name of its own here: only whole names count.
	if got, err := parseStatus(status, "Rss"); err == nil {
		t.Errorf("Rss = %d, want an error", got)
	}
}
