package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidehook/sidehook/egress/netguard"
)

// outboundFile is a configuration with one endpoint, whose secret is in a file.
func outboundFile(key string) string {
	return egressWith("endpoints: [{id: acme, url: 'https://hooks.acme.example/in', secrets: [{file: " + key + "}]}]\n")
}

// What a reload may change of the outbound half changes, and what is read at start only stays, and is said.
func TestWatchEgress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := writeFile(t, dir, "key", signing('a', 32))
	path := writeFile(t, dir, "sidehook.yaml", outboundFile(key))
	w := watch(t, path, time.Hour)

	replace(t, path, strings.NewReplacer("egress:\n", "keep: {log: 1d}\negress:\n  listen: 127.0.0.1:1\n  max_event: 1Ki\n", "DURABLE", "EPHEMERAL",
		"acme.example/in", "acme.example/out").Replace(outboundFile(key))+"limits: {egress_in_flight: 5}\n")
	c, changes := w.next(t), <-w.changes
	if e := c.Egress; e.Listen != DefaultEgressListen || c.Store.Volume != VolumeDurable || c.Limits.EgressInFlight != 512 {
		t.Errorf("what is read at start changed: %+v, %+v, %+v", e, c.Store, c.Limits)
	}
	if e := c.Egress; e.MaxEventBytes != 1<<10 || e.Endpoints[0].Target.RequestURI != "/out" || c.Keep.Log != 24*time.Hour {
		t.Errorf("what can change did not: %+v", e)
	}
	var restart []string
	for _, change := range changes {
		if change.NeedsRestart {
			restart = append(restart, change.Path)
		}
	}
	if want := []string{"store.bolt.volume", "limits.egress_in_flight", "egress.listen"}; !cmp.Equal(restart, want) {
		t.Errorf("a restart is asked for by %q, want %q", restart, want)
	}

	t.Log("a secret's file is a part of the configuration")
	replace(t, key, signing('b', 32))
	w.next(t)
	if changes := <-w.changes; len(changes) == 0 || changes[len(changes)-1].Path != key {
		t.Errorf("changes %v, want one of %s", changes, key)
	}

	t.Log("an event that could never be taken is no configuration to run on")
	replace(t, path, strings.Replace(outboundFile(key), "egress:\n", "egress:\n  max_event: 16Mi\n", 1)+"limits: {egress_bodies: 16Mi}\n")
	w.next(t)
	<-w.changes

	t.Log("the section comes and goes with its listener")
	replace(t, path, "store: {bolt: {path: /var/lib/sidehook, volume: DURABLE}}\n")
	if c := w.next(t); c.Egress == nil || len(c.Egress.Endpoints) != 1 || c.Message.GetEgress() == nil {
		t.Errorf("egress was taken out of a running process: %+v", c.Egress)
	}
}

// A process that was started with less room than an event may have cannot take it.
func TestWatchEventBeyondLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := writeFile(t, dir, "key", signing('a', 32))
	path := writeFile(t, dir, "sidehook.yaml", outboundFile(key)+"limits: {egress_bodies: 1Mi}\n")
	w := watch(t, path, time.Hour)
	replace(t, path, strings.Replace(outboundFile(key), "egress:\n", "egress:\n  max_event: 2Mi\n", 1)+"limits: {egress_bodies: 4Mi}\n")
	if err := w.refused(t); !strings.Contains(err.Error(), "limits.egress_bodies: the process runs with 1Mi") {
		t.Errorf("the refusal is %v", err)
	}
}

// The filters of a configuration tell what they refuse, those of a reload too.
func TestOnDenied(t *testing.T) {
	t.Parallel()
	var denied []netguard.Verdict
	c := mustParse(t, egressWith("filter: {enforce: REPORT}\n"), OnDenied(func(v netguard.Verdict, enforced bool) {
		if enforced {
			t.Errorf("%v is enforced", v)
		}
		denied = append(denied, v)
	}))
	// REPORT lets a private address pass, and says so.
	target, err := c.Egress.Filter.Check("https://10.0.0.1/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Egress.Filter.Resolve(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if len(denied) == 0 || denied[len(denied)-1] != netguard.VerdictPrivate {
		t.Errorf("denied %v, want the private address", denied)
	}
}
