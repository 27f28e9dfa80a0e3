package store

import (
	"testing"
	"time"
)

func TestGrowthUntil(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	type at struct {
		minute int
		used   int64
	}
	every := func(from, to int, used func(minute int) int64) (all []at) {
		for m := from; m <= to; m++ {
			all = append(all, at{m, used(m)})
		}
		return all
	}
	linear := func(perMinute int64) func(int) int64 {
		return func(m int) int64 { return int64(m) * perMinute }
	}
	for _, tt := range []struct {
		name    string
		samples []at
		now     at
		room    int64
		want    time.Duration // 0: not told
	}{
		{name: "no sample", now: at{60, mib}, room: mib},
		{name: "a burst after the start tells nothing", samples: every(0, 5, linear(mib)), now: at{9, 9 * mib}, room: mib},
		{name: "as fast as since the start", samples: every(0, 20, linear(mib)), now: at{20, 20 * mib}, room: 90 * mib, want: 90 * time.Minute},
		{
			name:    "only the past hour counts", // ten times as fast before
			samples: append(every(0, 99, linear(10*mib)), every(100, 300, func(m int) int64 { return 1000*mib + int64(m-100)*mib })...),
			now:     at{300, 1200 * mib}, room: 240 * mib, want: 4 * time.Hour,
		},
		{
			// What was idle for half a day and wrote 60 MiB in the past ten minutes: 60 MiB in the hour.
			name: "idle before", samples: []at{{0, 5 * mib}, {710, 5 * mib}, {715, 35 * mib}},
			now: at{720, 65 * mib}, room: 60 * mib, want: time.Hour,
		},
		{name: "it shrinks", samples: every(0, 60, func(m int) int64 { return int64(100-m) * mib }), now: at{60, 40 * mib}, room: mib},
		{name: "idle", samples: []at{{0, mib}}, now: at{600, mib}, room: mib},
		{name: "a byte an hour fills nothing", samples: []at{{0, 0}}, now: at{60, 1}, room: 8 << 30},
		{name: "full already", samples: every(0, 60, linear(mib)), now: at{60, 60 * mib}, room: -mib, want: -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			var g growth
			for _, s := range tt.samples {
				g.note(start.Add(time.Duration(s.minute)*time.Minute), s.used)
			}
			got, ok := g.until(start.Add(time.Duration(tt.now.minute)*time.Minute), tt.now.used, tt.room)
			want := max(tt.want, 0) // -1: at once
			if ok != (tt.want != 0) || ok && (got-want).Abs() > time.Second {
				t.Errorf("until = %v, %v; want %v, %v", got, ok, want, tt.want != 0)
			}
			if most := int(growthWindow/growthStep) + 2; len(g.samples) > most {
				t.Errorf("%d samples are kept, want at most %d", len(g.samples), most)
			}
		})
	}
}
