package extauthz

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/sidehook/sidehook/internal/signature"
)

const keysURL = "https://keys.example.com/jwks.json"

// publisher is a KeySource whose hosts do as a test says.
type publisher struct {
	have      map[string]*signature.PublishedKeys
	next      map[string]*signature.PublishedKeys // what a fetch brings
	state     KeyState
	asked     []signature.KeyRequest
	confirmed []string
	refuse    error
	slow      time.Duration
}

func (p *publisher) Keys(url string) *signature.PublishedKeys { return p.have[url] }

func (p *publisher) Fetch(ctx context.Context, want signature.KeyRequest) KeyState {
	p.asked = append(p.asked, want)
	select {
	case <-time.After(p.slow):
	case <-ctx.Done():
		return KeyAway
	}
	if p.state == KeyFetched {
		p.have = p.next
	}
	return p.state
}

func (p *publisher) Confirm(_ context.Context, url string) error {
	p.confirmed = append(p.confirmed, url)
	return p.refuse
}

func jwkSet(t testing.TB, public ed25519.PublicKey) map[string]*signature.PublishedKeys {
	t.Helper()
	keys, err := signature.ParsePublished([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + base64.RawURLEncoding.EncodeToString(public) + `"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*signature.PublishedKeys{keysURL: keys}
}

// A key that cannot be had is nobody's forgery: 503, and only what was looked for and is not there is 401.
func TestPublishedKey(t *testing.T) {
	t.Parallel()
	private := ed25519.NewKeyFromSeed(discordSeed)
	ours := private.Public().(ed25519.PublicKey)
	foreign, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		keys   *publisher // nil: the gate has none
		spoil  byte       // of the signature
		status int        // 0: passes
		asked  int
	}{
		{"at hand", &publisher{have: jwkSet(t, ours)}, 0, 0, 0},
		{"fetched for it", &publisher{next: jwkSet(t, ours), state: KeyFetched}, 0, 0, 1},
		{"a new key", &publisher{have: jwkSet(t, foreign), next: jwkSet(t, ours), state: KeyFetched}, 0, 0, 1},
		{"a forgery", &publisher{have: jwkSet(t, ours), next: jwkSet(t, ours), state: KeyFetched}, 1, 401, 1},
		{"one forgery after the other", &publisher{have: jwkSet(t, ours), state: KeyRecent}, 1, 401, 1},
		{"the host is away", &publisher{state: KeyAway}, 0, 503, 1},
		{"the host is away, and the keys are old", &publisher{have: jwkSet(t, foreign), state: KeyAway}, 0, 503, 1},
		{"the host is slow", &publisher{next: jwkSet(t, ours), state: KeyFetched, slow: time.Minute}, 0, 503, 1},
		{"nobody fetches", nil, 0, 503, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				v, err := signature.Compile(signature.Spec{Algorithm: signature.Ed25519, Key: signature.KeyJWKS,
					Signature: signature.SignatureSpec{ValueSpec: signature.ValueSpec{Header: "x-signature"}}})
				if err != nil {
					t.Fatal(err)
				}
				key, err := v.ParseKeyURL(keysURL)
				if err != nil {
					t.Fatal(err)
				}
				src := sourceWith(t, "fal", v, nil, func(s *Source) { s.Keys, s.RequireID = []signature.Key{key}, false })
				g := newGateIn(t, folder, mustSources(t, []*Source{src}), func(cfg *Config) {
					if c.keys != nil {
						cfg.Keys = c.keys
					}
				})
				start := time.Now()
				got := g.ask(post("/hooks/fal", "a", func(string) [][2]string {
					sig := ed25519.Sign(private, []byte("a"))
					sig[0] ^= c.spoil
					return [][2]string{{"x-signature", hex.EncodeToString(sig)}}
				}))
				if got.pass != (c.status == 0) || got.status != c.status {
					t.Errorf("pass %v, status %d %s", got.pass, got.status, got.body)
				}
				if c.status == 503 && (got.body != `{"status":"key_unavailable"}` || got.headers["retry-after"] == "") {
					t.Errorf("%s, Retry-After %q", got.body, got.headers["retry-after"])
				}
				if d := time.Since(start); d > keyWait {
					t.Errorf("the Check took %s", d)
				}
				if c.keys != nil && len(c.keys.asked) != c.asked {
					t.Errorf("asked for %v", c.keys.asked)
				}
			})
		})
	}
}

const snsTopicARN = "arn:aws:sns:us-west-2:123456789012:MyTopic"

// snsPublisher has a certificate of SNS, and sign makes its messages.
func snsPublisher(t testing.TB) (p *publisher, sign func(change ...string) string) {
	t.Helper()
	const at = "https://sns.us-west-2.amazonaws.com/SimpleNotificationService-0.pem"
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sns.amazonaws.com"}, NotAfter: time.Now().AddDate(50, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := signature.ParsePublished(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	return &publisher{have: map[string]*signature.PublishedKeys{at: keys}}, func(change ...string) string {
		f := map[string]string{
			"Type": "SubscriptionConfirmation", "MessageId": "165545c9-2a5c-472c-8df2-7ff2be2b3b1b", "Token": "2336412f37", "TopicArn": snsTopicARN,
			"Message": "You have chosen to subscribe", "Timestamp": "2012-04-26T20:45:04.751Z", "SignatureVersion": "2", "SigningCertURL": at,
			"SubscribeURL": "https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&TopicArn=" + snsTopicARN + "&Token=2336412f37",
		}
		for i := 0; i < len(change); i += 2 {
			f[change[i]] = change[i+1]
		}
		var text strings.Builder
		for _, name := range []string{"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"} {
			if f["Type"] == "Notification" && (name == "SubscribeURL" || name == "Token") {
				continue
			}
			text.WriteString(name + "\n" + f[name] + "\n")
		}
		sum := sha256.Sum256([]byte(text.String()))
		sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		f["Signature"] = base64.StdEncoding.EncodeToString(sig)
		body, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
}

// AWS, "Confirming the subscription": the URL is called once it is verified and SNS's own, and never goes to the app.
func TestSNSConfirm(t *testing.T) {
	t.Parallel()
	const own = "https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&TopicArn=" + snsTopicARN + "&Token=2336412f37"
	for _, c := range []struct {
		name    string
		change  []string
		confirm bool // as the source says
		refuse  error
		status  int    // 0: to the app
		called  string // empty: nothing
	}{
		{"confirmed", nil, true, nil, 200, own},
		{"SNS is away", nil, true, errors.New("away"), 503, own},
		{"the app does so itself", nil, false, nil, 0, ""},
		{"a notification", []string{"Type", "Notification"}, true, nil, 0, ""},
		{"a URL of another host", []string{"SubscribeURL", strings.Replace(own, ".com/", ".com.example.com/", 1)}, true, nil, 401, ""},
		{"a URL of another region", []string{"SubscribeURL", strings.Replace(own, "us-west-2", "us-east-1", 1)}, true, nil, 401, ""},
		{"without TLS", []string{"SubscribeURL", strings.Replace(own, "https", "http", 1)}, true, nil, 401, ""},
		{"a port", []string{"SubscribeURL", strings.Replace(own, ".com/", ".com:8443/", 1)}, true, nil, 401, ""},
		{"another action", []string{"SubscribeURL", strings.Replace(own, "ConfirmSubscription", "DeleteTopic", 1)}, true, nil, 401, ""},
		{"for another topic", []string{"SubscribeURL", strings.Replace(own, ":MyTopic", ":Other", 1)}, true, nil, 401, ""},
		{"another token", []string{"SubscribeURL", own + "0"}, true, nil, 401, ""},
		{"another topic's", []string{"TopicArn", snsTopicARN + "2"}, true, nil, 401, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			keys, sign := snsPublisher(t)
			keys.refuse = c.refuse
			src := providerSource(t, "sns", HandshakeNone, snsTopicARN, func(s *Source) { s.ConfirmSubscription = c.confirm })
			g := newGate(t, mustSources(t, []*Source{src}), func(cfg *Config) { cfg.Keys = keys })
			got := g.ask(post("/hooks/sns", sign(c.change...), func(string) [][2]string { return nil }))
			if got.pass != (c.status == 0) || got.status != c.status {
				t.Errorf("pass %v, status %d %s", got.pass, got.status, got.body)
			}
			if called := strings.Join(keys.confirmed, " "); called != c.called {
				t.Errorf("called %q, want %q", called, c.called)
			}
		})
	}
}

// The client's certificate is what Envoy's attributes say, in whatever form the message comes; no header is believed.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	v, err := signature.Compile(signature.Spec{Algorithm: signature.MTLS, Subjects: []string{"spiffe://bank.example/hooks"}})
	if err != nil {
		t.Fatal(err)
	}
	g := newGate(t, mustSources(t, []*Source{sourceWith(t, "bank", v, nil, func(s *Source) { s.RequireID = false })}))
	for _, c := range []struct {
		name, principal, header string
		status                  int // 0: passes
	}{
		{"one of the subjects", "spiffe://bank.example/hooks", "", 0},
		{"another", "spiffe://bank.example/other", "", 401},
		{"none", "", "", 401},
		{"a header alone", "", "By=a;URI=spiffe://bank.example/hooks", 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := post("/hooks/bank", c.name, func(string) [][2]string { return [][2]string{{"x-forwarded-client-cert", c.header}} })
			in := h.check(true)
			in.Attributes.Source = &authv3.AttributeContext_Peer{Principal: c.principal}
			r, err := g.Server.Check(t.Context(), in)
			if got := readAnswer(t, r, err); got.pass != (c.status == 0) || got.status != c.status {
				t.Errorf("pass %v, status %d %s", got.pass, got.status, got.body)
			}
		})
	}
}
