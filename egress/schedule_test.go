package egress

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func scheduleRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func TestDefaultSchedule(t *testing.T) {
	t.Parallel()
	s := DefaultSchedule()
	if got, want := s.Attempts(), 10; got != want {
		t.Errorf("%d attempts, want %d", got, want)
	}
	if got, want := s.Length(), 75*time.Hour+35*time.Minute+5*time.Second; got != want {
		t.Errorf("length %v, want %v", got, want)
	}
	if got, want := s.Longest(), 28*time.Hour+48*time.Minute; got != want {
		t.Errorf("longest wait %v, want 24h and 20%%: %v", got, want)
	}
	// The table of Standard Webhooks, with 20% either way.
	bounds := [][2]time.Duration{
		{4 * time.Second, 6 * time.Second}, {4 * time.Minute, 6 * time.Minute}, {24 * time.Minute, 36 * time.Minute},
		{96 * time.Minute, 144 * time.Minute}, {4 * time.Hour, 6 * time.Hour}, {8 * time.Hour, 12 * time.Hour},
		{672 * time.Minute, 1008 * time.Minute}, {16 * time.Hour, 24 * time.Hour}, {1152 * time.Minute, 1728 * time.Minute},
	}
	rnd := scheduleRand(1)
	for i, b := range bounds {
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for range 2000 {
			wait, ok := s.Wait(i+1, rnd)
			if !ok || wait < b[0] || wait > b[1] {
				t.Fatalf("wait after attempt %d is %v, %v; want one from %v to %v", i+1, wait, ok, b[0], b[1])
			}
			low, high = min(low, wait), max(high, wait)
		}
		// Evenly spread: of 2,000 draws some lie in the first and in the last twentieth.
		if part := (b[1] - b[0]) / 20; low > b[0]+part || high < b[1]-part {
			t.Errorf("waits after attempt %d lie from %v to %v only, of %v to %v", i+1, low, high, b[0], b[1])
		}
	}
	for _, n := range []int{-1, 0, 10, 11, math.MaxInt} {
		if wait, ok := s.Wait(n, rnd); ok {
			t.Errorf("wait after attempt %d is %v, want none", n, wait)
		}
	}
}

func TestExponentialSchedule(t *testing.T) {
	t.Parallel()
	s := Schedule{Exponential: &Exponential{Base: time.Second, Factor: 2, Cap: 10 * time.Second, Attempts: 7}}
	if got, want := s.Length(), (1+2+4+8+10+10)*time.Second; got != want {
		t.Errorf("length %v, want %v", got, want)
	}
	rnd := scheduleRand(2)
	for n, most := range []time.Duration{1: 1, 2: 2, 3: 4, 4: 8, 5: 10, 6: 10} {
		if n == 0 {
			continue
		}
		most *= time.Second
		var sum, high time.Duration
		const draws = 2000
		for range draws {
			wait, ok := s.Wait(n, rnd)
			if !ok || wait < 0 || wait > most {
				t.Fatalf("wait after attempt %d is %v, %v; want one from 0 to %v", n, wait, ok, most)
			}
			sum, high = sum+wait, max(high, wait)
		}
		// Full jitter: the mean is half, within 5%.
		if mean := sum / draws; mean < most*45/100 || mean > most*55/100 || high < most*95/100 {
			t.Errorf("waits after attempt %d: mean %v, most %v; want %v and nearly %v", n, mean, high, most/2, most)
		}
	}
	if _, ok := s.Wait(7, rnd); ok {
		t.Error("there is a wait after the last of 7 attempts")
	}
}

// TestScheduleProperties draws schedules that no configuration would let pass, too: none overflows.
func TestScheduleProperties(t *testing.T) {
	t.Parallel()
	duration := rapid.Custom(func(t *rapid.T) time.Duration {
		if rapid.Bool().Draw(t, "wild") {
			return time.Duration(rapid.Int64().Draw(t, "ns"))
		}
		return time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "ns"))
	})
	rapid.Check(t, func(t *rapid.T) {
		s := Schedule{JitterPercent: rapid.IntRange(-10, 200).Draw(t, "jitter")}
		if rapid.Bool().Draw(t, "exponential") {
			s.Exponential = &Exponential{
				Base: duration.Draw(t, "base"), Cap: duration.Draw(t, "cap"),
				Factor: rapid.Float64().Draw(t, "factor"), Attempts: rapid.IntRange(-1, 300).Draw(t, "attempts"),
			}
		} else {
			s.Waits = rapid.SliceOfN(duration, 0, 20).Draw(t, "waits")
		}
		rnd := scheduleRand(rapid.Uint64().Draw(t, "seed"))
		attempts := s.Attempts()
		if attempts < 1 {
			t.Fatalf("%d attempts", attempts)
		}
		if s.Length() < 0 {
			t.Fatalf("length %v", s.Length())
		}
		longest := s.Longest()
		for n := -1; n <= attempts+1; n++ {
			wait, ok := s.Wait(n, rnd)
			if ok != (n >= 1 && n < attempts) {
				t.Fatalf("attempt %d of %d has a wait: %v", n, attempts, ok)
			}
			if wait < 0 || wait > longest || wait > 2*MaxWait {
				t.Fatalf("wait after attempt %d is %v, longest %v", n, wait, longest)
			}
		}
	})
}
