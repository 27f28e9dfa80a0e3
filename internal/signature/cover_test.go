package signature

import "testing"

func TestCovers(t *testing.T) {
	t.Parallel()
	hmac := func(signed string) Spec {
		return Spec{Algorithm: HMACSHA256, Signed: signed, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "S"}},
			ID: &IDSpec{ValueSpec: ValueSpec{Header: "X-Id"}}}
	}
	token := Spec{Algorithm: Token, Signature: SignatureSpec{ValueSpec: ValueSpec{Header: "S"}}}
	hashed := hmac("{header:x-digest}.{header:x-tenant}")
	hashed.BodyHash = &BodyHashSpec{ValueSpec: ValueSpec{Header: "X-Digest"}}
	for _, tt := range []struct {
		name         string
		specs        []Spec
		body, header bool // whole, and X-Tenant
	}{
		{"body", []Spec{hmac("{body}")}, true, false},
		{"hash of it", []Spec{hmac("{sha256:body}")}, true, false},
		{"hash in a header", []Spec{hashed}, true, true},
		{"header", []Spec{hmac("{header:X-Tenant}.{body}")}, true, true},
		{"header alone", []Spec{hmac("{header:x-tenant}")}, false, true},
		{"field", []Spec{hmac("{json:account}")}, false, false},
		{"header where there is one", []Spec{hmac("{if header:x-tenant}{header:x-tenant}{end}{body}")}, true, false},
		{"header beside a condition", []Spec{hmac("{if header:x-a}{header:x-a}{end}{header:x-tenant}{body}")}, true, true},
		{"one of two", []Spec{hmac("{header:x-tenant}.{body}"), hmac("{header:x-a}")}, false, false},
		// A body that is no form is not signed at all there.
		{"form", []Spec{hmac("{url}{form:sorted}")}, false, false},
		{"body where there is a header", []Spec{hmac("{path}{if header:x-a}{body}{end}")}, false, false},
		{"token", []Spec{token}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v, err := Compile(tt.specs...)
			if err != nil {
				t.Fatal(err)
			}
			if v.CoversBody() != tt.body || v.CoversHeader("x-tenant") != tt.header {
				t.Errorf("covers body %v, header %v; want %v, %v", v.CoversBody(), v.CoversHeader("x-tenant"), tt.body, tt.header)
			}
		})
	}
	v, err := Compile(hmac("{id}.{body}"))
	if err != nil {
		t.Fatal(err)
	}
	if !v.CoversHeader("x-id") {
		t.Error("the header with a signed id is not covered")
	}
	for _, name := range []string{"sns", "gitlab-token"} {
		if p, ok := ProviderByName(name); ok && (p.Verifier().CoversBody() || p.Verifier().CoversHeader("x-tenant")) {
			t.Errorf("%s covers all", name)
		}
	}
}
