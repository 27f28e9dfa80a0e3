package sidecar

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/store"
	"github.com/sidehook/sidehook/internal/store/storetest"
	"github.com/sidehook/sidehook/sidecar/config"
)

const githubSecret = "It's a Secret to Everybody"

// outage is a gate with its worker, all but the listeners and the connections to the app, which is this program.
type outage struct {
	*testing.T
	*Sidecar
	end func()

	mu       sync.Mutex // covers all below
	down     bool
	refuses  bool             // it answers 500
	requests int              // while it was down
	taken    map[string][]int // the numbers of the events, by repository, as they came
}

// Send implements egress.Sender: it is the app.
func (o *outage) Send(_ context.Context, e *egress.Endpoint, ev *egress.Event, attempt int) egress.Result {
	r, err := o.gate.stored.request(e, ev, attempt, time.Now())
	if err != nil || r.Method != "POST" || r.Target != "/webhooks/github" || r.Host != "app.example" {
		o.Errorf("attempt %d of %s: %+v, %v", attempt, ev.ID, r, err)
	}
	time.Sleep(5 * time.Millisecond)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down {
		o.requests++
		return egress.Result{Outcome: egress.OutcomeConnectRefused}
	}
	if o.refuses {
		return egress.Result{Outcome: egress.OutcomeServerError, Status: 500}
	}
	var body struct {
		Number     int
		Repository struct{ ID int }
	}
	if err := json.Unmarshal(ev.Body, &body); err != nil {
		o.Error(err)
	}
	repository := fmt.Sprint(body.Repository.ID)
	o.taken[repository] = append(o.taken[repository], body.Number)
	return egress.Result{Outcome: egress.OutcomeDelivered, Status: 200}
}

// loadOutage reads a configuration whose one source is GitHub's in STORE, ordered by repository.
func loadOutage(t *testing.T, folder string) *config.Config {
	t.Helper()
	return loadGitHub(t, folder, "mode: STORE\n    delivery: {url: \"http://127.0.0.1:8080\", order_by: {json: repository.id}}")
}

// loadGitHub reads a configuration whose one source is GitHub's, with these lines on what becomes of its events.
func loadGitHub(t *testing.T, folder, mode string) *config.Config {
	t.Helper()
	file := filepath.Join(folder, "sidehook.yaml")
	text := fmt.Sprintf(`
store: {bolt: {path: %s, volume: DURABLE}}
extauthz:
  listen: 127.0.0.1:9191
  open: []
  sources:
  - name: code
    match: {path: /webhooks/github}
    provider: github
    secrets: [{value: %q}]
    %s
`, filepath.Join(folder, "store"), githubSecret, mode)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// openOutage runs it.
func openOutage(t *testing.T, cfg *config.Config) *outage {
	t.Helper()
	return openOutageOn(t, cfg, new(storetest.Faults))
}

// openOutageOn runs it on a disk with faults.
func openOutageOn(t *testing.T, cfg *config.Config, faults *storetest.Faults) *outage {
	t.Helper()
	o := &outage{
		T: t, taken: make(map[string][]int),
		Sidecar: &Sidecar{log: slog.New(slog.DiscardHandler), reg: prometheus.NewRegistry(), maxBody: minMessageBody},
	}
	o.current.Store(&loaded{cfg, time.Now()})
	o.metrics.register(o.reg, "")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	o.store, err = store.Open(t.Context(), store.Options{Folder: cfg.Store.Path, Commit: faults.Commit})
	check(err)
	o.gate, err = o.newGate(cfg)
	check(err)
	k := o.gate.stored
	k.dispatcher, err = egress.NewDispatcher(egress.DispatcherConfig{
		Outbox: k.outbox, Sender: o, Endpoints: func() *egress.Endpoints { return k.inForce.Load().endpoints },
	})
	check(err)
	k.outbox.SetChanges(k.dispatcher)
	life, endStore := context.WithCancel(context.Background())
	storeEnded := make(chan error, 1)
	go func() { storeEnded <- o.store.Run(life) }()
	k.begin(life, life)
	working, stop := context.WithCancel(life)
	run := append(k.workers(), k.deliver, o.gate.purger.Run)
	ended := make(chan error, len(run))
	for _, f := range run {
		go func() { ended <- f(working) }()
	}
	o.end = func() {
		t.Helper()
		o.gate.grpc.Stop(life)
		stop()
		for range run {
			check(<-ended)
		}
		endStore()
		check(<-storeEnded)
		k.wait()
		check(o.store.Close())
	}
	return o
}

// push has GitHub send an event of a repository, which is new.
func (o *outage) push(repository, number int) {
	o.Helper()
	if got := o.post(repository, number); got != "stored" {
		o.Errorf("event %d of repository %d got %q", number, repository, got)
	}
}

// post has GitHub send an event of a repository, as Envoy hands it on, and returns the word of the answer.
func (o *outage) post(repository, number int) string {
	o.Helper()
	return o.postUntil(o.Context(), repository, number)
}

// postUntil is post for as long as Envoy waits. The body's memory is used for something else once there is an answer.
func (o *outage) postUntil(ctx context.Context, repository, number int) string {
	o.Helper()
	body := fmt.Appendf(nil, `{"number":%d,"repository":{"id":%d}}`, number, repository)
	mac := hmac.New(sha256.New, []byte(githubSecret))
	mac.Write(body)
	id := fmt.Sprintf("%d-%d", repository, number)
	var headers []*corev3.HeaderValue
	for name, value := range map[string]string{
		":authority": "app.example", ":method": "POST", ":path": "/webhooks/github", ":scheme": "http", "content-type": "application/json",
		"content-length": fmt.Sprint(len(body)), "x-github-event": "push", "x-github-delivery": id,
		"x-hub-signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil)), "x-envoy-auth-partial-body": "false",
	} {
		headers = append(headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	res, err := o.gate.server.Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Id: id, Method: "POST", Path: "/webhooks/github", Host: "app.example", Scheme: "http", Protocol: "HTTP/1.1",
			Size: int64(len(body)), RawBody: body, HeaderMap: &corev3.HeaderMap{Headers: headers},
		}},
	}})
	copy(body, bytes.Repeat([]byte("x"), len(body)))
	var answer struct{ Status string }
	if err == nil {
		err = json.Unmarshal([]byte(res.GetDeniedResponse().GetBody()), &answer)
	}
	if err != nil || res.GetStatus().GetCode() != int32(codes.PermissionDenied) {
		o.Errorf("%s got %v, %v", id, res, err)
	}
	return answer.Status
}

// GitHub does not send again. The app is down for forty minutes, in which 3,000 events of many repositories come: none is lost,
// each repository's come in their order, and the attempts that the app misses meanwhile are few.
func TestStoredWhileTheAppIsDown(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cfg := loadOutage(t, folder)
	const repositories, each, lasts = 30, 100, 40 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		o := openOutage(t, cfg)
		o.down = true
		var senders sync.WaitGroup
		for r := range repositories {
			senders.Go(func() {
				for n := range each {
					o.push(r, n)
					time.Sleep(lasts / each)
				}
			})
		}
		senders.Wait()
		o.mu.Lock()
		o.down = false
		missed := o.requests
		o.mu.Unlock()
		// A probe every 30 s at the end, and one that is under way for each of the slots at the beginning.
		if least, most := 40, 100; missed < least || missed > most {
			t.Errorf("an app that was down for %v was called %d times, want %d to %d", lasts, missed, least, most)
		}
		time.Sleep(2 * time.Minute)
		o.mu.Lock()
		defer o.mu.Unlock()
		want := make([]int, each)
		for i := range want {
			want[i] = i
		}
		for r := range repositories {
			if got := o.taken[fmt.Sprint(r)]; !slices.Equal(got, want) {
				t.Errorf("the events of repository %d came as %v", r, got)
			}
		}
		states := map[egress.State]int64{}
		o.gate.stored.outbox.Totals(func(_ string, s egress.State, n egress.Count) { states[s] += n.Rows })
		if states[egress.StateDelivered] != repositories*each || states[egress.StateWaiting]+states[egress.StateDead] != 0 {
			t.Errorf("%v events by state, want %d delivered", states, repositories*each)
		}
		o.end()
		storetest.CheckFile(t, o.store.Path(), store.AllRows(&extauthz.RowCheck{}, store.RowsIn(egress.StoredSpace, &egress.RowCheck{})))
	})
}

// A source gets into STORE by a reload: its sender, who does not send again, is never told that it is not there yet.
func TestStoredFromTheReloadOn(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	pass, stored := loadGitHub(t, folder, "mode: PASS\n    accept_loss: true"), loadOutage(t, folder)
	synctest.Test(t, func(t *testing.T) {
		o := openOutage(t, pass)
		defer o.end()
		o.apply(stored, nil)
		for n := range 10 {
			o.push(1, n)
		}
		time.Sleep(time.Second)
		o.mu.Lock()
		defer o.mu.Unlock()
		if got := o.taken["1"]; len(got) != 10 || !slices.IsSorted(got) {
			t.Errorf("the app got %v", got)
		}
	})
}
