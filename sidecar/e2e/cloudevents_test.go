package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/protocol"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/go-cmp/cmp"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

// ceSources take CloudEvents by the token of the specification for web hooks.
const ceSources = `
  - {name: events, match: {path: /events}, provider: cloudevents, secrets: [{file: FOLDER/chat}]}
`

// example is the example of the CloudEvents specification 1.0, section 5, under an id.
func example(t *testing.T, id string) cloudevents.Event {
	t.Helper()
	e := cloudevents.New()
	e.SetType("com.github.pull_request.opened")
	e.SetSource("https://github.com/cloudevents/spec/pull")
	e.SetSubject("123")
	e.SetID(id)
	e.SetTime(time.Date(2018, 4, 5, 17, 31, 0, 0, time.UTC))
	e.SetExtension("comexampleextension1", "value with blanks, \u00e9 and \"quotes\"")
	if err := e.SetData("text/xml", []byte(`<much wow="xml"/>`)); err != nil {
		t.Fatal(err)
	}
	return e
}

// received is the event that the SDK reads of a call of the app.
func received(t *testing.T, c call) *cloudevents.Event {
	t.Helper()
	e, err := binding.ToEvent(t.Context(), cehttp.NewMessage(c.header, io.NopCloser(bytes.NewReader(c.body))))
	if err != nil {
		t.Fatalf("the SDK cannot read %v %q: %v", c.header, c.body, err)
	}
	return e
}

// The SDK's client sends an event through Envoy and the gate, in either mode; the SDK reads the same event behind it. The
// other mode, and the client's own repeat, is the same event once more.
func TestCloudEventsThroughTheGate(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: ceSources, prepare: func(x *stack) { x.write("chat", chatSecret) }})
	sender := func(secret string) func(context.Context, cloudevents.Event) error {
		p, err := cehttp.New(cehttp.WithTarget(x.url+"/events"), cehttp.WithHeader("Authorization", "Bearer "+secret))
		if err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context, e cloudevents.Event) error { return p.Send(ctx, (*binding.EventMessage)(&e)) }
	}
	good, forger := sender(chatSecret), sender(otherSecret)
	status := func(err error) int {
		var result *cehttp.Result
		if !protocol.ResultAs(err, &result) {
			t.Fatalf("no answer: %v", err)
		}
		return result.StatusCode
	}
	binary, structured := binding.WithForceBinary(t.Context()), binding.WithForceStructured(t.Context())
	if got := status(forger(binary, example(t, "forged"))); got != http.StatusUnauthorized {
		t.Errorf("another token, binary: %d, want 401", got)
	}
	if got := status(forger(structured, example(t, "forged"))); got != http.StatusUnauthorized {
		t.Errorf("another token, structured: %d, want 401", got)
	}
	batch, err := cehttp.NewHTTPRequestFromEvents(t.Context(), x.url+"/events", []cloudevents.Event{example(t, "b1"), example(t, "b2")})
	if err != nil {
		t.Fatal(err)
	}
	batch.Header.Set("Authorization", "Bearer "+chatSecret)
	body, err := io.ReadAll(batch.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := x.post(message{method: batch.Method, target: "/events", header: batch.Header, body: body}); got.code != http.StatusUnauthorized {
		t.Errorf("a batch, which has no id: %v, want 401", got)
	}
	if n := len(x.app.all()); n != 0 {
		t.Fatalf("the app was called %d times for what is refused", n)
	}
	for i, mode := range []struct {
		name        string
		first, then func(cloudevents.Event) error
		contentType string
	}{
		{"binary", func(e cloudevents.Event) error { return good(binary, e) }, func(e cloudevents.Event) error { return good(structured, e) }, "text/xml"},
		{"structured", func(e cloudevents.Event) error { return good(structured, e) }, func(e cloudevents.Event) error { return good(binary, e) }, cloudevents.ApplicationCloudEventsJSON},
	} {
		e := example(t, "A234-"+mode.name)
		if got := status(mode.first(e)); got != http.StatusOK {
			t.Fatalf("%s: %d", mode.name, got)
		}
		calls := x.app.all()
		if len(calls) != i+1 {
			t.Fatalf("%s: the app was called %d times, want %d", mode.name, len(calls), i+1)
		}
		c := calls[i]
		if got := c.header.Get("Content-Type"); got != mode.contentType {
			t.Errorf("%s: content type %q", mode.name, got)
		}
		if got := c.header.Get("X-Sidehook-Event-Type"); got != e.Type() {
			t.Errorf("%s: type %q", mode.name, got)
		}
		behind := received(t, c)
		if diff := cmp.Diff(e.Context.String()+string(e.Data()), behind.Context.String()+string(behind.Data())); diff != "" {
			t.Errorf("%s: the event behind the gate (-sent +got):\n%s", mode.name, diff)
		}
		x.awaitState("events", c.id(), inboxv1.EventState_EVENT_STATE_DONE)
		for range 2 {
			if got := status(mode.first(e)); got != http.StatusOK {
				t.Errorf("%s, again: %d", mode.name, got)
			}
			if got := status(mode.then(e)); got != http.StatusOK {
				t.Errorf("%s, in the other mode: %d", mode.name, got)
			}
		}
		if n := len(x.app.all()); n != i+1 {
			t.Errorf("%s: the repeats reached the app: %d calls", mode.name, n)
		}
	}
}

// The gate consents like the SDK's own receiver does that lets every origin send at any rate: by the same status and headers.
func TestCloudEventsConsentIsThatOfTheSDK(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: ceSources, prepare: func(x *stack) { x.write("chat", chatSecret) }})
	const origin = "eventemitter.example.com"
	theirs, err := cehttp.New(cehttp.WithDefaultOptionsHandlerFunc([]string{http.MethodPost}, 120, []string{origin}, false))
	if err != nil {
		t.Fatal(err)
	}
	ask := message{method: http.MethodOptions, target: "/events", header: http.Header{
		"Webhook-Request-Origin": {origin}, "Webhook-Request-Rate": {"120"},
	}}
	r := httptest.NewRequestWithContext(t.Context(), ask.method, ask.target, nil)
	r.Header = ask.header
	want := httptest.NewRecorder()
	theirs.OptionsHandler(want, r)
	got := x.post(ask)
	if got.code != want.Code {
		t.Errorf("status %d, want %d", got.code, want.Code)
	}
	for _, name := range []string{"Allow", "Webhook-Allowed-Origin", "Webhook-Allowed-Rate"} {
		if diff := cmp.Diff(want.Header().Values(name), got.header.Values(name)); diff != "" {
			t.Errorf("%s (-SDK +gate):\n%s", name, diff)
		}
	}
	if n := len(x.app.all()) + int(x.events()); n != 0 {
		t.Errorf("the question was taken for an event: %d", n)
	}
}
