package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	stripewebhook "github.com/stripe/stripe-go/v83/webhook"
)

// The secrets of the senders, as their pages show them, and one that is nobody's.
const (
	stripeSecret   = "whsec_e2e7f1c0a9b8d7e6f5a4b3c2d1e0f9a8"
	standardSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	shopifySecret  = "hush-hush-hush-hush-hush-hush-32"
	githubSecret   = "It's a Secret to Everybody"
	squareSecret   = "asdf1234asdf1234asdf1234"
	otherSecret    = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
)

// usualSources are those that most tests need. The lease is short, for some tests wait for its end.
const usualSources = `
  - {name: payments, match: {path_prefix: /webhooks/stripe}, provider: stripe, secrets: [{file: FOLDER/stripe}], lease: 2s}
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], lease: 2s}
  - {name: shop, match: {path_prefix: /webhooks/shopify}, provider: shopify, secrets: [{file: FOLDER/shopify}], lease: 2s}
  - {name: code, match: {path: /webhooks/github, method: POST}, provider: github, secrets: [{file: FOLDER/github}], accept_loss: true, lease: 30s}
  - {name: sync, match: {path_prefix: /webhooks/sync}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], confirm: EXT_PROC, lease: 2s}
  - {name: square, match: {path_prefix: /webhooks/square}, provider: square, secrets: [{file: FOLDER/square}], public_url: "https://shop.example", lease: 2s}
`

func (x *stack) writeSecrets() {
	x.t.Helper()
	for name, secret := range map[string]string{
		"stripe": stripeSecret, "standard": standardSecret, "shopify": shopifySecret, "github": githubSecret, "square": squareSecret,
	} {
		x.write(name, secret+"\n")
	}
}

// message is a webhook as its sender makes it.
type message struct {
	method, target string
	host           string // empty: Envoy's address
	header         http.Header
	body           []byte
	chunked        bool // sent in pieces of one byte, without a length
}

// stripe is an event signed by Stripe's own library.
func stripe(id string, at time.Time, secret string) message {
	body := fmt.Sprintf(`{"id":%q,"object":"event","type":"invoice.paid","created":%d,"data":{"object":{"id":"in_1"}}}`, id, at.Unix())
	return stripeBody([]byte(body), at, secret)
}

func stripeBody(body []byte, at time.Time, secret string) message {
	signed := stripewebhook.GenerateTestSignedPayload(&stripewebhook.UnsignedPayload{Payload: body, Secret: secret, Timestamp: at})
	return message{method: http.MethodPost, target: "/webhooks/stripe", body: body, header: http.Header{
		"Content-Type": {"application/json"}, "Stripe-Signature": {signed.Header},
	}}
}

// standard is a message signed by the Standard Webhooks library.
func standard(t testing.TB, target, id string, body []byte, at time.Time, secret string) message {
	t.Helper()
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := hook.Sign(id, at, body)
	if err != nil {
		t.Fatal(err)
	}
	return message{method: http.MethodPost, target: target, body: body, header: http.Header{
		"Content-Type":      {"application/json"},
		"Webhook-Id":        {id},
		"Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)},
		"Webhook-Signature": {signature},
	}}
}

// contact is a message of the source standard with a body like that of the specification.
func contact(t testing.TB, id string) message {
	t.Helper()
	return standard(t, "/webhooks/standard", id, []byte(`{"type":"contact.created","data":{"id":"`+id+`"}}`), time.Now(), standardSecret)
}

// shopify is signed as Shopify's page says: base64 of HMAC-SHA256 over the body.
func shopify(id string, body []byte, secret string) message {
	return message{method: http.MethodPost, target: "/webhooks/shopify", body: body, header: http.Header{
		"Content-Type":          {"application/json"},
		"X-Shopify-Topic":       {"orders/create"},
		"X-Shopify-Webhook-Id":  {id},
		"X-Shopify-Hmac-Sha256": {base64.StdEncoding.EncodeToString(mac(secret, body))},
	}}
}

// github is signed as GitHub's page says: hex of HMAC-SHA256 over the body.
func github(id string, body []byte, secret string) message {
	return message{method: http.MethodPost, target: "/webhooks/github", body: body, header: http.Header{
		"Content-Type":        {"application/json"},
		"X-Github-Event":      {"push"},
		"X-Github-Delivery":   {id},
		"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac(secret, body))},
	}}
}

// square is signed as Square's page says: base64 of HMAC-SHA256 over the public URL and the body.
func square(target string, body []byte, secret string) message {
	signed := append([]byte("https://shop.example"+target), body...)
	return message{method: http.MethodPost, target: target, body: body, header: http.Header{
		"Content-Type":                  {"application/json"},
		"X-Square-Hmacsha256-Signature": {base64.StdEncoding.EncodeToString(mac(secret, signed))},
	}}
}

func mac(secret string, content []byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(content)
	return h.Sum(nil)
}

// answer is what the sender got.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.code, a.body) }

// is reports whether the answer is the gate's own, with that status word.
func (a answer) is(code int, word string) bool {
	return a.code == code && strings.TrimSpace(a.body) == fmt.Sprintf(`{"status":%q}`, word)
}

// client sends to Envoy; it follows nothing and keeps no connection that another test's Envoy might have closed.
var client = &http.Client{
	Timeout:       time.Minute,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
}

// overHTTP2 is client with HTTP/2 in clear, which Envoy's listener takes beside HTTP/1.
var overHTTP2 = func() *http.Client {
	var only http.Protocols
	only.SetUnencryptedHTTP2(true)
	return &http.Client{Timeout: time.Minute, CheckRedirect: client.CheckRedirect, Transport: &http.Transport{Protocols: &only, DisableCompression: true}}
}()

// post sends m to a stack's Envoy.
func (x *stack) post(m message) answer {
	x.t.Helper()
	a, err := send(x.t.Context(), client, x.url, m)
	if err != nil {
		x.t.Fatal(err)
	}
	return a
}

// send sends m to the server at url.
func send(ctx context.Context, c *http.Client, url string, m message) (answer, error) {
	var body io.Reader = bytes.NewReader(m.body)
	if m.chunked {
		body = &oneByOne{m.body}
	}
	return sendFrom(ctx, c, url, m, body)
}

// sendFrom is send with the body read from elsewhere: without a length unless net/http knows the reader's.
func sendFrom(ctx context.Context, c *http.Client, url string, m message, body io.Reader) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, m.method, url, body)
	if err != nil {
		return answer{}, err
	}
	// As written: the client would encode it anew. One with two slashes in front has to go in absolute form, which
	// Envoy turns back.
	path, query, _ := strings.Cut(m.target, "?")
	req.URL.Opaque, req.URL.RawQuery = path, query
	if strings.HasPrefix(path, "//") {
		req.URL.Opaque = "//" + req.URL.Host + path
	}
	req.Host = cmp.Or(m.host, req.Host)
	maps.Copy(req.Header, m.header)
	res, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{code: res.StatusCode, header: res.Header, body: string(text)}, nil
}

// oneByOne reads a byte at a time, so that each becomes a chunk of its own.
type oneByOne struct{ left []byte }

func (o *oneByOne) Read(p []byte) (int, error) {
	if len(o.left) == 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	p[0], o.left = o.left[0], o.left[1:]
	return 1, nil
}
