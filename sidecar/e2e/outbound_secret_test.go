package e2e

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// The parts of an endpoint that let whoever knows them in.
const (
	tokenInPath   = "T0KEN-OF-THE-PATH"
	tokenInQuery  = "T0KEN-OF-THE-QUERY"
	tokenInHeader = "T0KEN-OF-THE-HEADER"
)

// faultyReceivers are what endpoints lead to, by the outcome of an attempt there.
func faultyReceivers(t *testing.T) map[string]string {
	t.Helper()
	raw := func(serve func(net.Conn)) string {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					serve(c)
				}()
			}
		}()
		return l.Addr().String()
	}
	// echo says the request, as a server does that complains of what it does not understand.
	echo := func(then string) func(net.Conn) {
		return func(c net.Conn) {
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, strings.ReplaceAll(then, "URI", r.RequestURI+" "+r.Header.Get("Authorization")))
		}
	}
	hang := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	secured := httptest.NewUnstartedServer(http.NotFoundHandler())
	secured.Config.ErrorLog = log.New(io.Discard, "", 0)
	secured.StartTLS()
	t.Cleanup(secured.Close)
	return map[string]string{
		"connect_refused": "http://" + freeAddr(t),
		"timeout_headers": "http://" + raw(hang),
		"tls_handshake":   "https://" + raw(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 no\r\n\r\n") }),
		"tls_verify":      secured.URL,
		"conn_closed":     "http://" + raw(echo("")),
		"bad_answer":      "http://" + raw(echo("POST URI is not understood\r\n\r\n")),
		"redirect":        "http://" + raw(echo("HTTP/1.1 302 Found\r\nLocation: URI\r\nContent-Length: 0\r\n\r\n")),
		"server_error":    "http://" + raw(echo("HTTP/1.1 500 URI\r\nX-Request: URI\r\nContent-Length: 0\r\n\r\n")),
	}
}

// TestOutboundKeepsSecrets has endpoints whose URLs and headers hold tokens fail in every way. What the process logs and
// prints, what it measures, what it answers about events and deliveries, and what it tells the operator, holds none of
// them, nor a signing secret.
func TestOutboundKeepsSecrets(t *testing.T) {
	t.Parallel()
	var notices customers
	operator := httptest.NewServer(&notices)
	t.Cleanup(operator.Close)
	receivers := faultyReceivers(t)
	var endpoints strings.Builder
	ports := []string{operator.URL[strings.LastIndexByte(operator.URL, ':')+1:]}
	var ids []string
	for outcome, at := range receivers {
		ports = append(ports, at[strings.LastIndexByte(at, ':')+1:])
		id := strings.ReplaceAll(outcome, "_", "-")
		ids = append(ids, id)
		fmt.Fprintf(&endpoints, "\n  - {id: %s, url: \"%s/%s?token=%s\", secrets: [{file: FOLDER/endpoint-a}], headers: [{name: Authorization, secret: {file: FOLDER/header}}]}",
			id, at, tokenInPath, tokenInQuery)
	}
	slices.Sort(ids)
	o := prepareOutbound(t)
	o.write("header", "Bearer "+tokenInHeader)
	o.run(fmt.Sprintf(`
  filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s]}
  delivery: {timeout: 500ms, waits: [100ms], jitter_percent: 0}
  endpoints:%s`, strings.Join(ports, ", "), endpoints.String()),
		fmt.Sprintf("log: {level: DEBUG}\nnotify: {webhook: {url: \"%s/%s\", secrets: [{file: FOLDER/endpoint-b}]}}", operator.URL, tokenInPath))

	for _, id := range ids {
		o.mustPost(t, "event_"+id, id)
	}
	texts := map[string]string{}
	for _, id := range ids {
		want := strings.ReplaceAll(id, "-", "_")
		eventually(t, id+" is tried", func() bool { return len(o.deliveryOf(t, "event_"+id).GetAttempts()) > 0 })
		d := o.deliveryOf(t, "event_"+id)
		if got := d.GetAttempts()[0]; got.GetOutcome() != want || got.GetDetail() == "" {
			t.Errorf("an attempt to %s ended %s (%q)", id, got.GetOutcome(), got.GetDetail())
		}
		texts["GetEvent of event_"+id] = d.String()
	}
	list, err := o.api().ListDeliveries(t.Context(), connect.NewRequest(&egressv1.ListDeliveriesRequest{}))
	if err != nil || len(list.Msg.GetDeliveries()) != len(ids) {
		t.Fatalf("ListDeliveries: %v, %v", list, err)
	}
	texts["ListDeliveries"] = list.Msg.String()
	summary, err := o.api().Summarize(t.Context(), connect.NewRequest(&egressv1.SummarizeRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	texts["Summarize"] = summary.Msg.String()
	for _, path := range []string{"/metrics", "/readyz"} {
		res, err := unixClient(o.socket("health")).Get("http://localhost" + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || len(text) < 10 {
			t.Fatalf("%s: %q, %v", path, text, err)
		}
		texts[path] = string(text)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"endpoint list", "outbox list", "outbox list -o json", "outbox summary", "outbox show event_redirect", "status", "check -c " + o.config, "check -o yaml -c " + o.config} {
		list := strings.Fields(args)
		if list[0] != "check" {
			list = append(list, "--admin", "unix:"+o.socket("admin"))
		}
		out, err := exec.CommandContext(t.Context(), path, list...).CombinedOutput()
		if err != nil || len(out) == 0 {
			t.Errorf("sidehook %s: %v %s", args, err, out)
		}
		texts["sidehook "+args] = string(out)
	}
	if err := o.gate.stop(); err != nil {
		t.Error(err)
	}
	lines, err := os.ReadFile(filepath.Join(o.logs, "sidehook.log"))
	if err != nil {
		t.Fatal(err)
	}
	texts["the log"] = string(lines)
	if n := strings.Count(string(lines), `"msg":"attempt"`); n < len(ids) {
		t.Errorf("the log tells of %d attempts, want %d or more", n, len(ids))
	}
	secret := regexp.MustCompile(`(?i)T0KEN|ZW5kcG9pbnQt|endpoint-[ab]-key-of`)
	for where, text := range texts {
		if strings.HasPrefix(where, "sidehook check -o yaml") {
			text = strings.NewReplacer(tokenInPath, "", tokenInQuery, "").Replace(text) // it prints what was written, with its URLs
		}
		if found := secret.FindString(text); found != "" {
			at := strings.Index(text, found)
			t.Errorf("%s holds %q: …%s…", where, found, text[max(0, at-200):min(len(text), at+100)])
		}
	}
	notices.mu.Lock()
	defer notices.mu.Unlock()
	for _, n := range notices.all {
		if found := secret.Find(n.body); found != nil {
			t.Errorf("a notice holds %q: %s", found, n.body)
		}
	}
}
