package extauthz

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/internal/secret"
	"github.com/sidehook/sidehook/internal/signature"
)

func TestDeliveryRequest(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 4, 0, 0, 0, time.UTC)
	stored := fieldsOf(":method: PUT", ":path: //hook%2f?a=b&c", ":authority: Api.Example:8443", "content-type: application/json", "x-a: 2", "x-a: 1", "stripe-signature: t=1,v1=00")
	tail := func(lines ...string) []signature.Field {
		return append(fieldsOf("content-type: application/json", "x-a: 2", "x-a: 1", "stripe-signature: t=1,v1=00", "x-sidehook-source: payments"), fieldsOf(lines...)...)
	}
	for _, c := range []struct {
		name    string
		path    string // of delivery
		headers []signature.Field
		info    DeliveryInfo
		want    DeliveryRequest
		err     error
	}{
		{
			name: "as it came", info: DeliveryInfo{ID: "evt_1", Type: "invoice.paid", Attempt: 1},
			want: DeliveryRequest{Method: "PUT", Target: "//hook%2f?a=b&c", Host: "Api.Example:8443",
				Header: tail("x-sidehook-event-id: evt_1", "x-sidehook-event-type: invoice.paid", "x-sidehook-attempt: 1", "sidehook-delivery: 1")},
		},
		{
			name: "a redelivery of a tenant's", info: DeliveryInfo{ID: "evt_1", Tenant: "acme", Attempt: 12, Redelivered: true},
			want: DeliveryRequest{Method: "PUT", Target: "//hook%2f?a=b&c", Host: "Api.Example:8443",
				Header: tail("x-sidehook-event-id: evt_1", "x-sidehook-tenant: acme", "x-sidehook-attempt: 12", "x-sidehook-redelivered: true", "sidehook-delivery: 1")},
		},
		{
			// As in PASS: what is no printable ASCII is encoded. The id is stored as it is shown.
			name: "a type of other characters", info: DeliveryInfo{ID: "caf%C3%A9", Type: "café\r\nx-a: 1", Attempt: 1},
			want: DeliveryRequest{Method: "PUT", Target: "//hook%2f?a=b&c", Host: "Api.Example:8443",
				Header: tail("x-sidehook-event-id: caf%C3%A9", "x-sidehook-event-type: caf%C3%A9%0D%0Ax-a: 1", "x-sidehook-attempt: 1", "sidehook-delivery: 1")},
		},
		{
			name: "another path", path: "/app/in", info: DeliveryInfo{Attempt: 1},
			want: DeliveryRequest{Method: "PUT", Target: "/app/in?a=b&c", Host: "Api.Example:8443", Header: tail("x-sidehook-attempt: 1", "sidehook-delivery: 1")},
		},
		{
			name: "another path, no query", path: "/app/in", headers: fieldsOf(":method: GET", ":path: /x"), info: DeliveryInfo{Attempt: 1},
			want: DeliveryRequest{Method: "GET", Target: "/app/in", Header: fieldsOf("x-sidehook-source: payments", "x-sidehook-attempt: 1", "sidehook-delivery: 1")},
		},
		{
			name: "another path, an empty query", path: "/app/in", headers: fieldsOf(":method: GET", ":path: /x?"), info: DeliveryInfo{Attempt: 1},
			want: DeliveryRequest{Method: "GET", Target: "/app/in?", Header: fieldsOf("x-sidehook-source: payments", "x-sidehook-attempt: 1", "sidehook-delivery: 1")},
		},
		{
			// What was stored by other rules does not speak for us, nor frame the request.
			name:    "headers that nobody stores now",
			headers: fieldsOf(":method: GET", ":path: /x", ":scheme: https", "x-sidehook-event-id: forged", "sidehook-delivery: 0", "content-length: 9", "connection: x-a", "x-a: 1"),
			info:    DeliveryInfo{Attempt: 1},
			want:    DeliveryRequest{Method: "GET", Target: "/x", Header: fieldsOf("x-a: 1", "x-sidehook-source: payments", "x-sidehook-attempt: 1", "sidehook-delivery: 1")},
		},
		{name: "no method", headers: fieldsOf(":path: /x"), err: errNoMethod},
		{name: "no path", headers: fieldsOf(":method: GET"), err: errNoTarget},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := keptSource(t, "stripe", "whsec_a-secret-of-some-length-0123")
			s.DeliveryPath = c.path
			headers := c.headers
			if headers == nil {
				headers = slices.Clone(stored)
			}
			before := slices.Clone(headers)
			got, err := s.DeliveryRequest(headers, []byte("{}"), c.info, now)
			if !errors.Is(err, c.err) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if !slices.Equal(headers, before) {
				t.Error("the stored headers were changed")
			}
		})
	}
}

// resignSecrets are secrets of every kind that can sign.
func resignSecrets(t *testing.T) []string {
	t.Helper()
	private := ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.StdEncoding.EncodeToString
	list := []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "user:a password of some length", hex.EncodeToString([]byte("a secret that is written in hex")),
		hex.EncodeToString(private), b64(private)}
	for _, k := range []any{private, ec, rs} {
		der, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b64(der), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	}
	return list
}

// resignable says by a row's own words whether what comes under it can be signed anew.
func resignable(p *signature.Provider) bool {
	able := false
	for _, s := range p.Specs {
		bearer := s.Algorithm == signature.Token || s.Algorithm == signature.Basic
		header := s.Signature.Header != "" || s.Algorithm == signature.Basic
		switch {
		case s.Algorithm == signature.MTLS, !header && !bearer, s.Headers != nil && s.Headers.SignatureKey != "":
			return false
		case s.Timestamp != nil && s.Timestamp.Header == "" && s.Timestamp.SignatureKey == "" && s.Timestamp.SignatureIndex == 0:
			return false
		}
		able = able || header
	}
	return able
}

var signedHeader = regexp.MustCompile(`\{header:([^}]+)\}`)

// TestResignedDelivery: an event of every sender that can be signed with the secret at hand is stored as it came, and days later the
// app gets it so that it verifies as then: body and id the same, nothing left of the older signatures.
func TestResignedDelivery(t *testing.T) {
	t.Parallel()
	const origin = "https://hooks.example"
	received := time.Date(2026, 12, 1, 4, 0, 0, 0, time.UTC)
	later := received.Add(9*24*time.Hour + 7*time.Second)
	secrets := resignSecrets(t)
	for _, p := range signature.Providers() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			v := p.Verifier()
			var keys []signature.Key
			for _, secret := range secrets {
				if k, err := v.ParseKey([]byte(secret)); err == nil && v.CanSign([]signature.Key{k}) == nil {
					keys = []signature.Key{k}
					break
				}
			}
			if can := keys != nil; can != resignable(p) {
				t.Fatalf("can be signed: %t, want %t", can, !can)
			}
			if keys == nil {
				return
			}
			m := signature.Message{Method: "POST", Target: "/hook?x=1", Body: []byte(`{"id":"evt_1","event_id":"evt_1","event":{"id":"evt_1"},"source":"a"}`)}
			m.Header = fieldsOf("content-type: application/json", "cookie: a=1", "x-noise: 1")
			var stale []signature.Field // what the row would take off, and nobody signs now
			for _, s := range p.Specs {
				if strings.Contains(s.Signed, "{form:sorted}") && s.BodyHash == nil {
					m.Header, m.Body = fieldsOf("content-type: application/x-www-form-urlencoded"), []byte("b=2&a=1")
				}
				if strings.Contains(s.Signed, "{form:payload}") {
					m.Header, m.Body = fieldsOf("content-type: application/x-www-form-urlencoded"), []byte("payload=%7B%22id%22%3A1%7D")
				}
				if s.BodyHash != nil && s.BodyHash.Query != "" {
					sum := sha256.Sum256(m.Body)
					m.Target += "&" + s.BodyHash.Query + "=" + hex.EncodeToString(sum[:])
				}
				for _, name := range append(slices.Clone(s.Signature.Also), s.Signature.Others...) {
					if !slices.ContainsFunc(p.Specs, func(o signature.Spec) bool { return strings.EqualFold(o.Signature.Header, name) }) {
						stale = append(stale, signature.Field{Name: strings.ToLower(name), Value: "stale"})
					}
				}
			}
			m.URL = origin + m.Target
			for _, header := range signedHeader.FindAllStringSubmatch(p.Specs[0].Signed, -1) {
				m.Header = append(m.Header, signature.Field{Name: strings.ToLower(header[1]), Value: "id_1"})
			}
			for _, q := range p.Specs[0].Require {
				if q.Value == "" {
					m.Header = append(m.Header, signature.Field{Name: strings.ToLower(q.Header), Value: "1"})
				}
			}
			if h := p.Specs[0].Headers; h != nil {
				for _, name := range h.Require {
					own := strings.EqualFold(name, h.Header) || p.Specs[0].Timestamp != nil && strings.EqualFold(name, p.Specs[0].Timestamp.Header)
					if !own {
						m.Header = append(m.Header, signature.Field{Name: strings.ToLower(name), Value: "1"})
					}
				}
			}
			fields, err := v.Sign(&m, keys[0], "id_1", received)
			if err != nil {
				t.Fatal(err)
			}
			m.Header = append(m.Header, fields...)
			first := v.Verify(&m, keys, received, p.Tolerance.Std())
			if first.Reason != signature.ReasonOK {
				t.Fatalf("as it came: %s", first.Reason)
			}

			s := &Source{Name: "in", Verifier: v, Keys: keys, Mode: ModeStore, Resign: true, PublicURL: origin + "/"}
			kept := append(fieldsOf(":method: POST", ":path: "+m.Target, ":authority: hooks.example"), s.KeptHeaders(append(m.Header, stale...), keys)...)
			for _, f := range kept {
				if keys[0].Within(f.Value) {
					t.Errorf("the secret is kept in %s", f.Name)
				}
			}
			body := slices.Clone(m.Body)
			r, err := s.DeliveryRequest(kept, m.Body, DeliveryInfo{ID: "id_1", Attempt: 3}, later)
			if err != nil {
				t.Fatal(err)
			}
			got := signature.Message{Method: r.Method, Target: r.Target, URL: origin + r.Target, Header: r.Header, Body: m.Body}
			verdict := v.Verify(&got, keys, later, time.Second)
			if verdict.Reason != signature.ReasonOK || verdict.ID != first.ID || verdict.IDSigned != first.IDSigned || verdict.ContentHash != first.ContentHash {
				t.Errorf("days later: %s, id %q; it came with %q", verdict.Reason, verdict.ID, first.ID)
			}
			if !slices.Equal(body, m.Body) || r.Target != m.Target {
				t.Error("the body or the target was changed")
			}
			seen := map[string]bool{}
			for _, f := range r.Header {
				if f.Value == "stale" || v.Header(f.Name).Signature && seen[f.Name] {
					t.Errorf("%s: %s is left of what came", f.Name, f.Value)
				}
				seen[f.Name] = true
				if bears := keys[0].Within(f.Value); bears != slices.Contains(r.Secrets, f) {
					t.Errorf("%s bears the secret: %t, and is said to: %t", f.Name, bears, !bears)
				}
			}
			if p.Specs[0].Timestamp != nil { // then a signature of then would be refused
				for _, f := range fields {
					if v.Header(f.Name).Signature && slices.Contains(r.Header, f) {
						t.Errorf("%s is the one that came", f.Name)
					}
				}
			}
		})
	}
}

// What is signed is what the app gets: another path than the sender's, where the delivery has one.
func TestResignSignsTheAppsPath(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 4, 0, 0, 0, time.UTC)
	s := keptSource(t, "trello", "a-secret-of-32-bytes-0123456789a")
	s.Resign, s.PublicURL, s.DeliveryPath = true, "https://hooks.example/base/#frag", "/app/in"
	r, err := s.DeliveryRequest(fieldsOf(":method: POST", ":path: /hook?a=b", "x-trello-webhook: old"), []byte("{}"), DeliveryInfo{Attempt: 1}, now)
	if err != nil {
		t.Fatal(err)
	}
	m := signature.Message{Method: "POST", Target: "/app/in?a=b", URL: "https://hooks.example/base/app/in?a=b", Header: r.Header, Body: []byte("{}")}
	if v := s.Verifier.Verify(&m, s.Keys, now, time.Second); v.Reason != signature.ReasonOK || r.Target != m.Target {
		t.Errorf("%s at %s", v.Reason, r.Target)
	}
}

// The secret of a tenant is that of its file, as it is now.
func TestResignOfATenant(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 4, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	folder := secret.NewFolder(dir)
	s := keptSource(t, "github")
	s.Resign = true
	s.Tenants = &TenantSecrets{Folder: folder, Parse: func(x secret.Secret) (signature.Key, error) { return s.Verifier.ParseKey(x.Bytes()) }}
	stored := fieldsOf(":method: POST", ":path: /hooks/acme", "x-hub-signature-256: sha256=00")
	deliver := func(tenant string) (DeliveryRequest, error) {
		return s.DeliveryRequest(stored, []byte("{}"), DeliveryInfo{Tenant: tenant, Attempt: 1}, now)
	}
	for _, written := range []string{"the first secret of acme", "the second secret of acme"} {
		if err := os.WriteFile(filepath.Join(dir, "acme"), []byte(written), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := deliver("acme")
		if err != nil {
			t.Fatal(err)
		}
		k, err := s.Verifier.ParseKey([]byte(written))
		if err != nil {
			t.Fatal(err)
		}
		m := signature.Message{Method: "POST", Target: r.Target, Header: r.Header, Body: []byte("{}")}
		if v := s.Verifier.Verify(&m, []signature.Key{k}, now, time.Second); v.Reason != signature.ReasonOK {
			t.Errorf("%s: %s", written, v.Reason)
		}
	}
	for _, tenant := range []string{"", "globex", "..", "acme.next", "acme/../acme"} {
		if _, err := deliver(tenant); !errors.Is(err, errNoTenantKey) {
			t.Errorf("%q: %v", tenant, err)
		}
	}
}

// A secret that is out signs nothing, and one that cannot sign is told from it.
func TestResignWithoutAKey(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 4, 0, 0, 0, time.UTC)
	s := keptSource(t, "github", "a-secret-of-32-bytes-0123456789a")
	s.Resign = true
	s.Keys[0].Until = now
	_, err := s.DeliveryRequest(fieldsOf(":method: POST", ":path: /"), nil, DeliveryInfo{Attempt: 1}, now)
	if !errors.Is(err, signature.ErrCannotSign) {
		t.Errorf("%v", err)
	}
	if text := fmt.Sprint(err); strings.Contains(text, "a-secret") {
		t.Errorf("the error tells the secret: %s", text)
	}
}

func TestSourceOrder(t *testing.T) {
	t.Parallel()
	path, err := signature.ParsePath("repository.full_name")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("k", 257)
	for _, c := range []struct {
		name         string
		by           OrderBy
		header, body string
		want         string
	}{
		{"GitHub's JSON in a form", OrderBy{JSON: path}, "a", "payload=%7B%22repository%22%3A%7B%22full_name%22%3A%22a%2Fb%22%7D%7D", "a/b"},
		{"no order", OrderBy{}, "a", `{"repository":{"full_name":"a/b"}}`, ""},
		{"a header", OrderBy{Header: "x-key"}, "a", "", "a"},
		{"a header that is not there", OrderBy{Header: "x-other"}, "a", "", ""},
		{"JSON", OrderBy{JSON: path}, "a", `{"repository":{"full_name":"a/b"}}`, "a/b"},
		{"JSON that has none", OrderBy{JSON: path}, "a", `{"repository":{}}`, ""},
		{"no JSON", OrderBy{JSON: path}, "a", "a=b", ""},
		{"a long key", OrderBy{Header: "x-key"}, long, "", fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(long)))},
	} {
		contentType := "application/json"
		if strings.HasPrefix(c.body, "payload=") {
			contentType = "application/x-www-form-urlencoded"
		}
		s := keptSource(t, "github")
		s.OrderBy = c.by
		req := &request{header: fieldsOf("x-key: "+c.header, "content-type: "+contentType), body: []byte(c.body)}
		if got := s.order(req); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
