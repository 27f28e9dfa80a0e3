package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"go.yaml.in/yaml/v3"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/pb/sidehook/inbox/v1/inboxv1connect"
	"github.com/sidehook/sidehook/sidecar/envoytest"
)

const (
	// readyTimeout bounds the start of a sidehook.
	readyTimeout = 10 * time.Second
	// readyEvery is how often a starting sidehook is asked; it is also how exactly its start is timed.
	readyEvery = 2 * time.Millisecond
	sourceName = "bench"
)

// buildSidehook builds the binary as it is shipped: static, stripped, without paths.
func buildSidehook(ctx context.Context, folder string) (string, error) {
	binary := filepath.Join(folder, "sidehook")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary,
		"github.com/sidehook/sidehook/sidecar/cmd/sidehook")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sidehook: %w: %s", err, out)
	}
	return binary, nil
}

// sidehook is a sidehook process with one source that takes what the load sends.
type sidehook struct {
	*child
	folder string
	config string
	// gate, intake, admin and health are the addresses it listens on; gate or intake is empty where it has none.
	gate, intake, admin, health string
	// ready is the time from the start of the process to the first 200 of /readyz.
	ready time.Duration
}

// configure writes the config of a sidehook into folder, with free addresses. source are fields of its source, more are sections,
// to add.
func configure(folder string, source, more map[string]any) (*sidehook, error) {
	addrs, err := envoytest.FreeAddrs(3)
	if err != nil {
		return nil, err
	}
	s := &sidehook{folder: folder, config: filepath.Join(folder, "sidehook.yaml"),
		gate: addrs[0], admin: addrs[1], health: addrs[2]}
	secret := filepath.Join(folder, "secret")
	if err := os.MkdirAll(filepath.Join(folder, "store"), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(secret, []byte(hookSecret()), 0o600); err != nil {
		return nil, err
	}
	whole := map[string]any{
		"name":     sourceName,
		"match":    map[string]any{"path_prefix": "/hook"},
		"provider": "standard-webhooks",
		"secrets":  []any{map[string]any{"file": secret}},
	}
	maps.Copy(whole, source)
	config := map[string]any{
		"store":    map[string]any{"bolt": map[string]any{"path": filepath.Join(folder, "store"), "volume": "DURABLE"}},
		"extauthz": map[string]any{"listen": s.gate, "sources": []any{whole}},
		"admin":    map[string]any{"listen": s.admin},
		"health":   map[string]any{"listen": s.health},
	}
	maps.Copy(config, more)
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, err
	}
	return s, os.WriteFile(s.config, text, 0o600)
}

// start runs the process and returns when it is ready.
func (s *sidehook) start(ctx context.Context, binary string) error {
	log := filepath.Join(s.folder, "sidehook.log")
	began := time.Now()
	c, err := startProgram(ctx, "sidehook", log, binary, "run", "-c", s.config)
	if err != nil {
		return err
	}
	s.child = c
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if err := get(ctx, "http://"+s.health+"/readyz"); err == nil {
			s.ready = time.Since(began)
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("sidehook is not ready (see %s): %w", log, context.Cause(ctx)), s.stop())
		case <-time.After(readyEvery):
		}
	}
}

// bootstrap returns the Envoy configuration that the binary itself prints for this sidehook.
func (s *sidehook) bootstrap(ctx context.Context, binary, listen, app string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, binary, "envoy", "-c", s.config, "--bootstrap", "--listen", listen, "--app", app)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("print the Envoy configuration: %w", err)
	}
	return out, nil
}

// states counts the source's events by state.
func (s *sidehook) states(ctx context.Context) (map[inboxv1.EventState]int64, error) {
	client := inboxv1connect.NewInboxServiceClient(new(http.Client), "http://"+s.admin)
	answer, err := client.Summarize(ctx, connect.NewRequest(&inboxv1.SummarizeRequest{Source: sourceName}))
	if err != nil {
		return nil, fmt.Errorf("summarize the inbox: %w", err)
	}
	counts := make(map[inboxv1.EventState]int64)
	for _, source := range answer.Msg.GetSources() {
		for _, state := range source.GetStates() {
			counts[state.GetState()] += state.GetCount()
		}
	}
	return counts, nil
}

// get reports whether url answers 200.
func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := new(http.Client).Do(req)
	if err != nil {
		return err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, res.Status)
	}
	return nil
}

// edit changes an Envoy configuration: another gate in the place of the one at from, and the access log kept or not.
// Everything else stays, so that two ways behind Envoy differ in nothing but what they are compared by.
type edit struct {
	from, to string
	dropLog  bool
	// logAll has the access log send every entry: the gate's own lets only those pass that carry its metadata, and a
	// yardstick that sets none would log nothing.
	logAll bool
}

func (e edit) apply(bootstrap []byte) ([]byte, error) {
	var root any
	if err := yaml.Unmarshal(bootstrap, &root); err != nil {
		return nil, fmt.Errorf("read the Envoy configuration: %w", err)
	}
	from, err := portOf(e.from)
	if err != nil {
		return nil, err
	}
	to, err := portOf(e.to)
	if err != nil {
		return nil, err
	}
	moved, dropped, opened := 0, 0, 0
	walk(root, func(node map[string]any) {
		if port, ok := node["port_value"].(int); ok && port == from {
			node["port_value"] = to
			moved++
		}
		if _, ok := node["access_log"]; ok && e.dropLog {
			delete(node, "access_log")
			dropped++
		}
		if logs, ok := node["access_log"].([]any); ok && e.logAll {
			for _, log := range logs {
				delete(log.(map[string]any), "filter")
				opened++
			}
		}
	})
	if moved == 0 {
		return nil, fmt.Errorf("the Envoy configuration names no gate at %s", e.from)
	}
	if e.dropLog && dropped == 0 {
		return nil, errors.New("the Envoy configuration has no access log to drop")
	}
	if e.logAll && opened == 0 {
		return nil, errors.New("the Envoy configuration has no access log to open")
	}
	return yaml.Marshal(root)
}

func portOf(addr string) (int, error) {
	i := len(addr) - 1
	for i >= 0 && addr[i] != ':' {
		i--
	}
	port, err := strconv.Atoi(addr[i+1:])
	if err != nil {
		return 0, fmt.Errorf("port of %q: %w", addr, err)
	}
	return port, nil
}

// walk calls visit for every mapping below node.
func walk(node any, visit func(map[string]any)) {
	switch node := node.(type) {
	case map[string]any:
		visit(node)
		for _, value := range node {
			walk(value, visit)
		}
	case []any:
		for _, value := range node {
			walk(value, visit)
		}
	}
}
