package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// patience bounds what a test waits for; it is far above what anything here takes.
const patience = 20 * time.Second

// watched is a watcher that runs on a configuration in a folder, and what it said.
type watched struct {
	*Watcher
	path    string
	applied chan *Config
	changes chan []Change
	failed  chan error
}

// watch starts a watcher of the configuration at path; it ends with the test.
func watch(t *testing.T, path string, poll time.Duration) *watched {
	t.Helper()
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{path: path, applied: make(chan *Config, 16), changes: make(chan []Change, 16), failed: make(chan error, 16)}
	w.Watcher = NewWatcher(WatcherConfig{
		Running: c, Poll: poll,
		Apply:  func(c *Config, changes []Change) { w.changes <- changes; w.applied <- c },
		Failed: func(err error) { w.failed <- err },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v after its context ended, want nil", err)
		}
	})
	return w
}

// next waits for the next snapshot.
func (w *watched) next(t *testing.T) *Config {
	t.Helper()
	select {
	case c := <-w.applied:
		return c
	case err := <-w.failed:
		t.Fatalf("the change was refused: %v", err)
	case <-time.After(patience):
		t.Fatal("the change was not seen")
	}
	return nil
}

// refused waits for the next refusal.
func (w *watched) refused(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.failed:
		return err
	case c := <-w.applied:
		t.Fatalf("it was taken: %v", c.Message)
	case <-time.After(patience):
		t.Fatal("the change was not seen")
	}
	return nil
}

// replace puts a file in the place of another in one step, as careful writers do.
func replace(t *testing.T, path, content string) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// oneSource is a configuration of one source with these secrets.
func oneSource(store string, secrets ...string) string {
	var list []string
	for _, s := range secrets {
		list = append(list, fmt.Sprintf("{file: %s}", s))
	}
	return fmt.Sprintf("store: {bolt: {path: %s}}\nextauthz:\n  open: [{path_prefix: /}]\n  sources:\n"+
		"  - {name: a, match: {path_prefix: /a}, %s, secrets: [%s]}\n", store, scheme, strings.Join(list, ", "))
}

// accepts reports whether the first source of c takes a request that was signed with secret.
func accepts(t *testing.T, c *Config, secret string) bool {
	t.Helper()
	m := signedWith(secret)
	return c.Gate.Sources[0].Verifier.Verify(&m, c.Gate.Sources[0].Keys, time.Now(), time.Minute).Reason == signature.ReasonOK
}

func TestWatchFiles(t *testing.T) {
	t.Parallel()
	const first, second = "the-first-secret-of-the-source", "the-second-secret-of-the-source"
	dir := t.TempDir()
	key := writeFile(t, dir, "secrets/key", first)
	path := writeFile(t, dir, "config/sidehook.yaml", oneSource("/s", key))
	w := watch(t, path, time.Hour)

	t.Log("a new secret in its file")
	replace(t, key, second+"\n")
	c := w.next(t)
	if accepts(t, c, first) || !accepts(t, c, second) {
		t.Error("the new secret is not the one that counts")
	}
	if changes := <-w.changes; len(changes) != 1 || changes[0].Path != key || changes[0].NeedsRestart {
		t.Errorf("changes = %v, want that %s changed", changes, key)
	}

	t.Log("a secret that turned bad leaves the old one in place")
	replace(t, key, second+" \n")
	err := w.refused(t)
	if !strings.Contains(err.Error(), `source "a"`) || !strings.Contains(err.Error(), "white space") || strings.Contains(err.Error(), second) {
		t.Errorf("the refusal is %v", err)
	}

	t.Log("and one that is well again is taken")
	replace(t, key, first)
	if c := w.next(t); !accepts(t, c, first) {
		t.Error("the secret is not taken")
	}
	<-w.changes

	t.Log("an invalid configuration leaves the old one")
	replace(t, path, "extauthz: {sources: 1}\n")
	if err := w.refused(t); len(Findings(err)) == 0 {
		t.Errorf("the refusal names no place: %v", err)
	}

	t.Log("a secret's file that is not there yet is waited for, in a folder that was not watched before")
	later := filepath.Join(dir, "later", "key")
	if err := os.Mkdir(filepath.Dir(later), 0o755); err != nil {
		t.Fatal(err)
	}
	replace(t, path, oneSource("/s", key, later))
	if err := w.refused(t); !errors.Is(err, os.ErrNotExist) && !strings.Contains(err.Error(), "no such file") {
		t.Errorf("the refusal is %v", err)
	}
	writeFile(t, dir, "later/key", second)
	if c := w.next(t); !accepts(t, c, first) || !accepts(t, c, second) {
		t.Error("both secrets should count")
	}
}

// Kubernetes projects a Secret as links through ..data, which it swaps in one rename.
func TestWatchSymlinkSwap(t *testing.T) {
	t.Parallel()
	const first, second = "the-first-secret-of-the-source", "the-second-secret-of-the-source"
	dir := t.TempDir()
	mount := filepath.Join(dir, "mount")
	writeFile(t, mount, "..1/key", first)
	writeFile(t, mount, "..1/sidehook.yaml", oneSource("/s", filepath.Join(mount, "key")))
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", filepath.Join(mount, "..data"))
	link("..data/key", filepath.Join(mount, "key"))
	link("..data/sidehook.yaml", filepath.Join(mount, "sidehook.yaml"))
	w := watch(t, filepath.Join(mount, "sidehook.yaml"), time.Hour)

	secrets := []string{first, second}
	for i := 2; i < 6; i++ {
		secret := secrets[(i+1)%2]
		version := fmt.Sprintf("..%d", i)
		writeFile(t, mount, version+"/key", secret)
		writeFile(t, mount, version+"/sidehook.yaml", oneSource("/s", filepath.Join(mount, "key")))
		link(version, filepath.Join(mount, "..data_tmp"))
		if err := os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(mount, fmt.Sprintf("..%d", i-1))); err != nil {
			t.Fatal(err)
		}
		for c := w.next(t); !accepts(t, c, secret); {
			c = w.next(t) // half way through the swap the old one may have been read once more
		}
	}
}

// Where no notice comes the files are looked at all the same.
func TestWatchPoll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := writeFile(t, dir, "key", strongSecret)
	path := writeFile(t, dir, "sidehook.yaml", oneSource("/s", key))
	synctest.Test(t, func(t *testing.T) {
		c, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		var applied, failed atomic.Int32
		w := NewWatcher(WatcherConfig{
			Running: c,
			Apply:   func(*Config, []Change) { applied.Add(1) },
			Failed:  func(error) { failed.Add(1) },
		})
		w.newNotify = nil // notices come from outside the bubble
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()

		expect := func(when string, a, f int32) {
			t.Helper()
			synctest.Wait()
			if applied.Load() != a || failed.Load() != f {
				t.Errorf("%s: applied %d times, failed %d times, want %d and %d", when, applied.Load(), failed.Load(), a, f)
			}
		}
		<-time.After(10 * DefaultPoll)
		expect("nothing changed", 0, 0)
		replace(t, key, "another-secret-of-some-length")
		<-time.After(DefaultPoll)
		expect("the secret changed", 1, 0)
		replace(t, key, "")
		<-time.After(10 * DefaultPoll)
		expect("the secret is bad for long", 1, 1)
		replace(t, key, strongSecret)
		<-time.After(DefaultPoll)
		expect("the secret is back", 2, 1)
		w.Reload()
		expect("asked to", 3, 1)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
}

// What is read at start only stays as it is, and is said at each reload.
func TestWatchNeedsRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := writeFile(t, dir, "key", strongSecret)
	path := writeFile(t, dir, "sidehook.yaml", oneSource("/s", key))
	w := watch(t, path, time.Hour)
	replace(t, path, strings.NewReplacer("/s}", "/other}", "name: a", "name: b", "open:", "listen: 127.0.0.1:1\n  open:").Replace(oneSource("/s", key))+
		"limits: {source_percent: 10}\nadmin: {listen: 127.0.0.1:2}\nhealth: {listen: \":3\"}\nlog: {level: DEBUG, format: TEXT}\n")
	for range 2 {
		c, changes := w.next(t), <-w.changes
		if c.Store.Path != "/s" || c.Gate.Listen != DefaultGateListen || c.Admin.Listen != DefaultAdminListen ||
			c.Health.Listen != DefaultHealthListen || c.Limits.SourcePercent != DefaultSourcePercent || c.Log.Text {
			t.Errorf("what is read at start changed: %+v", c)
		}
		if c.Gate.Sources[0].Name != "b" || c.Log.Level != -4 {
			t.Errorf("what can change did not: %s, %v", c.Gate.Sources[0].Name, c.Log.Level)
		}
		restart := map[string]bool{}
		for _, change := range changes {
			if change.NeedsRestart {
				restart[change.Path] = true
			}
		}
		for _, p := range []string{"store.bolt.path", "limits.source_percent", "extauthz.listen", "admin.listen", "health.listen", "log.format"} {
			if !restart[p] {
				t.Errorf("it is not said that %s needs a restart: %v", p, changes)
			}
			delete(restart, p)
		}
		if len(restart) > 0 {
			t.Errorf("restart is asked for without need: %v", restart)
		}
		w.Reload()
	}
}

// A body that could never pass is no configuration to run on, though the file is right for the next start.
func TestWatchBodyBeyondLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := writeFile(t, dir, "key", strongSecret)
	path := writeFile(t, dir, "sidehook.yaml", oneSource("/s", key)+"limits: {bodies_in_flight: 1Mi}\n")
	w := watch(t, path, time.Hour)
	replace(t, path, strings.Replace(oneSource("/s", key), "name: a", "name: a, max_body: 2Mi", 1)+"limits: {bodies_in_flight: 4Mi}\n")
	if err := w.refused(t); !strings.Contains(err.Error(), "limits.bodies_in_flight: the process runs with 1Mi") {
		t.Errorf("the refusal is %v", err)
	}
}

// Rotation under load (stripe-cli#361): requests signed with either secret go through while both are listed, and no
// reload drops one.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	const first, second = "the-first-secret-of-the-source", "the-second-secret-of-the-source"
	dir := t.TempDir()
	current, next := writeFile(t, dir, "current", first), writeFile(t, dir, "next", second)
	path := writeFile(t, dir, "sidehook.yaml", oneSource("/s", current, next))
	w := watch(t, path, time.Hour)
	c := w.cfg.Running
	old, fresh := signedWith(first), signedWith(second)
	swaps := 0
	for i := range 1000 {
		if i%100 == 50 {
			// The files change places: whichever is read first, both secrets stay listed.
			if swaps++; swaps%2 == 1 {
				replace(t, path, oneSource("/s", next, current))
			} else {
				replace(t, path, oneSource("/s", current, next))
			}
			c = w.next(t)
		}
		source := c.Gate.Sources[0]
		for key, m := range map[int]*signature.Message{0: &old, 1: &fresh} {
			verdict := source.Verifier.Verify(m, source.Keys, time.Now(), time.Minute)
			if want := (key + swaps) % 2; verdict.Reason != signature.ReasonOK || verdict.Key != want {
				t.Fatalf("request %d: %v by key %d, want ok by key %d", i, verdict.Reason, verdict.Key, want)
			}
		}
	}
	if swaps != 10 {
		t.Errorf("only %d swaps", swaps)
	}
}
