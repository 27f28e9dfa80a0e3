package egress

import (
	"bytes"
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sidehook/sidehook/internal/signature"
)

const rowSeq = uint64(1_764_532_800_123) << seqCountBits

func drawText(t *rapid.T, name string, most int) string {
	return string(rapid.SliceOfN(rapid.Byte(), 0, most).Draw(t, name))
}

// drawTime is a millisecond of this age, or none.
func drawTime(t *rapid.T, name string) time.Time {
	return fromMillis(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 4e12)).Draw(t, name))
}

// TestOutboxRowsComeBack: what is written is read.
func TestOutboxRowsComeBack(t *testing.T) {
	t.Parallel()
	t.Run("event", rapid.MakeCheck(func(t *rapid.T) {
		want := eventRow{
			ID: drawText(t, "id", 256), Tenant: drawText(t, "tenant", 128), Type: drawText(t, "type", 256),
			ContentType: drawText(t, "content type", 100), Accepted: rapid.Int64Range(1, 4e12).Draw(t, "accepted"),
			Bytes: rapid.IntRange(0, 1<<30).Draw(t, "bytes"), Expunged: rapid.Bool().Draw(t, "expunged"),
			Content: [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "content")),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			want.Headers = append(want.Headers, signature.Field{Name: drawText(t, "name", 20), Value: drawText(t, "value", 20)})
		}
		for range rapid.IntRange(0, 3).Draw(t, "targets") {
			want.Targets = append(want.Targets, targetRow{
				rapid.Uint32().Draw(t, "endpoint"), rapid.Bool().Draw(t, "parked"), rapid.Bool().Draw(t, "full"),
			})
		}
		got, err := parseEvent(want.appendTo(nil, rowSeq), rowSeq)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
	}))
	t.Run("delivery", rapid.MakeCheck(func(t *rapid.T) {
		want := deliveryRow{
			State: rapid.SampledFrom([]State{StateWaiting, StateDelivered, StateDead, StateCancelled, StateDiscarded}).Draw(t, "state"),
			Lane:  rapid.SampledFrom([]Lane{LaneFirst, LaneRetry}).Draw(t, "lane"), Shared: rapid.Bool().Draw(t, "shared"),
			NotReached: rapid.Bool().Draw(t, "not reached"), Redelivered: rapid.Bool().Draw(t, "redelivered"),
			Reason:  Outcome(rapid.IntRange(0, int(outcomes)-1).Draw(t, "reason")),
			Created: rapid.Int64Range(0, 4e12).Draw(t, "created"), Due: rapid.Int64Range(0, 4e12).Draw(t, "due"),
			Ended:    rapid.Int64Range(0, 4e12).Draw(t, "ended"),
			Attempts: rapid.IntRange(0, math.MaxInt32).Draw(t, "attempts"), Tries: rapid.IntRange(0, math.MaxInt32).Draw(t, "tries"),
			Bytes: rapid.IntRange(0, math.MaxInt32).Draw(t, "bytes"), Job: rapid.Uint64().Draw(t, "job"),
			Order: orderOf(rapid.SampledFrom([]string{"", "k", "l"}).Draw(t, "order")),
		}
		row := want.appendTo(nil, rowSeq)
		got, err := parseDelivery(row, rowSeq)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
		if shared := row[deliveryFlags]&deliveryShared != 0; shared != want.Shared {
			t.Fatalf("the flag says shared %v, want %v", shared, want.Shared)
		}
	}))
	t.Run("attempt", rapid.MakeCheck(func(t *rapid.T) {
		id := DeliveryID{rowSeq + 7, rapid.Uint32().Draw(t, "endpoint")}
		want := Attempt{
			Delivery: id, N: rapid.IntRange(1, math.MaxInt32).Draw(t, "n"), At: drawTime(t, "at"),
			Trigger: Trigger(rapid.IntRange(1, int(triggers)-1).Draw(t, "trigger")),
			Outcome: Outcome(rapid.IntRange(1, int(outcomes)-1).Draw(t, "outcome")), Counted: rapid.Bool().Draw(t, "counted"),
			Status: rapid.IntRange(0, 999).Draw(t, "status"), Took: time.Duration(rapid.IntRange(0, 1e9).Draw(t, "took")) * time.Microsecond,
			IP: rapid.SampledFrom([]netip.Addr{
				{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("::ffff:192.0.2.1"),
			}).Draw(t, "ip"),
			RetryAfter: time.Duration(rapid.IntRange(0, 86400).Draw(t, "retry after")) * time.Second,
			Answer:     rapid.SliceOfN(rapid.Byte(), 0, maxAnswerBytes).Draw(t, "answer"), AnswerBytes: rapid.Int64Range(0, 1<<62).Draw(t, "answer bytes"),
			Truncated: rapid.Bool().Draw(t, "truncated"), Detail: rapid.StringN(0, -1, maxDetailBytes).Draw(t, "detail"),
		}
		gotID, n, err := parseAttemptKey(appendAttemptKey(nil, id, want.N))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseAttempt(want.appendTo(nil), gotID, n)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
	}))
	t.Run("endpoint", rapid.MakeCheck(func(t *rapid.T) {
		want := endpointRow{rapid.Uint32().Draw(t, "number"), Health{
			Disabled: DisableReason(rapid.IntRange(0, int(disableReasons)-1).Draw(t, "disabled")), DisabledAt: drawTime(t, "disabled at"),
			HeldUntil: drawTime(t, "held"), HoldStep: rapid.IntRange(0, 1000).Draw(t, "step"), FailingSince: drawTime(t, "failing"),
			LastFailure: drawTime(t, "failure"), Warned: rapid.SampledFrom([]int{0, 50, 90}).Draw(t, "warned"),
			LastSuccess: drawTime(t, "success"), LastAttempt: drawTime(t, "attempt"),
		}}
		got, err := parseEndpointRow(want.encode())
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
	}))
}

// TestOutboxRowsThatCannotBe: no row makes a reader panic, and none but its own is taken.
func TestOutboxRowsThatCannotBe(t *testing.T) {
	t.Parallel()
	event := eventRow{ID: "x", Headers: []signature.Field{{Name: "ce-id", Value: "1"}}, Targets: []targetRow{{Endpoint: 1}}}
	attempt := Attempt{N: 1, Trigger: TriggerSchedule, Outcome: OutcomeGone, IP: netip.MustParseAddr("192.0.2.1"), Answer: []byte("x")}
	for _, tt := range []struct {
		name  string
		row   []byte
		parse func([]byte) error
		// cut: not every shorter row is wrong, because the row ends with what may have any length.
		loose bool
	}{
		{"event", event.appendTo(nil, rowSeq), func(b []byte) error { _, err := parseEvent(b, rowSeq); return err }, true},
		{"delivery", (&deliveryRow{State: StateDead, Ended: 5, Job: 1 << 40, Order: orderOf("k")}).appendTo(nil, rowSeq), func(b []byte) error { _, err := parseDelivery(b, rowSeq); return err }, false},
		{"attempt", attempt.appendTo(nil), func(b []byte) error { _, err := parseAttempt(b, DeliveryID{}, 1); return err }, false},
		{"mark", markRow{At: 1, Trigger: TriggerProbe, N: 300}.appendTo(nil), func(b []byte) error { _, err := parseMark(b); return err }, false},
		{"number", numberRow{"a", 1}.encode(), func(b []byte) error { _, err := parseNumberRow(b); return err }, false},
		{"endpoint", (&endpointRow{Number: 1}).encode(), func(b []byte) error { _, err := parseEndpointRow(b); return err }, false},
		{"count", count{rows: 300, bytes: 300}.appendTo(nil), func(b []byte) error { _, err := parseCount(b); return err }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := tt.parse(tt.row); err != nil {
				t.Fatalf("its own row: %v", err)
			}
			for n := range tt.row {
				if err := tt.parse(tt.row[:n]); err == nil && !tt.loose || err != nil && !errors.Is(err, errRow) {
					t.Errorf("cut to %d of %d bytes: %v", n, len(tt.row), err)
				}
			}
			other := bytes.Clone(tt.row)
			other[0] += 1 << 4
			if err := tt.parse(other); !errors.Is(err, errRow) {
				t.Errorf("a later version: %v", err)
			}
		})
		t.Run(tt.name+" of any bytes", rapid.MakeCheck(func(rt *rapid.T) {
			b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(rt, "row")
			if rapid.Bool().Draw(rt, "of this version") && len(b) > 0 {
				b[0] = rowVersion<<4 | b[0]&0xf
			}
			if err := tt.parse(b); err != nil && !errors.Is(err, errRow) {
				rt.Fatal(err)
			}
		}))
	}
}

// TestDueKeysStandInOrder: at an endpoint by lane, then by time, then by acceptance.
func TestDueKeysStandInOrder(t *testing.T) {
	t.Parallel()
	var last []byte
	for _, k := range []dueKey{
		{1, LaneFirst, 5, 9}, {1, LaneFirst, 6, 1}, {1, LaneFirst, 6, 2}, {1, LaneFirst, 1 << 40, 1}, {1, LaneRetry, 1, 1}, {2, LaneFirst, 1, 1},
		{256, LaneFirst, 1, 1},
	} {
		b := k.appendTo(nil)
		if bytes.Compare(last, b) >= 0 {
			t.Errorf("%+v does not come after the one before", k)
		}
		if got, err := parseDueKey(b); got != k || err != nil {
			t.Errorf("read %+v, %v, want %+v", got, err, k)
		}
		last = b
	}
}

// TestAttemptIsBounded: what a receiver answers takes a kilobyte, and no more.
func TestAttemptIsBounded(t *testing.T) {
	t.Parallel()
	a := Attempt{
		Delivery: DeliveryID{rowSeq, 1}, N: 1, At: time.UnixMilli(1).UTC(), Trigger: TriggerSchedule, Outcome: OutcomeServerError,
		Answer: make([]byte, 3<<10), AnswerBytes: 3 << 10, Detail: strings.Repeat("x", maxDetailBytes-1) + "é",
	}
	got, err := parseAttempt(a.appendTo(nil), a.Delivery, a.N)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Answer) != 1<<10 || !got.Truncated || got.AnswerBytes != 3<<10 {
		t.Errorf("answer of %d bytes, truncated %v, %d read", len(got.Answer), got.Truncated, got.AnswerBytes)
	}
	if want := strings.Repeat("x", maxDetailBytes-1); got.Detail != want {
		t.Errorf("detail %q: a character is cut in two", got.Detail[len(got.Detail)-3:])
	}
}

func TestEventIDHoldsItsNumber(t *testing.T) {
	t.Parallel()
	id, again := newEventID(rowSeq), newEventID(rowSeq)
	if id == again {
		t.Errorf("%s twice: it can be guessed", id)
	}
	if seq, ok := seqOfEventID(id); !ok || seq != rowSeq {
		t.Errorf("%s is of event %d, %v, want %d", id, seq, ok, rowSeq)
	}
	if later := newEventID(rowSeq + 1); later < id {
		t.Errorf("%s is after %s", id, later)
	}
	for _, other := range []string{"", "evt_", "evt_x", id[:len(id)-1], id + "0", strings.ToUpper(id), "msg_" + id[4:], "evt_" + strings.Repeat("z", 26)} {
		if seq, ok := seqOfEventID(other); ok {
			t.Errorf("%q is taken for one of ours, of event %d", other, seq)
		}
	}
}
