// Package inboxtest specifies what an extauthz.Inbox does, for every implementation of it.
package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/extauthz"
)

// Open opens the inbox that is kept in folder, and returns how to end it, with all that it started. Opened again
// with the same folder it is the same inbox after a restart. It is called inside a synctest bubble.
type Open func(t testing.TB, folder string) (inbox extauthz.Inbox, end func())

// Run holds the inbox that open opens to the whole contract.
func Run(t *testing.T, open Open) {
	for _, tt := range []struct {
		name string
		test func(*bench)
	}{
		{"a new id is claimed, under a token of its own", testClaimed},
		{"one of fifty claims at once passes", testFifty},
		{"while the first is with the app the second waits", testInFlight},
		{"done: duplicates from then on", testDone},
		{"released: the next goes through", testReleased},
		{"unknown under RETRY: the next goes through when the lease ends", testRetry},
		{"unknown under HOLD: nobody goes through", testHold},
		{"a late success of an older lease counts", testLateSuccess},
		{"a late success counts after a newer lease was released", testLateSuccessAfterRelease},
		{"a late failure of an older lease changes nothing", testLateFailure},
		{"another token changes nothing", testForeignToken},
		{"settling twice is harmless", testSettleTwice},
		{"what was acknowledged survives a restart", testRestart},
		{"a lease ends after a restart too", testLeaseAfterRestart},
		{"no two keys are one", testKeys},
		{"rows of an earlier source name count", testWas},
		{"content seen under another id", testContent},
		{"an ignored id is kept, and passes once it is not to be ignored", testIgnored},
		{"what is done or with the app is not ignored", testIgnoredLater},
		{"a claim that is answered by the content gives nothing up", testContentGivesNothingUp},
		{"what is older than what the app has of an object is stale", testVersions},
		{"what is older than what is with the app waits for that", testVersionInFlight},
		{"what became stale while it was with the app may still succeed", testStaleLater},
		{"marks of an earlier source name count", testVersionWas},
		{"a second event for one change", testChange},
		{"parts of a request that the app has", testParts},
		{"a context that has ended claims nothing", testContextEnded},
		{"a context that ends meanwhile leaves nothing claimed", testContextEnds},
		{"invalid requests are refused", testInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir() // its removal must not wait for the bubble
			synctest.Test(t, func(t *testing.T) {
				b := &bench{T: t, open: open, folder: folder}
				b.start()
				defer func() { b.end() }() // a restart puts another one there
				tt.test(b)
			})
		})
	}
	t.Run("model", func(t *testing.T) { testModel(t, open) })
	t.Run("model of versions", func(t *testing.T) { testVersionModel(t, open) })
}

// lease is the lease of the suite's claims.
const lease = time.Minute

// bench is an inbox under test.
type bench struct {
	*testing.T
	open   Open
	folder string
	inbox  extauthz.Inbox
	end    func()
}

func (b *bench) start() { b.inbox, b.end = b.open(b.T, b.folder) }

func (b *bench) restart() {
	b.end()
	b.start()
}

func request(id string) extauthz.ClaimRequest {
	return extauthz.ClaimRequest{
		Key:       extauthz.Key{Source: "payments", ID: id},
		Lease:     lease,
		OnUnknown: extauthz.OnUnknownRetry,
		Type:      "invoice.paid",
	}
}

func holding(id string) extauthz.ClaimRequest {
	r := request(id)
	r.OnUnknown = extauthz.OnUnknownHold
	return r
}

// claim claims and checks the outcome.
func (b *bench) claim(r extauthz.ClaimRequest, want extauthz.Outcome) extauthz.Claim {
	b.Helper()
	c, err := b.inbox.Claim(context.Background(), r)
	if err != nil {
		b.Fatalf("claim %q: %v", r.Key.ID, err)
	}
	if c.Outcome != want {
		b.Fatalf("claim %q: outcome %d, want %d", r.Key.ID, c.Outcome, want)
	}
	if (c.Token != extauthz.Token{}) != (want == extauthz.Claimed) {
		b.Errorf("claim %q: outcome %d with token %x", r.Key.ID, c.Outcome, c.Token)
	}
	return c
}

// settle settles with wait, so that it is on disk on return.
func (b *bench) settle(r extauthz.ClaimRequest, token extauthz.Token, end extauthz.End) {
	b.Helper()
	if err := b.inbox.Settle(context.Background(), r.Key, token, end, true); err != nil {
		b.Fatalf("settle %q: %v", r.Key.ID, err)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func testClaimed(b *bench) {
	seen := make(map[extauthz.Token]bool)
	for i := range 100 {
		c := b.claim(request(fmt.Sprint(i)), extauthz.Claimed)
		if seen[c.Token] {
			b.Fatalf("token %x comes twice", c.Token)
		}
		seen[c.Token] = true
	}
}

func testFifty(b *bench) {
	for round := range 10 {
		var wg sync.WaitGroup
		var claimed, waiting atomic.Int32
		for range 50 {
			wg.Go(func() {
				c, err := b.inbox.Claim(context.Background(), request(fmt.Sprint(round)))
				switch {
				case err != nil:
					b.Errorf("claim: %v", err)
				case c.Outcome == extauthz.Claimed:
					claimed.Add(1)
				case c.Outcome == extauthz.InFlight:
					waiting.Add(1)
				}
			})
		}
		wg.Wait()
		if claimed.Load() != 1 || waiting.Load() != 49 {
			b.Errorf("%d claimed and %d wait, want 1 and 49", claimed.Load(), waiting.Load())
		}
	}
}

func testInFlight(b *bench) {
	b.claim(request("a"), extauthz.Claimed)
	time.Sleep(lease / 3)
	c := b.claim(request("a"), extauthz.InFlight)
	if want := lease - lease/3; c.RetryAfter > want || c.RetryAfter < want-time.Second {
		b.Errorf("retry after %v, want the rest of the lease, %v", c.RetryAfter, want)
	}
	if c.Wait == nil || closed(c.Wait) {
		b.Error("there is nothing to wait for")
	}
}

func testDone(b *bench) {
	first := b.claim(request("a"), extauthz.Claimed)
	waiting := b.claim(request("a"), extauthz.InFlight)
	b.settle(request("a"), first.Token, extauthz.EndDone)
	<-waiting.Wait
	b.claim(request("a"), extauthz.Duplicate)
	time.Sleep(2 * lease)
	b.claim(request("a"), extauthz.Duplicate)
}

func testReleased(b *bench) {
	first := b.claim(request("a"), extauthz.Claimed)
	waiting := b.claim(request("a"), extauthz.InFlight)
	b.settle(request("a"), first.Token, extauthz.EndReleased)
	<-waiting.Wait
	second := b.claim(request("a"), extauthz.Claimed)
	if second.Token == first.Token {
		b.Error("the second claim has the first one's token")
	}
}

func testRetry(b *bench) {
	first := b.claim(request("a"), extauthz.Claimed)
	b.settle(request("a"), first.Token, extauthz.EndUnknown)
	waiting := b.claim(request("a"), extauthz.InFlight) // the lease goes on
	start := time.Now()
	<-waiting.Wait
	if took := time.Since(start); took != waiting.RetryAfter {
		b.Errorf("woken after %v, want %v", took, waiting.RetryAfter)
	}
	b.claim(request("a"), extauthz.Claimed)
	b.claim(request("a"), extauthz.InFlight)
}

func testHold(b *bench) {
	first := b.claim(holding("a"), extauthz.Claimed)
	b.settle(holding("a"), first.Token, extauthz.EndUnknown)
	b.claim(holding("a"), extauthz.InFlight)
	time.Sleep(lease)
	b.claim(holding("a"), extauthz.Held)
	b.restart()
	time.Sleep(10 * lease)
	b.claim(holding("a"), extauthz.Held)
	b.settle(holding("a"), first.Token, extauthz.EndDone) // late
	b.claim(holding("a"), extauthz.Duplicate)

	second := b.claim(holding("b"), extauthz.Claimed)
	time.Sleep(lease)
	b.claim(holding("b"), extauthz.Held)
	b.settle(holding("b"), second.Token, extauthz.EndReleased) // the app refused it after all
	b.claim(holding("b"), extauthz.Claimed)
}

func testLateSuccess(b *bench) {
	first := b.claim(request("a"), extauthz.Claimed)
	time.Sleep(lease)
	second := b.claim(request("a"), extauthz.Claimed)
	b.settle(request("a"), first.Token, extauthz.EndDone)
	b.claim(request("a"), extauthz.Duplicate)
	b.settle(request("a"), second.Token, extauthz.EndReleased)
	b.claim(request("a"), extauthz.Duplicate)

	// A lease that nobody claimed again.
	alone := b.claim(request("b"), extauthz.Claimed)
	time.Sleep(100 * lease)
	b.settle(request("b"), alone.Token, extauthz.EndDone)
	b.claim(request("b"), extauthz.Duplicate)
}

func testLateSuccessAfterRelease(b *bench) {
	first := b.claim(request("a"), extauthz.Claimed)
	time.Sleep(lease)
	second := b.claim(request("a"), extauthz.Claimed)
	b.settle(request("a"), second.Token, extauthz.EndReleased)
	b.settle(request("a"), first.Token, extauthz.EndDone)
	b.claim(request("a"), extauthz.Duplicate)
}

func testLateFailure(b *bench) {
	first := b.claim(request("a"), extauthz.Claimed)
	time.Sleep(lease)
	second := b.claim(request("a"), extauthz.Claimed)
	waiting := b.claim(request("a"), extauthz.InFlight)
	b.settle(request("a"), first.Token, extauthz.EndReleased)
	b.claim(request("a"), extauthz.InFlight)
	if closed(waiting.Wait) {
		b.Error("who waits for the second was woken by the first")
	}
	b.settle(request("a"), second.Token, extauthz.EndDone)
	b.claim(request("a"), extauthz.Duplicate)
}

func testForeignToken(b *bench) {
	first := b.claim(request("a"), extauthz.Claimed)
	other := b.claim(request("b"), extauthz.Claimed)
	for _, end := range []extauthz.End{extauthz.EndDone, extauthz.EndReleased, extauthz.EndUnknown} {
		b.settle(request("a"), other.Token, end)
		b.settle(request("a"), extauthz.Token{}, end)
		b.settle(request("never seen"), first.Token, end)
		b.claim(request("a"), extauthz.InFlight)
		b.claim(request("b"), extauthz.InFlight)
	}
	b.claim(request("never seen"), extauthz.Claimed)
	b.settle(request("a"), first.Token, extauthz.EndDone)
	b.claim(request("a"), extauthz.Duplicate)
}

func testSettleTwice(b *bench) {
	done := b.claim(request("a"), extauthz.Claimed)
	b.settle(request("a"), done.Token, extauthz.EndDone)
	for _, end := range []extauthz.End{extauthz.EndDone, extauthz.EndReleased, extauthz.EndUnknown} {
		b.settle(request("a"), done.Token, end)
		b.claim(request("a"), extauthz.Duplicate)
	}
	first := b.claim(request("b"), extauthz.Claimed)
	b.settle(request("b"), first.Token, extauthz.EndReleased)
	second := b.claim(request("b"), extauthz.Claimed)
	b.settle(request("b"), first.Token, extauthz.EndReleased) // names no claim any more
	b.claim(request("b"), extauthz.InFlight)
	b.settle(request("b"), second.Token, extauthz.EndDone)
	b.claim(request("b"), extauthz.Duplicate)
}

func testRestart(b *bench) {
	open := b.claim(request("open"), extauthz.Claimed)
	done := b.claim(request("done"), extauthz.Claimed)
	b.settle(request("done"), done.Token, extauthz.EndDone)
	released := b.claim(request("released"), extauthz.Claimed)
	b.settle(request("released"), released.Token, extauthz.EndReleased)
	queued := b.claim(request("queued"), extauthz.Claimed)
	if err := b.inbox.Settle(context.Background(), request("queued").Key, queued.Token, extauthz.EndDone, false); err != nil {
		b.Fatal(err)
	}
	b.restart()
	b.claim(request("done"), extauthz.Duplicate)
	b.claim(request("queued"), extauthz.Duplicate)
	b.claim(request("released"), extauthz.Claimed)
	waiting := b.claim(request("open"), extauthz.InFlight)
	b.settle(request("open"), open.Token, extauthz.EndDone) // the token outlives the process
	<-waiting.Wait
	b.claim(request("open"), extauthz.Duplicate)
}

func testLeaseAfterRestart(b *bench) {
	b.claim(request("a"), extauthz.Claimed)
	time.Sleep(lease / 2)
	b.restart()
	c := b.claim(request("a"), extauthz.InFlight)
	if c.RetryAfter > lease/2 {
		b.Errorf("retry after %v, want at most %v", c.RetryAfter, lease/2)
	}
	<-c.Wait
	b.claim(request("a"), extauthz.Claimed)
}

func testKeys(b *bench) {
	long := strings.Repeat("x", 256)
	for _, k := range []extauthz.Key{
		{Source: "a", Tenant: "bc", ID: "d"},
		{Source: "ab", Tenant: "c", ID: "d"},
		{Source: "a", Tenant: "b", ID: "cd"},
		{Source: "a", Tenant: "", ID: "bcd"},
		{Source: "abc", Tenant: "", ID: "d"},
		{Source: "a", Tenant: "", ID: "d"},
		{Source: "a", Tenant: "", ID: "D"},
		{Source: "a", Tenant: "", ID: "d\x00"},
		{Source: "a", Tenant: "", ID: ""},
		{Source: "a", Tenant: "", ID: "\xff\xfe"},
		{Source: "a", Tenant: "", ID: long},
		{Source: "a", Tenant: "", ID: long + "y"},
		{Source: "a", Tenant: "", ID: long + "z"},
		{Source: "a", Tenant: "", ID: "sha256:" + strings.Repeat("0", 64)},
	} {
		r := request("")
		r.Key = k
		b.claim(r, extauthz.Claimed)
		b.claim(r, extauthz.InFlight)
	}
}

func testWas(b *bench) {
	renamed := func(id string) extauthz.ClaimRequest {
		r := request(id)
		r.Key.Source = "billing"
		r.Was = []extauthz.Key{{Source: "older", ID: id}, request(id).Key}
		return r
	}
	done := b.claim(request("done"), extauthz.Claimed)
	b.settle(request("done"), done.Token, extauthz.EndDone)
	b.claim(renamed("done"), extauthz.Duplicate)

	open := b.claim(request("open"), extauthz.Claimed)
	waiting := b.claim(renamed("open"), extauthz.InFlight)
	b.settle(request("open"), open.Token, extauthz.EndDone)
	<-waiting.Wait
	b.claim(renamed("open"), extauthz.Duplicate)

	b.claim(request("expired"), extauthz.Claimed)
	time.Sleep(lease)
	again := b.claim(renamed("expired"), extauthz.Claimed)
	b.settle(renamed("expired"), again.Token, extauthz.EndDone)
	b.claim(renamed("expired"), extauthz.Duplicate)

	b.claim(renamed("new"), extauthz.Claimed)
}

func testContent(b *bench) {
	const window = time.Hour
	with := func(source, id, content string, window time.Duration) extauthz.ClaimRequest {
		r := request(id)
		r.Key.Source = source
		copy(r.ContentHash[:], content)
		r.ContentWindow = window
		return r
	}
	first := b.claim(with("s", "1", "same", window), extauthz.Claimed)
	waiting := b.claim(with("s", "2", "same", window), extauthz.InFlight)
	b.claim(with("s", "3", "other", window), extauthz.Claimed)
	b.claim(with("t", "2", "same", window), extauthz.Claimed) // another source's content is its own
	b.claim(with("s", "4", "same", 0), extauthz.Claimed)      // no window: not looked at
	b.settle(with("s", "1", "same", window), first.Token, extauthz.EndDone)
	<-waiting.Wait
	b.claim(with("s", "2", "same", window), extauthz.Duplicate)
	b.restart()
	b.claim(with("s", "2", "same", window), extauthz.Duplicate)
	time.Sleep(window)
	b.claim(with("s", "2", "same", window), extauthz.Claimed)
	b.claim(with("s", "1", "same", window), extauthz.Duplicate) // the id itself stays known

	released := b.claim(with("s", "5", "refused", window), extauthz.Claimed)
	b.settle(with("s", "5", "refused", window), released.Token, extauthz.EndReleased)
	b.claim(with("s", "6", "refused", window), extauthz.Claimed)
	b.claim(with("s", "5", "refused", window), extauthz.InFlight)
}

func testContextEnded(b *bench) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if c, err := b.inbox.Claim(gone, request("a")); !errors.Is(err, context.Canceled) || c.Outcome != 0 {
		b.Errorf("got %v, %v, want context.Canceled", c, err)
	}
	b.claim(request("a"), extauthz.Claimed)
}

func testContextEnds(b *bench) {
	for i := range 50 {
		r := request(fmt.Sprint(i))
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		c, err := b.inbox.Claim(ctx, r)
		if err != nil && !errors.Is(err, context.Canceled) {
			b.Fatalf("claim: %v", err)
		}
		if err == nil { // it was faster
			b.settle(r, c.Token, extauthz.EndReleased)
		}
		time.Sleep(time.Second) // far less than the lease
		b.claim(r, extauthz.Claimed)
	}
}

func testInvalid(b *bench) {
	noLease, noWay := request("a"), request("a")
	noLease.Lease, noWay.OnUnknown = 0, 0
	for name, r := range map[string]extauthz.ClaimRequest{"no lease": noLease, "no OnUnknown": noWay} {
		if c, err := b.inbox.Claim(context.Background(), r); err == nil {
			b.Errorf("%s: got %v", name, c)
		}
	}
	c := b.claim(request("a"), extauthz.Claimed)
	if err := b.inbox.Settle(context.Background(), request("a").Key, c.Token, 0, true); err == nil {
		b.Error("settled with End 0")
	}
	b.claim(request("a"), extauthz.InFlight)
}

// subfolder makes a folder that no other run of the model uses.
func subfolder(t testing.TB, base string, n int) string {
	folder := filepath.Join(base, fmt.Sprint(n))
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}
