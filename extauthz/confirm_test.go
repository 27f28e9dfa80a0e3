package extauthz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// settled is one call of Settle.
type settled struct {
	ID   string
	End  End
	Wait bool
}

// settleRecorder is the inbox of the confirm tests.
type settleRecorder struct {
	mu    sync.Mutex
	calls []settled
	errs  []error                    // returned next, one a call
	block chan struct{}              // if set, Settle waits for it or for its context
	fresh func(ctx context.Context)  // if set, sees each context
	seen  chan struct{}              // if set, gets one for each call
	token func(key Key, token Token) // if set, sees what was settled
}

func (s *settleRecorder) Settle(ctx context.Context, key Key, token Token, end End, wait bool) error {
	if s.fresh != nil {
		s.fresh(ctx)
	}
	if s.token != nil {
		s.token(key, token)
	}
	if s.block != nil {
		select {
		case <-s.block:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, settled{ID: key.ID, End: end, Wait: wait})
	if s.seen != nil {
		s.seen <- struct{}{}
	}
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return err
	}
	return nil
}

func (s *settleRecorder) all() []settled {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]settled(nil), s.calls...)
}

func newTestConfirm(t *testing.T, inbox settler, change func(*ConfirmConfig)) *Confirm {
	t.Helper()
	cfg := ConfirmConfig{Inbox: inbox}
	if change != nil {
		change(&cfg)
	}
	c, err := NewConfirm(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.SetSources([]string{"payments", "shop"})
	return c
}

// testRef is a reference to the claim of an event of payments.
func testRef(id string) string {
	return encodeRef(Key{Source: "payments", ID: id}, Token{1, 2, 3})
}

// A report without a good reference reaches no inbox, whatever it says.
func TestConfirmSettle(t *testing.T) {
	t.Parallel()
	done := report{code: 200, details: detailsUpstream, attempts: 1}
	for _, row := range []struct {
		name   string
		ref    string
		report report
		want   []settled
	}{
		{"ours", testRef("evt_1"), done, []settled{{"evt_1", EndDone, false}}},
		{"none", "", done, nil},
		{"foreign text", "some other filter's", done, nil},
		{"cut", testRef("evt_1")[:20], done, nil},
		{"our own answer", testRef("evt_1"), report{code: 200, details: detailsDenied}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var inbox settleRecorder
			c := newTestConfirm(t, &inbox, nil)
			if err := c.settle(t.Context(), channelAccessLog, row.ref, row.report, false); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(inbox.all(), row.want); diff != "" {
				t.Errorf("settled (-got +want):\n%s", diff)
			}
		})
	}
}

// The inbox decides about tokens; it must get the one that the reference bears.
func TestConfirmSettlesUnderToken(t *testing.T) {
	t.Parallel()
	key, token := Key{Source: "payments", Tenant: "acme", ID: "evt_1"}, Token{0xff, 15: 7}
	var gotKey Key
	var gotToken Token
	inbox := settleRecorder{token: func(k Key, tok Token) { gotKey, gotToken = k, tok }}
	c := newTestConfirm(t, &inbox, nil)
	if err := c.settle(t.Context(), channelExtProc, encodeRef(key, token), report{200, detailsUpstream, 1}, true); err != nil {
		t.Fatal(err)
	}
	if gotKey != key || gotToken != token {
		t.Errorf("settled %v under %x, want %v under %x", gotKey, gotToken, key, token)
	}
}

func TestConfirmMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	inbox := settleRecorder{errs: []error{nil, nil, nil, ErrUnavailable}}
	c := newTestConfirm(t, &inbox, func(cfg *ConfirmConfig) { cfg.Registerer = registry })
	c.Passed("payments")
	c.Passed("payments")
	c.Passed("shop")
	c.Passed("gone")
	settle := func(ch channel, source string, r report) {
		t.Helper()
		if err := c.settle(t.Context(), ch, encodeRef(Key{Source: source, ID: "1"}, Token{}), r, false); err != nil && !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
	}
	settle(channelAccessLog, "payments", report{200, detailsUpstream, 1})
	settle(channelExtProc, "payments", report{500, detailsUpstream, 1})
	settle(channelAccessLog, "gone", report{504, "response_timeout", 1})
	settle(channelAccessLog, "shop", report{200, detailsUpstream, 1})
	if err := c.settle(t.Context(), channelAccessLog, "foreign", report{200, detailsUpstream, 1}, false); err != nil {
		t.Fatal(err)
	}
	got := gather(t, registry)
	want := map[string]float64{
		"sidehook_extauthz_confirm_errors_total access_log bad_reference": 1,
		"sidehook_extauthz_confirm_errors_total access_log malformed":     0,
		"sidehook_extauthz_confirm_errors_total access_log store":         1,
		"sidehook_extauthz_confirm_errors_total ext_proc bad_reference":   0,
		"sidehook_extauthz_confirm_errors_total ext_proc malformed":       0,
		"sidehook_extauthz_confirm_errors_total ext_proc store":           0,
		"sidehook_extauthz_unconfirmed_passes payments":                   0,
		"sidehook_extauthz_unconfirmed_passes shop":                       1,
		"sidehook_extauthz_confirms_total access_log done payments":       1,
		"sidehook_extauthz_confirms_total ext_proc released payments":     1,
		"sidehook_extauthz_confirms_total access_log unknown unknown":     1,
	}
	for _, source := range []string{"payments", "shop", unconfigured} {
		for _, ch := range []string{"access_log", "ext_proc"} {
			for _, end := range []string{"done", "released", "unknown"} {
				name := "sidehook_extauthz_confirms_total " + ch + " " + end + " " + source
				want[name] += 0 // every series is there from the start
			}
		}
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("metrics (-got +want):\n%s", diff)
	}

	c.SetSources([]string{"payments"})
	for name := range gather(t, registry) {
		if strings.HasSuffix(name, " shop") {
			t.Errorf("%s is still there after the source was removed", name)
		}
	}
}

// gather reads all counters and gauges, by name and label values.
func gather(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := []string{family.GetName()}
			for _, label := range m.GetLabel() {
				name = append(name, label.GetValue())
			}
			values[strings.Join(name, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}

func TestConfirmAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var inbox settleRecorder
		c := newTestConfirm(t, &inbox, func(cfg *ConfirmConfig) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		expect := func(when string, want []string, errorLines int) {
			t.Helper()
			if diff := cmp.Diff(c.Unconfirmed(), want); diff != "" {
				t.Errorf("%s: Unconfirmed (-got +want):\n%s", when, diff)
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != errorLines {
				t.Errorf("%s: %d error lines, want %d:\n%s", when, n, errorLines, log.String())
			}
		}
		// A burst at start: none of them can have ended yet.
		for range 100 {
			c.Passed("payments")
		}
		for range alarmPasses - 1 {
			c.Passed("shop")
		}
		expect("after the burst", nil, 0)
		time.Sleep(alarmAfter)
		expect("when they should have ended", []string{"payments"}, 1)
		c.Passed("shop")
		expect("after one more", []string{"payments", "shop"}, 2)
		c.Passed("payments")
		expect("and then", []string{"payments", "shop"}, 2)

		// A refusal by the app shows as well that Envoy reports.
		if err := c.settle(t.Context(), channelAccessLog, testRef("1"), report{500, detailsUpstream, 1}, false); err != nil {
			t.Fatal(err)
		}
		expect("after a confirm of payments", []string{"shop"}, 2)
		if !strings.Contains(log.String(), "confirms arrive again") {
			t.Errorf("no line says that confirms arrive again:\n%s", log.String())
		}
		for range 60 {
			time.Sleep(time.Second)
			c.Passed("payments")
			if err := c.settle(t.Context(), channelAccessLog, testRef("1"), report{200, detailsUpstream, 1}, false); err != nil {
				t.Fatal(err)
			}
		}
		expect("while all goes well", []string{"shop"}, 2)
		c.SetSources([]string{"payments"})
		expect("after shop is removed", nil, 2)
		c.Passed("shop")
		expect("and its last request", nil, 2)
	})
}

// A store that refuses everything writes one line a minute, with the count of those left out.
func TestConfirmLogsSparsely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		inbox := settleRecorder{}
		for range 21 {
			inbox.errs = append(inbox.errs, fmt.Errorf("commit: %w", ErrUnavailable))
		}
		c := newTestConfirm(t, &inbox, func(cfg *ConfirmConfig) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		fail := func() {
			if err := c.settle(t.Context(), channelAccessLog, testRef("1"), report{200, detailsUpstream, 1}, false); !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
		}
		for range 20 {
			fail()
		}
		time.Sleep(confirmLogEvery)
		fail()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[1], "suppressed=19") || !strings.Contains(lines[0], "commit: inbox unavailable") {
			t.Errorf("log:\n%s", log.String())
		}
	})
}

func TestNewConfirmNeedsInbox(t *testing.T) {
	t.Parallel()
	if _, err := NewConfirm(ConfirmConfig{}); err == nil {
		t.Error("no error without an inbox")
	}
	registry := prometheus.NewRegistry()
	if _, err := NewConfirm(ConfirmConfig{Inbox: &settleRecorder{}, Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	if _, err := NewConfirm(ConfirmConfig{Inbox: &settleRecorder{}, Registerer: registry}); err == nil {
		t.Error("no error for metrics registered twice")
	}
}
