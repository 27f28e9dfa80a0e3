package egress

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

// TestOutboxFaults fails the commit of each write in each way. Whatever fails, the store holds what was before or what
// comes after, never a half of it (the file is checked whole after each row), and what was acknowledged.
func TestOutboxFaults(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	type outcome struct {
		err    error // that the caller gets while the disk is full: nil if it is tried until it is written
		before string
		after  string
	}
	for _, write := range []struct {
		name string
		// given is what there is before, do the write under test. state says in a word what there is.
		given func(t testing.TB, b *boltBench) Delivery
		do    func(b *boltBench, d Delivery) error
		state func(t testing.TB, b *boltBench, d Delivery) string
		want  outcome
	}{
		{
			name: "accept", do: func(b *boltBench, _ Delivery) error {
				_, err := b.Accept(ctx, boltEvent("x", "body"), []Target{{Endpoint: "a"}, {Endpoint: "b"}})
				return err
			},
			state: func(t testing.TB, b *boltBench, _ Delivery) string {
				at, bt := len(b.due(t, "a")), len(b.due(t, "b"))
				if at != bt {
					t.Errorf("%d wait at a, %d at b: half an event", at, bt)
				}
				return map[int]string{0: "none", 1: "accepted"}[at]
			},
			want: outcome{ErrFull, "none", "accepted"},
		},
		{
			name: "settle as delivered", given: givenDelivery,
			do:    func(b *boltBench, d Delivery) error { return b.settle(boltSettlement(d, StateDelivered)) },
			state: deliveryState, want: outcome{nil, "waiting, 0 tries, 0 logged", "delivered, 1 tries, 1 logged"},
		},
		{
			name: "settle as failed", given: givenDelivery,
			do:    func(b *boltBench, d Delivery) error { return b.settle(boltSettlement(d, StateWaiting)) },
			state: deliveryState, want: outcome{nil, "waiting, 0 tries, 0 logged", "waiting, 1 tries, 1 logged"},
		},
		{
			name: "settle as dead", given: givenDelivery,
			do:    func(b *boltBench, d Delivery) error { return b.settle(boltSettlement(d, StateDead)) },
			state: deliveryState, want: outcome{nil, "waiting, 0 tries, 0 logged", "dead, 1 tries, 1 logged"},
		},
		{
			name: "set health", do: func(b *boltBench, _ Delivery) error { return b.SetHealth(ctx, "a", Health{Warned: 50}) },
			state: func(t testing.TB, b *boltBench, _ Delivery) string {
				hs, err := b.Healths()
				if err != nil {
					t.Fatal(err)
				}
				return map[int]string{0: "healthy", 50: "warned"}[hs["a"].Warned]
			},
			want: outcome{ErrFull, "healthy", "warned"},
		},
		{
			name: "remove an endpoint", given: givenDelivery,
			do: func(b *boltBench, _ Delivery) error { return b.SetEndpoints(ctx, []string{"b", "c"}) },
			state: func(t testing.TB, b *boltBench, _ Delivery) string {
				hs, err := b.Healths()
				if err != nil {
					t.Fatal(err)
				}
				_, there := hs["a"]
				return map[bool]string{true: "there", false: "removed"}[there]
			},
			want: outcome{nil, "there", "removed"},
		},
		{
			name: "cancel", given: func(t testing.TB, b *boltBench) Delivery {
				d := givenDelivery(t, b)
				if err := b.SetEndpoints(ctx, []string{"b", "c"}); err != nil {
					t.Fatal(err)
				}
				return d
			},
			do:    func(b *boltBench, _ Delivery) error { return b.CancelRemoved(ctx) },
			state: deliveryState, want: outcome{storetest.DiskFull, "waiting, 0 tries, 0 logged", "cancelled, 0 tries, 0 logged"},
		},
	} {
		for _, fault := range []struct {
			name string
			f    storetest.Fault
		}{
			{"disk full", storetest.Fault{Err: storetest.DiskFull}},
			{"disk full, yet written", storetest.Fault{Err: storetest.DiskFull, Written: true}},
			{"sync failed", storetest.Fault{Err: storetest.SyncFailed}},
			{"sync failed, yet written", storetest.Fault{Err: storetest.SyncFailed, Written: true}},
		} {
			fatal := fault.f.Err == storetest.SyncFailed
			t.Run(write.name+": "+fault.name, func(t *testing.T) {
				folder := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					b := openBoltOutbox(t, folder, 0, nil)
					var d Delivery
					if write.given != nil {
						d = write.given(t, b)
					}
					if got := write.state(t, b, d); got != write.want.before {
						t.Fatalf("before: %s, want %s", got, write.want.before)
					}
					b.faults.Next(fault.f)
					err := write.do(b, d)
					want := write.want.err
					if fatal {
						want = store.ErrSync
					}
					if !errors.Is(err, want) || (err == nil) != (want == nil) {
						t.Errorf("got %v, want %v", err, want)
					}
					left := write.want.before
					if fault.f.Written || want == nil {
						left = write.want.after
					}
					if !fatal {
						if got := write.state(t, b, d); got != left {
							t.Errorf("after the fault: %s, want %s", got, left)
						}
						// It goes on by itself, and asking again does it, once.
						if err := write.do(b, d); err != nil {
							t.Errorf("asked again: %v", err)
						}
						if got := write.state(t, b, d); got != write.want.after {
							t.Errorf("asked again: %s, want %s", got, write.want.after)
						}
						if err := b.end(); err != nil {
							t.Errorf("run: %v", err)
						}
						return
					}
					// What has nothing left to write need not notice.
					if err := write.do(b, d); !errors.Is(err, store.ErrSync) && (err != nil || write.state(t, b, d) != write.want.after) {
						t.Errorf("after a failed sync: %v", err)
					}
					if err := b.end(); !store.Fatal(err) {
						t.Errorf("run: %v, want a fatal error", err)
					}
					b = openBoltOutboxAgain(t, folder)
					if got := write.state(t, b, d); got != left {
						t.Errorf("opened again: %s, want %s", got, left)
					}
					if err := b.end(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

func givenDelivery(t testing.TB, b *boltBench) Delivery {
	id := b.mustAccept(t, boltEvent("", "body"), "a").Deliveries[0].ID
	r := b.row(t, id)
	return r.delivery(id, "a")
}

// deliveryState says how d stands, how often it was tried and how much of that is logged, and that what hangs on it is so.
func deliveryState(t testing.TB, b *boltBench, d Delivery) string {
	r := b.row(t, d.ID)
	names := map[State]string{StateWaiting: "waiting", StateDelivered: "delivered", StateDead: "dead", StateCancelled: "cancelled"}
	tries := string(rune('0' + r.Tries))
	return names[r.State] + ", " + tries + " tries, " + string(rune('0'+len(b.attempts(t, d.ID)))) + " logged"
}

// TestAcceptTellsOfWhatMayBeThere: after a commit that failed and may be written all the same, whoever keeps what is due
// in memory is told to look again.
func TestAcceptTellsOfWhatMayBeThere(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		b := openBoltOutbox(t, t.TempDir(), 0, nil)
		b.faults.Next(storetest.Fault{Err: storetest.DiskFull, Written: written})
		targets := []Target{{Endpoint: "a"}, {Endpoint: "c"}}
		if _, err := b.Accept(t.Context(), boltEvent("x", "body"), targets); !errors.Is(err, ErrFull) {
			t.Errorf("accept: %v, want ErrFull", err)
		}
		accepted, changed := b.heard.take()
		if len(accepted) != 0 || !slices.Equal(changed, []string{"a", "c"}) {
			t.Errorf("written %v: heard of %v accepted, %v changed", written, accepted, changed)
		}
		// The same post again: one event, whichever of the two wrote it.
		r, err := b.Accept(t.Context(), boltEvent("x", "body"), targets)
		if err != nil || r.Repeat != written {
			t.Errorf("again: %+v, %v, want a repeat: %v", r, err, written)
		}
		if got := len(b.due(t, "a")); got != 1 {
			t.Errorf("%d wait, want 1", got)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestTotalsAfterAFault: the sums in memory follow what is on disk, not what was hoped for.
func TestTotalsAfterAFault(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		b := openBoltOutbox(t, t.TempDir(), 0, func(c *BoltOutboxConfig) { c.EndpointDeliveries = 2 })
		b.mustAccept(t, boltEvent("", "body"), "a")
		b.faults.Next(storetest.Fault{Err: storetest.DiskFull, Written: written})
		if _, err := b.Accept(t.Context(), boltEvent("", "body"), []Target{{Endpoint: "a"}}); !errors.Is(err, ErrFull) {
			t.Errorf("accept: %v, want ErrFull", err)
		}
		if r := b.mustAccept(t, boltEvent("", "body"), "a"); r.Deliveries[0].Full != written {
			t.Errorf("written %v: receipt %+v", written, r)
		}
		if got, want := b.totalsText(), []string{"a 1 2/8"}; !slices.Equal(got, want) {
			t.Errorf("written %v: totals %v, want %v", written, got, want)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestSettleOutlivesAFullDisk: the end of an attempt is told once the disk takes it, and is not asked for again.
func TestSettleOutlivesAFullDisk(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoltOutbox(t, folder, 0, nil)
		d := givenDelivery(t, b)
		b.faults.Next(slices.Repeat([]storetest.Fault{{Err: storetest.DiskFull}}, 20)...)
		start := time.Now()
		b.mustSettle(t, boltSettlement(d, StateDelivered))
		if took := time.Since(start); took < 10*time.Second || took > 30*time.Second {
			t.Errorf("written after %v", took)
		}
		if got, want := deliveryState(t, b, d), "delivered, 1 tries, 1 logged"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestStoppedOutbox: what comes after the end is refused, each in its own way, and nobody waits for ever.
func TestStoppedOutbox(t *testing.T) {
	t.Parallel()
	b := openBoltOutbox(t, t.TempDir(), 0, nil)
	d := givenDelivery(t, b)
	if err := b.end(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Accept(t.Context(), boltEvent("x", ""), []Target{{Endpoint: "a"}}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("accept: %v, want ErrUnavailable", err)
	}
	if err := b.settle(boltSettlement(d, StateDelivered)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("settle: %v, want ErrClosed", err)
	}
	b.Mark(&d, time.Now(), TriggerSchedule)
	if err := b.SetHealth(t.Context(), "a", Health{}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("set health: %v, want ErrUnavailable", err)
	}
	if err := b.SetEndpoints(t.Context(), nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("set endpoints: %v, want ErrUnavailable", err)
	}
	if _, err := b.Due(nil, "a", LaneFirst, nil, 1); !errors.Is(err, ErrUnavailable) {
		t.Errorf("due: %v, want ErrUnavailable", err)
	}
	if _, err := b.Load(d.ID); !errors.Is(err, ErrUnavailable) {
		t.Errorf("load: %v, want ErrUnavailable", err)
	}
}
