package egress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestListFilters makes a delivery for every word below, and lists by each thing that a filter may say.
func TestListFilters(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	event := func(id, tenant, eventType string, endpoints ...string) Receipt {
		t.Helper()
		e := boltEvent(id, "body of "+id)
		e.Tenant, e.Type = tenant, eventType
		return b.mustAccept(t, e, endpoints...)
	}
	names := make(map[DeliveryID]string)
	name := func(r Receipt) {
		for _, d := range r.Deliveries {
			names[d.ID] = r.EventID + "/" + d.Endpoint
		}
	}
	name(event("waiting", "", "invoice.paid", "a", "b"))
	name(event("delivered", "", "invoice.paid", "a"))
	name(event("dead", "", "invoice.voided", "a"))
	name(event("dead-unreachable", "", "invoice.voided", "a"))
	name(event("other-tenant", "shop", "invoice.paid", "b"))
	name(event("sending", "", "user.made", "a"))
	name(event("parked", "", "user.made", "c"))
	name(event("discarded", "", "user.made", "a"))
	byName := make(map[string]Delivery)
	for _, endpoint := range []string{"a", "b", "c"} {
		for _, d := range b.due(t, endpoint) {
			byName[names[d.ID]] = d
		}
	}
	b.mustSettle(t, boltSettlement(byName["delivered/a"], StateDelivered))
	b.mustSettle(t, boltSettlement(byName["dead/a"], StateDead))
	unreachable := boltSettlement(byName["dead-unreachable/a"], StateDead)
	unreachable.Attempt.Outcome = OutcomeConnectRefused
	b.mustSettle(t, unreachable)
	if _, err := b.records.Discard(t.Context(), byName["discarded/a"].ID); err != nil {
		t.Fatal(err)
	}
	b.parked["c"] = true
	b.sending[byName["sending/a"].ID] = true

	at := func(name string) time.Time { return time.UnixMilli(seqTime(byName[name].ID.Event)) }
	for _, tt := range []struct {
		name   string
		filter Filter
		want   []string // newest first
	}{
		{"nothing said", Filter{}, []string{
			"discarded/a", "parked/c", "sending/a", "other-tenant/b", "dead-unreachable/a", "dead/a", "delivered/a", "waiting/b", "waiting/a",
		}},
		{"an endpoint", Filter{Endpoint: "b"}, []string{"other-tenant/b", "waiting/b"}},
		{"no endpoint of ours", Filter{Endpoint: "z"}, nil},
		{"WAITING is neither SENDING nor PARKED", Filter{State: StateWaiting}, []string{"other-tenant/b", "waiting/b", "waiting/a"}},
		{"WAITING at an endpoint, by its queue", Filter{State: StateWaiting, Endpoint: "a"}, []string{"waiting/a"}},
		{"SENDING", Filter{State: StateSending}, []string{"sending/a"}},
		{"SENDING at an endpoint", Filter{State: StateSending, Endpoint: "a"}, []string{"sending/a"}},
		{"SENDING at another", Filter{State: StateSending, Endpoint: "b"}, nil},
		{"PARKED", Filter{State: StateParked}, []string{"parked/c"}},
		{"PARKED where nothing is", Filter{State: StateParked, Endpoint: "a"}, nil},
		{"DELIVERED", Filter{State: StateDelivered}, []string{"delivered/a"}},
		{"DEAD", Filter{State: StateDead}, []string{"dead-unreachable/a", "dead/a"}},
		{"DEAD at an endpoint", Filter{State: StateDead, Endpoint: "b"}, nil},
		{"DISCARDED", Filter{State: StateDiscarded}, []string{"discarded/a"}},
		{"CANCELLED", Filter{State: StateCancelled}, nil},
		{"a tenant", Filter{Tenant: "shop"}, []string{"other-tenant/b"}},
		{"a type", Filter{Type: "invoice.voided"}, []string{"dead-unreachable/a", "dead/a"}},
		{"a type that only begins so", Filter{Type: "invoice"}, nil},
		{"a reason", Filter{Reason: OutcomeConnectRefused}, []string{"dead-unreachable/a"}},
		{"all at once", Filter{Endpoint: "a", State: StateDead, Type: "invoice.voided", Reason: OutcomeRejected}, []string{"dead/a"}},
		{"in the future", Filter{Since: time.Now().Add(time.Hour)}, nil},
		{"since the first", Filter{Since: at("waiting/a"), State: StateDelivered}, []string{"delivered/a"}},
		{"until the first: exclusive", Filter{Until: at("waiting/a")}, nil},
		{"backwards", Filter{Since: time.Now().Add(time.Hour), Until: time.Now().Add(-time.Hour)}, nil},
		{"before 1970", Filter{Until: time.Unix(-1, 0)}, nil},
		{"until the year 9999", Filter{Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), State: StateDelivered}, []string{"delivered/a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for rows := 1; rows <= 20; rows += 3 {
				var got []string
				for _, d := range b.all(t, tt.filter, rows) {
					got = append(got, names[d.ID])
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("in pages of %d (-want +got):\n%s", rows, diff)
				}
			}
			if n, err := b.records.Count(t.Context(), tt.filter); err != nil || n != int64(len(tt.want)) {
				t.Errorf("count %d, %v, want %d", n, err, len(tt.want))
			}
		})
	}

	got := b.all(t, Filter{Tenant: "shop"}, 10)[0]
	want := DeliveryRecord{
		Delivery: byName["other-tenant/b"], EventID: "other-tenant", Tenant: "shop", Type: "invoice.paid",
		Accepted: byName["other-tenant/b"].Created,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	b.mustEnd(t)
}

func TestListRefusesCursors(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	for _, cursor := range []string{"x", "AAAA", "not base64!", cursorOf(DeliveryID{1, 1}) + "AAAA"} {
		if _, err := b.records.ListDeliveries(t.Context(), Filter{}, cursor, 1); !errors.Is(err, ErrCursor) {
			t.Errorf("cursor %q: %v, want ErrCursor", cursor, err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.records.ListDeliveries(cancelled, Filter{}, "", 1); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
		t.Errorf("list with a cancelled context: %v, want that and nothing about the store", err)
	}
	b.mustEnd(t)
}

// TestListIsBounded: one call reads so many rows and no more, and gives a cursor to go on from.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	now := time.Now()
	oldest := b.write(t, recordsBulk{rows: 1, first: now.Add(-2 * time.Hour), endpoint: "b", state: StateDelivered})
	b.write(t, recordsBulk{rows: maxPageScan + 1, first: now.Add(-time.Hour), endpoint: "a", state: StateDelivered})
	f := Filter{Endpoint: "b", State: StateDelivered}
	first, err := b.records.ListDeliveries(t.Context(), f, "", 10)
	if err != nil || len(first.Deliveries) != 0 || first.Next == "" {
		t.Fatalf("first page of %d rows, next %q, %v, want an empty one with a cursor", len(first.Deliveries), first.Next, err)
	}
	second, err := b.records.ListDeliveries(t.Context(), f, first.Next, 10)
	if err != nil || len(second.Deliveries) != 1 || second.Deliveries[0].ID != oldest[0] {
		t.Errorf("second page %+v, %v, want the oldest", second, err)
	}
	// A time bound spares the reading.
	f.Since = now
	if page, err := b.records.ListDeliveries(t.Context(), f, "", 10); err != nil || len(page.Deliveries) != 0 || page.Next != "" {
		t.Errorf("since now: %+v, %v, want an end without rows", page, err)
	}
	// What has an index of its own is found at once, however much there is beside it.
	dead := b.write(t, recordsBulk{rows: 1, first: now.Add(-3 * time.Hour), endpoint: "b", state: StateDead})
	waiting := b.write(t, recordsBulk{rows: 1, first: now.Add(-4 * time.Hour), endpoint: "b", state: StateWaiting})
	for state, want := range map[State]DeliveryID{StateDead: dead[0], StateWaiting: waiting[0]} {
		page, err := b.records.ListDeliveries(t.Context(), Filter{Endpoint: "b", State: state}, "", 10)
		if err != nil || len(page.Deliveries) != 1 || page.Deliveries[0].ID != want {
			t.Errorf("%s: %+v, %v, want one delivery", state, page, err)
		}
	}
	// More rows than may be asked for.
	page, err := b.records.ListDeliveries(t.Context(), Filter{}, "", MaxPageRows+1)
	if err != nil || len(page.Deliveries) != MaxPageRows {
		t.Errorf("page of %d rows, %v, want %d", len(page.Deliveries), err, MaxPageRows)
	}
	if n, err := b.records.Count(t.Context(), Filter{}); err != nil || n != maxPageScan+4 {
		t.Errorf("count %d, %v, want %d", n, err, maxPageScan+4)
	}
	b.mustEnd(t)
}

// TestListAgainstModel compares listings, counts and the summary with what a list in memory says.
func TestListAgainstModel(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	endpoints := []string{"a", "b", "c"}
	onDisk := []State{StateWaiting, StateDelivered, StateDead, StateDiscarded}
	start := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	type entry struct {
		id       DeliveryID
		endpoint string
		state    State
		at       time.Time
	}
	var model []entry
	for i := range 120 {
		e := entry{endpoint: endpoints[i*i%3], state: onDisk[i*7%len(onDisk)], at: start.Add(time.Duration(i) * time.Second)}
		e.id = b.write(t, recordsBulk{rows: 1, first: e.at, endpoint: e.endpoint, state: e.state, body: i})[0]
		if i%5 == 0 && e.state == StateWaiting {
			b.sending[e.id] = true
		}
		model = append(model, e)
	}
	b.parked["c"] = true
	slices.Reverse(model)
	rapid.Check(t, func(t *rapid.T) {
		f := Filter{
			Endpoint: rapid.SampledFrom([]string{"", "a", "b", "c", "none"}).Draw(t, "endpoint"),
			State:    State(rapid.IntRange(0, int(states)-1).Draw(t, "state")),
		}
		at := func(name string) time.Time {
			return start.Add(time.Duration(rapid.IntRange(-1000, 121_000).Draw(t, name)) * time.Millisecond)
		}
		if rapid.Bool().Draw(t, "has since") {
			f.Since = at("since")
		}
		if rapid.Bool().Draw(t, "has until") {
			f.Until = at("until")
		}
		var want []DeliveryID
		for _, e := range model {
			shown := e.state
			if e.state == StateWaiting && b.sending[e.id] {
				shown = StateSending
			} else if e.state == StateWaiting && e.endpoint == "c" {
				shown = StateParked
			}
			if (f.Endpoint == "" || f.Endpoint == e.endpoint) && (f.State == 0 || f.State == shown) &&
				(f.Since.IsZero() || !e.at.Before(f.Since)) && (f.Until.IsZero() || e.at.Before(f.Until)) {
				want = append(want, e.id)
			}
		}
		var got []DeliveryID
		for _, d := range b.all(t, f, rapid.IntRange(1, 130).Draw(t, "rows")) {
			got = append(got, d.ID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v lists %v, want %v", f, got, want)
		}
		if n, err := b.records.Count(context.Background(), f); err != nil || n != int64(len(want)) {
			t.Fatalf("%+v counts %d, %v, want %d", f, n, err, len(want))
		}
	})
	b.mustEnd(t)
}

// TestSummary compares with what was written: counts and bytes, how old the oldest is, and the last reason.
func TestSummary(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	now := time.Now().UTC()
	b.write(t, recordsBulk{rows: 3, first: now.Add(-50 * time.Hour), endpoint: "a", state: StateWaiting, body: 10})
	b.write(t, recordsBulk{rows: 2, first: now.Add(-2 * time.Hour), endpoint: "a", state: StateWaiting, body: 7})
	b.write(t, recordsBulk{rows: 4, first: now.Add(-time.Hour), endpoint: "a", state: StateDead, body: 100, reason: OutcomeServerError})
	b.write(t, recordsBulk{rows: 1, first: now.Add(-100 * time.Hour), endpoint: "b", state: StateDelivered, body: 1, reason: OutcomeDelivered})
	if err := b.SetEndpoints(t.Context(), []string{"a", "c"}); err != nil {
		t.Fatal(err)
	}
	got, err := b.records.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []StateSummary{
		{Endpoint: "a", State: StateWaiting, Count: 5, Bytes: 44, Oldest: now.Add(-50 * time.Hour).Truncate(time.Hour)},
		{Endpoint: "a", State: StateDead, Count: 4, Bytes: 400, Oldest: now.Add(-time.Hour).Truncate(24 * time.Hour), Reason: OutcomeServerError},
		{Endpoint: "b", Removed: true, State: StateDelivered, Count: 1, Bytes: 1, Oldest: now.Add(-100 * time.Hour).Truncate(24 * time.Hour),
			Reason: OutcomeDelivered},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	b.records.parked = func(endpoint string) bool { return endpoint == "a" }
	if got, err = b.records.Summary(t.Context()); err != nil {
		t.Fatal(err)
	}
	parked := want[0]
	parked.State = StateParked
	if diff := cmp.Diff([]StateSummary{want[1], parked, want[2]}, got); diff != "" {
		t.Errorf("summary of a disabled endpoint (-want +got):\n%s", diff)
	}
	b.mustEnd(t)
}

// TestListsOfAnEndpointThatCameAgain: to people it is one endpoint, whatever numbers it had.
func TestListsOfAnEndpointThatCameAgain(t *testing.T) {
	t.Parallel()
	b := openRecords(t, t.TempDir(), 0)
	old := b.mustAccept(t, boltEvent("old", "1"), "a").Deliveries[0].ID
	if err := b.SetEndpoints(t.Context(), []string{"b"}); err != nil {
		t.Fatal(err)
	}
	if err := b.CancelRemoved(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.SetEndpoints(t.Context(), []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	again := b.mustAccept(t, boltEvent("new", "2"), "a").Deliveries[0].ID
	var got []string
	for _, d := range b.all(t, Filter{Endpoint: "a"}, 10) {
		got = append(got, fmt.Sprintf("%s %s %v", d.EventID, d.State, d.ID == old || d.ID == again))
	}
	if want := []string{"new WAITING true", "old CANCELLED true"}; !slices.Equal(got, want) {
		t.Errorf("list %q, want %q", got, want)
	}
	summary, err := b.records.Summary(t.Context())
	if err != nil || len(summary) != 2 || summary[0].Removed || summary[1].Removed {
		t.Errorf("summary %+v, %v, want WAITING and CANCELLED of an endpoint that is there", summary, err)
	}
	b.mustEnd(t)
}
