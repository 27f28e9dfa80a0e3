package signature

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
	"time"
)

// percent writes a certificate as Envoy does: every byte that is not safe in a URL as %XX.
func percent(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}

// TestMTLS: who sent is told by the proxy that ended the connection, and by the certificate that it passes on.
func TestMTLS(t *testing.T) {
	t.Parallel()
	uri, err := url.Parse("spiffe://bank.example/webhooks")
	if err != nil {
		t.Fatal(err)
	}
	client := x509.Certificate{URIs: []*url.URL{uri}, DNSNames: []string{"hooks.bank.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	_, leaf, authority := certified(t, "hooks", client)
	_, foreign, foreignAuthority := certified(t, "hooks", client)
	server := client
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	old := client
	old.NotBefore, old.NotAfter = receivedAt.Add(-2*time.Hour), receivedAt.Add(-time.Hour)
	_, serverLeaf, serverAuthority := certified(t, "hooks", server)
	_, oldLeaf, oldAuthority := certified(t, "hooks", old)
	v := compileTest(t, Spec{Algorithm: MTLS, Subjects: []string{"spiffe://bank.example/webhooks", "CN=hooks"}, ID: &IDSpec{ValueSpec: ValueSpec{JSON: "id"}}})
	if !v.WantsPeer() {
		t.Error("the verifier asks for no certificate")
	}
	for _, c := range []struct {
		name, principal, certificate string
		authority                    string // empty: the proxy's word counts
		want                         Reason
	}{
		{"the proxy's word", "spiffe://bank.example/webhooks", "", "", ReasonOK},
		{"of another", "spiffe://bank.example/other", "", "", ReasonBadSignature},
		{"only the beginning", "spiffe://bank.example/webhooks/more", "", "", ReasonBadSignature},
		{"nobody", "", "", "", ReasonMissingSignature},
		{"the certificate's own names", "", percent(leaf), "", ReasonOK},
		{"what the certificate says goes before", "spiffe://bank.example/webhooks", percent(strings.Replace(leaf, "CERTIFICATE", "X", 2)), "", ReasonMalformedSignature},
		{"of the authority", "spiffe://bank.example/webhooks", percent(leaf), authority, ReasonOK},
		{"of another authority", "spiffe://bank.example/webhooks", percent(foreign), authority, ReasonBadSignature},
		{"no certificate to check", "spiffe://bank.example/webhooks", "", authority, ReasonMalformedSignature},
		{"two authorities", "", percent(leaf), foreignAuthority + authority, ReasonOK},
		{"for servers", "", percent(serverLeaf), serverAuthority, ReasonBadSignature},
		{"past its time", "", percent(oldLeaf), oldAuthority, ReasonBadSignature},
		{"escapes that cannot be read", "", "%zz", "", ReasonMalformedSignature},
		{"too long", "", strings.Repeat("A", maxPeerBytes+1), "", ReasonMalformedSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var keys []Key
			if c.authority != "" {
				keys = parseKeys(t, v, c.authority)
			}
			// A header says nothing: whoever is not the proxy could have written it.
			m := Message{Body: []byte(`{"id":"a"}`), Peer: Peer{Principal: c.principal, Certificate: c.certificate},
				Header: headers("x-forwarded-client-cert: URI=spiffe://bank.example/webhooks")}
			got := v.Verify(&m, keys, receivedAt, time.Minute)
			if wantReason(t, got, c.want); c.want == ReasonOK && (got.ID != "a" || got.IDSigned) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestRequirePeer: a certificate beside a signature, both of which have to hold.
func TestRequirePeer(t *testing.T) {
	t.Parallel()
	_, leaf, authority := certified(t, "hooks", x509.Certificate{DNSNames: []string{"hooks.bank.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	plain := compileTest(t, Spec{Algorithm: HMACSHA256, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "s"}}})
	v, err := plain.RequirePeer([]string{"hooks.bank.example"}, []byte(authority))
	if err != nil {
		t.Fatal(err)
	}
	keys := parseKeys(t, v, testSecret)
	m := signed(t, v, Message{Body: []byte("a")}, keys[0], "", receivedAt)
	wantReason(t, v.Verify(&m, keys, receivedAt, time.Minute), ReasonMissingSignature)
	m.Peer.Certificate = percent(leaf)
	wantReason(t, v.Verify(&m, keys, receivedAt, time.Minute), ReasonOK)
	wantReason(t, plain.Verify(&m, keys, receivedAt, time.Minute), ReasonOK)
	m.Body = []byte("b")
	wantReason(t, v.Verify(&m, keys, receivedAt, time.Minute), ReasonBadSignature)
	for name, subjects := range map[string][]string{"none": nil, "an empty one": {""}, "any": {"*.bank.example"}, "a blank": {"a "}} {
		if _, err := plain.RequirePeer(subjects, nil); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := plain.RequirePeer([]string{"a"}, []byte("no PEM")); err == nil {
		t.Error("an authority that is none is taken")
	}
}
