package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	stripewebhook "github.com/stripe/stripe-go/v83/webhook"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// What the rules of a source keep from the app is answered 200 in STORE too, and kept with the reason. The app verifies by itself,
// with Stripe's library and a narrow window: it accepts what was signed anew, long after the sender had signed it.
func TestStoreRules(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: `
  - {name: payments, match: {path_prefix: /webhooks/stripe}, provider: stripe, secrets: [{file: FOLDER/stripe}], mode: STORE, version: {}, live_only: true, types: ["invoice.*"],
     dedupe: {also: {object: data.object.id, types: [invoice.paid, invoice.payment_succeeded], window: 1h}}, delivery: {url: "http://APP", resign: true, waits: [100ms]}}`})
	x.app.answer(func(w http.ResponseWriter, r *http.Request) {
		calls := x.app.all()
		if err := stripewebhook.ValidatePayloadWithTolerance(calls[len(calls)-1].body, r.Header.Get("Stripe-Signature"), stripeSecret, time.Minute); err != nil {
			t.Errorf("the app refuses the delivery: %v", err)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	const (
		stale   = inboxv1.EventState_EVENT_STATE_STALE
		ignored = inboxv1.EventState_EVENT_STATE_IGNORED
		change  = inboxv1.EventState_EVENT_STATE_DUPLICATE_CHANGE
	)
	live := "true"
	event := func(id, kind, object string, created int) message {
		body := fmt.Sprintf(`{"id":%q,"type":%q,"created":%d,"livemode":%s,"data":{"object":{"id":%q}}}`, id, kind, 1_700_000_000+created, live, object)
		return stripeBody([]byte(body), time.Now().Add(-4*time.Minute), stripeSecret)
	}
	for _, test := range []struct {
		name, kind, object, live string
		created                  int
		word                     string
		state                    inboxv1.EventState
	}{
		{"the newer one first", "invoice.updated", "in_1", "true", 66, "stored", done},
		{"then the older one", "invoice.updated", "in_1", "true", 65, "stale", stale},
		{"one of the same second", "invoice.finalized", "in_1", "true", 66, "stored", done},
		{"an older one of another object", "invoice.updated", "in_2", "true", 65, "stored", done},
		{"the end of an object", "invoice.deleted", "in_3", "true", 70, "stored", done},
		{"a late change of what has ended", "invoice.updated", "in_3", "true", 69, "stale", stale},
		{"the first of a pair", "invoice.paid", "in_4", "true", 80, "stored", done},
		{"the other of it", "invoice.payment_succeeded", "in_4", "true", 81, "duplicate_change", change},
		{"the test mode", "invoice.paid", "in_5", "false", 80, "ignored", ignored},
		{"another type", "charge.refunded", "ch_1", "true", 80, "ignored", ignored},
	} {
		live = test.live
		m := event(test.name, test.kind, test.object, test.created)
		if got := x.post(m); !got.is(http.StatusOK, test.word) {
			t.Errorf("%s: the sender got %v, want 200 %s", test.name, got, test.word)
		}
		again := test.word
		if again == "stored" {
			again = "duplicate"
		}
		if got := x.post(m); !got.is(http.StatusOK, again) {
			t.Errorf("%s, again: the sender got %v, want 200 %s", test.name, got, again)
		}
		x.awaitState("payments", test.name, test.state)
		want := 0
		if test.state == done {
			want = 1
		}
		if n := len(x.app.of(test.name)); n != want {
			t.Errorf("%s: the app was called %d times, want %d", test.name, n, want)
		}
	}
}
