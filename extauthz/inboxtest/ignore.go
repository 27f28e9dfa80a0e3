package inboxtest

import (
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/extauthz"
)

func ignoring(id string) extauthz.ClaimRequest {
	r := request(id)
	r.Ignore = true
	return r
}

func testIgnored(b *bench) {
	content := func(r extauthz.ClaimRequest) extauthz.ClaimRequest {
		r.ContentHash, r.ContentWindow = [32]byte{1}, time.Hour
		return r
	}
	b.claim(content(ignoring("a")), extauthz.Ignored)
	b.claim(content(ignoring("a")), extauthz.Ignored)
	b.claim(content(ignoring("b")), extauthz.Ignored) // nothing is remembered of what the app has not seen
	b.restart()
	b.claim(ignoring("a"), extauthz.Ignored)
	c := b.claim(content(request("a")), extauthz.Claimed)
	b.claim(request("a"), extauthz.InFlight)
	b.settle(request("a"), c.Token, extauthz.EndDone)
	b.claim(request("a"), extauthz.Duplicate)

	// Under an earlier name of the source.
	renamed := request("b")
	renamed.Key.Source, renamed.Was = "billing", []extauthz.Key{request("b").Key}
	renamed.Ignore = true
	b.claim(renamed, extauthz.Ignored)
	renamed.Ignore = false
	b.claim(renamed, extauthz.Claimed)
	b.claim(ignoring("b"), extauthz.Ignored) // its row went with the claim
}

func testIgnoredLater(b *bench) {
	c := b.claim(request("a"), extauthz.Claimed)
	b.claim(ignoring("a"), extauthz.InFlight)
	time.Sleep(lease)
	synctest.Wait()
	b.claim(ignoring("a"), extauthz.Ignored)
	b.settle(request("a"), c.Token, extauthz.EndDone) // late: the row was left alone
	b.claim(ignoring("a"), extauthz.Duplicate)

	b.claim(holding("h"), extauthz.Claimed)
	time.Sleep(lease)
	synctest.Wait()
	h := holding("h")
	h.Ignore = true
	b.claim(h, extauthz.Held)
}

// An answer by another id's content leaves the row of its own id as it was: for an ignored id, and for one of which an earlier
// lease may still succeed.
func testContentGivesNothingUp(b *bench) {
	content := func(r extauthz.ClaimRequest) extauthz.ClaimRequest {
		r.ContentHash, r.ContentWindow = [32]byte{1}, time.Hour
		return r
	}
	first := b.claim(content(request("a")), extauthz.Claimed)
	b.claim(ignoring("i"), extauthz.Ignored)
	time.Sleep(2 * lease)
	synctest.Wait()
	second := b.claim(content(request("b")), extauthz.Claimed)
	b.claim(content(request("a")), extauthz.InFlight)
	b.claim(content(request("i")), extauthz.InFlight)
	b.settle(request("a"), first.Token, extauthz.EndDone)
	b.settle(request("b"), second.Token, extauthz.EndReleased)
	b.claim(content(request("a")), extauthz.Duplicate)
	b.claim(ignoring("i"), extauthz.Ignored)
}
