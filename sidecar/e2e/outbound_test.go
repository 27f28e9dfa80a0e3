package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// outbound is an app's outbound half: a sidehook without a gate, and one receiver.
type outbound struct {
	t      *testing.T
	folder string // its path is short, for sockets
	logs   string // kept with -artifacts
	config string
	yaml   string // what config holds at the start
	gate   *gate  // the process
	intake *http.Client
	store  string // its folder
}

// startOutbound runs a sidehook with the YAML of egress, each line indented by two; FOLDER in it is its folder, where
// it finds secrets endpoint-a and endpoint-b. more is YAML at the top level.
func startOutbound(t *testing.T, egress, more string) *outbound {
	t.Helper()
	o := prepareOutbound(t)
	o.run(egress, more)
	return o
}

// prepareOutbound makes the folder, for tests that put more into it before run.
func prepareOutbound(t *testing.T) *outbound {
	t.Helper()
	folder, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) }) // the last to run: everything that writes there has ended
	o := &outbound{t: t, folder: folder, logs: t.ArtifactDir(), config: filepath.Join(folder, "sidehook.yaml"), store: filepath.Join(folder, "store")}
	o.intake = unixClient(o.socket("intake"))
	for name, secret := range map[string]string{"endpoint-a": endpointSecretA, "endpoint-b": endpointSecretB} {
		o.write(name, secret)
	}
	return o
}

// run writes the configuration and starts sidehook, as startOutbound says.
func (o *outbound) run(egress, more string) {
	t := o.t
	t.Helper()
	o.yaml = fmt.Sprintf(`
store:
  bolt: {path: "%s", volume: DURABLE}
  seal_key: [{value: whsec_c2VhbC1rZXktb2YtMzItYnl0ZXMtLi4uLi4uLi4uLi4=}]
egress:
  listen: "unix:%s"
%s
admin: {listen: "unix:%s"}
health: {listen: "unix:%s"}
%s
`, o.store, o.socket("intake"), strings.Trim(egress, "\n"), o.socket("admin"), o.socket("health"), more)
	o.write("sidehook.yaml", o.yaml)
	o.start()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of sidehook's log:\n%s", tail(filepath.Join(o.logs, "sidehook.log"), 30))
		}
	})
}

// The secrets of two endpoints, of 32 bytes each.
const (
	endpointSecretA = "whsec_ZW5kcG9pbnQtYS1rZXktb2YtMzItYnl0ZXMtLi4uLi4="
	endpointSecretB = "whsec_ZW5kcG9pbnQtYi1rZXktb2YtMzItYnl0ZXMtLi4uLi4="
)

func (o *outbound) socket(name string) string { return filepath.Join(o.folder, name+".sock") }

// write puts a file into the folder; FOLDER in it is the folder.
func (o *outbound) write(name, content string) {
	o.t.Helper()
	content = strings.ReplaceAll(content, "FOLDER", o.folder)
	if err := os.WriteFile(filepath.Join(o.folder, name), []byte(content), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// start starts the binary and waits until it is ready.
func (o *outbound) start() {
	o.t.Helper()
	path, err := binary()
	if err != nil {
		o.t.Fatal(err)
	}
	g, err := startGate(o.t.Context(), path, o.config, filepath.Join(o.logs, "sidehook.log"), o.socket("health"))
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = g.kill() })
	o.gate = g
}

// accepted is what the intake answers.
type accepted struct {
	ID         string
	Deliveries []struct{ ID, Endpoint, State, Error string }
}

// post posts an event as JSON and returns the status, and for 202 what was answered.
func (o *outbound) post(ctx context.Context, event map[string]any) (code int, a accepted, err error) {
	body, err := json.Marshal(event)
	if err != nil {
		return 0, a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/events", bytes.NewReader(body))
	if err != nil {
		return 0, a, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := o.intake.Do(req)
	if err != nil {
		return 0, a, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, a, err
	}
	if res.StatusCode != http.StatusAccepted {
		return res.StatusCode, a, nil
	}
	return res.StatusCode, a, json.Unmarshal(text, &a)
}
