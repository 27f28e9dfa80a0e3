package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"maps"
	"net/http"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	stripewebhook "github.com/stripe/stripe-go/v83/webhook"
)

// Secrets in the form that each provider hands out, and a forger's, who has none of them.
const (
	stripeSecret   = "whsec_quickstart4c1d0a7be8d24f0c9b6e5a31"
	shopifySecret  = "f3b1c5d7e9a02846f3b1c5d7e9a02846"
	standardSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	forgersSecret  = "whsec_Zm9yZ2VkZm9yZ2VkZm9yZ2VkZm9yZ2Vk"
)

// Examples that the providers publish; testdata/README.md names each one's source.
var (
	//go:embed testdata/stripe-setup-intent-created.json
	setupIntentCreated []byte
	//go:embed testdata/stripe-test-webhook.json
	testWebhook []byte
	//go:embed testdata/shopify-customers-data-request.json
	customersDataRequest []byte
	//go:embed testdata/shopify-shop-redact.json
	shopRedact []byte
	//go:embed testdata/standard-contact-created.json
	contactCreated []byte
	//go:embed testdata/standard-example-event.json
	exampleEvent []byte
)

// provider is a sender of webhooks. Its signatures are made by its own Go library, or as its documentation says, not by
// sidehook.
type provider struct {
	name   string
	source string // as sidehook's configuration calls it
	path   string
	first  event
	second event // while the app's database is down
	// sign returns the headers with which the provider sends a body at a time.
	sign func(e event, at time.Time, secret string) (http.Header, error)
	// secret is the provider's.
	secret string
	// signsTime: a late copy can be told by its signature.
	signsTime bool
}

// event is something that happened at the provider.
type event struct {
	id   string
	kind string // where the provider says it outside the body
	body []byte
}

func providers() []provider {
	return []provider{
		{
			name: "stripe", source: "payments", path: "/webhooks/stripe", secret: stripeSecret, signsTime: true, sign: signStripe,
			first:  event{id: "evt_1NG8Du2eZvKYlo2CUI79vXWy", body: setupIntentCreated},
			second: event{id: "evt_test_webhook", body: testWebhook},
		},
		{
			name: "shopify", source: "shop", path: "/webhooks/shopify", secret: shopifySecret, sign: signShopify,
			first:  event{id: "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043", kind: "customers/data_request", body: customersDataRequest},
			second: event{id: "98880550-7158-44d4-b7cd-2c97c8a091b5", kind: "shop/redact", body: shopRedact},
		},
		{
			name: "standard-webhooks", source: "contacts", path: "/webhooks/contacts", secret: standardSecret, signsTime: true, sign: signStandard,
			first:  event{id: "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", body: contactCreated},
			second: event{id: "msg_2KWPBgLlAfxdpx2AI54pPJ85f4X", body: exampleEvent},
		},
	}
}

// signStripe uses the test helper of Stripe's library.
func signStripe(e event, at time.Time, secret string) (http.Header, error) {
	signed := stripewebhook.GenerateTestSignedPayload(&stripewebhook.UnsignedPayload{Payload: e.body, Secret: secret, Timestamp: at})
	return http.Header{"Stripe-Signature": {signed.Header}}, nil
}

// signShopify does what Shopify documents: the base64 of an HMAC-SHA256 of the body under the client secret
// (https://shopify.dev/docs/apps/build/webhooks/subscribe/https). Neither the id nor the time is signed.
func signShopify(e event, at time.Time, secret string) (http.Header, error) {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(e.body)
	return http.Header{
		"X-Shopify-Topic":        {e.kind},
		"X-Shopify-Webhook-Id":   {e.id},
		"X-Shopify-Triggered-At": {at.UTC().Format(time.RFC3339Nano)},
		"X-Shopify-Hmac-Sha256":  {base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	}, nil
}

// signStandard uses the Standard Webhooks library.
func signStandard(e event, at time.Time, secret string) (http.Header, error) {
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, err
	}
	signature, err := hook.Sign(e.id, at, e.body)
	if err != nil {
		return nil, err
	}
	return http.Header{
		"Webhook-Id":        {e.id},
		"Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)},
		"Webhook-Signature": {signature},
	}, nil
}

// webhook is one sending of an event.
type webhook struct {
	path   string
	header http.Header
	body   []byte
}

func (w webhook) request(ctx context.Context, url string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+w.path, bytes.NewReader(w.body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, w.header)
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}
