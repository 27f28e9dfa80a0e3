package egress

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// noticeEndpoint is the ID under which the sender keeps the operational webhook's connections. No endpoint has such an ID.
const noticeEndpoint = "_notify"

// noticeBody is the body of the operational webhook, as Standard Webhooks recommends it.
type noticeBody struct {
	Type      string     `json:"type"`
	Timestamp string     `json:"timestamp"`
	Data      noticeData `json:"data"`
}

// noticeData is a Notice as the operator's program reads it. What does not matter for its type is left out.
type noticeData struct {
	Instance string `json:"instance,omitempty"`
	Endpoint string `json:"endpoint"`
	Tenant   string `json:"tenant,omitempty"`
	// Reason is why the endpoint is disabled.
	Reason string `json:"reason,omitempty"`
	// Outcome is that of the last attempt, as in metrics and in the attempt log.
	Outcome    string `json:"outcome,omitempty"`
	NotReached bool   `json:"not_reached,omitempty"`
	// Percent of the time has passed after which the endpoint is disabled.
	Percent  int    `json:"percent,omitempty"`
	Since    string `json:"since,omitempty"`
	Delivery string `json:"delivery,omitempty"`
	Event    string `json:"event,omitempty"`
	// Suppressed counts notices of the same cause that were not sent since the last one.
	Suppressed int `json:"suppressed,omitempty"`
}

// body makes the webhook's body.
func (m *message) body(instance string) ([]byte, error) {
	d := noticeData{
		Instance: instance, Endpoint: m.Endpoint, Tenant: m.Tenant, Reason: disableReasonName(m.Disabled), NotReached: m.NotReached,
		Percent: m.Percent, Event: m.EventID, Suppressed: m.suppressed,
	}
	if m.Outcome != 0 {
		d.Outcome = m.Outcome.String()
	}
	if !m.Since.IsZero() {
		d.Since = m.Since.UTC().Format(timestampFormat)
	}
	if m.DeliveryID != (DeliveryID{}) {
		d.Delivery = m.DeliveryID.String()
	}
	return json.Marshal(noticeBody{m.Kind.String(), m.At.UTC().Format(timestampFormat), d})
}

// sendWebhook posts m once, signed and filtered like any attempt. It is none of the outbox's, so it has no log there, and
// its end disables nothing and tells nobody.
func (n *Notifier) sendWebhook(ctx context.Context, m *message) (retry bool, err error) {
	hook := n.cfg.Targets().Webhook
	if hook == nil {
		return false, errNoTarget
	}
	body, err := m.body(n.cfg.Instance)
	if err != nil {
		return false, fmt.Errorf("encode notice: %w", err)
	}
	to := &Endpoint{ID: noticeEndpoint, Origin: OriginConfig, Target: hook.Target, Filter: hook.Filter, Keys: hook.Keys,
		Policy: Policy{Timeout: noticeLimit, MaxInFlight: 1}}
	r := n.cfg.Sender.Send(ctx, to, &Event{ID: m.id, Type: m.Kind.String(), ContentType: typeJSON, Body: body, Accepted: time.Now()}, m.tries+1)
	if r.delivered() {
		return false, nil
	}
	return r.Status != http.StatusGone, fmt.Errorf("webhook: %s, status %d %s", r.Outcome, r.Status, r.Detail)
}
