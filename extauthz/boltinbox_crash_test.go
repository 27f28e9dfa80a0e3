package extauthz

import (
	"bufio"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidehook/sidehook/internal/store"
)

var crashRounds = flag.Int("inbox.crash-rounds", 5, "rounds of TestInboxSurvivesKill")

const crashFolderVar = "INBOX_CRASH_FOLDER"

// TestInboxSurvivesKill kills a process at a random moment while it acknowledges claims and their ends, over and over
// on one store, and compares what it acknowledged with what is there.
func TestInboxSurvivesKill(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	done, open := make(map[string]bool), make(map[string]Token)
	for round := range *crashRounds {
		out := crashChild(t, folder, round, time.Duration(5+rand.IntN(150))*time.Millisecond)
		for line := range strings.Lines(out) {
			if !strings.HasSuffix(line, "\n") {
				break // cut off in the middle: it acknowledged nothing
			}
			var what, id, token string
			if _, err := fmt.Sscan(line, &what, &id, &token); err != nil {
				t.Fatalf("child says %q: %v", line, err)
			}
			switch what {
			case "claimed":
				raw, err := hex.DecodeString(token)
				if err != nil {
					t.Fatal(err)
				}
				open[id] = Token(raw)
			case "done":
				done[id] = true
				delete(open, id)
			case "released":
				delete(open, id)
			default:
				t.Fatalf("child says %q", line)
			}
		}
	}
	if len(done) == 0 || len(open) == 0 {
		t.Fatalf("the children acknowledged %d ends and left %d claims open: that proves nothing", len(done), len(open))
	}
	b := openBolt(t, folder, 0)
	for id := range done {
		b.mustClaim(t, boltRequest(id), Duplicate)
		older := crashVersion(id, "n1")
		older.Key.ID += "-older"
		b.mustClaim(t, older, Stale) // the mark moved with it
	}
	var settled []string
	for id, token := range open {
		c, err := b.Claim(t.Context(), boltRequest(id))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case c.Outcome == InFlight: // its token settles it still
			if err := b.Settle(t.Context(), boltRequest(id).Key, token, EndDone, false); err != nil {
				t.Fatal(err)
			}
			settled = append(settled, id)
		case strings.HasSuffix(id, leftOpen) || c.Outcome == Held:
			t.Errorf("claim of %s, acknowledged and never settled: outcome %d", id, c.Outcome)
		default: // its end got to the disk, the acknowledgement not to us
		}
	}
	if err := b.end(); err != nil { // commits what is queued
		t.Error(err)
	}
	b = openBolt(t, folder, 0)
	for _, id := range settled {
		b.mustClaim(t, boltRequest(id), Duplicate)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
}

// crashChild runs this test binary as a process on folder (see TestMain), kills it, and returns what it said.
func crashChild(t *testing.T, folder string, round int, after time.Duration) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashFolderVar+"="+folder, fmt.Sprintf("INBOX_CRASH_ROUND=%d", round))
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(pipe)
	first, err := r.ReadString('\n') // it is at work
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("child said nothing: %v", err)
	}
	kill := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || kill.Stop() {
		t.Fatalf("child ended by itself: %v, %s%s", err, first, rest)
	}
	return first + string(rest)
}

const (
	crashCallers = 16
	// leftOpen ends the ids that a child never settles.
	leftOpen = "-open"
)

// TestMain runs the tests, or, where crashFolderVar says so, is the process that TestInboxSurvivesKill kills.
func TestMain(m *testing.M) {
	folder := os.Getenv(crashFolderVar)
	if folder == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "child ended:", claimUntilKilled(folder))
	os.Exit(1)
}

// claimUntilKilled claims and settles on the inbox in folder, and says on stdout what it acknowledged.
func claimUntilKilled(folder string) error {
	s, err := store.Open(context.Background(), store.Options{Folder: folder})
	if err != nil {
		return err
	}
	b, err := NewBoltInbox(BoltInboxConfig{Store: s})
	if err != nil {
		return err
	}
	go func() {
		fmt.Fprintln(os.Stderr, "child's store ended:", s.Run(context.Background()))
	}()
	var wg sync.WaitGroup
	for caller := range crashCallers {
		wg.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("%s-%d-%d", os.Getenv("INBOX_CRASH_ROUND"), caller, n)
				if n%4 == 0 {
					id += leftOpen
				}
				r := crashVersion(id, "n2")
				r.Lease = time.Hour
				c, err := b.Claim(context.Background(), r)
				if err != nil || c.Outcome != Claimed {
					fmt.Fprintln(os.Stderr, "child's claim:", c.Outcome, err)
					return
				}
				// One write for a line: what the parent reads whole was acknowledged.
				_, _ = os.Stdout.WriteString(fmt.Sprintf("claimed %s %x\n", id, c.Token))
				end, word := EndDone, "done"
				switch n % 4 {
				case 0:
					continue
				case 1:
					end, word = EndReleased, "released"
				}
				if err := b.Settle(context.Background(), r.Key, c.Token, end, true); err != nil {
					fmt.Fprintln(os.Stderr, "child's settle:", err)
					return
				}
				_, _ = os.Stdout.WriteString(fmt.Sprintf("%s %s -\n", word, id))
			}
		})
	}
	wg.Wait()
	return nil
}

// crashVersion is a claim of an object of its own.
func crashVersion(id, at string) ClaimRequest {
	r := boltRequest(id)
	r.Version = Version{Object: hashParts("crash", id), At: at}
	return r
}
