package extauthz

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/signature"
)

// keptSource is a source of the provider with those secrets.
func keptSource(t testing.TB, provider string, secrets ...string) *Source {
	t.Helper()
	p, ok := signature.ProviderByName(provider)
	if !ok {
		t.Fatalf("no provider %s", provider)
	}
	s := &Source{Name: "payments", Provider: provider, Verifier: p.Verifier(), Mode: ModeStore}
	for _, secret := range secrets {
		k, err := s.Verifier.ParseKey([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		s.Keys = append(s.Keys, k)
	}
	return s
}

// fieldsOf makes fields of "name: value" lines.
func fieldsOf(lines ...string) (fields []signature.Field) {
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		fields = append(fields, signature.Field{Name: name, Value: value})
	}
	return fields
}

func TestKeptHeaders(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-32-bytes-0123456789a"
	b64 := base64.StdEncoding.EncodeToString
	for _, c := range []struct {
		name, provider string
		secrets        []string
		store          []string // store_headers
		header         []string
		want           []string // of header; nil: all
	}{
		{
			name: "what an app reads", provider: "github",
			header: []string{"content-type: application/json", "content-encoding: gzip", "accept: */*", "user-agent: GitHub-Hookshot/1", "x-github-event: push", "x-github-delivery: 72d3162e",
				"x-hub-signature: sha1=00", "x-hub-signature-256: sha256=00", "x-forwarded-for: 192.0.2.1", "x-forwarded-proto: https", "x-request-id: 1", "traceparent: 00-1-2-01", "ce-id: 1", "date: now"},
		},
		{
			name: "repeats in their order", provider: "github",
			header: []string{"x-b: 2", "x-a: 1", "x-b: 1", "x-b: 2", "x-empty: "},
		},
		{
			name: "who is let in", provider: "github",
			header: []string{"cookie: a=1", "set-cookie: a=1", "cookie2: $Version=1", "authorization: Bearer x", "proxy-authorization: Basic x", "proxy-authenticate: Basic", "proxy-status: x", "x-a: 1"},
			want:   []string{"x-a: 1"},
		},
		{
			// RFC 9110, section 7.6.1.
			name: "of one connection", provider: "github",
			header: []string{"connection: close, X-Hop , x-other", "keep-alive: 5", "proxy-connection: close", "te: trailers", "trailer: x-t", "transfer-encoding: chunked", "upgrade: h2c",
				"http2-settings: AAMAAABkAAQAAP__", "content-length: 2", "host: api.example", "expect: 100-continue", "x-hop: 1", "x-other: 2", "x-hopped: 3"},
			want: []string{"x-hopped: 3"},
		},
		{
			name: "ours, in any spelling", provider: "github",
			header: []string{"x-sidehook-source: a", "x_sidehook_source: a", "x-sidehook_event-id: a", "sidehook-delivery: 1", "sidehook_delivery: 1", "x-sidehooked: 1"},
			want:   []string{"x-sidehooked: 1"},
		},
		{
			name: "the mesh's", provider: "github",
			header: []string{"x-envoy-original-path: /a", "x_envoy_attempt_count: 1", "x-forwarded-client-cert: By=a", "x_forwarded_client_cert: By=a", "x-envoyish: 1"},
			want:   []string{"x-envoyish: 1"},
		},
		{
			name: "secrets by name", provider: "github",
			header: []string{"x-auth-token: 1", "x_auth_token: 1", "x-token: 1", "token: 1", "x-accesstoken: 1", "x-client-secret: 1", "secret: 1", "x-api-key: 1", "apikey: 1", "x-apikey: 1", "x-access-key: 1",
				"x-functions-key: 1", "ocp-apim-subscription-key: 1", "x-password: 1", "x-user-passwd: 1", "x-credentials: 1", "x-jwt: 1", "x-goog-iap-jwt-assertion: 1", "x-forwarded-authorization: 1", "x-auth: 1", "x-original-cookie: 1",
				"x-csrf-token: 1", "x-github-encoded-secret: 1"},
			want: []string{},
		},
		{
			name: "words that only look like it", provider: "github",
			header: []string{"x-tokenized: 1", "x-secretary: 1", "x-key: 1", "idempotency-key: 1", "x-partition-key: 1", "x-author: 1", "x-auth-user: 1", "x-authenticated-userid: 1", "x-api-version: 1", "x-keyapi: 1"},
		},
		{
			name: "the event's id, though its name says token", provider: "twilio", secrets: []string{secret},
			header: []string{"i-twilio-idempotency-token: 1", "x-twilio-signature: AA=="},
		},
		{
			name: "a signature, though its name says JWT", provider: "fusionauth",
			header: []string{"x-fusionauth-signature-jwt: a.b.c"},
		},
		{
			name: "a token is the secret", provider: "telegram", secrets: []string{secret}, store: []string{"x-telegram-bot-api-secret-token"},
			header: []string{"x-telegram-bot-api-secret-token: of another telegram", "content-type: application/json"},
			want:   []string{"content-type: application/json"},
		},
		{
			name: "a token of a plain name is", provider: "flutterwave", secrets: []string{secret}, store: []string{"verif-hash"},
			header: []string{"verif-hash: whatever"},
			want:   []string{},
		},
		{
			name: "user and password are", provider: "postmark", secrets: []string{"user:password"}, store: []string{"authorization"},
			header: []string{"authorization: Basic whatever"},
			want:   []string{},
		},
		{
			name: "secrets by value", provider: "github", secrets: []string{"another-secret-of-some-length", secret}, store: []string{"x-c", "x-g"},
			header: []string{"x-a: " + secret, "x-b: id=1;s=" + secret + ";", "x-c: " + hex.EncodeToString([]byte(secret)), "x-d: " + b64([]byte(secret)), "x-e: Basic " + b64([]byte("user:"+secret)),
				"x-f: another-secret-of-some-length", "x-g: " + b64([]byte(secret)), "x-h: a-secret-of-32-bytes-0123456789b"},
			want: []string{"x-h: a-secret-of-32-bytes-0123456789b"},
		},
		{
			name: "added back", provider: "github", secrets: []string{secret},
			store: []string{"cookie", "authorization", "x-envoy-original-path", "x-forwarded-client-cert", "x-auth-token", "x-a"},
			header: []string{"cookie: a=1", "authorization: Bearer x", "x-envoy-original-path: /a", "x-forwarded-client-cert: By=a", "x-auth-token: 1", "x-a: 1",
				"set-cookie: 1", "x-api-key: 1"},
			want: []string{"cookie: a=1", "authorization: Bearer x", "x-envoy-original-path: /a", "x-forwarded-client-cert: By=a", "x-auth-token: 1", "x-a: 1"},
		},
		{
			name: "never", provider: "github", secrets: []string{secret},
			store: []string{"x-sidehook-source", "connection", "te", "transfer-encoding", "content-length", "host", "sidehook-delivery", "x-github-encoded-secret", "x-hop"},
			header: []string{"x-sidehook-source: a", "connection: x-hop", "te: trailers", "transfer-encoding: chunked", "content-length: 1", "host: h", "sidehook-delivery: 1", "x-github-encoded-secret: a",
				"x-hop: 1"},
			want: []string{},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := keptSource(t, c.provider, c.secrets...)
			s.StoreHeaders = c.store
			header := fieldsOf(c.header...)
			want := fieldsOf(c.want...)
			if c.want == nil {
				want = fieldsOf(c.header...)
			}
			got := s.KeptHeaders(header, s.Keys)
			if diff := cmp.Diff(append([]signature.Field{}, want...), got); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if !slices.Equal(header, fieldsOf(c.header...)) {
				t.Error("the request's headers were changed")
			}
		})
	}
}

func TestNeverKept(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"x-sidehook-source":       "is set by sidehook itself",
		"x_sidehook-event_id":     "is set by sidehook itself",
		"sidehook-delivery":       "is set by sidehook itself",
		"connection":              "is about one connection, and is written anew",
		"proxy-authorization":     "is about one connection, and is written anew",
		"transfer_encoding":       "is about one connection, and is written anew",
		"content-length":          "is about one connection, and is written anew",
		"x-github-encoded-secret": "bears the source's secret",
		"cookie":                  "",
		"authorization":           "",
		"x-envoy-original-path":   "",
		"x-api-key":               "",
	} {
		if got := NeverKept(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
}

// No header in which a row of the table has a secret is kept, and every other one that a row reads is, but for Authorization.
func TestKeptHeadersOfEveryProvider(t *testing.T) {
	t.Parallel()
	for _, p := range signature.Providers() {
		for _, spec := range p.Specs {
			name := strings.ToLower(spec.Signature.Header)
			if name == "" {
				continue
			}
			bearer := spec.Algorithm == signature.Token || spec.Algorithm == signature.Basic
			s := &Source{Name: p.Name, Verifier: p.Verifier()}
			kept := len(s.KeptHeaders([]signature.Field{{Name: name, Value: "x"}}, nil)) == 1
			if want := !bearer && name != "authorization"; kept != want {
				t.Errorf("%s: %s kept: %t, want %t", p.Name, name, kept, want)
			}
			if spec.ID != nil && spec.ID.Header != "" {
				if got := s.KeptHeaders([]signature.Field{{Name: strings.ToLower(spec.ID.Header), Value: "x"}}, nil); len(got) != 1 {
					t.Errorf("%s: the id in %s is not kept", p.Name, spec.ID.Header)
				}
			}
		}
	}
}

func BenchmarkKeptHeaders(b *testing.B) {
	s := keptSource(b, "github", "a-secret-of-32-bytes-0123456789a")
	header := fieldsOf("accept: */*", "content-type: application/json", "user-agent: GitHub-Hookshot/044aadd", "x-github-delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958", "x-github-event: push",
		"x-github-hook-id: 292430182", "x-github-hook-installation-target-id: 79929171", "x-github-hook-installation-target-type: repository", "x-hub-signature: sha1=7d38cdd689735b008b3c702edd92eea23791c5f6",
		"x-hub-signature-256: sha256=d57c68ca6f92289e6987922ff26938930f6e66a2d161ef06abdf1859230aa23c", "x-forwarded-for: 140.82.115.1", "x-forwarded-proto: https", "x-request-id: 2c9a8c3e-7c7b-4b6c-9b62-7f0f9ad6a3c1")
	b.ReportAllocs()
	for b.Loop() {
		_ = s.KeptHeaders(header, s.Keys)
	}
}
