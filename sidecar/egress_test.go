package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/store"
	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/pb/sidehook/inbox/v1/inboxv1connect"
)

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// logTo has a sidecar log everything to b.
func logTo(b *lockedBuffer) func(*Options) {
	return func(o *Options) {
		o.Logger = slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

// The whole path: an event is posted, the receiver fails twice, then takes it; the admin API, the metrics and the log tell
// of it, and what lies in the store is whole.
func TestOutboundDelivers(t *testing.T) {
	p := newOutPlace(t)
	r := newReceiver(t, func(n int) int {
		if n <= 2 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	p.config(t, r.filter()+"delivery: {waits: [100ms, 100ms]}\nendpoints:\n"+p.endpoint("acme", r.URL+"/in?token=LETMEIN"), "")
	var log lockedBuffer
	_, stop := start(t, p.place, logTo(&log))

	id := p.accepted(t, `{"type":"invoice.paid","data":{"b":1,"a":2.0}}`)
	eventually(t, func() error {
		if s := deliveryState(t, p, id); s != egressv1.DeliveryState_DELIVERY_STATE_DELIVERED {
			return fmt.Errorf("the delivery is %v", s)
		}
		return nil
	})
	got := r.requests()
	if len(got) != 3 {
		t.Fatalf("%d requests, want 3", len(got))
	}
	for i, req := range got {
		var sent struct {
			Type string          `json:"type"`
			Data json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(req.body, &sent); err != nil || sent.Type != "invoice.paid" || string(sent.Data) != `{"b":1,"a":2.0}` {
			t.Errorf("request %d has the body %s: %v", i+1, req.body, err)
		}
		if req.id != id || req.attempt != fmt.Sprint(i+1) || req.path != "/in" {
			t.Errorf("request %d is %s of %s at %s", i+1, req.attempt, req.id, req.path)
		}
	}
	event, err := p.api().GetEvent(t.Context(), connect.NewRequest(&egressv1.GetEventRequest{Id: id}))
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []string
	for _, a := range event.Msg.GetDeliveries()[0].GetAttempts() {
		outcomes = append(outcomes, a.GetOutcome())
	}
	if want := "server_error server_error delivered"; strings.Join(outcomes, " ") != want {
		t.Errorf("attempts ended %q, want %s", outcomes, want)
	}
	for _, line := range []string{
		`sidehook_egress_events_total{result="accepted"} 1`,
		`sidehook_egress_attempts_total{endpoint="acme",outcome="server_error"} 2`,
		`sidehook_egress_attempts_total{endpoint="acme",outcome="delivered"} 1`,
		`sidehook_egress_attempts_total{endpoint="_api",outcome="delivered"} 0`,
		`sidehook_egress_deliveries{endpoint="acme",state="DELIVERED"} 1`,
		`sidehook_egress_deliveries{endpoint="_removed",state="DEAD"} 0`,
		`sidehook_egress_in_flight 0`,
		`sidehook_egress_oldest_waiting_age_seconds 0`,
		`sidehook_egress_connections_total{reused="true"} 2`,
		`sidehook_store_ephemeral 0`,
	} {
		eventually(t, func() error { // what is on disk is counted a moment later
			if !strings.Contains(p.metrics(t), line+"\n") {
				return fmt.Errorf("/metrics lacks %s", line)
			}
			return nil
		})
	}

	t.Log("the half that is not there answers too")
	status, err := inboxv1connect.NewInboxServiceClient(http.DefaultClient, "http://"+p.admin).GetStatus(t.Context(), connect.NewRequest(&inboxv1.GetStatusRequest{}))
	if err != nil || status.Msg.GetStore().GetPath() != p.store || !status.Msg.GetReady() {
		t.Errorf("GetStatus without a gate: %v, %v", status, err)
	}

	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	p.check(t)
	if text := log.String(); strings.Contains(text, "LETMEIN") || strings.Contains(text, strings.TrimPrefix(outSecret, "whsec_")) {
		t.Errorf("the log tells the URL's token or the secret:\n%s", text)
	}
	if !strings.Contains(log.String(), `"msg":"attempt"`) || !strings.Contains(log.String(), `"what":"weakening"`) {
		t.Errorf("the log has no line of the attempts, or none of the weakening:\n%s", log.String())
	}
}

// check holds the store, which nobody has open, to its rules.
func (p outPlace) check(t *testing.T) {
	t.Helper()
	report, err := store.Check(t.Context(), filepath.Join(p.store, store.FileName),
		store.AllRows(new(extauthz.RowCheck), new(egress.RowCheck)))
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("the store: %v %v", report.Problems, err)
	}
}

// A reload changes endpoints, filter, token and limits at once, also for what waits; what is wrong changes nothing.
func TestOutboundReload(t *testing.T) {
	p := newOutPlace(t)
	down := newReceiver(t, func(int) int { return http.StatusServiceUnavailable })
	up := newReceiver(t, nil)
	filter := fmt.Sprintf("filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s, %s]}\n", down.port(), up.port())
	slow := "delivery: {waits: [1h], jitter_percent: 0}\n"
	p.config(t, filter+slow+"endpoints:\n"+p.endpoint("moves", down.URL+"/LETMEIN")+p.endpoint("goes", down.URL), "")
	var log lockedBuffer
	s, _ := start(t, p.place, logTo(&log))

	id := p.accepted(t, `{"type":"a","endpoint":"moves","data":1}`)
	gone := p.accepted(t, `{"type":"a","endpoint":"goes","data":1}`)
	eventually(t, func() error {
		if n := len(down.requests()); n < 2 {
			return fmt.Errorf("%d requests, want one for each endpoint", n)
		}
		return nil
	})

	t.Log("a wrong configuration changes nothing")
	p.config(t, slow+"endpoints:\n"+p.endpoint("moves", up.URL), "")
	eventually(t, func() error {
		r, code, err := p.readyz(t)
		if err != nil || code != http.StatusOK || !strings.Contains(r.Details["reload_refused"], "egress.endpoints[0].url") {
			return fmt.Errorf("readyz: %d %+v %w", code, r, err)
		}
		return nil
	})

	t.Log("a right one: another URL, an endpoint less, a token, a limit")
	p.config(t, filter+slow+"auth: {token: {file: "+p.path("token")+"}}\nmax_event: 1Ki\nendpoints:\n"+p.endpoint("moves", up.URL), "")
	eventually(t, func() error {
		if status, _, _ := p.post(t, "/v1/events", `{}`); status != http.StatusUnauthorized {
			return fmt.Errorf("without a token: %d", status)
		}
		return nil
	})
	eventually(t, func() error {
		if s := deliveryState(t, p, gone); s != egressv1.DeliveryState_DELIVERY_STATE_CANCELLED {
			return fmt.Errorf("a delivery to an endpoint that is gone is %v", s)
		}
		return nil
	})
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer the-token-of-the-app") }
	if status, _, answer := p.post(t, "/v1/events", `{"type":"a","data":"`+strings.Repeat("x", 1024)+`"}`, bearer); status != http.StatusRequestEntityTooLarge {
		t.Errorf("an event above max_event: %d %s", status, answer)
	}
	if status, _, answer := p.post(t, "/v1/endpoints/goes/events", `{}`, bearer); status != http.StatusNotFound {
		t.Errorf("an event for an endpoint that is gone: %d %s", status, answer)
	}
	// 503 holds an endpoint; a person who enables it ends that, and the waiting retry goes to the new URL.
	if _, err := p.api().EnableEndpoint(t.Context(), connect.NewRequest(&egressv1.EnableEndpointRequest{Id: "moves"})); err != nil {
		t.Fatal(err)
	}
	page, err := p.api().ListDeliveries(t.Context(), connect.NewRequest(&egressv1.ListDeliveriesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, d := range page.Msg.GetDeliveries() {
		if d.GetEndpoint() == "moves" {
			ids = append(ids, d.GetId())
		}
	}
	if _, err := p.api().Redeliver(t.Context(), connect.NewRequest(&egressv1.RedeliverRequest{Ids: ids})); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if s := deliveryState(t, p, id); s != egressv1.DeliveryState_DELIVERY_STATE_DELIVERED {
			return fmt.Errorf("the delivery whose endpoint has moved is %v", s)
		}
		return nil
	})
	if got := up.requests(); len(got) != 1 || got[0].id != id {
		t.Errorf("the new URL got %+v", got)
	}
	if r, _, err := p.readyz(t); err != nil || r.Details["reload_refused"] != "" {
		t.Errorf("readyz after a right configuration: %+v %v", r, err)
	}
	if n := len(s.outbound.registry.Endpoints().All()); n != 1 {
		t.Errorf("%d endpoints in force, want 1", n)
	}
	if text := log.String(); strings.Contains(text, "LETMEIN") || !strings.Contains(text, `"what":"egress.endpoints[moves].url"`) {
		t.Errorf("the log tells the old URL's path, or nothing of the change:\n%s", text)
	}
}

// A stop lets an attempt in flight end, and a start goes on with what waits.
func TestOutboundStops(t *testing.T) {
	p := newOutPlace(t)
	inHand, goOn := make(chan struct{}, 1), make(chan struct{})
	r := newReceiver(t, func(n int) int {
		if n == 1 {
			inHand <- struct{}{}
			<-goOn
		}
		return http.StatusOK
	})
	p.config(t, r.filter()+"delivery: {max_in_flight: 1}\nendpoints:\n"+p.endpoint("acme", r.URL), "")
	_, stop := start(t, p.place)
	first := p.accepted(t, `{"type":"a","data":1}`)
	<-inHand
	second := p.accepted(t, `{"type":"a","data":2}`)
	http.DefaultClient.CloseIdleConnections()
	go func() {
		defer close(goOn)
		for range 1000 { // until the stop is under way
			if _, code, err := p.readyz(t); err != nil || code == http.StatusServiceUnavailable {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}()
	if err := stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	// Not ready comes first: in the moment until sending stops too, the second may begin, and then it ends like the first.
	if got := r.requests(); len(got) > 2 {
		t.Fatalf("%d requests before the stop, want at most both", len(got))
	}
	p.check(t)

	start(t, p.place)
	eventually(t, func() error {
		if s := deliveryState(t, p, second); s != egressv1.DeliveryState_DELIVERY_STATE_DELIVERED {
			return fmt.Errorf("what waited is %v after the start", s)
		}
		return nil
	})
	if s := deliveryState(t, p, first); s != egressv1.DeliveryState_DELIVERY_STATE_DELIVERED {
		t.Errorf("what was in flight is %v after the start", s)
	}
	var ids []string
	for _, req := range r.requests() {
		ids = append(ids, req.id+"/"+req.attempt)
	}
	if want := first + "/1 " + second + "/1"; strings.Join(ids, " ") != want {
		t.Errorf("the receiver got %q, want %s", ids, want)
	}
}

// A store at its limit takes no events and says so; it delivers what it has, and then takes events again.
func TestOutboundFull(t *testing.T) {
	p := newOutPlace(t)
	r := newReceiver(t, nil)
	p.config(t, r.filter()+"endpoints:\n"+p.endpoint("acme", r.URL), fmt.Sprintf(
		"store: {bolt: {path: %s, volume: EPHEMERAL}, limit: 16Mi}\nlimits: {endpoint_deliveries: 1000}\n", p.store))
	_, stop := start(t, p.place)
	if _, err := p.api().PauseEgress(t.Context(), connect.NewRequest(&egressv1.PauseEgressRequest{})); err != nil {
		t.Fatal(err)
	}
	event := `{"type":"a","data":"` + strings.Repeat("x", 200<<10) + `"}`
	accepted := 0
	var status int
	var header http.Header
	var answer string
	for ; accepted < 200; accepted++ {
		if status, header, answer = p.post(t, "/v1/events", event); status != http.StatusAccepted || strings.Contains(answer, "endpoint_full") {
			break
		}
	}
	// A quarter of the store is the most that waits at one endpoint: the event is kept, and goes nowhere.
	if status != http.StatusAccepted || !strings.Contains(answer, `{"endpoint":"acme","error":"endpoint_full"}`) {
		t.Fatalf("event %d: %d %s", accepted, status, answer)
	}
	if r, _, err := p.readyz(t); err != nil || !strings.Contains(r.Details["endpoint_full"], "acme") ||
		r.Details["volume_ephemeral"] == "" || r.Details["egress_paused"] == "" {
		t.Errorf("readyz: %+v %v", r, err)
	}
	if metrics := p.metrics(t); !strings.Contains(metrics, fmt.Sprintf("sidehook_egress_deliveries{endpoint=\"acme\",state=\"PARKED\"} %d\n", accepted)) ||
		!strings.Contains(metrics, "sidehook_egress_endpoint_full_total{endpoint=\"acme\"} 1\n") ||
		!strings.Contains(metrics, "sidehook_store_ephemeral 1\n") || !strings.Contains(metrics, "sidehook_egress_paused 1\n") {
		t.Errorf("/metrics tells nothing of it")
	}

	t.Log("three more endpoints fill the store")
	var endpoints strings.Builder
	for _, id := range []string{"acme", "b", "c", "d", "e"} {
		endpoints.WriteString(p.endpoint(id, r.URL))
	}
	p.config(t, r.filter()+"endpoints:\n"+endpoints.String(), fmt.Sprintf(
		"store: {bolt: {path: %s, volume: EPHEMERAL}, limit: 16Mi}\nlimits: {endpoint_deliveries: 1000}\n", p.store))
	eventually(t, func() error {
		if status, _, answer := p.post(t, "/v1/endpoints/e/events", "{}"); status != http.StatusAccepted {
			return fmt.Errorf("the new endpoint: %d %s", status, answer)
		}
		return nil
	})
	kept := accepted
	for _, id := range []string{"b", "c", "d", "e"} {
		for range 100 {
			status, header, answer = p.post(t, "/v1/endpoints/"+id+"/events", event)
			if status != http.StatusAccepted || strings.Contains(answer, "endpoint_full") {
				break
			}
			kept++
		}
		if status != http.StatusAccepted {
			break
		}
	}
	if status != http.StatusServiceUnavailable || !strings.Contains(answer, "urn:sidehook:problem:store_full") || header.Get("Retry-After") == "" {
		t.Fatalf("after %d events: %d %v %s", kept, status, header, answer)
	}
	if r, code, err := p.readyz(t); err != nil || code != http.StatusOK || r.Details["store_full"] == "" {
		t.Errorf("readyz of a full store: %d %+v %v", code, r, err)
	}

	t.Log("what is delivered makes room")
	if _, err := p.api().ResumeEgress(t.Context(), connect.NewRequest(&egressv1.ResumeEgressRequest{})); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if status, _, answer := p.post(t, "/v1/events", `{"type":"after","data":1}`); status != http.StatusAccepted {
			return fmt.Errorf("after the deliveries: %d %s", status, answer)
		}
		return nil
	})
	eventually(t, func() error {
		page, err := p.api().Summarize(t.Context(), connect.NewRequest(&egressv1.SummarizeRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Msg.GetEndpoints() {
			for _, s := range e.GetStates() {
				if s.GetState() != egressv1.DeliveryState_DELIVERY_STATE_DELIVERED && s.GetCount() > 0 {
					return fmt.Errorf("not delivered to %s: %v", e.GetEndpoint(), s)
				}
			}
		}
		return nil
	})
	if got := len(r.requests()); got < kept {
		t.Errorf("%d requests, want all %d that were accepted", got, kept)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	p.check(t)
}

// A product of a User-Agent is a token, with a token as its version (RFC 9110, 10.1.5): some receivers refuse others.
func TestUserAgent(t *testing.T) {
	t.Parallel()
	product := regexp.MustCompile("^sidehook/[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	for version, want := range map[string]string{
		"(devel)": "sidehook/devel",
		"v1.4.0":  "sidehook/v1.4.0",
		"v0.0.0-20261130205239-b4529aee251d+dirty": "sidehook/v0.0.0-20261130205239-b4529aee251d+dirty",
	} {
		if got := userAgent(version); got != want || !product.MatchString(got) {
			t.Errorf("userAgent(%q) = %q, want %q", version, got, want)
		}
	}
}
