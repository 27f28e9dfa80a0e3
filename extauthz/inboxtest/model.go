package inboxtest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sidehook/sidehook/extauthz"
)

// testModel lets an inbox and a map do the same things, restarts among them, and compares every answer.
func testModel(t *testing.T, open Open) {
	base := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		// A bubble has no deadline to ask for, so only the TB of t is handed on.
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			n++
			m := &machine{open: open, t: t, folder: subfolder(t, base, n), rows: make(map[string]*modelRow)}
			m.inbox, m.end = open(t, m.folder)
			defer func() { m.end() }()
			rt.Repeat(map[string]func(*rapid.T){
				"claim":   m.claim,
				"settle":  m.settle,
				"wait":    m.wait,
				"restart": m.restart,
			})
		})
	})
}

// modelRow is what the contract says of an id. tokens are those whose success counts, the holder's first.
type modelRow struct {
	hold     bool
	deadline time.Time
	held     bool // tokens[0] holds the claim
	tokens   []extauthz.Token
	done     bool
}

type machine struct {
	open   Open
	t      *testing.T
	folder string
	inbox  extauthz.Inbox
	end    func()
	rows   map[string]*modelRow
	// issued are all tokens ever given for an id.
	issued map[string][]extauthz.Token
}

func (m *machine) claim(rt *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "id")
	r := request(id)
	if rapid.Bool().Draw(rt, "hold") {
		r = holding(id)
	}
	r.Ignore = rapid.IntRange(0, 3).Draw(rt, "ignore") == 0
	row := m.rows[id]
	want := extauthz.Claimed
	if r.Ignore {
		want = extauthz.Ignored
	}
	switch {
	case row == nil:
	case row.done:
		want = extauthz.Duplicate
	case !row.held:
	case time.Now().Before(row.deadline):
		want = extauthz.InFlight
	case row.hold:
		want = extauthz.Held
	}
	c, err := m.inbox.Claim(context.Background(), r)
	if err != nil {
		rt.Fatalf("claim: %v", err)
	}
	if c.Outcome != want {
		rt.Fatalf("claim %s: outcome %d, want %d", id, c.Outcome, want)
	}
	if want == extauthz.InFlight {
		if left := time.Until(row.deadline); c.RetryAfter != left {
			rt.Fatalf("claim %s: retry after %v, want %v", id, c.RetryAfter, left)
		}
	}
	if want == extauthz.Ignored && row != nil && len(row.tokens) > 0 {
		row.held, row.tokens = false, row.tokens[:min(len(row.tokens), 3)] // all are older ones now
	}
	if want != extauthz.Claimed {
		return // an ignored id is as good as none
	}
	if row == nil {
		row = &modelRow{}
		m.rows[id] = row
	}
	row.hold = r.OnUnknown == extauthz.OnUnknownHold
	row.deadline = time.Now().Add(lease)
	row.held = true
	row.tokens = append([]extauthz.Token{c.Token}, row.tokens...)
	row.tokens = row.tokens[:min(len(row.tokens), 4)] // the holder's and three older ones
	if m.issued == nil {
		m.issued = make(map[string][]extauthz.Token)
	}
	m.issued[id] = append(m.issued[id], c.Token)
}

func (m *machine) settle(rt *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "id")
	if len(m.issued[id]) == 0 {
		rt.Skip("nothing to settle")
	}
	token := rapid.SampledFrom(m.issued[id]).Draw(rt, "token")
	end := rapid.SampledFrom([]extauthz.End{extauthz.EndDone, extauthz.EndReleased, extauthz.EndUnknown}).Draw(rt, "end")
	wait := rapid.Bool().Draw(rt, "wait")
	if err := m.inbox.Settle(context.Background(), extauthz.Key{Source: "payments", ID: id}, token, end, wait); err != nil {
		rt.Fatalf("settle: %v", err)
	}
	if !wait {
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
	}
	row := m.rows[id]
	at := slices.Index(row.tokens, token)
	if at < 0 || row.done || end == extauthz.EndUnknown {
		return
	}
	if end == extauthz.EndDone {
		row.done, row.tokens = true, nil
		return
	}
	row.tokens = slices.Delete(row.tokens, at, at+1)
	if at == 0 && row.held {
		row.held = false
	}
}

func (m *machine) wait(rt *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, lease / 2, lease, 5 * lease}).Draw(rt, "for"))
}

func (m *machine) restart(*rapid.T) {
	m.end()
	m.inbox, m.end = m.open(m.t, m.folder)
}
