package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
)

// A preset is no more than what a user could write: each of its schemes goes through the user's own path and comes out
// as it is in the table.
func TestProviderSchemesAreUserSchemes(t *testing.T) {
	t.Parallel()
	for _, p := range signature.Providers() {
		for i, spec := range p.Specs {
			t.Run(fmt.Sprintf("%s/%d", p.Name, i), func(t *testing.T) {
				t.Parallel()
				written, err := json.Marshal(spec) // JSON is YAML
				if err != nil {
					t.Fatal(err)
				}
				source := fmt.Sprintf("- {name: a, public_url: https://example.com, secrets: [{env: A}], scheme: %s}\n", written)
				c := mustParse(t, gateWith(source), WithoutSecrets())
				got, err := schemeSpec(c.Message.GetExtauthz().GetSources()[0].GetScheme())
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(spec, got); diff != "" {
					t.Errorf("in the table and through the configuration (-table +config):\n%s", diff)
				}
				again, err := parseScheme("s.yaml", written)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(spec, again); diff != "" {
					t.Errorf("in the table and as a scheme file (-table +file):\n%s", diff)
				}
			})
		}
	}
}

// What the table says of a provider is what its source has.
func TestProviderFacts(t *testing.T) {
	t.Parallel()
	for _, p := range signature.Providers() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			fields := "name: a, secrets: [{env: A}], provider: " + p.Name
			if p.Retries != signature.RetriesYes {
				fields += ", accept_loss: true"
			}
			needsAudience := p.Verifier().NeedsAudience()
			if needsAudience {
				fields += ", jwt: {audience: https://example.com/}"
			}
			if p.NeedsPublicURL {
				fields += ", public_url: https://example.com/"
			}
			c := mustParse(t, gateWith("- {"+fields+"}\n"), WithoutSecrets())
			s := c.Gate.Sources[0]
			want := extauthz.Source{
				Name: "a", Provider: p.Name, Verifier: p.Verifier(), Handshake: handshakes[p.Handshake],
				Tolerance: p.Tolerance.Std(), Retention: p.Retention.Std(), ContentWindow: p.ContentWindow.Std(),
				MaxBodyBytes: p.MaxBodyBytes, RefusalStatus: p.RefusalStatus, RequireID: p.RequireID,
				Mode: extauthz.ModePass, Lease: time.Minute, Enforce: extauthz.EnforceOn, Confirm: extauthz.ConfirmAccessLog, OnUnknown: extauthz.OnUnknownRetry,
			}
			if needsAudience {
				want.Verifier = s.Verifier // one of its own
			}
			if p.NeedsPublicURL {
				want.PublicURL = "https://example.com"
			}
			if e := p.Events; e != nil {
				want.Events = &extauthz.EventsRule{Array: jsonPath(t, e.JSON), ID: jsonPath(t, e.ID), Type: jsonPath(t, e.Type)}
			}
			sameVerifier := cmp.Comparer(func(a, b *signature.Verifier) bool { return a == b })
			if diff := cmp.Diff(want, *s, sameVerifier); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
			for _, w := range c.Warnings {
				if p.Handshake != "meta" && p.Handshake != "ebay" { // they want a verify token
					t.Errorf("a preset by itself gives a warning: %v", w)
				}
			}
			if c.Gate.MaxBodyBytes != p.MaxBodyBytes {
				t.Errorf("Gate.MaxBodyBytes = %d, want the source's %d", c.Gate.MaxBodyBytes, p.MaxBodyBytes)
			}
		})
	}
}

func TestProviderRules(t *testing.T) {
	t.Parallel()
	const source = "extauthz.sources[0]"
	// Secrets stand in the file here; that this is a warning is tested elsewhere.
	const pasted = `.value: source "a": the secret stands in the configuration`
	tests := []providerRule{
		{name: "right", fields: "provider: stripe, secrets: [{value: whsec_0123456789abcdef}]"},
		{
			name:   "GitHub sends nothing again",
			fields: "provider: github, secrets: [{value: 0123456789abcdef}]",
			errs:   []string{source + ".accept_loss: github never sends again, so an event is lost when the app fails or is away; write mode: STORE with delivery"},
		},
		{
			name:   "of others nobody knows",
			fields: "provider: clickup, secrets: [{value: 0123456789abcdef}]",
			warns:  []string{source + ".mode: whether clickup sends again is not known: an event may be lost"},
		},
		{name: "and that is accepted too", fields: "provider: clickup, accept_loss: true, secrets: [{value: 0123456789abcdef}]"},
		{name: "and that is accepted", fields: "provider: github, accept_loss: true, secrets: [{value: 0123456789abcdef}]"},
		{
			name:   "Twilio sends nothing again, and signs the URL",
			fields: "provider: twilio, secrets: [{value: 0123456789abcdef0123456789abcdef}]",
			errs: []string{
				source + ".accept_loss: twilio never sends again",
				source + ".public_url: is required: twilio signs the URL that it calls",
			},
		},
		{
			name:   "an API key for the secret",
			fields: "provider: stripe, secrets: [{value: sk_live_0123456789abcdef}]",
			errs:   []string{source + `.secrets[0]: source "a": secret is of the wrong kind: sk_… is `},
		},
		{
			name:   "a secret that was pasted with the version before it",
			fields: "provider: standard-webhooks, secrets: [{value: 'v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'}]",
			errs:   []string{source + `.secrets[0]: source "a": secret is of the wrong kind: leave out the v1, before whsec_`},
		},
		{
			name:   "a prefix alone",
			fields: "provider: standard-webhooks, secrets: [{value: whsec_}]",
			errs:   []string{source + `.secrets[0]: source "a": secret is empty`},
		},
		{
			name:   "below what the provider's page states",
			fields: "provider: twitch, secrets: [{value: 123456789}]",
			errs:   []string{source + `.secrets[0]: source "a": the secret has 9 characters; those of twitch have at least 10: is it whole, and the right one?`},
		},
		{name: "as short as the provider's page permits", fields: "provider: twitch, secrets: [{value: 1234567890}]"},
		{
			name:   "forgotten before the last retry",
			fields: "provider: stripe, secrets: [{value: whsec_0123456789abcdef}], retention: 2d",
			warns:  []string{source + ".retention: 2d is below the 3d over which stripe sends again: a late repeat would reach the app as new"},
		},
		{name: "kept until the last retry", fields: "provider: stripe, secrets: [{value: whsec_0123456789abcdef}], retention: 3d"},
		{
			name:   "waiting longer than the sender does",
			fields: "provider: slack, secrets: [{value: 0123456789abcdef0123456789abcdef}], in_flight_wait: 3s",
			warns:  []string{source + ".in_flight_wait: 3s is not below the 3s after which slack gives up"},
		},
		{name: "waiting less", fields: "provider: slack, secrets: [{value: 0123456789abcdef0123456789abcdef}], in_flight_wait: 2s"},
		{
			name:   "a lease that ends while the sender still waits",
			fields: "provider: slack, secrets: [{value: 0123456789abcdef0123456789abcdef}], lease: 2s",
			warns:  []string{source + ".lease: 2s is below the 3s for which slack waits for an answer"},
		},
		{name: "an unsigned challenge", fields: "provider: slack, secrets: [{value: 0123456789abcdef0123456789abcdef}], handshake: {unsigned: true}"},
		{
			name:   "Meta without its token",
			fields: "provider: meta, secrets: [{value: 0123456789abcdef}]",
			warns:  []string{source + `.handshake: source "a": without verify_token Meta's challenge is refused`},
		},
		{
			name:   "Meta with its token",
			fields: "provider: meta, secrets: [{value: 0123456789abcdef}], handshake: {verify_token: {value: 0123456789abcdef}}",
			warns:  []string{source + `.handshake.verify_token.value: source "a": the secret stands`},
		},
		{
			name:   "eBay with its token, which goes into one hash with the URL",
			fields: "provider: ebay, secrets: [{value: '-----BEGIN PUBLIC KEY-----MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEZhhxXKtR+TOvtDbgTPCkSof02qgBB7IsYOyf76ilExJ/upAa/vKIKheOoCyOpcLmi4t0b4uepb7LLjmMr90FUg==-----END PUBLIC KEY-----'}], handshake: {verify_token: {value: 0123456789abcdef}}",
			errs:   []string{source + ".public_url: is required: ebay signs the URL that it calls"},
			warns:  []string{source + `.handshake.verify_token.value: source "a": the secret stands`},
		},
		{
			name:   "eBay without its token",
			fields: "provider: ebay, secrets: [{value: '-----BEGIN PUBLIC KEY-----MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEZhhxXKtR+TOvtDbgTPCkSof02qgBB7IsYOyf76ilExJ/upAa/vKIKheOoCyOpcLmi4t0b4uepb7LLjmMr90FUg==-----END PUBLIC KEY-----'}], public_url: https://shop.example.com",
			warns:  []string{source + `.handshake: source "a": without verify_token eBay's challenge is refused`},
		},
		{
			name:   "Meta by POST alone",
			fields: "provider: meta, match: {path: /meta, method: POST}, secrets: [{value: 0123456789abcdef}]",
			warns: []string{
				source + `.handshake: source "a": the challenge of meta comes by GET, which match.method: POST keeps from this source`,
				source + `.handshake: source "a": without verify_token Meta's challenge is refused`,
			},
		},
		{
			// Only what the provider's own kind is called is a provider.
			name:   "capitals",
			fields: "provider: Stripe, secrets: [{value: whsec_0123456789abcdef}]",
			errs:   []string{source + `.provider: "Stripe" is no provider; is stripe meant?`},
		},
		{
			name:   "another separator",
			fields: "provider: standard_webhooks, secrets: [{value: whsec_0123456789abcdef}]",
			errs:   []string{source + `.provider: "standard_webhooks" is no provider; is standard-webhooks meant?`},
		},
	}
	tests = append(tests, publishedRules...)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLoader("sidehook.yaml", nil)
			_, err := l.parse([]byte(gateWith("- {name: a, " + tt.fields + "}\n")))
			var warns []string
			for _, w := range texts(l.warnings()) {
				if !strings.HasPrefix(w, source+".secrets[0]"+pasted) {
					warns = append(warns, w)
				}
			}
			checkTexts(t, "errors", texts(Findings(err)), tt.errs)
			checkTexts(t, "warnings", warns, tt.warns)
		})
	}
}

// Meta's token reaches the gate, which compares it.
func TestVerifyToken(t *testing.T) {
	t.Parallel()
	c := mustParse(t, gateWith("- {name: a, provider: meta, secrets: [{value: 0123456789abcdef}], handshake: {verify_token: {value: a-token-of-ours-for-meta}}}\n"))
	if got := string(c.Gate.Sources[0].HandshakeToken); got != "a-token-of-ours-for-meta" {
		t.Errorf("HandshakeToken = %q", got)
	}
	printed, err := Effective(c)
	if err != nil || strings.Contains(string(printed), "a-token-of-ours") {
		t.Errorf("the token is printed: %v\n%s", err, printed)
	}
}
