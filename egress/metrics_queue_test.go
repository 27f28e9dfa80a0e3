package egress

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// How things stand is told from counters: by endpoint and state, the API's endpoints as one, and how old the oldest is.
func TestQueueMetrics(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBoltOutbox(t, folder, 0, func(c *BoltOutboxConfig) { c.EndpointDeliveries = 3 })
		defer func() {
			if err := b.end(); err != nil {
				t.Error(err)
			}
		}()
		set := NewEndpoints([]*Endpoint{
			{ID: "a", Origin: OriginConfig}, {ID: "b", Origin: OriginConfig}, {ID: "c", Origin: OriginAPI, Unusable: "its secrets cannot be opened"},
		})
		d, err := NewDispatcher(DispatcherConfig{Outbox: b.BoltOutbox, Sender: fixedSender{}, Endpoints: func() *Endpoints { return set }})
		if err != nil {
			t.Fatal(err)
		}
		r := prometheus.NewRegistry()
		r.MustRegister(&QueueMetrics{Outbox: b.BoltOutbox, Endpoints: func() *Endpoints { return set }, Dispatcher: d})
		one := func(name string) float64 { return metricSeries(t, r, name)[""] }
		deliveries := func() map[string]float64 {
			series := metricSeries(t, r, "sidehook_egress_deliveries")
			if want := 4 * 6; len(series) != want {
				t.Errorf("%d series of deliveries, want %d", len(series), want)
			}
			maps.DeleteFunc(series, func(_ string, n float64) bool { return n == 0 })
			return series
		}
		if got := deliveries(); len(got) > 0 || one("sidehook_egress_oldest_waiting_age_seconds") != 0 {
			t.Errorf("before anything was accepted: %v", got)
		}

		b.mustAccept(t, boltEvent("", "1"), "b", "c")
		time.Sleep(3 * time.Hour)
		for range 3 {
			b.mustAccept(t, boltEvent("", "2"), "a")
		}
		b.mustAccept(t, boltEvent("", "3"), "c")
		if err := d.Disable(context.Background(), "b", DisabledPerson); err != nil {
			t.Fatal(err)
		}
		want := map[string]float64{"a WAITING ": 3, "b PARKED ": 1, "_api PARKED ": 2}
		if got := deliveries(); !maps.Equal(got, want) {
			t.Errorf("deliveries %v, want %v", got, want)
		}
		if got := one("sidehook_egress_oldest_waiting_age_seconds"); got < 3*3600 || got >= 4*3600 {
			t.Errorf("the oldest is %v s old, want 3 h, told to the hour", got)
		}
		if full := b.FullEndpoints(); !slices.Equal(full, []string{"a"}) {
			t.Errorf("full are %q, want a", full)
		}
		for name, want := range map[string]float64{
			"sidehook_egress_disabled_endpoints": 1, "sidehook_egress_held_endpoints": 0, "sidehook_egress_unusable_endpoints": 1,
			"sidehook_egress_paused": 0, "sidehook_egress_in_flight": 0,
		} {
			if got := one(name); got != want {
				t.Errorf("%s = %v, want %v", name, got, want)
			}
		}

		t.Log("an endpoint goes, and what waited longest with it")
		set = NewEndpoints(set.All()[:1])
		if err := b.SetEndpoints(context.Background(), []string{"a"}); err != nil {
			t.Fatal(err)
		}
		if err := d.Refresh(); err != nil {
			t.Fatal(err)
		}
		if err := b.CancelRemoved(context.Background()); err != nil {
			t.Fatal(err)
		}
		d.SetPaused(true)
		series := metricSeries(t, r, "sidehook_egress_deliveries")
		if series["a PARKED "] != 3 || series["_removed CANCELLED "] != 3 || series["_api WAITING "] != 0 {
			t.Errorf("deliveries %v, want 3 of a parked and 3 of others cancelled", series)
		}
		if got := one("sidehook_egress_oldest_waiting_age_seconds"); got >= 3600 {
			t.Errorf("the oldest is %v s old, want one of this hour", got)
		}
		if one("sidehook_egress_paused") != 1 {
			t.Error("it is not told that all is paused")
		}
	})
}
