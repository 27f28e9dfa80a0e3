package signature

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// names are the headers of m in order.
func names(fields []Field) string {
	var list []string
	for _, f := range fields {
		list = append(list, f.Name)
	}
	return strings.Join(list, " ")
}

// TestResign: a message that came signed is signed again, days later and with the secret of then, under the headers that it came
// with. TestResignedDelivery of package extauthz does so for every provider.
func TestResign(t *testing.T) {
	t.Parallel()
	later := receivedAt.Add(30 * 24 * time.Hour)
	whsk, _ := ed25519Pair(7)
	for _, c := range []struct {
		name, provider  string
		secrets         []string
		until           []time.Time
		before          []Field // what came
		url             string
		body            string
		want            string // names afterwards, in order
		made            int
		wantKey         int // by which key it holds
		unsignedAtLater bool
	}{
		{
			name: "a time in the signature's own list", provider: "stripe", secrets: []string{testSecret},
			before: headers("content-type: application/json", "stripe-signature: t=1,v1="+strings.Repeat("ab", 32)+",v0=00", "x-a: 1"),
			want:   "content-type x-a stripe-signature", made: 2,
		},
		{
			name: "an id that stays", provider: "standard-webhooks", secrets: []string{testSecret},
			before: headers("webhook-id: msg_1", "webhook-timestamp: 1", "webhook-signature: v1,AAAA"),
			want:   "webhook-id webhook-timestamp webhook-signature", made: 1,
		},
		{
			name: "the older names", provider: "svix", secrets: []string{testSecret},
			before: headers("svix-id: msg_1", "svix-timestamp: 1", "svix-signature: v1,AAAA v1a,AAAA"),
			want:   "svix-id svix-timestamp svix-signature", made: 1,
		},
		{
			name: "both sets of names", provider: "svix", secrets: []string{testSecret},
			before: headers("svix-id: msg_1", "svix-timestamp: 1", "svix-signature: v1,AAAA", "webhook-id: msg_1", "webhook-timestamp: 1", "webhook-signature: v1,AAAA"),
			want:   "svix-id webhook-id svix-timestamp svix-signature webhook-timestamp webhook-signature", made: 2,
		},
		{
			name: "a private key in the second place", provider: "standard-webhooks", secrets: []string{testSecret, whsk}, until: []time.Time{later},
			before: headers("webhook-id: msg_1", "webhook-timestamp: 1", "webhook-signature: v1,AAAA"),
			want:   "webhook-id webhook-timestamp webhook-signature", made: 1, wantKey: 1,
		},
		{
			name: "the first secret that is in force", provider: "github", secrets: []string{otherSecret, testSecret}, until: []time.Time{later},
			before: headers("x-github-event: push", "x-hub-signature: sha1=00", "x-hub-signature-256: sha256=00"),
			// The older signature is of another key and has no use but to contradict.
			want: "x-github-event x-hub-signature-256", made: 1, wantKey: 1,
		},
		{
			name: "one of several headers", provider: "box", secrets: []string{testSecret},
			before: headers("box-signature-version: 1", "box-signature-algorithm: HmacSHA256", "box-delivery-timestamp: 2020-01-01T00:00:00Z", "box-signature-primary: AA==", "box-signature-secondary: AA=="),
			want:   "box-signature-version box-signature-algorithm box-delivery-timestamp box-signature-primary", made: 2,
		},
		{
			name: "headers that are signed", provider: "contentful", secrets: []string{testSecret},
			before: headers("x-contentful-topic: a", "x-contentful-signed-headers: x-contentful-topic,x-a", "x-contentful-timestamp: 1", "x-contentful-signature: 00"),
			want:   "x-contentful-topic x-contentful-signed-headers x-contentful-timestamp x-contentful-signature", made: 1,
		},
		{
			name: "a token that was not kept", provider: "telegram", secrets: []string{testSecret},
			before: headers("content-type: application/json"),
			want:   "content-type x-telegram-bot-api-secret-token", made: 1,
		},
		{
			name: "a user and password that were not kept", provider: "postmark", secrets: []string{"user:password"},
			before: headers("content-type: application/json"),
			want:   "content-type authorization", made: 1,
		},
		{
			name: "one of the sender's two schemes, by its header", provider: "gitlab", secrets: []string{"an older token", testSecret},
			before: headers("webhook-id: msg_1", "webhook-timestamp: 1", "webhook-signature: v1,AAAA", "x-gitlab-event: Push Hook"),
			want:   "webhook-id x-gitlab-event webhook-timestamp webhook-signature", made: 2, wantKey: 1,
		},
		{
			name: "the other one, of which nothing was kept", provider: "gitlab", secrets: []string{"an older token", testSecret},
			before: headers("x-gitlab-event: Push Hook"),
			want:   "x-gitlab-event x-gitlab-token", made: 1,
		},
		{
			name: "a token in the URL", provider: "cloudevents", secrets: []string{testSecret}, url: "https://example.com/hook?access_token=" + testSecret,
			before: headers("ce-specversion: 1.0", "ce-source: /a", "ce-id: 1", "ce-type: a"),
			want:   "ce-specversion ce-source ce-id ce-type", made: 4,
		},
		{
			name: "a token that stood in a header", provider: "cloudevents", secrets: []string{testSecret},
			before: headers("ce-specversion: 1.0", "ce-source: /a", "ce-id: 1", "ce-type: a"),
			want:   "ce-specversion ce-source ce-id ce-type authorization", made: 4,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := provider(t, c.provider).Verifier()
			keys := parseKeys(t, v, c.secrets...)
			for i, until := range c.until {
				keys[i].Until = until
			}
			url := c.url
			if url == "" {
				url = "https://example.com/hook"
			}
			m := Message{Method: "POST", URL: url, Target: targetOf(url), Header: c.before, Body: []byte(`{"id":"evt_1"}`)}
			before := slices.Clone(m.Header)
			got, made, err := v.Resign(&m, keys, later)
			if err != nil {
				t.Fatal(err)
			}
			if names(got) != c.want || made != c.made {
				t.Errorf("headers %s, made from %d on; want %s, %d", names(got), made, c.want, c.made)
			}
			if !slices.Equal(m.Header, before) {
				t.Error("the message itself was changed")
			}
			m.Header = got
			if verdict := v.Verify(&m, keys, later, time.Second); verdict.Reason != ReasonOK || verdict.Key != c.wantKey {
				t.Errorf("Verify: %s by key %d, want ok by %d", verdict.Reason, verdict.Key, c.wantKey)
			}
		})
	}
}

func TestResignWithoutAKeyInForce(t *testing.T) {
	t.Parallel()
	v := provider(t, "github").Verifier()
	keys := parseKeys(t, v, testSecret)
	keys[0].Until = receivedAt
	for _, keys := range [][]Key{nil, keys, {{}}} {
		if _, _, err := v.Resign(&Message{Body: []byte("{}")}, keys, receivedAt); !errors.Is(err, ErrCannotSign) {
			t.Errorf("%d keys: %v", len(keys), err)
		}
	}
}

func TestCanSign(t *testing.T) {
	t.Parallel()
	whsk, whpk := ed25519Pair(7)
	var public, private string
	for _, c := range publicKeyCases(t) {
		if c.spec.Algorithm == RSAPKCS1SHA256 && c.spec.Key == KeyPEM {
			public, private = c.public, c.private
		}
	}
	for _, c := range []struct {
		name, provider string
		secrets        []string
		want           string // "": it can
	}{
		{"HMAC", "github", []string{testSecret}, ""},
		{"HMAC whose secrets are not known yet", "github", nil, ""},
		{"a token in a header", "telegram", []string{testSecret}, ""},
		{"a token in a header or the URL", "cloudevents", []string{testSecret}, ""},
		{"one good key is enough", "standard-webhooks", []string{whpk, testSecret}, ""},
		{"a private key", "standard-webhooks", []string{whsk}, ""},
		{"a private key in PEM", "wise", []string{private}, ""},
		{"a public key", "standard-webhooks", []string{whpk}, "a public key only checks"},
		{"a public key in PEM", "wise", []string{public}, "a public key only checks"},
		{"no key of the sender's", "wise", nil, "only the sender has the private key of RSA_PKCS1_SHA256"},
		{"a token in the body", "figma", []string{testSecret}, "the secret stands in json passcode, and goes on with the message as it came"},
		{"a signature in the body", "braintree", []string{testSecret}, "the signature stands in form bt_signature"},
		{"a signature in the URL", "pandadoc", []string{testSecret}, "the signature stands in query signature"},
		{"a time in the body", "linear", []string{testSecret}, "the signed time stands in json webhookTimestamp"},
		{"headers that the sender chooses", "coinbase-cdp", []string{testSecret}, "the sender chooses the headers that it signs"},
		{"code beside the language", "sns", nil, "this sender's signatures are only checked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := provider(t, c.provider).Verifier()
			err := v.CanSign(parseKeys(t, v, c.secrets...))
			if c.want == "" && err != nil {
				t.Errorf("%v", err)
			}
			if c.want != "" && (!errors.Is(err, ErrCannotSign) || err.Error() != "cannot sign: "+c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestHeaderUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		provider, header        string
		read, signature, secret bool
	}{
		{"stripe", "stripe-signature", true, true, false},
		{"stripe", "x-a", false, false, false},
		{"github", "x-hub-signature", true, true, false}, // not accepted, and yet one
		{"github", "x-github-delivery", true, false, false},
		{"github", "x-github-event", true, false, false},
		{"twilio", "i-twilio-idempotency-token", true, false, false},
		{"standard-webhooks", "webhook-id", true, false, false},
		{"standard-webhooks", "webhook-timestamp", true, false, false},
		{"docusign", "x-docusign-signature-9", true, true, false},
		{"contentful", "x-contentful-topic", true, false, false},
		{"lark", "x-lark-request-nonce", true, false, false},
		{"telegram", "x-telegram-bot-api-secret-token", true, true, true},
		{"postmark", "authorization", true, true, true},
		{"fusionauth", "x-fusionauth-signature-jwt", true, true, false},
	} {
		got := provider(t, c.provider).Verifier().Header(c.header)
		if got.Read != c.read || got.Signature != c.signature || got.Secret != c.secret {
			t.Errorf("%s of %s: %+v", c.header, c.provider, got)
		}
	}
}

// TestResignZipped: where the sender signs what comes out of a zipped body, that is signed again, and the body stays zipped.
func TestResignZipped(t *testing.T) {
	t.Parallel()
	v, err := Compile(Spec{
		Algorithm: HMACSHA256, Signed: "{timestamp}.{body}", Body: Decoded, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}, Encoding: Hex},
		Timestamp: &TimestampSpec{ValueSpec: ValueSpec{Header: "t"}}, ID: &IDSpec{Hash: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	keys := parseKeys(t, v, testSecret)
	later := receivedAt.Add(30 * 24 * time.Hour)
	m := Message{Body: zip(t, strings.NewReader(`{"a":1}`)), Header: headers("content-encoding: gzip", "t: 1", "s: 00"), MaxBody: 1 << 20}
	m.Header, _, err = v.Resign(&m, keys, later)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(m.Header), "content-encoding t s"; got != want {
		t.Errorf("headers %s, want %s", got, want)
	}
	if got := m.Header[2].Value; got != formulaMAC("hex256", testSecret, fmt.Appendf(nil, `%d.{"a":1}`, later.Unix())) {
		t.Errorf("signed as %s", got)
	}
	if got := v.Verify(&m, keys, later, time.Minute); got.Reason != ReasonOK {
		t.Errorf("Verify: %s", got.Reason)
	}
}
