package sidecar

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// storedBench is an inbox with the outbox of its stored events and the admin API on both. Nothing is delivered: the test says
// what became of each event.
type storedBench struct {
	*testing.T
	store   *store.Store
	inbox   *extauthz.BoltInbox
	outbox  *egress.BoltOutbox
	records *egress.BoltRecords
	service *extauthz.Service
	log     bytes.Buffer
	gone    map[string]bool // sources that are not in STORE any more
	sending map[egress.DeliveryID]bool
	events  map[string]egress.DeliveryID // by id
	end     func()
}

// Configured, Paused, Pause and Resume implement extauthz.SourceControl.
func (b *storedBench) Configured() []*extauthz.Source {
	return []*extauthz.Source{{Name: "shop"}, {Name: "pass"}}
}
func (b *storedBench) Paused(string) bool { return false }
func (b *storedBench) Pause(string)       {}
func (b *storedBench) Resume(string)      {}

func openStored(t *testing.T, folder string) *storedBench {
	t.Helper()
	b := &storedBench{T: t, gone: make(map[string]bool), sending: make(map[egress.DeliveryID]bool), events: make(map[string]egress.DeliveryID)}
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	check := func(e error) {
		t.Helper()
		if e != nil {
			t.Fatal(e)
		}
	}
	b.store, err = store.Open(ctx, store.Options{Folder: folder})
	check(err)
	b.outbox, err = egress.NewBoltOutbox(egress.BoltOutboxConfig{Store: b.store, Space: egress.StoredSpace, KeepRemoved: true})
	check(err)
	b.inbox, err = extauthz.NewBoltInbox(extauthz.BoltInboxConfig{Store: b.store, Keeper: &stored{outbox: b.outbox}})
	check(err)
	b.records, err = egress.NewBoltRecords(egress.BoltRecordsConfig{
		Outbox: b.outbox, Parked: func(source string) bool { return b.gone[source] }, Sending: func(id egress.DeliveryID) bool { return b.sending[id] },
	})
	check(err)
	b.service = extauthz.NewService(extauthz.ServiceConfig{
		Events: b.inbox, Sources: b, Stored: NewStoredRecords(b.records), Logger: slog.New(slog.NewJSONHandler(&b.log, nil)),
	})
	ended := make(chan error, 2)
	go func() { ended <- b.store.Run(ctx) }()
	running, stop := context.WithCancel(ctx)
	go func() { ended <- b.records.Run(running) }()
	check(b.outbox.SetEndpoints(ctx, []string{"shop", "away"}))
	b.end = func() {
		t.Helper()
		stop()
		check(<-ended)
		cancel()
		check(<-ended)
		check(b.store.Close())
		storetest.CheckFile(t, b.store.Path(), store.AllRows(&extauthz.RowCheck{}, store.RowsIn(egress.StoredSpace, &egress.RowCheck{})))
	}
	return b
}

// keep has an event stored.
func (b *storedBench) keep(source, tenant, id, eventType string) {
	b.Helper()
	key := extauthz.Key{Source: source, Tenant: tenant, ID: id}
	c, err := b.inbox.Claim(b.Context(), extauthz.ClaimRequest{
		Key: key, Lease: time.Minute, OnUnknown: extauthz.OnUnknownRetry, Type: eventType,
		Store: &extauthz.StoredEvent{
			Key: key, Type: eventType, Shown: strings.ReplaceAll(id, "é", "%C3%A9"), Method: "POST", Target: "/in?q=1", Authority: "app.example",
			Headers: []signature.Field{{Name: "x-odd", Value: "a\xffb"}}, Body: []byte("body of " + id), Order: "cart-7", Received: time.Now(),
		},
	})
	if err != nil || c.Outcome != extauthz.Stored {
		b.Fatalf("store %s: %+v, %v", id, c, err)
	}
	r, err := b.inbox.Get(key)
	if err != nil {
		b.Fatal(err)
	}
	b.events[id] = deliveryID(r.Ref)
}

// settle ends the attempt of an event so.
func (b *storedBench) settle(id string, state egress.State, outcome egress.Outcome) {
	b.Helper()
	d, err := b.records.Delivery(b.Context(), b.events[id])
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	b.outbox.Settle(&egress.Settlement{
		Attempt: egress.Attempt{
			Delivery: d.Delivery.ID, N: d.Delivery.Tries + 1, At: time.Now(), Trigger: egress.TriggerSchedule, Outcome: outcome, Counted: true,
			Status: 422, Took: 3 * time.Millisecond, IP: netip.MustParseAddr("127.0.0.1"), RetryAfter: time.Second, Answer: []byte("no"), AnswerBytes: 2,
		},
		Created: d.Delivery.Created, State: state, Lane: egress.LaneRetry, Attempts: d.Delivery.Attempts + 1, Due: time.Now().Add(time.Hour),
	}, func(err error) { done <- err })
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func (b *storedBench) call(_ any, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// list returns what a listing shows, page by page, as id:STATE.
func (b *storedBench) list(req *inboxv1.ListEventsRequest) []string {
	b.Helper()
	var out []string
	for {
		res, err := b.service.ListEvents(b.Context(), connect.NewRequest(req))
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range res.Msg.GetEvents() {
			out = append(out, e.GetId()+":"+word(e.GetState()))
		}
		if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
			return out
		}
	}
}

func word(s inboxv1.EventState) string { return strings.TrimPrefix(s.String(), "EVENT_STATE_") }
