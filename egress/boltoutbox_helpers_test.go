package egress

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

// boltBench is a BoltOutbox on a store that runs.
type boltBench struct {
	*BoltOutbox
	store   *store.Store
	faults  *storetest.Faults
	commits *atomic.Int64
	heard   *boltChanges
	end     func() error
}

// boltChanges is what a Changes heard.
type boltChanges struct {
	mu       sync.Mutex
	accepted []Delivery
	changed  []string
}

func (c *boltChanges) Accepted(ds []Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted = append(c.accepted, ds...)
}

func (c *boltChanges) Changed(endpoint string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = append(c.changed, endpoint)
}

// take returns what was heard since the last take.
func (c *boltChanges) take() (accepted []Delivery, changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	accepted, changed = c.accepted, c.changed
	c.accepted, c.changed = nil, nil
	return accepted, changed
}

// openBoltOutbox opens the outbox in folder with the endpoints a, b and c; when it ends the file is checked whole.
// change, if not nil, changes the configuration.
func openBoltOutbox(t testing.TB, folder string, limit int64, change func(*BoltOutboxConfig)) *boltBench {
	t.Helper()
	b := runBoltOutbox(t, folder, limit, change)
	if err := b.SetEndpoints(context.Background(), []string{"a", "b", "c"}); err != nil {
		t.Fatal(err)
	}
	return b
}

// openBoltOutboxAgain opens the outbox in folder as it was left.
func openBoltOutboxAgain(t testing.TB, folder string) *boltBench {
	t.Helper()
	return runBoltOutbox(t, folder, 0, nil)
}

func runBoltOutbox(t testing.TB, folder string, limit int64, change func(*BoltOutboxConfig)) *boltBench {
	t.Helper()
	b := &boltBench{faults: new(storetest.Faults), commits: new(atomic.Int64), heard: new(boltChanges)}
	s, err := store.Open(context.Background(), store.Options{
		Folder:   folder,
		Limit:    limit,
		Commit:   b.faults.Commit,
		OnCommit: func(time.Duration, int, error) { b.commits.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.store = s
	cfg := BoltOutboxConfig{Store: s}
	if change != nil {
		change(&cfg)
	}
	if b.BoltOutbox, err = NewBoltOutbox(cfg); err != nil {
		t.Fatal(err)
	}
	b.SetChanges(b.heard)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	over := false
	b.end = func() error {
		if over {
			return nil
		}
		over = true
		cancel()
		err := <-ended
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		storetest.CheckFile(t, s.Path(), &RowCheck{})
		return err
	}
	return b
}

// boltEvent is an event with that id and content.
func boltEvent(id, content string) *Event {
	return &Event{
		ID: id, Type: "invoice.paid", ContentType: "application/json", Body: []byte(content), Content: sha256.Sum256([]byte(content)),
	}
}

func (b *boltBench) mustAccept(t testing.TB, e *Event, endpoints ...string) Receipt {
	t.Helper()
	var targets []Target
	for _, id := range endpoints {
		targets = append(targets, Target{Endpoint: id})
	}
	r, err := b.Accept(context.Background(), e, targets)
	if err != nil {
		t.Fatalf("accept %q: %v", e.ID, err)
	}
	return r
}

// due returns all that waits at an endpoint, first attempts first.
func (b *boltBench) due(t testing.TB, endpoint string) []Delivery {
	t.Helper()
	var all []Delivery
	for _, lane := range []Lane{LaneFirst, LaneRetry} {
		ds, err := b.Due(nil, endpoint, lane, nil, 1<<20)
		if err != nil {
			t.Fatalf("due at %s: %v", endpoint, err)
		}
		all = append(all, ds...)
	}
	return all
}

// boltSettlement is the end of the next attempt of d: delivered, dead, or due again in a minute.
func boltSettlement(d Delivery, state State) *Settlement {
	s := &Settlement{
		Attempt: Attempt{
			Delivery: d.ID, N: d.Tries + 1, At: time.Now(), Trigger: TriggerSchedule, Outcome: OutcomeRejected, Counted: true,
			Status: 400, Took: 3 * time.Millisecond, Answer: []byte("no"), AnswerBytes: 2,
		},
		Created: d.Created, State: state, Lane: LaneRetry, Attempts: d.Attempts + 1,
	}
	switch state {
	case StateDelivered:
		s.Attempt.Outcome, s.Attempt.Status = OutcomeDelivered, 200
	case StateWaiting:
		s.Due = time.Now().Add(time.Minute)
	}
	return s
}

// settle waits until s is on disk.
func (b *boltBench) settle(s *Settlement) error {
	done := make(chan error, 1)
	b.Settle(s, func(err error) { done <- err })
	return <-done
}

func (b *boltBench) mustSettle(t testing.TB, s *Settlement) {
	t.Helper()
	if err := b.settle(s); err != nil {
		t.Fatalf("settle %s: %v", s.Attempt.Delivery, err)
	}
}

// row reads a delivery's row.
func (b *boltBench) row(t testing.TB, id DeliveryID) deliveryRow {
	t.Helper()
	var r deliveryRow
	if err := b.store.View(func(tx *store.Tx) (err error) {
		r, err = deliveryOf(tx, id)
		return err
	}); err != nil {
		t.Fatalf("row of %s: %v", id, err)
	}
	return r
}

// attempts reads a delivery's log.
func (b *boltBench) attempts(t testing.TB, id DeliveryID) []Attempt {
	t.Helper()
	var all []Attempt
	prefix := appendDeliveryKey(nil, id)
	if err := b.store.View(func(tx *store.Tx) error {
		c := tx.Cursor(attemptBucket)
		for k, v := c.Seek(prefix); len(k) > len(prefix) && slices.Equal(k[:len(prefix)], prefix); k, v = c.Next() {
			id, n, err := parseAttemptKey(k)
			if err != nil {
				return err
			}
			a, err := parseAttempt(v, id, n)
			if err != nil {
				return err
			}
			all = append(all, a)
		}
		return nil
	}); err != nil {
		t.Fatalf("attempts of %s: %v", id, err)
	}
	return all
}

// totalsText is what Totals says, as "endpoint STATE rows/bytes" in order.
func (b *boltBench) totalsText() []string {
	var all []string
	b.Totals(func(endpoint string, s State, n Count) {
		all = append(all, fmt.Sprintf("%s %d %d/%d", endpoint, s, n.Rows, n.Bytes))
	})
	slices.Sort(all)
	return all
}
