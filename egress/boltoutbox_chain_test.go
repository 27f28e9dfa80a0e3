package egress

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

	"github.com/sidehook/sidehook/internal/store/storetest"
)

// TestOrder lets an outbox and a few maps keep the order of the same events, with restarts and failed commits among what
// happens, and compares what is due, and whether whoever sends was told of it.
func TestOrder(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			n++
			folder := filepath.Join(base, fmt.Sprint(n))
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			m := &orderModel{
				t: t, folder: folder, stop: make(map[string]bool), all: make(map[DeliveryID]*ordered), active: make(map[orderedKey]DeliveryID),
				told: make(map[DeliveryID]bool),
			}
			m.start(rt)
			defer func() {
				if err := m.b.end(); err != nil {
					rt.Errorf("run: %v", err)
				}
			}()
			rt.Repeat(map[string]func(*rapid.T){
				"accept":    m.accept,
				"accept 2":  m.accept,
				"settle":    m.settle,
				"settle 2":  m.settle,
				"late":      m.late,
				"discard":   m.discard,
				"redeliver": m.redeliver,
				"expunge":   m.expunge,
				"stop":      m.toggle,
				"remove":    m.remove,
				"restart":   m.restart,
				"":          m.compare,
			})
		})
	})
}

type orderedKey struct {
	endpoint uint32
	order    string
}

// ordered is a delivery of the model.
type ordered struct {
	Delivery
	key     orderedKey
	event   string
	stopped bool // dead, and stops its key
}

type orderModel struct {
	t       *testing.T
	folder  string
	b       *boltBench
	records *BoltRecords
	stop    map[string]bool // endpoints whose dead letters stop
	all     map[DeliveryID]*ordered
	// active is the one delivery of a key that is due.
	active map[orderedKey]DeliveryID
	// told are the deliveries of which whoever sends has heard.
	told map[DeliveryID]bool
}

func (m *orderModel) start(rt *rapid.T) {
	m.b = openBoltOutbox(m.t, m.folder, 0, func(c *BoltOutboxConfig) {
		c.StopOnDead = func(endpoint string) bool { return m.stop[endpoint] }
	})
	var err error
	if m.records, err = NewBoltRecords(BoltRecordsConfig{Outbox: m.b.BoltOutbox}); err != nil {
		rt.Fatal(err)
	}
	clear(m.told)
	m.hear("")
}

// hear takes note of what is due at an endpoint, or at all.
func (m *orderModel) hear(endpoint string) {
	for _, id := range []string{"a", "b", "c"} {
		if endpoint == "" || id == endpoint {
			for _, d := range m.b.due(m.t, id) {
				m.told[d.ID] = true
			}
		}
	}
}

// choose makes the first that waits of a key active, unless one is, or one before it is dead and stops it.
func (m *orderModel) choose(key orderedKey) {
	if _, ok := m.active[key]; ok || key.order == "" {
		return
	}
	for _, id := range slices.SortedFunc(maps.Keys(m.all), compareIDs) {
		switch d := m.all[id]; {
		case d.key != key:
		case d.stopped:
			return
		case d.State == StateWaiting:
			m.active[key] = id
			return
		}
	}
}

// becomes gives a delivery another state.
func (m *orderModel) becomes(d *ordered, s State) {
	d.State, d.stopped = s, false
	if s != StateWaiting && m.active[d.key] == d.ID {
		delete(m.active, d.key)
		d.stopped = s == StateDead && m.stop[d.Endpoint]
	}
	m.choose(d.key)
}

// due reports whether a delivery is to be sent.
func (m *orderModel) due(d *ordered) bool {
	return d.State == StateWaiting && (d.key.order == "" || m.active[d.key] == d.ID)
}

// fault draws how the next commit ends; whether it is written, and whether it fails.
func (m *orderModel) fault(rt *rapid.T) (written, fails bool) {
	switch rapid.IntRange(0, 9).Draw(rt, "fault") {
	case 0:
		m.b.faults.Next(storetest.Fault{Err: storetest.DiskFull})
		return false, true
	case 1:
		m.b.faults.Next(storetest.Fault{Err: storetest.DiskFull, Written: true})
		return true, true
	}
	return true, false
}

// agrees reports whether err is that of a commit that fails so.
func (m *orderModel) agrees(rt *rapid.T, err error, fails bool) {
	if (err != nil) != fails || fails && !errors.Is(err, ErrFull) {
		rt.Fatalf("got %v, and the commit fails: %v", err, fails)
	}
}

func (m *orderModel) accept(rt *rapid.T) {
	e := boltEvent("", "body")
	e.Order = rapid.SampledFrom([]string{"", "k", "k", "l"}).Draw(rt, "order")
	ends := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID).Draw(rt, "endpoints")
	var targets []Target
	for _, id := range ends {
		targets = append(targets, Target{Endpoint: id})
	}
	written, fails := m.fault(rt)
	_, err := m.b.Accept(context.Background(), e, targets)
	m.agrees(rt, err, fails)
	if !written {
		return
	}
	numbers := m.b.endpoints.Load().numbers
	for _, id := range ends {
		d := &ordered{Delivery: Delivery{ID: DeliveryID{e.Seq, numbers[id]}, Endpoint: id, State: StateWaiting}, event: e.ID}
		d.key = orderedKey{d.ID.Endpoint, e.Order}
		m.all[d.ID] = d
		m.choose(d.key)
	}
}

// pick draws a delivery that fits.
func (m *orderModel) pick(rt *rapid.T, fits func(*ordered) bool) *ordered {
	var ids []DeliveryID
	for _, id := range slices.SortedFunc(maps.Keys(m.all), compareIDs) {
		if fits(m.all[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		rt.Skip("there is no such delivery")
	}
	return m.all[rapid.SampledFrom(ids).Draw(rt, "delivery")]
}

// settle ends an attempt of what is due.
func (m *orderModel) settle(rt *rapid.T) {
	d := m.pick(rt, m.due)
	state := rapid.SampledFrom([]State{StateWaiting, StateDelivered, StateDelivered, StateDead}).Draw(rt, "to")
	row := m.b.row(m.t, d.ID)
	m.fault(rt)
	m.b.mustSettle(m.t, boltSettlement(row.delivery(d.ID, d.Endpoint), state)) // it is tried until it is written
	m.becomes(d, state)
}

// late ends an attempt that was under way when its delivery was ended or redelivered.
func (m *orderModel) late(rt *rapid.T) {
	d := m.pick(rt, func(d *ordered) bool { return !m.due(d) })
	row := m.b.row(m.t, d.ID)
	s := boltSettlement(row.delivery(d.ID, d.Endpoint), rapid.SampledFrom([]State{StateDelivered, StateDead}).Draw(rt, "to"))
	s.Created = s.Created.Add(-time.Second)
	m.fault(rt)
	m.b.mustSettle(m.t, s)
	if s.State == StateDelivered {
		m.becomes(d, StateDelivered)
	}
}

func (m *orderModel) discard(rt *rapid.T) {
	d := m.pick(rt, func(d *ordered) bool { return d.State.needsBody() })
	written, fails := m.fault(rt)
	_, err := m.records.Discard(context.Background(), d.ID)
	m.agrees(rt, err, fails)
	if written {
		m.becomes(d, StateDiscarded)
	}
}

func (m *orderModel) redeliver(rt *rapid.T) {
	d := m.pick(rt, func(d *ordered) bool { return d.State.needsBody() })
	time.Sleep(time.Second)
	written, fails := m.fault(rt)
	_, err := m.records.Redeliver(context.Background(), d.ID)
	m.agrees(rt, err, fails)
	if written {
		m.becomes(d, StateWaiting)
	}
}

func (m *orderModel) expunge(rt *rapid.T) {
	d := m.pick(rt, func(d *ordered) bool { return d.State.needsBody() })
	written, fails := m.fault(rt)
	_, err := m.records.Expunge(context.Background(), "", d.event)
	m.agrees(rt, err, fails)
	for _, other := range m.all {
		if written && other.event == d.event && other.State.needsBody() {
			m.becomes(other, StateDiscarded)
		}
	}
}

// toggle has dead letters of an endpoint stop their keys from now on, or none.
func (m *orderModel) toggle(rt *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "endpoint")
	m.stop[id] = !m.stop[id]
	m.fault(rt)
	if err := m.b.ReleaseDead(context.Background()); err != nil { // it is tried until it is written
		rt.Fatal(err)
	}
	for _, d := range m.all {
		d.stopped = d.stopped && m.stop[d.Endpoint]
	}
	for _, d := range m.all {
		m.choose(d.key)
	}
}

// remove takes an endpoint away and brings it back: as a new one.
func (m *orderModel) remove(rt *rapid.T) {
	ctx := context.Background()
	if err := errors.Join(m.b.SetEndpoints(ctx, []string{"a", "c"}), m.b.CancelRemoved(ctx), m.b.SetEndpoints(ctx, []string{"a", "b", "c"})); err != nil {
		rt.Fatal(err)
	}
	for id, d := range m.all {
		if d.Endpoint == "b" {
			delete(m.all, id)
			delete(m.active, d.key)
		}
	}
}

func (m *orderModel) restart(rt *rapid.T) {
	if err := m.b.end(); err != nil {
		rt.Fatal(err)
	}
	m.start(rt)
}

// compare holds the outbox to the maps.
func (m *orderModel) compare(rt *rapid.T) {
	m.b.faults.Forget() // there was nothing to write
	accepted, changed := m.b.heard.take()
	for _, d := range accepted {
		if is := m.all[d.ID]; is == nil || !m.due(is) || is.Endpoint != d.Endpoint {
			rt.Fatalf("told of %+v, which is not due", d)
		}
		m.told[d.ID] = true
	}
	for _, endpoint := range changed {
		m.hear(endpoint)
	}
	got := make(map[DeliveryID]bool)
	for _, endpoint := range []string{"a", "b", "c"} {
		for _, d := range m.b.due(m.t, endpoint) {
			got[d.ID] = true
		}
	}
	for id, d := range m.all {
		if row := m.b.row(m.t, id); row.State != d.State {
			rt.Fatalf("%s is %s, want %s", id, row.State, d.State)
		}
		if got[id] != m.due(d) {
			rt.Fatalf("%s of key %+v, %s, is due: %v, want %v", id, d.key, d.State, got[id], m.due(d))
		}
		if got[id] && !m.told[id] {
			rt.Fatalf("%s of key %+v is due, and nobody knows", id, d.key)
		}
		delete(got, id)
	}
	if len(got) > 0 {
		rt.Fatalf("due, and unheard of: %v", got)
	}
}
