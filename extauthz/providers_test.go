package extauthz

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/sidehook/sidehook/internal/signature"
)

// vectorFiles are the examples of the senders' messages, a file each; see readVector of package signature.
const vectorFiles = "../internal/signature/testdata/vectors/*.txt"

// handshakesByName are the handshakes in the words of the table of providers.
var handshakesByName = map[string]Handshake{
	"": HandshakeNone, "slack": HandshakeSlack, "meta": HandshakeMeta, "twitch": HandshakeTwitch, "zoom": HandshakeZoom,
	"discord": HandshakeDiscord, "graph": HandshakeGraph, "dropbox": HandshakeDropbox, "asana": HandshakeAsana, "xero": HandshakeXero,
	"okta": HandshakeOkta, "twitter": HandshakeTwitter, "cloudevents": HandshakeCloudEvents, "head": HandshakeHead,
	"monday": HandshakeMonday, "notion": HandshakeNotion, "worldline": HandshakeWorldline, "ebay": HandshakeEBay,
}

// example is a message that a provider's row accepts.
type example struct {
	name      string
	provider  *signature.Provider
	vendors   bool // it comes from the vendor, and not from the formula
	secrets   []string
	claims    signature.Claims
	published map[string]string // documents by URL
	now       time.Time
	method    string
	url       string
	header    [][2]string
	body      []byte
}

// examples returns the examples of every row, the vendors' own first.
func examples(t *testing.T) map[string][]*example {
	t.Helper()
	files, err := filepath.Glob(vectorFiles)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d vectors: %v", len(files), err)
	}
	all := make(map[string][]*example)
	for _, file := range files {
		if e := readExample(t, file); e != nil {
			all[e.provider.Name] = append(all[e.provider.Name], e)
		}
	}
	for _, list := range all {
		slices.SortStableFunc(list, func(a, b *example) int {
			rank := map[bool]int{true: 0, false: 1}
			return cmp.Compare(rank[a.vendors], rank[b.vendors])
		})
	}
	return all
}

// readExample returns nil for what is not accepted, or has a scheme of its own.
func readExample(t *testing.T, file string) *example {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := bytes.Cut(data, []byte("\n\n"))
	e := &example{name: strings.TrimSuffix(filepath.Base(file), ".txt"), method: "POST", body: body, published: make(map[string]string)}
	accepted := false
	unquote := func(s string) string {
		text, err := strconv.Unquote(s)
		if err != nil {
			t.Fatalf("%s: %s: %v", file, s, err)
		}
		return text
	}
	for line := range strings.SplitSeq(string(head), "\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "provider":
			var ok bool
			if e.provider, ok = signature.ProviderByName(value); !ok {
				t.Fatalf("%s: no provider %s", file, value)
			}
		case "secret":
			e.secrets = append(e.secrets, unquote(value))
		case "method":
			e.method = value
		case "url":
			e.url = value
		case "now":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatalf("%s: now: %v", file, err)
			}
			e.now = time.Unix(n, 0)
		case "expect":
			accepted = value == "accept"
		case "header":
			name, field, _ := strings.Cut(value, ":")
			e.header = append(e.header, [2]string{strings.ToLower(name), strings.TrimPrefix(field, " ")})
		case "source":
			e.vendors = !strings.HasPrefix(value, "computed")
		case "audience":
			e.claims.Audience = value
		case "issuer":
			e.claims.Issuer = value
		case "published":
			at, quoted, _ := strings.Cut(value, " ")
			e.published[at] = unquote(quoted)
		}
	}
	if !accepted || e.provider == nil {
		return nil
	}
	return e
}

// clone is a copy that can be changed.
func (e *example) clone() *example {
	c := *e
	c.body, c.header, c.secrets = bytes.Clone(e.body), slices.Clone(e.header), slices.Clone(e.secrets)
	return &c
}

// verifier is the row's, with what the source says of its tokens.
func (e *example) verifier(t *testing.T) *signature.Verifier {
	t.Helper()
	v := e.provider.Verifier()
	if e.claims != (signature.Claims{}) {
		var err error
		if v, err = v.Expect(e.claims); err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
	}
	return v
}

// keys are those that the row reads of the secrets; ok is false where it refuses one, as a config would.
func (e *example) keys(v *signature.Verifier) (keys []signature.Key, ok bool) {
	for _, s := range e.secrets {
		k, err := v.ParseKey([]byte(s))
		if err != nil {
			return nil, false
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		keys = v.OwnKeys()
	}
	return keys, true
}

// target is the request target and the origin before it.
func (e *example) target() (origin, target string) {
	scheme, rest, ok := strings.Cut(e.url, "://")
	if !ok {
		return "", "/"
	}
	host := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host, target = rest[:i], rest[i:]
	}
	return scheme + "://" + host, target
}

// ask has the gate judge e, through a source with the row's preset, by the clock of e.
func (e *example) ask(t *testing.T) answer {
	t.Helper()
	v := e.verifier(t)
	keys, ok := e.keys(v)
	if !ok {
		t.Fatalf("%s: its secret is refused", e.name)
	}
	origin, target := e.target()
	p := e.provider
	handshake, ok := handshakesByName[p.Handshake]
	if !ok {
		t.Fatalf("%s: handshake %s", p.Name, p.Handshake)
	}
	table := mustSources(t, []*Source{{
		Name: p.Name, Provider: p.Name, Matches: []Match{{PathPrefix: "/"}}, Verifier: v, Keys: keys,
		Tolerance: p.Tolerance.Std(), Enforce: EnforceOn, Lease: time.Minute, Retention: p.Retention.Std(),
		ContentWindow: p.ContentWindow.Std(), Confirm: ConfirmAccessLog, OnUnknown: OnUnknownRetry, PublicURL: origin,
		MaxBodyBytes: p.MaxBodyBytes, RefusalStatus: p.RefusalStatus, RequireID: p.RequireID,
		Handshake: handshake,
	}})
	documents := make(map[string]*signature.PublishedKeys)
	for at, text := range e.published {
		d, err := signature.ParsePublished([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		documents[at] = d
	}
	var got answer
	synctest.Test(t, func(t *testing.T) {
		if !e.now.IsZero() {
			time.Sleep(time.Until(e.now))
		}
		s, err := New(Config{Inbox: claimingInbox{}, Sources: table, Keys: &publisher{have: documents, next: documents, state: KeyFetched}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Check(t.Context(), e.request(target))
		got = readAnswer(t, r, err)
	})
	return got
}

// request is e as Envoy asks about it.
func (e *example) request(target string) *authv3.CheckRequest {
	fields := [][2]string{{":method", e.method}, {":path", target}, {":authority", "app.example"}, {":scheme", "http"}}
	fields = append(fields, e.header...)
	if !slices.ContainsFunc(e.header, func(f [2]string) bool { return f[0] == "content-length" }) {
		fields = append(fields, [2]string{"content-length", strconv.Itoa(len(e.body))})
	}
	h := &authv3.AttributeContext_HttpRequest{
		Id: "1", Method: e.method, Path: target, Host: "app.example", Scheme: "http", Protocol: "HTTP/1.1",
		Size: int64(len(e.body)), RawBody: e.body, HeaderMap: &corev3.HeaderMap{},
	}
	for _, f := range fields {
		h.HeaderMap.Headers = append(h.HeaderMap.Headers, &corev3.HeaderValue{Key: f[0], RawValue: []byte(f[1])})
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: h}}}
}
