package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
)

const done = inboxv1.EventState_EVENT_STATE_DONE

// Case OPEN 86: a gate that is gone lets nothing pass, also not where no signature is needed, and says "later". What it
// knew it knows again when it is back.
func TestGateIsKilled(t *testing.T) {
	t.Parallel()
	x := start(t, setup{open: "[{path_prefix: /api}]"})
	before := contact(t, "msg_before")
	if got := x.post(before); got.body != "thanks" {
		t.Fatalf("the sender got %v", got)
	}
	x.awaitState("standard", "msg_before", done)
	if err := x.gate.kill(); err != nil {
		t.Fatal(err)
	}
	calls := len(x.app.all())
	for _, m := range []message{before, contact(t, "msg_during"), {method: http.MethodGet, target: "/api/orders"}, {method: http.MethodGet, target: "/"}} {
		if got := x.post(m); got.code != http.StatusServiceUnavailable {
			t.Errorf("%s without a gate got %v, want 503", m.target, got)
		}
	}
	if n := len(x.app.all()) - calls; n != 0 {
		t.Errorf("the app was called %d times without a gate", n)
	}
	x.startGate()
	eventually(t, "Envoy finds the gate again", func() bool { return x.post(contact(t, "msg_after")).code == http.StatusOK })
	if got := x.post(before); !got.is(http.StatusOK, "duplicate") {
		t.Errorf("what was done before the kill got %v, want 200 duplicate", got)
	}
}

// Case ENVOY 88: a Check that lasts longer than Envoy waits (a disk that hangs, here a process that stands still) is
// refused with 503. Its claim does not outlive it: the next try passes.
func TestCheckThatLastsTooLong(t *testing.T) {
	t.Parallel()
	x := start(t, setup{
		sources: `
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/standard}], lease: 1h}`,
		envoy: func(b string) string { return replaceOnce(t, b, "timeout: 5s", "timeout: 0.5s") },
	})
	if got := x.post(contact(t, "msg_first")); got.body != "thanks" {
		t.Fatalf("the sender got %v", got)
	}
	if err := x.gate.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the gate stands still", func() bool { return stopped(t, x.gate.process.Pid) })
	m := contact(t, "msg_hung")
	got := x.post(m)
	if err := x.gate.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got.code != http.StatusServiceUnavailable {
		t.Fatalf("the sender got %v, want 503", got)
	}
	if n := len(x.app.of("msg_hung")); n != 0 {
		t.Fatalf("the app was called %d times for a refused request", n)
	}
	eventually(t, "the next try passes", func() bool { return x.post(m).body == "thanks" })
	if n := len(x.app.of("msg_hung")); n != 1 {
		t.Errorf("the app was called %d times, want once", n)
	}
}

// SIGTERM under load: nothing that a sender saw accepted is forgotten, and the process ends well.
func TestGateStopsUnderLoad(t *testing.T) {
	t.Parallel()
	x := start(t, setup{workers: 2})
	x.app.answer(slow(20 * time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var accepted sync.Map // ids that got 200
	var count atomic.Int64
	var senders sync.WaitGroup
	for worker := range 8 {
		senders.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("msg_%d_%d", worker, i)
				got, err := send(ctx, client, x.url, contact(t, id))
				switch {
				case err != nil: // the end of the test
				case got.code == http.StatusOK:
					accepted.Store(id, true)
					count.Add(1)
				case got.code != http.StatusServiceUnavailable:
					t.Errorf("%s got %v, want 200 or 503", id, got)
				}
			}
		})
	}
	eventually(t, "load", func() bool { return count.Load() > 100 })
	began := time.Now()
	if err := x.gate.stop(); err != nil {
		t.Errorf("the gate ended with %v after %v, want exit 0", err, time.Since(began))
	}
	cancel()
	senders.Wait()
	x.startGate()
	accepted.Range(func(id, _ any) bool {
		if e := x.event("standard", id.(string)); e.GetState() != done {
			t.Errorf("%s was accepted and is %v", id, e)
		}
		if n := len(x.app.of(id.(string))); n != 1 {
			t.Errorf("%s was accepted and the app was called %d times", id, n)
		}
		return true
	})
}

// Case SECRET 37: a secret is rotated by adding the new one, having the sender change over, and removing the old one.
// Nothing is refused on the way, and what was removed is refused in the end.
func TestSecretIsRotatedUnderLoad(t *testing.T) {
	t.Parallel()
	const first, second, third = standardSecret, otherSecret, "whsec_Z1h5dHJld3F6eGN2Ym5tYXNkZmdoamts"
	x := start(t, setup{
		workers: 2,
		sources: `
  - {name: standard, match: {path_prefix: /webhooks/standard}, provider: standard-webhooks, secrets: [{file: FOLDER/volume/current}, {file: FOLDER/volume/next}]}`,
		prepare: func(x *stack) { x.swapVolume("..1", first, second) },
	})
	var secret atomic.Value
	secret.Store(first)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var count atomic.Int64
	var senders sync.WaitGroup
	for worker := range 4 {
		senders.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				m := standard(t, "/webhooks/standard", fmt.Sprintf("msg_%d_%d", worker, i), []byte(`{}`), time.Now(), secret.Load().(string))
				got, err := send(ctx, client, x.url, m)
				if err == nil && got.body != "thanks" {
					t.Errorf("%s got %v", m.header.Get("Webhook-Id"), got)
				}
				count.Add(1)
			}
		})
	}
	more := func(n int64) {
		t.Helper()
		until := count.Load() + n
		eventually(t, "load", func() bool { return count.Load() >= until })
	}
	more(200)
	secret.Store(second)
	more(200)
	loaded := x.loadTime()
	x.swapVolume("..2", second, third)
	eventually(t, "the new files are read", func() bool { return x.loadTime().After(loaded) })
	more(200)
	secret.Store(third)
	more(400)
	cancel()
	senders.Wait()
	if got := x.post(standard(t, "/webhooks/standard", "msg_removed", []byte(`{}`), time.Now(), first)); !got.is(http.StatusUnauthorized, "bad_signature") {
		t.Errorf("a removed secret got %v, want 401 bad_signature", got)
	}
}

// swapVolume lays out two secrets as Kubernetes does: the files are links through ..data, which is swapped in one step.
func (x *stack) swapVolume(version, current, next string) {
	x.t.Helper()
	folder := filepath.Join(x.folder, "volume")
	if err := os.MkdirAll(filepath.Join(folder, version), 0o700); err != nil {
		x.t.Fatal(err)
	}
	x.write(filepath.Join("volume", version, "current"), current+"\n")
	x.write(filepath.Join("volume", version, "next"), next+"\n")
	for _, name := range []string{"current", "next"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)); err != nil && !errors.Is(err, os.ErrExist) {
			x.t.Fatal(err)
		}
	}
	link := filepath.Join(folder, "..new")
	if err := errors.Join(os.Symlink(version, link), os.Rename(link, filepath.Join(folder, "..data"))); err != nil {
		x.t.Fatal(err)
	}
}

// loadTime is when the configuration in force was taken into use.
func (x *stack) loadTime() time.Time {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	res, err := x.admin.GetStatus(ctx, connect.NewRequest(&inboxv1.GetStatusRequest{}))
	if err != nil {
		x.t.Fatal(err)
	}
	return res.Msg.GetConfig().GetLoadTime().AsTime()
}
