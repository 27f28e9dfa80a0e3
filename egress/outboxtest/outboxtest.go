// Package outboxtest specifies what an egress.Outbox does, for every implementation of it.
package outboxtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/egress"
)

// EndpointDeliveries is how many deliveries may wait at one endpoint of an outbox under test.
const EndpointDeliveries = 8

// Outbox is an outbox under test: what the dispatcher and the intake use, and how endpoints come and go.
type Outbox interface {
	egress.Outbox
	SetEndpoints(ctx context.Context, ids []string) error
	CancelRemoved(ctx context.Context) error
	SetChanges(egress.Changes)
}

// Open opens the outbox that is kept in folder, with its records, and returns how to end it, with all that it started.
// Opened again with the same folder it is the same outbox after a restart. It is called inside a synctest bubble.
type Open func(t testing.TB, folder string) (o Outbox, r egress.Records, end func())

// Run holds the outbox that open opens to the whole contract.
func Run(t *testing.T, open Open) {
	for _, tt := range []struct {
		name string
		test func(*bench)
	}{
		{"an event waits at each of its endpoints, and is due at once", testAccepted},
		{"an event without an id gets one", testMadeIDs},
		{"an event that nobody wants is kept for its repeat", testNobody},
		{"a repeat gets the first answer", testRepeat},
		{"a repeat gets the first answer after all was delivered, and after a restart", testRepeatLater},
		{"an id with other content is a conflict", testConflict},
		{"a tenant's ids are its own", testTenants},
		{"one of fifty posts of one id at once is taken", testFifty},
		{"an endpoint with as much as may wait gets nothing more", testEndpointFull},
		{"an endpoint that is not known is an error", testUnknownEndpoint},
		{"a context that has ended accepts nothing", testContextEnded},
		{"a context that ends meanwhile leaves an event whole or none", testContextEnds},
		{"numbers go up, over a restart too", testNumbers},
		{"due deliveries come in order, from where the last ended", testDue},
		{"what is delivered is due no more, and its body is gone", testDelivered},
		{"what failed waits until it is due again", testFailed},
		{"what is dead keeps its body", testDead},
		{"a body lives as long as one delivery needs it", testSharedBody},
		{"settling twice is settling once", testSettleTwice},
		{"what cannot be settled is an error", testSettleInvalid},
		{"a delivery that was discarded meanwhile stays so unless it was delivered", testDiscarded},
		{"a delivered one never waits again by an attempt", testDeliveredStays},
		{"a delivery that was redelivered meanwhile waits as that has it", testRedelivered},
		{"an attempt that a kill cut off is logged, and used up nothing", testInterrupted},
		{"a mark of what was settled is forgotten", testMarkSettled},
		{"health is kept, alone and with a settlement", testHealth},
		{"a removed endpoint's deliveries are cancelled", testRemoved},
		{"an endpoint that comes again is a new one", testComesAgain},
		{"what was acknowledged survives a restart", testRestart},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir() // its removal must not wait for the bubble
			synctest.Test(t, func(t *testing.T) {
				b := &bench{T: t, open: open, folder: folder}
				b.start("a", "b", "c")
				defer func() { b.end() }() // a restart puts another one there
				tt.test(b)
			})
		})
	}
	t.Run("model", func(t *testing.T) { testModel(t, open) })
}

// bench is an outbox under test.
type bench struct {
	*testing.T
	open    Open
	folder  string
	outbox  Outbox
	records egress.Records
	heard   *changes
	end     func()
}

func (b *bench) start(endpoints ...string) {
	b.outbox, b.records, b.end = b.open(b.T, b.folder)
	b.heard = new(changes)
	b.outbox.SetChanges(b.heard)
	b.setEndpoints(endpoints...)
}

// restart ends the outbox and opens it again.
func (b *bench) restart(endpoints ...string) {
	b.end()
	b.start(endpoints...)
}

func (b *bench) setEndpoints(ids ...string) {
	b.Helper()
	if err := b.outbox.SetEndpoints(context.Background(), ids); err != nil {
		b.Fatalf("set endpoints: %v", err)
	}
}

// changes is what a Changes heard.
type changes struct {
	mu       sync.Mutex
	accepted []egress.Delivery
}

func (c *changes) Accepted(ds []egress.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted = append(c.accepted, ds...)
}

func (c *changes) Changed(string) {}

// take returns what was accepted since the last take.
func (c *changes) take() []egress.Delivery {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	ds := c.accepted
	c.accepted = nil
	return ds
}

func event(id, content string) *egress.Event {
	return &egress.Event{
		ID: id, Type: "invoice.paid", ContentType: "application/json", Body: []byte(content), Content: sha256.Sum256([]byte(content)),
	}
}

func to(endpoints ...string) []egress.Target {
	var ts []egress.Target
	for _, id := range endpoints {
		ts = append(ts, egress.Target{Endpoint: id})
	}
	return ts
}

func (b *bench) accept(e *egress.Event, endpoints ...string) egress.Receipt {
	b.Helper()
	r, err := b.outbox.Accept(context.Background(), e, to(endpoints...))
	if err != nil {
		b.Fatalf("accept %q: %v", e.ID, err)
	}
	return r
}

// one accepts a new event for a, and returns its delivery.
func (b *bench) one() egress.Delivery {
	b.Helper()
	id := b.accept(event("", "body"), "a").Deliveries[0].ID
	return b.delivery(id)
}

// delivery is a delivery as it is kept.
func (b *bench) delivery(id egress.DeliveryID) egress.Delivery {
	b.Helper()
	d, err := b.records.Delivery(context.Background(), id)
	if err != nil {
		b.Fatalf("delivery %s: %v", id, err)
	}
	return d.Delivery.Delivery
}

func (b *bench) attempts(id egress.DeliveryID) []egress.Attempt {
	b.Helper()
	as, err := b.records.Attempts(context.Background(), id, 0)
	if err != nil {
		b.Fatalf("attempts of %s: %v", id, err)
	}
	return as
}

func (b *bench) due(endpoint string, lane egress.Lane) []egress.Delivery {
	b.Helper()
	ds, err := b.outbox.Due(nil, endpoint, lane, nil, 1000)
	if err != nil {
		b.Fatalf("due at %s: %v", endpoint, err)
	}
	return ds
}

// wantDue compares what waits at an endpoint, in both lanes, with want.
func (b *bench) wantDue(endpoint string, want ...egress.DeliveryID) {
	b.Helper()
	var got []egress.DeliveryID
	for _, lane := range []egress.Lane{egress.LaneFirst, egress.LaneRetry} {
		for _, d := range b.due(endpoint, lane) {
			got = append(got, d.ID)
		}
	}
	if !slices.Equal(got, want) {
		b.Errorf("at %s waits %v, want %v", endpoint, got, want)
	}
}

// wantBody says whether a delivery's event can be loaded.
func (b *bench) wantBody(id egress.DeliveryID, want bool) {
	b.Helper()
	_, err := b.outbox.Load(id)
	if got := err == nil; got != want || !want && !errors.Is(err, egress.ErrNotFound) {
		b.Errorf("load event of %s: %v, want it to be there: %v", id, err, want)
	}
}

func (b *bench) wantDelivery(want egress.Delivery) {
	b.Helper()
	if diff := cmp.Diff(want, b.delivery(want.ID)); diff != "" {
		b.Errorf("delivery (-want +got):\n%s", diff)
	}
}
