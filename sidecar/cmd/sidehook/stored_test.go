package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/sidecar"
)

// scriptKeeper keeps stored events in an outbox.
type scriptKeeper struct {
	outbox  *egress.BoltOutbox
	records extauthz.StoredRecords
}

// Prepare implements extauthz.Keeper.
func (k *scriptKeeper) Prepare(e *extauthz.StoredEvent) (extauthz.Keeping, error) {
	a, err := k.outbox.Prepare(&egress.Event{
		ID: e.Shown, Unindexed: true, Tenant: e.Key.Tenant, Type: e.Type, Body: e.Body, Accepted: e.Received,
		Headers: append([]signature.Field{{Name: ":method", Value: e.Method}, {Name: ":path", Value: e.Target}}, e.Headers...),
	}, []egress.Target{{Endpoint: e.Key.Source}})
	return scriptKeeping{k, a}, err
}

// Open implements extauthz.Keeper.
func (k *scriptKeeper) Open(*store.Tx, extauthz.StoredRef) (bool, error) { return true, nil }

type scriptKeeping struct {
	k *scriptKeeper
	a *egress.Acceptance
}

// Put implements extauthz.Keeping.
func (p scriptKeeping) Put(tx *store.Tx) (extauthz.StoredRef, error) {
	if err := p.a.Put(tx); err != nil {
		return extauthz.StoredRef{}, err
	}
	return p.k.records.ParseRef(p.a.ID(0).String())
}

// Done implements extauthz.Keeping.
func (p scriptKeeping) Done(err error) { p.a.Done(err) }

// storedServer runs `storedserver`: it serves the admin API of an inbox with stored events on $ADMIN: of the source orders,
// which is in STORE, and of gone, which is not any more. Its log is in the file stored.log.
func storedServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: storedserver")
	}
	ctx, cancel := context.WithCancel(context.Background())
	storing, endStore := context.WithCancel(context.Background())
	var running, stored sync.WaitGroup
	ts.Defer(func() {
		cancel()
		running.Wait()
		endStore()
		stored.Wait()
	})
	logFile, err := os.Create(ts.MkAbs("stored.log"))
	ts.Check(err)
	ts.Defer(func() { _ = logFile.Close() })
	st, err := store.Open(ctx, store.Options{Folder: ts.MkAbs("store")})
	ts.Check(err)
	ts.Defer(func() { _ = st.Close() })
	outbox, err := egress.NewBoltOutbox(egress.BoltOutboxConfig{Store: st, Space: egress.StoredSpace, KeepRemoved: true})
	ts.Check(err)
	filter, err := netguard.New(netguard.Config{})
	ts.Check(err)
	target, err := filter.Check("https://app.example/")
	ts.Check(err)
	app := egress.NewEndpoints([]*egress.Endpoint{{
		ID: "orders", Origin: egress.OriginConfig, Target: target, Filter: filter, Keys: []signature.Key{scriptKey(ts)},
		Policy: egress.Policy{Timeout: time.Second, Schedule: egress.DefaultSchedule(), OnGone: egress.GoneRetries, MaxInFlight: 64},
	}})
	dispatcher, err := egress.NewDispatcher(egress.DispatcherConfig{
		Outbox: outbox, Sender: scriptSender{}, Endpoints: func() *egress.Endpoints { return app },
	})
	ts.Check(err)
	outbox.SetChanges(dispatcher)
	records, err := egress.NewBoltRecords(egress.BoltRecordsConfig{
		Outbox: outbox, Parked: func(source string) bool { return source == "gone" }, Sending: dispatcher.InFlight,
	})
	ts.Check(err)
	keeper := &scriptKeeper{outbox, sidecar.NewStoredRecords(records)}
	inbox, err := extauthz.NewBoltInbox(extauthz.BoltInboxConfig{Store: st, Keeper: keeper})
	ts.Check(err)
	stored.Go(func() { _ = st.Run(storing) })
	for _, run := range []func(context.Context) error{dispatcher.Run, outbox.Run, records.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	ts.Check(outbox.SetEndpoints(ctx, []string{"orders", "gone"}))
	ts.Check(dispatcher.Refresh())
	fillStored(ctx, ts, inbox, keeper.records)

	sources, err := extauthz.NewSources([]*extauthz.Source{testSource("orders", "custom")}, nil)
	ts.Check(err)
	gate, err := extauthz.New(extauthz.Config{Inbox: inbox, Sources: sources})
	ts.Check(err)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	ts.Check(err)
	s := &http.Server{
		Handler: sidecar.NewAdmin(sidecar.AdminConfig{Inbox: extauthz.NewService(extauthz.ServiceConfig{
			Events: inbox, Sources: gate, Stored: keeper.records, Status: testStatus(ts.MkAbs("unready")), Logger: slog.New(slog.NewJSONHandler(logFile, nil)),
		})}),
		ReadHeaderTimeout: 5 * time.Second,
	}
	running.Go(func() { _ = s.Serve(l) })
	ts.Defer(func() { _ = s.Close() })
	ts.Setenv("ADMIN", l.Addr().String())
}

// fillStored has events stored, and waits until what becomes of each is on disk; scriptSender answers them.
func fillStored(ctx context.Context, ts *testscript.TestScript, inbox *extauthz.BoltInbox, records extauthz.StoredRecords) {
	keep := func(source, tenant, id, eventType string) {
		key := extauthz.Key{Source: source, Tenant: tenant, ID: id}
		c, err := inbox.Claim(ctx, extauthz.ClaimRequest{
			Key: key, Lease: time.Minute, OnUnknown: extauthz.OnUnknownRetry, Type: eventType,
			Store: &extauthz.StoredEvent{
				Key: key, Type: eventType, Shown: id, Method: "POST", Target: "/hooks/orders", Received: time.Now(),
				Headers: []signature.Field{{Name: "content-type", Value: "application/json"}}, Body: []byte("{\"clear\":\"\x1b[2J\"}"),
			},
		})
		ts.Check(err)
		if c.Outcome != extauthz.Stored {
			ts.Fatalf("%s: outcome %d", id, c.Outcome)
		}
	}
	keep("orders", "", "ord-taken", "order.paid")
	keep("orders", "", "ord-dead", "dead")
	keep("orders", "", "ord-dead-2", "dead")
	keep("orders", "", "ord-later", "later")
	keep("orders", "t1", "ord-of-tenant", "dead")
	keep("gone", "", "ord-lost", "order.paid")
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		page, err := records.List(ctx, extauthz.StoredFilter{}, "", 0)
		ts.Check(err)
		tried := 0
		for _, r := range page.Records {
			tried += min(1, r.Tries)
		}
		if tried == 5 { // all but the one that is lost
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the inbox is not filled: %+v", page.Records)
		}
	}
}
