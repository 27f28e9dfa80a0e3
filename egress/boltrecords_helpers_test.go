package egress

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sidehook/sidehook/internal/store"
)

// recordsBench is a BoltRecords on an outbox that runs. What it calls parked and sending the test says.
type recordsBench struct {
	*boltBench
	records *BoltRecords

	mu      sync.Mutex
	parked  map[string]bool
	sending map[DeliveryID]bool
}

func openRecords(t testing.TB, folder string, limit int64) *recordsBench {
	t.Helper()
	b := &recordsBench{boltBench: openBoltOutbox(t, folder, limit, nil), parked: make(map[string]bool), sending: make(map[DeliveryID]bool)}
	var err error
	b.records, err = NewBoltRecords(BoltRecordsConfig{
		Outbox: b.BoltOutbox,
		Parked: func(endpoint string) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.parked[endpoint]
		},
		Sending: func(id DeliveryID) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.sending[id]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// run carries on with jobs until the function that it returns is called.
func (b *recordsBench) run(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.records.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

// mustEnd ends the store and has its file checked.
func (b *recordsBench) mustEnd(t testing.TB) {
	t.Helper()
	if err := b.end(); err != nil {
		t.Errorf("store: %v", err)
	}
}

// recordsBulk says what to write in one go, past Accept and Settle: rows deliveries to one endpoint, each of an event of its
// own, accepted a millisecond after each other from first on.
type recordsBulk struct {
	rows     int
	first    time.Time
	endpoint string
	state    State
	ended    time.Time // of one that has ended; zero: when its event was accepted
	reason   Outcome
	attempts int // logged of each, made when the event was accepted, with an answer of answer bytes
	answer   int
	body     int // its size
}

// write writes them and returns their ids.
func (b *recordsBench) write(t testing.TB, bulk recordsBulk) []DeliveryID {
	t.Helper()
	number, ok := b.endpoints.Load().numbers[bulk.endpoint]
	if !ok {
		t.Fatalf("no endpoint %q", bulk.endpoint)
	}
	ids := make([]DeliveryID, bulk.rows)
	for i := range ids {
		ids[i] = DeliveryID{uint64(bulk.first.UnixMilli()+int64(i)) << seqCountBits, number}
	}
	const batch = 5000
	for from := 0; from < bulk.rows; from += batch {
		op := &recordsBulkOp{b.BoltOutbox, &bulk, ids[from:min(from+batch, bulk.rows)], make(chan error, 1)}
		if err := b.store.Submit(op, store.Urgent); err != nil {
			t.Fatal(err)
		}
		if err := <-op.done; err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

type recordsBulkOp struct {
	b    *BoltOutbox
	bulk *recordsBulk
	ids  []DeliveryID
	done chan error
}

func (op *recordsBulkOp) Apply(tx *store.Tx) error {
	for _, id := range op.ids {
		if err := op.write(tx, id); err != nil {
			return err
		}
	}
	return nil
}

func (op *recordsBulkOp) write(tx *store.Tx, id DeliveryID) error {
	accepted := seqTime(id.Event)
	key, body := appendSeq(nil, id.Event), make([]byte, op.bulk.body)
	event := eventRow{
		ID: newEventID(id.Event), Type: "invoice.paid", Accepted: accepted, Content: sha256.Sum256(key), Bytes: len(body),
		Targets: []targetRow{{Endpoint: id.Endpoint}},
	}
	row := deliveryRow{
		State: StateWaiting, Created: accepted, Due: accepted, Bytes: len(body), Reason: op.bulk.reason, Tries: op.bulk.attempts,
	}
	c, err := op.b.totals.changesOf(tx)
	if err != nil {
		return err
	}
	c.enter(id.Endpoint, &row, accepted)
	err = errors.Join(
		tx.Append(eventBucket, key, event.appendTo(nil, id.Event)),
		tx.Append(bodyBucket, key, body),
		tx.Append(deliveryBucket, appendDeliveryKey(nil, id), row.appendTo(nil, id.Event)),
		tx.Append(dueBucket, row.dueKey(id).appendTo(nil), nothing),
	)
	for n := range op.bulk.attempts {
		a := Attempt{
			Delivery: id, N: n + 1, At: fromMillis(accepted), Trigger: TriggerSchedule, Outcome: OutcomeRejected,
			Answer: make([]byte, op.bulk.answer),
		}
		err = errors.Join(err, op.b.logAttempt(tx, appendAttemptKey(nil, id, a.N), a.appendTo(nil)))
	}
	if to := row; op.bulk.state != StateWaiting {
		to.State, to.Ended = op.bulk.state, accepted
		if !op.bulk.ended.IsZero() {
			to.Ended = op.bulk.ended.UnixMilli()
		}
		err = errors.Join(err, op.b.move(tx, id, &row, &to))
	}
	return err
}

func (op *recordsBulkOp) Done(err error) { op.done <- err }

// delivery reads a delivery as it is on disk, without the name of its endpoint.
func (b *recordsBench) delivery(t testing.TB, id DeliveryID) Delivery {
	t.Helper()
	r := b.row(t, id)
	return r.delivery(id, "")
}

// mustHave checks the states of deliveries, as they are on disk.
func (b *recordsBench) mustHave(t testing.TB, want State, ids ...DeliveryID) {
	t.Helper()
	for _, id := range ids {
		if got := b.row(t, id).State; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
}

// rows counts the rows of a bucket.
func (b *recordsBench) rows(t testing.TB, bucket []byte) int {
	t.Helper()
	n := 0
	if err := b.store.View(func(tx *store.Tx) error {
		c := tx.Cursor(bucket)
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// all lists everything that f selects, so many rows a page.
func (b *recordsBench) all(t rapid.TB, f Filter, rows int) []DeliveryRecord {
	t.Helper()
	var all []DeliveryRecord
	cursor := ""
	for {
		page, err := b.records.ListDeliveries(context.Background(), f, cursor, rows)
		if err != nil {
			t.Fatalf("list %+v: %v", f, err)
		}
		if len(page.Deliveries) > rows {
			t.Fatalf("page of %d rows, at most %d were asked for", len(page.Deliveries), rows)
		}
		all = append(all, page.Deliveries...)
		if page.Next == "" {
			return all
		}
		if page.Next == cursor {
			t.Fatalf("the cursor %q leads to itself", cursor)
		}
		cursor = page.Next
	}
}
