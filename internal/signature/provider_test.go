package signature

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestProviders(t *testing.T) {
	t.Parallel()
	if _, ok := ProviderByName("Stripe"); ok {
		t.Error("a name of another case is found")
	}
	handshakes := []string{"", "slack", "meta", "twitch", "zoom", "discord", "graph", "dropbox", "asana", "xero", "okta", "twitter", "cloudevents", "head", "monday", "notion", "worldline", "ebay"}
	topics := []string{"signature", "id", "type", "object", "live", "events", "retries", "deadline", "handshake", "reply"}
	for _, p := range Providers() {
		v := p.Verifier()
		if p.Title == "" || len(p.Docs) == 0 {
			t.Errorf("%s: title %q, %d sources", p.Name, p.Title, len(p.Docs))
		}
		for _, d := range p.Docs {
			if !strings.HasPrefix(d, "https://") {
				t.Errorf("%s: source %q", p.Name, d)
			}
		}
		if p.Retention.Std() < p.RetryHorizon.Std() || p.Retention.Std() < p.Tolerance.Std() {
			t.Errorf("%s: ids are kept for %s, the sender retries for %s", p.Name, p.Retention, p.RetryHorizon)
		}
		if !slices.Contains([]Retries{RetriesYes, RetriesNo, RetriesUnknown}, p.Retries) {
			t.Errorf("%s: retries %q", p.Name, p.Retries)
		}
		if p.RetryHorizon != 0 && p.Retries != RetriesYes {
			t.Errorf("%s: a horizon of retries that it has not", p.Name)
		}
		if !slices.Contains(handshakes, p.Handshake) {
			t.Errorf("%s: handshake %q", p.Name, p.Handshake)
		}
		if p.RefusalStatus < 400 || p.RefusalStatus > 499 {
			t.Errorf("%s: refusal status %d", p.Name, p.RefusalStatus)
		}
		if p.NeedsPublicURL != v.NeedsURL() {
			t.Errorf("%s: NeedsPublicURL %v", p.Name, p.NeedsPublicURL)
		}
		for _, u := range p.Unconfirmed {
			topic, text, _ := strings.Cut(u, ": ")
			if !slices.Contains(topics, topic) || text == "" {
				t.Errorf("%s: unconfirmed %q is about nothing that is known", p.Name, u)
			}
		}
		checkPaths(t, p)
		if r := p.Reply; r != nil && (r.Status < 200 || r.Status > 299 || r.ContentType == "" || r.Body == "") {
			t.Errorf("%s: reply %+v", p.Name, *r)
		}
		for _, s := range v.schemes {
			promise := s.spec.ID.None || s.spec.ID.Hash
			if p.RequireID && promise {
				t.Errorf("%s: an id is required that has something to fall back on", p.Name)
			}
			if p.ContentWindow > 0 && s.idSigned {
				t.Errorf("%s: a content window where the id is signed", p.Name)
			}
		}
	}
}

// checkPaths reports paths of a row that cannot be read, and facts that lack their other half.
func checkPaths(t *testing.T, p *Provider) {
	t.Helper()
	paths := map[string]string{"object": p.Object}
	if v := p.Version; v != nil {
		paths["version"] = v.Number + v.Time
		if p.Object == "" || (v.Number == "") == (v.Time == "") {
			t.Errorf("%s: object %q, version %+v", p.Name, p.Object, *v)
		}
	}
	if l := p.Live; l != nil {
		paths["live"] = l.JSON
		if l.JSON == "" || l.Value == "" {
			t.Errorf("%s: live %+v", p.Name, *l)
		}
	}
	if e := p.Events; e != nil {
		paths["events"], paths["events.id"], paths["events.type"] = e.JSON, e.ID, e.Type
	}
	for field, path := range paths {
		if path == "" {
			continue
		}
		if _, err := parseJSONPaths(path); err != nil {
			t.Errorf("%s: %s: %v", p.Name, field, err)
		}
	}
}

// TestProviderFacts pins what a change must not lose unseen.
func TestProviderFacts(t *testing.T) {
	t.Parallel()
	github, twilio, twitch, stripe := provider(t, "github"), provider(t, "twilio"), provider(t, "twitch"), provider(t, "stripe")
	switch {
	case github.Retries != RetriesNo || twilio.Retries != RetriesNo:
		t.Error("GitHub and Twilio never retry")
	case github.MaxBodyBytes != 25<<20 || stripe.MaxBodyBytes != 1<<20:
		t.Errorf("bodies of %d and %d bytes", github.MaxBodyBytes, stripe.MaxBodyBytes)
	case github.ContentWindow.Std() != 72*time.Hour || provider(t, "shopify").ContentWindow.Std() != 72*time.Hour:
		t.Error("content windows")
	case twitch.MinSecretBytes != 10 || twitch.Tolerance.Std() != 10*time.Minute:
		t.Errorf("Twitch: secrets of %d bytes, tolerance %s", twitch.MinSecretBytes, twitch.Tolerance)
	case stripe.Tolerance.Std() != 5*time.Minute || stripe.RefusalStatus != 401:
		t.Errorf("Stripe: tolerance %s, status %d", stripe.Tolerance, stripe.RefusalStatus)
	}
}

// TestProvidersSpeakTheLanguage: what a row says is what a user's config can say, word for word.
func TestProvidersSpeakTheLanguage(t *testing.T) {
	t.Parallel()
	var rows []struct {
		Name  string            `json:"name"`
		Specs []json.RawMessage `json:"specs"`
	}
	if err := json.Unmarshal(providersJSON(), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for i, raw := range row.Specs {
			var asWritten, again any
			b, err := json.Marshal(provider(t, row.Name).Specs[i])
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, &asWritten); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &again); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(asWritten, again) {
				t.Errorf("%s: %s reads as %s", row.Name, raw, b)
			}
		}
	}
}

func TestReadProvidersRefuses(t *testing.T) {
	t.Parallel()
	const row = `{"name":"a","specs":[{"algorithm":"HMAC_SHA256","signature":{"header":"s"}}]}`
	if _, err := readProviders([]byte("[" + row + "]")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ table, want string }{
		{`[` + strings.Replace(row, `"name"`, `"color":1,"name"`, 1) + `]`, "unknown field"},
		{`[` + strings.Replace(row, `"header"`, `"heeder"`, 1) + `]`, "unknown field"},
		{`[` + strings.Replace(row, `HMAC_SHA256`, `HMAC`, 1) + `]`, `read provider a: specs: algorithm: unknown "HMAC"`},
		{`[` + row + `,` + row + `]`, `name "a"`},
		{`[` + row + `] []`, "something behind"},
		{`[` + strings.Replace(row, `"specs"`, `"deadline":"5 s","specs"`, 1) + `]`, "duration"},
		{`[` + strings.Replace(row, `"specs"`, `"deadline":"xd","specs"`, 1) + `]`, "number of days"},
	} {
		if _, err := readProviders([]byte(c.table)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.table, err, c.want)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want time.Duration
	}{{"31d", 31 * 24 * time.Hour}, {"27h35m0s", 27*time.Hour + 35*time.Minute}, {"5s", 5 * time.Second}} {
		var d Duration
		if err := d.UnmarshalText([]byte(c.text)); err != nil || d.Std() != c.want || d.String() != c.text {
			t.Errorf("%s: %s, %v", c.text, d, err)
		}
	}
}

// TestMailgunCoversOnlyItsToken shows the hole in the scheme, and what closes it: the token counts once.
func TestMailgunCoversOnlyItsToken(t *testing.T) {
	t.Parallel()
	v := provider(t, "mailgun").Verifier()
	keys := parseKeys(t, v, testSecret)
	event := func(token, id string) Message {
		sig := formulaMAC("hex256", testSecret, []byte("1700000000"+token))
		return Message{Body: []byte(`{"signature":{"timestamp":"1700000000","token":"` + token + `","signature":"` + sig + `"},"event-data":{"id":"` + id + `","event":"delivered"}}`)}
	}
	verify := func(m Message) Verdict {
		got := v.Verify(&m, keys, receivedAt, time.Minute)
		if got.Reason != ReasonOK || got.IDSigned || got.Type != "delivered" {
			t.Fatalf("%+v", got)
		}
		return got
	}
	first, forged, next := verify(event("token-1", "a")), verify(event("token-1", "b")), verify(event("token-2", "c"))
	if first.ContentHash != forged.ContentHash {
		t.Error("another event under the same token is not seen as a replay")
	}
	if first.ContentHash == next.ContentHash {
		t.Error("another token has the same hash")
	}
	if w := provider(t, "mailgun").ContentWindow; w == 0 {
		t.Error("Mailgun needs a content window")
	}
	runRows(t, v, keys, []row{
		{"token of another", Message{Body: []byte(strings.Replace(string(event("token-1", "a").Body), "token-1", "token-2", 1))}, ReasonBadSignature},
		{"no JSON", Message{Body: []byte("signature=x")}, ReasonMissingSignature},
	})
}
