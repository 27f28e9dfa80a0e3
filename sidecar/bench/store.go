package main

import (
	"context"
	"errors"
	"maps"
	"time"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/sidecar/envoytest"
)

// storedFlight is the default of delivery.max_in_flight.
const storedFlight = 8

// storedSource are the fields of a source in STORE whose app listens at addr, with so many events at one time and more settings of
// its delivery.
func storedSource(addr string, flight int, more map[string]any) map[string]any {
	delivery := map[string]any{"url": "http://" + addr, "max_in_flight": flight}
	maps.Copy(delivery, more)
	return map[string]any{"mode": "STORE", "delivery": delivery}
}

// storeGate measures whole requests to sources in STORE through a real Envoy: one whose app is away all the time, and one whose
// app takes each event at once, in the same seconds.
func storeGate(ctx context.Context, s settings, b bounds, folder string, out *report) (err error) {
	g := newGateBench(s, folder, out)
	defer func() { err = errors.Join(err, g.stop()) }()
	if err := g.startApp(ctx); err != nil {
		return err
	}
	away, err := envoytest.FreeAddrs(1)
	if err != nil {
		return err
	}
	g.ways = []*way{
		{name: "allow-all", dropLog: true},
		{name: "STORE, app away", source: storedSource(away[0], storedFlight, nil),
			settled: inboxv1.EventState_EVENT_STATE_STORED, patience: settleTime},
		{name: "STORE, app there", source: storedSource(g.appAddr, storedFlight, nil),
			settled: inboxv1.EventState_EVENT_STATE_DONE, patience: time.Minute},
	}
	if err := g.run(ctx); err != nil {
		return err
	}
	g.figure("stored through Envoy, the app away", g.ways[1], b.store)
	g.figure("stored through Envoy, and delivered meanwhile", g.ways[2], b.store)
	return errors.Join(g.writeProfile(ctx, g.ways[1]), g.writeProfile(ctx, g.ways[2]))
}
