package egress

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sidehook/sidehook/internal/httpguard"
)

// maxRefusalLines is how many log lines a second tell of requests that are kept out.
const maxRefusalLines = 10

// judge keeps out what does not come from the app itself: a browser's page (it sends Origin, Sec-Fetch-Site or a name of
// its own as Host), a request that the app was talked into passing on (it bears what proxies add), a delivery of ours
// that came back, and, where a token is configured, whoever does not have it. The cheapest check goes first; the token
// comes last so that nothing is learned about it from a request that is refused anyway.
func (in *Intake) judge(r *http.Request) *problem {
	if !httpguard.LoopbackHost(r.Host) && !in.configuredHost(r.Host) {
		return newProblem(problemForwarded, "call the intake by a loopback address, by localhost, or by a name in egress.hosts")
	}
	// Names are canonical here: net/http has read them. A header counts however empty it is.
	for name := range r.Header {
		switch name {
		case "Origin":
			return newProblem(problemForwarded, "a browser sent it: Origin")
		case "Forwarded", "Via":
			return newProblem(problemForwarded, "a proxy passed it on: "+name)
		case "Sec-Fetch-Site":
			if values := r.Header[name]; len(values) != 1 || values[0] != "none" && values[0] != "same-origin" {
				return newProblem(problemForwarded, "a page of another site sent it: Sec-Fetch-Site")
			}
		case "Webhook-Signature":
			if ownDelivery(r.Header) {
				return newProblem(problemForwarded, "it is a delivery of a sidehook, and would go round for ever")
			}
		default:
			if strings.HasPrefix(name, "X-Forwarded-") {
				return newProblem(problemForwarded, "a proxy passed it on: "+quoted(name))
			}
		}
	}
	if in.cfg.Token == nil {
		return nil
	}
	if err := httpguard.Bearer(r.Header, in.cfg.Token()); err != nil {
		return newProblem(problemUnauthorized, err.Error())
	}
	return nil
}

func (in *Intake) configuredHost(hostport string) bool {
	host := httpguard.Hostname(hostport)
	return slices.ContainsFunc(in.settings.Load().Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// ownDelivery reports whether h, which has a signature, is of an attempt that a sidehook made, this one or another: by
// our name, or by the number of the attempt where a proxy has put its own name in place of ours.
func ownDelivery(h http.Header) bool {
	agent, _, _ := strings.Cut(h.Get("User-Agent"), "/")
	return agent == "sidehook" || h["Webhook-Attempt"] != nil
}

// logRefusal writes that somebody was kept out: a sign of an attack, or of an app that calls the wrong way.
func (in *Intake) logRefusal(r *http.Request, p *problem) {
	ok, left := in.refused.Take(time.Now(), maxRefusalLines)
	if !ok {
		return
	}
	in.cfg.Logger.LogAttrs(r.Context(), slog.LevelWarn, "intake request refused",
		slog.String("peer", r.RemoteAddr), slog.String("path", quoted(r.URL.Path)), slog.String("host", quoted(r.Host)),
		slog.String("reason", problems[p.code].name), slog.String("detail", p.detail), slog.Int64("left_out", left))
}
