package main

import (
	"math"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i) // 100 down to 1
	}
	for _, tt := range []struct {
		name string
		all  []time.Duration
		p    float64
		want time.Duration
	}{
		{"none", nil, 0.5, 0},
		{"one", []time.Duration{7}, 0.99, 7},
		{"median", hundred, 0.5, 50},
		{"p99", hundred, 0.99, 99},
		{"all", hundred, 1, 100},
		{"least", hundred, 0, 1},
	} {
		if got := percentile(tt.all, tt.p); got != tt.want {
			t.Errorf("%s: percentile = %d, want %d", tt.name, got, tt.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("percentile reordered its argument")
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	if got := median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("median of three = %v, want 2", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of four = %v, want 2.5", got)
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of none = %v, want NaN", got)
	}
}
