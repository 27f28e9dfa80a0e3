package extauthz

import (
	"sync"
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	b := budget{limit: 10}
	if !b.take(10) || b.take(1) || !b.take(0) {
		t.Error("the limit itself fits, one byte more does not, nothing always does")
	}
	b.give(4)
	if !b.take(4) {
		t.Error("what was given back does not fit")
	}
	b.give(10)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 100 {
				if b.take(3) {
					if n := b.used.Load(); n < 3 {
						t.Errorf("%d bytes are in use while 3 are held", n)
					}
					b.give(3)
				}
			}
		})
	}
	wg.Wait()
	if n := b.used.Load(); n != 0 {
		t.Errorf("%d bytes are left in use", n)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	var p pace
	now := time.Now()
	for i, tt := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {0, false}, {999 * time.Millisecond, false}, {time.Second, true}, {1500 * time.Millisecond, false}, {2 * time.Second, true}} {
		if got := p.take(now.Add(tt.after)); got != tt.want {
			t.Errorf("step %d, after %v: %v, want %v", i, tt.after, got, tt.want)
		}
	}
}
