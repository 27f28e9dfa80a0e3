package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sidehook/sidehook/egress"
)

// testModel lets an outbox and a few maps do the same things, restarts among them, and compares what they say.
func testModel(t *testing.T, open Open) {
	base := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		// A bubble has no deadline to ask for, so only the TB of t is handed on.
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			n++
			folder := filepath.Join(base, fmt.Sprint(n))
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			m := &machine{
				open: open, t: t, folder: folder, live: map[string]bool{"a": true, "b": true, "c": true},
				events: make(map[string]*modelEvent), deliveries: make(map[egress.DeliveryID]*modelDelivery),
			}
			m.start(rt)
			defer func() { m.end() }()
			rt.Repeat(map[string]func(*rapid.T){
				"accept":    m.accept,
				"settle":    m.settle,
				"again":     m.again,
				"mark":      m.mark,
				"discard":   m.discard,
				"redeliver": m.redeliver,
				"endpoints": m.endpoints,
				"wait":      m.wait,
				"restart":   m.restart,
				"":          m.compare,
			})
		})
	})
}

// modelEvent is what the contract says of an event: the answer to it, for every repeat.
type modelEvent struct {
	content string
	receipt egress.Receipt
}

// modelDelivery is what the contract says of a delivery. gone: its endpoint was removed, which cancels it if it waits.
type modelDelivery struct {
	egress.Delivery
	gone   bool
	marked bool
	last   *egress.Settlement
}

type machine struct {
	open       Open
	t          *testing.T
	folder     string
	outbox     Outbox
	records    egress.Records
	end        func()
	live       map[string]bool
	events     map[string]*modelEvent
	deliveries map[egress.DeliveryID]*modelDelivery
}

func (m *machine) start(rt *rapid.T) {
	m.outbox, m.records, m.end = m.open(m.t, m.folder)
	m.setEndpoints(rt)
}

func (m *machine) setEndpoints(rt *rapid.T) {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(m.live)) {
		if m.live[id] {
			ids = append(ids, id)
		}
	}
	if err := m.outbox.SetEndpoints(context.Background(), ids); err != nil {
		rt.Fatalf("set endpoints: %v", err)
	}
	if err := m.outbox.CancelRemoved(context.Background()); err != nil {
		rt.Fatalf("cancel: %v", err)
	}
	for _, d := range m.deliveries {
		d.gone = d.gone || !m.live[d.Endpoint]
		if d.gone && d.State == egress.StateWaiting {
			d.State = egress.StateCancelled
		}
	}
}

func (m *machine) waiting(endpoint string) (n int) {
	for _, d := range m.deliveries {
		if d.Endpoint == endpoint && d.State == egress.StateWaiting {
			n++
		}
	}
	return n
}

func (m *machine) accept(rt *rapid.T) {
	id := rapid.SampledFrom([]string{"", "", "v", "w", "x", "y", "z"}).Draw(rt, "id")
	content := rapid.SampledFrom([]string{"", "one", "one", "two"}).Draw(rt, "content")
	endpoints := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(rt, "endpoints")
	e := event(id, content)
	r, err := m.outbox.Accept(context.Background(), e, to(endpoints...))
	if slices.ContainsFunc(endpoints, func(id string) bool { return !m.live[id] }) {
		if !errors.Is(err, egress.ErrNotFound) {
			rt.Fatalf("accept for a removed endpoint: %v", err)
		}
		return
	}
	first := m.events[id]
	switch {
	case first != nil && first.content != content:
		if !errors.Is(err, egress.ErrConflict) {
			rt.Fatalf("accept %s with other content: %v", id, err)
		}
		return
	case err != nil:
		rt.Fatalf("accept: %v", err)
	case first != nil:
		want := first.receipt
		if !r.Repeat || r.EventID != id || !slices.Equal(r.Deliveries, want.Deliveries) {
			rt.Fatalf("repeat of %s: %+v, want %+v", id, r, want)
		}
		return
	case r.Repeat || len(r.Deliveries) != len(endpoints):
		rt.Fatalf("accept %q for %v: %+v", id, endpoints, r)
	}
	m.events[r.EventID] = &modelEvent{content, r}
	now := time.Now().Truncate(time.Millisecond).UTC()
	for i, d := range r.Deliveries {
		full := m.waiting(endpoints[i]) >= EndpointDeliveries
		if d.Endpoint != endpoints[i] || d.Full != full || d.ID.Event != e.Seq {
			rt.Fatalf("accept for %v: %+v, want full %v", endpoints, d, full)
		}
		if !full {
			m.deliveries[d.ID] = &modelDelivery{Delivery: egress.Delivery{
				ID: d.ID, Endpoint: d.Endpoint, State: egress.StateWaiting, Due: now, Created: now, Bytes: len(content),
			}}
		}
	}
}

// pick draws one of the deliveries.
func (m *machine) pick(rt *rapid.T) *modelDelivery {
	if len(m.deliveries) == 0 {
		rt.Skip("there is no delivery")
	}
	ids := slices.SortedFunc(maps.Keys(m.deliveries), compareIDs)
	return m.deliveries[rapid.SampledFrom(ids).Draw(rt, "delivery")]
}

func compareIDs(a, b egress.DeliveryID) int {
	return slices.Compare([]byte(a.String()), []byte(b.String()))
}

func (m *machine) settle(rt *rapid.T) {
	d := m.pick(rt)
	state := rapid.SampledFrom([]egress.State{egress.StateWaiting, egress.StateWaiting, egress.StateDelivered, egress.StateDead}).Draw(rt, "to")
	s := settlement(d.Delivery, state)
	old := rapid.IntRange(0, 9).Draw(rt, "redelivered meanwhile") == 0 && d.Redelivered
	if old {
		s.Created = s.Created.Add(-time.Second)
	}
	m.settled(rt, s)
	d.last, d.marked = s, false
	d.Tries, d.Reason = s.Attempt.N, s.Attempt.Outcome
	ended := s.Attempt.At.Add(s.Attempt.Took).Truncate(time.Millisecond)
	switch {
	case state == egress.StateDelivered && d.State != egress.StateDelivered:
		d.State, d.Lane, d.Attempts, d.Ended, d.NotReached = state, s.Lane, s.Attempts, ended, false
	case d.State != egress.StateWaiting || old:
	case state == egress.StateWaiting:
		d.Lane, d.Due, d.Attempts = s.Lane, s.Due.Truncate(time.Millisecond), s.Attempts
	default:
		d.State, d.Lane, d.Attempts, d.Ended, d.NotReached = state, s.Lane, s.Attempts, ended, s.NotReached
	}
}

func (m *machine) settled(rt *rapid.T, s *egress.Settlement) {
	done := make(chan error, 1)
	m.outbox.Settle(s, func(err error) { done <- err })
	if err := <-done; err != nil {
		rt.Fatalf("settle: %v", err)
	}
}

// again settles what is settled.
func (m *machine) again(rt *rapid.T) {
	d := m.pick(rt)
	if d.last == nil {
		rt.Skip("not settled yet")
	}
	m.settled(rt, d.last)
}

func (m *machine) mark(rt *rapid.T) {
	d := m.pick(rt)
	m.outbox.Mark(&d.Delivery, time.Now(), egress.TriggerSchedule)
	time.Sleep(50 * time.Millisecond)
	synctest.Wait()
	d.marked = true
}

func (m *machine) discard(rt *rapid.T) {
	d := m.pick(rt)
	_, err := m.records.Discard(context.Background(), d.ID)
	if err != nil {
		rt.Fatalf("discard: %v", err)
	}
	if d.State == egress.StateWaiting || d.State == egress.StateDead {
		d.State = egress.StateDiscarded
		d.Ended = time.Now().Truncate(time.Millisecond).UTC()
	}
}

// redeliver asks for a delivery again; whether that is possible the records' own tests specify.
func (m *machine) redeliver(rt *rapid.T) {
	d := m.pick(rt)
	time.Sleep(time.Second)
	changed, err := m.records.Redeliver(context.Background(), d.ID)
	if err != nil || len(changed) != 1 {
		rt.Fatalf("redeliver: %+v, %v", changed, err)
	}
	if may := !d.gone && m.hasBody(d.ID.Event); (changed[0].Err == nil) != may {
		rt.Fatalf("redeliver %+v: %v, want it to be possible: %v", d.Delivery, changed[0].Err, may)
	}
	if changed[0].Err == nil {
		detail, err := m.records.Delivery(context.Background(), d.ID)
		if err != nil || detail.Delivery.State != egress.StateWaiting || detail.Delivery.Attempts != 0 {
			rt.Fatalf("redelivered: %+v, %v", detail.Delivery, err)
		}
		d.Delivery = detail.Delivery.Delivery
	}
}

func (m *machine) hasBody(event uint64) bool {
	for id, d := range m.deliveries {
		if id.Event == event && (d.State == egress.StateWaiting || d.State == egress.StateDead) {
			return true
		}
	}
	return false
}

func (m *machine) endpoints(rt *rapid.T) {
	id := rapid.SampledFrom([]string{"b", "c"}).Draw(rt, "endpoint")
	m.live[id] = !m.live[id]
	m.setEndpoints(rt)
	now := time.Now().Truncate(time.Millisecond).UTC()
	for _, d := range m.deliveries {
		if d.State == egress.StateCancelled && d.Ended.IsZero() {
			d.Ended = now
		}
	}
	time.Sleep(time.Millisecond)
}

func (m *machine) wait(rt *rapid.T) {
	// Short, though no time passes: rapid stops when the bubble's clock has gone on for a day.
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute}).Draw(rt, "for"))
}

func (m *machine) restart(rt *rapid.T) {
	m.end()
	m.start(rt)
	for _, d := range m.deliveries {
		if d.marked { // the attempt was cut off
			d.Tries, d.Reason, d.marked = d.Tries+1, egress.OutcomeInterrupted, false
		}
	}
}

// compare holds the outbox to the maps.
func (m *machine) compare(rt *rapid.T) {
	due := make(map[egress.DeliveryID]bool)
	for endpoint, live := range m.live {
		for _, lane := range []egress.Lane{egress.LaneFirst, egress.LaneRetry} {
			ds, err := m.outbox.Due(nil, endpoint, lane, nil, 1000)
			if err != nil {
				rt.Fatal(err)
			}
			if !live && len(ds) > 0 {
				rt.Fatalf("at the removed endpoint %s waits %+v", endpoint, ds)
			}
			for _, d := range ds {
				due[d.ID] = true
				if want := m.deliveries[d.ID]; want == nil || d != want.Delivery {
					rt.Fatalf("due %+v, want %+v", d, want)
				}
			}
		}
	}
	for id, want := range m.deliveries {
		if (want.State == egress.StateWaiting) != due[id] {
			rt.Fatalf("%+v is due: %v", want.Delivery, due[id])
		}
		got, err := m.records.Delivery(context.Background(), id)
		if err != nil {
			rt.Fatal(err)
		}
		if want.State == egress.StateCancelled {
			got.Delivery.Ended = want.Ended // the time of a step of CancelRemoved
		}
		if got.Delivery.Delivery != want.Delivery {
			rt.Fatalf("delivery %+v, want %+v", got.Delivery.Delivery, want.Delivery)
		}
		if _, err := m.outbox.Load(id); (err == nil) != m.hasBody(id.Event) {
			rt.Fatalf("load event of %+v: %v", want.Delivery, err)
		}
		attempts, err := m.records.Attempts(context.Background(), id, 0)
		if err != nil || len(attempts) != want.Tries {
			rt.Fatalf("%d attempts of %+v, %v", len(attempts), want.Delivery, err)
		}
	}
}
