package extauthz

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sidehook/sidehook/internal/signature"
)

// checkOf is a Check as Envoy 1.40 sends it, in the raw shape of headers or in the merged one.
func checkOf(raw bool, body string) *authv3.CheckRequest {
	headers := [][2]string{
		{":authority", "127.0.0.1:10080"}, {":path", "/webhooks/stripe?x=1"}, {":method", "POST"}, {":scheme", "http"},
		{"user-agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)"}, {"content-length", "1024"}, {"content-type", "application/json"},
		{"stripe-signature", "t=1614265330,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd"},
		{"accept-encoding", "gzip"}, {"x-sidehook-source", "forged"}, {"x-forwarded-proto", "https"},
		{"x-request-id", "b6185384-baee-4259-970a-45950566d54c"}, {"x-envoy-auth-partial-body", "false"},
	}
	h := &authv3.AttributeContext_HttpRequest{
		Id: "15098263211293837483", Method: "POST", Path: "/webhooks/stripe?x=1", Host: "127.0.0.1:10080", Scheme: "http",
		Size: int64(len(body)), Protocol: "HTTP/1.1", RawBody: []byte(body),
	}
	if raw {
		h.HeaderMap = &corev3.HeaderMap{}
		for _, f := range headers {
			h.HeaderMap.Headers = append(h.HeaderMap.Headers, &corev3.HeaderValue{Key: f[0], RawValue: []byte(f[1])})
		}
	} else {
		h.Headers = make(map[string]string)
		for _, f := range headers {
			h.Headers[f[0]] = f[1]
		}
	}
	peer := func(port uint32) *authv3.AttributeContext_Peer {
		return &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}}}
	}
	client := peer(40794)
	client.Principal, client.Certificate = "spiffe://bank.example/hooks", "-----BEGIN%20CERTIFICATE-----%0A"
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: client, Destination: peer(10080),
		Request:              &authv3.AttributeContext_Request{Time: timestamppb.New(time.Unix(1614265330, 5000)), Http: h},
		ContextExtensions:    map[string]string{"source": "payments", "other": "x"},
		MetadataContext:      &corev3.Metadata{},
		RouteMetadataContext: &corev3.Metadata{},
	}}
}

// generatedRequest reads msg by the generated code.
func generatedRequest(msg []byte) (*request, error) {
	var m authv3.CheckRequest
	if err := proto.Unmarshal(msg, &m); err != nil {
		return nil, err
	}
	var r request
	r.reset()
	r.fill(context.Background(), &m)
	return &r, nil
}

// diffRequests compares what two decoders made of one message. Headers of different names may come in any order: the
// merged shape is a map.
func diffRequests(got, want *request) string {
	sorted := func(r *request) request {
		c := *r
		c.header = slices.Clone(r.header)
		slices.SortStableFunc(c.header, func(a, b signature.Field) int { return strings.Compare(a.Name, b.Name) })
		c.reserved = slices.Sorted(slices.Values(r.reserved))
		return c
	}
	return cmp.Diff(sorted(got), sorted(want), cmp.AllowUnexported(request{}), cmpopts.EquateEmpty())
}

func TestWireCheckCaptured(t *testing.T) {
	t.Parallel()
	msg, err := os.ReadFile("testdata/check-envoy-1.40.bin")
	if err != nil {
		t.Fatal(err)
	}
	var got request
	if err := got.decode(slices.Clone(msg)); err != nil {
		t.Fatal(err)
	}
	if got.method != "POST" || got.target != "/hooks/github/x" || got.host != "127.0.0.1:25901" || got.scheme != "http" || got.id == "" ||
		got.size != 1024 || string(got.body) != strings.Repeat("{}", 512) || got.text || got.partial || !got.buffered || got.contentLength != 1024 {
		t.Errorf("request %+v", got)
	}
	if sig := got.get("stripe-signature"); sig != "t=1614265330,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd" {
		t.Errorf("stripe-signature %q", sig)
	}
	want, err := generatedRequest(msg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := diffRequests(&got, want); diff != "" {
		t.Errorf("request (-lean +generated):\n%s", diff)
	}
	// It is the usual shape: the generated code must not be needed.
	if err := new(request).scan(msg); err != nil {
		t.Errorf("scan: %v", err)
	}
}

// httpPart wraps fields of an HttpRequest up to a CheckRequest.
func httpPart(parts ...[]byte) []byte { return part(1, part(4, part(2, parts...))) }

// wireChecks are messages, hostile ones included, by what is odd about them.
func wireChecks(t testing.TB) map[string][]byte {
	header := func(name, value string) []byte { return part(1, text(1, name), text(3, value)) }
	merged := func(name, value string) []byte { return part(3, text(1, name), text(2, value)) }
	many := make([][]byte, 0, 70)
	for i := range 70 {
		many = append(many, merged("x-"+strings.Repeat("a", i), "v"))
	}
	whole := mustMarshal(t, checkOf(true, "{}"))
	return map[string][]byte{
		"nothing":                        {},
		"raw shape":                      whole,
		"merged shape":                   mustMarshal(t, checkOf(false, "{}")),
		"no body":                        mustMarshal(t, checkOf(true, "")),
		"binary body":                    mustMarshal(t, checkOf(true, "\x00\xff\xfe")),
		"twice over":                     slices.Concat(whole, whole),
		"attributes in two parts":        slices.Concat(part(1, part(4, part(2, text(2, "POST")))), part(1, part(4, part(2, text(4, "/x"))))),
		"request in two parts":           part(1, part(4, part(2, text(2, "POST"))), part(4, part(2, text(4, "/x")))),
		"http in two parts":              part(1, part(4, part(2, text(2, "POST")), part(2, text(4, "/x")))),
		"http in two parts, one empty":   part(1, part(4, part(2), part(2, text(4, "/x")))),
		"header map in two parts":        httpPart(part(13, header("a", "1")), part(13, header("b", "2"))),
		"empty header map, merged":       httpPart(part(13), merged("a", "1")),
		"both shapes":                    httpPart(merged("a", "1"), part(13, header("b", "2"))),
		"both shapes, the other order":   httpPart(part(13, header("b", "2")), merged("a", "1")),
		"merged header twice":            httpPart(merged("a", "1"), merged("b", "3"), merged("a", "2")),
		"merged header without a value":  httpPart(part(3, text(1, "a"))),
		"merged header without a name":   httpPart(part(3, text(2, "v"))),
		"name twice in a merged header":  httpPart(part(3, text(1, "a"), text(1, "b"), text(2, "v"), text(2, "w"))),
		"many merged headers":            httpPart(many...),
		"many merged headers, one twice": httpPart(append(many, merged("x-a", "again"))...),
		"value and raw value":            httpPart(part(13, part(1, text(1, "a"), text(2, "text"), text(3, "raw")))),
		"only value":                     httpPart(part(13, part(1, text(1, "a"), text(2, "text")))),
		"raw value is not UTF-8":         httpPart(part(13, header("a", "\xff"))),
		"header without anything":        httpPart(part(13, part(1))),
		"same raw header twice":          httpPart(part(13, header("a", "1"), header("a", "2"))),
		"two lengths":                    httpPart(part(13, header("content-length", "1"), header("content-length", "2"))),
		"body as text":                   httpPart(text(11, "{}")),
		"body as text and bytes":         httpPart(text(11, "{}"), text(12, "{}")),
		"body as text, taken back":       httpPart(text(11, "{}"), text(11, "")),
		"body twice":                     httpPart(text(12, "first"), text(12, "second")),
		"size unknown":                   httpPart(number(9, 1<<64-1)),
		"size as text":                   httpPart(text(9, "7")),
		"method as number":               httpPart(number(2, 7)),
		"source twice":                   part(1, part(10, text(1, "source"), text(2, "a")), part(10, text(1, "source"), text(2, "b"))),
		"source without a name":          part(1, part(10, text(1, "source"))),
		"unknown fields":                 slices.Concat(number(99, 7), text(98, "x"), part(1, number(77, 1)), protowire.AppendFixed64(protowire.AppendTag(nil, 97, protowire.Fixed64Type), 1)),
		"a group":                        slices.Concat(protowire.AppendTag(nil, 50, protowire.StartGroupType), number(1, 1), protowire.AppendTag(nil, 50, protowire.EndGroupType)),
		"path is not UTF-8":              httpPart(text(4, "/\xff")),
		"header name is not UTF-8":       httpPart(part(13, header("\xff", "v"))),
		"merged value is not UTF-8":      httpPart(merged("a", "\xff")),
		"source is not UTF-8":            part(1, part(10, text(1, "source"), text(2, "\xff"))),
		"cut":                            whole[:len(whole)-3],
		"group that does not end":        protowire.AppendTag(nil, 50, protowire.StartGroupType),
		"group that was not begun":       protowire.AppendTag(nil, 50, protowire.EndGroupType),
		"field zero":                     {0x02, 0x00},
		"endless number":                 {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"length past the end":            {0x0a, 0x7f, 0x01},
	}
}

// Both decoders understand the same; where the generated one refuses, only what we never look at may pass.
func TestWireCheckAgrees(t *testing.T) {
	t.Parallel()
	for name, msg := range wireChecks(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareChecks(t, msg)
		})
	}
}

func TestWireCheckRefuses(t *testing.T) {
	t.Parallel()
	rows := wireChecks(t)
	for _, name := range []string{
		"path is not UTF-8", "header name is not UTF-8", "merged value is not UTF-8", "source is not UTF-8", "cut",
		"group that does not end", "group that was not begun", "field zero", "endless number", "length past the end",
	} {
		if err := new(request).decode(rows[name]); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func compareChecks(t *testing.T, msg []byte) {
	t.Helper()
	var got request
	err := got.decode(slices.Clone(msg))
	want, wantErr := generatedRequest(msg)
	if wantErr != nil {
		return // fields that nobody reads may be worse than the generated code bears; see TestWireCheckRefuses
	}
	if err != nil {
		t.Fatalf("refused: %v; the generated code takes it", err)
	}
	if diff := diffRequests(&got, want); diff != "" {
		t.Errorf("request (-lean +generated):\n%s", diff)
	}
}

func FuzzWireCheck(f *testing.F) {
	for _, msg := range wireChecks(f) {
		f.Add(msg)
	}
	f.Fuzz(compareChecks)
}

// A request that is used again for another message keeps nothing of the first.
func TestWireCheckReuse(t *testing.T) {
	t.Parallel()
	var r request
	if err := r.decode(mustMarshal(t, checkOf(true, "a body"))); err != nil {
		t.Fatal(err)
	}
	if err := r.decode(nil); err != nil {
		t.Fatal(err)
	}
	want, err := generatedRequest(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := diffRequests(&r, want); diff != "" {
		t.Errorf("request (-got +want):\n%s", diff)
	}
}

func BenchmarkWireCheck(b *testing.B) {
	msg := mustMarshal(b, checkOf(true, strings.Repeat("{}", 512)))
	d := decision{reason: ReasonPassed, ref: testRef("evt_1"),
		set: headerValues{{headerSource, "payments"}, {headerEventID, "evt_1"}, {headerEventType, "invoice.paid"}}}
	b.Run("lean", func(b *testing.B) {
		b.ReportAllocs()
		var r request
		for b.Loop() {
			if err := r.decode(slices.Clone(msg)); err != nil {
				b.Fatal(err)
			}
			if _, err := d.encode(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := generatedRequest(msg); err != nil {
				b.Fatal(err)
			}
			if _, err := proto.Marshal(d.response()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
