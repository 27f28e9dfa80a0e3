package loglimit

import (
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	const perSecond = 100
	var l Limiter
	second := time.Unix(1614265330, 0)
	for i := range 250 {
		ok, left := l.Take(second.Add(time.Duration(i)*time.Millisecond), perSecond)
		if ok != (i < perSecond) || left != 0 {
			t.Fatalf("line %d: %v, %d left out", i, ok, left)
		}
	}
	if ok, left := l.Take(second.Add(time.Second), perSecond); !ok || left != 150 {
		t.Errorf("first line of the next second: %v, %d left out; want 150", ok, left)
	}
	if ok, left := l.Take(second.Add(time.Second), perSecond); !ok || left != 0 {
		t.Errorf("second line: %v, %d left out; want none", ok, left)
	}
}
