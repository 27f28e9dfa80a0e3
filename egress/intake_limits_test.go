package egress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

func TestIntakeStoreErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		err   error
		code  string
		after string
	}{
		{"full", fmt.Errorf("accept: %w", ErrFull), "store_full", "30"},
		{"unavailable", fmt.Errorf("accept: %w", ErrUnavailable), "unavailable", "5"},
		{"anything else", errors.New("/var/lib/sidehook: broken"), "unavailable", "5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			in, _ := newTestIntake(&intakeOutbox{before: func(*Event) error { return tt.err }}, func(c *IntakeConfig) {
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			w := serveIntake(in, intakeJSON(`{"type":"a","data":1}`))
			checkProblem(t, w, 503, tt.code)
			if got := w.Header().Get("Retry-After"); got != tt.after {
				t.Errorf("Retry-After %q, want %q", got, tt.after)
			}
			if strings.Contains(w.Body.String(), "/var/lib") {
				t.Errorf("the answer tells of our disk: %s", w.Body)
			}
			if !strings.Contains(log.String(), "event not taken") || !strings.Contains(log.String(), tt.err.Error()) {
				t.Errorf("log %q tells not of %v", log.String(), tt.err)
			}
		})
	}
}

// Case 65: an event of the largest size is taken, one byte more is refused and never queued.
func TestIntakeSize(t *testing.T) {
	t.Parallel()
	const most = 1000
	envelope := func(n int) string {
		const frame = `{"type":"a","data":""}`
		return frame[:len(frame)-2] + strings.Repeat("x", n-len(frame)) + frame[len(frame)-2:]
	}
	for _, tt := range []struct {
		name string
		path string
		body func(n int) string
		// unknown: the length is not said beforehand.
		unknown bool
	}{
		{"JSON", eventsPath, envelope, false},
		{"JSON of unknown length", eventsPath, envelope, true},
		{"raw", "/v1/endpoints/all/events", func(n int) string { return strings.Repeat("x", n) }, false},
		{"raw of unknown length", "/v1/endpoints/all/events", func(n int) string { return strings.Repeat("x", n) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := new(intakeOutbox)
			in, _ := newTestIntake(o, func(c *IntakeConfig) { c.Settings.MaxEventBytes = most })
			post := func(n int) *httptest.ResponseRecorder {
				r := intakePost(tt.path, tt.body(n), "Content-Type", "application/json")
				if tt.unknown {
					r.ContentLength = -1
				}
				return serveIntake(in, r)
			}
			if w := post(most); w.Code != http.StatusAccepted {
				t.Errorf("%d bytes: %d %s", most, w.Code, w.Body)
			}
			checkProblem(t, post(most+1), 413, "too_large")
			if n := len(o.accepted()); n != 1 {
				t.Errorf("%d events, want 1", n)
			}
		})
	}
}

func TestIntakeIncompleteBody(t *testing.T) {
	t.Parallel()
	o := new(intakeOutbox)
	in, _ := newTestIntake(o, nil)
	for _, length := range []int64{100, -1} {
		r := intakeJSON("")
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"type":"a","data":1}`), brokenReader{}))
		r.ContentLength = length
		checkProblem(t, serveIntake(in, r), 400, "incomplete_body")
	}
	if n := len(o.accepted()); n != 0 {
		t.Errorf("%d events, want none", n)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The bytes in hand are bounded: what does not fit is refused at once, and goes through when there is room again.
func TestIntakeBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		o := &intakeOutbox{before: func(e *Event) error {
			if e.ID == "slow" {
				<-held
			}
			return nil
		}}
		in, counts := newTestIntake(o, func(c *IntakeConfig) { c.Settings.MaxEventBytes, c.MaxBytesInFlight = 1000, 1000 })
		slow := intakePost("/v1/endpoints/all/events", strings.Repeat("x", 900), "Webhook-Id", "slow")
		ended := make(chan int)
		go func() { ended <- serveIntake(in, slow).Code }()
		synctest.Wait()

		post := func(n int) *httptest.ResponseRecorder {
			return serveIntake(in, intakePost("/v1/endpoints/all/events", strings.Repeat("x", n)))
		}
		w := post(101)
		checkProblem(t, w, 503, "busy")
		if got := w.Header().Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After %q, want 1", got)
		}
		unknown := intakePost("/v1/endpoints/all/events", "x")
		unknown.ContentLength = -1
		checkProblemNamed(t, "a body of unknown length counts as the largest", serveIntake(in, unknown), 503, "busy")
		if w := post(100); w.Code != http.StatusAccepted {
			t.Errorf("what fits: %d %s", w.Code, w.Body)
		}
		close(held)
		if code := <-ended; code != http.StatusAccepted {
			t.Errorf("the slow one: %d", code)
		}
		if w := post(1000); w.Code != http.StatusAccepted {
			t.Errorf("when there is room again: %d %s", w.Code, w.Body)
		}
		if diff := cmp.Diff(map[string]int{IntakeAccepted: 3, "busy": 2}, counts.get()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	})
}

// A refusal gives back the bytes that it held: ten thousand of them leave room for the largest event.
func TestIntakeRefusalsHoldNothing(t *testing.T) {
	t.Parallel()
	in, _ := newTestIntake(new(intakeOutbox), func(c *IntakeConfig) { c.Settings.MaxEventBytes, c.MaxBytesInFlight = 1000, 1000 })
	for i := range 1000 {
		bad := intakeJSON(`{"type":"a"`)
		if i%2 == 0 {
			bad = intakeJSON("")
			bad.Body, bad.ContentLength = io.NopCloser(brokenReader{}), 900
		}
		if w := serveIntake(in, bad); w.Code != http.StatusBadRequest {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if w := serveIntake(in, intakePost("/v1/endpoints/all/events", strings.Repeat("x", 1000))); w.Code != http.StatusAccepted {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// An endpoint that is removed while an event is stored is not one of its targets.
func TestIntakeEndpointRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	set := intakeEndpoints()
	tries := 0
	o := &intakeOutbox{before: func(*Event) error {
		if tries++; tries == 1 {
			set = NewEndpoints([]*Endpoint{{ID: "all"}})
			return fmt.Errorf("endpoint acme: %w", ErrNotFound)
		}
		return nil
	}}
	in, _ := newTestIntake(o, func(c *IntakeConfig) { c.Endpoints = func() *Endpoints { return set } })
	w := serveIntake(in, intakeJSON(`{"type":"invoice.paid","data":1}`))
	if w.Code != http.StatusAccepted || strings.Contains(w.Body.String(), "acme") || !strings.Contains(w.Body.String(), `"endpoint":"all"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	set, tries = intakeEndpoints(), 0
	checkProblem(t, serveIntake(in, intakePost("/v1/endpoints/acme/events", "x")), 404, "unknown_endpoint")
}

// A reload takes hold with the next request, and cannot ask for more than the intake may hold.
func TestIntakeSettings(t *testing.T) {
	t.Parallel()
	in, _ := newTestIntake(new(intakeOutbox), func(c *IntakeConfig) {
		c.MaxBytesInFlight, c.Settings = 1000, IntakeSettings{MaxEventBytes: 100, Hosts: []string{"old.internal"}}
	})
	post := func(host string, n int) *httptest.ResponseRecorder {
		r := intakePost("/v1/endpoints/all/events", strings.Repeat("x", n))
		r.Host = host
		return serveIntake(in, r)
	}
	if w := post("old.internal", 100); w.Code != http.StatusAccepted {
		t.Errorf("before: %d %s", w.Code, w.Body)
	}
	in.SetSettings(IntakeSettings{MaxEventBytes: 1 << 20, Hosts: []string{"new.internal"}})
	checkProblemNamed(t, "the old name", post("old.internal", 100), 403, "forwarded_request")
	if w := post("new.internal", 1000); w.Code != http.StatusAccepted {
		t.Errorf("the new name and size: %d %s", w.Code, w.Body)
	}
	checkProblemNamed(t, "more than it may hold", post("new.internal", 1001), 413, "too_large")
}
