package extauthz

import (
	"context"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
)

// envoy is what the tests below do in Envoy's place: ask, and report how the app answered.
type envoy struct {
	t    *testing.T
	conn *grpc.ClientConn
}

// ask is the answer to a Check for an event.
func (e envoy) ask(id string) answer {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Second)
	defer cancel()
	r, err := authv3.NewAuthorizationClient(e.conn).Check(ctx, hook{id: id}.check(true))
	return readAnswer(e.t, r, err)
}

// report sends an access log entry and returns when the gate has taken it.
func (e envoy) report(ref string, r report) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Second)
	defer cancel()
	stream, err := accesslogv3.NewAccessLogServiceClient(e.conn).StreamAccessLogs(ctx)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := stream.Send(batchOf(entryOf(ref, r))); err != nil {
		e.t.Fatal(err)
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		e.t.Fatal(err)
	}
}

// expect asks again about an event until the answer is the one wanted: reports are on disk 20 ms later.
func (e envoy) expect(step, id, want string) answer {
	e.t.Helper()
	var got string
	for range 100 {
		a := e.ask(id)
		if got = a.body; a.pass {
			got = "passes"
		}
		if got == want {
			return a
		}
		select {
		case <-e.t.Context().Done():
			e.t.FailNow()
		case <-time.After(20 * time.Millisecond):
		}
	}
	e.t.Fatalf("%s: asked about %s: %s, want %s", step, id, got, want)
	return answer{}
}

// still asks once: nothing has changed.
func (e envoy) still(step, id, want string) {
	e.t.Helper()
	// Another event's claim is on disk only after what was reported before it.
	if a := e.ask("flush " + step); !a.pass {
		e.t.Fatalf("%s: %+v", step, a)
	}
	a := e.ask(id)
	got := a.body
	if a.pass {
		got = "passes"
	}
	if got != want {
		e.t.Errorf("%s: asked about %s: %s, want %s", step, id, got, want)
	}
}

const (
	saysInFlight  = `{"status":"in_flight"}`
	saysDuplicate = `{"status":"duplicate"}`
)

// From the Check to the inbox and back, over gRPC: only the claim's own token settles it, in whatever order and number
// the reports come.
func TestConfirmEndsClaims(t *testing.T) {
	t.Parallel()
	var confirm *Confirm
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}), func(c *Config) {
		confirm = newTestConfirm(t, c.Inbox, nil)
		c.Passed = confirm.Passed
	})
	_, conn := serveTest(t, confirm, g.check)
	e := envoy{t, conn}
	refused, unknown := report{500, detailsUpstream, 1}, report{504, "response_timeout", 1}

	first := e.ask("evt_1")
	if !first.pass || first.ref == "" {
		t.Fatalf("first: %+v", first)
	}
	e.still("not reported", "evt_1", saysInFlight)

	key, token, ok := parseRef(first.ref)
	if !ok {
		t.Fatalf("reference %q", first.ref)
	}
	token[7] ^= 1
	e.report(encodeRef(key, token), appDone)
	e.still("forged token", "evt_1", saysInFlight)
	e.report(encodeRef(Key{Source: "payments", ID: "evt_2"}, token), appDone)
	e.still("token of nobody", "evt_2", "passes")
	e.report("", appDone)
	e.report(first.ref[:len(first.ref)-4], appDone)
	e.report(first.ref, unknown)
	e.still("nobody knows", "evt_1", saysInFlight)

	e.report(first.ref, refused)
	second := e.expect("app refused", "evt_1", "passes")
	e.report(first.ref, refused)
	e.still("the first refusal again", "evt_1", saysInFlight)
	e.report(second.ref, appDone)
	e.expect("app took it", "evt_1", saysDuplicate)
	e.report(second.ref, refused)
	e.report(first.ref, refused)
	e.still("refusals after it was done", "evt_1", saysDuplicate)

	if n := confirm.open.Load(); n < 0 {
		t.Errorf("%d passes open", n)
	}
}

// An ext_proc answer means that the claim is DONE: the very next Check says so.
func TestExtProcEndsClaimAtOnce(t *testing.T) {
	t.Parallel()
	var confirm *Confirm
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}), func(c *Config) {
		confirm = newTestConfirm(t, c.Inbox, func(cfg *ConfirmConfig) { cfg.SettleTimeout = 10 * time.Second })
		c.Passed = confirm.Passed
	})
	_, conn := serveTest(t, confirm, g.check)
	e := envoy{t, conn}
	first := e.ask("evt_1")
	if !first.pass {
		t.Fatalf("first: %+v", first)
	}
	talk(t, extprocv3.NewExternalProcessorClient(conn), []*extprocv3.ProcessingRequest{
		requestHeaders(first.ref), responseHeaders(first.ref, "200", detailsUpstream, 1),
	})
	if a := e.ask("evt_1"); a.body != saysDuplicate {
		t.Errorf("after the answer: %+v, want duplicate", a)
	}
}
