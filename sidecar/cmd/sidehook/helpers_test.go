package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/store"
	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/sidecar"
)

// exits runs `exits CODE PROGRAM ARGS…` and checks the exit code itself, where testscript's exec knows success only.
// `stdout` and `stderr` look at its streams afterwards.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// bulkEvents are the events of the source "bulk": more than the API's largest page.
const bulkEvents = 2500

// adminServer runs `adminserver`: it serves the admin API of a gate with two sources and an inbox with events, on
// $ADMIN (TCP) and, asking for the token in the file token, on $ADMIN_SOCKET.
func adminServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: adminserver")
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	ts.Defer(func() {
		cancel()
		running.Wait()
	})
	st, err := store.Open(ctx, store.Options{Folder: ts.MkAbs("store")})
	ts.Check(err)
	ts.Defer(func() { _ = st.Close() })
	inbox, err := extauthz.NewBoltInbox(extauthz.BoltInboxConfig{Store: st})
	ts.Check(err)
	running.Go(func() { _ = st.Run(ctx) })
	fillInbox(ctx, ts, inbox)

	sources, err := extauthz.NewSources([]*extauthz.Source{testSource("payments", "stripe"), testSource("chat", "slack")}, nil)
	ts.Check(err)
	gate, err := extauthz.New(extauthz.Config{Inbox: inbox, Sources: sources})
	ts.Check(err)
	service := extauthz.NewService(extauthz.ServiceConfig{Events: inbox, Sources: gate, Store: st, Status: testStatus(ts.MkAbs("unready"))})

	const token = "let-me-in-please"
	ts.Check(os.WriteFile(ts.MkAbs("token"), []byte(token+"\n"), 0o600))
	socket := ts.MkAbs("admin.sock")
	for _, l := range []struct {
		network, addr string
		token         string
	}{{"tcp", "127.0.0.1:0", ""}, {"unix", socket, token}} {
		listener, err := new(net.ListenConfig).Listen(ctx, l.network, l.addr)
		ts.Check(err)
		s := &http.Server{
			Handler:           sidecar.NewAdmin(sidecar.AdminConfig{Inbox: service, Token: func() []byte { return []byte(l.token) }}),
			ReadHeaderTimeout: 5 * time.Second,
		}
		running.Go(func() { _ = s.Serve(listener) })
		ts.Defer(func() { _ = s.Close() })
		if l.network == "tcp" {
			ts.Setenv("ADMIN", listener.Addr().String())
		}
	}
	ts.Setenv("ADMIN_SOCKET", "unix:"+socket)
}

func testSource(name, provider string) *extauthz.Source {
	return &extauthz.Source{
		Name:      name,
		Provider:  provider,
		Matches:   []extauthz.Match{{PathPrefix: "/" + name}},
		Enforce:   extauthz.EnforceOn,
		OnUnknown: extauthz.OnUnknownRetry,
		Lease:     time.Hour,
	}
}

// fillInbox claims events and settles some of them.
func fillInbox(ctx context.Context, ts *testscript.TestScript, inbox *extauthz.BoltInbox) {
	claim := func(source, id, eventType string, end extauthz.End) error {
		key := extauthz.Key{Source: source, ID: id}
		c, err := inbox.Claim(ctx, extauthz.ClaimRequest{Key: key, Lease: time.Hour, OnUnknown: extauthz.OnUnknownRetry, Type: eventType})
		if err == nil && end != 0 {
			err = inbox.Settle(ctx, key, c.Token, end, true)
		}
		return err
	}
	ts.Check(errors.Join(
		claim("payments", "evt_done", "invoice.paid", extauthz.EndDone),
		claim("payments", "evt_open", "invoice.paid", 0),
		claim("payments", "same", "invoice.void", extauthz.EndDone),
		claim("chat", "same", "message", extauthz.EndDone),
		claim("chat", "\x1b[2J 100%", "\u202etxt.exe", extauthz.EndDone), // clears a terminal; reads backwards
	))
	errs := make([]error, bulkEvents)
	var claims sync.WaitGroup
	for i := range bulkEvents {
		claims.Go(func() { errs[i] = claim("bulk", fmt.Sprintf("evt_%05d", i), "tick", extauthz.EndDone) })
	}
	claims.Wait()
	ts.Check(errors.Join(errs...))
}

// testStatus is a process that is ready while there is no file of that name.
func testStatus(unready string) func(context.Context) *inboxv1.GetStatusResponse {
	return func(context.Context) *inboxv1.GetStatusResponse {
		_, err := os.Stat(unready)
		return &inboxv1.GetStatusResponse{
			Version:   "v1.2.3",
			StartTime: timestamppb.New(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)),
			Uptime:    durationpb.New(90*time.Minute + 400*time.Millisecond),
			Ready:     errors.Is(err, os.ErrNotExist),
			Problems:  map[string]string{"disk_full": "no space left on the volume"},
			Config:    &inboxv1.ConfigStatus{File: "/etc/sidehook/sidehook.yaml", LoadTime: timestamppb.New(time.Date(2026, 5, 1, 12, 0, 1, 5e6, time.UTC))},
			Store:     &inboxv1.StoreStatus{Path: "/var/lib/sidehook", UsedBytes: 3 << 20, LimitBytes: 8 << 30},
		}
	}
}
