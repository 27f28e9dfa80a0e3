package extauthz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidehook/sidehook/internal/signature"
)

// steps is an Inbox that runs a function around each call of the one behind it.
type steps struct {
	Inbox
	beforeClaim, afterClaim func(*Claim, *error)
	settled                 atomic.Int32
	settleErr               error
}

func (s *steps) Claim(ctx context.Context, req ClaimRequest) (claim Claim, err error) {
	if s.beforeClaim != nil {
		if s.beforeClaim(&claim, &err); err != nil || claim.Outcome != 0 {
			return claim, err
		}
	}
	claim, err = s.Inbox.Claim(ctx, req)
	if s.afterClaim != nil {
		s.afterClaim(&claim, &err)
	}
	return claim, err
}

func (s *steps) Settle(ctx context.Context, key Key, token Token, end End, wait bool) error {
	s.settled.Add(1)
	if err := cmp.Or(s.settleErr, ctx.Err()); err != nil {
		return err
	}
	return s.Inbox.Settle(ctx, key, token, end, wait)
}

// around puts inbox between the gate and its own.
func around(inbox *steps) func(*Config) {
	return func(c *Config) { inbox.Inbox, c.Inbox = c.Inbox, inbox }
}

// A Check that is cancelled at any step never passes, and leaves no claim that holds up the next delivery.
func TestCancelled(t *testing.T) {
	t.Parallel()
	table := func(t *testing.T) *Sources {
		return mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) { s.InFlightWait = time.Minute })})
	}
	for _, tt := range []struct {
		name    string
		prepare func(g *gate, inbox *steps, cancel context.CancelFunc)
	}{
		{"before it is looked at", func(_ *gate, _ *steps, cancel context.CancelFunc) { cancel() }},
		{"before the claim", func(_ *gate, inbox *steps, cancel context.CancelFunc) {
			inbox.beforeClaim = func(*Claim, *error) { cancel() }
		}},
		{"after the claim is on disk", func(_ *gate, inbox *steps, cancel context.CancelFunc) {
			inbox.afterClaim = func(*Claim, *error) { cancel() }
		}},
		{"while it waits for the first", func(g *gate, _ *steps, cancel context.CancelFunc) {
			first := g.ask(hook{at: time.Now().Add(-time.Second)})
			time.AfterFunc(10*time.Second, func() {
				cancel()
				time.AfterFunc(time.Second, func() { g.end(first, EndReleased) })
			})
		}},
		{"the moment the first ends", func(g *gate, inbox *steps, cancel context.CancelFunc) {
			first := g.ask(hook{at: time.Now().Add(-time.Second)})
			var ended atomic.Bool
			inbox.beforeClaim = func(*Claim, *error) {
				if ended.Load() {
					cancel()
				}
			}
			time.AfterFunc(10*time.Second, func() {
				ended.Store(true)
				g.end(first, EndReleased)
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				inbox := &steps{}
				g := newGateIn(t, folder, table(t), around(inbox))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tt.prepare(g, inbox, cancel)
				told := len(g.passed)
				r, err := g.Check(ctx, hook{}.check(true))
				if a := readAnswer(t, r, err); a.pass || a.status != 503 {
					t.Fatalf("a cancelled Check: %+v", a)
				}
				if ctx.Err() == nil {
					t.Fatal("the Check ended before it was cancelled")
				}
				if n := g.counter("sidehook_extauthz_checks_total", "source", "payments", "reason", "cancelled"); n != 1 || len(g.passed) != told {
					t.Errorf("counted %v times, told of %d passes", n, len(g.passed)-told)
				}
				*inbox = steps{Inbox: g.inbox}
				time.Sleep(2 * time.Second) // a release rides with the next commit
				if page, err := g.inbox.List(t.Context(), Filter{}, "", 10); err != nil || len(page.Records) != 0 {
					t.Errorf("inbox holds %+v, %v", page.Records, err)
				}
				if a := g.ask(hook{}); !a.pass {
					t.Errorf("the next delivery: %+v", a)
				}
			})
		})
	}
}

// A Check that is cancelled does not pass either where no claim is made.
func TestCancelledWithoutClaim(t *testing.T) {
	t.Parallel()
	withoutID := testScheme
	withoutID.Signed, withoutID.ID = "{timestamp}.{body}", &signature.IDSpec{None: true}
	table := mustSources(t, []*Source{
		openSource("anybody", Match{PathPrefix: "/hooks/anybody"}),
		signedSource(t, "trial", func(s *Source) { s.Enforce = EnforceReport }),
		sourceOf(t, "noid", withoutID, func(s *Source) { s.RequireID = false }),
	})
	for _, h := range []hook{
		{target: "/hooks/anybody"},
		{target: "/hooks/trial"},
		{target: "/hooks/trial", secret: "guess"},
		{target: "/hooks/noid", change: signOver(`{"type":"a"}`)},
	} {
		g := newGate(t, table)
		if a := g.ask(h); !a.pass {
			t.Fatalf("%s: not cancelled, and refused: %+v", h.target, a)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, err := g.Check(ctx, h.check(true))
		if a := readAnswer(t, r, err); a.pass || a.status != 503 {
			t.Errorf("%s: %+v", h.target, a)
		}
	}
}

// Cancelled at whatever moment, the commit's included: what did not pass left nothing behind.
func TestCancelledAnywhere(t *testing.T) {
	t.Parallel()
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}))
	var left []hook
	// On a busy machine a commit can outrun every cancellation for a while: it goes on until one came in time.
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; i < 300 || len(left) == 0 && time.Now().Before(deadline); i++ {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range i % 300 * 10 {
				runtime.Gosched()
			}
			cancel()
		}()
		h := hook{id: fmt.Sprint("evt_", i)}
		r, err := g.Check(ctx, h.check(true))
		if a := readAnswer(t, r, err); a.pass {
			continue
		}
		left = append(left, h)
	}
	if len(left) == 0 {
		t.Error("no Check was cancelled in time: the test shows nothing")
	}
	for _, h := range left {
		// A release rides with a commit that comes 20 ms later at most.
		for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
			a := g.ask(h)
			if a.pass {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the next delivery of a cancelled Check: %+v", a)
			}
		}
	}
}

// A second delivery while the first is with the app waits, and ends as the first did.
func TestInFlightWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		wait time.Duration
		end  func(g *gate, first answer)
		took time.Duration
		want string // "pass", or the status word
	}{
		{"no wait", 0, nil, 0, "in_flight"},
		{"the app takes it", 10 * time.Second, func(g *gate, first answer) { g.end(first, EndDone) }, 4 * time.Second, "duplicate"},
		{"the app refuses", 10 * time.Second, func(g *gate, first answer) { g.end(first, EndReleased) }, 4 * time.Second, "pass"},
		{"still open", 10 * time.Second, nil, 10 * time.Second, "in_flight"},
		{"the lease ends", 90 * time.Second, nil, time.Minute, "pass"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				g := newGateIn(t, folder, mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) { s.InFlightWait = tt.wait })}))
				start := time.Now()
				first := g.ask(hook{})
				var ending sync.WaitGroup
				if tt.end != nil {
					ending.Go(func() {
						time.Sleep(4 * time.Second)
						tt.end(g, first)
					})
				}
				a := g.ask(hook{})
				took := time.Since(start)
				ending.Wait() // the second may have its answer before the settle has its own
				switch {
				case tt.want == "pass":
					if !a.pass || a.ref == first.ref {
						t.Errorf("second: %+v", a)
					}
				case a.body != `{"status":"`+tt.want+`"}`:
					t.Errorf("second: %+v, want %s", a, tt.want)
				case tt.want == "in_flight":
					// The rest of the lease of a minute, rounded up.
					if want := fmt.Sprint(60 - int(tt.took.Seconds())); a.headers["retry-after"] != want {
						t.Errorf("Retry-After %s, want %s", a.headers["retry-after"], want)
					}
				}
				if took.Round(100*time.Millisecond) != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// Twenty that wait for one: when the app refuses it, one of them goes through and the others wait for that one.
func TestInFlightWaitMany(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGateIn(t, folder, mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) { s.InFlightWait = 30 * time.Second })}))
		first := g.ask(hook{})
		var wg sync.WaitGroup
		var passes, duplicates atomic.Int32
		for range 20 {
			wg.Go(func() {
				a := g.ask(hook{})
				switch {
				case a.pass:
					passes.Add(1)
					time.Sleep(time.Second)
					g.end(a, EndDone)
				case a.body == `{"status":"duplicate"}`:
					duplicates.Add(1)
				default:
					t.Errorf("answer %+v", a)
				}
			})
		}
		time.Sleep(time.Second)
		g.end(first, EndReleased)
		wg.Wait()
		if passes.Load() != 1 || duplicates.Load() != 19 {
			t.Errorf("%d passes, %d duplicates", passes.Load(), duplicates.Load())
		}
	})
}

func TestHeld(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGateIn(t, folder, mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) { s.OnUnknown = OnUnknownHold })}))
		first := g.ask(hook{})
		g.end(first, EndUnknown)
		time.Sleep(time.Minute)
		if a := g.ask(hook{}); a.status != 503 || a.body != `{"status":"held"}` || a.headers["retry-after"] != "60" {
			t.Errorf("held: %+v", a)
		}
		g.end(first, EndDone) // a late success settles it
		if a := g.ask(hook{}); a.status != 200 {
			t.Errorf("after a late success: %+v", a)
		}
	})
}

// When the inbox cannot decide the sender comes again: never a 200, never a 401, never a pass.
func TestInboxFails(t *testing.T) {
	t.Parallel()
	fail := func(err error) func(*Claim, *error) { return func(_ *Claim, e *error) { *e = err } }
	for _, tt := range []struct {
		name   string
		inbox  *steps
		reason string
		code   string
		log    string
	}{
		{"not written", &steps{beforeClaim: fail(fmt.Errorf("claim: %w", ErrUnavailable))}, "unavailable", "unavailable", "ERROR"},
		{"written, answer lost", &steps{afterClaim: fail(fmt.Errorf("claim: %w", ErrUnavailable))}, "unavailable", "unavailable", "ERROR"},
		{"full", &steps{beforeClaim: fail(fmt.Errorf("claim: %w", ErrFull))}, "full", "unavailable", "ERROR"},
		{"unknown error", &steps{beforeClaim: fail(errors.New("what"))}, "unavailable", "unavailable", "ERROR"},
		{"an outcome that is none", &steps{afterClaim: func(c *Claim, _ *error) { c.Outcome = 99 }}, "internal", "unavailable", "ERROR"},
		{"panic", &steps{beforeClaim: func(*Claim, *error) { panic("broken") }}, "internal", "unavailable", "ERROR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}), around(tt.inbox))
			a := g.ask(hook{})
			if a.pass || a.status != 503 || a.body != `{"status":"`+tt.code+`"}` || a.headers["retry-after"] != "5" {
				t.Errorf("answer %+v", a)
			}
			source := "payments"
			if tt.name == "panic" { // it has no end that could say whose it was
				source = "unknown"
			}
			if n := g.counter("sidehook_extauthz_checks_total", "source", source, "reason", tt.reason); n != 1 {
				t.Errorf("counted %v times as %s", n, tt.reason)
			}
			if log := g.log.String(); !strings.Contains(log, `"level":"`+tt.log+`"`) {
				t.Errorf("log: %s", log)
			}
			if n := g.counter("sidehook_extauthz_bodies_in_flight_bytes"); n != 0 {
				t.Errorf("%v bytes are left in flight", n)
			}
		})
	}
}

// A store slower than Envoy's patience: our 503 with Retry-After comes before Envoy gives up.
func TestInboxTooSlow(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		inbox := &slowInbox{}
		g := newGateIn(t, folder, mustSources(t, []*Source{signedSource(t, "payments")}), func(c *Config) { c.Inbox = inbox })
		for _, patience := range []time.Duration{200 * time.Millisecond, 10 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			r, err := g.Check(ctx, hook{}.check(true))
			a := readAnswer(t, r, err)
			if ctx.Err() != nil || a.status != 503 || a.body != `{"status":"unavailable"}` || a.headers["retry-after"] != "5" {
				t.Errorf("within %v: %+v, %v", patience, a, ctx.Err())
			}
			cancel()
		}
	})
}

// Patience shorter than what we keep for the answer is halved, not used up: a fast store still decides.
func TestShortPatience(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGateIn(t, folder, mustSources(t, []*Source{signedSource(t, "payments")}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		r, err := g.Check(ctx, hook{}.check(true))
		if a := readAnswer(t, r, err); !a.pass {
			t.Errorf("answer %+v", a)
		}
	})
}

// A lease at its very end still asks the sender to wait: a Retry-After of 0 would be none.
func TestRetryAfterAtTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	ending := &steps{beforeClaim: func(c *Claim, _ *error) { *c = Claim{Outcome: InFlight, RetryAfter: 0} }}
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}), around(ending))
	if a := g.ask(hook{}); a.body != `{"status":"in_flight"}` || a.headers["retry-after"] != "1" {
		t.Errorf("answer %+v", a)
	}
}

// slowInbox never decides.
type slowInbox struct{ Inbox }

func (slowInbox) Claim(ctx context.Context, _ ClaimRequest) (Claim, error) {
	<-ctx.Done()
	return Claim{}, ctx.Err()
}

// A release that fails is told; the Check does not pass for it, and the lease ends the claim.
func TestReleaseFails(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	inbox := &steps{afterClaim: func(*Claim, *error) { cancel() }, settleErr: errors.New("queue is closed")}
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}), around(inbox))
	r, err := g.Check(ctx, hook{}.check(true))
	if a := readAnswer(t, r, err); a.pass {
		t.Errorf("answer %+v", a)
	}
	if log := g.log.String(); !strings.Contains(log, "release claim: queue is closed") || inbox.settled.Load() != 1 {
		t.Errorf("log: %s", log)
	}
}

// The gate starts no goroutine of its own, whatever becomes of its Checks.
func TestCheckLeavesNoGoroutine(t *testing.T) {
	folder := t.TempDir()
	g := newGateIn(t, folder, mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) { s.InFlightWait = time.Millisecond })}))
	g.ask(hook{id: "warm"})
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			defer cancel()
			_, _ = g.Check(ctx, hook{id: fmt.Sprint(i % 8)}.check(true))
		})
	}
	wg.Wait()
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}
