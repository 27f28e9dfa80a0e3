package extauthz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fill makes one row of each state in each of two sources, an hour apart, and returns when the first was made.
func fill(t *testing.T, b *boltBench) time.Time {
	t.Helper()
	start := time.Now().UTC()
	for _, source := range []string{"payments", "shop"} {
		with := func(id string, on OnUnknown) ClaimRequest {
			r := boltRequest(id)
			r.Key.Source, r.OnUnknown = source, on
			return r
		}
		unknown := with("unknown", OnUnknownHold)
		b.mustClaim(t, unknown, Claimed)
		older := with("released", OnUnknownRetry)
		b.mustClaim(t, older, Claimed)
		time.Sleep(benchLease)
		b.mustClaim(t, unknown, Held)
		second := b.mustClaim(t, older, Claimed)
		if err := b.Settle(context.Background(), older.Key, second.Token, EndReleased, true); err != nil {
			t.Fatal(err)
		}
		b.mustFinish(t, with("done", OnUnknownRetry))
		time.Sleep(time.Hour)
	}
	r := boltRequest("pending")
	r.Type = "charge.refunded"
	b.mustClaim(t, r, Claimed)
	return start
}

func TestList(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBolt(t, folder, 0)
		start := fill(t, b)
		for _, tt := range []struct {
			name   string
			filter Filter
			want   string
		}{
			{"all, by source and id", Filter{}, "shop/done shop/released shop/unknown payments/done payments/pending payments/released payments/unknown"},
			{"of a source", Filter{Source: "shop"}, "shop/done shop/released shop/unknown"},
			{"of a source that is a prefix of another", Filter{Source: "sho"}, ""},
			{"done", Filter{State: StateDone}, "shop/done payments/done"},
			{"pending", Filter{State: StatePending}, "payments/pending"},
			{"unknown", Filter{State: StateUnknown}, "shop/unknown payments/unknown"},
			{"released", Filter{State: StateReleased}, "shop/released payments/released"},
			{"of a type", Filter{Type: "charge.refunded"}, "payments/pending"},
			{"since", Filter{Since: start.Add(time.Hour)}, "shop/done shop/released shop/unknown payments/pending"},
			{"until", Filter{Until: start.Add(time.Hour)}, "payments/done payments/released payments/unknown"},
			{"since and until, of one moment", Filter{Since: start, Until: start.Add(time.Millisecond)}, "payments/unknown"},
			{"all at once", Filter{Source: "shop", State: StateDone, Type: "invoice.paid", Since: start, Until: start.Add(24 * time.Hour)}, "shop/done"},
		} {
			for _, rows := range []int{0, 1, 2} {
				var got []string
				cursor := ""
				for {
					page, err := b.List(context.Background(), tt.filter, cursor, rows)
					if err != nil {
						t.Fatal(err)
					}
					if rows > 0 && len(page.Records) > rows {
						t.Errorf("%s: page of %d rows, want at most %d", tt.name, len(page.Records), rows)
					}
					for _, r := range page.Records {
						got = append(got, r.Key.Source+"/"+r.Key.ID)
					}
					if cursor = page.Next; cursor == "" {
						break
					}
				}
				if got := strings.Join(got, " "); got != tt.want {
					t.Errorf("%s, pages of %d: got %s, want %s", tt.name, rows, got, tt.want)
				}
			}
		}
		if _, err := b.List(context.Background(), Filter{Source: "shop"}, "AAAA", 0); err == nil {
			t.Error("a cursor of another listing is taken")
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestSummaryCountsWithoutAScan(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBolt(t, folder, 0)
		start := fill(t, b)
		sums, err := b.Summary()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range sums {
			got = append(got, fmt.Sprintf("%s %s %d", s.Source, s.State, s.Count))
			if s.Bytes < 10 || s.Bytes > 200 {
				t.Errorf("%s %s has %d bytes", s.Source, s.State, s.Bytes)
			}
		}
		want := []string{
			"payments PENDING 1", "payments UNKNOWN 1", "payments DONE 1", "payments RELEASED 1",
			"shop UNKNOWN 1", "shop DONE 1", "shop RELEASED 1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := sums[1].Oldest; !got.Equal(start.Truncate(time.Hour)) {
			t.Errorf("oldest is of %v, want the hour of %v", got, start)
		}
		if err := b.end(); err != nil { // the check compares the counters with the rows
			t.Error(err)
		}
	})
}

func TestGetAndRelease(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBolt(t, folder, 0)
		ctx := context.Background()
		long := boltRequest(strings.Repeat("x", 300))
		b.mustFinish(t, long)
		page, err := b.List(ctx, Filter{}, "", 0)
		if err != nil || len(page.Records) != 1 {
			t.Fatalf("listed %v, %v", page, err)
		}
		shown := page.Records[0].Key // an id too long for a row is shown as its hash, and found by it
		if !strings.HasPrefix(shown.ID, "sha256:") {
			t.Errorf("shown as %q", shown.ID)
		}
		for _, key := range []Key{long.Key, shown} {
			if r, err := b.Get(key); err != nil || r.State != StateDone || r.Type != "invoice.paid" {
				t.Errorf("get: %+v, %v", r, err)
			}
		}

		// A DONE id goes through once more, and no more than once.
		if err := b.Release(ctx, shown); err != nil {
			t.Fatal(err)
		}
		b.mustFinish(t, long)
		b.mustClaim(t, long, Duplicate)

		// So does one that is held, and who waits for one that is with the app is woken. Its late success counts.
		held := boltRequest("held")
		held.OnUnknown = OnUnknownHold
		first := b.mustClaim(t, held, Claimed)
		waiting := b.mustClaim(t, held, InFlight)
		if err := b.Release(ctx, held.Key); err != nil {
			t.Fatal(err)
		}
		<-waiting.Wait
		b.mustClaim(t, held, Claimed)
		if err := b.Settle(ctx, held.Key, first.Token, EndDone, true); err != nil {
			t.Fatal(err)
		}
		b.mustClaim(t, held, Duplicate)

		for name, err := range map[string]error{
			"release": b.Release(ctx, boltRequest("never seen").Key),
			"get":     func() error { _, err := b.Get(boltRequest("never seen").Key); return err }(),
		} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("%s of an id never seen: %v, want ErrNotFound", name, err)
			}
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestSparseListingIsBounded: a filter that fits nothing reads a bounded number of rows for a page, and goes on.
func TestSparseListingIsBounded(t *testing.T) {
	t.Parallel()
	b := openBolt(t, t.TempDir(), 0)
	bulkDone(t, b, maxPageScan+5, "payments", time.Now())
	page, err := b.List(context.Background(), Filter{Type: "none"}, "", 0)
	if err != nil || len(page.Records) != 0 || page.Next == "" {
		t.Fatalf("first page: %d rows, next %q, %v", len(page.Records), page.Next, err)
	}
	page, err = b.List(context.Background(), Filter{Type: "none"}, page.Next, 0)
	if err != nil || len(page.Records) != 0 || page.Next != "" {
		t.Errorf("second page: %d rows, next %q, %v", len(page.Records), page.Next, err)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}
