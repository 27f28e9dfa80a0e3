package sidecar

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/egress"
)

// What the app may still get is known by its id however long that takes, also as a dead letter; what it will not get any more is
// forgotten like the rest.
func TestStoredIDsOutliveTheirRetention(t *testing.T) {
	t.Parallel()
	cfg := loadGitHub(t, t.TempDir(), `mode: STORE
    retention: 1h
    dedupe: {content_window: 30m}
    delivery: {url: "http://127.0.0.1:8080", waits: [30d], stop_on: [500]}`)
	const retained = time.Hour
	for _, c := range []struct {
		name     string
		app      func(*outage)
		is       egress.State
		then     func(*testing.T, *outage, egress.DeliveryID)
		hereupon string // what a repeat gets, later than the retention after that
	}{
		{"waiting", func(o *outage) { o.down = true }, egress.StateWaiting, nil, "duplicate"},
		{"dead", func(o *outage) { o.refuses = true }, egress.StateDead, nil, "duplicate"},
		{"discarded", func(o *outage) { o.refuses = true }, egress.StateDead, func(t *testing.T, o *outage, id egress.DeliveryID) {
			if changed, err := o.gate.stored.records.Discard(t.Context(), id); err != nil || changed[0].Err != nil {
				t.Fatal(changed, err)
			}
		}, "stored"},
		{"delivered", func(*outage) {}, egress.StateDelivered, nil, "stored"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				folder := *cfg
				folder.Store.Path = t.TempDir()
				o := openOutage(t, &folder)
				defer o.end()
				c.app(o)
				o.push(1, 1)
				time.Sleep(time.Minute)
				page, err := o.gate.stored.records.ListDeliveries(t.Context(), egress.Filter{}, "", 10)
				if err != nil || len(page.Deliveries) != 1 || page.Deliveries[0].State != c.is {
					t.Fatal(page, err)
				}
				if c.then != nil {
					c.then(t, o, page.Deliveries[0].ID)
				}
				time.Sleep(retained + 2*time.Hour)
				if got := o.post(1, 1); got != c.hereupon {
					t.Errorf("a repeat got %q, want %q", got, c.hereupon)
				}
			})
		})
	}
}

// What a person should look at is told as long as it is so, and by what it is.
func TestStoredProblems(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	pass, stored := loadGitHub(t, folder, "mode: PASS\n    accept_loss: true"), loadOutage(t, folder)
	synctest.Test(t, func(t *testing.T) {
		o := openOutage(t, stored)
		defer o.end()
		want := func(when string, keys ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			p := map[string]string{}
			o.gate.stored.problems(p)
			var got []string
			for key := range p {
				got = append(got, key)
			}
			if slices.Sort(got); !slices.Equal(got, keys) {
				t.Errorf("%s: %v, want %v", when, p, keys)
			}
		}
		down := func(down bool) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.down = down
		}
		want("nothing is kept")
		down(true)
		o.push(1, 1)
		want("the app is down", "app_unreachable")
		o.apply(pass, nil)
		want("the source is in PASS", "stored_orphaned")
		down(false)
		o.apply(stored, nil)
		want("the app has all")
		o.apply(pass, nil)
		want("nothing waits for it")
	})
}
