package inboxtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sidehook/sidehook/extauthz"
)

// versioned is a request for an event of an object in a version, one digit.
func versioned(id, at string) extauthz.ClaimRequest {
	r := request(id)
	r.Version = extauthz.Version{Object: [32]byte{7}, At: "n" + at}
	return r
}

// finish claims, and has the app answer 2xx.
func (b *bench) finish(r extauthz.ClaimRequest) {
	b.Helper()
	b.settle(r, b.claim(r, extauthz.Claimed).Token, extauthz.EndDone)
}

func testVersions(b *bench) {
	b.finish(versioned("66", "66"))
	b.claim(versioned("65", "65"), extauthz.Stale)
	b.finish(versioned("66 again", "66")) // equal passes
	b.restart()
	b.claim(versioned("65", "65"), extauthz.Stale)
	b.claim(versioned("64", "64"), extauthz.Stale)
	b.finish(versioned("67", "67"))
	b.claim(versioned("66 once more", "66"), extauthz.Stale)
	b.claim(versioned("66", "66"), extauthz.Duplicate) // what is done is that first

	// Another object, another source, another tenant; none at all.
	other := versioned("other object", "1")
	other.Version.Object = [32]byte{8}
	b.finish(other)
	other = versioned("other source", "1")
	other.Key.Source = "billing"
	b.finish(other)
	other = versioned("other tenant", "1")
	other.Key.Tenant = "acme"
	b.finish(other)
	b.finish(request("none"))
	b.finish(versioned("68", "68"))

	// The rule is gone: what was stale is like new.
	b.claim(request("65"), extauthz.Claimed)
}

func testVersionInFlight(b *bench) {
	newer := b.claim(versioned("66", "66"), extauthz.Claimed)
	time.Sleep(lease / 3)
	c := b.claim(versioned("65", "65"), extauthz.InFlight)
	if want := lease - lease/3; c.RetryAfter > want || c.RetryAfter < want-time.Second {
		b.Errorf("retry after %v, want the rest of the newer one's lease, %v", c.RetryAfter, want)
	}
	equal := b.claim(versioned("66 too", "66"), extauthz.Claimed)
	b.claim(versioned("67", "67"), extauthz.Claimed)
	b.settle(versioned("66 too", "66"), equal.Token, extauthz.EndReleased)
	b.restart()
	b.claim(versioned("65", "65"), extauthz.InFlight)
	time.Sleep(lease)
	synctest.Wait()

	// The leases have ended without news: nobody knows, and no event is lost for that.
	c = b.claim(versioned("65", "65"), extauthz.Claimed)
	b.claim(versioned("64", "64"), extauthz.InFlight)
	b.settle(versioned("66", "66"), newer.Token, extauthz.EndDone) // late
	b.claim(versioned("64", "64"), extauthz.Stale)
	b.settle(versioned("65", "65"), c.Token, extauthz.EndDone) // moves no mark back
	b.claim(versioned("65 too", "65"), extauthz.Stale)

	waiting := b.claim(versioned("99", "99"), extauthz.Claimed)
	c = b.claim(versioned("98", "98"), extauthz.InFlight)
	b.settle(versioned("99", "99"), waiting.Token, extauthz.EndReleased)
	<-c.Wait
	b.claim(versioned("98", "98"), extauthz.Claimed)
}

// An event that was with the app, and is older than what the app has meanwhile, may still have been taken.
func testStaleLater(b *bench) {
	first := b.claim(versioned("65", "65"), extauthz.Claimed)
	time.Sleep(lease)
	synctest.Wait()
	b.finish(versioned("66", "66"))
	b.claim(versioned("65", "65"), extauthz.Stale)
	b.settle(versioned("65", "65"), first.Token, extauthz.EndDone)
	b.claim(versioned("65", "65"), extauthz.Duplicate)
}

func testVersionWas(b *bench) {
	b.finish(versioned("66", "66"))
	open := b.claim(versioned("70", "70"), extauthz.Claimed)
	renamed := func(id, at string) extauthz.ClaimRequest {
		r := versioned(id, at)
		r.Was = []extauthz.Key{r.Key}
		r.Key.Source = "billing"
		return r
	}
	b.claim(renamed("65", "65"), extauthz.Stale)
	b.claim(renamed("69", "69"), extauthz.InFlight)
	b.settle(versioned("70", "70"), open.Token, extauthz.EndDone)
	b.claim(renamed("69", "69"), extauthz.Stale)
	b.finish(renamed("71", "71"))
	b.claim(renamed("70 too", "70"), extauthz.Stale)
}

func changed(id string) extauthz.ClaimRequest {
	r := request(id)
	r.Change = extauthz.Change{Hash: [32]byte{9}, Window: time.Hour}
	return r
}

func testChange(b *bench) {
	first := b.claim(changed("a"), extauthz.Claimed)
	waiting := b.claim(changed("b"), extauthz.InFlight)
	b.settle(changed("a"), first.Token, extauthz.EndReleased)
	<-waiting.Wait
	second := b.claim(changed("b"), extauthz.Claimed) // a first that was released blocks nobody
	b.claim(changed("a"), extauthz.InFlight)
	b.settle(changed("b"), second.Token, extauthz.EndDone)
	b.claim(changed("a"), extauthz.DuplicateChange)
	b.restart()
	b.claim(changed("c"), extauthz.DuplicateChange)
	b.claim(request("d"), extauthz.Claimed) // not one of the types
	other := changed("other tenant")
	other.Key.Tenant = "acme"
	b.claim(other, extauthz.Claimed)
	renamed := changed("renamed")
	renamed.Was = []extauthz.Key{renamed.Key}
	renamed.Key.Source = "billing"
	b.claim(renamed, extauthz.DuplicateChange)
	time.Sleep(time.Hour)
	b.claim(changed("c"), extauthz.DuplicateChange) // what was told once stays so
	b.claim(changed("e"), extauthz.Claimed)         // another change
	b.claim(request("c"), extauthz.Claimed)         // the rule is gone
}

func batch(id string, parts ...string) extauthz.ClaimRequest {
	r := request(id)
	r.Parts = append(r.Parts, parts...)
	r.Whole = true
	return r
}

func (b *bench) claimSeen(r extauthz.ClaimRequest, seen ...string) extauthz.Claim {
	b.Helper()
	c := b.claim(r, extauthz.Claimed)
	if len(c.Seen) != len(seen) {
		b.Errorf("claim %q: seen %q, want %q", r.Key.ID, c.Seen, seen)
		return c
	}
	for i := range seen {
		if c.Seen[i] != seen[i] {
			b.Errorf("claim %q: seen %q, want %q", r.Key.ID, c.Seen, seen)
		}
	}
	return c
}

func testParts(b *bench) {
	first := b.claimSeen(batch("1", "a", "b"))
	waiting := b.claim(batch("2", "b", "c"), extauthz.InFlight)
	b.claimSeen(batch("3", "x"))
	b.settle(batch("1"), first.Token, extauthz.EndReleased)
	<-waiting.Wait
	second := b.claimSeen(batch("2", "b", "c"))
	b.settle(batch("2"), second.Token, extauthz.EndDone)
	b.restart()
	b.claim(batch("4", "c", "b"), extauthz.Duplicate)
	b.claim(batch("2", "z"), extauthz.Duplicate) // the request itself is known
	part := batch("5", "c")
	part.Whole = false // of a request with parts that have no id
	b.claimSeen(part, "c")
	third := b.claimSeen(batch("1", "a", "b"), "b")
	b.settle(batch("1"), third.Token, extauthz.EndDone)
	b.claim(batch("6", "a", "b", "c"), extauthz.Duplicate)
	renamed := batch("7", "a", "new")
	renamed.Was = []extauthz.Key{renamed.Key}
	renamed.Key.Source = "billing"
	b.claimSeen(renamed, "a")
	other := batch("8", "a")
	other.Key.Tenant = "acme"
	b.claimSeen(other)
}

// testVersionModel lets an inbox and a map do the same things with one object, restarts among them.
func testVersionModel(t *testing.T, open Open) {
	base := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			n++
			m := &versionMachine{open: open, t: t, folder: subfolder(t, base, n), rows: make(map[string]*versionState)}
			m.inbox, m.end = open(t, m.folder)
			defer func() { m.end() }()
			rt.Repeat(map[string]func(*rapid.T){"claim": m.claim, "settle": m.settle, "wait": m.wait, "restart": m.restart})
		})
	})
}

// versionState is what the contract says of an id: one event, so one version.
type versionState struct {
	at       int
	token    extauthz.Token
	deadline time.Time
	held     bool
	done     bool
	stale    bool
}

type versionMachine struct {
	open   Open
	t      *testing.T
	folder string
	inbox  extauthz.Inbox
	end    func()
	mark   int // 0: none
	rows   map[string]*versionState
}

func (m *versionMachine) claim(rt *rapid.T) {
	id := rapid.StringMatching(`[1-4][ab]`).Draw(rt, "id") // the version, and which of two events of it
	at := int(id[0] - '0')
	row := m.rows[id]
	if row == nil {
		row = &versionState{at: at}
		m.rows[id] = row
	}
	newer := false
	for _, r := range m.rows {
		newer = newer || r.held && r.at > at && time.Now().Before(r.deadline)
	}
	want := extauthz.Claimed
	switch {
	case row.done:
		want = extauthz.Duplicate
	case row.stale:
		want = extauthz.Stale
	case row.held && time.Now().Before(row.deadline):
		want = extauthz.InFlight
	case at < m.mark:
		want = extauthz.Stale
	case newer:
		want = extauthz.InFlight
	}
	c, err := m.inbox.Claim(context.Background(), versioned(id, id[:1]))
	if err != nil {
		rt.Fatalf("claim: %v", err)
	}
	if c.Outcome != want {
		rt.Fatalf("claim %s: outcome %d, want %d (mark %d)", id, c.Outcome, want, m.mark)
	}
	switch want {
	case extauthz.Claimed:
		row.token, row.deadline, row.held = c.Token, time.Now().Add(lease), true
	case extauthz.Stale:
		// One that was with the app may still succeed, and is no stale row but a released one.
		row.stale, row.held = !row.held && row.token == extauthz.Token{}, false
	}
}

func (m *versionMachine) settle(rt *rapid.T) {
	id := rapid.StringMatching(`[1-4][ab]`).Draw(rt, "id")
	row := m.rows[id]
	if row == nil || row.token == (extauthz.Token{}) {
		rt.Skip("nothing to settle")
	}
	end := rapid.SampledFrom([]extauthz.End{extauthz.EndDone, extauthz.EndReleased, extauthz.EndUnknown}).Draw(rt, "end")
	if err := m.inbox.Settle(context.Background(), versioned(id, id[:1]).Key, row.token, end, true); err != nil {
		rt.Fatalf("settle: %v", err)
	}
	switch {
	case row.done || end == extauthz.EndUnknown:
	case end == extauthz.EndDone:
		row.done, row.held = true, false
		m.mark = max(m.mark, row.at)
	default:
		row.held, row.token = false, extauthz.Token{}
	}
}

func (m *versionMachine) wait(rt *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, lease / 2, lease, 5 * lease}).Draw(rt, "for"))
}

func (m *versionMachine) restart(*rapid.T) {
	m.end()
	m.inbox, m.end = m.open(m.t, m.folder)
}
