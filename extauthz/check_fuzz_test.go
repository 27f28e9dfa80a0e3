package extauthz

import (
	"crypto/hmac"
	"encoding/base64"
	"strings"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/proto"
)

// FuzzCheck sends any message to a gate with one signed source and one open route: it never panics, answers alike
// whoever decodes the message, and lets through only what is open or signed, by a judgement of the test's own.
func FuzzCheck(f *testing.F) {
	for _, h := range []hook{
		{}, {secret: "guess"}, {target: "/api"}, {target: "//hooks/payments"}, {source: "payments", target: "/x"}, {source: "gone"},
		{change: noBody}, {change: cut}, {headers: [][2]string{{"x_sidehook_source", "forged"}, {"upgrade", "x"}}},
		{drop: []string{"content-length", "webhook-id"}}, {body: "\xff"},
	} {
		for _, raw := range []bool{true, false} {
			msg, err := proto.Marshal(h.check(raw))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(msg)
		}
	}
	g := newGate(f, mustSources(f, []*Source{signedSource(f, "payments")}, Match{PathPrefix: "/api"}))
	f.Fuzz(func(t *testing.T, msg []byte) {
		var in authv3.CheckRequest
		var lean request
		err := proto.Unmarshal(msg, &in)
		if leanErr := lean.decode(msg); err == nil && leanErr != nil {
			t.Fatalf("the lean decoder refuses what the generated one takes: %v", leanErr)
		}
		if err != nil {
			return
		}
		var full request
		full.reset()
		full.fill(t.Context(), &in)
		for _, req := range []*request{&full, &lean} {
			d := g.check(t.Context(), req)
			if d.reason == ReasonInternal {
				t.Fatalf("a fault of ours: %v", d.err)
			}
			if !d.pass() {
				if d.status < 200 || d.status > 599 || d.ref != "" {
					t.Errorf("answer of status %d, reference %q", d.status, d.ref)
				}
				continue
			}
			open := d.reason == ReasonOpen && req.source() == "" && strings.HasPrefix(req.path(), "/api") && d.ref == "" && d.set == headerValues{}
			signed := d.reason == ReasonPassed && d.ref != "" && signedByTest(req)
			if !open && !signed {
				t.Errorf("passed as %v: %+v", d.reason, req)
			}
			for _, name := range req.reserved {
				kept := true
				for _, gone := range d.remove {
					kept = kept && gone != name
				}
				if kept && name != headerSource && name != headerEventID && name != headerEventType {
					t.Errorf("%q reaches the app", name)
				}
			}
		}
	})
}

// signedByTest judges a message of testScheme by the standard library alone.
func signedByTest(req *request) bool {
	id, at := req.get("webhook-id"), req.get("webhook-timestamp")
	for sig := range strings.SplitSeq(req.get("webhook-signature"), " ") {
		text, ok := strings.CutPrefix(sig, "v1,")
		got, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil {
			continue
		}
		for _, secret := range []string{testSecret, otherSecret} {
			if hmac.Equal(got, macOf(secret, id+"."+at+"."+string(req.body))) {
				return true
			}
		}
	}
	return false
}
