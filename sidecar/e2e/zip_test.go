package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// zipSources differ in what their sender signs: the body as it is sent, or as it was before compression.
const zipSources = `
  - name: wire
    match: {path: /wire}
    scheme: {algorithm: HMAC_SHA256, signature: {header: X-Signature}, id: {header: X-Id}}
    secrets: [{file: FOLDER/github}]
    max_body: 64Ki
  - name: decoded
    match: {path: /decoded}
    scheme: {algorithm: HMAC_SHA256, signature: {header: X-Signature}, id: {header: X-Id}, body: DECODED}
    secrets: [{file: FOLDER/github}]
    max_body: 64Ki
  - name: stored
    match: {path: /stored}
    scheme: {algorithm: HMAC_SHA256, signature: {header: X-Signature}, id: {header: X-Id}, body: DECODED}
    secrets: [{file: FOLDER/github}]
    max_body: 64Ki
    mode: STORE
    delivery: {url: "http://APP", resign: true}
`

// decompressor is Envoy's filter that unzips requests.
const decompressor = `- name: envoy.filters.http.decompressor
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.decompressor.v3.Decompressor
              decompressor_library:
                name: gzip
                typed_config:
                  "@type": type.googleapis.com/envoy.extensions.compression.gzip.decompressor.v3.Gzip
          `

// zipped is a message with a gzip body and the signature of what was signed.
func zipped(t *testing.T, target, id string, plain []byte, signWire bool) message {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	signed := plain
	if signWire {
		signed = out.Bytes()
	}
	return message{method: http.MethodPost, target: target, body: out.Bytes(), header: http.Header{
		"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}, "X-Id": {id},
		"X-Signature": {hex.EncodeToString(mac(githubSecret, signed))},
	}}
}

// Class BODY, gzip: either form is accepted where the source says so, the app gets what was sent, and a bomb is as
// large as what comes out of it.
func TestZippedBodies(t *testing.T) {
	t.Parallel()
	x := start(t, setup{sources: zipSources})
	plain := []byte(`{"type":"x","text":"` + strings.Repeat("abc", 500) + `"}`)
	bomb := make([]byte, 32<<20) // 32 KiB zipped
	for i, test := range []struct {
		name    string
		message message
		status  int
		word    string // empty: the app answers
	}{
		{"wire, signed as sent", zipped(t, "/wire", "z0", plain, true), 200, ""},
		{"wire, signed before", zipped(t, "/wire", "z1", plain, false), 401, "bad_signature"},
		{"wire, what would be a bomb", zipped(t, "/wire", "z2", bomb, true), 200, ""},
		{"decoded, signed before", zipped(t, "/decoded", "z3", plain, false), 200, ""},
		{"decoded, signed as sent", zipped(t, "/decoded", "z4", plain, true), 401, "bad_signature"},
		{"decoded, a bomb", zipped(t, "/decoded", "z5", bomb, false), 413, "too_large"},
		{"stored, signed before", zipped(t, "/stored", "z6", plain, false), 200, ""},
		{"stored, a bomb", zipped(t, "/stored", "z7", bomb, false), 413, "too_large"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, want := x.post(test.message), "thanks"
			if test.word == "" && test.message.target == "/stored" {
				want = storedForTheApp
				x.awaitCalls(fmt.Sprint("z", i), 1)
			}
			calls := x.app.of(fmt.Sprint("z", i))
			if test.word != "" {
				if !got.is(test.status, test.word) || len(calls) != 0 {
					t.Errorf("got %v, the app %d calls, want %d %s", got, len(calls), test.status, test.word)
				}
				return
			}
			if strings.TrimSpace(got.body) != want || len(calls) != 1 || !bytes.Equal(calls[0].body, test.message.body) ||
				calls[0].header.Get("X-Signature") != test.message.header.Get("X-Signature") {
				t.Errorf("got %v, the app %d calls, want %s and the bytes that were sent", got, len(calls), want)
			}
		})
	}
}

// Class BODY, a proxy that changes the body on its way: a decompressor before the gate breaks what was signed as sent,
// and is named for it; behind the gate it breaks nothing.
func TestDecompressor(t *testing.T) {
	t.Parallel()
	const gateFilter = "- name: envoy.filters.http.ext_authz\n"
	before := start(t, setup{sources: zipSources, envoy: func(b string) string {
		return replaceOnce(t, b, gateFilter, decompressor+gateFilter)
	}})
	after := start(t, setup{sources: zipSources, envoy: func(b string) string {
		return replaceOnce(t, b, "- name: envoy.filters.http.router\n", decompressor+"- name: envoy.filters.http.router\n")
	}})
	plain := []byte(`{"type":"x","text":"` + strings.Repeat("abc", 500) + `"}`)
	for _, test := range []struct {
		name    string
		x       *stack
		message message
		lost    bool
	}{
		{"before, signed as sent", before, zipped(t, "/wire", "d1", plain, true), true},
		{"before, signed before compression", before, zipped(t, "/decoded", "d2", plain, false), false},
		{"behind, signed as sent", after, zipped(t, "/wire", "d3", plain, true), false},
		{"behind, signed before compression", after, zipped(t, "/decoded", "d4", plain, false), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.x.post(test.message)
			calls := test.x.app.of(test.message.header.Get("X-Id"))
			if !test.lost {
				if got.body != "thanks" || len(calls) != 1 || !bytes.Equal(calls[0].body, plain) {
					t.Errorf("got %v, the app %d calls, want its answer and the plain body", got, len(calls))
				}
				return
			}
			if !got.is(http.StatusInternalServerError, "body_not_forwarded") || len(calls) != 0 {
				t.Errorf("got %v, the app %d calls, want 500 body_not_forwarded", got, len(calls))
			}
			log, err := os.ReadFile(filepath.Join(test.x.logs, "sidehook.log"))
			if err != nil || !strings.Contains(string(log), `"setting":"filter_order"`) {
				t.Errorf("the log does not name the order of filters: %v\n%s", err, log)
			}
		})
	}
}
