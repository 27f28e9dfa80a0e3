package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/pb/sidehook/inbox/v1/inboxv1connect"
	"github.com/sidehook/sidehook/sidecar/envoytest"
)

// setup says what a stack differs in from the usual one.
type setup struct {
	// sources is the YAML of extauthz.sources, each line indented by two; FOLDER in it is the stack's folder, APP the
	// app's address, LISTEN Envoy's where listen is set. Empty: usualSources.
	sources string
	// open is the YAML of extauthz.open. Empty: nothing is open.
	open string
	// more is YAML at the top level.
	more string
	// tcp has the gate listen on a port instead of a Unix socket.
	tcp bool
	// envoy changes Envoy's configuration.
	envoy func(bootstrap string) string
	// listen is Envoy's address. Empty: a port of its own choice, another one after a restart.
	listen string
	// prepare runs when the folder is there and nothing else is.
	prepare func(*stack)
	// workers of Envoy. Zero: one.
	workers int
	// disk is the folder in which the store lies. Empty: the stack's.
	disk string
	// limit is store.limit. Empty: the default.
	limit string
}

// stack is an app behind a gate behind an Envoy.
type stack struct {
	t      *testing.T
	setup  setup
	folder string // sockets, secrets, store; its path is short, for that of a socket has at most 104 bytes
	logs   string // kept with -artifacts
	config string
	app    *app
	gate   *gate
	envoy  *envoytest.Envoy
	url    string // of Envoy's listener
	admin  inboxv1connect.InboxServiceClient
}

// start runs a stack for one test and ends it with the test.
func start(t *testing.T, s setup) *stack {
	t.Helper()
	envoytest.Need(t)
	folder, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	x := &stack{t: t, setup: s, folder: folder, logs: t.ArtifactDir(), config: filepath.Join(folder, "sidehook.yaml")}
	t.Cleanup(func() { _ = os.RemoveAll(folder) }) // the last to run: everything that writes there has ended
	x.app = startApp(t)
	x.admin = inboxv1connect.NewInboxServiceClient(unixClient(x.socket("admin")), "http://localhost")
	x.writeSecrets()
	if s.prepare != nil {
		s.prepare(x)
	}
	x.writeConfig()
	x.startGate()
	x.startEnvoy()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the gate's log:\n%s", tail(filepath.Join(x.logs, "sidehook.log"), 30))
			t.Logf("end of Envoy's log: %s", x.envoy.LogTail(10))
		}
	})
	return x
}

// socket is the path of a Unix socket of the stack.
func (x *stack) socket(name string) string { return filepath.Join(x.folder, name+".sock") }

func (x *stack) writeConfig() {
	x.t.Helper()
	listen := "unix:" + x.socket("gate")
	if x.setup.tcp {
		listen = freeAddr(x.t)
	}
	sources := x.setup.sources
	if sources == "" {
		sources = usualSources
	}
	open := x.setup.open
	if open == "" {
		open = "[]"
	}
	sources = strings.NewReplacer("APP", x.app.addr, "LISTEN", x.setup.listen).Replace(sources)
	x.write("sidehook.yaml", fmt.Sprintf(`
store:
  bolt: {path: %s/store, volume: DURABLE}
  limit: %s
extauthz:
  listen: %s
  open: %s
  sources:
%s
admin: {listen: "unix:%s"}
health: {listen: "unix:%s"}
%s
`, cmp.Or(x.setup.disk, x.folder), cmp.Or(x.setup.limit, "0"), listen, open, strings.Trim(sources, "\n"), x.socket("admin"), x.socket("health"), x.setup.more))
}

// write puts a file into the stack's folder, replacing it in one step; FOLDER in it is the folder.
func (x *stack) write(name, content string) {
	x.t.Helper()
	path := filepath.Join(x.folder, name)
	content = strings.ReplaceAll(content, "FOLDER", x.folder)
	if err := errors.Join(os.WriteFile(path+".new", []byte(content), 0o600), os.Rename(path+".new", path)); err != nil {
		x.t.Fatal(err)
	}
}

// sidehook runs a command of the binary and returns what it prints.
func (x *stack) sidehook(args ...string) string {
	x.t.Helper()
	path, err := binary()
	if err != nil {
		x.t.Fatal(err)
	}
	var out, problems strings.Builder
	cmd := exec.CommandContext(x.t.Context(), path, args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		x.t.Fatalf("sidehook %s: %v: %s", strings.Join(args, " "), err, problems.String())
	}
	return out.String()
}

// startGate starts the binary and waits until it is ready.
func (x *stack) startGate() {
	x.t.Helper()
	path, err := binary()
	if err != nil {
		x.t.Fatal(err)
	}
	g, err := startGate(x.t.Context(), path, x.config, filepath.Join(x.logs, "sidehook.log"), x.socket("health"))
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = g.kill() })
	x.gate = g
}

// startEnvoy starts Envoy with the configuration that the binary prints.
func (x *stack) startEnvoy() {
	x.t.Helper()
	listen := x.setup.listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	bootstrap := x.sidehook("envoy", "-c", x.config, "--bootstrap", "--listen", listen, "--app", x.app.addr, "--envoy-admin", "none")
	if x.setup.envoy != nil {
		changed := x.setup.envoy(bootstrap)
		if changed == bootstrap {
			x.t.Fatal("the change of Envoy's configuration changes nothing")
		}
		bootstrap = changed
	}
	folder := filepath.Join(x.logs, "envoy")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		x.t.Fatal(err)
	}
	e, err := envoytest.Start(x.t.Context(), envoytest.Options{Bootstrap: []byte(bootstrap), Folder: folder, Concurrency: x.setup.workers})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = e.Kill() })
	addr, err := e.Addr(x.t.Context(), "inbound")
	if err != nil {
		x.t.Fatal(err)
	}
	x.envoy, x.url = e, "http://"+addr
}

// event returns the inbox's record of an event, nil when it has none.
func (x *stack) event(source, id string) *inboxv1.Event { return x.detail(source, id).GetEvent() }

// detail returns the record of an event with its attempts, headers and body, nil when the inbox has none.
func (x *stack) detail(source, id string) *inboxv1.GetEventResponse {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	res, err := x.admin.GetEvent(ctx, connect.NewRequest(&inboxv1.GetEventRequest{Source: source, Id: id, IncludeBody: true}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return res.Msg
}

// awaitState waits until an event is in a state.
func (x *stack) awaitState(source, id string, want inboxv1.EventState) {
	x.t.Helper()
	eventually(x.t, fmt.Sprintf("event %s of %s is %v", id, source, want), func() bool {
		return x.event(source, id).GetState() == want
	})
}

// awaitFree waits until the next request of an event would pass: nothing is left of its claim, or it is released.
func (x *stack) awaitFree(source, id string) {
	x.t.Helper()
	eventually(x.t, fmt.Sprintf("event %s of %s is free", id, source), func() bool {
		e := x.event(source, id)
		return e == nil || e.GetState() == inboxv1.EventState_EVENT_STATE_RELEASED
	})
}

// events counts all that the inbox holds.
func (x *stack) events() int64 {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	res, err := x.admin.Summarize(ctx, connect.NewRequest(&inboxv1.SummarizeRequest{}))
	if err != nil {
		x.t.Fatal(err)
	}
	var n int64
	for _, source := range res.Msg.GetSources() {
		for _, state := range source.GetStates() {
			n += state.GetCount()
		}
	}
	return n
}
