package egress

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// dispatchInstant is an outbox and a sender that cost nothing, so that what is left is the dispatcher's own.
type dispatchInstant struct {
	event   Event
	settled atomic.Int64
	waiting chan struct{} // has one for each delivery that is not settled
}

func (*dispatchInstant) Accept(context.Context, *Event, []Target) (Receipt, error) {
	return Receipt{}, nil
}
func (*dispatchInstant) Due(dst []Delivery, _ string, _ Lane, _ *Delivery, _ int) ([]Delivery, error) {
	return dst, nil
}
func (o *dispatchInstant) Load(DeliveryID) (*Event, error)               { return &o.event, nil }
func (*dispatchInstant) Mark(*Delivery, time.Time, Trigger)              {}
func (*dispatchInstant) SetHealth(context.Context, string, Health) error { return nil }
func (*dispatchInstant) Healths() (map[string]Health, error)             { return nil, nil }
func (o *dispatchInstant) Settle(_ *Settlement, done func(error)) {
	done(nil)
	o.settled.Add(1)
	<-o.waiting
}

func (*dispatchInstant) Send(context.Context, *Endpoint, *Event, int) Result {
	return Result{Outcome: OutcomeDelivered, Status: 200, Took: time.Millisecond}
}

// BenchmarkDispatch is one delivery through the dispatcher, from Accepted to the end of Settle, as part of batches like
// those of a commit.
func BenchmarkDispatch(b *testing.B) {
	const batch = 64
	o := &dispatchInstant{event: Event{ID: "evt_1"}, waiting: make(chan struct{}, 2*laneWindow)} // no more than windows hold: nothing can be read
	set := NewEndpoints([]*Endpoint{dispatchEndpoint("a", 64), dispatchEndpoint("b", 64), dispatchEndpoint("c", 64), dispatchEndpoint("d", 64)})
	d, err := NewDispatcher(DispatcherConfig{Outbox: o, Sender: o, Endpoints: func() *Endpoints { return set }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	b.ReportAllocs()
	ds := make([]Delivery, 0, batch)
	seq := uint64(0)
	for b.Loop() {
		seq++
		e := set.All()[seq%4]
		ds = append(ds, Delivery{ID: DeliveryID{seq, uint32(seq % 4)}, Endpoint: e.ID, State: StateWaiting})
		o.waiting <- struct{}{}
		if len(ds) == batch {
			d.Accepted(ds)
			ds = ds[:0]
		}
	}
	d.Accepted(ds)
	for o.settled.Load() < int64(seq) {
		d.Accepted(nil) // wakes the loop
	}
}
