package extauthz

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// checkLines are the canonical lines of the log.
func checkLines(t testing.TB, g *gate) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for line := range strings.Lines(g.log.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if m["msg"] == "check" {
			lines = append(lines, m)
		}
	}
	return lines
}

// One line a Check, always the same keys, its level from the decision, nothing secret in it.
func TestCheckLine(t *testing.T) {
	t.Parallel()
	table := mustSources(t, []*Source{
		signedSource(t, "payments"), signedSource(t, "trial", func(s *Source) { s.Enforce = EnforceReport }),
	}, Match{PathPrefix: "/api"})
	always := []string{"source", "reason", "status", "event_id", "event_type", "method", "url", "request_id", "duration_ms"}
	private := hook{target: "/hooks/payments?token=hunter2", headers: [][2]string{{"x-github-encoded-secret", "c3dvcmRmaXNo"}, {"cookie", "c=hunter3"}}, body: `{"type":"a","pin":"hunter4"}`}
	forged := private
	forged.secret = "guess"
	for _, tt := range []struct {
		name  string
		h     hook
		level string
		want  map[string]any
	}{
		{"pass", private, "DEBUG", map[string]any{"source": "payments", "reason": "passed", "status": 0.0, "event_id": "evt_1", "event_type": "a", "method": "POST"}},
		{"refusal", forged, "INFO", map[string]any{"source": "payments", "reason": "bad_signature", "status": 401.0, "event_id": ""}},
		{"open", hook{target: "/api"}, "DEBUG", map[string]any{"source": "unknown", "reason": "open"}},
		{"unknown source", hook{source: "gone\n"}, "ERROR", map[string]any{"source": "unknown", "reason": "unknown_source", "named": "gone\n"}},
		{"reported, good", hook{target: "/hooks/trial"}, "DEBUG", map[string]any{"reason": "reported", "would": "passed"}},
		{"reported, bad", hook{target: "/hooks/trial", secret: "guess"}, "INFO", map[string]any{"reason": "reported", "would": "bad_signature"}},
		{"lost body", hook{change: noBody}, "INFO", map[string]any{"reason": "body_not_forwarded", "setting": "with_request_body"}},
		{"long id", hook{id: strings.Repeat("i", 4000)}, "DEBUG", map[string]any{"reason": "passed"}},
		{"long method and target", hook{target: "/" + strings.Repeat("x", 50000)}, "INFO", map[string]any{"reason": "unmatched"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, table)
			g.ask(tt.h)
			lines := checkLines(t, g)
			if len(lines) != 1 {
				t.Fatalf("%d lines: %s", len(lines), g.log.String())
			}
			for _, key := range always {
				if _, ok := lines[0][key]; !ok {
					t.Errorf("no %s in %v", key, lines[0])
				}
			}
			if got := lines[0]["level"]; got != tt.level {
				t.Errorf("level %v, want %s", got, tt.level)
			}
			for key, want := range tt.want {
				if got := lines[0][key]; got != want {
					t.Errorf("%s = %v, want %v", key, got, want)
				}
			}
			text := g.log.String()
			for _, secret := range []string{"hunter", "c3dvcmRmaXNo", testSecret, otherSecret, "v1,"} {
				if strings.Contains(text, secret) {
					t.Errorf("the log holds %q: %s", secret, text)
				}
			}
			if len(text) > 2000 {
				t.Errorf("a line of %d bytes", len(text))
			}
		})
	}
}

// The same target has the same hash, which is all that a log has of it.
func TestLogURL(t *testing.T) {
	t.Parallel()
	r := &request{scheme: "https", host: "app.example:8443", target: "/hooks/a?token=x"}
	// printf '/hooks/a?token=x' | sha256sum
	if got, want := logURL(r), "https://app.example:8443#6261844cca4657bb"; got != want {
		t.Errorf("logURL = %q, want %q", got, want)
	}
}

// A flood of forgeries is counted in full and logged a hundred times a second.
func TestRefusalsAreSampled(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGateIn(t, folder, mustSources(t, []*Source{signedSource(t, "payments"), signedSource(t, "other")}))
		for i := range 250 {
			g.ask(hook{id: fmt.Sprint(i), secret: "guess"})
		}
		if n := len(checkLines(t, g)); n != 100 {
			t.Errorf("%d lines for 250 refusals within a second", n)
		}
		g.ask(hook{target: "/hooks/other", secret: "guess"})
		if n := len(checkLines(t, g)); n != 101 {
			t.Errorf("another source's refusal is lost with them: %d lines", n)
		}
		time.Sleep(time.Second)
		g.ask(hook{secret: "guess"})
		lines := checkLines(t, g)
		if last := lines[len(lines)-1]; last["suppressed"] != 150.0 {
			t.Errorf("the next line says %v were left out, want 150", last["suppressed"])
		}
		if n := g.counter("sidehook_extauthz_checks_total", "source", "payments", "reason", "bad_signature"); n != 251 {
			t.Errorf("%v refusals are counted", n)
		}
	})
}

// Which secret matched, and when: a dead one shows.
func TestSecretUses(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGateIn(t, folder, mustSources(t, []*Source{signedSource(t, "payments")}))
		uses := func(secret string) float64 {
			return g.counter("sidehook_extauthz_secret_uses_total", "source", "payments", "secret", secret)
		}
		last := func(secret string) float64 {
			return g.counter("sidehook_extauthz_secret_last_use_timestamp_seconds", "source", "payments", "secret", secret)
		}
		g.ask(hook{id: "a", secret: otherSecret})
		g.ask(hook{id: "b", secret: otherSecret})
		g.ask(hook{id: "c", secret: "guess"})
		if uses("0") != 0 || uses("1") != 2 || last("0") != 0 || last("1") != float64(time.Now().Unix()) {
			t.Errorf("uses %v and %v, last %v and %v", uses("0"), uses("1"), last("0"), last("1"))
		}
		// A duplicate proves its secret alive too.
		g.ask(hook{id: "a"})
		if uses("0") != 1 {
			t.Errorf("uses %v", uses("0"))
		}
	})
}

// Every series is there from the start, and goes with its source; labels come from the configuration and enums only.
func TestMetricsFollowSources(t *testing.T) {
	t.Parallel()
	unverified := openSource("anybody", Match{PathPrefix: "/hooks/anybody"})
	trial := signedSource(t, "trial", func(s *Source) { s.Enforce = EnforceReport })
	both := mustSources(t, []*Source{signedSource(t, "payments"), trial, unverified})
	g := newGate(t, both)
	series := func() map[string]int {
		families, err := g.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		count := make(map[string]int)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				source := ""
				for _, l := range m.GetLabel() {
					if l.GetName() == "source" {
						source = l.GetValue()
					}
				}
				count[source]++
			}
		}
		return count
	}
	before := series()
	// checks, reports: one a reason; lost bodies: one a setting; a histogram; faults of tenants; two secrets, each with two series.
	want := 2*(int(reasonCount)-1) + int(settingCount) - 1 + 1 + 1 + 2*2
	if before["payments"] != want || before["trial"] != want || before["anybody"] != want-4 || before["unknown"] == 0 || before[""] == 0 {
		t.Errorf("series %v, want %d for payments", before, want)
	}
	if v, r := g.counter("sidehook_extauthz_unverified_sources"), g.counter("sidehook_extauthz_report_only_sources"); v != 1 || r != 1 {
		t.Errorf("%v sources unverified, %v reporting", v, r)
	}
	for _, h := range []hook{{}, {target: "/nowhere"}, {source: "gone"}, {secret: "guess"}, {target: "/hooks/trial", secret: "guess"}} {
		g.ask(h)
	}
	if after := series(); !maps.Equal(before, after) {
		t.Errorf("requests made series: %v, then %v", before, after)
	}
	g.Swap(mustSources(t, []*Source{signedSource(t, "payments", func(s *Source) { s.Keys = s.Keys[:1] })}))
	after := series()
	if after["payments"] != want-2 || after["trial"] != 0 || after["anybody"] != 0 {
		t.Errorf("series %v after a reload with one source and one secret", after)
	}
	if n := g.counter("sidehook_extauthz_checks_total", "source", "payments", "reason", "passed"); n != 1 {
		t.Errorf("a reload lost the count: %v", n)
	}
	if v, r := g.counter("sidehook_extauthz_unverified_sources"), g.counter("sidehook_extauthz_report_only_sources"); v != 0 || r != 0 {
		t.Errorf("%v sources unverified, %v reporting after the reload", v, r)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	inbox, sources := &steps{}, mustSources(t, nil)
	for name, cfg := range map[string]Config{
		"no inbox":   {Sources: sources},
		"no sources": {Inbox: inbox},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	registry := prometheus.NewRegistry()
	cfg := Config{Inbox: inbox, Sources: sources, Registerer: registry}
	if _, err := New(cfg); err != nil {
		t.Fatalf("New: %v", err)
	}
	if _, err := New(cfg); err == nil {
		t.Error("the metrics were registered twice without an error")
	}
	s, err := New(Config{Inbox: inbox, Sources: sources})
	if err != nil {
		t.Fatalf("New without logger and registerer: %v", err)
	}
	r, err := s.Check(t.Context(), hook{}.check(true))
	if a := readAnswer(t, r, err); a.status != 403 {
		t.Errorf("a gate without sources: %+v", a)
	}
}

// A log that is off costs nothing: no line is built.
func TestRecordAllocatesNothing(t *testing.T) {
	g := newGate(t, mustSources(t, []*Source{signedSource(t, "payments")}), func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) })
	var req request
	req.reset()
	d := decision{reason: ReasonPassed, in: &g.table.Load().bound[0]}
	start := time.Now()
	if n := testing.AllocsPerRun(100, func() { g.record(t.Context(), &req, &d, start) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSettingNames(t *testing.T) {
	t.Parallel()
	var names []string
	for s := settingNone + 1; s < settingCount; s++ {
		if settings[s].advice == "" || slices.Contains(names, s.String()) {
			t.Errorf("setting %d: %q, advice %q", s, s, settings[s].advice)
		}
		names = append(names, s.String())
	}
	if got := settingCount.String(); got != "invalid" {
		t.Errorf("a setting outside the enum is %q", got)
	}
}
