package config

// providerRule is what a source's fields are told.
type providerRule struct {
	name, fields string
	errs, warns  []string
}

// publishedRules are those of keys that senders publish, tokens and client certificates; TestProviderRules runs them.
var publishedRules = []providerRule{
	{name: "keys that the sender is known to publish", fields: "provider: shipengine, accept_loss: true"},
	{name: "other keys of the same sender", fields: "provider: fireblocks, secrets: [{url: https://eu-keys.fireblocks.io/.well-known/jwks.json}]"},
	{
		name:   "no keys at all",
		fields: "provider: saleor, accept_loss: true",
		errs:   []string{`extauthz.sources[0].secrets: source "a": a secret is required`},
	},
	{name: "keys at an address", fields: "provider: saleor, accept_loss: true, secrets: [{url: https://shop.example.com/.well-known/jwks.json}]"},
	{
		name:   "keys by http",
		fields: "provider: saleor, accept_loss: true, secrets: [{url: http://shop.example.com/jwks.json}]",
		errs:   []string{`extauthz.sources[0].secrets[0].url: source "a": secret is malformed: write the address of a JWK set`},
	},
	{
		name:   "an address for what both sides know",
		fields: "provider: stripe, secrets: [{url: https://example.com/jwks.json}]",
		errs:   []string{`extauthz.sources[0].secrets[0].url: source "a": secret is of the wrong kind: this scheme has no keys that are published at a URL`},
	},
	{
		name:   "a token for anyone",
		fields: "provider: google-pubsub",
		errs:   []string{"extauthz.sources[0].jwt.audience: is required: google-pubsub makes tokens of the same key for others too"},
	},
	{name: "a token for us", fields: "provider: google-pubsub, jwt: {audience: https://hooks.example.com/push, subject: push@p.iam.gserviceaccount.com}"},
	{
		name:   "claims of what is no token",
		fields: "provider: stripe, secrets: [{value: whsec_0123456789abcdef}], jwt: {audience: a}",
		errs:   []string{"extauthz.sources[0].jwt: stripe signs with no token that has claims; remove it"},
	},
	{
		name:   "a topic",
		fields: "provider: sns, secrets: [{value: 'arn:aws:sns:us-west-2:123456789012:MyTopic'}], handshake: {confirm: true}",
	},
	{
		name:   "a subscription of another sender",
		fields: "provider: stripe, secrets: [{value: whsec_0123456789abcdef}], handshake: {confirm: true}",
		errs:   []string{"extauthz.sources[0].handshake.confirm: is for sns alone"},
	},
	{
		name:   "a certificate beside the signature",
		fields: "provider: stripe, secrets: [{value: whsec_0123456789abcdef}], client_certificate: {subjects: [hooks.example.com]}",
		warns:  []string{"extauthz.sources[0].client_certificate.ca_file: is empty, so who issued the client's certificate is asked by Envoy alone"},
	},
	{
		name:   "a certificate of anyone",
		fields: "provider: stripe, secrets: [{value: whsec_0123456789abcdef}], client_certificate: {subjects: ['*.example.com']}",
		errs:   []string{"extauthz.sources[0].client_certificate.subjects[0]: write a URI, a DNS name or a whole subject of a certificate, without a *"},
	},
	{
		name:   "authorities that are not there",
		fields: "provider: stripe, secrets: [{value: whsec_0123456789abcdef}], client_certificate: {subjects: [a], ca_file: /nowhere/ca.pem}",
		errs:   []string{"extauthz.sources[0].client_certificate.ca_file: stat /nowhere/ca.pem"},
	},
	{
		name:   "a certificate alone",
		fields: "scheme: {algorithm: MTLS, subjects: ['spiffe://bank.example/hooks']}",
		warns:  []string{"extauthz.sources[0].secrets: is empty, so who issued the client's certificate is asked by Envoy alone"},
	},
	{
		name:   "a certificate of nobody",
		fields: "scheme: {algorithm: MTLS}",
		errs:   []string{"extauthz.sources[0].scheme.subjects: MTLS needs one"},
	},
	{
		name:   "a certificate where nothing is verified",
		fields: "verify: none, client_certificate: {subjects: [a]}",
		errs:   []string{"extauthz.sources[0].client_certificate: nothing is verified here"},
		warns:  []string{"extauthz.sources[0].verify: "},
	},
}
