package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
	"github.com/sidehook/sidehook/pb/sidehook/egress/v1/egressv1connect"
)

// churned are the endpoints that come, change and go: one of the configuration, two of the API.
const churned = 3

// TestOutboundCrashAmidChanges is TestOutboundCrash while everything about the outbound half changes at once: endpoints of the
// API are added, changed, rotated, disabled and removed, one of the configuration is removed, comes back, and gets another
// URL, and jobs redeliver and discard. What holds of the two endpoints that nobody touches holds all the same, and the store
// is sound after the last kill.
func TestOutboundCrashAmidChanges(t *testing.T) {
	t.Parallel()
	d := receive(t, 2+churned, "/a", "/b")
	u, err := url.Parse(d.customer.URL)
	if err != nil {
		t.Fatal(err)
	}
	configured := func(more string) string {
		return fmt.Sprintf(`
  filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s]}
  delivery: {waits: [100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms, 100ms], max_in_flight: %d}
  endpoints:
  - {id: a, url: "%s/a", secrets: [{file: FOLDER/endpoint-a}]}
  - {id: b, url: "%s/b", secrets: [{file: FOLDER/endpoint-b}]}%s`, u.Port(), outboundFlight, d.customer.URL, d.customer.URL, more)
	}
	third := func(path string) string {
		return "\n  - {id: third, url: \"" + d.customer.URL + path + "\", secrets: [{value: whsec_ZW5kcG9pbnQtYy1rZXktb2YtMzItYnl0ZXMtLi4uLi4=}]}"
	}
	o := startOutbound(t, configured(third("/third")), "")
	// reload puts other endpoints into the configuration, at one stroke: a start may read it at any time.
	reload := func(more string) {
		o.write("next.yaml", replaceOnce(t, o.yaml, strings.Trim(configured(third("/third")), "\n"), strings.Trim(configured(more), "\n")))
		if err := os.Rename(filepath.Join(o.folder, "next.yaml"), o.config); err != nil {
			t.Fatal(err)
		}
		if err := o.gate.process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	for app := range outboundApps {
		running.Go(func() { d.postAll(ctx, t, o, app) })
	}
	c := changer{egressv1connect.NewEgressServiceClient(unixClient(o.socket("admin")), "http://localhost"), d.customer.URL}
	for i := range churned - 1 {
		running.Go(func() { c.endpoints(ctx, fmt.Sprintf("added-%d", i)) })
	}
	running.Go(func() { c.jobs(ctx) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	for round := range *rounds {
		timer.Reset(rand.N(crashGap))
		<-timer.C
		reload([]string{"", third("/third"), third("/moved")}[round%3])
		timer.Reset(rand.N(crashGap))
		<-timer.C
		d.kill(t, o.gate, o.start)
	}
	cancel()
	running.Wait()
	eventually(t, "every accepted event is delivered to a and b", func() bool { return d.missing() == "" })
	d.check(t)

	if err := o.gate.kill(); err != nil {
		t.Fatal(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), path, "store", "check", "-c", o.config).CombinedOutput(); err != nil {
		t.Errorf("store check: %v\n%s", err, out)
	}
}

// each calls f again and again until ctx ends, at times at once and at times after a while.
func each(ctx context.Context, f func(i int)) {
	for i := 0; ; i++ {
		f(i)
		select {
		case <-ctx.Done():
			return
		case <-time.After(rand.N(40 * time.Millisecond)):
		}
	}
}

// changer changes what it can over the admin API. It minds no error: the process may be dead at any moment.
type changer struct {
	api      egressv1connect.EgressServiceClient
	customer string
}

// endpoints adds, changes and removes an endpoint.
func (c *changer) endpoints(ctx context.Context, id string) {
	spec := &egressv1.EndpointSpec{Url: c.customer + "/" + id}
	each(ctx, func(i int) {
		switch i % 7 {
		case 0:
			_, _ = c.api.AddEndpoint(ctx, connect.NewRequest(&egressv1.AddEndpointRequest{Id: id, Spec: spec}))
		case 1:
			_, _ = c.api.RotateEndpoint(ctx, connect.NewRequest(&egressv1.RotateEndpointRequest{Id: id, Overlap: durationpb.New(time.Duration(i%2) * time.Hour)}))
		case 2:
			_, _ = c.api.DisableEndpoint(ctx, connect.NewRequest(&egressv1.DisableEndpointRequest{Id: id}))
		case 3, 4:
			moved := &egressv1.EndpointSpec{Url: c.customer + "/" + id, EventTypes: []string{"*"}}
			_, _ = c.api.UpdateEndpoint(ctx, connect.NewRequest(&egressv1.UpdateEndpointRequest{Id: id, Spec: moved, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"url", "event_types"}}}))
		case 5:
			_, _ = c.api.EnableEndpoint(ctx, connect.NewRequest(&egressv1.EnableEndpointRequest{Id: id}))
		case 6:
			_, _ = c.api.RemoveEndpoint(ctx, connect.NewRequest(&egressv1.RemoveEndpointRequest{Id: id}))
		}
	})
}

// jobs redelivers what waits everywhere, and discards what waits at the endpoints that come and go.
func (c *changer) jobs(ctx context.Context) {
	each(ctx, func(i int) {
		waits := egressv1.DeliveryState_DELIVERY_STATE_WAITING
		if i%2 == 0 {
			_, _ = c.api.Redeliver(ctx, connect.NewRequest(&egressv1.RedeliverRequest{Rate: 10_000, Filter: &egressv1.Filter{State: waits}}))
			return
		}
		_, _ = c.api.Discard(ctx, connect.NewRequest(&egressv1.DiscardRequest{Filter: &egressv1.Filter{State: waits, Endpoint: "third"}}))
	})
}
