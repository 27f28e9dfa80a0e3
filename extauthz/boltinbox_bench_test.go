package extauthz

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

var (
	benchIDs     = flag.Int("inbox.bench-ids", 100_000, "ids of BenchmarkInboxFigures. 10000000 are the figures of the README")
	benchFolder  = flag.String("inbox.bench-folder", "", "folder that keeps the filled inbox of BenchmarkInboxFigures for the next run")
	benchSeconds = flag.Int("inbox.bench-seconds", 10, "length of each measurement of BenchmarkInboxFigures")
)

// claimLoad lets callers claim fresh ids, and end them DONE, until over says so; it returns how long the claims took.
func claimLoad(t testing.TB, b *BoltInbox, callers int, over func() bool) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			var took []time.Duration
			for !over() {
				r := boltRequest("evt_" + rand.Text()) // 30 bytes
				start := time.Now()
				c, err := b.Claim(context.Background(), r)
				if err != nil || c.Outcome != Claimed {
					t.Errorf("claim: %v, %v", c.Outcome, err)
					return
				}
				took = append(took, time.Since(start))
				if err := b.Settle(context.Background(), r.Key, c.Token, EndDone, false); err != nil {
					t.Errorf("settle: %v", err)
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

func count64(n int) (over func() bool) {
	var done atomic.Int64
	return func() bool { return done.Add(1) > int64(n) }
}

func seconds(n int) (over func() bool) {
	end := time.Now().Add(time.Duration(n) * time.Second)
	return func() bool { return time.Now().After(end) }
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*q))]
}

// bareLoad is the yardstick: bbolt with one Put for each caller and one commit for all that wait.
func bareLoad(t testing.TB, folder string, callers int, over func() bool) (claims int, took time.Duration) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(folder, "bare.db"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, InitialMmapSize: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	bucket := []byte("b")
	if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucketIfNotExists(bucket); return err }); err != nil {
		t.Fatal(err)
	}
	type put struct {
		key  []byte
		done chan error
	}
	puts := make(chan put, callers)
	var committer, wg sync.WaitGroup
	committer.Go(func() {
		for p := range puts {
			batch := []put{p}
			for more := true; more; {
				select {
				case p, ok := <-puts:
					if more = ok; ok {
						batch = append(batch, p)
					}
				default:
					more = false
				}
			}
			err := db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket(bucket)
				for _, p := range batch {
					if err := b.Put(p.key, make([]byte, 64)); err != nil {
						return err
					}
				}
				return nil
			})
			for _, p := range batch {
				p.done <- err
			}
		}
	})
	var n atomic.Int64
	start := time.Now()
	for range callers {
		wg.Go(func() {
			done := make(chan error, 1)
			for !over() {
				puts <- put{[]byte("evt_" + rand.Text()), done}
				if err := <-done; err != nil {
					t.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	took = time.Since(start)
	close(puts)
	committer.Wait()
	return int(n.Load()), took
}

func perSecond(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }

// BenchmarkClaim compares fresh claims with bare bbolt, in turns, in one run.
func BenchmarkClaim(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			inbox := openBolt(b, b.TempDir(), 0)
			folder := b.TempDir()
			n := 0
			var ours, bare time.Duration
			var p50 time.Duration
			for b.Loop() {
				const claims = 4000
				start := time.Now()
				took := claimLoad(b, inbox.BoltInbox, callers, count64(claims))
				ours += time.Since(start)
				p50 = quantile(took, 0.5)
				_, t := bareLoad(b, folder, callers, count64(claims))
				bare += t
				n += claims
			}
			if err := inbox.end(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(perSecond(n, ours), "claims/s")
			b.ReportMetric(perSecond(n, bare), "bare/s")
			b.ReportMetric(bare.Seconds()/ours.Seconds(), "of-bare")
			b.ReportMetric(float64(p50.Microseconds()), "p50-µs")
		})
	}
}

// TestClaimKeepsPaceWithBareBolt asserts ratios only, and with room: machines of CI are shared.
func TestClaimKeepsPaceWithBareBolt(t *testing.T) {
	b := openBolt(t, t.TempDir(), 0)
	folder := t.TempDir()
	var ratios []float64
	for range 5 {
		const claims = 4_000
		start := time.Now()
		claimLoad(t, b.BoltInbox, 256, count64(claims))
		ours := time.Since(start)
		_, bare := bareLoad(t, folder, 256, count64(claims))
		ratios = append(ratios, bare.Seconds()/ours.Seconds())
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
	slices.Sort(ratios)
	t.Logf("claims with their ends at %.2f of bare bbolt, five pairs: %.2f", ratios[2], ratios)
	if ratios[2] < 0.3 {
		t.Errorf("claims at %.2f of bare bbolt", ratios[2])
	}
}

func rssAnon(t testing.TB) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(status)) {
		if size, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			return strings.TrimSpace(size)
		}
	}
	return "unknown"
}

// BenchmarkInboxFigures prints what a big inbox costs, each figure beside that of an empty one:
//
//	go test ./extauthz -run '^$' -bench InboxFigures -v -benchtime 1x -timeout 30m -inbox.bench-ids 10000000
//
// A tenth of the ids is past retention and is purged while the last figure is taken.
func BenchmarkInboxFigures(t *testing.B) {
	folder := *benchFolder
	if folder == "" {
		folder = t.TempDir()
	}
	measure := func(name string, b *BoltInbox, over func() bool) time.Duration {
		start := time.Now()
		took := claimLoad(t, b, 64, over)
		t.Logf("%-28s %7.0f claims/s  p50 %-10v p99 %-10v RssAnon %s",
			name, perSecond(len(took), time.Since(start)), quantile(took, 0.5).Round(time.Microsecond), quantile(took, 0.99).Round(time.Microsecond), rssAnon(t))
		return quantile(took, 0.99)
	}
	if _, err := os.Stat(folder + "/sidehook.db"); err != nil {
		b := openFigures(t, folder)
		start := time.Now()
		bulkDone(t, b.boltBench, *benchIDs/10, "old", time.Now().Add(-40*24*time.Hour))
		bulkDone(t, b.boltBench, *benchIDs-*benchIDs/10, "payments", time.Now())
		t.Logf("filled in %v", time.Since(start).Round(time.Second))
		b.close(t)
		debug.FreeOSMemory() // what filling in left behind is no memory of the inbox
	}
	start := time.Now()
	b := openFigures(t, folder)
	t.Logf("reopened in %v, RssAnon %s", time.Since(start).Round(time.Millisecond), rssAnon(t))
	info, err := os.Stat(b.store.Path())
	if err != nil {
		t.Fatal(err)
	}
	used, _ := b.store.Usage()
	t.Logf("file of %d MiB, %d MiB in use", info.Size()>>20, used>>20)
	for range 2 {
		empty := openFigures(t, t.TempDir())
		e := measure("empty inbox", empty.BoltInbox, seconds(*benchSeconds))
		empty.close(t)
		f := measure(fmt.Sprintf("%d ids", *benchIDs), b.BoltInbox, seconds(*benchSeconds))
		t.Logf("p99 %.2f times that of an empty inbox", f.Seconds()/e.Seconds())
	}
	before := measure(fmt.Sprintf("%d ids", *benchIDs), b.BoltInbox, seconds(*benchSeconds))
	var purged atomic.Int64
	p, err := NewPurger(PurgerConfig{Inbox: b.BoltInbox, Interval: time.Second, OnPurge: func(n int) { purged.Add(int64(n)) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	start = time.Now()
	during := measure("while a tenth is purged", b.BoltInbox, func() bool {
		return purged.Load() >= int64(*benchIDs/10) || time.Since(start) > 10*time.Minute
	})
	t.Logf("purged %d in %v, p99 %.2f times that before", purged.Load(), time.Since(start).Round(time.Second), during.Seconds()/before.Seconds())
	measure("after the purge", b.BoltInbox, seconds(*benchSeconds))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	b.close(t)
	start = time.Now()
	b = openFigures(t, folder)
	t.Logf("reopened in %v after the purge, RssAnon %s", time.Since(start).Round(time.Millisecond), rssAnon(t))
	b.close(t)
}
