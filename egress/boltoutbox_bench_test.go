package egress

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sidehook/sidehook/internal/store"
)

var benchQueued = flag.Int("outbox.bench-queued", 100_000, "deliveries of BenchmarkOutboxFigures")

// BenchmarkOutboxFigures prints what it costs to open an outbox with much in it, beside one with nothing:
//
//	go test ./egress -run '^$' -bench OutboxFigures -v -benchtime 1x -outbox.bench-queued 1000000
func BenchmarkOutboxFigures(t *testing.B) {
	for _, n := range []int{0, *benchQueued} {
		folder := t.TempDir()
		f := openOutboxFigures(t, folder, "a", "b")
		fillOutbox(t, f.BoltOutbox, "a", n)
		f.close(t)
		debug.FreeOSMemory() // what filling in left behind is no memory of the outbox
		start := time.Now()
		f = openOutboxFigures(t, folder, "a", "b")
		opened := time.Since(start)
		ds, err := f.Due(nil, "a", LaneFirst, nil, 256)
		if err != nil || len(ds) != min(n, 256) {
			t.Fatalf("%d due, %v", len(ds), err)
		}
		used, _ := f.store.Usage()
		t.Logf("%8d queued: opened in %v, the first 256 known after %v, %d MiB in use", n, opened.Round(time.Millisecond),
			time.Since(start).Round(time.Millisecond), used>>20)
		f.close(t)
	}
}

// outboxFigures is an outbox on a store that is not checked when it ends, and has no hook in its commits.
type outboxFigures struct {
	*BoltOutbox
	store  *store.Store
	cancel func()
	ended  chan error
}

func openOutboxFigures(t testing.TB, folder string, ids ...string) *outboxFigures {
	t.Helper()
	s, err := store.Open(context.Background(), store.Options{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBoltOutbox(BoltOutboxConfig{Store: s, EndpointDeliveries: 100_000_000})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &outboxFigures{b, s, cancel, make(chan error, 1)}
	go func() { f.ended <- s.Run(ctx) }()
	if err := b.SetEndpoints(ctx, ids); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *outboxFigures) close(t testing.TB) {
	t.Helper()
	f.cancel()
	if err := errors.Join(<-f.ended, f.store.Close()); err != nil {
		t.Error(err)
	}
}

// processCPU is the processor time that this process has used.
func processCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// outboxLoad lets callers accept events of 1 KiB until n are taken, and calls then with each, if it is not nil.
func outboxLoad(t testing.TB, b *BoltOutbox, callers, n int, given bool, then func(*Event, DeliveryID)) {
	t.Helper()
	var taken atomic.Int64
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			body := make([]byte, 1024)
			targets := []Target{{Endpoint: []string{"a", "b", "c"}[caller%3]}}
			for taken.Add(1) <= int64(n) {
				e := &Event{Type: "invoice.paid", ContentType: "application/json", Body: body, Content: sha256.Sum256(body)}
				if given {
					e.ID = rand.Text()
				}
				r, err := b.Accept(context.Background(), e, targets)
				if err != nil {
					t.Errorf("accept: %v", err)
					return
				}
				if then != nil {
					then(e, r.Deliveries[0].ID)
				}
			}
		})
	}
	wg.Wait()
}

// bareOutboxLoad is the yardstick: bbolt with the event's bytes in one row, and one commit for all that wait.
func bareOutboxLoad(t testing.TB, folder string, callers, n int) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(folder, "bare.db"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, InitialMmapSize: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	bucket := []byte("b")
	if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucketIfNotExists(bucket); return err }); err != nil {
		t.Fatal(err)
	}
	puts := make(chan chan error, callers)
	var committer, wg sync.WaitGroup
	body := make([]byte, 1200)
	committer.Go(func() {
		for p := range puts {
			batch := []chan error{p}
			for range len(puts) {
				batch = append(batch, <-puts)
			}
			err := db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket(bucket)
				b.FillPercent = 0.9
				for range batch {
					seq, _ := b.NextSequence()
					if err := b.Put(appendSeq(nil, seq), body); err != nil {
						return err
					}
				}
				return nil
			})
			for _, done := range batch {
				done <- err
			}
		}
	})
	var taken atomic.Int64
	for range callers {
		wg.Go(func() {
			done := make(chan error, 1)
			for taken.Add(1) <= int64(n) {
				puts <- done
				if err := <-done; err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(puts)
	committer.Wait()
}

// BenchmarkAccept compares durable accepts from 64 callers with bare bbolt, in turns, in one run.
func BenchmarkAccept(b *testing.B) {
	for _, given := range []bool{false, true} {
		b.Run(fmt.Sprintf("given-ids=%v", given), func(b *testing.B) {
			outbox := openOutboxFigures(b, b.TempDir(), "a", "b", "c")
			folder := b.TempDir()
			const events = 10_000
			n := 0
			var ours, bare, cpu time.Duration
			for b.Loop() {
				start, used := time.Now(), processCPU()
				outboxLoad(b, outbox.BoltOutbox, 64, events, given, nil)
				ours, cpu = ours+time.Since(start), cpu+processCPU()-used
				start = time.Now()
				bareOutboxLoad(b, folder, 64, events)
				bare += time.Since(start)
				n += events
			}
			outbox.close(b)
			b.ReportMetric(float64(n)/ours.Seconds(), "accepts/s")
			b.ReportMetric(float64(n)/bare.Seconds(), "bare/s")
			b.ReportMetric(float64(cpu.Microseconds())/float64(n), "cpu-µs/accept")
		})
	}
}

// BenchmarkAcceptAndSettle takes events, loads each as the dispatcher does, and settles it as delivered.
func BenchmarkAcceptAndSettle(b *testing.B) {
	outbox := openOutboxFigures(b, b.TempDir(), "a", "b", "c")
	const events = 10_000
	n := 0
	var took, cpu time.Duration
	for b.Loop() {
		start, used := time.Now(), processCPU()
		outboxLoad(b, outbox.BoltOutbox, 64, events, false, func(_ *Event, id DeliveryID) {
			if _, err := outbox.Load(id); err != nil {
				b.Errorf("load: %v", err)
			}
			done := make(chan error, 1)
			outbox.Settle(boltSettlement(Delivery{ID: id}, StateDelivered), func(err error) { done <- err })
			if err := <-done; err != nil {
				b.Errorf("settle: %v", err)
			}
		})
		took, cpu = took+time.Since(start), cpu+processCPU()-used
		n += events
	}
	outbox.close(b)
	b.ReportMetric(float64(n)/took.Seconds(), "events/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(n), "cpu-µs/event")
}
