package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/secret"
	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/sidecar"
)

// outboundEvents are the events of type "bulk" to the endpoint "bulk", which are dead: more than the API's largest page.
const outboundEvents = 1200

// scriptSender answers attempts by the event's type: dead, later, and taken for all others.
type scriptSender struct{}

// Send implements egress.Sender.
func (scriptSender) Send(_ context.Context, e *egress.Endpoint, ev *egress.Event, _ int) egress.Result {
	r := egress.Result{Outcome: egress.OutcomeDelivered, Status: 200, Took: 3 * time.Millisecond, IP: netip.MustParseAddr("192.0.2.7")}
	switch {
	case ev.Type == "dead" || ev.Type == "bulk":
		r.Outcome, r.Status, r.Answer = egress.OutcomeAbortAsked, 400, []byte("no such thing \x1b[31m")
	case ev.Type == "later" || e.ID == "refusing":
		r.Outcome, r.Status, r.RetryAfter = egress.OutcomeRejected, 422, time.Hour
	}
	return r
}

// egressServer runs `egressserver [noseal]`: it serves the admin API of an outbound half on $ADMIN. It has the endpoints
// acme, bulk and refusing of the configuration, and events that are delivered, dead and waiting; with noseal it has no seal
// key. Its log is in the file egress.log.
func egressServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: egressserver [noseal]")
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
	logFile, err := os.Create(ts.MkAbs("egress.log"))
	ts.Check(err)
	ts.Defer(func() { _ = logFile.Close() })
	log := slog.New(slog.NewJSONHandler(logFile, &slog.HandlerOptions{Level: slog.LevelDebug}))

	st, err := store.Open(ctx, store.Options{Folder: ts.MkAbs("store")})
	ts.Check(err)
	ts.Defer(func() { _ = st.Close() })
	outbox, err := egress.NewBoltOutbox(egress.BoltOutboxConfig{Store: st})
	ts.Check(err)
	var seal []secret.Secret
	if len(args) == 0 {
		seal = append(seal, secret.New([]byte("a-seal-key-of-this-test-and-of-no-other")))
	}
	sealer, err := egress.NewSealer(seal...)
	ts.Check(err)
	var dispatcher *egress.Dispatcher
	registry, err := egress.NewRegistry(egress.RegistryConfig{Store: st, Outbox: outbox, Sealer: sealer, Logger: log, Changed: func() {
		if err := dispatcher.Refresh(); err != nil {
			log.Error("refresh", slog.Any("err", err))
		}
	}})
	ts.Check(err)
	dispatcher, err = egress.NewDispatcher(egress.DispatcherConfig{Outbox: outbox, Sender: scriptSender{}, Endpoints: registry.Endpoints})
	ts.Check(err)
	outbox.SetChanges(dispatcher)
	records, err := egress.NewBoltRecords(egress.BoltRecordsConfig{Outbox: outbox, Parked: dispatcher.Parked, Sending: dispatcher.InFlight})
	ts.Check(err)
	stored.Go(func() { _ = st.Run(storing) })
	for _, run := range []func(context.Context) error{dispatcher.Run, outbox.Run, registry.Run, records.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	filter, err := netguard.New(netguard.Config{})
	ts.Check(err)
	policy := egress.Policy{
		Timeout: 15 * time.Second, Schedule: egress.DefaultSchedule(), RespectRetryAfter: true, OnGone: egress.GoneDisables, MaxInFlight: 64,
		DisableAfter: 120 * time.Hour,
	}
	var list []*egress.Endpoint
	for _, id := range []string{"acme", "bulk", "refusing"} {
		target, err := filter.Check("https://" + id + ".example/in?token=in-the-url")
		ts.Check(err)
		list = append(list, &egress.Endpoint{ID: id, Origin: egress.OriginConfig, Target: target, Filter: filter, Policy: policy, Keys: []signature.Key{scriptKey(ts)}})
	}
	ts.Check(registry.SetConfig(ctx, egress.ConfigEndpoints{List: list, Policy: policy, Filter: filter}))
	fillOutbox(ctx, ts, outbox, records)

	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	ts.Check(err)
	s := &http.Server{
		Handler: sidecar.NewAdmin(sidecar.AdminConfig{
			Inbox:  extauthz.NewService(extauthz.ServiceConfig{Status: testStatus(ts.MkAbs("unready"))}),
			Egress: egress.NewService(egress.ServiceConfig{Records: records, Registry: registry, Switch: dispatcher, Sender: scriptSender{}, UntilFull: untilFull, Logger: log}),
		}),
		ReadHeaderTimeout: 5 * time.Second,
	}
	running.Go(func() { _ = s.Serve(l) })
	ts.Defer(func() { _ = s.Close() })
	ts.Setenv("ADMIN", l.Addr().String())
}

// untilFull stands for the store's estimate.
func untilFull() (time.Duration, bool) { return 90 * time.Minute, true }

// scriptKey is the key of the specification's example.
func scriptKey(ts *testscript.TestScript) signature.Key {
	p, _ := signature.ProviderByName("standard-webhooks")
	k, err := p.Verifier().ParseKey([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	ts.Check(err)
	return k
}

// fillOutbox has events accepted, and waits until the first attempt of each is on disk.
func fillOutbox(ctx context.Context, ts *testscript.TestScript, outbox *egress.BoltOutbox, records *egress.BoltRecords) {
	var posts sync.WaitGroup
	post := func(id, tenant, eventType string, endpoints ...string) {
		posts.Go(func() {
			body := []byte(`{"of":"` + id + "\",\"clear\":\"\x1b[2J\"}")
			e := &egress.Event{
				ID: id, Tenant: tenant, Type: eventType, ContentType: "application/json", Body: body, Content: sha256.Sum256(body),
				Accepted: time.Now(),
			}
			var targets []egress.Target
			for _, t := range endpoints {
				targets = append(targets, egress.Target{Endpoint: t})
			}
			_, err := outbox.Accept(ctx, e, targets)
			if err != nil {
				ts.Logf("accept %s: %v", id, err)
			}
		})
	}
	post("order-ok", "", "order.paid", "acme")
	post("order-dead", "", "dead", "acme")
	post("order-later", "", "later", "acme", "refusing")
	post("order-of-tenant", "t1", "dead", "acme")
	post("order-\x7e!", "", "\u202etxt.exe", "acme") // reads backwards
	for i := range outboundEvents {
		post(fmt.Sprintf("bulk-%05d", i), "", "bulk", "bulk")
	}
	posts.Wait()
	deadline := time.Now().Add(time.Minute)
	want := map[egress.State]int64{egress.StateDelivered: 2, egress.StateDead: outboundEvents + 2, egress.StateWaiting: 2}
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		got := make(map[egress.State]int64)
		attempted := 0
		counts, err := records.Summary(ctx)
		ts.Check(err)
		for _, c := range counts {
			got[c.State] += c.Count
		}
		page, err := records.ListDeliveries(ctx, egress.Filter{State: egress.StateWaiting}, "", 0)
		ts.Check(err)
		for _, d := range page.Deliveries {
			attempted += min(1, d.Tries)
		}
		if got[egress.StateDelivered] == want[egress.StateDelivered] && got[egress.StateDead] == want[egress.StateDead] &&
			got[egress.StateWaiting] == want[egress.StateWaiting] && attempted == 2 {
			tick.Stop()
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the outbox is not filled: %v, want %v", got, want)
		}
	}
}
