package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/sidecar/config"
)

// egress says in words what the outbound half of c does.
func (p *explainer) egress(c *config.Config) {
	e := c.Egress
	guard := ""
	if len(e.Token.Bytes()) > 0 {
		guard = ", with a bearer token"
	}
	p.line("The app posts its events to %s, of at most %s each%s.", e.Listen, bytesText(e.MaxEventBytes), guard)
	p.line("Each goes to every endpoint of exactly its tenant that wants its type, those that the API added included.")
	for _, endpoint := range e.Endpoints {
		p.endpoint(endpoint, e)
	}
	p.line("")
	p.line("kept: what was delivered for %s, dead letters for %s, the log of attempts for %s; what waits, until it ends",
		days(c.Keep.Delivered), days(c.Keep.Dead), days(c.Keep.Log))
}

func (p *explainer) endpoint(e *egress.Endpoint, half *config.Egress) {
	p.line("")
	p.line("endpoint %s", e.ID)
	p.item("sends to", "%s", origin(e))
	p.item("events", "%s", eventsText(e))
	p.item("signs", "with %s", plural(len(e.Keys), "secret"))
	p.item("tries", "%s; %s", scheduleText(&e.Policy.Schedule), paceText(&e.Policy))
	dead := "the last attempt"
	if len(e.Policy.StopOn) > 0 {
		dead += ", or at once after " + strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Policy.StopOn), " ", ", "), "[]")
	}
	p.item("dead after", "%s", dead)
	p.item("disabled by", "%s", disabledText(&e.Policy))
	if e.Filter != half.Filter {
		p.item("filter", "its own, wider than egress.filter")
	}
	if e.Owner != "" {
		p.item("owner", "%s", e.Owner)
	}
}

// origin is where an endpoint is, without path and query: they may let whoever knows them in.
func origin(e *egress.Endpoint) string {
	host := e.Target.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s://%s:%d", e.Target.Scheme, host, e.Target.Port)
}

func eventsText(e *egress.Endpoint) string {
	types, tenant := "all", "of no tenant"
	if len(e.EventTypes) > 0 {
		types = strings.Join(e.EventTypes, ", ")
	}
	if e.Tenant != "" {
		tenant = "of tenant " + e.Tenant
	}
	return types + ", " + tenant
}

func scheduleText(s *egress.Schedule) string {
	if x := s.Exponential; x != nil {
		second := min(float64(x.Cap), float64(x.Base)*x.Factor)
		return fmt.Sprintf("%s, waits of up to %s, %s, … %s", times(x.Attempts), x.Base, days(time.Duration(second)), days(x.Cap))
	}
	return fmt.Sprintf("%s in %s, waits with ±%d%% jitter", times(s.Attempts()), s.Length(), s.JitterPercent)
}

func disabledText(p *egress.Policy) string {
	var by []string
	if p.OnGone == egress.GoneDisables {
		by = append(by, "an answer of 410")
	}
	if p.DisableAfter > 0 {
		by = append(by, "failing on end for "+days(p.DisableAfter))
	}
	if len(by) == 0 {
		return "a person, or by its own answer (webhook-delivery: disable)"
	}
	return strings.Join(by, ", ")
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func paceText(p *egress.Policy) string {
	text := fmt.Sprintf("%s each, %d at once", p.Timeout, p.MaxInFlight)
	if p.Rate > 0 {
		text += fmt.Sprintf(", %s a second", strconv.FormatFloat(p.Rate, 'g', 3, 64))
	}
	return text
}
