package egress

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

// orderRig is an outbox with events of one order at the endpoint a, which steps name by a digit, in the order of acceptance.
type orderRig struct {
	*boltBench
	t       *testing.T
	records *BoltRecords
	stop    bool
	ids     []DeliveryID
	events  []string
}

func newOrderRig(t *testing.T, folder string, change func(*BoltOutboxConfig)) *orderRig {
	t.Helper()
	r := &orderRig{t: t}
	r.boltBench = openBoltOutbox(t, folder, 0, func(c *BoltOutboxConfig) {
		c.StopOnDead = func(string) bool { return r.stop }
		if change != nil {
			change(c)
		}
	})
	var err error
	if r.records, err = NewBoltRecords(BoltRecordsConfig{Outbox: r.BoltOutbox}); err != nil {
		t.Fatal(err)
	}
	return r
}

// accept takes n more events.
func (r *orderRig) accept(n int) {
	r.t.Helper()
	for range n {
		e := boltEvent("", "body")
		e.Order = "k"
		r.ids = append(r.ids, r.mustAccept(r.t, e, "a").Deliveries[0].ID)
		r.events = append(r.events, e.ID)
	}
}

// delivery reads the delivery of that digit.
func (r *orderRig) delivery(digit string) Delivery {
	r.t.Helper()
	id := r.ids[digit[0]-'1']
	row := r.row(r.t, id)
	return row.delivery(id, "a")
}

// do makes a step.
func (r *orderRig) do(step string) {
	r.t.Helper()
	ctx := context.Background()
	what, digit, _ := strings.Cut(step, " ")
	var err error
	var changed []Changed
	switch what {
	case "done":
		r.mustSettle(r.t, boltSettlement(r.delivery(digit), StateDelivered))
	case "dead":
		r.mustSettle(r.t, boltSettlement(r.delivery(digit), StateDead))
	case "failed":
		r.mustSettle(r.t, boltSettlement(r.delivery(digit), StateWaiting))
	case "discard":
		changed, err = r.records.Discard(ctx, r.delivery(digit).ID)
	case "redeliver":
		changed, err = r.records.Redeliver(ctx, r.delivery(digit).ID)
	case "expunge":
		_, err = r.records.Expunge(ctx, "", r.events[digit[0]-'1'])
	case "STOP":
		r.stop = true
		err = r.ReleaseDead(ctx)
	case "SKIP":
		r.stop = false
		err = r.ReleaseDead(ctx)
	default:
		r.t.Fatalf("no such step: %s", step)
	}
	for _, c := range changed {
		if c.Err != nil {
			r.t.Errorf("%s: %v", step, c.Err)
		}
	}
	if err != nil {
		r.t.Errorf("%s: %v", step, err)
	}
}

// dueText are the digits of what is due.
func (r *orderRig) dueText() string {
	var digits []string
	for _, d := range r.due(r.t, "a") {
		digits = append(digits, fmt.Sprint(slices.Index(r.ids, d.ID)+1))
	}
	return strings.Join(digits, " ")
}

// TestOrderByStep: which one of a key is due after what has happened to it; never two.
func TestOrderByStep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		steps []string
		want  string
	}{
		{"the first", nil, "1"},
		{"after a failure", []string{"failed 1"}, "1"},
		{"after a success", []string{"done 1"}, "2"},
		{"after a discard", []string{"discard 1"}, "2"},
		{"after an expunge", []string{"expunge 1"}, "2"},
		{"one behind is discarded", []string{"discard 2"}, "1"},
		{"and its turn is passed over", []string{"discard 2", "done 1"}, "3"},
		{"one behind is redelivered", []string{"redeliver 2"}, "1"},
		{"the one that is due is redelivered", []string{"redeliver 1"}, "1"},
		{"dead, SKIP", []string{"dead 1"}, "2"},
		{"the dead one again, SKIP: after the one that is due", []string{"dead 1", "redeliver 1"}, "2"},
		{"and before the others", []string{"dead 1", "redeliver 1", "done 2"}, "1"},
		{"dead, STOP", []string{"STOP", "dead 1"}, ""},
		{"STOP: redelivered", []string{"STOP", "dead 1", "redeliver 1"}, "1"},
		{"STOP: redelivered, dead again", []string{"STOP", "dead 1", "redeliver 1", "dead 1"}, ""},
		{"STOP: redelivered, done", []string{"STOP", "dead 1", "redeliver 1", "done 1"}, "2"},
		{"STOP: discarded", []string{"STOP", "dead 1", "discard 1"}, "2"},
		{"STOP: expunged", []string{"STOP", "dead 1", "expunge 1"}, "2"},
		{"STOP: one behind is discarded", []string{"STOP", "dead 1", "discard 2"}, ""},
		{"STOP: one behind is redelivered", []string{"STOP", "dead 1", "redeliver 3"}, ""},
		{"from STOP to SKIP", []string{"STOP", "dead 1", "SKIP"}, "2"},
		{"from SKIP to STOP: what is dead has stopped nothing", []string{"dead 1", "STOP"}, "2"},
		{"what came before the one that stops is not stopped", []string{"dead 1", "STOP", "dead 2", "redeliver 1"}, "1"},
		{"nor the next of these", []string{"dead 1", "dead 2", "STOP", "dead 3", "redeliver 2", "redeliver 1"}, "2"},
		{"but what came after it", []string{"dead 1", "STOP", "dead 2", "redeliver 1", "done 1"}, ""},
		{"the one that stops goes while one before it is due", []string{"dead 1", "dead 2", "STOP", "dead 3", "redeliver 2", "redeliver 1", "discard 3"}, "2"},
		{"two that stop", []string{"dead 1", "STOP", "dead 2", "redeliver 1", "dead 1"}, ""},
		{"the later of them again", []string{"dead 1", "STOP", "dead 2", "redeliver 1", "dead 1", "redeliver 2"}, ""},
		{"the later of them goes", []string{"dead 1", "STOP", "dead 2", "redeliver 1", "dead 1", "discard 2"}, ""},
		{"the earlier of them goes, then the later", []string{"dead 1", "STOP", "dead 2", "redeliver 1", "dead 1", "discard 1", "discard 2"}, "3"},
		{"both are released", []string{"dead 1", "STOP", "dead 2", "redeliver 1", "dead 1", "SKIP"}, "3"},
		{"the later again, the earlier done", []string{"dead 1", "STOP", "dead 2", "redeliver 1", "dead 1", "redeliver 2", "redeliver 1", "done 1"}, "2"},
		{"all done", []string{"done 1", "done 2", "done 3", "done 4"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newOrderRig(t, t.TempDir(), nil)
			r.accept(4)
			for _, step := range tt.steps {
				r.do(step)
			}
			if got := r.dueText(); got != tt.want {
				t.Errorf("due: %q, want %q", got, tt.want)
			}
			if err := r.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOrderInOneCommit: what one operation of a batch makes due, and another of it ends, nobody is told of.
func TestOrderInOneCommit(t *testing.T) {
	t.Parallel()
	r := newOrderRig(t, t.TempDir(), nil)
	r.accept(3)
	r.heard.take()
	entered, goOn := r.faults.Hold()
	health := make(chan error, 1)
	go func() { health <- r.SetHealth(context.Background(), "b", Health{Warned: 50}) }()
	<-entered
	settled, discarded := make(chan error, 1), make(chan error, 1)
	r.Settle(boltSettlement(r.delivery("1"), StateDelivered), func(err error) { settled <- err })
	op := &changeOp{change: change{b: r.records}, kind: JobDiscard, ids: r.ids[1:2], answered: discarded}
	if err := r.store.Submit(op, store.Urgent); err != nil {
		t.Fatal(err)
	}
	goOn()
	for _, ended := range []chan error{health, settled, discarded} {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	accepted, _ := r.heard.take()
	if len(accepted) != 1 || accepted[0].ID != r.ids[2] || accepted[0].Endpoint != "a" {
		t.Errorf("told of %+v, want of the third alone", accepted)
	}
	if got := r.dueText(); got != "3" {
		t.Errorf("due: %q, want the third", got)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// TestOrderOfOneSettledTwice: the end of an attempt that a failed commit wrote all the same is not told twice, and the next
// is not lost.
func TestOrderOfOneSettledTwice(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		r := newOrderRig(t, t.TempDir(), nil)
		r.accept(2)
		r.heard.take()
		r.faults.Next(storetest.Fault{Err: storetest.DiskFull, Written: written})
		r.do("done 1")
		accepted, changed := r.heard.take()
		if told := len(accepted) == 1 && accepted[0].ID == r.ids[1]; told == written || slices.Equal(changed, []string{"a"}) != written {
			t.Errorf("written %v: told of %v, to look at %v", written, accepted, changed)
		}
		if got := r.dueText(); got != "2" {
			t.Errorf("written %v: due: %q, want the second", written, got)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestOrderOfARemovedEndpoint: all that waits is cancelled, also what waits behind others or behind a dead letter, and in
// no more commits than else.
func TestOrderOfARemovedEndpoint(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		r := newOrderRig(t, t.TempDir(), nil)
		r.stop = stopped
		r.accept(3 * cancelStep)
		if stopped {
			r.do("dead 1")
		}
		if err := r.SetEndpoints(t.Context(), []string{"b", "c"}); err != nil {
			t.Fatal(err)
		}
		before := r.commits.Load()
		if err := r.CancelRemoved(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := r.commits.Load() - before; n > 4 {
			t.Errorf("stopped %v: %d commits for three steps", stopped, n)
		}
		for i, id := range r.ids {
			want := StateCancelled
			if stopped && i == 0 {
				want = StateDead
			}
			if row := r.row(t, id); row.State != want {
				t.Fatalf("stopped %v: delivery %d is %s, want %s", stopped, i+1, row.State, want)
			}
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestKeepRemoved: what waits at an endpoint that is away waits, in its order, and goes on under the same number when the
// endpoint comes back, also after a restart. Nothing is accepted meanwhile.
func TestKeepRemoved(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	keep := func(c *BoltOutboxConfig) { c.KeepRemoved = true }
	b := openBoltOutbox(t, folder, 0, keep)
	e := boltEvent("x", "body")
	e.Order = "k"
	id := b.mustAccept(t, e, "a").Deliveries[0].ID
	later := boltEvent("y", "body")
	later.Order = "k"
	second := b.mustAccept(t, later, "a").Deliveries[0].ID
	if err := b.SetHealth(t.Context(), "a", Health{Warned: 90}); err != nil {
		t.Fatal(err)
	}
	away := func() {
		t.Helper()
		if err := b.SetEndpoints(t.Context(), []string{"b", "c"}); err != nil {
			t.Fatal(err)
		}
		if err := b.CancelRemoved(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.due(t, "a"); len(got) != 0 {
			t.Errorf("due at an endpoint that is away: %v", got)
		}
		if _, err := b.Accept(t.Context(), boltEvent("", "body"), []Target{{Endpoint: "a"}}); err == nil {
			t.Error("accepted for an endpoint that is away")
		}
		if got, want := b.Known(), []string{"b", "c"}; !slices.Equal(got, want) {
			t.Errorf("known %v, want %v", got, want)
		}
		if got, want := b.totalsText(), []string{"a 1 2/8"}; !slices.Equal(got, want) {
			t.Errorf("totals %v, want %v", got, want)
		}
		if row := b.row(t, second); row.State != StateWaiting {
			t.Errorf("it is %s", row.State)
		}
	}
	away()
	if err := b.end(); err != nil {
		t.Error(err)
	}
	b = runBoltOutbox(t, folder, 0, keep)
	away()
	if err := b.SetEndpoints(t.Context(), []string{"a", "b", "a"}); err != nil { // named twice, it is one
		t.Fatal(err)
	}
	if got := b.due(t, "a"); len(got) != 1 || got[0].ID != id {
		t.Errorf("due after it came back: %v, want the first", got)
	}
	hs, err := b.Healths()
	if err != nil || hs["a"].Warned != 90 {
		t.Errorf("health %+v, %v", hs["a"], err)
	}
	b.mustSettle(t, boltSettlement(b.due(t, "a")[0], StateDelivered))
	if got := b.due(t, "a"); len(got) != 1 || got[0].ID != second {
		t.Errorf("due then: %v, want the second", got)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestOrderOfAPurgedDeadLetter: what a dead letter stops goes on when that is not kept any longer, and whoever sends hears
// of it, also where the commit was said to have failed.
func TestOrderOfAPurgedDeadLetter(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		folder := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			r := newOrderRig(t, folder, nil)
			r.accept(2)
			r.do("STOP")
			r.do("dead 1")
			p, err := NewPurger(PurgerConfig{Outbox: r.BoltOutbox, Keep: func() Keep {
				return Keep{Delivered: 24 * time.Hour, Dead: 48 * time.Hour, Log: 24 * time.Hour}
			}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			time.Sleep(47 * time.Hour)
			if got := r.dueText(); got != "" {
				t.Errorf("due after 47 hours: %q, want none", got)
			}
			r.heard.take()
			if fails {
				r.faults.Next(storetest.Fault{Err: storetest.DiskFull, Written: true})
			}
			time.Sleep(6 * time.Hour)
			if got := r.dueText(); got != "2" {
				t.Errorf("due after 53 hours: %q, want the second", got)
			}
			accepted, changed := r.heard.take()
			if told := len(accepted) == 1 && accepted[0].ID == r.ids[1]; told == fails || slices.Contains(changed, "") != fails {
				t.Errorf("failed %v: told of %v, to look at %q", fails, accepted, changed)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := r.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOrderInLists: what waits behind others is listed, counted, discarded and redelivered like what is due.
func TestOrderInLists(t *testing.T) {
	t.Parallel()
	r := newOrderRig(t, t.TempDir(), nil)
	r.accept(3)
	for _, f := range []Filter{{Endpoint: "a", State: StateWaiting}, {State: StateWaiting}, {Endpoint: "a"}} {
		page, err := r.records.ListDeliveries(t.Context(), f, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		var got []DeliveryID
		for _, d := range page.Deliveries {
			if d.State != StateWaiting {
				t.Errorf("%s is listed as %s", d.ID, d.State)
			}
			got = append(got, d.ID)
		}
		slices.Reverse(got)
		if n, err := r.records.Count(t.Context(), f); err != nil || n != 3 || !slices.Equal(got, r.ids) {
			t.Errorf("%+v: listed %v, counted %d, %v", f, got, n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.records.Run(ctx) }()
	job, err := r.records.StartJob(t.Context(), JobSpec{Kind: JobDiscard, Filter: Filter{Endpoint: "a", State: StateWaiting}})
	if err != nil || job.Total != 3 {
		t.Fatalf("job %+v, %v", job, err)
	}
	for job.State == JobRunning {
		if job, err = r.records.Job(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
	}
	if job.Done != 3 || r.dueText() != "" {
		t.Errorf("job %+v; due: %q", job, r.dueText())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}
