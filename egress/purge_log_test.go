package egress

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestPurgeBoundsTheLog in bytes: the oldest attempts go, young as they are.
func TestPurgeBoundsTheLog(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openPurge(t, folder, 0, Keep{})
		ids := b.write(t, recordsBulk{rows: 2000, first: time.Now().Add(-time.Hour), endpoint: "a", state: StateWaiting, attempts: 1, answer: 1000})
		all := b.LogBytes()
		b.purger.logBytes = all / 2
		stop := b.run(t)
		time.Sleep(2 * pressInterval)
		stop()
		if got := b.LogBytes(); got > all/2 || got < all/2-2000 {
			t.Errorf("the log takes %d bytes, want at most and about %d", got, all/2)
		}
		if n := b.rows(t, attemptBucket); int64(n) != 2000-b.attempts.Load() || n < 990 {
			t.Errorf("%d attempts are left and %d were deleted, want the newer half", n, b.attempts.Load())
		}
		if len(b.logged(t, ids[0])) != 0 || len(b.logged(t, ids[1999])) != 1 {
			t.Error("not the oldest went")
		}
		b.mustEnd(t)
	})
}

// TestPurgeUnderPressure: in a store that is nearly full what is delivered goes before its time, and nothing else.
func TestPurgeUnderPressure(t *testing.T) {
	for _, tt := range []struct {
		name  string
		age   time.Duration
		state State
		want  string // of the events: "some", "all"
	}{
		{"delivered, two days old", 2 * day, StateDelivered, "some"},
		{"discarded, two days old", 2 * day, StateDiscarded, "some"},
		{"delivered, not a day old", day - time.Hour, StateDelivered, "all"},
		{"dead, two days old", 2 * day, StateDead, "all"},
		{"waiting, two days old", 2 * day, StateWaiting, "all"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				const limit = 8 << 20
				b := openPurge(t, folder, limit, Keep{})
				var ids []DeliveryID
				for i := range 100 {
					bulk := recordsBulk{rows: 100, first: time.Now().Add(-tt.age + time.Duration(i)*time.Second), endpoint: "a", state: tt.state, attempts: 1, answer: 600}
					ids = append(ids, b.write(t, bulk)...)
					if used, _ := b.store.Usage(); used > limit*85/100 {
						break
					}
				}
				if !b.purger.pressed() {
					t.Fatalf("the store is not full enough for this test with %d events", len(ids))
				}
				b.purger.logBytes = limit
				stop := b.run(t)
				time.Sleep(5 * pressInterval)
				stop()
				left := b.rows(t, eventBucket)
				used, _ := b.store.Usage()
				switch tt.want {
				case "all":
					if left != len(ids) {
						t.Errorf("%d of %d events are left, want all", left, len(ids))
					}
				case "some":
					if left == len(ids) || left < len(ids)/2 || float64(used) > limit*pressShare {
						t.Errorf("%d of %d events are left, %d bytes used, want some gone and less than %.0f", left, len(ids), used, limit*pressShare)
					}
					_, errFirst := b.records.Delivery(t.Context(), ids[0])
					_, errLast := b.records.Delivery(t.Context(), ids[len(ids)-1])
					if !errors.Is(errFirst, ErrNotFound) || errLast != nil {
						t.Errorf("the oldest: %v, the newest: %v, want only the oldest gone", errFirst, errLast)
					}
				}
				if old := tt.age > day; old && tt.want == "all" && b.attempts.Load() == 0 {
					t.Error("no attempt went, though nothing else could")
				} else if !old && b.attempts.Load() != 0 {
					t.Errorf("%d attempts went that are not a day old", b.attempts.Load())
				}
				b.mustEnd(t)
			})
		})
	}
}

// TestPurgeForgetsRemovedEndpoints once nothing bears their numbers, and gives no number twice.
func TestPurgeForgetsRemovedEndpoints(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openPurge(t, folder, 0, Keep{})
		stop := b.run(t)
		b.mustAccept(t, boltEvent("1", "1"), "a")
		b.mustSettle(t, boltSettlement(b.due(t, "a")[0], StateDelivered))
		time.Sleep(time.Second)
		if err := b.SetEndpoints(t.Context(), []string{"b"}); err != nil { // numbers 1 and 3 are removed, 3 is the last
			t.Fatal(err)
		}
		time.Sleep(DefaultKeepDelivered - time.Hour)
		if n := b.rows(t, numberBucket); n != 3 {
			t.Errorf("%d numbers while there is an event of theirs, want 3", n)
		}
		time.Sleep(2 * time.Hour)
		if n := b.rows(t, numberBucket); n != 2 {
			t.Errorf("%d numbers when all is gone, want that of b and the last", n)
		}
		if err := b.SetEndpoints(t.Context(), []string{"a", "b"}); err != nil {
			t.Fatal(err)
		}
		if got := b.mustAccept(t, boltEvent("2", "2"), "a").Deliveries[0].ID.Endpoint; got != 4 {
			t.Errorf("a has the number %d when it comes again, want 4", got)
		}
		stop()
		b.mustEnd(t)
	})
}
