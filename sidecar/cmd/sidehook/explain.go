package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/sidecar/config"
)

// explainConfig says in words what c does: of the gate first the sources that only a route can name, then every match
// in the order in which they are tried; of the outbound half every endpoint.
func explainConfig(w io.Writer, c *config.Config) error {
	p := &explainer{w: w}
	if c.Gate == nil {
		p.line("no extauthz section: there is no gate")
	} else {
		p.gate(c)
	}
	if c.Egress != nil {
		p.line("")
		p.egress(c)
	}
	return p.err
}

func (p *explainer) gate(c *config.Config) {
	p.line("The gate listens on %s. A request belongs to the source that its route names, else to the first below that matches it:", c.Gate.Listen)
	p.line("a host goes before none, a path before a path_prefix, the longer path, a literal before {tenant}, a method before none, a source before open.")
	for _, s := range c.Gate.Sources {
		if len(s.Matches) == 0 {
			p.source(s, c.Gate.Apps[s.Name])
		}
	}
	for m, s := range c.Gate.Table.Order() {
		if s != nil {
			p.source(s, c.Gate.Apps[s.Name])
			continue
		}
		p.line("")
		p.line("open: %s passes without a signature", matchText(m))
	}
	p.line("")
	p.line("everything else: 403 unmatched")
}

// explainer keeps the first write error, so that a page of lines needs one look.
type explainer struct {
	w   io.Writer
	err error
}

func (p *explainer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, printable(fmt.Sprintf(format, args...)))
	}
}

// item is a line below a source.
func (p *explainer) item(name, format string, args ...any) {
	p.line("  %-12s %s", name, fmt.Sprintf(format, args...))
}

func (p *explainer) source(s *extauthz.Source, app *config.App) {
	p.line("")
	p.line("source %s", s.Name)
	if len(s.Matches) == 0 {
		p.item("matches", "nothing by itself: a route must name it")
	}
	for _, m := range s.Matches {
		p.item("matches", "%s", matchText(m))
	}
	p.item("verifies", "%s", verifyText(s))
	if v := s.Verifier; v != nil && v.WantsPeer() {
		p.item("", "and the client's certificate, as Envoy tells it: include_peer_certificate, and a validation_context with trusted_ca")
	}
	if v := s.Verifier; v != nil && v.Reads("x-request-id") {
		p.item("envoy", "preserve_external_request_id: the sender signs x-request-id, which Envoy otherwise replaces")
	}
	if s.Enforce == extauthz.EnforceReport {
		p.item("refuses", "nothing (REPORT): what does not verify is counted, logged, and passes; no event is claimed")
		return
	}
	p.item("refuses", "with %d what does not verify", cmp.Or(s.RefusalStatus, 401))
	if s.RequireID {
		p.item("", "with 400 what carries no event id")
	}
	p.item("", "with 413 bodies over %s", bytesText(s.MaxBodyBytes))
	if len(s.Types) > 0 {
		p.item("lets through", "%s; other types are answered like duplicates and kept as IGNORED", strings.Join(s.Types, ", "))
	}
	if text := tenantText(s); text != "" {
		p.item("tenant", "%s", text)
	}
	p.reading(s)
	if app != nil {
		p.stored(s, app)
		p.further(s)
		return
	}
	p.item("claims", "an id for %s while the app works; the app's answer comes by %s", s.Lease, confirmWord(s.Confirm))
	p.item("unknown end", "%s", unknownText(s.OnUnknown))
	p.item("duplicates", "%s; ids are kept for %s after they were last seen", replyText(s), days(s.Retention))
	if s.InFlightWait > 0 {
		p.item("", "while the first is with the app, a repeat waits up to %s, then 503", s.InFlightWait)
	} else {
		p.item("", "while the first is with the app: 503")
	}
	p.further(s)
}

// further says what else counts as the same event, or as the same source.
func (p *explainer) further(s *extauthz.Source) {
	if s.ContentWindow > 0 {
		p.item("", "also other ids with the same signed content within %s", days(s.ContentWindow))
	}
	if len(s.Was) > 0 {
		p.item("was", "%s: claims under that name still count", strings.Join(s.Was, ", "))
	}
}

func verifyText(s *extauthz.Source) string {
	if s.Verifier == nil {
		return "nothing (verify: none): every request passes unverified and unclaimed"
	}
	text := fmt.Sprintf("%s, %s", s.Provider, plural(len(s.Keys), "secret"))
	if s.Tenants != nil {
		text = fmt.Sprintf("%s, with a secret for each tenant in %s", s.Provider, s.Tenants.Folder.Path())
	}
	if s.Verifier.SignsTime() {
		text += fmt.Sprintf(", signed at most %s ago", s.Tolerance)
	}
	if s.PublicURL != "" {
		text += ", public URL " + s.PublicURL
	}
	return text
}

// tenantText says where a source's tenants come from; empty: it has none.
func tenantText(s *extauthz.Source) string {
	in := ""
	switch {
	case s.Tenant.Header != "":
		in = "header " + s.Tenant.Header
	case !s.Tenant.JSON.IsZero():
		in = "json " + s.Tenant.JSON.String()
	}
	inPath := slices.ContainsFunc(s.Matches, func(m extauthz.Match) bool { return strings.Contains(m.Path, extauthz.TenantSegment) })
	switch {
	case inPath && in != "":
		return "from the path, and the same in " + in + "; equal ids of two are two events"
	case inPath:
		return "from the path; equal ids of two are two events"
	case in != "":
		return "from " + in + "; equal ids of two are two events"
	default:
		return ""
	}
}

func confirmWord(m extauthz.ConfirmMode) string {
	if m == extauthz.ConfirmExtProc {
		return "ext_proc, before the sender sees it"
	}
	return "access log"
}

func unknownText(u extauthz.OnUnknown) string {
	if u == extauthz.OnUnknownHold {
		return "503 until a person or a late success settles it (HOLD)"
	}
	return "the next delivery passes when the lease ends (RETRY)"
}

func replyText(s *extauthz.Source) string {
	if s.Reply == (extauthz.Reply{}) {
		return "200, the app is not called"
	}
	return fmt.Sprintf("%d with the configured reply, the app is not called", s.Reply.Status)
}

// matchText is m on one line.
func matchText(m extauthz.Match) string {
	var b strings.Builder
	if m.Method != "" {
		b.WriteString(m.Method + " ")
	}
	b.WriteString(m.Host)
	if m.Path != "" {
		b.WriteString(m.Path)
	} else {
		b.WriteString(strings.TrimSuffix(m.PathPrefix, "/") + "/…")
	}
	return b.String()
}

// days is d in days where it is a whole number of them.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}
