package sidecar

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
)

// Each commit of the life of stored events fails, and may be written all the same: what the sender was told is stored is
// delivered once and in order, what it was told nothing of is stored by its next try, and the file is whole.
func TestStoredWhenCommitsFail(t *testing.T) {
	t.Parallel()
	const repositories, each = 3, 4
	failed, written := storetest.Fault{Err: storetest.DiskFull}, storetest.Fault{Err: storetest.DiskFull, Written: true}
	for at := range 16 {
		for name, next := range map[string][]storetest.Fault{"failed": {failed}, "written": {written}, "written then failed": {written, failed}} {
			t.Run(fmt.Sprintf("commit %d %s", at, name), func(t *testing.T) {
				t.Parallel()
				cfg := loadOutage(t, t.TempDir())
				synctest.Test(t, func(t *testing.T) {
					faults := new(storetest.Faults)
					o := openOutageOn(t, cfg, faults)
					faults.Next(append(make([]storetest.Fault, at), next...)...)
					var senders sync.WaitGroup
					for r := range repositories {
						senders.Go(func() {
							for n := range each {
								for o.post(r, n) != "duplicate" {
									time.Sleep(10 * time.Millisecond)
								}
							}
						})
					}
					senders.Wait()
					time.Sleep(time.Minute)
					o.mu.Lock()
					defer o.mu.Unlock()
					for r := range repositories {
						if got, want := o.taken[fmt.Sprint(r)], []int{0, 1, 2, 3}; !slices.Equal(got, want) {
							t.Errorf("the events of repository %d came as %v, want %v", r, got, want)
						}
					}
					states := map[egress.State]int64{}
					o.gate.stored.outbox.Totals(func(_ string, s egress.State, n egress.Count) { states[s] += n.Rows })
					if states[egress.StateDelivered] != repositories*each || states[egress.StateWaiting]+states[egress.StateDead] != 0 {
						t.Errorf("%v events by state, want %d delivered", states, repositories*each)
					}
					o.end()
					storetest.CheckFile(t, o.store.Path(), store.AllRows(&extauthz.RowCheck{}, store.RowsIn(egress.StoredSpace, &egress.RowCheck{})))
				})
			})
		}
	}
}

// Envoy goes away while events are written: each is kept as it was sent, or not at all, and the sender's next try is told which.
func TestStoredWhileEnvoyGoesAway(t *testing.T) {
	t.Parallel()
	cfg := loadOutage(t, t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		faults := new(storetest.Faults)
		o := openOutageOn(t, cfg, faults)
		defer o.end()
		entered, goOn := faults.Hold()
		ctx, hangUp := context.WithCancel(t.Context())
		var checks sync.WaitGroup
		for r := range 4 { // one is in the commit that stands still, the others wait for the next
			checks.Go(func() {
				if got := o.postUntil(ctx, r, 0); got != "unavailable" {
					t.Errorf("got %q", got)
				}
			})
			if r == 0 {
				<-entered
			}
		}
		synctest.Wait()
		hangUp()
		synctest.Wait()
		goOn()
		checks.Wait()
		for r := range 4 {
			want := "stored"
			if r == 0 {
				want = "duplicate"
			}
			if got := o.post(r, 0); got != want {
				t.Errorf("event %d came again and got %q, want %q", r, got, want)
			}
		}
		time.Sleep(time.Second)
		o.mu.Lock()
		defer o.mu.Unlock()
		for r := range 4 {
			if got := o.taken[fmt.Sprint(r)]; !slices.Equal(got, []int{0}) {
				t.Errorf("of repository %d the app got %v", r, got)
			}
		}
	})
}
