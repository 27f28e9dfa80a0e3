package extauthz

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/internal/store"
)

// testSecret is a secret as its file holds it, and so the key.
const testSecret = "correct horse battery staple"

// otherSecret is the second one of a source that rotates.
const otherSecret = "another secret of the same source"

// testScheme signs like Standard Webhooks, with a text key and the event's type in the body.
var testScheme = signature.Spec{
	Algorithm: signature.HMACSHA256,
	Signed:    "{id}.{timestamp}.{body}",
	Signature: signature.SignatureSpec{
		ValueSpec: signature.ValueSpec{Header: "webhook-signature"}, Encoding: signature.Base64,
		List: " ", KeyValue: "v1", KeySeparator: ",", Others: []string{"x-hub-signature"},
	},
	Timestamp: &signature.TimestampSpec{ValueSpec: signature.ValueSpec{Header: "webhook-timestamp"}},
	ID:        &signature.IDSpec{ValueSpec: signature.ValueSpec{Header: "webhook-id"}},
	Type:      &signature.ValueSpec{JSON: "type"},
}

// signedSource is a source under /hooks/NAME with testScheme.
func signedSource(t testing.TB, name string, change ...func(*Source)) *Source {
	t.Helper()
	return sourceOf(t, name, testScheme, change...)
}

// sourceOf is a source under /hooks/NAME with a scheme, and both test secrets.
func sourceOf(t testing.TB, name string, spec signature.Spec, change ...func(*Source)) *Source {
	t.Helper()
	verifier, err := signature.Compile(spec)
	if err != nil {
		t.Fatalf("compile scheme: %v", err)
	}
	return sourceWith(t, name, verifier, []string{testSecret, otherSecret}, change...)
}

// sourceWith is a source under /hooks/NAME with a verifier and its secrets.
func sourceWith(t testing.TB, name string, verifier *signature.Verifier, secrets []string, change ...func(*Source)) *Source {
	t.Helper()
	src := &Source{
		Name: name, Provider: "custom", Matches: []Match{{PathPrefix: "/hooks/" + name}}, Verifier: verifier,
		Tolerance: 5 * time.Minute, Enforce: EnforceOn, Lease: time.Minute, Retention: 24 * time.Hour,
		Confirm: ConfirmAccessLog, OnUnknown: OnUnknownRetry, MaxBodyBytes: 1 << 20, RequireID: true,
	}
	for _, secret := range secrets {
		key, err := verifier.ParseKey([]byte(secret))
		if err != nil {
			t.Fatalf("parse key: %v", err)
		}
		src.Keys = append(src.Keys, key)
	}
	for _, f := range change {
		f(src)
	}
	return src
}

// hook is a request that a sender makes. Empty fields are filled in by check.
type hook struct {
	id     string
	body   string
	at     time.Time
	secret string
	target string
	// headers are more header fields, in order; drop leaves some of the usual ones out.
	headers [][2]string
	drop    []string
	// change has the last word on what Envoy makes of it.
	change func(*authv3.AttributeContext_HttpRequest)
	source string // context_extensions.source
}

// sign makes a signature of testScheme with nothing but the standard library.
func (h *hook) sign() string {
	return "v1," + base64.StdEncoding.EncodeToString(macOf(h.secret, h.id+"."+strconv.FormatInt(h.at.Unix(), 10)+"."+h.body))
}

// macOf is the HMAC-SHA256 of text.
func macOf(secret, text string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

var streamIDs struct {
	sync.Mutex
	last int
}

// check is the hook as Envoy asks about it, in the raw shape of headers or in the merged one.
func (h hook) check(raw bool) *authv3.CheckRequest {
	if h.at.IsZero() {
		h.at = time.Now()
	}
	if h.id == "" {
		h.id = "evt_1"
	}
	if h.body == "" {
		h.body = `{"type":"invoice.paid"}`
	}
	if h.secret == "" {
		h.secret = testSecret
	}
	if h.target == "" {
		h.target = "/hooks/payments?a=%20b"
	}
	fields := [][2]string{
		{":method", "POST"}, {":path", h.target}, {":authority", "app.example"}, {":scheme", "http"},
		{"content-type", "application/json"},
		{"content-length", strconv.Itoa(len(h.body))},
		{"webhook-id", h.id},
		{"webhook-timestamp", strconv.FormatInt(h.at.Unix(), 10)},
		{"webhook-signature", h.sign()},
		{"x-envoy-auth-partial-body", "false"},
	}
	fields = slices.DeleteFunc(fields, func(f [2]string) bool { return slices.Contains(h.drop, f[0]) })
	fields = append(fields, h.headers...)
	streamIDs.Lock()
	streamIDs.last++
	id := strconv.Itoa(streamIDs.last)
	streamIDs.Unlock()
	http := &authv3.AttributeContext_HttpRequest{
		Id: id, Method: "POST", Path: h.target, Host: "app.example", Scheme: "http", Protocol: "HTTP/1.1",
		Size: int64(len(h.body)), RawBody: []byte(h.body),
	}
	if raw {
		http.HeaderMap = &corev3.HeaderMap{}
		for _, f := range fields {
			http.HeaderMap.Headers = append(http.HeaderMap.Headers, &corev3.HeaderValue{Key: f[0], RawValue: []byte(f[1])})
		}
	} else {
		http.Headers = make(map[string]string)
		for _, f := range fields {
			if before, twice := http.Headers[f[0]]; twice {
				f[1] = before + "," + f[1]
			}
			http.Headers[f[0]] = f[1]
		}
	}
	if h.change != nil {
		h.change(http)
	}
	in := &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: http}}}
	if h.source != "" {
		in.Attributes.ContextExtensions = map[string]string{"source": h.source}
	}
	return in
}

// answer is a CheckResponse as Envoy acts on it.
type answer struct {
	pass    bool
	status  int
	body    string
	headers map[string]string // set on the request that passes, or of the answer
	removed []string
	ref     string
}

// readAnswer reads r and fails the test where Envoy could misread it.
func readAnswer(t testing.TB, r *authv3.CheckResponse, err error) answer {
	t.Helper()
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	a := answer{headers: make(map[string]string)}
	read := func(options []*corev3.HeaderValueOption) {
		for _, o := range options {
			name := o.GetHeader().GetKey()
			if _, twice := a.headers[name]; twice || o.GetAppendAction() != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
				t.Errorf("header %s: twice %v, action %v", name, twice, o.GetAppendAction())
			}
			a.headers[name] = o.GetHeader().GetValue()
		}
	}
	switch codes.Code(r.GetStatus().GetCode()) {
	case codes.OK:
		ok := r.GetOkResponse()
		if ok == nil {
			t.Fatalf("code 0 without ok_response: %v", r)
		}
		a.pass = true
		read(ok.GetHeaders())
		a.removed = ok.GetHeadersToRemove()
		for name, v := range r.GetDynamicMetadata().GetFields() {
			if name != metadataKey || a.ref != "" {
				t.Errorf("dynamic metadata %s", name)
			}
			a.ref = v.GetStringValue()
		}
	case codes.PermissionDenied:
		denied := r.GetDeniedResponse()
		if denied == nil || r.GetDynamicMetadata() != nil {
			t.Fatalf("code 7 with %v", r)
		}
		a.status, a.body = int(denied.GetStatus().GetCode()), denied.GetBody()
		read(denied.GetHeaders())
		if a.headers["content-type"] == "" || len(a.body) > 512 {
			t.Errorf("answer of type %q, %d bytes", a.headers["content-type"], len(a.body))
		}
	default:
		t.Fatalf("code %d", r.GetStatus().GetCode())
	}
	return a
}

// openInbox opens a BoltInbox in folder and runs its store until the test ends. In a bubble, folder comes from outside.
func openInbox(t testing.TB, folder string) *BoltInbox {
	t.Helper()
	s, err := store.Open(context.Background(), store.Options{Folder: folder})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	inbox, err := NewBoltInbox(BoltInboxConfig{Store: s})
	if err != nil {
		t.Fatalf("open inbox: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return inbox
}

// gate is a Server on a real inbox, and what it told.
type gate struct {
	*Server
	t        testing.TB
	inbox    *BoltInbox
	log      *logBuffer
	registry *prometheus.Registry
	passed   []string // guarded by log.mu
}

// logBuffer is a bytes.Buffer for several goroutines.
type logBuffer struct {
	mu sync.Mutex // covers b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newGate makes a gate on an inbox of its own.
func newGate(t testing.TB, sources *Sources, change ...func(*Config)) *gate {
	t.Helper()
	return newGateIn(t, t.TempDir(), sources, change...)
}

// newGateIn is newGate with the inbox's folder given.
func newGateIn(t testing.TB, folder string, sources *Sources, change ...func(*Config)) *gate {
	t.Helper()
	g := &gate{t: t, inbox: openInbox(t, folder), log: &logBuffer{}, registry: prometheus.NewRegistry()}
	cfg := Config{
		Inbox: g.inbox, Sources: sources, Registerer: g.registry,
		Logger: slog.New(slog.NewJSONHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Passed: func(source string) {
			g.log.mu.Lock()
			defer g.log.mu.Unlock()
			g.passed = append(g.passed, source)
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if g.Server, err = New(cfg); err != nil {
		t.Fatalf("new gate: %v", err)
	}
	return g
}

// ask is the answer to h in the raw shape.
func (g *gate) ask(h hook) answer {
	g.t.Helper()
	r, err := g.Check(g.t.Context(), h.check(true))
	return readAnswer(g.t, r, err)
}

// end settles the claim that a pass made, as the confirm would.
func (g *gate) end(a answer, end End) {
	g.t.Helper()
	key, token, ok := parseRef(a.ref)
	if !ok {
		g.t.Fatalf("no reference in %+v", a)
	}
	if err := g.inbox.Settle(g.t.Context(), key, token, end, true); err != nil {
		g.t.Fatalf("settle: %v", err)
	}
}

// counter reads the sample of a metric with exactly these labels, in the order name, value, name, value.
func (g *gate) counter(name string, labels ...string) float64 {
	g.t.Helper()
	families, err := g.registry.Gather()
	if err != nil {
		g.t.Fatalf("gather: %v", err)
	}
	want := make(map[string]string)
	for i := 0; i < len(labels); i += 2 {
		want[labels[i]] = labels[i+1]
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got := make(map[string]string)
			for _, l := range m.GetLabel() {
				got[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && maps.Equal(got, want) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	g.t.Fatalf("no metric %s{%s}", name, strings.Join(labels, ","))
	return 0
}
