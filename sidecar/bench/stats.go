package main

import (
	"math"
	"slices"
	"time"
)

// percentile returns the smallest value that at least the share p of all does not exceed; zero of none.
func percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// median returns the middle value, the mean of the middle two when their number is even, NaN of none.
func median(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(all))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
