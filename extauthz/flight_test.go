package extauthz

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func flightRequest(id string) *request {
	r := &request{}
	r.reset()
	r.id, r.method, r.target, r.body = id, "POST", "/hook", []byte("body")
	return r
}

// Envoy that asks again while the first Check runs gets one answer, and one Check's work is done.
func TestFlightsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		release := make(chan struct{})
		var judged atomic.Int32
		judge := func(context.Context, *request) decision {
			judged.Add(1)
			<-release
			return decision{reason: ReasonPassed, ref: "the first"}
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if d := f.do(t.Context(), flightRequest("1"), judge); d.reason != ReasonPassed || d.ref != "the first" {
					t.Errorf("decision %v, %q", d.reason, d.ref)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if n := judged.Load(); n != 1 {
			t.Errorf("judged %d times", n)
		}
		// When it has ended, the next one is judged by itself: it may be a duplicate by now.
		f.do(t.Context(), flightRequest("1"), judge)
		if n := judged.Load(); n != 2 {
			t.Errorf("judged %d times, want 2", n)
		}
		for i := range f.shards {
			if n := len(f.shards[i].m); n != 0 {
				t.Errorf("%d flights are left", n)
			}
		}
	})
}

// Requests that only meet on an id, and requests without one, have nothing to do with each other.
func TestFlightsKeepApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		release := make(chan struct{})
		judge := func(_ context.Context, r *request) decision {
			<-release
			return decision{reason: ReasonPassed, ref: r.target}
		}
		var wg sync.WaitGroup
		for _, target := range []string{"/a", "/b"} {
			for _, id := range []string{"1", ""} {
				wg.Go(func() {
					r := flightRequest(id)
					r.target = target
					if d := f.do(t.Context(), r, judge); d.ref != target {
						t.Errorf("%s got the answer of %s", target, d.ref)
					}
				})
			}
		}
		synctest.Wait()
		close(release)
		wg.Wait()
	})
}

// A first Check that was cancelled says nothing to the second: Envoy asks again because it gave the first up.
func TestFlightsFirstCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		ctx, cancel := context.WithCancel(t.Context())
		judge := func(ctx context.Context, _ *request) decision {
			if ctx.Done() != t.Context().Done() {
				<-ctx.Done()
				return decision{reason: ReasonCancelled}
			}
			return decision{reason: ReasonPassed, ref: "the second"}
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if d := f.do(ctx, flightRequest("1"), judge); d.reason != ReasonCancelled {
				t.Errorf("first: %v", d.reason)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if d := f.do(t.Context(), flightRequest("1"), judge); d.ref != "the second" {
				t.Errorf("second: %v", d.reason)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
	})
}

// Who waits for the first and is cancelled meanwhile does not pass, whatever the first gets.
func TestFlightsSecondCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		release := make(chan struct{})
		judge := func(context.Context, *request) decision { <-release; return decision{reason: ReasonPassed} }
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if d := f.do(t.Context(), flightRequest("1"), judge); d.reason != ReasonPassed {
				t.Errorf("first: %v", d.reason)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if d := f.do(ctx, flightRequest("1"), judge); d.reason != ReasonCancelled {
				t.Errorf("second: %v", d.reason)
			}
		})
		synctest.Wait()
		cancel()
		close(release) // both at once: the second must not take the answer
		wg.Wait()
	})
}

// ended is a context that ends just after it was looked at: its Err says so, its Done not yet.
type ended struct{ context.Context }

func (ended) Err() error { return context.Canceled }

// Who is cancelled the moment the first ends does not take its pass, though the answer came first.
func TestFlightsSecondCancelledWithTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		release := make(chan struct{})
		judge := func(ctx context.Context, _ *request) decision {
			<-release
			if ctx.Err() != nil {
				return decision{reason: ReasonCancelled}
			}
			return decision{reason: ReasonPassed}
		}
		var wg sync.WaitGroup
		wg.Go(func() { f.do(t.Context(), flightRequest("1"), judge) })
		synctest.Wait()
		wg.Go(func() {
			if d := f.do(ended{t.Context()}, flightRequest("1"), judge); d.reason != ReasonCancelled {
				t.Errorf("second: %v", d.reason)
			}
		})
		synctest.Wait()
		close(release)
		wg.Wait()
	})
}

// A panic of the first reaches its own root, and the second is answered as a fault of ours.
func TestFlightsPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		release := make(chan struct{})
		judge := func(context.Context, *request) decision { <-release; panic("broken") }
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			f.do(t.Context(), flightRequest("1"), judge)
		})
		synctest.Wait()
		wg.Go(func() {
			d := f.do(t.Context(), flightRequest("1"), judge)
			if d.answer(); d.reason != ReasonInternal {
				t.Errorf("second: %v", d.reason)
			}
		})
		synctest.Wait()
		close(release)
		wg.Wait()
	})
}
