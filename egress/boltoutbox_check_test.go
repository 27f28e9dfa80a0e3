package egress

import (
	"strings"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

// TestOutboxRowCheckFinds plants what only the outbox can know to be wrong, in a file whose pages are sound.
func TestOutboxRowCheckFinds(t *testing.T) {
	t.Parallel()
	// What is there before: an event that waits at a, one that waits at a and is delivered to b, and one that is dead at c.
	// In order at b: one that is due, two behind it.
	var waits, shared, delivered, dead, active, behind, last DeliveryID
	link := func(id DeliveryID) chainKey { return chainKey{id.Endpoint, orderOf("k"), id.Event} }
	key := func(id DeliveryID) []byte { return appendDeliveryKey(nil, id) }
	seq := func(id DeliveryID) []byte { return appendSeq(nil, id.Event) }
	rewrite := func(tx *store.Tx, id DeliveryID, change func(*deliveryRow)) error {
		r, err := deliveryOf(tx, id)
		if err != nil {
			return err
		}
		change(&r)
		return tx.Put(deliveryBucket, key(id), r.appendTo(nil, id.Event))
	}
	for _, tt := range []struct {
		name  string
		plant func(tx *store.Tx) error
		want  string
	}{
		{"nothing", func(*store.Tx) error { return nil }, ""},
		{"a delivery that cannot be read", func(tx *store.Tx) error { return tx.Put(deliveryBucket, key(waits), []byte{0xff}) }, "delivery of version 15"},
		{"a delivery's key that cannot be read", func(tx *store.Tx) error { return tx.Put(deliveryBucket, []byte("short"), nil) }, "delivery key of 5 bytes"},
		{"an event that cannot be read", func(tx *store.Tx) error { return tx.Put(eventBucket, seq(waits), []byte{rowVersion << 4}) }, "event cut off"},
		{"an attempt that cannot be read", func(tx *store.Tx) error {
			return tx.Put(attemptBucket, appendAttemptKey(nil, waits, 1), []byte{rowVersion << 4, 0, 0})
		}, "trigger 0"},
		{"a mark that cannot be read", func(tx *store.Tx) error { return tx.Put(markBucket, key(waits), nothing) }, "mark"},
		{"an endpoint that cannot be read", func(tx *store.Tx) error { return tx.Put(endpointBucket, []byte("a"), []byte{1}) }, "endpoint of 1 bytes"},
		{"a due row of what does not wait", func(tx *store.Tx) error {
			return tx.Put(dueBucket, dueKey{delivered.Endpoint, LaneFirst, 1, delivered.Event}.appendTo(nil), nothing)
		}, "does not wait so"},
		{"what waits at another time than it is due", func(tx *store.Tx) error {
			return rewrite(tx, waits, func(r *deliveryRow) { r.Due++ })
		}, "waits, and is not due"},
		{"what waits and is not due", func(tx *store.Tx) error {
			r, err := deliveryOf(tx, waits)
			if err != nil {
				return err
			}
			return tx.Delete(dueBucket, r.dueKey(waits).appendTo(nil))
		}, "waits, and is not due"},
		{"a body that is gone", func(tx *store.Tx) error { return tx.Delete(bodyBucket, seq(waits)) }, "the body is gone, and 1 deliveries need it"},
		{"a dead letter's body that is gone", func(tx *store.Tx) error { return tx.Delete(bodyBucket, seq(dead)) }, "the body is gone, and 1 deliveries need it"},
		{"a body that nobody needs", func(tx *store.Tx) error {
			return rewrite(tx, waits, func(r *deliveryRow) { r.State = StateDelivered })
		}, "no delivery needs it"},
		{"a body of no delivery", func(tx *store.Tx) error { return tx.Put(bodyBucket, appendSeq(nil, 1), nothing) }, "there is a body, and no delivery"},
		{"a body of no delivery after all others", func(tx *store.Tx) error {
			return tx.Put(bodyBucket, appendSeq(nil, 1<<63), nothing)
		}, "there is a body, and no delivery"},
		{"a body of another size", func(tx *store.Tx) error { return tx.Put(bodyBucket, seq(waits), []byte("longer than before")) }, "body of 18 bytes"},
		{"a delivery of no event", func(tx *store.Tx) error { return tx.Delete(eventBucket, seq(waits)) }, "is gone, and has deliveries"},
		{"an id of no event", func(tx *store.Tx) error { return tx.Put(idBucket, idKey("", "x"), appendSeq(nil, 1)) }, "id of event 1, which is gone"},
		{"a shared body that is not counted", func(tx *store.Tx) error { return tx.Delete(openBucket, seq(shared)) }, "nothing counts them"},
		{"a shared body that is counted wrongly", func(tx *store.Tx) error {
			return tx.Put(openBucket, seq(shared), encodeOpen(2))
		}, "2 deliveries need the body: there are 1"},
		{"a count of a body that is not shared", func(tx *store.Tx) error {
			return tx.Put(openBucket, seq(waits), encodeOpen(1))
		}, "there is none that shares it"},
		{"a dead letter that is not listed", func(tx *store.Tx) error { return tx.Delete(deadBucket, key(dead)) }, "listed as dead: false"},
		{"a list of dead letters with one that waits", func(tx *store.Tx) error {
			return tx.Put(deadBucket, key(waits), nothing)
		}, "listed as dead: true"},
		{"a list of dead letters with one that is gone", func(tx *store.Tx) error {
			return tx.Put(deadBucket, key(DeliveryID{1, 1}), nothing)
		}, "is listed as dead, and is gone"},
		{"a log that takes more than is counted", func(tx *store.Tx) error {
			a := Attempt{Delivery: waits, N: 1, At: time.Now(), Trigger: TriggerSchedule, Outcome: OutcomeGone}
			return tx.Put(attemptBucket, appendAttemptKey(nil, waits, 1), a.appendTo(nil))
		}, "bytes more than is counted"},
		{"a count of what is not there", func(tx *store.Tx) error {
			return tx.Put(countBucket, countKey{9, StateDead, 1}.appendTo(nil), count{rows: 7}.appendTo(nil))
		}, "says {Rows:7 Bytes:0}: there are none"},
		{"what is not counted", func(tx *store.Tx) error {
			return rewrite(tx, delivered, func(r *deliveryRow) { r.State = StateDiscarded })
		}, "says {Rows:0 Bytes:0}: there are {Rows:1 Bytes:4}"},
		{"a place in a chain that cannot be read", func(tx *store.Tx) error { return tx.Put(chainBucket, link(last).appendTo(nil), nothing) }, "place in a chain"},
		{"a chain's key that cannot be read", func(tx *store.Tx) error { return tx.Put(chainBucket, []byte("short"), nothing) }, "chain key of 5 bytes"},
		{"one behind that is due", func(tx *store.Tx) error {
			r, err := deliveryOf(tx, behind)
			if err != nil {
				return err
			}
			return tx.Put(dueBucket, r.dueKey(behind).appendTo(nil), nothing)
		}, "does not wait so"},
		{"two that are active", func(tx *store.Tx) error { return link(behind).put(tx, chainActive) }, "2 deliveries are active, not 1"},
		{"none that is active", func(tx *store.Tx) error { return link(active).put(tx, chainBehind) }, "0 deliveries are active, not 1"},
		{"one that is active after one that stops it", func(tx *store.Tx) error { return link(active).put(tx, chainStopped) }, "state 1, place 3 in a chain"},
		{"an active one that is dead", func(tx *store.Tx) error {
			if err := link(behind).put(tx, chainActive); err != nil {
				return err
			}
			return link(active).put(tx, chainStopped)
		}, "1 deliveries are active, not 0"},
		{"one behind that is in no chain", func(tx *store.Tx) error { return tx.Delete(chainBucket, link(last).appendTo(nil)) }, "state 1, place 0 in a chain"},
		{"one in a chain that is gone", func(tx *store.Tx) error { return chainKey{last.Endpoint, orderOf("k"), 1 << 63}.put(tx, chainBehind) }, "is in a chain, and is gone"},
		{"one in a chain that is not its own", func(tx *store.Tx) error {
			return rewrite(tx, last, func(r *deliveryRow) { r.Order = orderOf("other") })
		}, "is in a chain that is not its own"},
		{"one in a chain that has no order", func(tx *store.Tx) error { return link(waits).put(tx, chainActive) }, "state 1, place 1 in a chain"},
		{"an endpoint without its number", func(tx *store.Tx) error { return tx.Delete(numberBucket, appendNumber(nil, waits.Endpoint)) }, "which is nobody's"},
		{"deliveries of an endpoint that never was", func(tx *store.Tx) error {
			if err := tx.Delete(endpointBucket, []byte("a")); err != nil {
				return err
			}
			return tx.Delete(numberBucket, appendNumber(nil, waits.Endpoint))
		}, "which there never was"},
		{"an endpoint that is there and removed", func(tx *store.Tx) error {
			return tx.Put(numberBucket, appendNumber(nil, waits.Endpoint), numberRow{"a", 1}.encode())
		}, "removed at 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			b := openBoltOutbox(t, folder, 0, nil)
			waits = b.mustAccept(t, boltEvent("given", "body"), "a").Deliveries[0].ID
			both := b.mustAccept(t, boltEvent("", "body"), "a", "b")
			shared, delivered = both.Deliveries[0].ID, both.Deliveries[1].ID
			b.mustSettle(t, boltSettlement(Delivery{ID: delivered}, StateDelivered))
			dead = b.mustAccept(t, boltEvent("", "body"), "c").Deliveries[0].ID
			b.mustSettle(t, boltSettlement(Delivery{ID: dead}, StateDead))
			for _, id := range []*DeliveryID{&active, &behind, &last} {
				e := boltEvent("", "body")
				e.Order = "k"
				*id = b.mustAccept(t, e, "b").Deliveries[0].ID
			}
			if err := b.end(); err != nil {
				t.Fatal(err)
			}
			// The name of what is missing is known only now.
			want := tt.want
			if strings.HasSuffix(want, "waits, and is not due") {
				want = waits.String() + " waits, and is not due"
			}
			s, err := store.Open(t.Context(), store.Options{Folder: folder})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Setup(tt.plant); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			report, err := store.Check(t.Context(), s.Path(), store.AllRows(new(RowCheck)))
			if err != nil {
				t.Fatal(err)
			}
			if want == "" {
				if len(report.Problems) != 0 {
					t.Errorf("problems: %v", report.Problems)
				}
				return
			}
			for _, p := range report.Problems {
				if strings.Contains(p.Error(), want) {
					return
				}
			}
			t.Errorf("problems: %v, want one with %q", report.Problems, want)
		})
	}
}
