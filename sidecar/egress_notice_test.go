package sidecar

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// A receiver that says that it is gone is disabled; the operator is told by a signed webhook, /readyz and the metrics say
// so, what waits is parked, and a person who enables it has that sent.
func TestOutboundTellsOfDisabledEndpoint(t *testing.T) {
	p := newOutPlace(t)
	gone := newReceiver(t, func(n int) int {
		if n == 1 {
			return http.StatusGone
		}
		return http.StatusOK
	})
	operator := newReceiver(t, nil)
	p.config(t, fmt.Sprintf("filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s, %s]}\nendpoints:\n%s", gone.port(), operator.port(),
		p.endpoint("acme", gone.URL)), fmt.Sprintf("notify: {webhook: {url: %q, secrets: [{file: %s}]}}\n", operator.URL+"/notices", p.path("out")))
	start(t, p.place)
	id := p.accepted(t, `{"type":"a","data":1}`)

	var notice struct {
		Type string `json:"type"`
		Data struct {
			Endpoint string `json:"endpoint"`
			Event    string `json:"event"`
		} `json:"data"`
	}
	eventually(t, func() error {
		got := operator.requests()
		if len(got) == 0 {
			return fmt.Errorf("no notice came")
		}
		return json.Unmarshal(got[0].body, &notice)
	})
	if notice.Type != "endpoint.disabled" || notice.Data.Endpoint != "acme" || notice.Data.Event != id || operator.requests()[0].path != "/notices" {
		t.Errorf("the notice is %+v", notice)
	}
	eventually(t, func() error { // the notice does not wait until what came of the attempt is on disk
		if s := deliveryState(t, p, id); s != egressv1.DeliveryState_DELIVERY_STATE_PARKED {
			return fmt.Errorf("the delivery is %v, want it parked", s)
		}
		return nil
	})
	if r, code, err := p.readyz(t); err != nil || code != http.StatusOK || !strings.Contains(r.Details["endpoint_disabled"], "acme") {
		t.Errorf("readyz: %d %+v %v", code, r, err)
	}
	metrics := func(lines ...string) error {
		text := p.metrics(t)
		for _, line := range lines {
			if !strings.Contains(text, line+"\n") {
				return fmt.Errorf("/metrics lacks %s", line)
			}
		}
		return nil
	}
	eventually(t, func() error { // the notice is counted once its answer has come
		return metrics(`sidehook_egress_disabled_endpoints 1`, `sidehook_egress_deliveries{endpoint="acme",state="PARKED"} 1`,
			`sidehook_egress_notices_total{channel="webhook",result="sent"} 1`)
	})
	if status, _, answer := p.post(t, "/v1/events", `{"type":"a","data":2}`); status != http.StatusAccepted || !strings.Contains(answer, `"state":"PARKED"`) {
		t.Errorf("an event for a disabled endpoint: %d %s", status, answer)
	}

	if _, err := p.api().EnableEndpoint(t.Context(), connect.NewRequest(&egressv1.EnableEndpointRequest{Id: "acme"})); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		return metrics(`sidehook_egress_deliveries{endpoint="acme",state="DELIVERED"} 2`,
			`sidehook_egress_notices_total{channel="webhook",result="sent"} 2`)
	})
	// Two deliveries failed, were parked and were taken: that is one thing to be told of, and its end.
	var told []string
	for _, got := range operator.requests() {
		if err := json.Unmarshal(got.body, &notice); err != nil {
			t.Fatal(err)
		}
		told = append(told, notice.Type)
	}
	if want := "endpoint.disabled endpoint.recovered"; strings.Join(told, " ") != want {
		t.Errorf("the operator was told %q, want %s", told, want)
	}
}

// A notice that reaches nobody changes nothing of what it is about, and is said.
func TestOutboundNoticeUnheard(t *testing.T) {
	p := newOutPlace(t)
	gone := newReceiver(t, func(int) int { return http.StatusGone })
	refuses := newReceiver(t, func(int) int { return http.StatusGone }) // which is not tried again
	p.config(t, fmt.Sprintf("filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s, %s]}\nendpoints:\n%s", gone.port(), refuses.port(),
		p.endpoint("acme", gone.URL)), fmt.Sprintf("notify: {webhook: {url: %q, secrets: [{file: %s}]}}\n", refuses.URL, p.path("out")))
	start(t, p.place)
	id := p.accepted(t, `{"type":"a","data":1}`)
	eventually(t, func() error {
		r, code, err := p.readyz(t)
		if err != nil || code != http.StatusOK || r.Details["endpoint_disabled"] == "" || r.Details["notice_unheard"] == "" {
			return fmt.Errorf("readyz: %d %+v %w", code, r, err)
		}
		// The notice does not wait until what came of the attempt is on disk.
		if s := deliveryState(t, p, id); s != egressv1.DeliveryState_DELIVERY_STATE_PARKED {
			return fmt.Errorf("the delivery is %v, want it parked", s)
		}
		return nil
	})
}

// An endpoint that the API adds gets events and stays after a restart; its secret is shown once, and it counts under _api.
func TestOutboundEndpointOfTheAPI(t *testing.T) {
	p := newOutPlace(t)
	r := newReceiver(t, nil)
	p.config(t, r.filter(), "")
	_, stop := start(t, p.place)
	added, err := p.api().AddEndpoint(t.Context(), connect.NewRequest(&egressv1.AddEndpointRequest{
		Id: "made", Spec: &egressv1.EndpointSpec{Url: r.URL},
	}))
	if err != nil {
		t.Fatal(err)
	}
	secret := added.Msg.GetSecret()
	r.accept(t, secret)
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	start(t, p.place)
	id := p.accepted(t, `{"type":"a","data":1}`)
	eventually(t, func() error {
		if s := deliveryState(t, p, id); s != egressv1.DeliveryState_DELIVERY_STATE_DELIVERED {
			return fmt.Errorf("the delivery is %v", s)
		}
		return nil
	})
	if text := p.metrics(t); !strings.Contains(text, `sidehook_egress_attempts_total{endpoint="_api",outcome="delivered"} 1`+"\n") || strings.Contains(text, `"made"`) {
		t.Error("the endpoint is not counted under _api alone")
	}
	list, err := p.api().ListEndpoints(t.Context(), connect.NewRequest(&egressv1.ListEndpointsRequest{}))
	if err != nil || len(list.Msg.GetEndpoints()) != 1 || strings.Contains(list.Msg.String(), strings.TrimPrefix(secret, "whsec_")) {
		t.Errorf("ListEndpoints = %v, %v", list, err)
	}
}
