package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStoreDiskFull fills the disk under sources in STORE. Senders get 503, and nothing of an event is kept then; a sidehook that
// is killed starts again; with room again events are kept again, and all that was acknowledged comes to the app, once.
func TestStoreDiskFull(t *testing.T) {
	t.Parallel()
	disk := newDisk(t, 32<<20)
	x := start(t, setup{disk: disk, sources: standardIn("waits: [" + strings.Repeat("1s, ", 60) + "1s]")})
	x.app.answer(status(http.StatusInternalServerError))
	acknowledged := map[string]bool{}
	post := func(id string, size int) answer {
		t.Helper()
		got := x.post(standard(t, "/webhooks/standard", id, bytes.Repeat([]byte{'x'}, size), time.Now(), standardSecret))
		if got.is(http.StatusOK, "stored") {
			acknowledged[id] = true
		}
		return got
	}
	for i := range 20 {
		if got := post(fmt.Sprintf("before_%d", i), 100<<10); got.code != http.StatusOK {
			t.Fatalf("on an empty disk: %v", got)
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
		var refused []string
		for i := range 50 {
			id := fmt.Sprintf("%s_%d", when, i)
			switch got := post(id, 200<<10); {
			case got.is(http.StatusOK, "stored"): // there were free pages left within the file
			case got.is(http.StatusServiceUnavailable, "unavailable") && got.header.Get("Retry-After") != "":
				refused = append(refused, id)
			default:
				t.Errorf("%s: %v", id, got)
			}
		}
		if len(refused) < 25 {
			t.Fatalf("%d of 50 events were refused: the disk is not full", len(refused))
		}
		if when == "full" {
			if err := x.gate.kill(); err != nil {
				t.Fatal(err)
			}
			x.startGate()
		}
		for _, id := range refused {
			if e := x.event("standard", id); e != nil {
				t.Errorf("%s was refused, and is recorded: %v", id, e)
			}
		}
	}
	x.app.answer(nil)
	if err := os.Truncate(filler, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "events are kept again", func() bool {
		got := post("after", 100<<10)
		if got.code != http.StatusOK && got.code != http.StatusServiceUnavailable {
			t.Fatal(got)
		}
		return got.code == http.StatusOK
	})
	for id := range acknowledged {
		x.awaitState("standard", id, done)
		if n := strings.Count(x.attempts("standard", id), "delivered"); n != 1 {
			t.Errorf("%s: %s", id, x.attempts("standard", id))
		}
	}
}
