package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sidehook/sidehook/sidecar/envoytest"
)

// destination is an endpoint of a benchmark's sidehook.
type destination struct {
	id, addr  string // addr is the receiver's host:port
	types     string
	maxFlight int
}

// configureOutbound writes the config of a sidehook that only sends, to ds, into folder, with free addresses. inFlight
// bounds the attempts to all endpoints at one time.
func configureOutbound(folder string, inFlight int, ds ...destination) (*sidehook, error) {
	addrs, err := envoytest.FreeAddrs(3)
	if err != nil {
		return nil, err
	}
	s := &sidehook{folder: folder, config: filepath.Join(folder, "sidehook.yaml"),
		intake: addrs[0], admin: addrs[1], health: addrs[2]}
	if err := os.MkdirAll(filepath.Join(folder, "store"), 0o700); err != nil {
		return nil, err
	}
	endpoints, ports := []any{}, []any{}
	for i, d := range ds {
		port, err := portOf(d.addr)
		if err != nil {
			return nil, err
		}
		key := filepath.Join(folder, d.id+".secret")
		secret := "whsec_" + base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "sidehook-bench-key-no-%010d", i))
		if err := os.WriteFile(key, []byte(secret), 0o600); err != nil {
			return nil, err
		}
		ports = append(ports, port)
		endpoints = append(endpoints, map[string]any{
			"id":          d.id,
			"url":         "http://" + d.addr + hookPath,
			"event_types": []any{d.types},
			"secrets":     []any{map[string]any{"file": key}},
			"delivery":    map[string]any{"max_in_flight": d.maxFlight},
		})
	}
	config := map[string]any{
		"store": map[string]any{"bolt": map[string]any{"path": filepath.Join(folder, "store"), "volume": "DURABLE"}},
		"egress": map[string]any{
			"listen":    s.intake,
			"filter":    map[string]any{"allow": []any{"127.0.0.1/32"}, "allow_http": true, "ports": ports},
			"endpoints": endpoints,
		},
		"limits": map[string]any{"egress_in_flight": inFlight, "endpoint_deliveries": 10_000_000},
		"admin":  map[string]any{"listen": s.admin},
		"health": map[string]any{"listen": s.health},
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, err
	}
	return s, os.WriteFile(s.config, text, 0o600)
}

// egress holds back or lets go all deliveries: verb is pause or resume.
func (s *sidehook) egress(ctx context.Context, binary, verb string) error {
	out, err := exec.CommandContext(ctx, binary, "egress", verb, "-c", s.config).CombinedOutput()
	if err != nil {
		return fmt.Errorf("egress %s: %w: %s", verb, err, out)
	}
	return nil
}

// kill ends the process with SIGKILL.
func (s *sidehook) kill() error {
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_ = s.cmd.Wait() // it was killed, and says so
	return nil
}

// runRole runs a child that ends by itself, and reads its loadResult.
func runRole(ctx context.Context, role string, args ...string) (r loadResult, err error) {
	c, err := startRole(ctx, role, args...)
	if err != nil {
		return r, err
	}
	text, err := c.line()
	if err != nil {
		return r, err
	}
	return r, errors.Join(json.Unmarshal([]byte(text), &r), c.stop())
}

// post has events posted to the intake and expects each to be accepted.
func (s *sidehook) post(ctx context.Context, args ...string) (loadResult, error) {
	r, err := runRole(ctx, "post", append([]string{"-addr", s.intake}, args...)...)
	if err != nil {
		return r, err
	}
	if r.Status[202] != r.Requests {
		return r, fmt.Errorf("of %d events not all were accepted: %v", r.Requests, r.Status)
	}
	return r, nil
}

// startReceiver starts a receiver child and returns its address.
func startReceiver(ctx context.Context, args ...string) (*child, string, error) {
	c, err := startRole(ctx, "receiver", args...)
	if err != nil {
		return nil, "", err
	}
	addr, err := c.line()
	return c, addr, err
}

// waitReceived waits until a receiver child has got n requests since the last look, and returns what it saw of them.
func waitReceived(ctx context.Context, c *child, n int) (sum received, err error) {
	deadline := time.Now().Add(deliverTimeout)
	for {
		r, err := c.look()
		if err != nil {
			return sum, err
		}
		sum.add(r)
		switch {
		case sum.Count >= n:
			return sum, nil
		case time.Now().After(deadline):
			return sum, fmt.Errorf("only %d of %d deliveries arrived within %s", sum.Count, n, deliverTimeout)
		}
		select {
		case <-ctx.Done():
			return sum, context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}

// lookEvery is the pause between two looks at a receiver.
const lookEvery = 20 * time.Millisecond

// add joins what was seen in two looks; percentiles are the worst of both.
func (r *received) add(o received) {
	r.Refused += o.Refused
	r.Disorder += o.Disorder
	if o.Count == 0 {
		return
	}
	if r.First == 0 {
		r.First = o.First
	}
	r.Last = o.Last
	r.Count += o.Count
	r.Open = max(r.Open, o.Open)
	r.P50, r.P99 = max(r.P50, o.P50), max(r.P99, o.P99)
	r.IDs = append(r.IDs, o.IDs...)
}
