package clock

import (
	"testing"
	"time"
)

// TestGuardObserve looks at both clocks step by step, the monotonic one in hours since the start.
func TestGuardObserve(t *testing.T) {
	t.Parallel()
	const start = 1_700_000_000_000
	type look struct {
		mono  time.Duration
		jump  time.Duration // by which the wall clock has left the monotonic one
		doubt bool
	}
	for _, tt := range []struct {
		name   string
		newest int64
		looks  []look
	}{
		{"two clocks in step", start - 1000, []look{{0, 0, false}, {time.Hour, 0, false}, {48 * time.Hour, 0, false}}},
		{"an hour is adjustment", start, []look{{time.Minute, time.Hour, false}, {2 * time.Minute, 0, false}}},
		{"more than an hour, until a day has passed", start, []look{
			{time.Minute, time.Hour + time.Millisecond, true},
			{24 * time.Hour, time.Hour + time.Millisecond, true},
			{25 * time.Hour, time.Hour + time.Millisecond, false},
		}},
		{"to and fro within a sample", start, []look{
			{time.Second, 2 * time.Hour, true}, {2 * time.Second, 0, true}, {23 * time.Hour, 0, true}, {25 * time.Hour, 0, false},
		}},
		{"backwards", start, []look{{time.Minute, -2 * time.Hour, true}, {26 * time.Hour, -2 * time.Hour, false}}},
		{"the store is ahead of the clock", start + 1, []look{{0, 0, true}, {time.Hour - 1, 0, true}, {time.Hour, 0, false}}},
		{"an empty store", 0, []look{{0, 0, false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := NewGuard(tt.newest, start)
			for _, l := range tt.looks {
				mono := l.mono.Milliseconds()
				if why := g.Observe(mono, start+mono+l.jump.Milliseconds()); (why != "") != l.doubt {
					t.Errorf("after %v with the wall clock %v off: doubt %q, want doubt: %v", l.mono, l.jump, why, l.doubt)
				}
			}
		})
	}
}

func TestGuardLongAgo(t *testing.T) {
	t.Parallel()
	const start, retention = 1_700_000_000_000, 2 * time.Hour
	for _, tt := range []struct {
		name   string
		newest int64
		mono   time.Duration
		want   bool
	}{
		{"an empty store", 0, 0, false},
		{"as long as retention", start - retention.Milliseconds(), 0, false},
		{"longer", start - retention.Milliseconds() - 1, 0, true},
		{"longer, just before an hour has passed", start - retention.Milliseconds() - 1, time.Hour - time.Millisecond, true},
		{"longer, after an hour", start - retention.Milliseconds() - 1, time.Hour, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := NewGuard(tt.newest, start)
			if got := g.LongAgo(retention, tt.mono.Milliseconds()); got != tt.want {
				t.Errorf("LongAgo = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestGuardMemoryIsBounded(t *testing.T) {
	t.Parallel()
	g := NewGuard(0, 0)
	for i := range int64(100_000) { // a clock that jumps to and fro at every look, for 28 hours
		g.Observe(i*1000, i*1000+(i%2)*driftSample.Milliseconds()*90)
		if len(g.samples) > int(driftWindow/driftSample)+1 {
			t.Fatalf("%d samples after %d looks", len(g.samples), i)
		}
	}
}
