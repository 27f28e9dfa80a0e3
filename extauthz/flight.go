package extauthz

import (
	"context"
	"hash/maphash"
	"sync"
)

// flightShards spreads the locks of flights; a power of two.
const flightShards = 16

// flights holds the Checks under way by Envoy's stream id, so that a Check that Envoy repeats gets the answer of the
// first: with a retry policy on the gRPC service Envoy asks twice about one request. It is bounded by the Checks
// under way. It is safe for concurrent use.
type flights struct {
	seed   maphash.Seed
	shards [flightShards]struct {
		mu sync.Mutex // covers m, and joined of what is in it
		m  map[string]*flight
	}
}

// flight is one Check under way.
type flight struct {
	req    *request      // good while the flight is in the map
	joined chan struct{} // made by the first that waits; closed at the end
	end    *decision     // set before joined is closed, if it is
}

func newFlights() *flights {
	f := &flights{seed: maphash.MakeSeed()}
	for i := range f.shards {
		f.shards[i].m = make(map[string]*flight)
	}
	return f
}

// do runs judge for req, or waits for the same request's Check that runs already and returns its decision.
// A first Check that was cancelled decides nothing for the second: that one is judged by itself.
func (f *flights) do(ctx context.Context, req *request, judge func(context.Context, *request) decision) (d decision) {
	if req.id == "" {
		return judge(ctx, req)
	}
	shard := &f.shards[maphash.String(f.seed, req.id)%flightShards]
	own := &flight{req: req}
	for {
		shard.mu.Lock()
		first, running := shard.m[req.id]
		if !running {
			shard.m[req.id] = own
			shard.mu.Unlock()
			break
		}
		if !first.req.same(req) { // another Envoy's id, by chance
			shard.mu.Unlock()
			return judge(ctx, req)
		}
		if first.joined == nil {
			first.joined = make(chan struct{})
		}
		shard.mu.Unlock()
		select {
		case <-first.joined:
			if ctx.Err() == nil && first.end.reason != ReasonCancelled {
				return *first.end
			}
		case <-ctx.Done():
			return decision{reason: ReasonCancelled, err: context.Cause(ctx)}
		}
	}
	// A judge that panics ends as an invalid decision for those who wait, which answers as a fault of ours.
	defer func() {
		shard.mu.Lock()
		delete(shard.m, req.id)
		shard.mu.Unlock()
		if own.joined != nil {
			end := d
			own.end = &end
			close(own.joined)
		}
	}()
	return judge(ctx, req)
}
