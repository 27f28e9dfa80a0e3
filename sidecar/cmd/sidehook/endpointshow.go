package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

func newEndpointShow(std stdio) *cobra.Command {
	return newEndpointSimple(std, "show ID", "Show one endpoint with its public keys; exit code 1 if there is none",
		`Show one endpoint: how it is tried, how it went, and what it is signed with. Of a key pair the public key is shown, for
the receiver; secrets and the values of headers never are.`,
		func(ctx context.Context, client *adminClient, id string) (any, *egressv1.Endpoint, error) {
			res, err := call(ctx, client, client.egress.GetEndpoint, &egressv1.GetEndpointRequest{Id: id})
			return res.GetEndpoint(), res.GetEndpoint(), err
		}, printEndpoint)
}

func printEndpoint(w io.Writer, e *egressv1.Endpoint) error {
	types := strings.Join(e.GetEventTypes(), ", ")
	if types == "" {
		types = "all"
	}
	lines := [][2]string{
		{"endpoint", e.GetId()},
		{"origin", endpointOrigin(e)},
		{"state", endpointState(e)},
		{"problem", e.GetProblem()},
		{"tenant", e.GetTenant()},
		{"url", e.GetUrl()},
		{"events", types},
		{"headers", strings.Join(e.GetHeaderNames(), ", ")},
		{"owner", e.GetOwner()},
		{"tried", policyLine(e.GetPolicy())},
	}
	for _, k := range e.GetKeys() {
		lines = append(lines, [2]string{"key", keyLine(k)})
	}
	h := e.GetHealth()
	attempt := h.GetLastAttemptTime()
	if attempt.AsTime().Before(h.GetLastSuccessTime().AsTime()) { // it is kept with every failure, but not with every success
		attempt = h.GetLastSuccessTime()
	}
	for _, t := range []struct {
		name string
		text string
	}{
		{"disabled", timeText(h.GetDisableTime())}, {"held", timeText(h.GetHeldUntil())}, {"failing", timeText(h.GetFailingSince())},
		{"success", timeText(h.GetLastSuccessTime())}, {"attempt", timeText(attempt)},
		{"added", timeText(e.GetCreateTime())}, {"changed", timeText(e.GetUpdateTime())},
	} {
		if t.text != "-" {
			lines = append(lines, [2]string{t.name, t.text})
		}
	}
	return printLines(w, lines)
}

// printLines prints names and values, those without a value left out.
func printLines(w io.Writer, lines [][2]string) error {
	for _, line := range lines {
		if line[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%-9s %s\n", line[0], printable(line[1])); err != nil {
			return err
		}
	}
	return nil
}

// keyLine describes a key that signs.
func keyLine(k *egressv1.EndpointKey) string {
	words := []string{strings.TrimPrefix(k.GetKind().String(), "KEY_KIND_")}
	if k.GetPublicKey() != "" {
		words = append(words, k.GetPublicKey())
	}
	if k.GetCreateTime() != nil {
		words = append(words, "of "+timeText(k.GetCreateTime()))
	}
	if k.GetUntilTime() != nil {
		words = append(words, "until "+timeText(k.GetUntilTime()))
	}
	return strings.Join(words, " ")
}

// policyLine says in a line how an endpoint is tried.
func policyLine(p *egressv1.DeliveryPolicy) string {
	words := []string{"timeout " + shortDuration(p.GetTimeout())}
	if x := p.GetExponential(); x != nil {
		words = append(words, fmt.Sprintf("%d attempts, waits from %s by %g up to %s",
			x.GetAttempts(), shortDuration(x.GetBase()), x.GetFactor(), shortDuration(x.GetCap())))
	} else {
		var waits []string
		for _, d := range p.GetWaits() {
			waits = append(waits, shortDuration(d))
		}
		words = append(words, fmt.Sprintf("waits %s ±%d%%", strings.Join(waits, ","), p.GetJitterPercent()))
	}
	words = append(words, fmt.Sprintf("%d in flight", p.GetMaxInFlight()))
	if p.GetRate() > 0 {
		words = append(words, fmt.Sprintf("%g/s", p.GetRate()))
	}
	if !p.GetRespectRetryAfter() {
		words = append(words, "Retry-After ignored")
	}
	if p.GetOnGone() == egressv1.OnGone_ON_GONE_RETRY {
		words = append(words, "410 retried")
	}
	if len(p.GetStopOn()) > 0 {
		words = append(words, "dead on "+strings.Trim(fmt.Sprint(p.GetStopOn()), "[]"))
	}
	if d := p.GetDisableAfter().AsDuration(); d > 0 {
		words = append(words, "disabled after "+shortDuration(p.GetDisableAfter()))
	}
	return strings.Join(words, "; ")
}

// shortDuration is d without the zeros that time.Duration writes at the end: 2h, not 2h0m0s.
func shortDuration(d *durationpb.Duration) string {
	s := d.AsDuration().Round(time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
