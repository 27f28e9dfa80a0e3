package outboxtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/egress"
)

func testAccepted(b *bench) {
	e := event("order-1", `{"n":1}`)
	start := time.Now()
	got := b.accept(e, "a", "c")
	if e.Seq == 0 || e.Accepted.IsZero() {
		b.Errorf("number %d, accepted %v", e.Seq, e.Accepted)
	}
	want := egress.Receipt{EventID: "order-1", Deliveries: []egress.ReceiptDelivery{
		{ID: egress.DeliveryID{Event: e.Seq, Endpoint: got.Deliveries[0].ID.Endpoint}, Endpoint: "a"},
		{ID: egress.DeliveryID{Event: e.Seq, Endpoint: got.Deliveries[1].ID.Endpoint}, Endpoint: "c"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("receipt (-want +got):\n%s", diff)
	}
	var wait []egress.Delivery
	for _, r := range got.Deliveries {
		wait = append(wait, egress.Delivery{
			ID: r.ID, Endpoint: r.Endpoint, State: egress.StateWaiting, Due: start.UTC(), Created: start.UTC(), Bytes: 7,
		})
		if diff := cmp.Diff(wait[len(wait)-1:], b.due(r.Endpoint, egress.LaneFirst)); diff != "" {
			b.Errorf("due at %s (-want +got):\n%s", r.Endpoint, diff)
		}
		loaded, err := b.outbox.Load(r.ID)
		if err != nil {
			b.Fatal(err)
		}
		if diff := cmp.Diff(e, loaded); diff != "" {
			b.Errorf("loaded (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(wait, b.heard.take()); diff != "" {
		b.Errorf("heard (-want +got):\n%s", diff)
	}
	b.wantDue("b")
}

func testMadeIDs(b *bench) {
	seen := make(map[string]bool)
	for range EndpointDeliveries {
		e := event("", "body")
		r := b.accept(e, "a")
		if e.ID == "" || e.ID != r.EventID || seen[e.ID] {
			b.Fatalf("id %q, in the receipt %q, seen before: %v", e.ID, r.EventID, seen[e.ID])
		}
		seen[e.ID] = true
		if again := b.accept(event(e.ID, "body"), "a"); !again.Repeat || again.Deliveries[0].ID != r.Deliveries[0].ID {
			b.Errorf("posted again with the id that it got: %+v, want a repeat of %+v", again, r)
		}
		if _, err := b.outbox.Accept(context.Background(), event(e.ID, "other"), to("a")); !errors.Is(err, egress.ErrConflict) {
			b.Errorf("other content under the id that it got: %v, want ErrConflict", err)
		}
	}
	if got := len(b.due("a", egress.LaneFirst)); got != EndpointDeliveries {
		b.Errorf("%d wait, want %d", got, EndpointDeliveries)
	}
	// An app may choose an id that looks like ours.
	const ours = "evt_00000000000000000000000000"
	if r := b.accept(event(ours, "body"), "b"); r.Repeat || r.EventID != ours {
		b.Errorf("receipt %+v", r)
	}
	if r := b.accept(event(ours, "body"), "b"); !r.Repeat {
		b.Error("a repeat is taken as new")
	}
}

func testNobody(b *bench) {
	if r := b.accept(event("x", "body")); len(r.Deliveries) != 0 || r.Repeat {
		b.Errorf("receipt %+v", r)
	}
	if r := b.accept(event("x", "body"), "a"); len(r.Deliveries) != 0 || !r.Repeat {
		b.Errorf("repeat: %+v, want the first answer", r)
	}
	b.wantDue("a")
	if ds := b.heard.take(); len(ds) != 0 {
		b.Errorf("heard of %v", ds)
	}
}

func testRepeat(b *bench) {
	first, err := b.outbox.Accept(context.Background(), event("x", "body"), []egress.Target{{Endpoint: "b", Parked: true}, {Endpoint: "a"}})
	if err != nil {
		b.Fatal(err)
	}
	b.heard.take()
	time.Sleep(time.Hour)
	again := event("x", "body")
	got := b.accept(again, "a", "c") // other endpoints by now
	want := first
	want.Repeat = true
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("repeat (-want +got):\n%s", diff)
	}
	if again.Seq != first.Deliveries[0].ID.Event {
		b.Errorf("number %d, want that of the first", again.Seq)
	}
	if ds := b.heard.take(); len(ds) != 0 {
		b.Errorf("heard of %v", ds)
	}
	b.wantDue("a", first.Deliveries[1].ID)
	b.wantDue("b", first.Deliveries[0].ID)
	b.wantDue("c")
}

func testRepeatLater(b *bench) {
	first := b.accept(event("x", "body"), "a", "b")
	b.settle(settlement(b.delivery(first.Deliveries[0].ID), egress.StateDelivered))
	b.settle(settlement(b.delivery(first.Deliveries[1].ID), egress.StateDelivered))
	want := first
	want.Repeat = true
	if diff := cmp.Diff(want, b.accept(event("x", "body"), "a", "b")); diff != "" {
		b.Errorf("after all was delivered (-want +got):\n%s", diff)
	}
	b.restart("b") // a is gone
	if diff := cmp.Diff(want, b.accept(event("x", "body"), "b")); diff != "" {
		b.Errorf("after a restart (-want +got):\n%s", diff)
	}
	b.wantDue("b")
}

func testConflict(b *bench) {
	first := b.accept(event("x", "body"), "a")
	if _, err := b.outbox.Accept(context.Background(), event("x", "other"), to("a", "b")); !errors.Is(err, egress.ErrConflict) {
		b.Errorf("got %v, want ErrConflict", err)
	}
	b.wantDue("a", first.Deliveries[0].ID)
	b.wantDue("b")
}

func testTenants(b *bench) {
	seen := make(map[egress.DeliveryID]bool)
	for _, k := range []struct{ tenant, id string }{{"", "ab"}, {"a", "b"}, {"ab", "c"}, {"a", "bc"}, {"b", "b"}, {"", "b"}, {"", "AB"}} {
		e := event(k.id, "body")
		e.Tenant = k.tenant
		r := b.accept(e, "a")
		if r.Repeat || seen[r.Deliveries[0].ID] {
			b.Errorf("id %q of tenant %q is taken for another", k.id, k.tenant)
		}
		seen[r.Deliveries[0].ID] = true
		loaded, err := b.outbox.Load(r.Deliveries[0].ID)
		if err != nil || loaded.Tenant != k.tenant || loaded.ID != k.id {
			b.Errorf("loaded %+v, %v, want id %q of tenant %q", loaded, err, k.id, k.tenant)
		}
	}
}

func testFifty(b *bench) {
	for round := range 5 {
		id := string(rune('p' + round))
		var wg sync.WaitGroup
		answers := make([]egress.Receipt, 50)
		for i := range answers {
			wg.Go(func() {
				var err error
				if answers[i], err = b.outbox.Accept(context.Background(), event(id, "body"), to("a", "b")); err != nil {
					b.Errorf("accept: %v", err)
				}
			})
		}
		wg.Wait()
		first := 0
		for i := range answers {
			if !answers[i].Repeat {
				first++
			}
			answers[i].Repeat = false
			if diff := cmp.Diff(answers[0], answers[i]); diff != "" {
				b.Fatalf("two answers to one id:\n%s", diff)
			}
		}
		if first != 1 {
			b.Errorf("%d posts of one id were taken, want 1", first)
		}
	}
	if got := len(b.due("a", egress.LaneFirst)); got != 5 {
		b.Errorf("%d wait, want 5", got)
	}
}

func testEndpointFull(b *bench) {
	for range EndpointDeliveries {
		if r := b.accept(event("", "body"), "a"); r.Deliveries[0].Full {
			b.Fatal("full too early")
		}
	}
	r := b.accept(event("over", "body"), "b", "a")
	if r.Deliveries[0].Full || !r.Deliveries[1].Full {
		b.Errorf("receipt %+v, want only a to be full", r)
	}
	b.wantDue("b", r.Deliveries[0].ID)
	if got := len(b.due("a", egress.LaneFirst)); got != EndpointDeliveries {
		b.Errorf("%d wait at a, want %d", got, EndpointDeliveries)
	}
	want := r
	want.Repeat = true
	if diff := cmp.Diff(want, b.accept(event("over", "body"), "b", "a")); diff != "" {
		b.Errorf("repeat (-want +got):\n%s", diff)
	}
	only := b.accept(event("only", "body"), "a")
	if !only.Deliveries[0].Full {
		b.Errorf("receipt %+v, want a to be full", only)
	}
	b.wantBody(only.Deliveries[0].ID, false)
	b.settle(settlement(b.due("a", egress.LaneFirst)[0], egress.StateDead))
	b.settle(settlement(b.due("b", egress.LaneFirst)[0], egress.StateDelivered))
	b.wantBody(r.Deliveries[0].ID, false) // the one that was not made needs none
	if r := b.accept(event("", "body"), "a"); r.Deliveries[0].Full {
		b.Error("still full after one has ended")
	}
}

func testUnknownEndpoint(b *bench) {
	if _, err := b.outbox.Accept(context.Background(), event("x", "body"), to("a", "z")); !errors.Is(err, egress.ErrNotFound) {
		b.Errorf("got %v, want ErrNotFound", err)
	}
	if _, err := b.outbox.Accept(context.Background(), event("x", "body"), to("a", "a")); err == nil {
		b.Error("one endpoint twice is taken")
	}
	b.wantDue("a")
	if r := b.accept(event("x", "body"), "a"); r.Repeat {
		b.Error("the event that was refused is there")
	}
	if ds := b.due("z", egress.LaneFirst); len(ds) != 0 {
		b.Errorf("at an unknown endpoint waits %v", ds)
	}
}

func testContextEnded(b *bench) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.outbox.Accept(gone, event("x", "body"), to("a")); !errors.Is(err, context.Canceled) {
		b.Errorf("got %v, want context.Canceled", err)
	}
	b.wantDue("a")
}

func testContextEnds(b *bench) {
	for i := range EndpointDeliveries {
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		id := string(rune('p' + i))
		_, err := b.outbox.Accept(ctx, event(id, "body"), to("a", "b"))
		if err != nil && !errors.Is(err, context.Canceled) {
			b.Fatalf("accept: %v", err)
		}
		synctest.Wait()
		if r := b.accept(event(id, "body"), "a", "b"); err == nil && !r.Repeat {
			b.Errorf("%s was answered, and is not there", id)
		}
		b.wantBody(b.accept(event(id, "body"), "a", "b").Deliveries[1].ID, true)
	}
	if at, bt := len(b.due("a", egress.LaneFirst)), len(b.due("b", egress.LaneFirst)); at != EndpointDeliveries || bt != at {
		b.Errorf("%d wait at a, %d at b, want %d", at, bt, EndpointDeliveries)
	}
}

func testNumbers(b *bench) {
	var last uint64
	for i := range 20 {
		e := event("", "body")
		b.accept(e, []string{"a", "b", "c"}[i%3])
		if e.Seq <= last {
			b.Fatalf("number %d after %d", e.Seq, last)
		}
		if ms := int64(e.Seq >> 20); ms != time.Now().UnixMilli() {
			b.Errorf("number of millisecond %d, want %d", ms, time.Now().UnixMilli())
		}
		last = e.Seq
		if i%5 == 4 {
			b.restart("a", "b", "c")
		}
		if i%7 == 6 {
			time.Sleep(time.Millisecond)
		}
	}
}

func testDue(b *bench) {
	var first []egress.DeliveryID
	for i := range 6 {
		first = append(first, b.accept(event("", "body"), "a").Deliveries[0].ID)
		if i%2 == 1 {
			time.Sleep(time.Millisecond)
		}
	}
	b.accept(event("", "body"), "b")
	// The last two fail, and the later of them shall be tried sooner.
	for i, wait := range []time.Duration{time.Hour, time.Minute} {
		s := settlement(b.delivery(first[4+i]), egress.StateWaiting)
		s.Due = time.Now().Add(wait).Truncate(time.Millisecond)
		b.settle(s)
	}
	for _, tt := range []struct {
		name string
		lane egress.Lane
		want []egress.DeliveryID
	}{
		{"first attempts", egress.LaneFirst, first[:4]},
		{"retries", egress.LaneRetry, []egress.DeliveryID{first[5], first[4]}},
	} {
		for n := 1; n <= 5; n++ {
			var got []egress.DeliveryID
			var after *egress.Delivery
			for more := true; more; {
				ds, err := b.outbox.Due([]egress.Delivery{{Endpoint: "kept"}}, "a", tt.lane, after, n)
				if err != nil || len(ds) == 0 || ds[0].Endpoint != "kept" {
					b.Fatalf("%s: %v, %v", tt.name, ds, err)
				}
				for _, d := range ds[1:] {
					got = append(got, d.ID)
				}
				if more = len(ds)-1 == n; more {
					after = &ds[len(ds)-1]
				}
			}
			if !slices.Equal(got, tt.want) {
				b.Errorf("%s, %d at a time: %v, want %v", tt.name, n, got, tt.want)
			}
		}
	}
	// The one to go on after may have ended meanwhile.
	after := b.delivery(first[1])
	b.settle(settlement(after, egress.StateDelivered))
	ds, err := b.outbox.Due(nil, "a", egress.LaneFirst, &after, 10)
	if err != nil || len(ds) != 2 || ds[0].ID != first[2] {
		b.Errorf("after one that has ended: %v, %v", ds, err)
	}
	if ds, err := b.outbox.Due(nil, "a", egress.LaneFirst, nil, 0); err != nil || len(ds) != 0 {
		b.Errorf("none asked for: %v, %v", ds, err)
	}
}
