package egress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

func TestNewBoltOutboxNeedsAStoppedStore(t *testing.T) {
	t.Parallel()
	if _, err := NewBoltOutbox(BoltOutboxConfig{}); err == nil {
		t.Error("made without a store")
	}
	b := openBoltOutbox(t, t.TempDir(), 0, nil)
	if _, err := NewBoltOutbox(BoltOutboxConfig{Store: b.store}); err == nil {
		t.Error("made on a running store")
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestRepeatCostsNoCommit: an app that posts the same ids over and over does not wear the disk.
func TestRepeatCostsNoCommit(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 0, nil)
	b.mustAccept(t, boltEvent("x", "body"), "a")
	before := b.commits.Load()
	for range 100 {
		if r := b.mustAccept(t, boltEvent("x", "body"), "a"); !r.Repeat {
			t.Fatal("taken again")
		}
		if _, err := b.Accept(t.Context(), boltEvent("x", "other"), nil); !errors.Is(err, ErrConflict) {
			t.Fatalf("other content: %v, want ErrConflict", err)
		}
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
	if got := b.commits.Load() - before; got != 0 {
		t.Errorf("%d commits for repeats, want none", got)
	}
}

// TestAcceptCancelledAtEachStep: whoever goes away gets an event whole or none, and what became one is told of.
func TestAcceptCancelledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// hold is called with the post on its way, at a moment of its own, and cancels it.
		hold func(b *boltBench, start func(), cancel func())
		want int
	}{
		{"waiting for another commit", func(b *boltBench, start, cancel func()) {
			entered, goOn := b.faults.Hold()
			go func() { _, _ = b.Accept(context.Background(), boltEvent("other", ""), nil) }()
			<-entered
			start()
			cancel()
			goOn()
		}, 0},
		{"in its own commit", func(b *boltBench, start, cancel func()) {
			entered, goOn := b.faults.Hold()
			start()
			<-entered
			cancel()
			goOn()
		}, 1},
		{"in its own commit, which fails", func(b *boltBench, start, cancel func()) {
			b.faults.Next(storetest.Fault{Err: storetest.DiskFull})
			entered, goOn := b.faults.Hold()
			start()
			<-entered
			cancel()
			goOn()
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := openBoltOutbox(t, folder, 0, nil)
				ctx, cancel := context.WithCancel(context.Background())
				answer := make(chan error, 1)
				tt.hold(b, func() {
					go func() {
						_, err := b.Accept(ctx, boltEvent("x", "body"), []Target{{Endpoint: "a"}, {Endpoint: "b"}})
						answer <- err
					}()
					synctest.Wait()
				}, func() {
					cancel()
					synctest.Wait()
				})
				if err := <-answer; !errors.Is(err, context.Canceled) {
					t.Errorf("accept: %v, want context.Canceled", err)
				}
				synctest.Wait()
				accepted, _ := b.heard.take()
				if at, bt := len(b.due(t, "a")), len(b.due(t, "b")); at != tt.want || bt != tt.want || len(accepted) != 2*tt.want {
					t.Errorf("%d wait at a, %d at b, %d were told of, want %d each", at, bt, len(accepted), tt.want)
				}
				if err := b.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestTotals: the sums are those of the deliveries, while it runs and after a restart.
func TestTotals(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	b := openBoltOutbox(t, folder, 0, nil)
	for i := range 6 {
		id := b.mustAccept(t, boltEvent("", "12345"), "a", "b").Deliveries[0].ID
		switch i {
		case 0:
			b.mustSettle(t, boltSettlement(Delivery{ID: id}, StateDelivered))
		case 1, 2:
			b.mustSettle(t, boltSettlement(Delivery{ID: id}, StateDead))
		case 3:
			b.mustSettle(t, boltSettlement(Delivery{ID: id}, StateWaiting))
		}
	}
	want := []string{
		fmt.Sprintf("a %d 3/15", StateWaiting), fmt.Sprintf("a %d 1/5", StateDelivered), fmt.Sprintf("a %d 2/10", StateDead),
		fmt.Sprintf("b %d 6/30", StateWaiting),
	}
	if got := b.totalsText(); !slices.Equal(got, want) {
		t.Errorf("totals %v, want %v", got, want)
	}
	if err := b.SetEndpoints(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	want[3] = fmt.Sprintf(" %d 6/30", StateWaiting)
	slices.Sort(want)
	if got := b.totalsText(); !slices.Equal(got, want) {
		t.Errorf("b is removed: totals %v, want %v", got, want)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
	b = openBoltOutboxAgain(t, folder)
	if got := b.totalsText(); !slices.Equal(got, want) {
		t.Errorf("opened again: totals %v, want %v", got, want)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// TestCountersTellTheReason: of what failed last, and by the hour for what waits, by the day for what has ended.
func TestCountersTellTheReason(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoltOutbox(t, folder, 0, nil)
		start := time.Now()
		id := b.mustAccept(t, boltEvent("", "12345"), "a").Deliveries[0].ID
		time.Sleep(90 * time.Minute)
		b.mustAccept(t, boltEvent("", "1"), "a")
		time.Sleep(90 * time.Minute)
		b.mustSettle(t, boltSettlement(Delivery{ID: id, Created: start}, StateDead))
		hour := uint32(start.UnixMilli() / hourMillis)
		want := map[countKey]count{
			{id.Endpoint, StateWaiting, hour + 1}:    {rows: 1, bytes: 1},
			{id.Endpoint, StateDead, hour - hour%24}: {rows: 1, bytes: 5, reason: OutcomeRejected, at: time.Now().UnixMilli()},
		}
		got := make(map[countKey]count)
		if err := b.store.View(func(tx *store.Tx) error { return eachCount(tx, func(k countKey, n count) { got[k] = n }) }); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("counters %v, want %v", got, want)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestNumbersGoUpWhereTheClockGoesBack: also when the newest event is of a time to come.
func TestNumbersGoUpWhereTheClockGoesBack(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_764_532_800_000)
	b := &BoltOutbox{}
	b.lastSeq.Store(uint64(now.Add(time.Hour).UnixMilli())<<seqCountBits + 5)
	var last uint64
	for _, at := range []time.Duration{0, time.Millisecond, -time.Hour, 2 * time.Hour, 2 * time.Hour, time.Hour} {
		seq := b.nextSeq(now.Add(at))
		if seq <= last || seq <= uint64(now.Add(time.Hour).UnixMilli())<<seqCountBits {
			t.Errorf("at %v: %d after %d", at, seq, last)
		}
		if at == 2*time.Hour && seqTime(seq) != now.Add(at).UnixMilli() {
			t.Errorf("at %v: of millisecond %d", at, seqTime(seq))
		}
		last = seq
	}
}

// TestRunCancelsInSteps: a removed endpoint's queue goes in small steps, and others are not held up meanwhile.
func TestRunCancelsInSteps(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoltOutbox(t, folder, 0, nil)
		const queued = 5*cancelStep + 7
		fillOutbox(t, b.BoltOutbox, "a", queued)
		b.mustAccept(t, boltEvent("", "body"), "b")
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		synctest.Wait()
		if err := b.SetEndpoints(ctx, []string{"b"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Millisecond)
		synctest.Wait()
		if got, want := b.totalsText(), fmt.Sprintf(" %d %d/", StateCancelled, cancelStep); !strings.HasPrefix(got[1], want) {
			t.Errorf("after one step: %q, want %q", got, want)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want := []string{fmt.Sprintf(" %d %d/%d", StateCancelled, queued, queued*4), fmt.Sprintf("b %d 1/4", StateWaiting)}
		if got := b.totalsText(); !slices.Equal(got, want) {
			t.Errorf("totals %q, want %q", got, want)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestRunGoesOnAfterAFullDisk: what waits at a removed endpoint is cancelled in the end.
func TestRunGoesOnAfterAFullDisk(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoltOutbox(t, folder, 0, nil)
		d := givenDelivery(t, b)
		if err := b.SetEndpoints(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		b.faults.Next(storetest.Fault{Err: storetest.DiskFull})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		time.Sleep(time.Minute)
		if got := b.row(t, d.ID); got.State != StateCancelled {
			t.Errorf("%+v, want it cancelled", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestInterruptedInSteps: more marks than go into one commit are logged all.
func TestInterruptedInSteps(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	b := openBoltOutbox(t, folder, 0, nil)
	const marked = interruptedStep + 3
	fillOutbox(t, b.BoltOutbox, "a", marked)
	for _, d := range b.due(t, "a") {
		b.Mark(&d, time.Now(), TriggerSchedule)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
	b = openBoltOutboxAgain(t, folder)
	ds := b.due(t, "a")
	if len(ds) != marked {
		t.Errorf("%d wait, want %d", len(ds), marked)
	}
	for _, d := range ds {
		if d.Tries != 1 || d.Attempts != 0 || d.Reason != OutcomeInterrupted {
			t.Fatalf("%+v, want one try that did not count", d)
		}
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// fillOutbox writes n events of four bytes for an endpoint, many in one commit.
func fillOutbox(t testing.TB, b *BoltOutbox, endpoint string, n int) {
	t.Helper()
	for from := 0; from < n; from += 20_000 {
		op := &fillOp{done: make(chan error, 1)}
		for range min(20_000, n-from) {
			one, err := b.newAcceptOp(boltEvent("", "body"), []Target{{Endpoint: endpoint}}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			op.ops = append(op.ops, one)
		}
		if err := b.store.Submit(op, store.Urgent); err != nil {
			t.Fatal(err)
		}
		if err := <-op.done; err != nil {
			t.Fatal(err)
		}
	}
}

type fillOp struct {
	ops  []*acceptOp
	done chan error
}

func (o *fillOp) Apply(tx *store.Tx) error {
	for _, op := range o.ops {
		if err := op.Apply(tx); err != nil {
			return err
		}
	}
	return nil
}

func (o *fillOp) Done(err error) { o.done <- err }

// TestSettledMarksAreGone: marks are few, whatever has gone through, and one that comes late is none.
func TestSettledMarksAreGone(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoltOutbox(t, folder, 0, nil)
		d := givenDelivery(t, b)
		mark := func() { b.Mark(&d, time.Now(), TriggerSchedule) }
		for _, tt := range []struct {
			name string
			do   func()
			want int
		}{
			{"under way", mark, 1},
			{"settled", func() { b.mustSettle(t, boltSettlement(d, StateWaiting)) }, 0},
			{"late", mark, 0},
		} {
			tt.do()
			time.Sleep(time.Second)
			var marks int
			if err := b.store.View(func(tx *store.Tx) error {
				c := tx.Cursor(markBucket)
				for k, _ := c.First(); k != nil; k, _ = c.Next() {
					marks++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if marks != tt.want {
				t.Errorf("%s: %d marks, want %d", tt.name, marks, tt.want)
			}
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestAcceptForAnEndpointRemovedMeanwhile: an event on its way when its endpoint goes is refused, and waits nowhere.
func TestAcceptForAnEndpointRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 0, nil)
	op, err := b.newAcceptOp(boltEvent("x", "body"), []Target{{Endpoint: "b"}, {Endpoint: "a"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.SetEndpoints(t.Context(), []string{"b", "c"}); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Submit(op, store.Urgent); err != nil {
		t.Fatal(err)
	}
	if <-op.answered; !errors.Is(op.err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", op.err)
	}
	if got := b.due(t, "b"); len(got) != 0 {
		t.Errorf("half of it waits: %v", got)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}
