package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/internal/signature"
)

func newProviders(std stdio) *cobra.Command {
	var format outputFlag
	c := &cobra.Command{
		Use:   "providers [NAME]",
		Short: "List the providers that are built in, or show one in full",
		Long: `List the providers that are built in, or show one in full: its schemes, in the language that a source's scheme is
written in, what the gate takes from it, and what of it the vendor has not confirmed. CHECKED says what the signature was
checked against: the vendor's own examples or library, or a formula alone.

A provider that is not in the list is written as a scheme of your own; take the one that is most like it for a start.`,
		Args: args(0, 1),
		RunE: func(_ *cobra.Command, a []string) error {
			if len(a) == 0 {
				return listProviders(std.out, format)
			}
			p, err := findProvider(a[0])
			if err != nil {
				return err
			}
			return showProvider(std.out, format, p)
		},
	}
	format.register(c)
	return c
}

// findProvider returns the preset of that name.
func findProvider(name string) (*signature.Provider, error) {
	if p, ok := signature.ProviderByName(name); ok {
		return p, nil
	}
	return nil, usagef("no provider %q; %s`sidehook providers` lists them", name, alike(name))
}

// alike names the providers in whose name or title a person may have found name; it is empty where there are none, or many.
func alike(name string) string {
	const most = 6
	var names []string
	for _, p := range signature.Providers() {
		if word := strings.ToLower(name); strings.Contains(p.Name, word) || strings.Contains(strings.ToLower(p.Title), word) {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 || len(names) > most {
		return ""
	}
	return "there is " + strings.Join(names, ", ") + "; "
}

// sharedKeyFormat is how the secrets of p are written that both sides know.
func sharedKeyFormat(p *signature.Provider) (signature.KeyFormat, error) {
	if p.JWT != nil && strings.HasPrefix(p.JWT.Algorithms[0], "HS") {
		return signature.KeyText, nil
	}
	for _, spec := range p.Specs {
		switch spec.Algorithm {
		case signature.Ed25519, signature.ECDSAP256, signature.RSAPKCS1SHA1, signature.RSAPKCS1SHA256, signature.RSAPKCS1SHA512,
			signature.RSAPSSSHA256, signature.MTLS:
		default:
			return spec.Key, nil
		}
	}
	return "", no(fmt.Errorf("%s signs with a private key of its own: take its public key from there", p.Title))
}

func listProviders(w io.Writer, format outputFlag) error {
	all := signature.Providers()
	if format.structured() {
		return format.print(w, all)
	}
	rows := make([][]string, 0, len(all))
	for _, p := range all {
		rows = append(rows, []string{p.Name, p.Title, algorithms(p), confirmedText(p), retriesText(p), orDash(p.Deadline),
			p.Retention.String(), cmp.Or(p.Handshake, "-")})
	}
	return table(w, []string{"PROVIDER", "TITLE", "ALGORITHM", "CHECKED", "RETRIES", "DEADLINE", "RETENTION", "HANDSHAKE"}, rows)
}

func showProvider(w io.Writer, format outputFlag, p *signature.Provider) error {
	if format.structured() {
		return format.print(w, p)
	}
	e := &explainer{w: w}
	e.line("%s (%s)", p.Name, p.Title)
	e.item("retries", "%s", retriesText(p))
	if p.Deadline > 0 {
		e.item("deadline", "%s for an answer", p.Deadline)
	}
	e.item("retention", "%s", p.Retention)
	e.item("tolerance", "%s", p.Tolerance)
	e.item("refuses", "with %d what does not verify", p.RefusalStatus)
	e.item("body", "at most %s", bytesText(p.MaxBodyBytes))
	if p.MinSecretBytes > 0 {
		e.item("secret", "at least %s", plural(p.MinSecretBytes, "byte"))
	}
	switch v := p.Verifier(); {
	case len(p.JWKS) > 0:
		e.item("keys", "fetched from %s; no secret is needed", strings.Join(p.JWKS, ", "))
	case len(v.OwnKeys()) > 0:
		e.item("keys", "built in; no secret is needed")
	}
	if p.Verifier().NeedsAudience() {
		e.item("jwt", "audience is needed: the sender makes tokens for others too")
	}
	if text := idText(p); text != "" {
		e.item("id", "%s", text)
	}
	if text := typeText(p); text != "" {
		e.item("type", "%s", text)
	}
	if p.NeedsPublicURL {
		e.item("public_url", "needed: the sender signs it")
	}
	if p.Handshake != "" {
		e.item("handshake", "%s", p.Handshake)
	}
	if p.Object != "" {
		e.item("object", "json %s", p.Object)
	}
	if v := p.Version; v != nil {
		e.item("version", "%s", versionText(v))
	}
	if l := p.Live; l != nil {
		e.item("live", "json %s is %s", l.JSON, l.Value)
	}
	if v := p.Events; v != nil {
		e.item("events", "several in a request, %s", elementsText(v))
	}
	if r := p.Reply; r != nil {
		e.item("reply", "%d %s, %q, is what the sender wants", r.Status, r.ContentType, r.Body)
	}
	if p.ContentWindow > 0 {
		e.item("dedupe", "also by content, within %s: the signature does not cover the id", p.ContentWindow)
	}
	if p.Native != "" {
		e.item("scheme", "code of its own, which no scheme of a source can say")
	}
	e.item("checked", "%s", checkedText(p))
	for _, u := range p.Unconfirmed {
		e.item("unconfirmed", "%s", u)
	}
	for _, n := range p.Notes {
		e.item("note", "%s", n)
	}
	for _, d := range p.Docs {
		e.item("docs", "%s", d)
	}
	if p.JWT != nil {
		e.line("jwt:")
		if err := schemeLines(e, p.JWT); err != nil {
			return err
		}
	}
	for i, spec := range p.Specs {
		if len(p.Specs) == 1 {
			e.line("scheme:")
		} else {
			e.line("scheme: # %d of %d alternatives", i+1, len(p.Specs))
		}
		if err := schemeLines(e, spec); err != nil {
			return err
		}
	}
	return e.err
}

// schemeLines writes a scheme as a configuration would.
func schemeLines(e *explainer, spec any) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write scheme: %w", err)
	}
	var b strings.Builder
	if err := printYAML(&b, data); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		e.line("  %s", strings.TrimSuffix(line, "\n"))
	}
	return nil
}

func algorithms(p *signature.Provider) string {
	var all []string
	if p.JWT != nil {
		all = append(all, "JWT")
	}
	if p.Native != "" {
		all = append(all, strings.ToUpper(p.Native))
	}
	for _, spec := range p.Specs {
		if a := string(spec.Algorithm); !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return strings.Join(all, " ")
}

// confirmedText says in a word what the signature was checked against.
func confirmedText(p *signature.Provider) string {
	if p.FormulaOnly() {
		return "formula"
	}
	return "vendor"
}

func checkedText(p *signature.Provider) string {
	if confirmedText(p) == "vendor" {
		return "against examples of the vendor, or its library"
	}
	return "against a formula, which the vendor may not have confirmed"
}

func retriesText(p *signature.Provider) string {
	switch {
	case p.Retries == signature.RetriesUnknown:
		return "unknown"
	case p.Retries == signature.RetriesNo:
		return "never"
	case p.RetryHorizon > 0:
		return "for " + p.RetryHorizon.String()
	default:
		return "yes"
	}
}

// idText says where the event id stands, in all schemes of p.
func idText(p *signature.Provider) string {
	var all []string
	for _, spec := range p.Specs {
		text := "the hash of what is signed"
		if id := spec.ID; id != nil {
			switch place := placeText(id.ValueSpec); {
			case id.None:
				text = "none: every request is new"
			case place != "" && id.Hash:
				text = place + ", else the hash of what is signed"
			case place != "":
				text = place
			}
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	if j := p.JWT; j != nil {
		switch {
		case j.IDClaim != "":
			all = append(all, "claim "+j.IDClaim)
		case j.ID != nil:
			all = append(all, placeText(*j.ID))
		default:
			all = append(all, "the hash of the token")
		}
	}
	return strings.Join(all, "; ")
}

// typeText says where the event type stands.
func typeText(p *signature.Provider) string {
	var all []string
	for _, spec := range p.Specs {
		if spec.Type != nil && !slices.Contains(all, placeText(*spec.Type)) {
			all = append(all, placeText(*spec.Type))
		}
	}
	if j := p.JWT; j != nil && j.TypeClaim != "" {
		all = append(all, "claim "+j.TypeClaim)
	} else if j != nil && j.Type != nil {
		all = append(all, placeText(*j.Type))
	}
	return strings.Join(all, "; ")
}

func placeText(v signature.ValueSpec) string {
	for _, place := range []struct{ kind, name string }{{"header", v.Header}, {"json", v.JSON}, {"form", v.Form}, {"query", v.Query}} {
		if place.name != "" {
			return place.kind + " " + place.name
		}
	}
	return ""
}

func versionText(v *signature.VersionSpec) string {
	if v.Number != "" {
		return "json " + v.Number + ", a number that grows"
	}
	return "json " + v.Time + ", a time"
}

// elementsText says where the events of a request stand, and what tells them apart.
func elementsText(v *signature.EventsSpec) string {
	text := "in the body's array"
	if v.JSON != "" {
		text = "in json " + v.JSON
	}
	for _, part := range []struct{ name, path string }{{"id", v.ID}, {"type", v.Type}} {
		if part.path != "" {
			text += ", " + part.name + " " + part.path
		}
	}
	return text
}

func orDash(d signature.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.String()
}
