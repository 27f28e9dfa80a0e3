package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// newDisk makes a disk of so many bytes, a tmpfs that ends with the test. It is in the mount namespace of a process that does
// nothing else, and reached through that process's root.
func newDisk(t *testing.T, size int) (folder string) {
	t.Helper()
	at := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", fmt.Sprintf(`mount -t tmpfs -o size=%d,mode=700 none "$0" && echo mounted && exec cat`, size), at)
	cmd.SysProcAttr = dieWithParent()
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems strings.Builder
	cmd.Stderr = &problems
	switch err := cmd.Start(); {
	// What the kernel says to whom it grants no namespaces: none at all (a limit of 0), or none to this user.
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSPC):
		t.Skipf("no process may have a disk of its own here: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // cat ends, and the disk with it
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(stdout, make([]byte, len("mounted\n"))); err != nil {
		t.Fatalf("mount: %v: %s", err, problems.String())
	}
	return filepath.Join("/proc", fmt.Sprint(cmd.Process.Pid), "root", at)
}

// TestOutboundDiskFull fills the disk under a running sidehook. Posts are answered 503 then, and nothing of them is kept; a
// sidehook that is killed starts again; and when there is room again events are accepted again and what was accepted
// before is delivered, without a restart. Nothing that a receiver took is sent again, though its record had to wait: as
// long as not even that finds a free page, an attempt that has ended holds its slot.
func TestOutboundDiskFull(t *testing.T) {
	t.Parallel()
	disk := newDisk(t, 32<<20)
	var mu sync.Mutex
	taken := map[string]int{}
	var open atomic.Bool
	customer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if !open.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		taken[r.Header.Get("Webhook-Id")]++
	}))
	t.Cleanup(customer.Close)
	u, err := url.Parse(customer.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := prepareOutbound(t)
	o.store = filepath.Join(disk, "store")
	o.run(fmt.Sprintf(`
  filter: {allow: [127.0.0.1/32], allow_http: true, ports: [%s]}
  delivery: {waits: [%s1s]}
  endpoints:
  - {id: a, url: "%s", secrets: [{file: FOLDER/endpoint-a}]}`, u.Port(), strings.Repeat("1s, ", 90), customer.URL), "")

	accepted := map[string]bool{}
	post := func(id string, size int) (int, string) {
		t.Helper()
		body := fmt.Sprintf(`{"id":%q,"type":"a","data":%q}`, id, strings.Repeat("x", size))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/events", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := o.intake.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode == http.StatusAccepted {
			accepted[id] = true
		}
		return res.StatusCode, res.Header.Get("Retry-After") + " " + string(text)
	}
	for i := range 40 {
		if code, answer := post(fmt.Sprintf("before_%d", i), 100<<10); code != http.StatusAccepted {
			t.Fatalf("on an empty disk: %d %s", code, answer)
		}
	}

	filler := filepath.Join(disk, "filler")
	f, err := os.OpenFile(filler, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
	if !strings.Contains(err.Error(), "no space left") {
		t.Fatal(err)
	}

	for _, when := range []string{"full", "again"} {
		refused := 0
		for i := range 50 {
			id := fmt.Sprintf("%s_%d", when, i)
			switch code, answer := post(id, 200<<10); code {
			case http.StatusAccepted: // there were free pages left within the file
			case http.StatusServiceUnavailable:
				refused++
				if strings.HasPrefix(answer, " ") || !strings.Contains(answer, "urn:sidehook:problem:store_full") {
					t.Errorf("%s: %s", id, answer)
				}
			default:
				t.Errorf("%s: %d %s", id, code, answer)
			}
		}
		if refused < 25 {
			t.Fatalf("%d of 50 posts were refused: the disk is not full", refused)
		}
		if when == "full" {
			if err := o.gate.kill(); err != nil {
				t.Fatal(err)
			}
			o.start()
		}
	}
	open.Store(true)
	if err := os.Truncate(filler, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "events are accepted again", func() bool {
		code, answer := post("after", 100<<10)
		if code != http.StatusAccepted && code != http.StatusServiceUnavailable {
			t.Fatalf("%d %s", code, answer)
		}
		return code == http.StatusAccepted
	})
	var ids []string
	for id := range accepted {
		ids = append(ids, id)
	}
	o.eventuallyDelivered(t, ids...)
	mu.Lock()
	defer mu.Unlock()
	for id, n := range taken {
		if n != 1 || !accepted[id] {
			t.Errorf("%s was taken %d times; accepted: %v", id, n, accepted[id])
		}
	}
}
