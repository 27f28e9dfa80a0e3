package egress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestDispatchBolt runs the dispatcher on the outbox as it is, against receivers that fail in many ways, over days and
// restarts: in the end each event is delivered or dead, with all its attempts on record and none after a success.
func TestDispatchBolt(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		endpoints := []*Endpoint{dispatchEndpoint("a", 8), dispatchEndpoint("b", 2), dispatchEndpoint("c", 8)}
		endpoints[1].Policy.Rate = 20
		for _, e := range endpoints {
			e.Policy.DisableAfter = 0 // they fail for days here
		}
		r := newDispatchRig(t, endpoints...)
		r.sender.send = func(ctx context.Context, e *Endpoint, ev *Event, attempt int) Result {
			rnd := rand.New(rand.NewPCG(ev.Seq, uint64(attempt)))
			switch n := rnd.IntN(20); {
			case n < 8:
				return dispatchAfter(ctx, time.Duration(rnd.IntN(100))*time.Millisecond, Result{Outcome: OutcomeDelivered, Status: 200})
			case n < 12:
				return dispatchAfter(ctx, time.Second, Result{Outcome: OutcomeServerError, Status: 500, Answer: []byte("later"), AnswerBytes: 5})
			case n < 14:
				return Result{Outcome: OutcomeThrottled, Status: 429, RetryAfter: time.Duration(rnd.IntN(60)) * time.Second}
			case n < 15:
				return dispatchHang(ctx, e)
			case n < 17:
				return Result{Outcome: OutcomeStaleConnection}
			case n < 19:
				return Result{Outcome: OutcomeConnectRefused}
			}
			return Result{Outcome: OutcomeResolverFailed}
		}
		var b *boltBench
		open := func(again bool) {
			if b = runBoltOutbox(t, folder, 0, nil); !again {
				if err := b.SetEndpoints(t.Context(), []string{"a", "b", "c"}); err != nil {
					t.Fatal(err)
				}
			}
			r.cfg.Outbox = b
			r.make()
			b.SetChanges(r.d)
			r.run()
		}
		shut := func() {
			r.finish()
			if err := b.end(); err != nil {
				t.Fatal(err)
			}
		}
		open(false)
		const events = 60
		var all []DeliveryID
		for i := range events {
			e := boltEvent(fmt.Sprint("evt_", i), `{"n":1}`)
			for _, d := range b.mustAccept(t, e, "a", "b", "c").Deliveries {
				all = append(all, d.ID)
			}
			time.Sleep(time.Second)
			if i == events/2 {
				shut() // in the midst of it, with attempts in flight
				open(true)
			}
		}
		time.Sleep(20 * time.Hour)
		shut()
		time.Sleep(time.Hour)
		open(true)
		time.Sleep(40 * 24 * time.Hour)
		counts := make(map[State]int)
		for _, id := range all {
			var d Delivery
			for i, a := range dispatchBoltLog(t, b, id, &d) {
				if a.N != i+1 {
					t.Fatalf("attempt %d of %s is number %d", i+1, id, a.N)
				}
				if (a.Outcome == OutcomeDelivered) != (d.State == StateDelivered && a.N == d.Tries) {
					t.Fatalf("attempt %d of %d ended %s; the delivery is %s", a.N, d.Tries, a.Outcome, d.State)
				}
			}
			counts[d.State]++
			if d.State == StateDead && d.Attempts < 10 && !d.NotReached {
				t.Errorf("%+v is dead", d)
			}
		}
		// By chance at each attempt 2 in 5 are delivered: of 180 hardly two run out of ten attempts.
		if counts[StateDelivered]+counts[StateDead] != 3*events || counts[StateDead] > 10 {
			t.Errorf("states %v of %d deliveries", counts, 3*events)
		}
		shut()
	})
}

// dispatchBoltLog returns the attempts of a delivery, and puts it into d.
func dispatchBoltLog(t *testing.T, b *boltBench, id DeliveryID, d *Delivery) []Attempt {
	t.Helper()
	records, err := NewBoltRecords(BoltRecordsConfig{
		Outbox: b.BoltOutbox, Parked: func(string) bool { return false }, Sending: func(DeliveryID) bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	detail, err := records.Delivery(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	*d = detail.Delivery.Delivery
	return detail.Attempts
}
