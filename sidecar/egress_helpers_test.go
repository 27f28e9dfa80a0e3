package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
	"github.com/sidehook/sidehook/pb/sidehook/egress/v1/egressv1connect"
)

// outSecret signs in the tests of the outbound half. It is the one of Standard Webhooks' own example.
const outSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// outPlace is a place with an outbound half and no gate.
type outPlace struct {
	place
	egress string
}

func newOutPlace(t *testing.T) outPlace {
	t.Helper()
	p := outPlace{place: newPlace(t), egress: freeAddr(t)}
	for name, content := range map[string]string{"out": outSecret + "\n", "seal": "0123456789abcdef0123456789abcdef", "token": "the-token-of-the-app"} {
		if err := os.WriteFile(p.path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// path is that of a file beside the configuration.
func (p outPlace) path(name string) string { return filepath.Join(filepath.Dir(p.file), name) }

// config writes a configuration whose egress section has these lines besides the listener, and whose other sections are
// as rest says.
func (p outPlace) config(t *testing.T, egress, rest string) {
	t.Helper()
	var indented strings.Builder
	for line := range strings.Lines(egress) {
		indented.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
	}
	yaml := fmt.Sprintf("admin: {listen: %q}\nhealth: {listen: %q}\negress:\n  listen: %s\n%s%s", p.admin, p.health, p.egress, indented.String(), rest)
	if !strings.Contains(rest, "store:") {
		yaml += fmt.Sprintf("store: {bolt: {path: %s, volume: DURABLE}, seal_key: [{file: %s}]}\n", p.store, p.path("seal"))
	}
	if err := os.WriteFile(p.file+".new", []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.file+".new", p.file); err != nil {
		t.Fatal(err)
	}
}

// endpoint is an item of egress.endpoints.
func (p outPlace) endpoint(id, url string) string {
	return fmt.Sprintf("- {id: %s, url: %q, secrets: [{file: %s}]}\n", id, url, p.path("out"))
}

// post posts body and returns status, header and body of the answer.
func (p outPlace) post(t *testing.T, path, body string, edit ...func(*http.Request)) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.egress+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, e := range edit {
		e(req)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(answer)
}

// accepted posts an event that must be taken, and returns its id.
func (p outPlace) accepted(t *testing.T, body string, edit ...func(*http.Request)) string {
	t.Helper()
	status, _, answer := p.post(t, "/v1/events", body, edit...)
	var a struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(answer), &a); status != http.StatusAccepted || err != nil || a.ID == "" {
		t.Fatalf("post: %d %s", status, answer)
	}
	return a.ID
}

// api is a client of the admin API.
func (p outPlace) api() egressv1connect.EgressServiceClient {
	return egressv1connect.NewEgressServiceClient(http.DefaultClient, "http://"+p.admin)
}

// metrics are the lines of /metrics.
func (p outPlace) metrics(t *testing.T) string {
	t.Helper()
	res, err := http.Get("http://" + p.health + "/metrics") //nolint:noctx // loopback, bounded by the server
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// receiver is a customer's server.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	hook *standardwebhooks.Webhook
	got  []received
	then func(n int) int // the status of the answer to request n, from 1
}

type received struct {
	path, id, attempt string
	body              []byte
}

// newReceiver answers 204 but as then says, and holds each request to its signature.
func newReceiver(t *testing.T, then func(n int) int) *receiver {
	t.Helper()
	r := &receiver{then: then}
	r.accept(t, outSecret)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the sender was cut off
		}
		r.mu.Lock()
		if err := r.hook.Verify(body, req.Header); err != nil {
			t.Errorf("the official verifier says: %v", err)
		}
		r.got = append(r.got, received{req.URL.Path, req.Header.Get("webhook-id"), req.Header.Get("webhook-attempt"), bytes.Clone(body)})
		n := len(r.got)
		r.mu.Unlock()
		status := http.StatusNoContent
		if r.then != nil {
			status = r.then(n)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// accept has r hold requests to that secret.
func (r *receiver) accept(t *testing.T, secret string) {
	t.Helper()
	hook, err := standardwebhooks.NewWebhook(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = hook
}

// requests are those that came so far.
func (r *receiver) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

// filter is a filter that lets r through.
func (r *receiver) filter() string {
	return fmt.Sprintf("filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s]}\n", r.port())
}

func (r *receiver) port() string { return r.URL[strings.LastIndexByte(r.URL, ':')+1:] }

// deliveryState returns the state of the one delivery of an event.
func deliveryState(t *testing.T, p outPlace, event string) egressv1.DeliveryState {
	t.Helper()
	res, err := p.api().GetEvent(t.Context(), connect.NewRequest(&egressv1.GetEventRequest{Id: event}))
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Msg.GetDeliveries()) != 1 {
		t.Fatalf("event %s has %d deliveries", event, len(res.Msg.GetDeliveries()))
	}
	return res.Msg.GetDeliveries()[0].GetDelivery().GetState()
}
