package sidecar

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// states counts the deliveries to an endpoint by state.
func (p outPlace) states(t *testing.T, endpoint string) map[egressv1.DeliveryState]int64 {
	t.Helper()
	res, err := p.api().Summarize(t.Context(), connect.NewRequest(&egressv1.SummarizeRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[egressv1.DeliveryState]int64{}
	for _, e := range res.Msg.GetEndpoints() {
		if e.GetEndpoint() == endpoint {
			for _, s := range e.GetStates() {
				if s.GetCount() > 0 {
					counts[s.GetState()] = s.GetCount()
				}
			}
		}
	}
	return counts
}

// Case 23: what a person decides reaches what is queued already. Nothing more is sent to an endpoint that is disabled, also
// after a restart, until it is enabled; nor to one that is removed, whose deliveries are cancelled.
func TestOutboundStateReachesTheQueue(t *testing.T) {
	const events = 100
	p := newOutPlace(t)
	var works atomic.Bool
	r := newReceiver(t, func(int) int {
		if works.Load() {
			return http.StatusOK
		}
		return http.StatusInternalServerError
	})
	p.config(t, r.filter()+"delivery: {waits: ["+strings.Repeat("100ms, ", 99)+"100ms], max_in_flight: 4}\n", "")
	_, stop := start(t, p.place)

	// fill has an endpoint with events that are tried again and again.
	fill := func(id string) (secret string) {
		added, err := p.api().AddEndpoint(t.Context(), connect.NewRequest(&egressv1.AddEndpointRequest{Id: id, Spec: &egressv1.EndpointSpec{Url: r.URL + "/" + id}}))
		if err != nil {
			t.Fatal(err)
		}
		r.accept(t, added.Msg.GetSecret())
		before := len(r.requests())
		for range events {
			p.accepted(t, fmt.Sprintf(`{"type":"a","endpoint":%q,"data":1}`, id))
		}
		eventually(t, func() error {
			if n := len(r.requests()) - before; n < events+20 {
				return fmt.Errorf("%d attempts", n)
			}
			return nil
		})
		return added.Msg.GetSecret()
	}
	// quiet checks that nothing is sent any more, and how the deliveries stand.
	quiet := func(id string, want egressv1.DeliveryState) {
		t.Helper()
		eventually(t, func() error {
			if text := p.metrics(t); !strings.Contains(text, "sidehook_egress_in_flight 0\n") {
				return errors.New("attempts are under way")
			}
			if got := p.states(t, id); len(got) != 1 || got[want] != events {
				return fmt.Errorf("of %s there are %v", id, got)
			}
			return nil
		})
		before := len(r.requests())
		<-time.After(time.Second) // ten retries of each would come
		if n := len(r.requests()) - before; n != 0 {
			t.Errorf("%d requests to an endpoint that is %s", n, id)
		}
	}

	secret := fill("disabled")
	if _, err := p.api().DisableEndpoint(t.Context(), connect.NewRequest(&egressv1.DisableEndpointRequest{Id: "disabled"})); err != nil {
		t.Fatal(err)
	}
	quiet("disabled", egressv1.DeliveryState_DELIVERY_STATE_PARKED)
	fill("removed")
	if _, err := p.api().RemoveEndpoint(t.Context(), connect.NewRequest(&egressv1.RemoveEndpointRequest{Id: "removed"})); err != nil {
		t.Fatal(err)
	}
	quiet("removed", egressv1.DeliveryState_DELIVERY_STATE_CANCELLED)

	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	start(t, p.place)
	quiet("disabled", egressv1.DeliveryState_DELIVERY_STATE_PARKED)
	works.Store(true)
	r.accept(t, secret)
	if _, err := p.api().EnableEndpoint(t.Context(), connect.NewRequest(&egressv1.EnableEndpointRequest{Id: "disabled"})); err != nil {
		t.Fatal(err)
	}
	quiet("disabled", egressv1.DeliveryState_DELIVERY_STATE_DELIVERED)
}
