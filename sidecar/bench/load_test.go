package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// TestSignRequests reads the requests with net/http and checks their signatures with the specification's own library.
func TestSignRequests(t *testing.T) {
	t.Parallel()
	verifier, err := standardwebhooks.NewWebhook(hookSecret())
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]bool)
	for _, raw := range signRequests(20, "127.0.0.1:1", time.Now()) {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Fatal(err)
		}
		if req.Method != http.MethodPost || req.URL.Path != hookPath || req.Host != "127.0.0.1:1" {
			t.Errorf("request line %s %s for %s", req.Method, req.URL, req.Host)
		}
		if len(body) != bodyBytes || !json.Valid(body) {
			t.Errorf("body of %d bytes, valid JSON %t", len(body), json.Valid(body))
		}
		if err := verifier.Verify(body, req.Header); err != nil {
			t.Errorf("signature: %v", err)
		}
		id := req.Header.Get("Webhook-Id")
		if len(id) != 30 || ids[id] {
			t.Errorf("id %q: want 30 bytes, each time others", id)
		}
		ids[id] = true
	}
}

// TestLoad lets the load meet the app without anything between them.
func TestLoad(t *testing.T) {
	t.Parallel()
	stdin, hold := io.Pipe()
	said, say := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- appMain(nil, stdin, say) }()
	addr, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr = addr[:len(addr)-1]
	const n = 200
	got, err := load(addr, signRequests(n, addr, time.Now()), 8)
	if err != nil {
		t.Fatal(err)
	}
	if got.Requests != n || len(got.Status) != 1 || got.Status[http.StatusOK] != n {
		t.Errorf("load = %+v, want %d times 200", got, n)
	}
	if got.P50 <= 0 || got.P99 < got.P50 || got.Elapsed < got.P99 {
		t.Errorf("p50 %s, p99 %s of %s do not fit together", got.P50, got.P99, got.Elapsed)
	}
	hold.Close()
	if err := <-ended; err != nil {
		t.Errorf("the app ended with %v", err)
	}
}
