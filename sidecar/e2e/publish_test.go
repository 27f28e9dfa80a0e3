package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// got is a delivery as a receiver got it.
type got struct {
	header http.Header
	body   []byte
}

// customers take every delivery and keep it.
type customers struct {
	mu  sync.Mutex
	all []got
}

func (c *customers) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, got{r.Header, body})
}

// of returns the deliveries of an event.
func (c *customers) of(id string) (found []got) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.all {
		if g.header.Get("Webhook-Id") == id {
			found = append(found, g)
		}
	}
	return found
}

// startPublishing runs a sidehook whose one endpoint rotates its secret: A is on its way out, B is new.
func startPublishing(t *testing.T) (*outbound, *customers) {
	t.Helper()
	c := new(customers)
	receiver := httptest.NewServer(c)
	t.Cleanup(receiver.Close)
	u, err := url.Parse(receiver.URL)
	if err != nil {
		t.Fatal(err)
	}
	return startOutbound(t, fmt.Sprintf(`
  filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s]}
  endpoints:
  - id: acme
    url: "%s/in"
    secrets: [{file: FOLDER/endpoint-a, until: 2099-01-31T00:00:00Z}, {file: FOLDER/endpoint-b}]`, u.Port(), receiver.URL), ""), c
}

// interpreter finds a program that runs examples. Python is wherever these tests are; without Node its part is left out.
func interpreter(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case name == "python3":
		t.Fatal(err)
	}
	t.Logf("%s is not installed: its part of this test is left out", name)
	return ""
}

// TestPublishExamples runs the example apps against a sidehook that is full at first.
func TestPublishExamples(t *testing.T) {
	t.Parallel()
	o, receiver := startPublishing(t)
	for interpret, script := range map[string]string{
		"python3": "../../examples/publish-python/publish.py", "node": "../../examples/publish-node/publish.mjs",
	} {
		path := interpreter(t, interpret)
		if path == "" {
			continue
		}
		// The apps speak TCP. What they sent goes to the intake as they wrote it, but for the first request.
		var asked atomic.Int32
		intake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				w.Header().Set("Content-Type", "application/problem+json")
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, `{"type":"urn:sidehook:problem:store_full","title":"full","status":503}`)
				return
			}
			req, err := http.NewRequestWithContext(r.Context(), r.Method, "http://localhost"+r.RequestURI, r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			req.Header = r.Header.Clone()
			res, err := o.intake.Do(req)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			defer res.Body.Close()
			w.WriteHeader(res.StatusCode)
			_, _ = io.Copy(w, res.Body)
		}))
		t.Cleanup(intake.Close)
		run := func(args ...string) (stdout, stderr string, err error) {
			cmd := exec.CommandContext(t.Context(), path, append([]string{script}, args...)...)
			// The proxy is one that does not exist; no app may ask it.
			cmd.Env = append(cmd.Environ(), "SIDEHOOK="+intake.URL, "HTTP_PROXY=http://127.0.0.1:1", "http_proxy=http://127.0.0.1:1", "NO_PROXY=", "no_proxy=")
			var out, errs strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &errs
			err = cmd.Run()
			return out.String(), errs.String(), err
		}
		id := "in_" + interpret
		var first accepted
		for n := range 2 {
			out, errs, err := run("invoice.paid", id, `{"amount": 1000, "name": "Ünal"}`)
			if err != nil {
				t.Fatalf("%s: %v: %s", script, err, errs)
			}
			var a accepted
			if err := json.Unmarshal([]byte(out), &a); err != nil {
				t.Fatalf("%s printed %q: %v", script, out, err)
			}
			if n == 0 {
				first = a
			}
			if a.ID != id || len(a.Deliveries) != 1 || a.Deliveries[0].ID == "" || a.Deliveries[0].ID != first.Deliveries[0].ID {
				t.Errorf("%s, run %d: %+v, at first %+v", script, n+1, a, first)
			}
		}
		if n := asked.Load(); n != 3 {
			t.Errorf("%s asked %d times, want 3: the first was answered 503", script, n)
		}
		if _, errs, err := run("invoice.paid", id, `{"amount": 2000}`); err == nil || !strings.Contains(errs, "urn:sidehook:problem:id_conflict") {
			t.Errorf("%s with another content under the same id: %v, %q", script, err, errs)
		}
		if n := asked.Load(); n != 4 {
			t.Errorf("%s asked %d times: a refusal was posted again", script, n)
		}
		eventually(t, id+" is delivered", func() bool { return len(receiver.of(id)) > 0 })
		if all := receiver.of(id); len(all) != 1 || !strings.Contains(string(all[0].body), `"amount"`) {
			t.Errorf("%s: %d deliveries, want one", script, len(all))
		}
	}
}

// TestOfficialVerifiers has the libraries of Standard Webhooks check what a receiver gets while its secret is rotated: in
// Go, and in Python and Node where they are installed there (pip install standardwebhooks, npm install standardwebhooks).
// What the specification says of verifying, "Verifying webhook authenticity", is done there with nothing installed too, as
// a customer without the library would write it.
func TestOfficialVerifiers(t *testing.T) {
	t.Parallel()
	o, receiver := startPublishing(t)
	code, a, err := o.post(t.Context(), map[string]any{"id": "in_1", "type": "invoice.paid", "data": map[string]any{"text": "é \u2028 <&>", "n": 1.0}})
	if err != nil || code != http.StatusAccepted {
		t.Fatalf("%d, %+v, %v", code, a, err)
	}
	eventually(t, "the event is delivered", func() bool { return len(receiver.of("in_1")) > 0 })
	g := receiver.of("in_1")[0]
	if n := len(strings.Fields(g.header.Get("Webhook-Signature"))); n != 2 {
		t.Errorf("%d signatures, want one for each secret", n)
	}
	const python = `
import base64, json, sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
x = json.load(sys.stdin)
try:
    Webhook(x["secret"]).verify(base64.b64decode(x["body"]), x["headers"])
    print("accepted")
except WebhookVerificationError as error:
    print("refused")`
	const node = `
const { Webhook, WebhookVerificationError } = require("standardwebhooks");
const x = JSON.parse(require("fs").readFileSync(0, "utf8"));
try {
  new Webhook(x.secret).verify(Buffer.from(x.body, "base64").toString("utf8"), x.headers);
  console.log("accepted");
} catch (error) {
  if (!(error instanceof WebhookVerificationError)) throw error;
  console.log("refused");
}`
	const pythonBySpec = `
import base64, hashlib, hmac, json, sys, time
x = json.load(sys.stdin)
headers = {name.lower(): value for name, value in x["headers"].items()}
id, at, body = headers["webhook-id"], headers["webhook-timestamp"], base64.b64decode(x["body"])
key = base64.b64decode(x["secret"].removeprefix("whsec_"))
want = base64.b64encode(hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()).decode()
signatures = [s.split(",", 1) for s in headers["webhook-signature"].split(" ")]
good = any(version == "v1" and hmac.compare_digest(signature, want) for version, signature in signatures)
print("accepted" if good and abs(time.time() - int(at)) < 300 else "refused")`
	const nodeBySpec = `
const { createHmac, timingSafeEqual } = require("crypto");
const x = JSON.parse(require("fs").readFileSync(0, "utf8"));
const headers = Object.fromEntries(Object.entries(x.headers).map(([name, value]) => [name.toLowerCase(), value]));
const id = headers["webhook-id"], at = headers["webhook-timestamp"], body = Buffer.from(x.body, "base64");
const key = Buffer.from(x.secret.replace(/^whsec_/, ""), "base64");
const want = createHmac("sha256", key).update(id + "." + at + ".").update(body).digest();
const good = headers["webhook-signature"].split(" ").some((s) => {
  const [version, signature] = s.split(",");
  const got = Buffer.from(signature, "base64");
  return version === "v1" && got.length === want.length && timingSafeEqual(got, want);
});
console.log(good && Math.abs(Date.now() / 1000 - Number(at)) < 300 ? "accepted" : "refused");`
	const stranger = "whsec_c29tZWJvZHktZWxzZXMta2V5LW9mLTMyLWJ5dGVzLi4="
	for _, c := range []struct {
		name, secret string
		body         []byte
		want         bool
	}{
		{"the old secret", endpointSecretA, g.body, true},
		{"the new secret", endpointSecretB, g.body, true},
		{"another secret", stranger, g.body, false},
		{"a changed body", endpointSecretB, bytes.Replace(g.body, []byte("invoice.paid"), []byte("invoice.void"), 1), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			hook, err := standardwebhooks.NewWebhook(c.secret)
			if err != nil {
				t.Fatal(err)
			}
			if err := hook.Verify(c.body, g.header); (err == nil) != c.want {
				t.Errorf("Go: %v, want acceptance %t", err, c.want)
			}
			headers := map[string]string{}
			for name := range g.header {
				headers[name] = g.header.Get(name)
			}
			input, err := json.Marshal(map[string]any{"secret": c.secret, "headers": headers, "body": base64.StdEncoding.EncodeToString(c.body)})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range []struct {
				interpreter, probe, script string
				args                       []string
			}{
				{"python3", "import standardwebhooks", python, []string{"-c"}},
				{"python3", "", pythonBySpec, []string{"-c"}},
				{"node", `require("standardwebhooks")`, node, []string{"-e"}},
				{"node", "", nodeBySpec, []string{"-e"}},
			} {
				path := interpreter(t, v.interpreter)
				if path == "" {
					continue
				}
				if v.probe != "" && exec.CommandContext(t.Context(), path, append(v.args, v.probe)...).Run() != nil {
					t.Logf("%s has no standardwebhooks: its part of this test is left out", v.interpreter)
					continue
				}
				cmd := exec.CommandContext(t.Context(), path, append(v.args, v.script)...)
				cmd.Stdin = bytes.NewReader(input)
				out, err := cmd.CombinedOutput()
				if want := map[bool]string{true: "accepted", false: "refused"}[c.want]; err != nil || strings.TrimSpace(string(out)) != want {
					t.Errorf("%s: %v, %q; want %s", v.interpreter, err, out, want)
				}
			}
		})
	}
}
