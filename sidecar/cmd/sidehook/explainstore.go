package main

import (
	"strings"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/sidecar/config"
)

// stored says what becomes of the events of a source in STORE.
func (p *explainer) stored(s *extauthz.Source, app *config.App) {
	policy := &app.Endpoint.Policy
	p.item("stores", "each event, then answers %s; the app may be away", replyText(s))
	where := "unix:" + app.Endpoint.Socket
	if app.Endpoint.Socket == "" {
		where = origin(app.Endpoint)
	}
	if s.DeliveryPath != "" {
		where += ", path " + s.DeliveryPath
	}
	p.item("delivers to", "%s; %s", where, paceText(policy))
	p.item("tries", "%s; while the app cannot be reached it is probed, and no event loses a try but one that was due", scheduleText(&policy.Schedule))
	switch {
	case s.OrderBy.Header == "" && s.OrderBy.JSON.IsZero():
		p.item("order", "none: events are delivered side by side")
	case app.StopOnDead:
		p.item("order", "as stored, one after the other per %s; a dead letter stops its key until it is redelivered or discarded", orderText(s.OrderBy))
	default:
		p.item("order", "as stored, one after the other per %s; after a dead letter its key goes on", orderText(s.OrderBy))
	}
	if s.Resign {
		p.item("signs", "each delivery anew, with the first secret and the time of the attempt")
	}
	if len(s.StoreHeaders) > 0 {
		p.item("keeps", "beside the usual headers %s", strings.Join(s.StoreHeaders, ", "))
	}
	p.item("duplicates", "%s; ids are kept for %s after they were last seen", replyText(s), days(s.Retention))
}

func orderText(o extauthz.OrderBy) string {
	if o.Header != "" {
		return "header " + o.Header
	}
	return "json " + o.JSON.String()
}
