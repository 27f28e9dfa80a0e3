package sidecar

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// Two sidehooks each have the other's intake as an endpoint, and one its own. No delivery becomes an event there, so
// nothing goes round; both say that they were called, and by what.
func TestOutboundLoop(t *testing.T) {
	a, b := newOutPlace(t), newOutPlace(t)
	port := func(p outPlace) string { return p.egress[strings.LastIndexByte(p.egress, ':')+1:] }
	filter := fmt.Sprintf("filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s, %s]}\ndelivery: {waits: [100ms, 100ms], jitter_percent: 0}\nendpoints:\n",
		port(a), port(b))
	raw := "http://" + b.egress + "/v1/endpoints/back/events"
	a.config(t, filter+a.endpoint("other", "http://"+b.egress+"/v1/events")+a.endpoint("raw", raw)+a.endpoint("self", "http://"+a.egress+"/v1/events"), "")
	b.config(t, filter+b.endpoint("back", "http://"+a.egress+"/v1/events"), "")
	var log lockedBuffer
	start(t, a.place)
	start(t, b.place, logTo(&log))

	for _, endpoint := range []string{"other", "raw", "self"} {
		id := a.accepted(t, fmt.Sprintf(`{"type":"a","endpoint":%q,"data":1}`, endpoint))
		eventually(t, func() error {
			if s := deliveryState(t, a, id); s != egressv1.DeliveryState_DELIVERY_STATE_DEAD {
				return fmt.Errorf("the delivery to %s is %v", endpoint, s)
			}
			return nil
		})
	}
	for _, want := range []struct {
		p       outPlace
		refused int // three attempts of each delivery that came
		events  int
	}{{a, 3, 3}, {b, 6, 0}} {
		text := want.p.metrics(t)
		for _, line := range []string{
			fmt.Sprintf(`sidehook_egress_events_total{result="forwarded_request"} %d`, want.refused),
			fmt.Sprintf(`sidehook_egress_events_total{result="accepted"} %d`, want.events),
		} {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("/metrics lacks %s", line)
			}
		}
	}
	if text := log.String(); !strings.Contains(text, "it is a delivery of a sidehook") {
		t.Errorf("the log does not say what came:\n%s", text)
	}
	// An app may post with such an id and such a type; it is the whole of a delivery that is known.
	if status, _, answer := b.post(t, "/v1/endpoints/back/events", "{}", func(r *http.Request) { r.Header.Set("Webhook-Id", "evt_own") }); status != http.StatusAccepted {
		t.Errorf("an event with an id of the app's own: %d %s", status, answer)
	}
}
