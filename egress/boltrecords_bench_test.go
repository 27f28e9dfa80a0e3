package egress

import (
	"context"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// BenchmarkRecords prints what reading and purging costs beside a million deliveries that went well, 20 days of them, with
// a thousand dead letters at their beginning.
func BenchmarkRecords(b *testing.B) {
	const million = 1_000_000
	r := openRecords(b, b.TempDir(), 0)
	now := time.Now()
	r.write(b, recordsBulk{rows: 1000, first: now.Add(-21 * day), endpoint: "b", state: StateDead, body: 1000, attempts: 1})
	r.write(b, recordsBulk{rows: million, first: now.Add(-20 * day), endpoint: "a", state: StateDelivered, attempts: 1})
	p, err := NewPurger(PurgerConfig{Outbox: r.BoltOutbox})
	if err != nil {
		b.Fatal(err)
	}
	list := func(f Filter) func(*testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				if _, err := r.records.ListDeliveries(context.Background(), f, "", DefaultPageRows); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("list/newest", list(Filter{}))
	b.Run("list/dead", list(Filter{State: StateDead, Endpoint: "b"}))
	b.Run("list/waiting, none", list(Filter{State: StateWaiting, Endpoint: "b"}))
	b.Run("list/a bounded scan that finds nothing", list(Filter{Reason: OutcomeGone}))
	b.Run("summary", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.records.Summary(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("count/all", func(b *testing.B) {
		for b.Loop() {
			if n, err := r.records.Count(context.Background(), Filter{}); err != nil || n != million+1000 {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("purge/a pass that finds nothing", func(b *testing.B) {
		for b.Loop() {
			if err := p.pass(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("purge/a step", func(b *testing.B) {
		p.keep = func() Keep { return Keep{Delivered: MinKeep} }
		var after uint64
		for b.Loop() {
			op := &purgeEventsOp{b: r.BoltOutbox, done: make(chan error, 1)}
			var err error
			if after, _, err = p.scanEvents(op, after); err != nil {
				b.Fatal(err)
			}
			if err := r.store.Submit(op, store.Urgent); err != nil {
				b.Fatal(err)
			}
			if err := <-op.done; err != nil {
				b.Fatal(err)
			}
		}
	})
	r.mustEnd(b)
}
